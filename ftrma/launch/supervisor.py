"""The supervisor behind ``ftrma run``: starts the job, watches over it, launches it again.

It owns everything that must outlive the processes: the job's directory in shared memory with the
vaults, the user's terminal, and the list of processes to reap (`launch`). It takes no part in the
protocols.

A job that cannot be repaired in place (no spare is left, the launcher died, a process hangs in the
MPI library or died unnoticed) is ended and started again on the vaults that are left. Whatever
happens, at the end there is no process and no file left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import settings
from ..errors import CATASTROPHE, NO_ROOM
from ..fabric import killrules
from ..fabric.world import emit, last_plan, read_events
from ..host import outfile
from ..host.key import Key
from ..host.lock import lock_shared, share
from ..host.outfile import tell
from ..native import loading
from ..program import joining
from ..protocol.ends import End
from ..settings import split_mpirun
from ..trace import records
from . import failover, leftover
from .guardian import Guardian
from .launch import Launch
from .mpirun import check_launcher, on_one_node
from .relaunch import SUPERVISOR_DIED, Job, finish_arranging, relaunch
from .stats import summary
from .switchboard import Cause


class Interrupted(BaseException):
    """A signal asked the supervisor to end."""


class Signals:
    """Handler of the signals that ask for the end.

    They interrupt the watching. What ends a launch or prepares the next one is not interrupted, or
    processes and files would be left; it is bounded in time, and a signal takes effect after it.
    """

    def __init__(self) -> None:
        self.asked = 0  # number of the first signal
        self.watching = False

    def __call__(self, number: int, _frame: object) -> None:
        self.asked = self.asked or number
        if self.watching:
            self.watching = False
            raise Interrupted(self.asked)

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Be the handler of the signals that ask for the end."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            numbers.append(signal.SIGHUP)
        old = {number: signal.signal(number, self) for number in numbers}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        try:
            self.watching = True
            if self.asked:
                raise Interrupted(self.asked)
            yield
        finally:
            self.watching = False


def run(
    options: settings.Options, program: list[str], stats: str = ""
) -> tuple[int, dict[str, Any]]:
    """Run a program protected to its end.

    Args:
        program: its words, see `script`.
        stats: file that statistics will be written to; for who resumes the job.

    Returns:
        The program's exit status, and the statistics of ``--stats``.

    Raises:
        ValueError: an option cannot be served. FtrmaError: the job could not be started.
    """
    layout = options.check()
    native = loading.load()
    check_launcher()
    signals = Signals()
    with signals.handled():
        directory = joining.make_directory(native, layout, options.log_budget)
        options.job, key = str(directory), Key.make()
        lock = lock_shared(directory)
        try:
            made = Job(native, directory, key, layout, options, program)
            several = not on_one_node(split_mpirun(options.mpirun))
            stats = os.path.abspath(stats) if stats else ""
            start = leftover.Start(settings.to_environment(options), program, os.getcwd(), stats,
                                   several)
            leftover.write(directory, start, key)
            made.ctl.supervisor = os.getpid()
            killrules.write(made.ctl, options.kill)
            return _to_the_end(made, signals, lock.fileno())
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            lock.close()


def resume(name: str, trace: str, max_relaunch: int | None) -> tuple[int, dict[str, Any], str]:
    """Go on with a job whose ``ftrma run`` was killed.

    Args:
        name: of the job; trace, max_relaunch: as in `settings.Options`, in place of the job's own.

    Returns:
        As `run`, and the file for statistics that was asked for when the job was started.

    Raises:
        ValueError: the job cannot be resumed. FtrmaError: it was not started again.

    Its directory stays, unless the job has ended now.
    """
    native = loading.load()
    check_launcher()
    directory, start, key, lock = leftover.take_over(name)
    with lock:
        os.chdir(start.cwd)
        options = settings.from_environment({**start.options, "FTRMA_JOB": str(directory)})
        options.trace = trace or options.trace
        options.max_relaunch = options.max_relaunch if max_relaunch is None else max_relaunch
        made = Job(native, directory, key, options.layout(), options, start.program)
        finish_arranging(made)
        signals = Signals()
        with signals.handled():
            share(lock, directory)
            status, stats = CATASTROPHE, dict[str, Any]()
            try:
                for path in directory.glob("launch-*"):
                    shutil.rmtree(path, ignore_errors=True)
                dead, ctl = native.lib.FTRMA_DEAD, made.ctl
                died = {p for p in range(ctl.nprocs) if ctl.proc[p].state == dead}
                if relaunch(made, SUPERVISOR_DIED, died, native.lib.ftrma_now_ns()):
                    status, stats = _to_the_end(made, signals, lock.fileno())
                return status, stats, start.stats
            finally:
                if status == CATASTROPHE:
                    tell(f"{directory.name} is kept, to be resumed once more, or for 'ftrma clean'")
                else:
                    shutil.rmtree(directory, ignore_errors=True)


def _to_the_end(made: Job, signals: Signals, lock: int) -> tuple[int, dict[str, Any]]:
    """Launch the job as often as it takes, and tell what happened."""
    guardian = Guardian(made.directory, lock)
    try:
        try:
            status = _supervise(made, signals)
        except Interrupted as interruption:
            status = 128 + int(interruption.args[0])
        slots = made.layout.slots
        if made.options.trace:
            _write_trace(made.directory, Path(made.options.trace), slots, signals)
        stats = summary(read_events(made.directory), made.layout, status)
        ctl = made.ctl
        logs = [{"peak_bytes": int(ctl.slots[s].peak_bytes), "budget_bytes": int(ctl.log_bytes)}
                for s in range(slots)]
        return status, {**stats, "log": logs}
    finally:
        made.stdin.close()
        guardian.dismiss()


def _write_trace(directory: Path, to: Path, slots: int, signals: Signals) -> None:
    """Write the trace of a job that has ended or was interrupted; one more signal ends this.

    What the program did is not lost with it: that it could not be written is told.
    """
    signals.asked = 0
    try:
        with signals.heeded():
            if not records.convert(directory, to, slots, read_events(directory)):
                outfile.tell(
                    f"warning: the trace {to} holds no event of the program (over several nodes "
                    "they are not recorded)"
                )
    except ValueError as error:
        outfile.tell(f"warning: {error}")
    except Interrupted:
        outfile.tell(f"warning: interrupted while the trace {to} was written")


def _supervise(made: Job, signals: Signals) -> int:
    directory, options = made.directory, made.options
    relaunches = 0
    words, cause = split_mpirun(options.mpirun), None
    while True:
        launch = Launch(
            directory, made.key, made.layout, options, made.program, made.stdin, words, cause
        )
        try:
            with signals.heeded():
                reason = watch(launch)
        except BaseException:
            launch.end()
            failover.clean_up(launch.switchboard, directory, words)
            raise
        if launch.switchboard.spread:
            again = _next_spread(launch, words, reason, relaunches)
            if isinstance(again, int):
                return again
            words, cause = again
            relaunches += 1
            continue
        ctl, lib = launch.ctl, launch.native.lib
        noticed_ns = lib.ftrma_now_ns()
        if not reason:
            # Ranks end by themselves after the program's end; after an error they wait to be ended.
            status, aborted = int(ctl.exit_status), ctl.request == lib.FTRMA_ABORT
            launch.end(patience_s=0.0 if aborted or launch.own_end else 2.0)
            if launch.own_end:
                return tell_own_end(launch.own_end)
            if aborted:
                tell_why(directory)
            return status
        ctl.request = lib.FTRMA_RELAUNCH  # deaths from here on are the launch's end: no failures
        died = {i for i, p in enumerate(launch.procs()) if p.state == lib.FTRMA_DEAD}
        launch.end()
        if launch.memory_was_full:
            tell(f"error: {reason}: {NO_ROOM}")
            return CATASTROPHE
        never = not ctl.start_ns and not ctl.resume
        if cause or (never and (launch.refused() or "died" in reason)):
            failover.clean_up(launch.switchboard, directory, words)
            return did_not_start(launch, reason)
        if relaunches == options.max_relaunch:
            give_up(reason, relaunches)
            return CATASTROPHE
        relaunches += 1
        if not relaunch(made, reason, died, int(noticed_ns)):
            return CATASTROPHE


def did_not_start(launch: Launch, reason: str) -> int:
    """Say why a launch has not come up, with what the launcher said."""
    if not launch.refused():
        sys.stderr.write(launch.log.read_text(errors="replace")[-4000:])
    again = " again" if launch.switchboard.cause else ""
    sys.stderr.write(f"ftrma: error: the job did not start{again}: {reason}\n")
    return CATASTROPHE


def tell_own_end(end: End) -> int:
    """Say why the job ends with this status, where it was a process's own doing."""
    if end.words:
        tell(end.words)
    return end.status


