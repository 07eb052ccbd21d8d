"""What every process of a job runs: the user's script, or service, and repair between them.

Slots run the script; checksum ranks and spares serve until the job ends or they come to a slot.
After a failure everybody meets in `recovery.repair`, and the slots run the script again from its
top.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import runpy
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from . import _mpi, session, settings
from .checkpoint import Server
from .errors import CATASTROPHE, CatastrophicFailure, CorruptVault, FtrmaError, Rollback
from .job import join, start, take_terminal
from .key import Key
from .recovery import Ended
from .session import FailureEvent, Session
from .world import SLOT, World, check, last_plan

_exit = os._exit  # the real one, see note_own_exit


class Runner:
    """Runs the script in this process, as often as it takes."""

    def __init__(self, session: Session, script: str, arguments: list[str]) -> None:
        self.session, self.world = session, session.world
        session.after_repair = self.after_repair
        self.script, self.arguments = script, arguments
        self.seen_modules = 0
        self.thread_error = threading.excepthook
        threading.excepthook = self.end_thread

    def run(self) -> int:
        """Run to the end of the job; returns the exit status of this process."""
        world, session = self.world, self.session
        while True:
            try:
                if world.role()[0] == SLOT:
                    world.unwind_if_alarmed()
                    self.run_program()
                    return int(world.ctl.exit_status)
                elif world.exchange:
                    world.exchange.serve()
                    return 0
                else:
                    server = Server(world, session.vault, self.import_ahead)
                    again = server.serve()
                    session.vault = server.vault
                    if not again:
                        return 0
            except Rollback:
                if world.exchange:
                    raise Ended from None  # nothing is repaired across nodes; it was an abort
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

    def after_repair(self, story: dict[str, Any]) -> None:
        session, world = self.session, self.world
        plan = last_plan(world.events())
        slots, kind = plan["slots"], story["kind"]
        if story["leader"] and (kind == "rollback" or not slots):
            world.emit(
                "recovery", kind=kind, slots=slots, version=story["version"],
                seconds=story["seconds"], phases=story["phases"], reason=plan["reason"],
                began_s=world.ctl.death_ns / 1e9,
            )  # fmt: skip
            session.tell_recovery({**story, "reason": plan["reason"]}, slots)
        event = FailureEvent(tuple(slots), kind, story["version"], story["seconds"])
        callbacks = session.callbacks
        if kind == "rollback":
            session.callbacks = []
        for callback in callbacks:
            callback(event)

    def run_program(self) -> None:
        """Run the script once, to the end of the whole program."""
        world, session = self.world, self.session
        self.forget_user_modules()
        replay = bool(world.ctl.slots[world.role()[1]].replaying)
        session.enter(replay=replay)
        if world.ctl.entry == 1 and not world.ctl.resume and not replay:
            world.visit("start")
        else:
            world.visit("reentry")
        status = 0
        sys.argv = [self.script, *self.arguments]
        try:
            runpy.run_path(self.script, run_name="__main__")
        except SystemExit as ending:
            status = exit_status(ending)
        except (Rollback, Ended):
            raise
        except BaseException as error:
            self.refuse_replay(f"raised {type(error).__name__}")
            # A failure elsewhere can show as any error; only one without a failure is the user's.
            world.unwind_if_alarmed()
            self.report_error()
            status = 1
        world.unwind_if_alarmed()
        if status:
            self.refuse_replay(f"ended with status {status}")
            self.end_with(status)
        world.visit("end")
        world.put("finished", world.ctl.entry)
        world.end_program()

    def refuse_replay(self, how: str) -> None:
        """A replayed program that ends before its horizon is not what it was before."""
        lib = self.world.lib
        if lib.ftrma_mode() != lib.FTRMA_LIVE:
            lib.ftrma_refuse(f"its program {how} when it was executed again".encode())
            raise Rollback("a process failed")

    def report_error(self) -> None:
        """Print the traceback of the program's own error, once in the job."""
        if self.world.claim_error():
            kind, error, tb = sys.exc_info()
            while tb and (tb.tb_frame.f_code.co_filename == __file__
                          or "runpy" in tb.tb_frame.f_code.co_filename):  # fmt: skip
                tb = tb.tb_next
            if isinstance(error, FtrmaError):
                at = traceback.extract_tb(tb)
                where = next((f for f in reversed(at) if f.filename == self.script), None)
                line = f" ({self.script}, line {where.lineno})" if where else ""
                self.world.tell(f"error: {error}{line}")
            else:
                traceback.print_exception(kind, error, tb)
            sys.stderr.flush()

    def end_with(self, status: int) -> None:
        """End the whole job with this status."""
        mine = self.world.claim_error()
        sys.stdout.flush()
        sys.stderr.flush()
        if mine:
            self.world.abort(status)
        raise Ended

    def forget_user_modules(self) -> None:
        """The program starts again with fresh modules of its own; libraries stay."""
        home = str(Path(self.script).resolve().parent) + os.sep
        for name in set(sys.modules) - self.session.imported:
            path = getattr(sys.modules[name], "__file__", None) or ""
            if path.startswith(home) and path.endswith(".py") and "site-packages" not in path:
                del sys.modules[name]

    def import_ahead(self) -> None:
        """A spare imports what the slots have imported, so that taking over is quick."""
        path = self.world.directory / "modules"
        try:
            if path.stat().st_size == self.seen_modules:
                return
            text = path.read_text()
        except OSError:
            return
        self.seen_modules = len(text)
        for name in text.split():
            if self.world.alarmed():
                return  # a slot is waiting to be taken; what is missing comes with the program
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


