"""Base classes of applications that executors run: a loop of steps over state that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...host.errors import FtrmaError

if TYPE_CHECKING:
    from .placemanager import ChangeDescription
    from .team import Team


class CannotShrink(FtrmaError):
    """An application has no way to take over the state of a place that nobody replaced.

    MPI: raised in the place that would take it over; the executor passes it on.
    Fault: a place died without a reserve, and the group was allowed to shrink.
    """


class _App:
    """State of a place that is saved by checkpoints. An object of it is at each active place.

    An executor makes the objects, by the arguments that its `run` was given. A place that replaces
    a dead one makes its own in the same way, and is then given what was saved.
    """

    def checkpoint_local(self, first: bool) -> Mapping[str, Any]:
        """Return the fields of this place's state that have to be saved now.

        Args:
            first: all is needed: nothing is saved yet, or a place has taken over another one's
                state. Else fields that have not changed may be left out; they stay saved.

        MPI: local.
        Fault: a death has the checkpoint before count.
        """
        raise NotImplementedError(f"{type(self).__name__}.checkpoint_local")

    def restore_local(self, saved: dict[str, Any]) -> None:
        """Go back to a checkpoint.

        Args:
            saved: the newest committed value of each field; copies.

        MPI: local.
        Fault: after a death it is called again, in all places.
        """
        raise NotImplementedError(f"{type(self).__name__}.restore_local")

    def remake_local(self, changes: ChangeDescription, team: Team) -> None:
        """Prepare for another group, before the checkpoint is read.

        Args:
            changes: the old group and the new one.
            team: the new group's.

        MPI: called in all active places; may be collective over the team.
        Fault: after a death it is called again, with a new team.
        """

    def adopt_local(self, saved: dict[str, Any]) -> None:
        """Take over the state of a place that nobody replaced, after `restore_local`.

        A full checkpoint follows.

        Args:
            saved: the newest committed value of each field of that place; copies.

        Raises:
            CannotShrink: unless a subclass has its own way.

        MPI: local.
        Fault: after a death it is called again, where that state is then.
        """
        raise CannotShrink(f"{type(self).__name__} has no adopt_local, so the group of places "
                           "cannot shrink: start the job with more --spares")


class SPMDIterativeApp(_App):
    """An application whose places take steps side by side, for `SPMDIterativeExecutor`.

    MPI: each method is called in all active places.
    Fault: a death has all go back to the newest checkpoint.
    """

    def is_finished_local(self) -> bool:
        """Say that no step is left; all places say so at one step.

        MPI: local.
        Fault: nothing happens in it.
        """
        raise NotImplementedError(f"{type(self).__name__}.is_finished_local")

    def step_local(self, team: Team) -> None:
        """Take a step.

        MPI: called in all active places; usually collective over the team.
        Fault: raises `DeadPlaceException`, which should be let pass.
        """
        raise NotImplementedError(f"{type(self).__name__}.step_local")


class IterativeApp(_App):
    """An application whose steps are taken by one place, with tasks at others, for
    `IterativeExecutor`.

    MPI: `is_finished` and `step` are called in the place that runs ``main``, the others in all.
    Fault: a death has all go back to the newest checkpoint.
    """

    _call_everywhere: Callable[[str, tuple[Any, ...]], list[Any]] | None = None

    def is_finished(self) -> bool:
        """Say that no step is left.

        MPI: local.
        Fault: nothing happens in it.
        """
        raise NotImplementedError(f"{type(self).__name__}.is_finished")

    def step(self) -> None:
        """Take a step, by tasks at the active places.

        MPI: called in the place that runs ``main``.
        Fault: raises what `finish` raises, which should be let pass.
        """
        raise NotImplementedError(f"{type(self).__name__}.step")

    def everywhere(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the application's object at each active place, side by side.

        Args:
            method: its name.
            arguments: its arguments, equal at all places.

        Returns:
            The results, in the order of the ordinals.

        Raises:
            MultipleExceptions: a place is dead, or a call raised.

        MPI: local; waits for all places.
        Fault: raises once no other place works on it any more.
        """
        if self._call_everywhere is None:
            raise FtrmaError("everywhere() is for the place that runs main, in an executor's run")
        return self._call_everywhere(method, arguments)
