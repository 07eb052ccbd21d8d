"""The job as one process sees it: roles, membership, files, events.

A thin view of the control file (see ``csrc/ftrma.h``). It holds facts and waits; what to do about
them is decided in `protocol`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from ..errors import NO_ROOM, FtrmaError, NoRoom, Rollback
from ..host.key import Key
from ..host.lock import lock_shared
from ..host.private import check_directory
from ..host.record import Seal
from ..machine.topology import Layout
from ..native.constants import PLACES


class RoundChanged(Exception):
    """Another process failed during repair: start the round over."""


class World:
    """One process's place in the job.

    Args:
        native: the loaded C extension.
        directory: of the job's memory files.
        key: of the job.
        proc: position of this process in the MPI world.
        ctl: the control file, if it is not the one in the directory.

    Attributes:
        policy: "auto", "causal" or "rollback".
        fresh: all go back by being launched again, not in the same processes.
    """

    policy = "rollback"
    fresh = False

    def __init__(
        self, native: Any, directory: Path, key: Key, proc: int, ctl: Any = None
    ) -> None:
        self.native, self.lib, self.ffi = native, native.lib, native.ffi
        check_directory(directory)
        self.directory, self.key = directory, key
        self.lock = lock_shared(self.of_job(directory))
        os.register_at_fork(after_in_child=self.lock.close)
        self.proc = proc
        self.ctl = ctl or open_control(native, directory)
        check(self.lib.ftrma_join(self.ctl, proc, os.fsencode(directory)), "joining the job")
        self.mapped: dict[int, Any] = {}  # vaults of other processes, see group.mapped_vault

    @staticmethod
    def of_job(directory: Path) -> Path:
        """The job's directory on this node."""
        return directory

    # -- roles --------------------------------------------------------------------------------

    def role(self) -> tuple[int, int]:
        """This process's role (SLOT, CHECKSUM, SPARE) and its slot, checksum or spare number."""
        index = self.ffi.new("int *")
        return int(self.lib.ftrma_my_role(index)), int(index[0])

    @property
    def roles(self) -> Any:
        return self.ctl.roles[self.ctl.roles_seq & 1]

    def holders(self) -> list[int]:
        """Processes of the slots, in their order."""
        return [int(self.roles.slot_proc[s]) for s in range(self.ctl.nslots)]

    @property
    def me(self) -> Any:
        return self.ctl.proc[self.proc]

    def alive(self, proc: int) -> bool:
        return proc >= 0 and self.ctl.proc[proc].state == self.lib.FTRMA_ALIVE

    def seal(self, version: int | str) -> Seal:
        """What the record of this process's slot is bound to, in a checkpoint of this version."""
        return Seal(self.key, f"slot {self.role()[1]}", str(version))

    def members(self, group: int) -> list[int]:
        """Slots of a group, in the order of the code's columns."""
        return [s for s in range(self.ctl.nslots) if self.roles.slot_group[s] == group]

    def group_of_checksum(self, checksum: int) -> int:
        return int(checksum // self.ctl.strength)

    def checksums_of(self, group: int) -> range:
        """Checksum ranks of a group, in the order of its parities."""
        return range(group * self.ctl.strength, (group + 1) * self.ctl.strength)

    def ready(self, proc: int) -> bool:
        """A living process's vault holds what its role must hold."""
        return self.alive(proc) and bool(self.ctl.proc[proc].ready)

    def spares(self) -> list[int]:
        """Living processes without a role, lowest first."""
        busy = {self.roles.slot_proc[s] for s in range(self.ctl.nslots)}
        busy |= {self.roles.checksum_proc[c] for c in range(self.ctl.nchecksums)}
        return [p for p in range(self.ctl.nprocs) if p not in busy and self.alive(p)]

    @property
    def committed(self) -> int:
        return int(self.lib.ftrma_load(self.field("commit"))) >> 1

    def field(self, name: str) -> Any:
        """Address of a word of the control file."""
        return self.ffi.addressof(self.ctl, name)

    def load(self, name: str) -> int:
        return int(self.lib.ftrma_load(self.field(name)))

    def ending(self) -> bool:
        return self.load("alarm") == int(self.lib.FTRMA_ENDED)

    def store(self, name: str, value: int) -> None:
        self.lib.ftrma_store(self.field(name), value)

    def put(self, name: str, value: int) -> None:
        """Store a word of this process's own entry."""
        self.lib.ftrma_store(self.ffi.addressof(self.me, name), value)

    # -- waits --------------------------------------------------------------------------------

    def visit(self, place: str) -> None:
        self.lib.ftrma_visit(PLACES[place])

    def alarmed(self) -> bool:
        return bool(self.lib.ftrma_alarmed())

    def unwind_if_alarmed(self) -> None:
        """Have a pending failure repaired; raises Rollback unless that was possible in place.

        It does so too in a thread of an earlier attempt, which can have nothing repaired.
        """
        if self.lib.ftrma_must_unwind():
            raise Rollback("a process failed")

    def barrier(self) -> None:
        """Wait for all slots; raises Rollback when a failure comes first."""
        if self.lib.ftrma_slots_barrier() != self.lib.FTRMA_OK:
            raise Rollback("a process failed")

    def same_everywhere(self, value: int) -> int | None:
        """Compare a value over all slots; returns a slot that gave another one, or None."""
        self.put("protect_hash", value)
        self.barrier()
        if self.lib.ftrma_mode() != self.lib.FTRMA_LIVE:
            self.barrier()
            return None  # it was compared in the past that is being replayed
        theirs = [self.ctl.proc[self.roles.slot_proc[s]].protect_hash
                  for s in range(self.ctl.nslots)]
        different = next((s for s, v in enumerate(theirs) if v != value), None)
        if different is None:
            self.barrier()  # nobody gives the next value before all have seen this one
        return different

    def end_program(self) -> None:
        """Wait for all slots at the program's end; raises Rollback when a failure comes first."""
        if self.lib.ftrma_end() != self.lib.FTRMA_OK:
            raise Rollback("a process failed")

    def meet(self, round_number: int, phase: int, *, planned: bool = True) -> None:
        """Wait for all the living at a phase of repair; raises RoundChanged at another failure."""
        if self.lib.ftrma_meet(round_number, phase, planned) != self.lib.FTRMA_OK:
            raise RoundChanged

    # -- files --------------------------------------------------------------------------------

    def vault_path(self, proc: int) -> Path:
        return self.directory / f"vault-{proc}"

    def lose_vault(self, proc: int) -> None:
        """Put a dead process's vault out of reach; freeing its memory takes longer and can wait."""
        with contextlib.suppress(FileNotFoundError):
            self.vault_path(proc).rename(self.directory / f"lost-{proc}")

    def free_lost_vaults(self) -> None:
        for path in self.directory.glob("lost-*"):
            path.unlink(missing_ok=True)

    # -- the supervisor -------------------------------------------------------------------------

    def claim_error(self) -> bool:
        """True for the one process whose error is the job's."""
        self.lib.ftrma_claim_error()
        return bool(self.ctl.error_owner == self.proc + 1)

    def abort(self, status: int) -> None:
        """Ask for the end of the whole job with this status."""
        self.ctl.exit_status = status
        self.ctl.request = self.lib.FTRMA_ABORT

    def ask_for_relaunch(self, reason: str) -> None:
        """Have the supervisor launch the job again, unless it is asked for something already."""
        nothing, request = self.lib.FTRMA_NOTHING, self.lib.FTRMA_RELAUNCH
        if self.ctl.request == nothing:
            self.emit("plan", kind="relaunch", slots=[], reason=reason, version=self.committed)
            self.ctl.request = request

    def leave(self) -> None:
        """The last that this process does in the job, after it has ended well."""

    def events(self) -> list[dict[str, Any]]:
        """The job's story so far."""
        return read_events(self.directory)

    def emit(self, event: str, **data: Any) -> None:
        """Append one event to the job's story; whole lines, so that writers cannot mix."""
        emit(self.directory, event, **data)

    def tell(self, text: str) -> None:
        """One line for people, on the user's stderr."""
        sys.stderr.write(f"ftrma: {text}\n")
        sys.stderr.flush()


def capacity_blocks() -> int:
    """Blocks of a vault: as much as the machine has memory; the file is sparse."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4096


FULL_BYTES = 1 << 20  # less than what any repair takes
LOG_BYTES = 64 << 20  # default budget: some seconds of puts of a program that does little else
LOG_SHARE = 8  # all logs together take at most this part of the free shared memory by default


def log_bytes(directory: Path, slots: int, least: int) -> int:
    """Default budget of each slot's logs, bytes."""
    room = os.statvfs(directory)
    share = room.f_bavail * room.f_frsize // LOG_SHARE // slots
    return max(least, min(LOG_BYTES, share))


def check_log_budget(native: Any, budget: int | None) -> None:
    """Refuse a budget of logs that holds next to nothing."""
    least = int(native.lib.ftrma_log_least())
    if budget is not None and budget < least:
        raise ValueError(
            f"--log-budget {budget}: too small for a slot's access logs; give {least} bytes or more"
        )


def make_control(native: Any, path: Path, layout: Layout, log_budget: int | None = None) -> Any:
    """Make a job's control file.

    Args:
        log_budget: of each slot's logs, bytes; None: the default.
    """
    least = int(native.lib.ftrma_log_least())
    pointer = native.ffi.new("struct ftrma_ctl **")
    check(
        native.lib.ftrma_ctl_create(
            os.fsencode(path), layout.processes, layout.slots, layout.groups,
            layout.strength, layout.group_size, capacity_blocks(), pointer,
        ),
        f"making {path}",
    )
    pointer[0].log_bytes = log_budget or log_bytes(path.parent, layout.slots, least)
    for slot in range(layout.slots):
        pointer[0].roles[0].slot_group[slot] = layout.group_of(slot)
    return pointer[0]


def open_control(native: Any, directory: Path) -> Any:
    pointer = native.ffi.new("struct ftrma_ctl **")
    path = os.fsencode(directory / "control")
    check(native.lib.ftrma_ctl_open(path, pointer), f"opening {directory}/control")
    return pointer[0]


def emit(directory: Path, event: str, **data: Any) -> None:
    """Append one event to a job's story. Where there is no memory for it, it is lost."""
    # The first newline ends a line that was cut off where memory was full.
    line = "\n" + json.dumps({"event": event, "time": time.time(), **data}) + "\n"
    fd = os.open(directory / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            os.write(fd, line.encode())
    finally:
        os.close(fd)


def read_events(directory: Path) -> list[dict[str, Any]]:
    try:
        lines = (directory / "events").read_text().splitlines()
    except FileNotFoundError:
        return []
    story = []
    for line in lines:
        with contextlib.suppress(ValueError):  # cut off where memory was full
            story.append(json.loads(line))
    return story


def last_plan(story: list[dict[str, Any]]) -> dict[str, Any]:
    """The newest plan of a job's story; one without slots if it could not be written."""
    plans = [event for event in story if event["event"] == "plan"]
    if plans:
        return plans[-1]
    reason = f"the job's story is cut off: {NO_ROOM}"
    return {"kind": "unknown", "slots": [], "replayed": [], "reason": reason}


def check(result: int, doing: str) -> int:
    """Turn a negative errno from C into an error in words."""
    if result >= 0:
        return result
    if -result == errno.ENOSPC:
        raise NoRoom(f"{doing}: {NO_ROOM}")
    text = os.strerror(-result)
    if -result == errno.ENOMEM:
        text = (
            "no memory, or no addresses for it: a vault is mapped for as much memory as the "
            f"machine has{_address_limit()}"
        )
    raise FtrmaError(f"{doing}: {text}")


def _address_limit() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"; 'ulimit -v' allows {limit >> 20} MiB: set it to unlimited"


def is_full(directory: Path) -> bool:
    """Whether shared memory has next to nothing left."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize < FULL_BYTES
