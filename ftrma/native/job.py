"""Calls into ``csrc/job/``: the MPI library, the control file, this process, waits and alarms.

``csrc/ftrma.h`` describes the functions of C; this module gives them types, and turns their results
into errors. Call `loading.load` first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Callable, Iterator
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import NamedTuple

from ..host.errors import FtrmaError
from . import extension as c
from .constants import number
from .shared import Array, Control, Proc, Process, Version


class ProcessState(IntEnum):
    """States of a process."""

    ABSENT, ALIVE, DEAD = number("ABSENT"), number("ALIVE"), number("DEAD")


class Wait(IntEnum):
    """Ways in which a wait ends."""

    OK, ALARM, TIMEOUT = number("OK"), number("ALARM"), number("TIMEOUT")


class Request(IntEnum):
    """Requests of the job to its supervisor."""

    NOTHING, RELAUNCH, ABORT = number("NOTHING"), number("RELAUNCH"), number("ABORT")


class Takeover(IntEnum):
    """Steps in which a launch takes over the vaults of the launch before it."""

    DONE, CLEARING = number("TAKEOVER_DONE"), number("TAKEOVER_CLEARING")
    NAMING, OFFERED = number("TAKEOVER_NAMING"), number("TAKEOVER_OFFERED")


class Left(IntFlag):
    """Parts of the word in which a process notes how it ends itself, and with which value."""

    BY_STATUS, BY_SIGNAL = number("LEFT_BY_STATUS"), number("LEFT_BY_SIGNAL")
    BY_EXIT, BY_MEMORY = number("LEFT_BY_EXIT"), number("LEFT_BY_MEMORY")
    BY_ABORT = number("LEFT_BY_ABORT")


CALLS_INSIDE = number("CALLS_INSIDE")  # mask of the number of threads that are inside
LEFT_VALUE = number("LEFT_VALUE")  # mask of the status or signal
ENDED = number("ENDED")
STUMBLES = number("STUMBLES")
LAST_PHASE = number("LAST_PHASE")


class Mpi(NamedTuple):
    """This process's place in the MPI world."""

    rank: int
    size: int
    on_node: int


_clock_ahead_ns = 0


def set_clock(ahead_ns: int) -> None:
    """Set how far the job's clock is ahead of this machine's monotonic clock."""
    global _clock_ahead_ns
    _clock_ahead_ns = ahead_ns
    c.lib.ftrma_set_clock(ahead_ns)


def clock_ahead_ns() -> int:
    """Return how far the job's clock is ahead of this machine's."""
    return _clock_ahead_ns


def now_ns() -> int:
    """Read CLOCK_MONOTONIC; over several nodes the supervisor's clock, see `fabric.clock`."""
    return int(c.lib.ftrma_now_ns())


# ---- the MPI library ------------------------------------------------------------------------


def interposed() -> bool:
    """Say whether calls of MPI from outside pass through the extension."""
    return bool(c.lib.ftrma_interposed())


def has_ulfm() -> bool:
    return bool(c.lib.ftrma_has_ulfm())


def unwind_code() -> int:
    """Return the error code by which C tells Python to unwind; 0 before `comm_prepare`."""
    return int(c.lib.ftrma_unwind_code())


def mpi_world() -> Mpi:
    """Return this process's rank, the number of all processes, and of those on its node."""
    rank, size, on_node = c.ffi.new("int *"), c.ffi.new("int *"), c.ffi.new("int *")
    if c.lib.ftrma_mpi_world(rank, size, on_node):
        raise FtrmaError("the MPI library cannot tell which processes share a node")
    return Mpi(rank[0], size[0], on_node[0])


def mpi_bcast(data: bytes, size_bytes: int) -> bytes:
    """Send rank 0's bytes to all, padded with zeros. Collective over the MPI world."""
    buffer = c.ffi.new("uint8_t[]", size_bytes)
    c.ffi.memmove(buffer, data, len(data))
    c.lib.ftrma_mpi_bcast(buffer, size_bytes)
    return bytes(c.ffi.buffer(buffer))


def mpi_abort(status: int) -> None:
    c.lib.ftrma_mpi_abort(status)


def mpi_finalize() -> None:
    c.lib.ftrma_mpi_finalize()


