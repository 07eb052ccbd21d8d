"""Decides which rank reports the error that ends a job over several nodes.

Ranks that raise an error ask for the right to report it, and one gets it. An error that comes
together with a death may be due to that death, and one cause may lead to several deaths in short
order (all ranks of a node die with it). So no rank gets the right before SETTLE_S have passed
without an open death.
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
        since: when, by time.monotonic(). attempt: the attempt in which the error was raised; 0:
            none.
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
        """Note that a rank asks; an error of an attempt that is over does not count."""
        if not 0 < attempt < self.ranks.attempt:
            self.waiting.append(Claim(time.monotonic(), peer, attempt))

    def release(self, peer: Peer) -> None:
        """Note that this rank's error is not the job's, or not any more."""
        if self.ranks.owner == peer.rank:
            self.ranks.owner = None
        self.waiting = [claim for claim in self.waiting if claim.peer is not peer]

    def begin_attempt(self, number: int) -> None:
        """Note that all have gone back: an error of an earlier attempt is not the job's any
        more."""
        if number > self.ranks.attempt:
            self.ranks.attempt, self.ranks.owner = number, None
            self.waiting = [claim for claim in self.waiting if claim.attempt >= number]

    def may_end_job(self, peer: Peer) -> bool:
        """Say whether no other rank reports an error."""
        return self.ranks.owner in (None, peer.rank)

    def grant(self) -> None:
        """Answer all ranks that have asked, once it is clear that no death caused their errors."""
        now = time.monotonic()
        while self.waiting and now - self.waiting[0].since > SETTLE_S and not self.ranks.deaths:
            claim = self.waiting.pop(0)
            if self.ranks.owner is None:
                self.ranks.owner = claim.peer.rank
            granted = self.ranks.owner == claim.peer.rank
            self.send(claim.peer, "claim", entry=claim.attempt, granted=granted)
