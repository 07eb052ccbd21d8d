"""The simulated job's library in C, and how the shipped Python comes to call it.

``words.c`` is compiled anew for each run of tests, from the sources of this tree. `Library` stands
in place of the loaded extension: it has the functions of ``words.c``, a few in Python in place of
the MPI library, and passes all others (the vaults' above all) on to the extension itself.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from cffi import FFI
from tree import ROOT

from ftrma.native import loading

HERE = Path(__file__).parent
COMPILER = shlex.split(os.environ.get("CC") or "cc")
INCLUDED = (HERE / "stub", *(ROOT / "csrc" / folder for folder in ("", "job", "log", "wire")))
LIMIT_S = 120
DECLARED = """
typedef int sim_hook(int kind, uint32_t *word, uint64_t value, uint64_t ns);
void sim_begin(sim_hook *function);
void sim_clear(void *process);
void sim_watch(void *process, void *ctl, int me, int node);
uint32_t *sim_pokes(int node);
void sim_set_node(int node, const uint64_t *begun, const uint64_t *newest_ordered);
void sim_exchange(void *off, const void *on);
void sim_turn(int64_t turn, uint64_t now);
void sim_replay(int slot, uint64_t version);
int sim_await_live(int slot);
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
    "loses_threads", "mark_broken", "meet", "mode", "must_unwind", "my_role", "note_death",
    "now_ns", "raise", "refuse", "replay_over", "results_lost", "ring", "role_of", "set_round",
    "sleep", "slots_barrier", "store", "story_create", "synchronize", "trace_note",
)


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
    """

    def __init__(self, mpi: dict[str, Any]) -> None:
        self.native = loading.load()
        self.vaults: set[Any] = set()
        for name in SIMULATED:
            setattr(self, f"ftrma_{name}", getattr(words().shared, f"ftrma_{name}"))
        for name, function in mpi.items():
            setattr(self, f"ftrma_{name}", function)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.native.lib, name)
        setattr(self, name, found)
        return found

    def ftrma_vault_open(self, path: bytes, create: int, capacity: int, size: int,
                         pointer: Any) -> int:
        result = int(self.native.lib.ftrma_vault_open(path, create, capacity, size, pointer))
        if result == 0:
            self.vaults.add(pointer[0])
        return result

    def ftrma_vault_close(self, vault: Any) -> None:
        if vault in self.vaults:
            self.vaults.discard(vault)
            self.native.lib.ftrma_vault_close(vault)

    def ftrma_vault_ahead(self, vault: Any, blocks: int, staging: int) -> None:
        self.native.lib.ftrma_vault_reserve(vault, blocks, staging)

    def close(self) -> None:
        """Unmap what processes have mapped that died."""
        while self.vaults:
            self.native.lib.ftrma_vault_close(self.vaults.pop())