def comm_prepare() -> None:
    """Duplicate the MPI world for later repairs. Collective over all processes."""
    c.check(-c.lib.ftrma_comm_prepare(), "preparing communicators")


def comm_parent() -> int:
    """Return the handle of that duplicate, as mpi4py's ``fromhandle`` takes it."""
    return int(c.lib.ftrma_comm_parent())


def comm_build(repair: int) -> int:
    """Build the slots' communicator in a round of repair; return 0, Wait.ALARM or an MPI code."""
    return int(c.lib.ftrma_comm_build(repair))


def comm_defer() -> None:
    """Go on without the slots' communicator until some process needs it."""
    c.check(-c.lib.ftrma_comm_defer(), "putting communicators aside")


def comm_forget(repair: int) -> None:
    c.lib.ftrma_comm_forget(repair)


def boards_clear() -> None:
    c.check(c.lib.ftrma_boards_clear(), "removing what communicators have shared")


def partitioned_help() -> bool:
    """Take part in the program's partitioned communication; return False if there is none."""
    return bool(c.lib.ftrma_partitioned_help())


# ---- the control file -----------------------------------------------------------------------


def make_control(
    path: Path, processes: int, slots: int, groups: int, strength: int, group_size: int,
    capacity_blocks: int,
) -> Control:
    """Make a control file with roles seated in order; the caller fills in the groups."""
    pointer = c.ffi.new("struct ftrma_ctl **")
    c.check(
        c.lib.ftrma_ctl_create(os.fsencode(path), processes, slots, groups, strength, group_size,
                             capacity_blocks, pointer),
        f"making {path}",
    )
    control: Control = pointer[0]
    return control


def open_control(path: Path) -> Control:
    pointer = c.ffi.new("struct ftrma_ctl **")
    c.check(c.lib.ftrma_ctl_open(os.fsencode(path), pointer), f"opening {path}")
    control: Control = pointer[0]
    return control


def make_story(path: Path) -> None:
    """Make the file of a job's events, with memory allocated ahead."""
    c.check(c.lib.ftrma_story_create(os.fsencode(path)), "making events")


def copy_rules(to: Control, source: Control) -> None:
    c.ffi.memmove(to.rules, source.rules, c.ffi.sizeof(source.rules))


def copy_roles(ctl: Control, to: int, source: int) -> None:
    c.ffi.memmove(c.ffi.addressof(ctl.roles[to]), c.ffi.addressof(ctl.roles[source]),
                c.ffi.sizeof("struct ftrma_roles"))


def set_nodes(origin: int, ledger: int) -> None:
    """Set the origin by which this process reaches other nodes.

    Args:
        origin, ledger: addresses, see `wire.Origin.address` and `wire.ledger_address`; the origin
            is 0 if this process holds no slot.
    """
    c.lib.ftrma_set_nodes(c.ffi.cast("void *", origin), c.ffi.cast("void *", ledger))


def world_open() -> None:
    """Let slots on other nodes reach the areas that the slots' communicator uses for exchanges.

    Call this before any slot makes a collective call.
    """
    c.check(c.lib.ftrma_world_open(), "sharing what collective calls exchange")


def set_agent(bell: int, poke: int, origin: int, service: int) -> None:
    """Set the descriptors by which this process and its node's agent wake each other.

    Args:
        bell: descriptor of the agent's bell.
        poke: descriptor to which the agent writes.
        origin, service: alarms of this process's origins; -1 if it has no such origin.
    """
    c.lib.ftrma_set_agent(bell, poke, origin, service)


def set_scans(scans: int, ordered: int) -> None:
    """Set the words in which the agent says how far it has come, see `wire.mirror_scans`."""
    c.lib.ftrma_set_scans(c.ffi.cast("void *", scans), c.ffi.cast("void *", ordered))


def synchronize() -> bool:
    """Wait until this node's stores have their place among those of others; False: an alarm
    came."""
    return bool(c.lib.ftrma_synchronize() == Wait.OK)


@contextlib.contextmanager
def reserve_origin() -> Iterator[None]:
    """Keep other threads from accessing other nodes meanwhile."""
    c.lib.ftrma_originlock_hold(1)
    try:
        yield
    finally:
        c.lib.ftrma_originlock_hold(0)


