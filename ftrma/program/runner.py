"""What every process of a job runs: the user's script, or service, and repair between them.

Slots run the script; checksum ranks and spares serve until the job ends or they come to a slot.
After a failure everybody meets in `rounds.repair`, and the slots run the script again from its
top, on a clean slate: without the threads of the attempt before, and without what it changed in the
process.
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

from .. import settings
from ..errors import (
    CATASTROPHE,
    CatastrophicFailure,
    CorruptVault,
    FtrmaError,
    Rollback,
    on_host,
)
from ..fabric import killrules
from ..fabric.story import Recovery
from ..fabric.world import World
from ..host import lineoutput
from ..host.helper import Helper
from ..host.key import Key
from ..host.processes import children
from ..native import job, loading, logs
from ..native.constants import SLOT
from ..native.shared import Proc, Slot
from ..protocol.checkpoints import Repaired
from ..protocol.rounds import Ended
from . import finalization, session
from .ending import Ending
from .imports import Ahead
from .joining import join, take_stdin, take_terminal
from .script import Program
from .session import FailureEvent, Session
from .slate import Slate
from .threads import Threads, executors_closing
from .waking import Waking

_exit = os._exit  # the real one, see note_own_exit
LEAVE_S = 5.0  # a program that was rolled back, and its threads, get so long to be gone
LOOK_S = 0.005  # how often it is looked whether they are
LOST_S = 0.5  # the launcher knows of a death before the MPI library tells of it
WAIT_S = 60.0  # the supervisor ends this process much earlier
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)


class Runner:
    """Runs the program in this process, as often as it takes.

    Args:
        session: of this process.
        program: to run.
        key: of the job; None where no supervisor started it.
    """

    def __init__(self, session: Session, program: Program, key: Key | None) -> None:
        self.key = key
        self.session, self.world = session, session.world
        session.after_repair = self.after_repair
        session.owns = program.owns
        self.program = program
        self.ahead = Ahead(self.world)
        self.threads = Threads()
        self.waking = Waking(self.world.unwind_if_alarmed)
        self.slate: Slate | None = None  # before the program was entered first
        self.ready = threading.Event()  # nothing is left of the attempt before
        self.ending: Ending | None = None  # of the program's attempt
        # The program's; a batch system may send them to all processes.
        self.unheeded = [
            n for n in WARNINGS if signal.getsignal(n) is signal.SIG_DFL]
        for number in self.unheeded:
            signal.signal(number, signal.SIG_IGN)
        self.thread_error = threading.excepthook
        threading.excepthook = self.end_thread

    def run(self) -> int:
        """Run to the end of the job; returns the exit status of this process."""
        world, session = self.world, self.session
        while True:
            try:
                if world.role()[0] == SLOT:
                    self.clean_up()
                    self.run_program()
                    return int(world.ctl.exit_status)
                serve = session.coordinated.serve
                session.vault, again = serve(session.vault, self.ahead.look)
                if not again:
                    return 0
            except Rollback:
                if session.ending:
                    raise session.ending from None
                if session.unwound:
                    session.unwound = False
                    continue
            session.interrupt()
            session.unwound = False

    def end_thread(self, ending: threading.ExceptHookArgs) -> None:
        """A thread of the program that met a rollback ends without a word: it is begun again."""
        if not issubclass(ending.exc_type, Rollback):
            self.thread_error(ending)

    def after_repair(self, repaired: Repaired) -> None:
        session, world = self.session, self.world
        plan, kind = world.plan, repaired.kind
        if repaired.silent:
            return
        if repaired.leader and (kind != "causal" or not plan.replayed):
            session.tell_recovery(Recovery(
                kind=kind, slots=plan.dead, version=repaired.version, seconds=repaired.seconds,
                phases=repaired.phases, reason=plan.reason, began_s=world.ctl.death_ns / 1e9,
            ), died=repaired.died)
        event = FailureEvent(plan.dead, kind, repaired.version, repaired.seconds)
        callbacks = session.callbacks
        if kind != "causal":
            session.callbacks = []
            if self.ending:
                self.ending.gone_back.set()
            self.leave_in_time()
        for callback in callbacks:
            callback(event)

    def leave_in_time(self) -> None:
        """The program's attempt is over: nothing more is begun in it, and it is to be gone soon."""
        if self.slate:
            self.threads.cancel_queued_work()
            self.ready.set()
            self.ready = threading.Event()
            if self.world.ctl.supervisor:
                Helper(self.watch_leaving, self.ready).start()

    def watch_leaving(self, ready: threading.Event) -> None:
        """Ask for fresh processes if an attempt will not end; runs in a thread of its own."""
        if ready.wait(LEAVE_S):
            return
        left = self.threads.left()
        what = f"a thread of its program ({left[0].name})" if left else "its main thread"
        self.world.ask_for_relaunch(
            f"slot {self.session.slot} cannot be entered again in the same process: {what} goes on "
            f"{LEAVE_S:.0f} s after the rollback"
        )

    def clean_up(self) -> None:
        """Have nothing left of the attempt before; raises Rollback when a failure comes first."""
        if self.world.alarmed():
            raise Rollback("a process failed")
        if not self.slate:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WARNINGS)  # what waits is ignored
            for number in self.unheeded:
                signal.signal(number, signal.SIG_DFL)
            self.tell_slot()
            self.slate = Slate(self.program.owns)
            self.session.imports_alike = self.slate.imports_alike
            self.threads.watch_births()
            return
        deadline = time.monotonic() + LEAVE_S
        with executors_closing():
            while self.threads.left():
                if self.world.alarmed():
                    raise Rollback("a process failed")
                if not self.world.ctl.supervisor and time.monotonic() > deadline:
                    break  # nobody can launch the job again: their calls of MPI do nothing any more
                time.sleep(LOOK_S)
        self.ready.set()
        self.slate.restore()
        self.tell_slot()

    def tell_slot(self) -> None:
        """Programs that ask the launcher's environment who they are learn what MPI tells them."""
        here, slot = self.world.slots_here(), Slot(self.world.role()[1])
        on_node = str(here.index(slot))
        os.environ.update({
            "OMPI_COMM_WORLD_RANK": str(slot),
            "OMPI_COMM_WORLD_SIZE": str(len(self.world.slots_of_job())),
            "OMPI_COMM_WORLD_LOCAL_RANK": on_node, "OMPI_COMM_WORLD_NODE_RANK": on_node,
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(len(here)),
        })

    def run_program(self) -> None:
        """Run the program once, to its end on all slots."""
        world, session = self.world, self.session
        self.forget_user_modules()
        replay = bool(world.ctl.slots[world.role()[1]].replaying)
        session.enter(replay=replay)
        if session.slot == 0 and session.options.job:
            take_stdin(Path(session.options.job), self.key, world.proc)
        if world.ctl.entry == 1 and not world.ctl.resume and not replay:
            world.visit("start")
        else:
            world.visit("reentry")
        self.ending, status, pid = Ending(world, session.slot, self.program), 0, os.getpid()
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
        except (Rollback, Ended):
            raise
        except BaseException as error:
            self.refuse_replay(f"raised {type(error).__name__}")
            # A failure elsewhere can show as any error; only one without a failure is the user's.
            self.ending.give_way(f"raised {type(error).__name__}")
            self.retry_in_fresh_processes(error)
            status = self.ending.report(error, error.__traceback__)
        # Also where the program has kept a rollback to itself.
        world.unwind_if_alarmed()
        if status:
            self.refuse_replay(f"ended with status {status}")
            self.ending.end(status)
        world.visit("end")
        world.put("finished", world.ctl.entry)
        session.coordinated.finish()
        world.end_program()

    def await_threads(self) -> None:
        """Wait for what plain Python waits for at its end: threads that are no daemons, executors'
        work; raises Rollback when a failure comes first."""
        if not self.threads.awaited():
            return
        with executors_closing():
            while self.threads.awaited():
                self.world.unwind_if_alarmed()
                time.sleep(LOOK_S)

    def retry_in_fresh_processes(self, error: BaseException) -> None:
        """An error behind a rollback in place may come from what the attempt before has left in the
        process, such as a window in a library's variable: let all start again without that."""
        world, session = self.world, self.session
        assert self.ending
        if (world.ctl.supervisor and world.ctl.entry > session.first_entry
                and self.ending.is_mine(f"raised {type(error).__name__}")):
            said = (traceback.format_exception_only(error)[-1].strip().splitlines() or [""])[0]
            world.ask_for_relaunch(
                f"slot {session.slot} raised {said[:200]} when its program was entered again in "
                "the same process"
            )
            raise Ended

    def refuse_replay(self, how: str) -> None:
        """A replayed program that ends before its horizon is not what it was before."""
        if logs.mode() is not logs.Mode.LIVE and not self.session.unwound:
            logs.refuse(f"its program {how} when it was executed again")
            raise Rollback("a process failed")

    def forget_user_modules(self) -> None:
        """The program starts again with fresh modules of its own; libraries stay."""
        for name in set(sys.modules) - self.session.imported:
            if self.program.owns(getattr(sys.modules[name], "__file__", None)):
                del sys.modules[name]