def give_up(reason: str, relaunches: int) -> None:
    sys.stderr.write(
        f"ftrma: error: {reason}, and the job was launched again {relaunches} times already "
        "(--max-relaunch); giving up\n"
    )


def _next_spread(
    launch: Launch, words: list[str], reason: str, relaunches: int
) -> int | tuple[list[str], Cause]:
    """End a launch over several nodes, for which `reason` says why it cannot go on, if so.

    Returns:
        The job's exit status if it is over; else the launcher's options and the cause of the next
        launch.
    """
    board, options = launch.switchboard, launch.options
    if not reason:
        launch.end()
        failover.clean_up(board, launch.directory, words)
        return tell_own_end(launch.own_end) if launch.own_end else board.ranks.aborted or 0
    cause = failover.cause_of(board, launch.directory, options, reason)
    started = board.ranks.entered or board.cause is not None
    final = not started or relaunches == options.max_relaunch
    launch.end(final=final)
    if final:
        failover.clean_up(board, launch.directory, words)
        if started:
            give_up(reason, relaunches)
            return CATASTROPHE
        return did_not_start(launch, reason)
    words = failover.next_hosts(board, words, launch.layout)
    emit(launch.directory, "relaunch", reason=reason, slots=list(cause.slots))
    sys.stderr.write(f"ftrma: {reason}; launching the job again\n")
    return words, cause


