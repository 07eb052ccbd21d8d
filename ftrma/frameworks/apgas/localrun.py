"""A run of an executor as one active place has it, and the tasks by which it is driven there.

A run's object of the application lies here by the run's name. All functions below are tasks: the
place that runs ``main`` starts them at each active place, side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from ... import framework
from ...host.errors import FtrmaError
from . import checkpoints, control, placemanager, runtime
from .checkpoints import Flip
from .errors import DeadPlaceException
from .placegroup import PlaceGroup
from .placemanager import ChangeDescription, PlaceManager
from .store import ResilientStore
from .team import Team, TeamRevoked

STORE = "runs"  # the store that holds the saved state of all runs of an attempt

RETRIES = 4  # of a recovery without another death, which may be told late

Make = Callable[..., Any]


class Patience:
    """Lets a recovery be begun again after each death, and a few times without one.

    A program that asks a dead place again and again would have no end otherwise.
    """

    def __init__(self) -> None:
        self._generation, self._left = -1, 0

    def spend(self, error: Exception) -> None:
        """Raise an exception if the recovery was begun again too often without another death."""
        generation = runtime.current().members.generation
        if generation != self._generation:
            self._generation, self._left = generation, RETRIES
        elif not self._left:
            raise error
        self._left -= 1


@dataclass
class LocalRun:
    """A run's object of the application at this place.

    Attributes:
        app: the object.
        steps: that the run has taken.
        finished: no step is left.
        tell: is called with the number of steps behind each; None: nobody wants to know.
    """

    app: Any
    steps: int = 0
    finished: bool = False
    tell: Callable[[int], object] | None = None

    def count(self, before: int) -> None:
        """Count a step that was taken, and those of earlier runs before it."""
        self.steps += 1
        framework.count_step(before + self.steps)
        if self.tell:
            self.tell(self.steps)


@dataclass
class Runs:
    """The runs of this process in one attempt of the program.

    Attributes:
        by_name: those that have an object here.
        ended, steps: how many runs have ended, and their steps, in the place that runs ``main``.
        told: when this process was told of deaths, by its own clock.
        store: of all runs; there is one in the place that runs ``main``.
        places: the active places that the store was last recovered for.
    """

    by_name: dict[str, LocalRun] = field(default_factory=dict)
    ended: int = 0
    steps: int = 0
    told: dict[int, float] = field(default_factory=dict)
    store: ResilientStore | None = None
    places: tuple[int, ...] = ()

    def note_death(self, place: int) -> None:
        self.told[place] = perf_counter()


_runs: WeakKeyDictionary[Any, Runs] = WeakKeyDictionary()  # by attempt


def runs() -> Runs:
    """The runs of this attempt."""
    here = runtime.current()
    found = _runs.get(here)
    if found is None:
        found = _runs[here] = Runs()
        here.members.on_failure(found.note_death)
    return found


def local_app(run: str) -> Any:
    """Return this place's object of the application of a run.

    Args:
        run: the `name` of the executor.

    Raises:
        ValueError: this place has none.

    MPI: local.
    Fault: a place that was added has an object as soon as the run goes on.
    """
    found = runs().by_name.get(run)
    if found is None:
        raise ValueError(f"local_app({run!r}): place {control.here()} has no part in such a run")
    return found.app


def open_store(manager: PlaceManager) -> ResilientStore:
    """Return the store of all runs, recovered for the present places; at the root.

    After the death of place zero, the active places get the ordinals of what they have saved.

    Raises:
        NotEnoughPlaces, CatastrophicFailure: places, or what they had saved, are gone.
    """
    mine = runs()
    if mine.store is None:
        places = tuple(manager.active_places())
        mine.store, mine.places = ResilientStore(manager, STORE), places
        manager.order(mine.store.seats)
        mine.places = tuple(manager.active_places())
    patience = Patience()
    while True:
        changes = manager.rebuild_active_places()
        if not changes.removed and tuple(changes.new) == mine.places:
            return mine.store
        try:
            recover_store(mine.store, changes)
        except DeadPlaceException as error:
            patience.spend(error)


def recover_store(store: ResilientStore, changes: ChangeDescription) -> None:
    """Recover the store of all runs; at the root.

    Raises:
        DeadPlaceException: a place died meanwhile. CatastrophicFailure: shelves are lost.
    """
    runs().places = ()
    store.recover(changes)
    runs().places = tuple(changes.new)


def make(run: str, group: PlaceGroup, function: Make, arguments: tuple[Any, ...]) -> None:
    """Make this place's object of the application."""
    placemanager.set_group(group)
    runs().by_name[run] = LocalRun(function(*arguments))


