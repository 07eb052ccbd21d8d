"""Opens the mail of a framework that is told of deaths, in the processes that run its program.

Slots claim together; slot 0 has the mail made before, and deaths told behind it. A spare runs the
program once deaths are told, so it finds all of that.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..fabric.view import JobView
from ..host.errors import FtrmaError, Rollback
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
        directory: of the job on this node.
        mtbf_s: as the user has it; 0 if it is not known.
        check: raises Rollback if all go back.
        report: tells the user of deaths, once in the job.
        start: starts a process of this number.
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
    """File of the mail of this attempt; nothing that is sent in another one can land there."""
    return view.directory / f"mail-{view.words.attempt}"


def refusal_of_nodes(view: JobView) -> str:
    """Say why a job over several nodes has no mail, and what to do instead."""
    procs = view.all_procs()
    hosts = list(dict.fromkeys(map(view.host_of, procs)))
    return (f"deaths are told on one node only, and the job's processes are on {len(hosts)}. Have "
            f"all {len(procs)} on one, checksum ranks and spares among them, as by --mpirun "
            f'"--host {hosts[0]}:{len(procs)}"')


def create(view: JobView, most: int) -> None:
    """Make the mail of this attempt, as slot 0 before anybody opens it.

    Raises:
        NoRoom: no shared memory is left.
    """
    path_of(view).unlink(missing_ok=True)
    processes = len(view.all_procs())
    mail.create(path_of(view), processes + len(late(len(everyone(view)), processes, most)))
    for path in view.directory.glob("mail-*"):
        if path != path_of(view):
            with contextlib.suppress(OSError):
                path.unlink()


def keep_seats(view: JobView) -> None:
    """Have no spare take a checksum rank's seat any more, as slot 0 before anybody joins.

    A spare that takes one without having seen that is waited for: it is no member then.
    """
    view.keep_seats()
    while True:
        seen = view.bell
        view.unwind_if_alarmed()
        if not any(view.words.process(p).rebuilding for p in view.all_procs() if view.alive(p)):
            return
        view.wait_for_bell(seen, 1000)


def join(view: JobView) -> mail.Mail:
    """Open the mail of this attempt, and have deaths told there."""
    opened = mail.Mail(path_of(view), view.proc)
    opened.attach()
    return opened


def join_as_spare(view: JobView, name: str) -> mail.Mail:
    """Open the mail as a spare.

    Raises:
        FtrmaError: the slots have not claimed, or by another name.
    """
    if not view.tells_deaths or view.claimant != name:
        raise FtrmaError(f"claim({name!r}): the slots have claimed {view.claimant or 'nothing'!r}")
    return join(view)


def facts(view: JobView, most: int, mtbf_s: float, start: Callable[[int], object]) -> MemberFacts:
    """Gather the facts of this attempt in a process that has a role, or is a spare."""
    attempt, members = view.words.attempt, everyone(view)

    def check() -> None:
        if view.alarmed() or view.words.attempt != attempt:
            raise Rollback("a process failed")

    return MemberFacts(
        view.proc, members, late(len(members), len(view.all_procs()), most), view.layout.slots,
        attempt, view.directory, mtbf_s, check, lambda: report_deaths(view), start)


def everyone(view: JobView) -> list[Proc]:
    """Processes that run the program, dead ones too: holders of the slots in order, then others
    that are no checksum ranks."""
    slots, checksums = view.slot_holders(), view.checksum_holders()
    return [*slots, *(p for p in view.all_procs() if p not in slots and p not in checksums)]


def late(members: int, processes: int, most: int) -> range:
    """Numbers of processes that may be started later.

    Args:
        members: of the launch.
        processes: of the launch, checksum ranks among them.
        most: members that there can be in all.
    """
    return range(processes, processes + max(0, min(most - members, members)))


class NoWorld:
    """Stands for ``MPI.COMM_WORLD`` in a spare; each use of it is an error in words."""

    def __getattr__(self, name: str) -> Any:
        raise FtrmaError(f"MPI.COMM_WORLD.{name}: this process runs the program as a spare, "
                         "and is no rank of MPI; have a slot make this call")


_world: Any = None  # the true one, while a spare runs the program


def hide_world() -> None:
    """Have a spare find no world of MPI, since the slots' world has no place for it."""
    global _world
    mpi = sys.modules["mpi4py.MPI"]
    _world = _world or mpi.COMM_WORLD
    mpi.COMM_WORLD = NoWorld()  # type: ignore[attr-defined]


def show_world() -> None:
    """Have this process find the world of MPI again, should it come to a slot."""
    if _world is not None:
        sys.modules["mpi4py.MPI"].COMM_WORLD = _world  # type: ignore[attr-defined]
