"""Ends the job with the program's own error or status.

The error of one process, the owner, becomes the job's error. The others write what they still have
to write. Then they wait for the end and take part in repairs, since the owner may die or give its
error up. An error that comes together with a failure may be a consequence of it, so all slots go
back then; if it is not, the program comes to the error again.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

from ..fabric.one_node import LOOK_S
from ..fabric.view import JobView
from ..host import timeouts
from ..host.errors import FtrmaError, Rollback
from ..host.helper import Helper
from ..native import job, logs
from ..protocol.failure_state import has_deaths
from ..protocol.repair_round import LaunchEnded
from . import finalization, script
from .script import UserProgram

# Times after which the job ends, whatever this process does:


class Ending:
    """The end of one attempt of the program in one process.

    Args:
        name: name of this process's role, for users.
        program: the program that is run.

    Attributes:
        gone_back: set when the attempt has ended by a rollback instead.
        status: the program's exit status.
        latest: when the job ends at the latest, by the monotonic clock.
        unsaid: this process's error, if another process's error has come first.
    """

    def __init__(self, view: JobView, name: str, program: UserProgram) -> None:
        self.view, self.name, self.program = view, name, program
        self.gone_back = threading.Event()
        self.status = 0
        self.latest = 0.0
        self.unsaid = ""
        # This thread is made before the program sets hooks for threads, which would also apply to
        # it.
        self.limit = Helper(self._end_at_latest)

    def give_way(self, how: str) -> None:
        """Have a pending failure repaired by going back, and raise Rollback then.

        Args:
            how: how this process's program ends, in words.
        """
        if self.view.alarmed() and has_deaths(self.view):
            logs.keep_refusal(f"{self.name}'s program {how} beside it")
        self.view.unwind_if_alarmed()

    def is_mine(self, how: str) -> bool:
        """Say whether this process's error is the job's; raise Rollback if a failure comes
        first."""
        return self.view.claim_error(meanwhile=lambda: self.give_way(how))

    def report(self, error: BaseException, tb: Any) -> int:
        """Print the program's error if it is the job's error; return the program's status."""
        how = f"raised {type(error).__name__}"
        while tb and (tb.tb_frame.f_globals.get("__name__") == f"{__package__}.runner"
                      or tb.tb_frame.f_code.co_filename == script.__file__
                      or "runpy" in tb.tb_frame.f_code.co_filename):
            tb = tb.tb_next
        mine = self.is_mine(how)
        if mine:
            self._end_within(timeouts.SHOW_ERROR.s, 1)
        if isinstance(error, FtrmaError):
            at = traceback.extract_tb(tb)
            where = next((f for f in reversed(at) if self.program.owns(f.filename)), None)
            place = self.program.display_name(where.filename) if where else ""
            line = f" ({place}, line {where.lineno})" if where else ""
            words = f"error: {error}{line}"
            if mine:
                self.view.tell(words)
            else:
                self.unsaid = f"ftrma: {words}\n"
            return 1
        if not mine:
            self.unsaid = "".join(traceback.format_exception(type(error), error, tb))
            return 1
        status = finalization.show(type(error), error, tb)
        if not status:  # the program's hook has ended this process with status 0
            self.gone_back.set()
            self.view.release_error()
        return status

    def end(self, status: int) -> NoReturn:
        """End the whole job with this status, or wait until it ends."""
        how = f"ended with status {status}"
        if mine := self.is_mine(how):  # asked before anything that others wait for is released
            self._end_within(timeouts.EXIT_FUNCTIONS.s, status)
        finalization.run_exit_functions()
        finalization.release_program(self.program)
        try:
            if self.gone_back.is_set():  # an exit function has caught the rollback
                raise Rollback("a process failed")
            while not (mine or self.is_mine(how)):
                time.sleep(LOOK_S)
        except Rollback:
            if not self.view.words.supervised:
                raise
            self.view.ask_for_relaunch(
                f"{self.name} cannot be entered again in the same process: it had run its "
                "exit functions")
            raise LaunchEnded from None
        with contextlib.suppress(Exception):
            sys.stderr.write(self.unsaid)
        finalization.flush_streams()
        self._abort(status)
        raise LaunchEnded

    def _end_within(self, seconds: float, status: int) -> None:
        self.status, self.latest = status, time.monotonic() + seconds
        if self.limit.ident is None:
            self.limit.start()

    def _end_at_latest(self) -> None:
        while (left := self.latest - time.monotonic()) > 0:
            if self.gone_back.wait(min(left, 0.1)):
                return
        if not (self.view.alarmed() and self.gone_back.wait(timeouts.PENDING_REPAIR.s)):
            self._abort(self.status)

    def _abort(self, status: int) -> None:
        self.view.abort(status)
        if not self.view.words.supervised:
            job.mpi_abort(status)