def exit_status(ending: SystemExit) -> int:
    """The status that Python gives for ``sys.exit(code)``."""
    code = ending.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def main(script: str, arguments: list[str]) -> None:
    """Run `script` protected in this process of an MPI job; never returns."""
    key = Key.take()
    options = settings.from_environment()
    supervised = bool(options.job)
    if supervised:
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        take_terminal(Path(options.job), key, rank)
    status = 1
    world = None
    try:
        native = _mpi.load()
        _mpi.import_mpi()
        if not native.lib.ftrma_interposed():
            raise FtrmaError("calls of MPI do not pass through ftrma: " + _mpi.too_late())
        world = join(native, options, key)
        settings.apply_kill_rules(world, options)
        if options.trace:
            check(native.lib.ftrma_trace_open(), "opening a trace file")
        note_own_exit(native.lib)
        vault = start(world)
        session.current = here = Session(world, options)
        here.vault = vault
        sys.path.insert(0, str(Path(script).resolve().parent))
        status = Runner(here, script, arguments).run()
    except Ended:
        wait_for_the_end(world, supervised)
    except (CatastrophicFailure, CorruptVault) as error:
        why = f"ftrma: error: {type(error).__name__}: {error}\n"
        give_up(world, why, supervised)
    except (FtrmaError, ValueError) as error:
        give_up(world, f"ftrma: error: {error}\n", supervised)
    except BaseException:
        give_up(world, traceback.format_exc(), supervised)
    finish(world, status, supervised)


def note_own_exit(lib: Any) -> None:
    """Have ``os._exit`` note its status for the job before the process is gone."""

    def leave(status: int) -> NoReturn:
        lib.ftrma_note_exit(status)
        _exit(status)

    leave.__doc__ = os._exit.__doc__
    os._exit = leave


def give_up(world: World | None, why: str, supervised: bool, status: int = CATASTROPHE) -> None:
    """The job cannot go on: say why, once."""
    if world is None or world.claim_error():
        sys.stderr.write(why)
        sys.stderr.flush()
    if world is not None:
        world.abort(world.ctl.exit_status or status)
        wait_for_the_end(world, supervised)
    _exit(1)


def wait_for_the_end(world: World | None, supervised: bool) -> None:
    """The supervisor ends this process; where there is none, the MPI library does."""
    if supervised:
        time.sleep(60)
    assert world is not None
    if world.ctl.request == world.lib.FTRMA_RELAUNCH:
        plan = last_plan(world.events())
        world.tell(
            f"error: {plan['reason']}, and without 'ftrma run' nobody can launch the job again"
        )
    world.lib.ftrma_mpi_abort(world.ctl.exit_status or 1)


def finish(world: World | None, status: int, supervised: bool) -> None:
    """Leave. MPI_Finalize can wait for the dead, so it is called only where nobody died."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if world is not None:
        world.leave()
    if world is not None and not supervised:
        if world.proc == 0:
            shutil.rmtree(world.directory, ignore_errors=True)
        if all(world.alive(p) for p in range(world.ctl.nprocs)):
            world.lib.ftrma_mpi_finalize()  # or the launcher calls the end improper
    _exit(status)