def far_quiet(repair: int) -> Wait:
    """Wait, in a round of repair, until all puts of this slot to other nodes are acknowledged."""
    return Wait(c.check(c.lib.ftrma_far_quiet(repair), "flushing in a repair"))


def far_answers(repair: int) -> Wait:
    """In a round of repair, if the atomic that this slot waits for was done, have its result
    logged."""
    return Wait(c.check(c.lib.ftrma_far_answers(repair), "asking for an answer in a repair"))


def windows_flush() -> bool:
    """Wait until all writes of this process to windows are complete; False: a failure came."""
    result = int(c.lib.ftrma_windows_flush())
    if result and result != unwind_code():
        raise FtrmaError("what was written to windows on other nodes does not arrive")
    return not result


def load(struct: Control | Process, name: str) -> int:
    """Read a word that other processes write."""
    return int(c.lib.ftrma_load(c.ffi.addressof(struct, name)))


def store(struct: Control | Process, name: str, value: int) -> None:
    """Write a word, after everything that was written before it."""
    c.lib.ftrma_store(c.ffi.addressof(struct, name), value)


def exchange(struct: Control | Process, name: str, expected: int, desired: int) -> bool:
    """Compare and swap; return whether the word was exchanged."""
    return bool(c.lib.ftrma_cas(c.ffi.addressof(struct, name), expected, desired))


def read_bytes(array: Array[int] | Array[bytes], size_bytes: int) -> bytes:
    """Read the first bytes of an array of single bytes."""
    return bytes(c.ffi.buffer(array, size_bytes))


def write_bytes(array: Array[int] | Array[bytes], data: bytes | bytearray) -> None:
    c.ffi.memmove(array, data, len(data))


def text(array: Array[bytes]) -> str:
    """Read the string in an array, which ends with a zero."""
    return str(c.ffi.string(array).decode())


def refusal(ctl: Control) -> str:
    """Read why the slot that is replayed cannot be replayed; empty if it can."""
    return text(ctl.refusal)


# ---- this process in the job ----------------------------------------------------------------


def join(ctl: Control, proc: Proc, directory: Path) -> None:
    c.check(c.lib.ftrma_join(ctl, proc, os.fsencode(directory)), "joining the job")


def my_role() -> tuple[int, int]:
    """Return the kind of this process's role, and its number in that role."""
    index = c.ffi.new("int *")
    return int(c.lib.ftrma_my_role(index)), int(index[0])


def ended_itself(proc: Proc) -> bool:
    """Say whether a slot's process has ended itself, for which the supervisor ends the job."""
    return bool(c.lib.ftrma_ended_itself(proc))


def role_of(ctl: Control, proc: Proc) -> tuple[int, int]:
    index = c.ffi.new("int *")
    return int(c.lib.ftrma_role_of(ctl, proc, index)), int(index[0])


def loses_threads() -> bool:
    """Say, in a repair, whether other threads of the program were in calls of MPI at the
    failure."""
    return bool(c.lib.ftrma_loses_threads())


def is_in_call(entry: Process) -> bool:
    """Say whether a thread of the process is inside a call of MPI that may block."""
    return bool(entry.calls & CALLS_INSIDE)


def waits(ctl: Control, p: Process) -> bool:
    """Say whether a process waits for others, in a call or at the program's end."""
    return bool(p.waiting or is_in_call(p) or p.finished == ctl.attempt)


def note_death(proc: int) -> None:
    """Note that a process is dead. Any thread may call this."""
    c.lib.ftrma_note_death(proc)


def note_lost(node: int) -> None:
    """Note that a node is lost with all its processes. Any thread may call this."""
    c.lib.ftrma_note_lost(node)


def watch() -> None:
    """Start the thread that watches all processes."""
    what = f"watching the processes of {socket.gethostname()} by pidfd_open (Linux 5.3)"
    c.check(c.lib.ftrma_watch(), what)


def set_link(socket: int) -> None:
    """Report strikes of ``--kill`` and aborts on this socket, in a job over several nodes."""
    c.lib.ftrma_set_link(socket)


def die_with_parent() -> Callable[[], None]:
    """Return a function that has a process killed when its parent dies, for use between fork and
    exec."""
    function: Callable[[], None] = c.lib.ftrma_die_with_parent
    return function


