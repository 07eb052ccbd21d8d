"""Calls into ``csrc/job/``: the MPI library, the control file, this process, waits and alarms.

What each does is said in ``csrc/ftrma.h``; here is what goes in, what comes out, and what is an
error. `loading.load` comes first.
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

from ..errors import FtrmaError
from . import extension as c
from .constants import number
from .shared import Array, Control, Proc, Process, Version


class State(IntEnum):
    """Life of a process."""

    ABSENT, ALIVE, DEAD = number("ABSENT"), number("ALIVE"), number("DEAD")


class Wait(IntEnum):
    """How a wait ended."""

    OK, ALARM, TIMEOUT = number("OK"), number("ALARM"), number("TIMEOUT")


class Request(IntEnum):
    """What the job asks of its supervisor."""

    NOTHING, RELAUNCH, ABORT = number("NOTHING"), number("RELAUNCH"), number("ABORT")


class Takeover(IntEnum):
    """How far a launch has taken over the vaults of the launch before it."""

    DONE, CLEARING = number("TAKEOVER_DONE"), number("TAKEOVER_CLEARING")
    NAMING, OFFERED = number("TAKEOVER_NAMING"), number("TAKEOVER_OFFERED")


class Left(IntFlag):
    """How a process said that it ends itself."""

    BY_STATUS, BY_SIGNAL = number("LEFT_BY_STATUS"), number("LEFT_BY_SIGNAL")
    BY_EXIT, BY_MEMORY = number("LEFT_BY_EXIT"), number("LEFT_BY_MEMORY")
    BY_ABORT = number("LEFT_BY_ABORT")


CALLS_INSIDE = number("CALLS_INSIDE")  # mask of the threads that are inside
LEFT_VALUE = number("LEFT_VALUE")  # mask of the status or signal
ENDED = number("ENDED")
STUMBLES = number("STUMBLES")


class Mpi(NamedTuple):
    """This process's place in the MPI world."""

    rank: int
    size: int
    on_node: int


def set_clock(ahead_ns: int) -> None:
    """The job's clock is so far ahead of this machine's monotonic one."""
    c.lib.ftrma_set_clock(ahead_ns)


def now_ns() -> int:
    """CLOCK_MONOTONIC; over several nodes the supervisor's, see `fabric.clock`."""
    return int(c.lib.ftrma_now_ns())


# ---- the MPI library ------------------------------------------------------------------------


def interposed() -> bool:
    """Calls of MPI from outside pass through the extension."""
    return bool(c.lib.ftrma_interposed())


def count_intercepted() -> int:
    """Functions of MPI that the extension defines."""
    return int(c.lib.ftrma_count_intercepted())


def has_ulfm() -> bool:
    return bool(c.lib.ftrma_has_ulfm())


def unwind_code() -> int:
    """The error code by which C tells Python to unwind; 0 before `comm_prepare`."""
    return int(c.lib.ftrma_unwind_code())


def mpi_world() -> Mpi:
    """This process's rank, the number of all, and of those on its node."""
    rank, size, on_node = c.ffi.new("int *"), c.ffi.new("int *"), c.ffi.new("int *")
    if c.lib.ftrma_mpi_world(rank, size, on_node):
        raise FtrmaError("the MPI library cannot tell which processes share a node")
    return Mpi(rank[0], size[0], on_node[0])


def mpi_bcast(data: bytes, size_bytes: int) -> bytes:
    """Rank 0's bytes, padded with zeros. Collective over the MPI world."""
    buffer = c.ffi.new("uint8_t[]", size_bytes)
    c.ffi.memmove(buffer, data, len(data))
    c.lib.ftrma_mpi_bcast(buffer, size_bytes)
    return bytes(c.ffi.buffer(buffer))


def mpi_abort(status: int) -> None:
    c.lib.ftrma_mpi_abort(status)


def mpi_finalize() -> None:
    c.lib.ftrma_mpi_finalize()


def comm_prepare() -> None:
    """Duplicate the world for later repairs. Collective over all processes."""
    c.check(-c.lib.ftrma_comm_prepare(), "preparing communicators")


def comm_parent() -> int:
    """The duplicate, as mpi4py's ``fromhandle`` takes it."""
    return int(c.lib.ftrma_comm_parent())


def comm_build(repair: int) -> int:
    """Build the slots' world in a round of repair: 0, Wait.ALARM or an MPI code. Collective."""
    return int(c.lib.ftrma_comm_build(repair))


def comm_defer() -> None:
    """Go on without the slots' world, until somebody needs it."""
    c.check(-c.lib.ftrma_comm_defer(), "putting communicators aside")


def comm_forget(repair: int) -> None:
    c.lib.ftrma_comm_forget(repair)


def boards_clear() -> None:
    c.check(c.lib.ftrma_boards_clear(), "removing what communicators have shared")


def partitioned_help() -> bool:
    """Take part in the program's partitioned communication; False if there is none."""
    return bool(c.lib.ftrma_partitioned_help())


# ---- the control file -----------------------------------------------------------------------


