"""The supervisor behind ``ftrma run``: starts the job, watches over it, launches it again.

The supervisor owns everything that must outlive the processes: the job's directory in shared memory
with the vaults, the user's terminal, and the list of processes to reap (`launch`). It takes no part
in the protocols.

A launch that cannot be repaired in place (no spare is left, the launcher died, a process hangs in
the MPI library or died unnoticed) is ended, and the job is launched again from the vaults that are
left.

Invariant: at the end no process and no file of the job is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..fabric import story
from ..fabric.control_file import make_job_directory
from ..host import outfile, timeouts
from ..host.errors import CATASTROPHE
from ..host.key import Key
from ..host.lock import lock_shared, share
from ..host.outfile import tell
from ..host.signals import ENDING, kept_warnings
from ..machine.topology import Layout
from ..native import job, loading
from ..settings import killrules, timelimits
from ..settings import options as settings
from . import deadjobs, hostchecks, metrics, mpirun, pace, resuming
from .askedends import AskedEnds
from .exitmessages import tell_own_end
from .guardian import Guardian, remove_sessions
from .job import HALTED, SUPERVISOR_DIED, Job
from .launch import Launch
from .launchwatch import LaunchWatch
from .narration import followed, speaking
from .noprogress import resumed_in_vain
from .relaunch import relaunch
from .relays import slots_of_hosts
from .resuming import RunFiles
from .signalforwarding import SignalForwarder
from .stats import summary
from .vaulthandover import finish_handover


class EndAsked(BaseException):
    """A signal asked the supervisor to end."""


class Signals:
    """Handler of the signals that ask for the end, and of those that are meant for the program.

    A signal that asks for the end interrupts the watching of a launch. It does not interrupt the
    ending of a launch or the preparation of the next one, since processes and files would then be
    left; these are bounded in time, and the signal takes effect after them. A signal may also ask
    for an end behind a checkpoint (`AskedEnds.heed`), which interrupts nothing.

    Args:
        named: the signal that the user has named for an end behind a checkpoint; None if there is
            none.
    """

    def __init__(self, named: int | None = None) -> None:
        self.named = named
        self.ends: AskedEnds | None = None  # ends of the job, once there is a job
        self.asked = 0  # number of the first signal
        self.watching = False
        self.forwarder = SignalForwarder()

    def __call__(self, number: int, _frame: object) -> None:
        if self.ends and self.ends.heed(number):
            return
        self.asked = self.asked or number
        if self.watching:
            self.watching = False
            raise EndAsked(self.asked)

    def serve(self, ends: AskedEnds) -> None:
        """Hand signals on to a job's ends from now on, and the named signal that has come before
        there was a job."""
        self.ends = ends
        if self.asked and self.asked == self.named and ends.heed(self.asked):
            self.asked = 0

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals that ask for the end, during the block."""
        wanted = dict.fromkeys((signal.SIGINT, signal.SIGTERM), self.__call__)
        # A signal that is ignored, for example under nohup, stays ignored.
        wanted |= {number: handler for number, handler in (
            *((number, self.__call__) for number in ENDING if number != signal.SIGTERM),
            (signal.SIGUSR1, self.forwarder.note), (signal.SIGUSR2, self.forwarder.note),
        ) if signal.getsignal(number) is not signal.SIG_IGN}
        if self.named is not None:
            wanted[signal.Signals(self.named)] = self.__call__
        old = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        for number in kept_warnings():
            wanted[signal.Signals(number)](number, None)
        try:
            yield
        finally:
            for number, handler in old.items():
                # A warning signal that comes too late must not end this process.
                warns = number in (signal.SIGUSR1, signal.SIGUSR2, self.named)
                signal.signal(number, signal.SIG_IGN if warns else handler)

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        try:
            self.watching = True
            if self.asked:
                raise EndAsked(self.asked)
            yield
        finally:
            self.watching = False


def run(
    options: settings.Options, program: list[str], stats: str = "", files: RunFiles | None = None
) -> tuple[int, dict[str, Any]]:
    """Run a program protected to its end.

    Args:
        program: the program's words, see `program.script`.
        stats: file for statistics; it is noted in the start record for `resume`.
        files: the files from which the job begins, and into which checkpoints are written.

    Returns:
        The program's exit status, and the statistics of ``--stats``.

    Raises:
        ValueError: an option cannot be fulfilled. FtrmaError: the job could not be started.
    """
    layout = options.check()
    timeouts.choose(options.timeout)
    loading.load()
    here = mpirun.on_one_node(settings.split_mpirun(options.mpirun))
    hostchecks.check(layout.processes if here else 1)
    mpirun.check_launcher()
    if not here:
        check_room(options, layout)
    if files and files.source and (end := resumed_in_vain(files.source, options.max_no_progress)):
        return tell_own_end(end), {}
    signals, keeps = Signals(named(options)), False
    with signals.handled():
        directory = make_job_directory(layout, options.log_budget)
        options.job, key = str(directory), Key.make()
        lock = lock_shared(directory)
        try:
            made = Job(directory, key, layout, options, program)
            signals.serve(made.ends)
            stats = os.path.abspath(stats) if stats else ""
            start = deadjobs.Start(settings.to_environment(options), program, os.getcwd(), stats,
                                   made.may_spread)
            deadjobs.write(directory, start, key)
            made.ctl.supervisor = os.getpid()
            killrules.write(made.ctl, options.kill)
            if files and files.source:
                resuming.begin_from(made, files.source)
                made.begin_from_older = partial(resuming.begin_from_older, made, files.source)
            ended = _to_the_end(made, signals, lock.fileno())
            keeps = made.ends.keeps
            return ended
        finally:
            if not keeps:
                shutil.rmtree(directory, ignore_errors=True)
            lock.close()