def main(words: list[str]) -> None:
    """Run a program protected in this process of an MPI job; never returns.

    Args:
        words: of the program, see `script`.
    """
    key = Key.take()
    options = settings.from_environment()
    supervised = bool(options.job)
    if options.rollback == "fresh" and not supervised:
        raise ValueError(
            "FTRMA_ROLLBACK=fresh: without 'ftrma run' nobody can launch the job again; use that, "
            "or in-place"
        )
    mine = Program(words)
    if supervised:
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        take_terminal(Path(options.job), key, rank)
    status = 1
    world, begun = None, False
    try:
        loading.load()
        loading.import_mpi()
        if not job.interposed():
            raise FtrmaError("calls of MPI do not pass through ftrma: " + loading.too_late())
        world, take_part = join(options, key)
        if not options.job and world.proc == 0:  # no supervisor has written them
            killrules.refuse_agents(options.kill)
            killrules.write(world.ctl, options.kill)
        if options.trace:
            world.open_trace()
        note_own_exit()
        checkpoints = take_part()
        vault = checkpoints.start()
        session.current = here = Session(world, checkpoints, options)
        here.vault = vault
        mine.add_to_path()
        begun = True
        status = Runner(here, mine, key).run()
    except Ended:
        wait_for_the_end(world, supervised)
    except (CatastrophicFailure, CorruptVault) as error:
        why = f"ftrma: error: {type(error).__name__}: {error}\n"
        give_up(world, why, supervised)
    except (FtrmaError, ValueError) as error:
        if supervised and not begun and lacks_a_process():
            time.sleep(WAIT_S)  # the supervisor sees it, too, and launches the job again
        host = world.host_of(world.proc) if world else ""
        give_up(world, f"ftrma: error: {on_host(error, host)}\n", supervised)
    except BaseException:
        give_up(world, traceback.format_exc(), supervised)
    finish(world, mine, status, supervised)