def make_control(
    path: Path, processes: int, slots: int, groups: int, strength: int, group_size: int,
    capacity_blocks: int,
) -> Control:
    """Make a control file with roles in their order; the caller fills in the groups."""
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
    """Make the file of a job's events, with memory taken ahead."""
    c.check(c.lib.ftrma_story_create(os.fsencode(path)), "making events")


def copy_rules(to: Control, source: Control) -> None:
    c.ffi.memmove(to.rules, source.rules, c.ffi.sizeof(source.rules))


def copy_roles(ctl: Control, to: int, source: int) -> None:
    c.ffi.memmove(c.ffi.addressof(ctl.roles[to]), c.ffi.addressof(ctl.roles[source]),
                c.ffi.sizeof("struct ftrma_roles"))


def set_nodes(origin: int, ledger: int) -> None:
    """The job runs over several nodes, which are reached by this origin.

    Args:
        origin, ledger: addresses, see `wire.Origin.address` and `wire.ledger_address`; origin 0 on
            who is no slot.
    """
    c.lib.ftrma_set_nodes(c.ffi.cast("void *", origin), c.ffi.cast("void *", ledger))


def world_open() -> None:
    """Have the slots' own communicator where slots on other nodes reach it.

    Before any of them makes a collective call.
    """
    c.check(c.lib.ftrma_world_open(), "sharing what collective calls exchange")


def set_agent(bell: int, poke: int, origin: int, service: int) -> None:
    """The descriptors by which this process and its node's agent wake each other.

    Args:
        bell: of the agent; poke: what the agent writes to; origin, service: the alarms of this
            process's origins, -1 for one that it has not.
    """
    c.lib.ftrma_set_agent(bell, poke, origin, service)


def set_looks(looks: int, settled: int) -> None:
    """Where the agent tells how far it has come, see `wire.mirror_scans`."""
    c.lib.ftrma_set_looks(c.ffi.cast("void *", looks), c.ffi.cast("void *", settled))


def synchronize() -> bool:
    """Wait until what was stored here is ordered among what other nodes store; False: an alarm."""
    return bool(c.lib.ftrma_synchronize() == Wait.OK)


@contextlib.contextmanager
def reserve_origin() -> Iterator[None]:
    """No other thread accesses other nodes meanwhile, or makes an access begun go on."""
    c.lib.ftrma_originlock_hold(1)
    try:
        yield
    finally:
        c.lib.ftrma_originlock_hold(0)


def far_quiet(repair: int) -> Wait:
    """In a round of repair: wait until all puts of this slot to other nodes are acknowledged."""
    return Wait(c.check(c.lib.ftrma_far_quiet(repair), "flushing in a repair"))


def far_answers(repair: int) -> Wait:
    """In a round of repair: have the atomic that this slot waits for logged, if it was done."""
    return Wait(c.check(c.lib.ftrma_far_answers(repair), "asking for an answer in a repair"))


def windows_flush() -> bool:
    """Wait until all that this process has written to windows is there; False: a failure came."""
    result = int(c.lib.ftrma_windows_flush())
    if result and result != unwind_code():
        raise FtrmaError("what was written to windows on other nodes does not arrive")
    return not result


def load(struct: Control | Process, name: str) -> int:
    """Read a word that others write."""
    return int(c.lib.ftrma_load(c.ffi.addressof(struct, name)))


def store(struct: Control | Process, name: str, value: int) -> None:
    """Write a word, after all that was written before."""
    c.lib.ftrma_store(c.ffi.addressof(struct, name), value)


def exchange(struct: Control | Process, name: str, expected: int, desired: int) -> bool:
    """Compare and swap; whether it was exchanged."""
    return bool(c.lib.ftrma_cas(c.ffi.addressof(struct, name), expected, desired))


def read_bytes(array: Array[int] | Array[bytes], size_bytes: int) -> bytes:
    """The first bytes of an array of single bytes."""
    return bytes(c.ffi.buffer(array, size_bytes))


def write_bytes(array: Array[int] | Array[bytes], data: bytes | bytearray) -> None:
    c.ffi.memmove(array, data, len(data))


def text(array: Array[bytes]) -> str:
    """The string in an array, which ends with a zero."""
    return str(c.ffi.string(array).decode())


def refusal(ctl: Control) -> str:
    """Why the slot being replayed cannot be; empty if it can."""
    return text(ctl.refusal)


# ---- this process in the job ----------------------------------------------------------------


def join(ctl: Control, proc: Proc, directory: Path) -> None:
    c.check(c.lib.ftrma_join(ctl, proc, os.fsencode(directory)), "joining the job")


def my_role() -> tuple[int, int]:
    """The kind of this process's role, and its slot, checksum or spare number."""
    index = c.ffi.new("int *")
    return int(c.lib.ftrma_my_role(index)), int(index[0])


def role_of(ctl: Control, proc: Proc) -> tuple[int, int]:
    index = c.ffi.new("int *")
    return int(c.lib.ftrma_role_of(ctl, proc, index)), int(index[0])


