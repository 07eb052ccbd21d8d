"""Executors: loops of steps that take checkpoints, and go back to the newest one after a death.

Section 3 of the paper has the loop. A run goes on only after deaths; any other exception ends it. A
recovery has these steps, each of which relies on those before it:

1. `PlaceManager.rebuild_active_places`: dead places are replaced, or left out;
2. `ResilientStore.recover`: replacements hold what the dead places held;
3. a new `Team`, without the dead places;
4. `remake_local` at all active places; added places make their object of the application first;
5. `restore_local` at all active places, from the versions in the flip record (`checkpoints.py`).

If a place dies during any of these steps, they begin again. The flip record is read from the store
each time and not remembered, since a death may have kept the newest record from being written.

If place zero dies, ``main`` runs again in another process and comes to the same run. The run goes
on from the newest checkpoint in the store, and takes a first checkpoint only if there is none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from time import perf_counter
from typing import Any

from ... import framework
from ...host import messages, outfile
from . import checkpoints, control, interval, localrun, placemanager, runfiles, runtime
from .applications import IterativeApp
from .checkpoints import Flip
from .errors import DeadPlaceException, MultipleExceptions
from .localrun import LocalRun, Make
from .phases import Recovery, Statistics
from .placegroup import PlaceGroup
from .placemanager import PlaceManager
from .progress import Progress
from .runfiles import SavedRun
from .tasks import name_of
from .team import Team, TeamRevoked

EACH_S = 60.0  # least time between two files
DEATHS = (DeadPlaceException, MultipleExceptions)


def everywhere(group: PlaceGroup, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call a function at each place of a group, side by side; return the results by ordinals.

    Raises:
        MultipleExceptions: a place is dead, or a call has raised an exception.

    MPI: local; waits for all places.
    Fault: raises as soon as the calls at all living places have ended.
    """
    results: list[Any] = [None] * len(group)

    def call(ordinal: int, place: int) -> None:
        results[ordinal] = control.at(place, function, *arguments)

    call.__qualname__ = f"{function.__name__} everywhere"  # the name that a trace shows
    with control.finish():
        for ordinal, place in enumerate(group):
            control.async_(call, ordinal, place)
    return results


def begin_from(group: PlaceGroup, run: str, saved: SavedRun) -> None:
    """Have each place of a group go on from the state that a file has for its ordinal.

    Raises:
        MultipleExceptions: a place is dead, or has raised an exception.
    """
    with control.finish():
        for place, fields in zip(group, saved.places, strict=True):
            control.async_at(place, localrun.begin_at, run, saved.steps, fields)


def only_deaths(error: BaseException) -> bool:
    """Say whether deaths explain an exception, so that a run may go back to its checkpoint."""
    leaves = list(error.leaves()) if isinstance(error, MultipleExceptions) else [error]
    # A place may revoke a team and then die before its own exception has arrived here.
    return (any(isinstance(leaf, DeadPlaceException) for leaf in leaves)
            and all(isinstance(leaf, DeadPlaceException | TeamRevoked) for leaf in leaves))


def _span(what: str, **facts: Any) -> AbstractContextManager[dict[str, Any]]:
    return runtime.current().scheduler.span(what, **facts)


def _mtbf_s() -> float:
    return float(getattr(runtime.current().members, "mtbf_s", 0.0))


