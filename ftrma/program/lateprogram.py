"""Runs the program in a process that was started after the job had begun, see `lateplace`.

The process has the job's files, but no role and no MPI.
"""

from __future__ import annotations

import os
import sys
import traceback
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from ..host import lineoutput
from ..host.errors import FtrmaError, Rollback
from ..native import job, loading, logs, mail
from ..native.shared import Control
from . import deathmail, finalization, session
from .script import UserProgram
from .timeline import Timeline


class LateView:
    """The part of the job's view that such a process has.

    Args:
        directory: the job's directory on this node.
        number: this process's number.
        attempt: the attempt to which the process belongs.
    """

    def __init__(self, directory: Path, number: int, attempt: int) -> None:
        self.directory, self.proc = directory, number
        self.words = SimpleNamespace(attempt=attempt)
        self.ctl: Control = job.open_control(directory / "control")
        self.alarm = job.load(self.ctl, "alarm")

    def check(self) -> None:
        """Raise Rollback if all slots go back, or the job ends."""
        if job.load(self.ctl, "alarm") != self.alarm:
            raise Rollback("a process failed")

    def visit_named(self, place: str) -> None:
        """Pass a framework's place; no ``--kill`` rule can name this process."""


class LateSession:
    """The part of such a process in a protected program, see `session.Session`."""

    claimed = True

    def __init__(self, view: LateView, slots: int, everyone: list[int], processes: int, *,
                 traces: bool) -> None:
        self.view, self.slots, self.everyone = view, slots, everyone
        self.traces = traces
        self.processes = processes
        self.states: dict[str, Any] = {}
        self.mail = mail.Mail(view.directory / f"mail-{view.words.attempt}", view.proc)

    def claim_told(self, name: str, *, forfeit: bool, most: int) -> mail.Mail:
        """Return the mail of this process."""
        return self.mail

    def member_facts(self, most: int) -> deathmail.MemberFacts:
        """See `session.Session.member_facts`."""
        late, members = self.view, len(self.everyone)
        numbers = deathmail.late(members, self.processes, most)
        return deathmail.MemberFacts(
            late.proc, self.everyone, numbers, self.slots, late.words.attempt, late.directory,
            check=late.check)

    def count_step(self, step: int) -> None:
        """Do nothing: only slots count steps."""

    def timeline(self, name: str) -> Timeline | None:
        """See `ftrma.framework.timeline`."""
        late = self.view
        return Timeline(name, -1, late.proc, late.words.attempt) if self.traces else None

    def note(self, entries: dict[str, Any]) -> None:
        """Do nothing: only slots note events."""

    def protect(self, name: str, fields: dict[str, Any]) -> NoReturn:
        """Refuse: this process has no slot."""
        raise FtrmaError(f"protect({name!r}): this process came later and has no slot")

    def safepoint(self, take: bool | None = None) -> NoReturn:
        """Refuse: this process has no slot."""
        raise FtrmaError("safepoint(): this process came later and has no slot")


def write_trace(to: int) -> None:
    """Record the events of this process in a trace, but not those of its children."""
    os.set_inheritable(to, False)
    logs.trace_to(to)
    os.register_at_fork(after_in_child=partial(logs.trace_to, -1))


def main() -> NoReturn:
    """Run the program in a process that was started later; exits."""
    (parent, directory, number, attempt, slots, everyone, processes, ahead_ns, trace,
     *words) = sys.argv[1:]
    loading.load()
    job.set_clock(int(ahead_ns))
    job.die_with_parent()()
    if os.getppid() != int(parent):
        os._exit(0)  # it died before
    lineoutput.install()
    mpi4py = sys.modules.get("mpi4py") or __import__("mpi4py")
    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    loading.import_mpi()
    deathmail.hide_world()
    view = LateView(Path(directory), int(number), int(attempt))
    if int(trace) >= 0:
        write_trace(int(trace))
    session.current = LateSession(  # type: ignore[assignment]
        view, int(slots), [int(p) for p in everyone.split(",")], int(processes),
        traces=int(trace) >= 0)
    program, status = UserProgram(words), 0
    program.add_to_path()
    try:
        program.run()
    except Rollback:
        status = 0
    except SystemExit as leaving:
        status = finalization.exit_status(leaving)
    except BaseException:
        traceback.print_exc()
        status = 1
    finalization.run_exit_functions()
    finalization.release_program(program)
    os._exit(status)