def loses_threads() -> bool:
    """Threads of this slot's program were in calls of MPI when the failure came. In a repair."""
    return bool(c.lib.ftrma_loses_threads())


def is_in_call(entry: Process) -> bool:
    """A thread of this process is inside a call of MPI that may block."""
    return bool(entry.calls & CALLS_INSIDE)


def waits(ctl: Control, p: Process) -> bool:
    """A process waits for others: in a call, or at the program's end."""
    return bool(p.waiting or is_in_call(p) or p.finished == ctl.attempt)


def note_death(proc: int) -> None:
    """A process is dead, as somebody has told who sees it. Any thread."""
    c.lib.ftrma_note_death(proc)


def watch() -> None:
    """Start the thread that watches all processes."""
    what = f"watching the processes of {socket.gethostname()} by pidfd_open (Linux 5.3)"
    c.check(c.lib.ftrma_watch(), what)


def set_link(socket: int) -> None:
    """This is a process of a job over several nodes; strikes and aborts go to this socket."""
    c.lib.ftrma_set_link(socket)


def die_with_parent() -> Callable[[], None]:
    """What has a process killed when its parent dies; for use between fork and exec."""
    function: Callable[[], None] = c.lib.ftrma_die_with_parent
    return function


def note_exit(status: int) -> None:
    c.lib.ftrma_note_exit(status)


def claim_error() -> None:
    c.lib.ftrma_claim_error()


def visit(place: int) -> None:
    """Be at a place where a kill rule may strike."""
    c.lib.ftrma_failpoint_visit(place)


def visit_named(name: str) -> None:
    """Be at a place of a framework, of at most NAME_BYTES - 1 ASCII characters."""
    c.lib.ftrma_failpoint_visit_named(name.encode())


def arm() -> None:
    """Look again which kill rules concern this process."""
    c.lib.ftrma_arm()


def attempt_of_thread() -> int:
    return int(c.lib.ftrma_attempt_of_thread())


def set_attempt_of_thread(attempt: int) -> None:
    c.lib.ftrma_set_attempt_of_thread(attempt)


def wake_by(number: int) -> None:
    """This signal, for which Python has a handler, brings the calling thread to repairs.

    By the program's thread, at each entry of the program.
    """
    trip = ctypes.cast(ctypes.pythonapi.PyErr_SetInterruptEx, ctypes.c_void_p).value
    function = c.ffi.cast("ftrma_wake_function", trip)
    c.check(c.lib.ftrma_wake_by(number, function), "taking a signal")


def wake_allow(allowed: bool) -> None:
    """Whether the program runs in the calling thread."""
    c.lib.ftrma_wake_allow(allowed)


def is_inside() -> bool:
    """The calling thread is in a call of MPI, from which it was called up."""
    return bool(c.lib.ftrma_wake_inside())


def attempt_begin() -> None:
    """The calling thread enters the program: it belongs to the current attempt from now on."""
    c.lib.ftrma_attempt_begin()


def attempt_end() -> None:
    """A rollback: the attempt is over, and its threads unwind from now on."""
    c.lib.ftrma_attempt_end()


# ---- waits and alarms -----------------------------------------------------------------------


def alarmed() -> bool:
    return bool(c.lib.ftrma_alarmed())


def must_unwind() -> bool:
    """A failure cannot be repaired in place, or this thread is of an attempt before."""
    return bool(c.lib.ftrma_must_unwind())


def raise_alarm(repair: int) -> None:
    """Ask for the round of repair after this one, if nobody has yet."""
    c.lib.ftrma_raise(repair)


def set_round(repair: int) -> None:
    """This process has left this round of repair."""
    c.lib.ftrma_set_round(repair)


def ring() -> None:
    c.lib.ftrma_ring()


def sleep(seen: int, timeout_us: int) -> None:
    """Sleep until the bell is rung; `seen` is its word looked at before."""
    c.lib.ftrma_sleep(seen, timeout_us)


def slots_barrier() -> bool:
    """Wait for all slots; False if a failure came first."""
    return bool(c.lib.ftrma_slots_barrier() == Wait.OK)


def end_program() -> bool:
    """Wait for all slots at the program's end; False if a failure came first."""
    return bool(c.lib.ftrma_end() == Wait.OK)


def meet(repair: int, phase: int, *, planned: bool) -> bool:
    """Wait for all the living at a phase of repair; False if another failure came first."""
    return bool(c.lib.ftrma_meet(repair, phase, planned) == Wait.OK)


def arrive(ordinal: int, *, targeted: bool) -> Wait:
    """Wait for all slots at a safepoint."""
    return Wait(c.lib.ftrma_arrive(ordinal, targeted))


def admit(version: Version) -> bool:
    """Wait for all parities to have the version before; False if a failure came first."""
    return bool(c.lib.ftrma_admit(version) == Wait.OK)


def await_staged(version: Version) -> bool:
    """Wait for all slots to have staged; False if a failure came first."""
    return bool(c.lib.ftrma_await_staged(version) == Wait.OK)
