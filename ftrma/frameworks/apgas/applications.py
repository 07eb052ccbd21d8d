"""Base classes of applications for executors: a loop of steps over state that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...host.errors import FtrmaError

if TYPE_CHECKING:
    from .placemanager import ChangeDescription
    from .team import Team


class CannotShrink(FtrmaError):
    """An application has no way to take over the state of a lost place that was not replaced.

    MPI: raised in the place that would take the state over; the executor passes it on.
    Fault: tells that a place died, no reserve was left, and the group was allowed to shrink.
    """


class _App:
    """State of a place that checkpoints save. Each active place has an object of it.

    An executor makes the objects from the arguments of its `run`. A place that replaces a dead one
    makes its object in the same way, and then gets the saved state.
    """

    def begin_local(self) -> None:
        """Make the data with which a run begins; without effect, unless a subclass overrides it.

        It is not called at a place that replaces a dead one, nor if the run goes on from a file:
        these get what was saved. So data that take long belong here, and not in ``__init__``.

        MPI: called in all active places, side by side.
        Fault: if a place dies before the first checkpoint is complete, all places make their
            objects again.
        """

    def checkpoint_local(self, first: bool) -> Mapping[str, Any]:
        """Return the fields of this place's state that have to be saved now.

        Args:
            first: return all fields, since nothing is saved yet, or since a place has taken over
                the state of another one. If false, fields that have not changed may be left out;
                they stay saved.

        MPI: local.
        Fault: if a place dies before the checkpoint is complete, the one before it counts.
        """
        raise NotImplementedError(f"{type(self).__name__}.checkpoint_local")

    def restore_local(self, saved: dict[str, Any]) -> None:
        """Go back to a checkpoint.

        Args:
            saved: copies of the newest committed value of each field.

        MPI: local.
        Fault: if a place dies meanwhile, it is called again in all places.
        """
        raise NotImplementedError(f"{type(self).__name__}.restore_local")

    def result_local(self) -> Any:
        """Return this place's part of the result: None, unless a subclass overrides this method.

        It is called after the last step. The executor has what the places return in `results`, so
        no place needs to be asked after the run, when its death would take its part along.

        MPI: local.
        Fault: if a place dies meanwhile, all places go back to the newest checkpoint, and it is
            called again after the last step.
        """
        return None

    def remake_local(self, changes: ChangeDescription, team: Team) -> None:
        """Prepare for the new group in a recovery, before the checkpoint is read.

        Args:
            changes: the old group and the new one.
            team: the team of the new group.

        MPI: called in all active places; may be collective over the team.
        Fault: if a place dies meanwhile, it is called again, with a new team.
        """

    def adopt_local(self, saved: dict[str, Any]) -> None:
        """Take over the state of a lost place that was not replaced, after `restore_local`.

        A checkpoint of all fields follows.

        Args:
            saved: copies of the newest committed value of each field of that place.

        Raises:
            CannotShrink: unless a subclass overrides this method.

        MPI: local.
        Fault: if a place dies meanwhile, it is called again, at the place that has that state then.
        """
        raise CannotShrink(f"{type(self).__name__} has no adopt_local, so the group of places "
                           "cannot shrink: start the job with more --spares")


class SPMDIterativeApp(_App):
    """An application whose places take steps side by side, for `SPMDIterativeExecutor`.

    MPI: each method is called in all active places.
    Fault: after a death all places go back to the newest checkpoint.
    """

    def is_finished_local(self) -> bool:
        """Say whether no step is left; all places must say so after the same step.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        raise NotImplementedError(f"{type(self).__name__}.is_finished_local")

    def step_local(self, team: Team) -> None:
        """Take a step.

        MPI: called in all active places; usually collective over the team.
        Fault: a collective call in it raises `DeadPlaceException`, which the step should let pass.
        """
        raise NotImplementedError(f"{type(self).__name__}.step_local")


class IterativeApp(_App):
    """An application whose steps are taken by one place, with tasks at other places, for
    `IterativeExecutor`.

    MPI: `is_finished` and `step` are called in the place that runs ``main``; the other methods are
        called in all active places.
    Fault: after a death all places go back to the newest checkpoint.
    """

    _call_everywhere: Callable[[str, tuple[Any, ...]], list[Any]] | None = None

    def is_finished(self) -> bool:
        """Say whether no step is left.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        raise NotImplementedError(f"{type(self).__name__}.is_finished")

    def step(self) -> None:
        """Take a step, by tasks at the active places.

        MPI: called in the place that runs ``main``.
        Fault: a finish in it raises `MultipleExceptions`, which the step should let pass.
        """
        raise NotImplementedError(f"{type(self).__name__}.step")

    def everywhere(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the application's object at each active place, side by side.

        Args:
            method: name of the method.
            arguments: arguments of the method, the same at all places.

        Returns:
            The results, in the order of the ordinals.

        Raises:
            MultipleExceptions: a place is dead, or a call has raised an exception.

        MPI: local; waits for all places.
        Fault: raises as soon as the calls at all living places have ended.
        """
        if self._call_everywhere is None:
            raise FtrmaError("everywhere() is for the place that runs main, in an executor's run")
        return self._call_everywhere(method, arguments)
