"""How a program's own error or status becomes the job's.

One process's does. What the others had still to write they write meanwhile; then they wait for the
end, and take part in repairs: the owner may die, or have second thoughts. An error beside a failure
may come of it, so all go back then; without a failure the program meets it again.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

from ..errors import FtrmaError, Rollback
from ..fabric.world import LOOK_S, World
from ..host.helper import Helper
from ..native import job, logs
from ..protocol.rounds import Ended
from ..protocol.situation import has_deaths
from . import finalization, script
from .script import Program

SHOW_S = 30.0  # the program's hook for errors, which may wait for others, who go on
EXIT_S = 2.0  # what it does at its exit
REPAIR_S = 30.0  # a failure that is pending then


class Ending:
    """The end of one attempt of the program in this process.

    Args:
        slot: of this process.

    Attributes:
        gone_back: set when the attempt has ended by a rollback instead.
    """

    def __init__(self, world: World, slot: int, program: Program) -> None:
        self.world, self.slot, self.program = world, slot, program
        self.gone_back = threading.Event()
        self.status = 0
        self.latest = 0.0  # when the job ends at last, by the monotonic clock
        self.unsaid = ""  # an error that another one has come before
        # Made before the program sets hooks, which it would keep.
        self.limit = Helper(self._end_at_latest)

    def give_way(self, how: str) -> None:
        """Have a pending failure repaired, by which all go back; raises Rollback then.

        Args:
            how: this process's program ends.
        """
        if self.world.alarmed() and has_deaths(self.world):
            logs.keep_refusal(f"slot {self.slot}'s program {how} beside it")
        self.world.unwind_if_alarmed()

    def is_mine(self, how: str) -> bool:
        """Whether this process's error is the job's; raises Rollback when a failure comes first."""
        return self.world.claim_error(meanwhile=lambda: self.give_way(how))

    def report(self, error: BaseException, tb: Any) -> int:
        """Print the program's own error, once in the job; returns its status."""
        how = f"raised {type(error).__name__}"
        while tb and (tb.tb_frame.f_globals.get("__name__") == f"{__package__}.runner"
                      or tb.tb_frame.f_code.co_filename == script.__file__
                      or "runpy" in tb.tb_frame.f_code.co_filename):
            tb = tb.tb_next
        mine = self.is_mine(how)
        if mine:
            self._end_within(SHOW_S, 1)
        if isinstance(error, FtrmaError):
            at = traceback.extract_tb(tb)
            where = next((f for f in reversed(at) if self.program.owns(f.filename)), None)
            place = self.program.place(where.filename) if where else ""
            line = f" ({place}, line {where.lineno})" if where else ""
            words = f"error: {error}{line}"
            if mine:
                self.world.tell(words)
            else:
                self.unsaid = f"ftrma: {words}\n"
            return 1
        if not mine:
            self.unsaid = "".join(traceback.format_exception(type(error), error, tb))
            return 1
        status = finalization.show(type(error), error, tb)
        if not status:  # its hook has ended this process alone, and well
            self.gone_back.set()
            self.world.release_error()
        return status

    def end(self, status: int) -> NoReturn:
        """End the whole job with this status, or wait until it is ended."""
        how = f"ended with status {status}"
        if mine := self.is_mine(how):  # before others can miss what this process lets go of
            self._end_within(EXIT_S, status)
        finalization.run_exit_functions()
        finalization.let_go(self.program)
        try:
            if self.gone_back.is_set():  # its exit functions kept the rollback to themselves
                raise Rollback("a process failed")
            while not (mine or self.is_mine(how)):
                time.sleep(LOOK_S)
        except Rollback:
            if not self.world.ctl.supervisor:
                raise
            self.world.ask_for_relaunch(
                f"slot {self.slot} cannot be entered again in the same process: it had run its "
                "exit functions")
            raise Ended from None
        with contextlib.suppress(Exception):
            sys.stderr.write(self.unsaid)
        finalization.flush_streams()
        self._abort(status)
        raise Ended

    def _end_within(self, seconds: float, status: int) -> None:
        self.status, self.latest = status, time.monotonic() + seconds
        if self.limit.ident is None:
            self.limit.start()

    def _end_at_latest(self) -> None:
        while (left := self.latest - time.monotonic()) > 0:
            if self.gone_back.wait(min(left, 0.1)):
                return
        if not (self.world.alarmed() and self.gone_back.wait(REPAIR_S)):
            self._abort(self.status)

    def _abort(self, status: int) -> None:
        self.world.abort(status)
        if not self.world.ctl.supervisor:
            job.mpi_abort(status)
