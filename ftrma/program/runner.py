"""The main part of every process of a job: it runs the program, or serves, and takes part in
repairs.

Slots run the script; checksum ranks and spares serve until the job ends or they come to a slot.
After a failure all processes meet in `repair.repair`. If all slots go back, they run the script
again from its top, on a clean slate: without the threads of the attempt before, and without its
changes to the process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn

from ..fabric.story import Recovery
from ..fabric.view import JobView
from ..host import lineoutput, messages, timeouts
from ..host.errors import (
    CATASTROPHE,
    CatastrophicFailure,
    CorruptVault,
    FtrmaError,
    Rollback,
    on_host,
)
from ..host.helper import Helper
from ..host.key import Key
from ..host.processes import children
from ..native import job, loading, logs
from ..native.constants import SLOT
from ..native.shared import Proc, Slot
from ..protocol.repair_round import LaunchEnded, Repaired
from ..protocol.server import Served, Server
from ..settings import options as settings
from . import deathmail, finalization, session, speaking
from .ending import Ending
from .imports import AheadImporter
from .joining import join, take_stdin, take_terminal
from .process_snapshot import ProcessSnapshot
from .script import UserProgram
from .session import FailureEvent, Session
from .threads import Threads
from .waking import Waking

_exit = os._exit  # the real function, see note_own_exit
LOOK_S = 0.005  # how often it is checked whether it has ended
# Signals that a batch system may send to all processes of a job, and that the program may handle.
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)


class ProgramRunner:
    """Runs the program in this process, as often as it takes.

    Args:
        session: this process's session.
        program: the program to run.
        key: the job's key; None if no supervisor started the job.
    """

    def __init__(self, session: Session, program: UserProgram, key: Key | None) -> None:
        self.key = key
        self.session, self.view = session, session.view
        session.after_repair = self.after_repair
        session.owns, session.program_words = program.owns, program.words
        self.program = program
        self.ahead = AheadImporter(self.view)
        self.threads = Threads()
        self.waking = Waking(self.view.unwind_if_alarmed)
        self.snapshot: ProcessSnapshot | None = None  # made before the first attempt
        self.left = threading.Event()  # set when nothing is left of the attempt before
        self.ending: Ending | None = None  # end of the current attempt
        self.attempt_as_place = 0  # attempt in which this spare has run the program
        # These signals are ignored until the program runs, unless their treatment was inherited.
        self.unheeded = [
            n for n in WARNINGS if signal.getsignal(n) is signal.SIG_DFL]
        for number in self.unheeded:
            signal.signal(number, signal.SIG_IGN)
        self.thread_error = threading.excepthook
        threading.excepthook = self.end_thread

    def run(self) -> int:
        """Run to the end of the job, and return the exit status of this process."""
        view, session = self.view, self.session
        while True:
            try:
                if view.role()[0] == SLOT:
                    self.prepare_attempt()
                    self.run_program()
                    return view.words.exit_status
                server = Server(view, session.vault, self.ahead.import_new)
                served = server.serve(place=self.attempt_as_place != view.words.attempt)
                session.vault = server.vault
                if served is Served.ENDED:
                    return 0
                if served is Served.CLAIMED:
                    self.attempt_as_place = view.words.attempt
                    deathmail.create_as_spare(view)
                    self.prepare_attempt()
                    self.run_place()
                    continue
            except Rollback:
                if session.ending:
                    raise session.ending from None
                if session.unwound:
                    session.unwound = False
                    continue
            session.interrupt()
            session.unwound = False

    def end_thread(self, ending: threading.ExceptHookArgs) -> None:
        """Handle an error that ends a thread of the program; a Rollback is not reported."""
        if not issubclass(ending.exc_type, Rollback):
            self.thread_error(ending)

    def after_repair(self, repaired: Repaired) -> None:
        """Report a repair, and end the attempt if all slots go back."""
        session, view = self.session, self.view
        plan, kind = view.plan, repaired.kind
        if repaired.silent:
            return
        if repaired.leader and (kind != "causal" or not plan.replayed):
            session.notices.tell_recovery(Recovery(
                kind=kind, slots=plan.dead, version=repaired.version, seconds=repaired.seconds,
                phases=repaired.phases, reason=plan.reason, began_s=view.words.death_ns / 1e9,
            ), died=repaired.died)
        event = FailureEvent(plan.dead, kind, repaired.version, repaired.seconds)
        callbacks = session.callbacks
        if kind != "causal":
            session.callbacks = []
            if self.ending:
                self.ending.gone_back.set()
            self.end_attempt()
        for callback in callbacks:
            callback(event)

    def end_attempt(self) -> None:
        """Make the attempt end soon, since all slots go back."""
        if self.snapshot:
            self.threads.cancel_queued_work()
            self.left.set()
            self.left = threading.Event()
            if self.view.words.supervised:
                Helper(self.watch_end, self.left).start()

    def watch_end(self, left: threading.Event) -> None:
        """Ask for fresh processes if an attempt does not end; this runs in a thread of its own."""
        if left.wait(timeouts.LEAVE_ATTEMPT.s):
            return
        threads = self.threads.unfinished()
        what = f"a thread of its program ({threads[0].name})" if threads else "its main thread"
        self.view.ask_for_relaunch(
            f"{self.session.name} cannot be entered again in the same process: {what} goes on "
            f"{timeouts.LEAVE_ATTEMPT.s:.0f} s after the rollback"
        )

    def prepare_attempt(self) -> None:
        """Remove what is left of the attempt before; raise Rollback if a failure comes first."""
        if self.view.alarmed():
            raise Rollback("a process failed")
        role, _ = self.view.role()
        if not self.snapshot:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WARNINGS)  # pending ones are ignored
            for number in self.unheeded:
                signal.signal(number, signal.SIG_DFL)
            if role == SLOT:
                self.tell_slot()
            self.snapshot = ProcessSnapshot(self.program.owns)
            self.session.imports_alike = self.snapshot.imports_alike
            self.threads.watch()
            return
        deadline = time.monotonic() + timeouts.LEAVE_ATTEMPT.s
        with self.threads.executors_closing():
            while self.threads.unfinished():
                if self.view.alarmed():
                    raise Rollback("a process failed")
                if not self.view.words.supervised and time.monotonic() > deadline:
                    break  # no relaunch is possible; MPI calls of these threads do nothing now
                time.sleep(LOOK_S)
        self.left.set()
        self.snapshot.restore()
        if role == SLOT:
            self.tell_slot()

    def tell_slot(self) -> None:
        """Put the slot's number, not the process's, into the launcher's environment variables."""
        here, slot = self.view.slots_here(), Slot(self.view.role()[1])
        on_node = str(here.index(slot))
        os.environ.update({
            "OMPI_COMM_WORLD_RANK": str(slot),
            "OMPI_COMM_WORLD_SIZE": str(len(self.view.all_slots())),
            "OMPI_COMM_WORLD_LOCAL_RANK": on_node, "OMPI_COMM_WORLD_NODE_RANK": on_node,
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(len(here)),
        })

    def run_program(self) -> None:
        """Run the program once, to its end on all slots."""
        view, session = self.view, self.session
        self.forget_user_modules()
        replay = bool(view.words.slot(Slot(view.role()[1])).replaying)
        session.begin_attempt(replay=replay)
        if session.slot == 0 and session.options.job:
            take_stdin(Path(session.options.job), self.key, view.proc)
        if view.words.attempt == 1 and not view.words.resumed and not replay:
            view.visit("start")
        else:
            view.visit("reentry")
        if status := self.execute():
            self.refuse_replay(f"ended with status {status}")
            self.end_with(status)
        view.visit("end")
        view.words.me.finished = view.words.attempt
        view.end_program()

    def run_place(self) -> None:
        """Run the program once as a spare, since a framework is told of deaths."""
        self.forget_user_modules()
        self.session.begin_attempt_as_place()
        if status := self.execute():
            self.end_with(status)
        self.view.words.me.finished = self.view.words.attempt
        self.view.ring()  # so that other nodes see it

    def end_with(self, status: int) -> None:
        """End the job with the program's status."""
        assert self.ending
        self.ending.end(status)

    def execute(self) -> int:
        """Execute the program once, and return its status.

        Raises:
            Rollback: all slots go back.
        """
        view = self.view
        name = self.session.name
        self.ending, status, pid = Ending(view, name, self.program), 0, os.getpid()
        try:
            try:
                with self.waking.allowed():
                    self.program.run()
            except BaseException as error:
                if os.getpid() != pid:
                    finalization.end_child(self.program, error)
                if not isinstance(error, SystemExit):
                    raise
                status = finalization.exit_status(error)
            if os.getpid() != pid:
                finalization.end_child(self.program, None)
            self.await_threads()
        except (Rollback, LaunchEnded):
            raise
        except BaseException as error:
            self.refuse_replay(f"raised {type(error).__name__}")
            # A failure elsewhere can appear here as any error; without a failure the error is the
            # program's own.
            self.ending.give_way(f"raised {type(error).__name__}")
            self.retry_in_fresh_processes(error)
            status = self.ending.report(error, error.__traceback__)
        # The program may have caught a rollback.
        view.unwind_if_alarmed()
        return status

    def await_threads(self) -> None:
        """Wait for threads that are no daemons and for executors' work, as Python does at its end.

        Raises:
            Rollback: a failure came first.
        """
        if not self.threads.awaited():
            return
        with self.threads.executors_closing():
            while self.threads.awaited():
                self.view.unwind_if_alarmed()
                time.sleep(LOOK_S)

    def retry_in_fresh_processes(self, error: BaseException) -> None:
        """Ask for fresh processes if the program raises an error after a rollback in place.

        The error may come from something that an earlier attempt has left in the process, such as a
        window in a library's variable.
        """
        view, session = self.view, self.session
        assert self.ending
        if (view.words.supervised and view.words.attempt > session.first_attempt
                and self.ending.is_mine(f"raised {type(error).__name__}")):
            said = (traceback.format_exception_only(error)[-1].strip().splitlines() or [""])[0]
            view.ask_for_relaunch(
                f"{session.name} raised {said[:200]} when its program was entered again in "
                "the same process"
            )
            raise LaunchEnded

    def refuse_replay(self, how: str) -> None:
        """Refuse the replay of a program that ends before its horizon, and raise Rollback."""
        if logs.mode() is not logs.Mode.LIVE and not self.session.unwound:
            logs.refuse(f"its program {how} when it was executed again")
            raise Rollback("a process failed")

    def forget_user_modules(self) -> None:
        """Forget the program's own modules, so that it imports them anew; libraries stay."""
        for name in set(sys.modules) - self.session.imported:
            if self.program.owns(getattr(sys.modules[name], "__file__", None)):
                del sys.modules[name]