def check_room(options: settings.Options, layout: Layout) -> None:
    """Refuse hosts with too few or an unknown number of slots, if the numbers of slots must be kept
    to.

    Raises:
        ValueError: the hosts are refused; the text names the remedy.
    """
    if options.oversubscribe == "yes":
        return
    slots = slots_of_hosts(settings.split_mpirun(options.mpirun))
    if slots is None:
        raise ValueError("--oversubscribe no: it is not known how many slots the hosts have; name "
                         "them in --mpirun by one --host node1:4,node2:4 or one --hostfile with "
                         "slots=4")
    if sum(slots.values()) < layout.processes:
        raise ValueError(f"--oversubscribe no: the hosts have {sum(slots.values())} slots, and "
                         f"{layout.processes} processes are asked for: name more hosts, or take "
                         "fewer --spares or --checksums")


def named(options: settings.Options) -> int | None:
    """Return the signal that the user has named to ask for an end behind a checkpoint."""
    return signal.Signals[f"SIG{options.signal}"] if options.signal else None


def resume(name: str, anew: Mapping[str, Any]) -> tuple[int, dict[str, Any], str]:
    """Go on with a job whose ``ftrma run`` was killed.

    Args:
        name: name of the job.
        anew: values that replace the job's own options, by their attributes.

    Returns:
        Exit status and statistics, see `run`, and the file for statistics in the start record.

    Raises:
        ValueError: the job cannot be resumed. FtrmaError: it could not be started again.

    The job's directory stays if the job has failed again.
    """
    loading.load()
    mpirun.check_launcher()
    directory, start, key, lock = deadjobs.take_over(name)
    with lock, contextlib.ExitStack() as stack:
        os.chdir(start.cwd)
        options = settings.from_environment({**start.options, "FTRMA_JOB": str(directory)})
        if options.time_limit and options.time_limit.moment is not None:
            options.time_limit = None  # it was meant for the end of another allocation
        for attribute, value in anew.items():
            before = getattr(options, attribute)
            setattr(options, attribute, before | value if isinstance(value, dict) else value)
        timeouts.choose(options.timeout)
        stack.enter_context(speaking(options))
        timelimits.check(options.time_limit, options.margin, time.time())
        made = Job(directory, key, options.layout(), options, start.program)
        finish_handover(made)
        signals = Signals(named(options))
        signals.serve(made.ends)
        with signals.handled():
            share(lock, directory)
            status, stats = CATASTROPHE, dict[str, Any]()
            try:
                remove_sessions(directory)
                dead, ctl = job.ProcessState.DEAD, made.ctl
                died = {p for p in range(ctl.nprocs) if ctl.proc[p].state == dead}
                why = HALTED if ctl.halt else SUPERVISOR_DIED
                if relaunch(made, why, died, job.now_ns()):
                    status, stats = _to_the_end(made, signals, lock.fileno())
                return status, stats, start.stats
            finally:
                if status == CATASTROPHE:
                    tell(f"{directory.name} is kept, to be resumed once more, or for 'ftrma clean'",
                         needed=True)
                elif not made.ends.keeps:
                    shutil.rmtree(directory, ignore_errors=True)


def _to_the_end(made: Job, signals: Signals, lock: int) -> tuple[int, dict[str, Any]]:
    """Launch the job as often as it takes, and tell what happened."""
    guardian = Guardian(made.directory, lock)
    story.emit(made.directory, story.Began())
    try:
        try:
            with (followed(made.directory, made.layout, made.program),
                  metrics.written(made.directory, made.options.metrics)):
                status = _supervise(made, signals)
        except EndAsked as interruption:
            status = 128 + int(interruption.args[0])
        outfile.tell_details(f"the job has ended with status {status}")
        slots = made.layout.slots
        if made.options.trace:
            _write_trace(made.directory, Path(made.options.trace), slots, signals)
        stats = summary(story.read(made.directory), made.first_layout, status)
        ctl = made.ctl
        logs = [{"peak_bytes": int(ctl.slots[s].peak_bytes), "budget_bytes": int(ctl.log_bytes)}
                for s in range(slots)]
        about = {"job": made.directory.name, "program": made.program, "relayed": made.relayed}
        return status, {**about, **stats, "log": logs, **pace.summary(made.paces)}
    finally:
        made.stdin.close()
        guardian.dismiss()


def _write_trace(directory: Path, to: Path, slots: int, signals: Signals) -> None:
    """Write the trace of a job that has ended or was interrupted; one more signal ends this.

    An error is reported but does not change the exit status, since the program's work is done.
    """
    from ..trace import collect  # it needs NumPy, which most supervisors do not load

    signals.asked = 0
    try:
        with signals.heeded():
            events = [story.plain(event) for event in story.read(directory)]
            if not collect.convert(directory, to, slots, events):
                outfile.tell(f"warning: the trace {to} holds no event of the program")
    except ValueError as error:
        outfile.tell(f"warning: {error}")
    except EndAsked:
        outfile.tell(f"warning: interrupted while the trace {to} was written")


def _supervise(made: Job, signals: Signals) -> int:
    made.ended = lambda: bool(signals.asked)
    made.ends.tell_start()
    while True:
        watch = LaunchWatch(Launch(made), signals.forwarder)
        outfile.tell_details(f"launch {made.relaunches + 1} begins")
        try:
            with signals.heeded():
                reason = watch.wait()
        except BaseException:
            watch.control.abandon()
            made.ends.tell_abandoned(watch.control)
            raise
        if not reason:
            signals.forwarder.tell_undelivered(made.layout.slots)
            return watch.control.finish(watch.own_end)
        status = watch.control.prepare_next(reason)
        if status is not None:
            return status
        made.relaunches += 1