class _Executor:
    """The loop of an executor. A subclass says how steps are taken.

    Attributes:
        manager: the active places and the reserves.
        checkpoint: steps between two checkpoints, or the rule that computes them.
        name: name of the newest run.
        statistics: statistics of the newest run.
        results: the places' parts of the result of the newest run, by ordinals: what the
            application's `result_local` has returned at each.
        progress: whether steps are told on standard error.
        file, file_s: the file to which checkpoints are written, too, or None; the least number of
            seconds between two of them.
    """

    def __init__(self, manager: PlaceManager, checkpoint: int | str = 10, *,
                 progress: bool = False, file: str | os.PathLike[str] | None = None,
                 file_s: float = EACH_S) -> None:
        interval.check_rule(checkpoint, _mtbf_s())
        self.progress = progress
        self.file = None if file is None else os.fspath(file)
        self.file_s = file_s
        if self.file is not None:
            outfile.check("file", self.file)
        self.manager = manager
        self.checkpoint = checkpoint
        self.name = ""
        self.statistics = Statistics()
        self.results: list[Any] = []

    def run(self, make: Make, *arguments: Any) -> Any:
        """Run an application to its end; return this place's object of it.

        Args:
            make: class of the application, or a function that makes an object of it. It is called
                at each active place, and at each place that is added later.
            arguments: are passed to `make`.

        Raises:
            MultipleExceptions: a step has raised something else than `DeadPlaceException`.
            NotEnoughPlaces: no reserve is left, and the group may not shrink.
            CatastrophicFailure: a place and the keeper of what it had saved both died before a
                recovery had ended.

        MPI: called in the place that runs ``main``.
        Fault: all places go back to the newest checkpoint; before there is one, all make their
            objects again. If this place dies, ``main`` begins again and comes to this run, which
            goes on from the newest checkpoint.
        """
        # After the death of place zero a run has the number that it had before.
        self.name = f"run {localrun.runs().ended}"
        self._make, self._arguments = make, arguments
        self._group = PlaceGroup(())  # places that are ready
        self._whole = True  # the next checkpoint has all fields
        self._furthest = 0  # the greatest number of steps that the run had taken
        self._filed, self._filed_s = -1, perf_counter()  # steps and time of the newest file
        self._committed = False  # there is a checkpoint
        self.statistics, self.results = Statistics(), []
        self._progress = Progress(self.name)
        begin = perf_counter()
        try:
            with _span(f"{type(self).__name__}: {self.name}") as facts:
                self._loop(self._begin())
                facts["steps"] = self._local.steps
        finally:
            self.statistics.total_s = perf_counter() - begin
            if self._committed:
                localrun.runs().ended += 1
                localrun.runs().steps += self._furthest
        self._report()
        return self._local.app

    @property
    def _local(self) -> LocalRun:
        return localrun.runs().by_name[self.name]

    # -- the loop

    def _begin(self) -> Recovery | None:
        """Take the first checkpoint; if there is one already, return the recovery that reads it."""
        self._store = localrun.open_store(self.manager)
        patience, died = localrun.Patience(), False
        while True:
            try:
                if died:
                    localrun.recover_store(self._store, self.manager.rebuild_active_places())
                    died = False
                if flip := self._flip():
                    outfile.tell(f"{self.name} goes on after step {flip.iteration}", who="apgas")
                    self._committed = self.statistics.resumed = True
                    return self._recovery(())
                group = self.manager.active_places()
                with _span("make"):
                    everywhere(group, localrun.make, self.name, group, self._make,
                               self._arguments)
                    if not self._begin_from_file(group):
                        everywhere(group, localrun.begin, self.name)
                self._group = group
                self._take_checkpoint()
                return None
            except DEATHS as error:
                if not only_deaths(error):
                    raise
                patience.spend(error)
                died = True

    def _begin_from_file(self, group: PlaceGroup) -> bool:
        """Go on from the run's file, if there is one; say whether there is."""
        saved = runfiles.read(self.file) if self.file is not None else None
        if saved and self.file is not None:
            runfiles.check(saved, self.file, name_of(self._make), len(group))
            begin_from(group, self.name, saved)
            self._filed, self.statistics.resumed = saved.steps, True
            outfile.tell(f"{self.name} goes on after step {saved.steps}, from "
                         f"{messages.one_line(str(self.file))}", who="apgas")
        return saved is not None

    def _loop(self, recovery: Recovery | None) -> None:
        generation = runtime.current().members.generation
        patience = localrun.Patience()
        while True:
            try:
                if recovery:
                    self._recover(recovery)
                    recovery = None
                self._measured_steps()
                finished = self._local.finished
                if not finished or self._file_due(end=True):
                    self._take_checkpoint()
                if self._file_due(end=finished):
                    self._write_file()
                if finished:
                    with _span("results"):
                        self.results = everywhere(self._group, localrun.result, self.name)
                    return
            except DEATHS as error:
                if not only_deaths(error):
                    raise
                patience.spend(error)
                members = runtime.current().members
                dead = tuple(members.deaths(generation))
                generation += len(dead)
                recovery = self._recovery(dead)

    def _recovery(self, dead: tuple[int, ...]) -> Recovery:
        told = [when for place, when in localrun.runs().told.items() if place in dead]
        recovery = Recovery(dead, perf_counter() - min(told) if told else 0.0)
        self.statistics.recoveries.append(recovery)
        return recovery

    def _recover(self, recovery: Recovery) -> None:
        dead = ", ".join(map(str, recovery.places))
        with _span("recovery", dead_places=dead) as facts:
            self._go_back(recovery)
            facts.update(steps_to_redo=recovery.redone_steps)

    def _go_back(self, recovery: Recovery) -> None:
        begin = perf_counter()
        with _span("rebuild"):
            changes = self.manager.rebuild_active_places()
            framework.kill_place("apgas.rebuild")
            localrun.recover_store(self._store, changes)
        rebuilt = perf_counter()
        recovery.rebuild_s = rebuilt - begin
        if len(self._group):  # all changes since all places were last ready, not only the newest
            changes = placemanager.between(self._group, changes.new)
        with _span("remake"):
            everywhere(changes.new, localrun.remake, self.name, changes, Team(changes.new),
                       self._make, self._arguments)
        self._group = changes.new
        remade = perf_counter()
        recovery.remake_s = remade - rebuilt
        flip = self._flip()
        assert flip is not None, "a run goes back to a checkpoint only if there is one"
        with _span("restore", step=flip.iteration):
            adopted = everywhere(self._group, localrun.restore, self._store, self.name, flip)
        recovery.restore_s = perf_counter() - remade
        recovery.redone_steps = max(0, self._furthest - flip.iteration)
        recovery.redone_s = recovery.redone_steps * self.statistics.step_s
        recovery.complete = True
        if any(adopted):  # state that was taken over must be saved in the shelf where it is now
            self._whole = True
            self._take_checkpoint()

    # -- steps

    def _measured_steps(self) -> None:
        begin, before = perf_counter(), self._local.steps
        if self.progress:
            self._local.tell = self._progress.tell
        try:
            with _span("steps", first=before + 1):
                self._take_steps(self._interval())
        finally:
            taken = self._local.steps - before
            self.statistics.steps += taken
            self.statistics.steps_s += perf_counter() - begin if taken else 0.0
            self._furthest = max(self._furthest, self._local.steps)

    def _take_steps(self, count: int) -> None:
        """Take up to a number of steps, and note in this place's `LocalRun` if none is left."""
        raise NotImplementedError

    # -- checkpoints

    def _interval(self) -> int:
        statistics = self.statistics
        first = not statistics.checkpoints
        cost_s = (statistics.first_checkpoint_s if first
                  else statistics.checkpoints_s / statistics.checkpoints)
        return interval.steps_between(self.checkpoint, cost_s, statistics.step_s,
                                      _mtbf_s(), first)

    def _flip(self) -> Flip | None:
        flip: Flip | None = self._store.get_remote(0, checkpoints.flip_key(self.name))
        return flip

    def _take_checkpoint(self) -> None:
        begin = perf_counter()
        flip = self._flip()
        whole, steps = self._whole, self._local.steps
        with _span("checkpoint", step=steps):
            written = dict(everywhere(self._group, localrun.save, self._store, self.name, flip,
                                      whole))
            framework.kill_place("apgas.record")
            self._store.set_remote(0, checkpoints.flip_key(self.name),
                                   checkpoints.flipped(flip, steps, written, whole))
        self._whole, self._committed = False, True
        took_s = perf_counter() - begin
        if flip is None:
            self.statistics.first_checkpoint_s = took_s
        else:
            self.statistics.checkpoints += 1
            self.statistics.checkpoints_s += took_s

    # -- files

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the newest checkpoint of the newest run to a file.

        The run of an executor with this `file` goes on from it, if it has as many places.

        Raises:
            OSError: the file cannot be written.
            ValueError: there is no checkpoint.
            DeadPlaceException, CatastrophicFailure: what was saved cannot be read any more.

        MPI: called in the place that runs ``main``; waits for all active places.
        Fault: the part of a dead place is read from its keeper.
        """
        flip = self._flip() if self.name else None
        if flip is None:
            raise ValueError(f"save({os.fspath(file)!r}): no run of this executor has a checkpoint")
        places = [{name: self._store.get_remote(shelf, checkpoints.slot(self.name, name, version))
                   for name, version in flip.versions[shelf].items()}
                  for shelf in sorted(flip.versions)]
        with _span("file", step=flip.iteration):
            runfiles.write(os.fspath(file),
                           SavedRun(name_of(self._make), flip.iteration, places))
        self._filed, self._filed_s = flip.iteration, perf_counter()

    def _file_due(self, *, end: bool) -> bool:
        if self.file is None or self._filed == self._local.steps:
            return False
        return end or perf_counter() - self._filed_s >= self.file_s

    def _write_file(self) -> None:
        """Write the checkpoint that was just taken; if that fails, the run goes on without it."""
        assert self.file is not None
        try:
            self.save(self.file)
        except OSError as error:
            outfile.tell(f"warning: cannot write {self.file}: {outfile.why(error)}; the run goes "
                         "on without it", who="apgas")
            self._filed_s = perf_counter()

    def _report(self) -> None:
        """Put the run's statistics among the notes of ``--stats``."""
        framework.note(**{f"apgas {self.name}": {
            **{name: round(value, 6) for name, value in self.statistics.rows()},
            "steps": self.statistics.steps, "checkpoints": self.statistics.checkpoints,
            "recoveries": [asdict(recovery) for recovery in self.statistics.recoveries]}})