def main(words: list[str]) -> None:
    """Run a program protected in this process of an MPI job; never returns.

    Args:
        words: see `UserProgram`.
    """
    key = Key.take()
    options = settings.from_environment()
    supervised = bool(options.job)
    if options.rollback == "fresh" and not supervised:
        raise ValueError(
            "FTRMA_ROLLBACK=fresh: without 'ftrma run' nobody can launch the job again; use that, "
            "or in-place"
        )
    mine = UserProgram(words)
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
    speaking.begin(options, rank)
    timeouts.choose(options.timeout)
    if supervised:
        take_terminal(Path(options.job), key, rank)
    status = 1
    view, begun = None, False
    try:
        load_mpi()
        view, start = join(options, key)
        speaking.go_on(options, view)
        open_trace(view, options)
        note_own_exit()
        vault = start()
        session.current = here = Session(view, vault, options)
        mine.add_to_path()
        begun = True
        status = ProgramRunner(here, mine, key).run()
    except LaunchEnded:
        wait_for_the_end(view, supervised)
    except (CatastrophicFailure, CorruptVault) as error:
        give_up(view, f"error: {type(error).__name__}: {error}", supervised)
    except (FtrmaError, ValueError) as error:
        if supervised and not begun and lacks_a_process():
            time.sleep(timeouts.WAIT.s)  # the supervisor also sees it, and launches the job again
        host = view.host_of(view.proc) if view else ""
        give_up(view, f"error: {on_host(error, host)}", supervised)
    except BaseException:
        give_up(view, traceback.format_exc(), supervised, message=False)
    finish(view, mine, status, supervised)


