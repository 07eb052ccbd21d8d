"""Handles the messages of ranks: a table of handlers by the message's event.

A message without a handler is an event of the job's story (`fabric.story`), or is ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..fabric.absence import StoppedProcess
from ..fabric.saved import Saved
from ..fabric.story import Entered, Event, Phases, Recovery, parse, plain
from ..host import timeouts
from ..host.outfile import tell
from ..native import job
from ..native.shared import Proc
from ..protocol.job_end import OwnExit, why_aborted
from .connections import Peer
from .errorclaims import ErrorClaims, Send
from .job import ABSENT, LATE, Cause
from .rankstate import RankState

Message = dict[str, Any]


class RankMessages:
    """Stores what ranks say, and answers.

    Args:
        ranks: the state that messages change.
        claims: the ranks that ask to report an error.
        send: answers a rank.
        story: appends an event to the job's story; read_story: reads the whole story.
        cause: cause of this launch, if it is not the first.
    """

    def __init__(
        self, ranks: RankState, claims: ErrorClaims, send: Send, story: Callable[[Event], None],
        read_story: Callable[[], list[Event]], cause: Cause | None,
    ) -> None:
        self.ranks, self.claims, self.send = ranks, claims, send
        self.story, self.read_story, self.cause = story, read_story, cause

    def handle(self, peer: Peer, event: str, message: Message) -> None:
        """Handle one message of a rank; `fabric.link` describes the messages."""
        if handler := HANDLERS.get(event):
            handler(self, peer, message)
        elif happened := parse({"event": event, **message}):
            self.story(happened)

    # -- roles and attempts -------------------------------------------------------------------

    def role(self, peer: Peer, message: Message) -> None:
        peer.role, peer.index = message["role"], message["index"]
        self.ranks.find_homes()

    def clock(self, peer: Peer, _: Message) -> None:
        self.send(peer, "clock", ns=time.monotonic_ns())

    def entry(self, _: Peer, message: Message) -> None:
        self.claims.begin_attempt(int(message["number"]))

    def entered(self, _: Peer, message: Message) -> None:
        """Note that the program runs; this completes the story of a relaunch."""
        self.ranks.entered, version = True, int(message["version"])
        if self.cause:
            self.tell_relaunched(self.cause, version, float(message["restore_s"]))
        self.story(Entered(version))

    def tell_relaunched(self, cause: Cause, version: int, restore: float) -> None:
        seconds = time.monotonic() - cause.died_at
        detect = cause.noticed_at - cause.died_at
        phases = Phases(detect=detect, repair=seconds - detect - restore, restore=restore)
        self.story(Recovery(
            kind="relaunch", slots=cause.slots, version=version, seconds=seconds, phases=phases,
            reason=cause.reason, began_s=cause.died_at,
        ))
        to = f"checkpoint {version}" if version else "the start"
        tell(f"the job goes on from {to}, {seconds:.1f} s after the failure")

    def events(self, peer: Peer, _: Message) -> None:
        self.send(peer, "events", events=[plain(event) for event in self.read_story()])

    # -- errors and ends ----------------------------------------------------------------------

    def claim(self, peer: Peer, message: Message) -> None:
        self.claims.add(peer, int(message.get("entry", 0)))

    def release(self, peer: Peer, _: Message) -> None:
        self.claims.release(peer)

    def abort(self, peer: Peer, message: Message) -> None:
        """End the job; the program's MPI_Abort ends it even if another rank reports an error."""
        by_program = "program" in message
        if self.ranks.aborted is None and (by_program or self.claims.may_end_job(peer)):
            self.ranks.aborted = status = int(message["status"]) & 0xFF
            mine = why_aborted(peer.name, status) if by_program else ""
            self.ranks.why_aborted = mine or str(message.get("why", ""))

    def leaving(self, peer: Peer, message: Message) -> None:
        """Note how a process ends itself, in the terms of `protocol.job_end`."""
        how, value = int(message["how"]), int(message["value"])
        peer.leaving = how | value
        if how == job.Left.BY_SIGNAL:
            peer.left = OwnExit(by_signal=value)
        elif how in (job.Left.BY_STATUS, job.Left.BY_EXIT):
            peer.left = OwnExit(status=value, sure=how == job.Left.BY_STATUS)

    def goodbye(self, peer: Peer, message: Message) -> None:
        peer.goodbye = True
        if peer.role == "slot":
            self.ranks.log_peaks[peer.index] = int(message.get("peak_bytes", 0))

    # -- failures and repairs -----------------------------------------------------------------

    def repairing(self, _: Peer, __: Message) -> None:
        self.ranks.repairing = time.monotonic()

    def working(self, _: Peer, __: Message) -> None:
        self.ranks.working = time.monotonic()

    def awaited(self, peer: Peer, message: Message) -> None:
        """Note that a process does not come to a repair: it computes, or waits for something."""
        ranks, now = self.ranks, time.monotonic()
        peer.answered_at = now
        if not message["computes"]:
            ranks.wish = ranks.wish or f"{peer.name} {ABSENT}"
            return
        ranks.working = now
        late = bool(ranks.deaths) and now - ranks.deaths[0].died_at > timeouts.LATE.s
        if late and peer.rank not in ranks.late:
            ranks.late.add(peer.rank)
            tell(f"{peer.name} {LATE}")

    def repaired(self, _: Peer, message: Message) -> None:
        self.ranks.repairing = 0.0
        self.ranks.late.clear()
        self.ranks.told.clear()
        self.ranks.note_repaired(set(message["dead"]))

    def spared(self, _: Peer, message: Message) -> None:
        self.ranks.spared.add(int(message["rank"]))
        self.ranks.note_repaired(self.ranks.spared)

    def tells(self, _: Peer, message: Message) -> None:
        self.ranks.note_tells(bool(message["tells"]))

    def there(self, _: Peer, message: Message) -> None:
        self.ranks.there.add(int(message["rank"]))

    def relaunch(self, _: Peer, message: Message) -> None:
        self.ranks.wish = self.ranks.wish or str(message["reason"])

    # -- processes that wait, are stopped or killed -------------------------------------------

    def stopped(self, peer: Peer, message: Message) -> None:
        peer.answered_at = time.monotonic()
        peer.stopped = [StoppedProcess(Proc(proc), f"{name} on {peer.host}")
                        for proc, name in message["found"]]

    def waiting(self, peer: Peer, message: Message) -> None:
        peer.waits = bool(message["waits"])

    def saved(self, peer: Peer, message: Message) -> None:
        """Note how much is saved, as slot 0's process tells it."""
        if (peer.role, peer.index) == ("slot", 0):
            self.ranks.saved = Saved(**message)

    def strike(self, peer: Peer, message: Message) -> None:
        peer.struck = int(message["rule"]), time.monotonic()

    def spent(self, _: Peer, message: Message) -> None:
        self.ranks.spent.add(int(message["rule"]))

    def handed(self, peer: Peer, message: Message) -> None:
        peer.handed = int(message["number"]), time.monotonic()

    def unheeded(self, peer: Peer, message: Message) -> None:
        self.ranks.unheeded.append((int(message["number"]), peer.index))


HANDLERS: dict[str, Callable[[RankMessages, Peer, Message], None]] = {
    handler.__name__: handler for handler in (
        RankMessages.role, RankMessages.clock, RankMessages.entry, RankMessages.entered,
        RankMessages.events, RankMessages.claim, RankMessages.release, RankMessages.abort,
        RankMessages.leaving, RankMessages.goodbye, RankMessages.repairing, RankMessages.working,
        RankMessages.awaited, RankMessages.repaired, RankMessages.spared, RankMessages.tells,
        RankMessages.there, RankMessages.relaunch, RankMessages.stopped, RankMessages.waiting,
        RankMessages.saved, RankMessages.strike, RankMessages.spent, RankMessages.handed,
        RankMessages.unheeded)
}
