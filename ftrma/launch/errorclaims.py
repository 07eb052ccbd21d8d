"""Which rank reports the error that ends a job over several nodes.

Ranks that raise an error ask for the right to report it, and one gets it. An error beside a death
may come of that death, and of one cause come deaths that follow each other at once (a node that
goes down takes all its ranks along). So nobody gets the right before SETTLE_S have passed without
an open death.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from .connections import Peer
from .rankstate import SETTLE_S, RankState


class Send(Protocol):
    """Sends a line to a rank: an event and its data."""

    def __call__(self, peer: Peer, event: str, **data: object) -> None: ...


@dataclass
class Claim:
    """A rank asks to report an error.

    Attributes:
        since: time.monotonic(). attempt: of the program, in which the error was raised; 0: none.
    """

    since: float
    peer: Peer
    attempt: int


class ErrorClaims:
    """The ranks that have asked, and the one that reports: `RankState.owner`."""

    def __init__(self, ranks: RankState, send: Send) -> None:
        self.ranks, self.send = ranks, send
        self.waiting: list[Claim] = []

    def add(self, peer: Peer, attempt: int) -> None:
        """A rank asks; an error of an attempt that is over is nobody's."""
        if not 0 < attempt < self.ranks.attempt:
            self.waiting.append(Claim(time.monotonic(), peer, attempt))

    def release(self, peer: Peer) -> None:
        """The error of this rank is not the job's, or not any more."""
        if self.ranks.owner == peer.rank:
            self.ranks.owner = None
        self.waiting = [claim for claim in self.waiting if claim.peer is not peer]

    def begin_attempt(self, number: int) -> None:
        """All have gone back: no error of an earlier attempt is the job's."""
        if number > self.ranks.attempt:
            self.ranks.attempt, self.ranks.owner = number, None
            self.waiting = [claim for claim in self.waiting if claim.attempt >= number]

    def may_end_job(self, peer: Peer) -> bool:
        """No other rank reports an error."""
        return self.ranks.owner in (None, peer.rank)

    def grant(self) -> None:
        """Answer all who have asked, once it is clear that no death caused their errors."""
        now = time.monotonic()
        while self.waiting and now - self.waiting[0].since > SETTLE_S and not self.ranks.deaths:
            claim = self.waiting.pop(0)
            if self.ranks.owner is None:
                self.ranks.owner = claim.peer.rank
            granted = self.ranks.owner == claim.peer.rank
            self.send(claim.peer, "claim", entry=claim.attempt, granted=granted)
