"""Global load balancing: places process bags of work, and idle ones get parts of the others' bags.

A place that has run out of work asks a few random places. If none of them gives a part, it tells
its *lifelines*, a few fixed places, which send it a part as soon as they have one. Then its task
ends; the next part comes with a new task. So the finish around all tasks ends when no work is left
anywhere.

A place commits its bag to a resilient store now and then, and whenever it gives a part away. Then
one commit of two shelves (`set2`) has both the rest here and the part at the other place; nobody
waits for that commit. The part lies in the other shelf under a key of its own, until that place
commits a bag that contains it.

Invariant: committed bags and parts, with their results, contain each item of the work exactly once.
After a death all places stop, the store is recovered, and all begin again from what is committed.

Source: section 5.2 of the paper; Saraswat et al. 2011, Lifeline-based global load balancing.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from . import control, kinds, runtime
from .errors import DeadPlaceException
from .executors import DEATHS, everywhere, only_deaths
from .localrun import Patience, open_store, recover_store, runs
from .placegroup import PlaceGroup
from .placemanager import PlaceManager
from .stealing import Bag, Tally, Wave, Worker
from .store import ResilientStore

# -- tasks

_numbers = itertools.count()


@dataclass
class _Workers:
    """The workers of this place in one attempt of the program.

    Attributes:
        by_run: the worker of the newest wave, by the run's name.
        early: idle places that have told this one of it before its wave began, by run and wave.
    """

    by_run: dict[str, Worker] = field(default_factory=dict)
    early: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def take(self, source: int, message: tuple[str, int, str]) -> None:
        """Take a message of a thief or a victim."""
        run, number, what = message
        worker = self.by_run.get(run)
        if worker is not None and worker.wave.number >= number:
            if worker.wave.number == number:
                worker.take(source, what)
        elif what == "steal":
            runtime.current().mailroom.post(source, kinds.GLB, (run, number, "no"))
        elif what == "lifeline":
            self.early.setdefault((run, number), set()).add(source)


_workers: WeakKeyDictionary[Any, _Workers] = WeakKeyDictionary()  # by attempt


def _worker(wave: Wave) -> Worker:
    """This place's worker in a wave; it replaces the worker of an older wave."""
    here = runtime.current()
    mine = _workers.get(here)
    if mine is None:
        mine = _workers[here] = _Workers()
        here.mailroom.handle(kinds.GLB, mine.take)
    worker = mine.by_run.get(wave.run)
    if worker is None or worker.wave.number != wave.number:
        worker = mine.by_run[wave.run] = Worker(wave, _work)
        worker.lifelines |= mine.early.pop((wave.run, wave.number), set())
        for key in [key for key in mine.early if key < (wave.run, wave.number)]:
            del mine.early[key]
    return worker


def _begin(wave: Wave, bag: Bag | None) -> None:
    worker = _worker(wave)
    if bag is not None:
        worker.add(bag)
    worker.work()


def _work(wave: Wave, loot: Any) -> None:
    worker = _worker(wave)
    worker.loot.append(loot)
    worker.work()


def _first(store: ResilientStore, run: str, bag: Bag) -> None:
    """Commit all work at one place, unless an earlier attempt has done so."""
    if store.get(f"{run}/state") is None:
        store.set(f"{run}/state", {"bag": bag, "sent": 0, "taken": frozenset(),
                                   "merged": ()})


def _taken(store: ResilientStore, run: str) -> frozenset[int]:
    states = [store.get_remote(shelf, f"{run}/state") for shelf in store.shelves]
    return frozenset[int]().union(*(state["taken"] for state in states if state))


def _result(wave: Wave) -> tuple[Any, Tally]:
    worker = _worker(wave)
    return worker.bag.result if worker.bag is not None else None, worker.tally


def run(bag: Bag, manager: PlaceManager | None = None, *, commit_s: float | None = 0.05,
        fold: Callable[[Any, Any], Any] = operator.add) -> tuple[Any, list[Tally]]:
    """Process all work of a bag at the active places.

    Args:
        bag: the work.
        manager: the active places and the reserves; None: a new manager.
        commit_s: seconds between two commits of a place; None: nothing is committed, and a death
            ends the run with an exception.
        fold: combines two results into one.

    Returns:
        The result of all items, and the tally of each place in the last wave.

    Raises:
        MultipleExceptions: a bag has raised an exception.
        DeadPlaceException, MultipleExceptions: a place has died and `commit_s` is None, or it has
            died before the whole work was committed for the first time.
        NotEnoughPlaces: no reserve is left, and the group may not shrink.
        CatastrophicFailure: a place and the keeper of its bag both died before a recovery had
            ended.

    MPI: called in the place that runs ``main``.
    Fault: all places begin again from what is committed. If this place dies, ``main`` begins again
        and comes to this run, which goes on from what is committed.
    """
    manager = manager or PlaceManager()
    name = f"run {runs().ended}"
    store = open_store(manager) if commit_s is not None else None
    if store:
        control.at(manager.active_places()[0], _first, store, name, bag)
    found, patience, recover = None, Patience(), False
    while found is None:
        try:
            if recover and store:
                recover_store(store, manager.rebuild_active_places())
            found = _run_wave(bag, manager.active_places(), commit_s or 0.0, store, name)
        except DEATHS as error:
            if store is None or not only_deaths(error):
                raise
            patience.spend(error)
            recover = True
    runs().ended += 1
    return functools.reduce(fold, [result for result, _ in found if result is not None]), \
        [tally for _, tally in found]


def _run_wave(bag: Bag, group: PlaceGroup, commit_s: float, store: ResilientStore | None,
              name: str) -> list[tuple[Any, Tally]]:
    """Have all places work until no work is left; return the result and the tally of each place.

    Raises:
        MultipleExceptions, DeadPlaceException: a place is dead, or a bag has raised an exception.
    """
    taken = frozenset[int]()
    if store:
        taken = taken.union(*everywhere(group, _taken, store, name))
    wave = Wave(name, next(_numbers), group, commit_s, store, taken)
    with runtime.current().scheduler.span(f"glb {name}", wave=wave.number), control.finish():
        for ordinal, place in enumerate(group):
            control.async_at(place, _begin, wave, None if store or ordinal else bag)
    for place in group:
        if not runtime.current().members.alive(place):  # all places have stopped, with work left
            raise DeadPlaceException(place)
    return everywhere(group, _result, wave)