def lacks_a_process() -> bool:
    """Whether a process has died of those that the launcher has started on this node, while the job
    comes up: then what has failed, has failed for that."""
    started = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "0"))
    deadline = time.monotonic() + LOST_S
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


def give_up(world: World | None, why: str, supervised: bool, status: int = CATASTROPHE) -> None:
    """The job cannot go on: say why, once."""
    mine = world is None or world.claim_error()
    owner = world.ctl.error_owner if world else 0  # 0 over several nodes, too
    if mine or (world and owner and not world.alive(Proc(owner - 1))):
        with contextlib.suppress(OSError):
            lineoutput.put(2, why.encode(errors="backslashreplace"))
    if world is not None:
        world.abort(world.ctl.exit_status or status)
        wait_for_the_end(world, supervised)
    _exit(1)


def wait_for_the_end(world: World | None, supervised: bool) -> None:
    """The supervisor ends this process; where there is none, the MPI library does."""
    if supervised:
        time.sleep(WAIT_S)
    assert world is not None
    if world.ctl.request == job.Request.RELAUNCH:
        why = world.why_relaunch()
        world.tell(f"error: {why}, and without 'ftrma run' nobody can launch the job again")
    job.mpi_abort(world.ctl.exit_status or 1)


def finish(world: World | None, program: Program, status: int, supervised: bool) -> None:
    """Leave. MPI_Finalize can wait for the dead, so it is called only where nobody died."""
    finalization.run_exit_functions()
    finalization.let_go(program)
    if world is not None:
        world.leave()
    if world is not None and not supervised:
        if world.proc == 0:
            shutil.rmtree(world.directory, ignore_errors=True)
        if all(world.alive(p) for p in world.procs_of_job()):
            job.mpi_finalize()  # or the launcher calls the end improper
    _exit(status)