class SPMDIterativeExecutor(_Executor):
    """Runs an `SPMDIterativeApp`: all active places take steps side by side.

    Args:
        manager: the active places and the reserves.
        checkpoint: steps between two checkpoints; or "young" or "daly", to compute them from the
            measured cost of a checkpoint and the mean time between failures (``--mtbf``).
        implicit_step_synchronization: the steps keep the places together by themselves, so that no
            barrier between them is needed.
        progress: tell steps on standard error.
        file: checkpoints are written to this file, too. If it is there when a run begins, the run
            goes on from it; so each run needs a file of its own.
        file_s: least number of seconds between two checkpoints in the file. The end of the run is
            always written.

    Raises:
        ValueError: `checkpoint` is no interval, or ``--mtbf`` is not given; the file cannot be
            written.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """

    def __init__(self, manager: PlaceManager, checkpoint: int | str = 10, *,
                 implicit_step_synchronization: bool = False, progress: bool = False,
                 file: str | os.PathLike[str] | None = None, file_s: float = EACH_S) -> None:
        super().__init__(manager, checkpoint, progress=progress, file=file, file_s=file_s)
        self.implicit_step_synchronization = implicit_step_synchronization

    def _take_steps(self, count: int) -> None:
        team = Team(self._group)
        with control.finish():
            for place in self._group:
                control.async_at(place, localrun.take_steps, self.name, team, count,
                                 self.implicit_step_synchronization, localrun.runs().steps)


class IterativeExecutor(_Executor):
    """Runs an `IterativeApp`: this place takes the steps, with tasks at the active places.

    Args:
        manager: the active places and the reserves.
        checkpoint: steps between two checkpoints, or "young" or "daly", as for
            `SPMDIterativeExecutor`.
        progress: tell steps on standard error.
        file, file_s: as for `SPMDIterativeExecutor`.

    Raises:
        ValueError: `checkpoint` is no interval, or ``--mtbf`` is not given; the file cannot be
            written.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """

    def _take_steps(self, count: int) -> None:
        local = self._local
        app: IterativeApp = local.app
        app._call_everywhere = self._call_everywhere
        with control.finish():
            end = local.steps + count
            local.finished = bool(app.is_finished())
            while not local.finished and local.steps < end:
                framework.kill_place("apgas.step")
                with _span(f"step {local.steps + 1}"):
                    app.step()
                local.count(localrun.runs().steps)
                local.finished = bool(app.is_finished())

    def _call_everywhere(self, method: str, arguments: tuple[Any, ...]) -> list[Any]:
        return everywhere(self._group, localrun.call_method, self.name, method, arguments)
