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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import settings
from ..errors import CATASTROPHE
from ..fabric import killrules, story
from ..fabric.control_file import make_job_directory
from ..host import outfile
from ..host.key import Key
from ..host.lock import lock_shared, share
from ..host.outfile import tell
from ..host.signals import ENDING
from ..native import job, loading
from ..trace import collect
from . import leftover, mpirun, surroundings
from .arranging import finish_arranging
from .guardian import Guardian, remove_sessions
from .handing import ForProgram
from .job import SUPERVISOR_DIED, Job
from .launch import Launch
from .relaunch import relaunch
from .stats import summary
from .watch import Watch


class Interrupted(BaseException):
    """A signal asked the supervisor to end."""


class Signals:
    """Handler of the signals that ask for the end, and of those that are the program's.

    The former interrupt the watching. What ends a launch or prepares the next one is not
    interrupted, or processes and files would be left; it is bounded in time, and a signal takes
    effect after it.
    """

    def __init__(self) -> None:
        self.asked = 0  # number of the first signal
        self.watching = False
        self.for_program = ForProgram()

    def __call__(self, number: int, _frame: object) -> None:
        self.asked = self.asked or number
        if self.watching:
            self.watching = False
            raise Interrupted(self.asked)

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Be the handler of the signals that ask for the end."""
        wanted = dict.fromkeys((signal.SIGINT, signal.SIGTERM), self.__call__)
        # The others not where they are ignored, as under nohup.
        wanted |= {number: handler for number, handler in (
            *((number, self.__call__) for number in ENDING if number != signal.SIGTERM),
            (signal.SIGUSR1, self.for_program.keep), (signal.SIGUSR2, self.for_program.keep),
        ) if signal.getsignal(number) is not signal.SIG_IGN}
        old = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        try:
            yield
        finally:
            for number, handler in old.items():
                mine = wanted[number] == self.for_program.keep
                # A warning that comes too late ends nobody.
                signal.signal(number, signal.SIG_IGN if mine else handler)

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
    loading.load()
    here = mpirun.on_one_node(settings.split_mpirun(options.mpirun))
    surroundings.check(layout.processes if here else 1)
    mpirun.check_launcher()
    signals = Signals()
    with signals.handled():
        directory = make_job_directory(layout, options.log_budget)
        options.job, key = str(directory), Key.make()
        lock = lock_shared(directory)
        try:
            made = Job(directory, key, layout, options, program)
            stats = os.path.abspath(stats) if stats else ""
            start = leftover.Start(settings.to_environment(options), program, os.getcwd(), stats,
                                   made.may_spread)
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
    loading.load()
    mpirun.check_launcher()
    directory, start, key, lock = leftover.take_over(name)
    with lock:
        os.chdir(start.cwd)
        options = settings.from_environment({**start.options, "FTRMA_JOB": str(directory)})
        options.trace = trace or options.trace
        options.max_relaunch = options.max_relaunch if max_relaunch is None else max_relaunch
        made = Job(directory, key, options.layout(), options, start.program)
        finish_arranging(made)
        signals = Signals()
        with signals.handled():
            share(lock, directory)
            status, stats = CATASTROPHE, dict[str, Any]()
            try:
                remove_sessions(directory)
                dead, ctl = job.State.DEAD, made.ctl
                died = {p for p in range(ctl.nprocs) if ctl.proc[p].state == dead}
                if relaunch(made, SUPERVISOR_DIED, died, job.now_ns()):
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
        stats = summary(story.read(made.directory), made.layout, status)
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
            events = [story.plain(event) for event in story.read(directory)]
            if not collect.convert(directory, to, slots, events):
                outfile.tell(f"warning: the trace {to} holds no event of the program")
    except ValueError as error:
        outfile.tell(f"warning: {error}")
    except Interrupted:
        outfile.tell(f"warning: interrupted while the trace {to} was written")


def _supervise(made: Job, signals: Signals) -> int:
    made.ended = lambda: bool(signals.asked)
    while True:
        watch = Watch(Launch(made), signals.for_program)
        try:
            with signals.heeded():
                reason = watch.wait()
        except BaseException:
            watch.nodes.abandon()
            raise
        if not reason:
            signals.for_program.give_up(made.layout.slots)
            return watch.nodes.finish(watch.own_end)
        status = watch.nodes.go_on(reason)
        if status is not None:
            return status
        made.relaunches += 1
