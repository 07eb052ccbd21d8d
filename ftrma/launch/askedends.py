"""Decides about ends of a job that somebody asks for: a time limit, a signal, ``ftrma halt``.

If the end is asked for, the results so far are not lost. The supervisor stores `Words.halt`, the
slots take a checkpoint at their next safepoint and wait behind it, and when it is committed (and in
files, with ``--spill``) the launch is ended with the status that says "run me again". If there is
not enough time for that, the launch is ended nevertheless, and the job can go on from what was
saved last.

* A time limit asks ``--margin`` before the limit; at the limit the job ends in any case.
* A signal asks when it comes, and the job has ``--margin`` from then on. SIGTERM asks only if
  checkpoints go to files; if it comes again, the job ends at once.
* ``ftrma halt`` asks at once, at a given time, or after a number of checkpoints. It waits for the
  next safepoint however long that takes.

Without ``--spill`` the vaults stay in the node's memory when the job has ended. Over several nodes
nothing can stay; then a time limit just ends the job, and signals do what they do otherwise.
"""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

from ..fabric import spillfiles, story
from ..fabric.saved import Saved
from ..fabric.story import Halt
from ..host.errors import CATASTROPHE, FtrmaError
from ..host.outfile import tell
from ..protocol.job_end import JobEnd, end_behind_checkpoint, end_late
from ..settings import options as settings
from ..settings.timelimits import margin_of, span
from . import haltrequests
from .haltrequests import EndsInMind, HaltRequest
from .launchcontrol import LaunchControl

# timeout(1) sends its signal to the child and then to the child's process group; batch systems may
# signal a script and its children. So a second signal within this time counts as the same one.
SAME_S = 0.5
AGAIN = (signal.SIGTERM, signal.SIGINT)  # these signals end the job at once when they come again


