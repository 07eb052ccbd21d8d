"""Opens the mail of a framework that is told of deaths, in the processes that run its program.

All slots claim together. Slot 0 makes the mail before that, and begins to tell deaths after it. A
spare runs the program only when deaths are told, so it finds the mail. Over several nodes each node
has a file of the mail, made by the first process that opens the mail there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..fabric.view import JobView
from ..host.errors import FtrmaError, Rollback
from ..host.helper import Helper
from ..native import mail
from ..native.shared import Proc
from ..protocol.deaths import report_deaths


def _nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class MemberFacts:
    """An attempt, as the processes that run its program see it.

    Attributes:
        me: this process.
        everyone: processes of the slots in their order, then the spares; dead ones, too.
        late: numbers of processes that may be started later.
        slots: number of slots.
        attempt: number of the attempt.
        directory: the job's directory on this node.
        mtbf_s: mean time between failures, as the user has set it; 0 if it is not known.
        check: raises Rollback if all slots go back.
        report: tells the user of each death, once in the job.
        start: starts a process with a given number.
    """

    me: int
    everyone: Sequence[int]
    late: Sequence[int]
    slots: int
    attempt: int
    directory: Path
    mtbf_s: float = 0.0
    check: Callable[[], object] = _nothing
    report: Callable[[], object] = _nothing
    start: Callable[[int], object] = _nothing


def path_of(view: JobView) -> Path:
    """Return the path of this attempt's mail, where nothing of another attempt can land."""
    return view.directory / f"mail-{view.words.attempt}"


def create(view: JobView, most: int) -> None:
    """Make this node's file of this attempt's mail, before any process opens it.

    On one node slot 0 makes it. Over several nodes each slot and spare does, and the first file
    stays.

    Raises:
        NoRoom: no shared memory is left.
    """
    path, processes = path_of(view), len(view.all_procs())
    processes += len(late_numbers(view, most))
    if not view.post_office:
        path.unlink(missing_ok=True)
        mail.create(path, processes)
    elif not path.exists():
        own = path.with_name(f"{path.name}.{view.proc}")
        own.unlink(missing_ok=True)
        mail.create(own, processes)
        with contextlib.suppress(FileExistsError):
            os.link(own, path)
        own.unlink()
    if view.post_office:
        view.post_office.share(path, view.words.attempt)
    for old in view.directory.glob("mail-*"):
        if old.name.partition(".")[0] != path.name:
            with contextlib.suppress(OSError, ValueError):  # another process of the node did it
                mail.give_back(old)


def keep_seats(view: JobView) -> None:
    """Let spares take no more seats of checksum ranks; slot 0 calls this before any process joins.

    If a spare takes a seat because it has not seen this yet, slot 0 waits for it: such a spare is
    no member.
    """
    view.keep_seats()
    view.synchronize()
    while True:
        seen = view.bell
        view.unwind_if_alarmed()
        if not any(view.words.process(p).rebuilding for p in view.all_procs() if view.alive(p)):
            return
        view.wait_for_bell(seen, 1000)


def join(view: JobView) -> mail.Mail:
    """Open the mail of this attempt, in which deaths are told."""
    path, office = path_of(view), view.post_office
    opened = (office.open_mail(path, view.words.attempt, view.slot_holders()[0]) if office
              else mail.Mail(path, view.proc))
    opened.attach()
    return opened


def tell_deaths(view: JobView, opened: mail.Mail) -> None:
    """Begin to tell deaths, earlier ones first; slot 0 calls this after its `join`.

    Over several nodes a thread of this process tells them.
    """
    if view.post_office:
        from ..fabric.nodes_mail import NodesMail

        assert isinstance(opened, NodesMail)
        order = view.post_office.order(opened, everyone(view), lambda: report_deaths(view),
                                       view.ask_for_relaunch)
        order.look()
        Helper(order.serve, name="ftrma-deaths").start()
    view.tell_deaths(True)  # from here on no process waits for a slot


def create_as_spare(view: JobView) -> None:
    """Make this node's file if no slot has made it: others may write to a spare before it has
    joined."""
    if view.post_office:
        create(view, 0)


def join_as_spare(view: JobView, name: str) -> mail.Mail:
    """Open the mail as a spare.

    Raises:
        FtrmaError: the slots have not claimed, or have claimed by another name.
    """
    if not view.tells_deaths or view.claimant != name:
        raise FtrmaError(f"claim({name!r}): the slots have claimed {view.claimant or 'nothing'!r}")
    return join(view)


def facts(view: JobView, most: int, mtbf_s: float, start: Callable[[int], object]) -> MemberFacts:
    """Gather the facts of this attempt, in the process of a slot or a spare."""
    attempt, members = view.words.attempt, everyone(view)

    def check() -> None:
        if view.alarmed() or view.words.attempt != attempt:
            raise Rollback("a process failed")

    return MemberFacts(
        view.proc, members, late_numbers(view, most), view.layout.slots,
        attempt, view.directory, mtbf_s, check,
        _nothing if view.post_office else lambda: report_deaths(view), start)


def everyone(view: JobView) -> list[Proc]:
    """Return the processes that run the program, including dead ones: the holders of the slots in
    order, then all others that are no checksum ranks."""
    slots, checksums = view.slot_holders(), view.checksum_holders()
    return [*slots, *(p for p in view.all_procs() if p not in slots and p not in checksums)]


def late_numbers(view: JobView, most: int) -> range:
    """Return the numbers of processes that may be started later; over several nodes there are
    none."""
    processes = len(view.all_procs())
    return late(len(everyone(view)), processes, 0 if view.post_office else most)


def late(members: int, processes: int, most: int) -> range:
    """Return the numbers of processes that may be started later.

    Args:
        members: number of members in the launch.
        processes: number of processes in the launch, including checksum ranks.
        most: number of members that there can be in all.
    """
    return range(processes, processes + max(0, min(most - members, members)))


class NoWorld:
    """Stands for ``MPI.COMM_WORLD`` in a spare; any use of it raises an error that says so."""

    def __getattr__(self, name: str) -> Any:
        raise FtrmaError(f"MPI.COMM_WORLD.{name}: this process runs the program as a spare, "
                         "and is no rank of MPI; have a slot make this call")


_world: Any = None  # the real communicator, while a spare runs the program


def hide_world() -> None:
    """Hide the world of MPI from a spare, since it has no rank in the slots' world."""
    global _world
    mpi = sys.modules["mpi4py.MPI"]
    _world = _world or mpi.COMM_WORLD
    mpi.COMM_WORLD = NoWorld()  # type: ignore[attr-defined]


def show_world() -> None:
    """Let this process find the world of MPI again, in case it comes to a slot."""
    if _world is not None:
        sys.modules["mpi4py.MPI"].COMM_WORLD = _world  # type: ignore[attr-defined]