def watch(launch: Launch) -> str:
    """Wait until the launch has ended ("") or cannot go on (the reason)."""
    ctl, lib = launch.ctl, launch.native.lib
    while True:
        launch.serve_terminal(0.1)
        if launch.ended_itself():
            return ""
        if launch.switchboard.spread:
            if launch.undecided and not launch.switchboard.done():
                continue
            reason = launch.spread_trouble()
            if reason or launch.switchboard.done():
                return reason
            continue
        if ctl.request == lib.FTRMA_ABORT:
            return ""
        if ctl.request == lib.FTRMA_RELAUNCH:
            if launch.mpirun.poll() is not None:
                return failover.LAUNCHER_DIED
            return str(last_plan(read_events(launch.directory))["reason"])
        if launch.ended() and len(launch.dead()) == len(launch.ranks):
            return ""
        reason = launch.trouble()
        if reason:
            return reason


def tell_why(directory: Path) -> None:
    """Say why the job was given up, if a repair did so."""
    plan = last_plan(read_events(directory))
    reason, kind = plan["reason"], plan["kind"]
    if kind == "catastrophic":
        tell(f"error: CatastrophicFailure: {reason}")
    elif kind in ("repeated", "full"):
        tell(f"error: {reason}")
    elif kind == "refused":
        tell(
            f"error: NotRecoverable: {reason}; with --policy auto the job goes back to its last "
            "checkpoint"
        )