def begin_at(run: str, steps: int, saved: dict[str, Any]) -> None:
    """Go on from saved fields, in a run that begins."""
    local = runs().by_name[run]
    local.app.restore_local(saved)
    local.steps = steps


def remake(run: str, changes: ChangeDescription, team: Team, function: Make,
           arguments: tuple[Any, ...]) -> None:
    """Prepare for another group; a place that was added makes its object first."""
    placemanager.set_group(changes.new)
    framework.kill_place("apgas.remake")
    if run not in runs().by_name:
        make(run, changes.new, function, arguments)
    _guarded(team, runs().by_name[run].app.remake_local, changes, team)


def save(store: ResilientStore, run: str, flip: Flip | None,
         first: bool) -> tuple[int, dict[str, int]]:
    """Save fields of this place's state; returns its shelf, and the versions of the fields."""
    framework.kill_place("apgas.checkpoint")
    fields = runs().by_name[run].app.checkpoint_local(first)
    shelf = store.shelves[0]
    versions = checkpoints.next_versions(flip, shelf, fields)
    store.set_all({checkpoints.slot(run, name, versions[name]): value
                   for name, value in fields.items()})
    return shelf, versions


def restore(store: ResilientStore, run: str, flip: Flip) -> bool:
    """Go back to a checkpoint; says if this place has taken over another one's state."""
    framework.kill_place("apgas.restore")
    local = runs().by_name[run]
    own, *others = store.shelves
    adopted = [shelf for shelf in others if shelf in flip.versions]
    for shelf in (own, *adopted):
        saved = {name: store.get_remote(shelf, checkpoints.slot(run, name, version))
                 for name, version in flip.versions[shelf].items()}
        (local.app.restore_local if shelf == own else local.app.adopt_local)(saved)
    local.steps, local.finished = flip.iteration, False
    return bool(adopted)


def take_steps(run: str, team: Team, count: int, implicit: bool, before: int) -> None:
    """Take up to a number of steps side by side with the other places.

    Args:
        implicit: the steps themselves keep the places together, so there is no barrier between.
        before: steps of earlier runs.
    """
    local, scheduler = runs().by_name[run], runtime.current().scheduler

    def finished() -> bool:
        said = bool(local.app.is_finished_local())
        return said if implicit else _agreed(team, said)

    def steps() -> None:
        end = local.steps + count
        local.finished = finished()
        while not local.finished and local.steps < end:
            framework.kill_place("apgas.step")
            with scheduler.span(f"step {local.steps + 1}"):
                local.app.step_local(team)
            local.count(before)
            local.finished = finished()
        if implicit:
            _agreed(team, (local.steps, local.finished))

    _guarded(team, steps)


def call_method(run: str, method: str, arguments: tuple[Any, ...]) -> Any:
    """Call a method of this place's object."""
    return getattr(runs().by_name[run].app, method)(*arguments)


def _agreed(team: Team, said: Any) -> Any:
    """Return the word of this place, which has to be that of all.

    Raises:
        FtrmaError: they do not.
    """
    all_said = team.allgather(said)
    if any(other != said for other in all_said):
        words = ", ".join(f"place {place}: {other}"
                          for place, other in zip(team.group, all_said, strict=True))
        raise FtrmaError(f"is_finished_local() differs ({words}); "
                         "all places have to be finished at one step")
    return said


def _guarded(team: Team, function: Callable[..., None], *arguments: Any) -> None:
    """Call a function; if it raises, nobody waits for this place in a call of the team."""
    try:
        function(*arguments)
    except (DeadPlaceException, TeamRevoked):
        raise
    except Exception as error:
        team.revoke(f"place {control.here()} has left the team: {type(error).__name__}: {error}")
        raise