def load_mpi() -> None:
    """Load the extension and mpi4py, in this order, so that calls of MPI pass through ftrma."""
    loading.load()
    loading.import_mpi()
    if not job.interposed():
        raise FtrmaError("calls of MPI do not pass through ftrma: " + loading.too_late())


def open_trace(view: JobView, options: settings.Options) -> None:
    """Open the trace if one is wanted."""
    if options.trace:
        view.open_trace()


def lacks_a_process() -> bool:
    """Say whether a process has died that the launcher has started on this node.

    If so, an error while the job comes up is a consequence of that death.
    """
    started = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "0"))
    deadline = time.monotonic() + timeouts.LOST.s
    while time.monotonic() < deadline:
        if 0 < len(children(os.getppid())) < started:
            return True
        time.sleep(LOOK_S)
    return False


def note_own_exit() -> None:
    """Have ``os._exit`` note its status for the job before the process is gone."""

    def leave(status: int) -> NoReturn:
        job.note_exit(status)
        _exit(status)

    leave.__doc__ = os._exit.__doc__
    os._exit = leave


def give_up(view: JobView | None, why: str, supervised: bool, *, message: bool = True) -> None:
    """End a job that cannot go on, and say why, only once in the job.

    Args:
        message: `why` is a line of ftrma's own; if not, it is shown as it is.
    """
    mine = view is None or view.claim_error()
    owner = view.words.error_owner if view else 0  # also 0 over several nodes
    if mine or (view and owner and not view.alive(Proc(owner - 1))):
        text = messages.line(why) if message else why
        with contextlib.suppress(OSError):
            lineoutput.put(2, text.encode(errors="backslashreplace"))
    if view is not None:
        view.abort(view.words.exit_status or CATASTROPHE)
        wait_for_the_end(view, supervised)
    _exit(1)


def wait_for_the_end(view: JobView | None, supervised: bool) -> None:
    """Wait until the supervisor ends this process; without one, have the MPI library do it."""
    if supervised:
        time.sleep(timeouts.WAIT.s)
    assert view is not None
    if view.words.request == job.Request.RELAUNCH:
        why = view.why_relaunch()
        view.tell(f"error: {why}, and without 'ftrma run' nobody can launch the job again")
    job.mpi_abort(view.words.exit_status or 1)


def finish(view: JobView | None, program: UserProgram, status: int, supervised: bool) -> None:
    """Leave the job. MPI_Finalize can wait for dead processes, so it is called only if none has
    died."""
    finalization.run_exit_functions()
    finalization.release_program(program)
    if view is not None:
        view.leave()
    if view is not None and not supervised:
        if view.proc == 0:
            shutil.rmtree(view.directory, ignore_errors=True)
        if all(view.alive(p) for p in view.all_procs()):
            job.mpi_finalize()  # else the launcher calls the end improper
    _exit(status)