def note_exit(status: int) -> None:
    c.lib.ftrma_note_exit(status)


def claim_error() -> None:
    c.lib.ftrma_claim_error()


def visit(place: int) -> None:
    """Pass a place where a rule of ``--kill`` may strike."""
    c.lib.ftrma_failpoint_visit(place)


def visit_named(name: str) -> None:
    """Pass a framework's place; its name has at most NAME_BYTES - 1 ASCII characters."""
    c.lib.ftrma_failpoint_visit_named(name.encode())


def arm() -> None:
    """Look again which rules of ``--kill`` concern this process."""
    c.lib.ftrma_arm()


def attempt_of_thread() -> int:
    return int(c.lib.ftrma_attempt_of_thread())


def set_attempt_of_thread(attempt: int) -> None:
    c.lib.ftrma_set_attempt_of_thread(attempt)


def wake_by(number: int, patience_s: float) -> None:
    """Let a signal for which Python has a handler bring the calling thread to repairs.

    The program's thread calls this at the beginning of each attempt.

    Args:
        number: number of the signal.
        patience_s: if the thread does not come for longer, the supervisor is told.
    """
    trip = ctypes.cast(ctypes.pythonapi.PyErr_SetInterruptEx, ctypes.c_void_p).value
    function = c.ffi.cast("ftrma_wake_function", trip)
    c.check(c.lib.ftrma_wake_by(number, function, int(patience_s * 1e9)), "taking a signal")


def wake_allow(allowed: bool) -> None:
    """Note whether the program runs in the calling thread."""
    c.lib.ftrma_wake_allow(allowed)


def is_inside() -> bool:
    """Say whether the calling thread is in a callback from a call of MPI."""
    return bool(c.lib.ftrma_wake_inside())


def attempt_begin() -> None:
    """Note that the calling thread enters the program and belongs to the current attempt from now
    on."""
    c.lib.ftrma_attempt_begin()


def attempt_end() -> None:
    """End the attempt in a rollback; its threads unwind from now on."""
    c.lib.ftrma_attempt_end()


# ---- waits and alarms -----------------------------------------------------------------------


def alarmed() -> bool:
    return bool(c.lib.ftrma_alarmed())


def must_unwind() -> bool:
    """Have a failure repaired; say whether that was not possible in place, or the attempt is
    over."""
    return bool(c.lib.ftrma_must_unwind())


def raise_alarm(repair: int) -> None:
    """Ask for the round of repair after this one, unless it was already asked for."""
    c.lib.ftrma_raise(repair)


def set_round(repair: int) -> None:
    """Note that this process has left this round of repair."""
    c.lib.ftrma_set_round(repair)


def ring() -> None:
    c.lib.ftrma_ring()


def sleep(seen: int, timeout_us: int) -> None:
    """Sleep until the bell is rung; `seen` is the value of its word that was read before."""
    c.lib.ftrma_sleep(seen, timeout_us)


def slots_barrier() -> bool:
    """Wait for all slots; False if a failure came first."""
    return bool(c.lib.ftrma_slots_barrier() == Wait.OK)


def end_program() -> bool:
    """Wait for all slots at the program's end; False if a failure came first."""
    return bool(c.lib.ftrma_end() == Wait.OK)


def meet(repair: int, phase: int, *, planned: bool) -> bool:
    """Wait for all living processes at a phase of repair; False if another failure came first."""
    return bool(c.lib.ftrma_meet(repair, phase, planned) == Wait.OK)


def arrive(ordinal: int, *, targeted: bool) -> Wait:
    """Wait for all slots at a safepoint."""
    return Wait(c.lib.ftrma_arrive(ordinal, targeted))


def admit(version: Version, *, wait: bool) -> bool:
    """Announce the staging of a version, once all parities have the version before.

    Args:
        wait: wait until then; without this, only look whether it is so now.

    Returns:
        False if a failure came first, or if it is not so now.
    """
    return bool(c.lib.ftrma_admit(version, wait) == Wait.OK)


def await_staged(version: Version) -> bool:
    """Wait for all slots to have staged; False if a failure came first."""
    return bool(c.lib.ftrma_await_staged(version) == Wait.OK)
