"""The simulated job's library in C, and how the shipped Python comes to call it.

``words.c`` is compiled anew for each run of tests, from the sources of this tree. `Library` stands
in place of the loaded extension: it has the functions of ``words.c``, a few in Python in place of
the MPI library, and passes all others (the vaults' above all) on to the extension itself.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from cffi import FFI
from tree import ROOT

from ftrma.native import loading

HERE = Path(__file__).parent
COMPILER = shlex.split(os.environ.get("CC") or "cc")
FOLDERS = ("", "job", "kernels", "log", "wire")
INCLUDED = (HERE / "stub", *(ROOT / "csrc" / folder for folder in FOLDERS))
LIMIT_S = 120
DECLARED = """
typedef int sim_hook(int kind, uint32_t *word, uint64_t value, uint64_t ns);
struct sim_wait {
    const uint32_t *bell;
    uint32_t seen;
    int naps;
    uint64_t until, frozen;
};
int sim_choose(struct sim_wait **tasks, int n, double drawn, uint64_t now, uint64_t *next);
void sim_begin(sim_hook *function);
void sim_clear(void *process);
void sim_watch(void *process, void *ctl, int me, int node);
uint32_t *sim_pokes(int node);
void sim_set_node(int node, const uint64_t *begun, const uint64_t *newest_ordered);
void sim_exchange(void *off, const void *on);
void sim_turn(int64_t turn, uint64_t now);
void sim_replay(int slot, uint64_t version);
int sim_await_live(int slot);
void sim_see_alarm(void);
void sim_close_mail(void *mail);
uint64_t sim_barriers(void);
void sim_set_barriers(uint64_t barriers);
uint64_t sim_points(void);
uint64_t sim_process_bytes(void);
"""
POINT, WAIT, VISIT, INTERRUPT, LIVE = range(5)  # kinds of calls of the hook
# Functions of the extension that ``words.c`` has, as the shipped Python calls them.
SIMULATED = (
    "admit", "alarmed", "arrive", "attempt_begin", "attempt_end", "attempt_of_thread",
    "await_staged", "cas", "claim_error", "ctl_create", "ctl_open", "end", "event_begin",
    "event_finish", "failpoint_visit", "join", "keep_refusal", "load", "log_mark", "log_start",
    "loses_threads", "mail_append", "mail_attach", "mail_bell", "mail_create", "mail_dead",
    "mail_death", "mail_generation", "mail_holds", "mail_join", "mail_joined", "mail_limit",
    "mail_note_death", "mail_release", "mail_ring", "mail_start", "mail_started", "mail_take",
    "mail_wait", "mail_words", "mark_broken", "meet", "mode", "must_unwind", "my_role",
    "note_death", "note_lost",
    "now_ns", "raise", "refuse", "replay_over", "results_lost", "ring", "role_of", "set_round",
    "sleep", "slots_barrier", "store", "story_create", "synchronize", "trace_note", "word_add",
    "words_equal", "words_read",
)

# Functions on vaults, which others see before or after: of who stages, sums, folds and restores.
PLACED = frozenset(f"ftrma_{name}" for name in (
    "check", "parity_drop", "parity_fold", "parity_sum", "parity_unstage", "rebuild", "stage",
    "stage_begin", "stage_end", "stage_undo"))


def compile_words(source: Path, to: Path, root: Path = ROOT) -> None:
    """Compile ``words.c``.

    Args:
        root: of the tree whose sources it includes.

    Raises:
        RuntimeError: it does not compile.
    """
    included = [path if root == ROOT else root / path.relative_to(ROOT) for path in INCLUDED]
    command = [*COMPILER, "-std=gnu11", "-O1", "-fno-strict-aliasing", "-Wall", "-Werror",
               "-shared", "-fPIC", *(f"-I{path}" for path in included), str(source), "-o", str(to),
               "-Wl,-Bsymbolic", "-Wl,-z,defs", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise RuntimeError(done.stderr)


libc = ctypes.CDLL(None)


class Words:
    """The library of ``words.c``.

    Attributes:
        sim: its own functions; ffi: their declarations.
        shared: the functions that the extension has, too.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "words.so"
            compile_words(HERE / "words.c", path)
            self.ffi = FFI()
            self.ffi.cdef(DECLARED)
            self.sim: Any = self.ffi.dlopen(str(path))
            native = loading.load()
            self.shared: Any = native.ffi.dlopen(str(path))
        self.process_bytes = int(self.sim.sim_process_bytes())


@cache
def words() -> Words:
    """The library; compiled once."""
    return Words()


class Library:
    """Functions in place of the extension's, for the processes of one simulated job.

    Args:
        mpi: functions by their names, in place of the MPI library and of logs.
        point: others may come between here: before what a vault's code does.
    """

    def __init__(self, mpi: dict[str, Any], point: Callable[[], None]) -> None:
        self.native, self.point = loading.load(), point
        self.vaults: set[Any] = set()
        self.mails: list[Any] = []
        self.controls: list[Any] = []
        for name in SIMULATED:
            setattr(self, f"ftrma_{name}", getattr(words().shared, f"ftrma_{name}"))
        for name in ("ftrma_ctl_create", "ftrma_ctl_open"):
            setattr(self, name, partial(self._map_control, getattr(self, name)))
        for name, function in mpi.items():
            setattr(self, f"ftrma_{name}", function)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.native.lib, name)
        if name in PLACED:
            found = self._behind_a_point(found)
        setattr(self, name, found)
        return found

    def _behind_a_point(self, function: Any) -> Any:
        def call(*given: Any) -> Any:
            self.point()
            return function(*given)

        return call

    def ftrma_parity_rebuild(self, parity: Any, members: Any, weights: Any, count: int,
                             version: int, first: int, end: int) -> int:
        """Compute a parity in two parts, so that others come between."""
        whole = self.native.lib.ftrma_parity_rebuild
        bad = int(whole(parity, members, weights, count, version, first, min(end, first + 1)))
        self.point()
        if bad != -1 or end <= first + 1:
            return bad
        return int(whole(parity, members, weights, count, version, first + 1, end))

    def ftrma_vault_open(self, path: bytes, create: int, capacity: int, size: int,
                         pointer: Any) -> int:
        result = int(self.native.lib.ftrma_vault_open(path, create, capacity, size, pointer))
        if result == 0:
            self.vaults.add(pointer[0])
        return result

    def _map_control(self, function: Any, *given: Any) -> int:
        result, pointer = int(function(*given)), given[-1]
        if pointer[0] != self.native.ffi.NULL:
            self.controls.append(pointer[0])
        return result

    def ftrma_mail_open(self, path: bytes, me: int, pointer: Any) -> int:
        result = int(words().shared.ftrma_mail_open(path, me, pointer))
        if result == 0:
            self.mails.append(pointer[0])
        return result

    def ftrma_vault_close(self, vault: Any) -> None:
        if vault in self.vaults:
            self.vaults.discard(vault)
            self.native.lib.ftrma_vault_close(vault)

    def ftrma_vault_ahead(self, vault: Any, blocks: int, staging: int) -> None:
        self.native.lib.ftrma_vault_reserve(vault, blocks, staging)

    def close(self) -> None:
        """Unmap what processes have mapped that died."""
        for mail in self.mails:
            address = int(self.native.ffi.cast("uintptr_t", mail))
            words().sim.sim_close_mail(words().ffi.cast("void *", address))
        while self.vaults:
            self.native.lib.ftrma_vault_close(self.vaults.pop())
        size = self.native.ffi.sizeof("struct ftrma_ctl")
        for ctl in self.controls:
            address = int(self.native.ffi.cast("uintptr_t", ctl))
            libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
