"""An executor's run at one active place, and the tasks that drive it there.

The run's object of the application is found by the run's name. The public functions from `make` on
are tasks: the place that runs ``main`` starts them at each active place, side by side.
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

RETRIES = 4  # retries of a recovery while no other death is known, since a death may be told late

Make = Callable[..., Any]


class Patience:
    """Allows a recovery to begin again after each death, and a few times without a death.

    Without this limit a program that asks a dead place again and again would never end.
    """

    def __init__(self) -> None:
        self._generation, self._left = -1, 0

    def spend(self, error: Exception) -> None:
        """Raise the exception if the recovery has begun again too often without another death."""
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
        steps: number of steps that the run has taken.
        finished: no step is left.
        tell: is called with the number of steps after each step; None: nothing is called.
    """

    app: Any
    steps: int = 0
    finished: bool = False
    tell: Callable[[int], object] | None = None

    def count(self, before: int) -> None:
        """Count a step that was taken.

        Args:
            before: number of steps of earlier runs.
        """
        self.steps += 1
        framework.count_step(before + self.steps)
        if self.tell:
            self.tell(self.steps)


@dataclass
class Runs:
    """The runs of this process in one attempt of the program.

    Attributes:
        by_name: the runs that have an object here, by name.
        ended, steps: number of runs that have ended, and of their steps; counted in the place that
            runs ``main``.
        told: the time at which this process was told of each death, by its own clock.
        store: the store of all runs, in the place that runs ``main``; None in other places.
        places: the active places for which the store was last recovered.
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
    """Return the runs of this attempt."""
    here = runtime.current()
    found = _runs.get(here)
    if found is None:
        found = _runs[here] = Runs()
        here.members.on_failure(found.note_death)
    return found


def local_app(run: str) -> Any:
    """Return this place's object of the application of a run.

    Args:
        run: name of the run: the attribute `name` of the executor.

    Raises:
        ValueError: this place has no such object.

    MPI: local.
    Fault: a place that was added in a recovery has an object as soon as the run goes on.
    """
    found = runs().by_name.get(run)
    if found is None:
        raise ValueError(f"local_app({run!r}): place {control.here()} has no part in such a run")
    return found.app


def open_store(manager: PlaceManager) -> ResilientStore:
    """Return the store of all runs, recovered for the present places; called at the root.

    After the death of place zero, each active place gets the ordinal of the state that it has
    saved.

    Raises:
        NotEnoughPlaces: there are too few reserves.
        CatastrophicFailure: saved state is lost.
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
    """Recover the store of all runs; called at the root.

    Raises:
        DeadPlaceException: a place died meanwhile. CatastrophicFailure: shelves are lost.
    """
    runs().places = ()
    store.recover(changes)
    runs().places = tuple(changes.new)


def make(run: str, group: PlaceGroup, function: Make, arguments: tuple[Any, ...]) -> None:
    """Make this place's object of the application, and set the group of active places."""
    placemanager.set_group(group)
    runs().by_name[run] = LocalRun(function(*arguments))


def begin(run: str) -> None:
    """Have this place's object make the data with which a run begins."""
    runs().by_name[run].app.begin_local()


def begin_at(run: str, steps: int, saved: dict[str, Any]) -> None:
    """Give saved fields to this place's object, in a run that begins."""
    local = runs().by_name[run]
    local.app.restore_local(saved)
    local.steps = steps


def remake(run: str, changes: ChangeDescription, team: Team, function: Make,
           arguments: tuple[Any, ...]) -> None:
    """Prepare for the new group; a place that was added makes its object first."""
    placemanager.set_group(changes.new)
    framework.kill_place("apgas.remake")
    if run not in runs().by_name:
        make(run, changes.new, function, arguments)
    _guarded(team, runs().by_name[run].app.remake_local, changes, team)


def save(store: ResilientStore, run: str, flip: Flip | None,
         first: bool) -> tuple[int, dict[str, int]]:
    """Save fields of this place's state; return its shelf and the versions of the fields."""
    framework.kill_place("apgas.checkpoint")
    fields = runs().by_name[run].app.checkpoint_local(first)
    shelf = store.shelves[0]
    versions = checkpoints.next_versions(flip, shelf, fields)
    store.set_all({checkpoints.slot(run, name, versions[name]): value
                   for name, value in fields.items()})
    return shelf, versions


def restore(store: ResilientStore, run: str, flip: Flip) -> bool:
    """Go back to a checkpoint; say whether this place has taken over the state of another one."""
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
        implicit: the steps themselves keep the places together, so no barrier is between them.
        before: number of steps of earlier runs.
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


def result(run: str) -> Any:
    """Return this place's part of the result."""
    framework.kill_place("apgas.result")
    return runs().by_name[run].app.result_local()


def call_method(run: str, method: str, arguments: tuple[Any, ...]) -> Any:
    """Call a method of this place's object."""
    return getattr(runs().by_name[run].app, method)(*arguments)


def _agreed(team: Team, said: Any) -> Any:
    """Return what this place has said, after checking that all places have said the same.

    Raises:
        FtrmaError: the places do not agree.
    """
    all_said = team.allgather(said)
    if any(other != said for other in all_said):
        words = ", ".join(f"place {place}: {other}"
                          for place, other in zip(team.group, all_said, strict=True))
        raise FtrmaError(f"is_finished_local() differs ({words}); "
                         "all places have to be finished at one step")
    return said


def _guarded(team: Team, function: Callable[..., None], *arguments: Any) -> None:
    """Call a function; if it raises, revoke the team, so that nobody waits for this place."""
    try:
        function(*arguments)
    except (DeadPlaceException, TeamRevoked):
        raise
    except Exception as error:
        team.revoke(f"place {control.here()} has left the team: {type(error).__name__}: {error}")
        raise