class AskedEnds:
    """The ends of one job that somebody asks for.

    Args:
        directory: the job's directory.
        options: the job's options.
        spill: directory of the files of checkpoints; empty: there are none.
        stays: whether the vaults, without files, can stay in this node's memory.

    Attributes:
        why: why the job is to end behind its next checkpoint; empty if it is not to end.
        keeps: whether the job's directory stays, with the vaults.
    """

    def __init__(self, directory: Path, options: settings.Options, *, spill: str,
                 stays: bool) -> None:
        self.directory, self.spill, self.stays = directory, spill, stays
        self.status = options.requeue_status
        now, limit = time.monotonic(), options.time_limit
        self.limit_text = str(limit or "")
        left_s = limit.left_s(time.time()) if limit else 0.0
        self.limit_at = now + left_s if limit else None  # from here on no clock can jump
        self.margin_s = margin_of(limit, options.margin, time.time())
        self.named = f"SIG{options.signal}" if options.signal else ""
        names = [self.named, "SIGTERM" if spill else ""] if self.saves else []
        self.asking = {signal.Signals[name] for name in names if name}
        self.why, self.asked_at, self.until = "", 0.0, 0.0
        self.by_request = self.at_once = self.told = self.keeps = False
        self.since: int | None = None  # version that was committed when the end was asked for
        self.request: HaltRequest | None = None
        self.request_at, self.base = 0.0, -1  # monotonic; version committed then
        self.mark = (0, 0)
        haltrequests.forget(directory)
        self.note()

    @property
    def saves(self) -> str:
        """Return where checkpoints outlive the job, in words; empty if they do not."""
        return self.spill or ("the memory of this node" if self.stays else "")

    def tell_start(self) -> None:
        """Tell the user at the job's start what an already known end will leave."""
        option = f"--time-limit {self.limit_text}" if self.limit_text else (
            f"--signal {self.named.removeprefix('SIG')}" if self.named else "")
        if option and not self.spill:
            tell(f"warning: {option} without --spill: " + (
                "the job's last checkpoint will stay in the memory of this node, and it can go on "
                "there alone" if self.stays else
                "nothing of the job outlives it over several nodes; give --spill DIR"))

    # -- who asks -----------------------------------------------------------------------------

    def heed(self, number: int) -> bool:
        """Take a signal that asks for an end behind a checkpoint; return False if it does not ask
        for that.

        It may interrupt anything, so it only stores what has come.
        """
        if number not in self.asking:
            return False
        if not self.why:
            self.ask(signal.Signals(number).name, self.margin_s)
            return True
        soon = time.monotonic() - self.asked_at < SAME_S
        return soon or number not in AGAIN

    def ask(self, why: str, patience_s: float = float("inf")) -> None:
        """Make the job end behind its next checkpoint.

        Args:
            why: in words.
            patience_s: time after which it ends without a checkpoint.
        """
        if not self.why:
            self.asked_at = time.monotonic()
            self.until = min(self.asked_at + patience_s, self.limit_at or float("inf"))
            self.since, self.told = None, False
            self.why = why  # last: a signal may come in between

    def take_request(self) -> None:
        """Look for a request of ``ftrma halt``, and obey it."""
        try:
            request, self.mark = haltrequests.requested(self.directory, self.mark)
        except FtrmaError as error:
            self.mark = haltrequests.mark(self.directory / haltrequests.REQUEST)
            tell(f"warning: {error}")
            return
        if not request:
            return
        self.request, self.base = request, -1
        self.request_at = time.monotonic() + max(0.0, request.after - time.time())
        if request.unset and self.by_request:
            self.why, self.by_request = "", False
            tell("ftrma halt --unset: the job goes on")
        self.at_once = request.now
        self.note()

    def look_at_request(self, saved: Saved | None) -> None:
        """Ask for the end if a request says that it is time."""
        request, now = self.request, time.monotonic()
        if not request or request.unset or self.why:
            return
        if saved and self.base < 0:
            self.base = saved.committed
        passed = bool(saved) and saved.committed - self.base if saved else 0
        counted = bool(request.checkpoints) and passed >= request.checkpoints
        timed = bool(request.after) and now >= self.request_at
        if counted or timed or not (request.checkpoints or request.after):
            self.by_request = True
            self.ask("ftrma halt")
            self.note()

    def look_at_clock(self) -> None:
        """Ask for the end if the time limit comes near."""
        if self.limit_at is not None and self.saves and not self.why:
            left_s = self.limit_at - time.monotonic()
            if left_s <= self.margin_s:
                self.ask(f"--time-limit {self.limit_text}")
                self.note()

    # -- the end ------------------------------------------------------------------------------

    def step(self, control: LaunchControl) -> JobEnd | None:
        """Do what is due, and say how the job ends; None: it goes on."""
        self.take_request()
        if self.at_once:
            return self.end(control, "ftrma halt --now")
        self.look_at_clock()
        saved: Saved | None = None
        if self.why or self.request:
            saved = control.saved(halt=bool(self.why))
            self.look_at_request(saved)
        if self.why:
            self.tell_asked()
            if saved:
                if saved.over:
                    return None
                self.since = saved.committed if self.since is None else min(
                    self.since, saved.committed)
                if version := self.version(saved):
                    return self.end(control, self.why, version)
        if time.monotonic() >= (self.until if self.why else self.limit_at or float("inf")):
            return self.end(control, self.why or f"--time-limit {self.limit_text}")
        return None

    def tell_abandoned(self, control: LaunchControl) -> None:
        """Say what is left of a job that was to end behind a checkpoint but was ended at once."""
        if self.why:
            left = self.left(control) if self.spill else 0
            tell(f"{self.why}, and then the job was ended at once; what was saved last: "
                 f"{self.way_on(left)}", needed=True)

    def version(self, saved: Saved) -> int:
        """Return the checkpoint behind which the job can end now; 0 if there is none yet."""
        newest = saved.spilled if self.spill else saved.committed
        if saved.behind:
            given_up = bool(self.spill) and saved.named < saved.behind  # it cannot be written
            return saved.behind if newest >= saved.behind or given_up else 0
        return newest if saved.alone and newest > (self.since or 0) else 0

    def tell_asked(self) -> None:
        """Say, once, that the job is to end."""
        if not self.told:
            self.told = True
            left_s = self.until - time.monotonic()
            within = "" if left_s == float("inf") else f", or in {span(max(0.0, left_s))}"
            tell(f"{self.why}: the job ends behind a checkpoint at its next safepoint{within}")

    def end(self, control: LaunchControl, why: str, version: int = 0) -> JobEnd:
        """End the job, and say what it leaves and with which status it ends.

        Args:
            version: the checkpoint behind which the job ends; 0 if none came in time.
        """
        left = self.left(control)
        whole = bool(version) and left >= version
        if version and not whole:
            why = f"{why}, and the files of checkpoint {version} were not written"
        self.keeps = bool(left) and not self.spill
        waited_s = time.monotonic() - self.asked_at if self.why else 0.0
        story.emit(self.directory, Halt(why, left, whole, waited_s))
        haltrequests.forget(self.directory)
        status, way_on = self.status if left else CATASTROPHE, self.way_on(left)
        if whole:
            return end_behind_checkpoint(why, left, way_on, status)
        waited = "" if self.at_once or version or not self.why else span(waited_s)
        return end_late(why, waited, way_on, status)

    def left(self, control: LaunchControl) -> int:
        """Return the newest version that would outlive the job now; 0 if there is none.

        The files may be those of an earlier job from which this one has gone on.
        """
        if self.spill:
            points = []
            with contextlib.suppress(OSError):
                points = spillfiles.points(Path(self.spill))
            return points[-1].version if points else 0
        saved = control.saved(halt=bool(self.why)) or Saved()
        return saved.committed if self.stays else 0

    def way_on(self, version: int) -> str:
        """Say where a checkpoint is, and how to go on from it."""
        if not version:
            return f"nothing is left to go on from{'' if self.saves else '; give --spill DIR'}"
        if self.spill:
            return (f"checkpoint {version} is in {self.spill}; 'ftrma run --resume {self.spill}' "
                    "goes on")
        name = self.directory.name
        return (f"checkpoint {version} stays in the memory of this node; 'ftrma run --resume "
                f"{name}' goes on here, 'ftrma clean --remove' gives the memory back")

    def note(self) -> None:
        """Write down which ends are planned, for ``ftrma halt``."""
        limit = self.limit_at
        moment = 0.0 if limit is None else time.time() + limit - time.monotonic()
        haltrequests.tell_state(self.directory, EndsInMind(
            moment, self.margin_s, self.request, self.why, self.saves))
