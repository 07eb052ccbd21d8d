"""One place's work in global load balancing: its bag, its commits, and how it steals and gives.

See `glb.py`, which starts the tasks.

Law: a place has committed a bag, and parts that the bag does not contain. If the bag does contain a
part that is not deleted yet, the commit of the bag says so.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ... import framework
from . import control, kinds, runtime
from .placegroup import PlaceGroup
from .store import ResilientStore

POLL_ITEMS = 500  # items processed between two looks at the mail, as in the paper
RANDOM_STEALS = 2  # random places that are asked before the lifelines are told


class Bag(Protocol):
    """Work that can be divided, and the result of the part that was processed.

    Attributes:
        result: result of the items that were processed in this bag.
    """

    result: Any

    def process(self, count: int) -> bool:
        """Process up to `count` items; return whether some are left."""

    def split(self) -> Bag | None:
        """Return a part of the items to give away, without a result; None: there are too few."""

    def merge(self, part: Bag) -> None:
        """Take over the items of a part, and its result."""


@dataclass
class Tally:
    """Counts of a place: its commits, parts that it gave away, and requests that it refused."""

    commits: int = 0
    given: int = 0
    refused: int = 0


@dataclass
class Wave:
    """Facts that all places of a wave of tasks have in common; a death ends the wave.

    Attributes:
        run: name of the run.
        number: number of the wave.
        group: the places.
        commit_s: seconds between two commits.
        store: the store for commits; None: nothing is committed.
        taken: shelves of lost places whose bags are already in the bags of other places.
    """

    run: str
    number: int
    group: PlaceGroup
    commit_s: float
    store: ResilientStore | None
    taken: frozenset[int] = frozenset()


@dataclass
class Worker:
    """The work of a place in a wave."""

    wave: Wave
    task: Callable[[Wave, Any], None]  # the task that brings a part to another place
    bag: Bag | None = None
    sent: int = 0  # number of parts that were ever given from this shelf
    taken: frozenset[int] = frozenset()
    loot: list[Any] = field(default_factory=list)  # keys of parts, or parts if nothing is committed
    seen: set[str] = field(default_factory=set)  # keys of parts that were taken over
    merged: list[str] = field(default_factory=list)  # keys of parts in the bag and in the store
    requests: deque[int] = field(default_factory=deque)
    lifelines: set[int] = field(default_factory=set)
    loaded: bool = False
    running: bool = False
    busy: bool = False  # it processes a bag, so it may have something to give
    refused: int = 0
    committed: float = 0.0
    tally: Tally = field(default_factory=Tally)
    generation: int = -1  # number of deaths when the places were last looked at
    stop: bool = False

    def __post_init__(self) -> None:
        self.me = runtime.current().members.me
        self.rng = random.Random(f"{self.wave.number} {self.me}")
        self.store = self.wave.store
        self.shelf = self.store.shelves[0] if self.store else -1
        seats = self.store.seats if self.store else ()
        self.shelf_of = {place: shelf for shelf, place in enumerate(seats)}

    # -- what is committed

    def key(self, name: str) -> str:
        return f"{self.wave.run}/{name}"

    def load(self) -> None:
        """Begin with the work that is committed in this place's shelves.

        These may include shelves of lost places that were not replaced.
        """
        self.loaded = True
        if self.store is None:
            return
        for shelf in self.store.shelves:
            if shelf != self.shelf and shelf in self.wave.taken:
                continue
            state = self.store.get_remote(shelf, self.key("state"))
            if state is not None:
                self.add(state["bag"])
                if shelf == self.shelf:
                    self.sent, self.taken = state["sent"], state["taken"]
            for key in self.store.keys(shelf):
                if key.startswith(self.key("loot ")):
                    self.seen.add(key)
                    if state is None or key not in state["merged"]:
                        self.add(self.store.get_remote(shelf, key))
                    if shelf == self.shelf:
                        self.merged.append(key)
            if shelf != self.shelf:
                self.taken |= {shelf}
        self.commit()

    def add(self, part: Bag | None) -> None:
        if self.bag is None:
            self.bag = part
        elif part is not None:
            self.bag.merge(part)

    def _state(self) -> dict[str, Any]:
        return {"bag": self.bag, "sent": self.sent, "taken": self.taken,
                "merged": tuple(self.merged)}

    def commit(self) -> None:
        """Commit the bag, and delete the parts that it contains from the store."""
        if self.store is None:
            return
        framework.kill_place("apgas.commit")
        with _span("commit"), self.store.transaction() as transaction:
            transaction.set(self.key("state"), self._state())
            for key in self.merged:
                transaction.delete(key)
        self.merged.clear()
        self.committed = time.monotonic()
        self.tally.commits += 1

    def merge_loot(self) -> None:
        """Take over the parts that have come."""
        while self.loot:
            loot = self.loot.pop()
            if self.store is None:
                self.add(loot)
            elif loot not in self.seen:
                self.seen.add(loot)
                self.add(self.store.get(loot))
                self.merged.append(loot)

    # -- work

    def work(self) -> None:
        """Process items until nothing is left here and nobody has given a part."""
        if self.running:
            return
        self.running = True
        try:
            if not self.loaded:
                self.load()
            while True:
                self.merge_loot()
                with _span("process"):
                    self._process()
                if self._stopped():
                    return
                with _span("steal") as facts:
                    facts["found"] = found = bool(self.loot) or self._steal()
                if not found:
                    return
        finally:
            self.running = False

    def _stopped(self) -> bool:
        """Say whether a place of the wave is dead."""
        members = runtime.current().members
        if members.generation != self.generation:
            self.generation = members.generation
            self.stop = not all(map(members.alive, self.wave.group))
        return self.stop

    def _process(self) -> None:
        due = self.wave.commit_s if self.store else math.inf
        self.busy = True
        try:
            while self.bag is not None and self.bag.process(POLL_ITEMS):
                control.yield_()
                if self._stopped():
                    break
                self.merge_loot()
                if self.requests or self.lifelines:
                    self._serve()
                if time.monotonic() - self.committed >= due:
                    self.commit()
        finally:
            self.busy = False
            self._refuse_all()
        if self.bag is not None:
            self.commit()

    def _refuse_all(self) -> None:
        while self.requests:
            self._post(self.requests.popleft(), "no")
            self.tally.refused += 1

    def _serve(self) -> None:
        """Give parts of the bag to the places that have asked, as long as it can be divided."""
        assert self.bag is not None
        while self.requests or self.lifelines:
            asked = bool(self.requests)
            thief = self.requests.popleft() if asked else self.lifelines.pop()
            part = self.bag.split()
            if part is None:
                (self.requests.append if asked else self.lifelines.add)(thief)
                self._refuse_all()
                return
            self.lifelines.discard(thief)
            self._give(thief, part)

    def _give(self, thief: int, part: Bag) -> None:
        framework.kill_place("apgas.deal")
        self.sent += 1
        self.tally.given += 1
        loot: Any = part
        with _span("give", to_place=thief):
            if self.store is not None:
                loot = self.key(f"loot {self.shelf} {self.sent}")
                self.store.set2(self.key("state"), self._state(), self.shelf_of[thief], loot, part,
                                wait=False)
                self.committed = time.monotonic()
            control.async_at(thief, self.task, self.wave, loot)

    # -- stealing

    def _post(self, place: int, what: str) -> None:
        runtime.current().mailroom.post(place, kinds.GLB,
                                        (self.wave.run, self.wave.number, what))

    def _steal(self) -> bool:
        """Ask some random places, then tell the lifelines; return whether a part has come."""
        others = [place for place in self.wave.group if place != self.me]
        for _ in range(RANDOM_STEALS if others else 0):
            before = self.refused
            self._post(self.rng.choice(others), "steal")
            runtime.current().scheduler.wait(
                lambda before=before: (  # type: ignore[misc]
                    bool(self.loot) or self.refused > before or self._stopped()))
            if self.loot or self._stopped():
                return bool(self.loot)
        for place in lifelines(self.wave.group, self.me):
            self._post(place, "lifeline")
        return False

    def take(self, source: int, what: str) -> None:
        """Take a message of a thief or a victim."""
        if what == "no":
            self.refused += 1
        elif what == "lifeline":
            self.lifelines.add(source)
        elif self.busy:
            self.requests.append(source)
        else:
            self._post(source, "no")


def _span(what: str, **facts: Any) -> AbstractContextManager[dict[str, Any]]:
    return runtime.current().scheduler.span(what, **facts)


def lifelines(group: PlaceGroup, me: int) -> list[int]:
    """Return the places that an idle place tells: their ordinals differ in one bit from its own.

    From any place a path of lifelines leads to any other place.
    """
    ordinal, size = group.index_of(me), len(group)
    found = {ordinal ^ 1 << bit for bit in range(size.bit_length())}
    found.add((ordinal + 1) % size)  # if the size is no power of two, bits alone may not reach all
    return [group[other] for other in sorted(found) if other < size and other != ordinal]
