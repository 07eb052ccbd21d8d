"""Decides which places are active: dead places are replaced by reserves, or left out.

A program names its places by their ordinals in a group, never by their ids. `PlaceManager` has the
group of active places; the other places are reserves. When a place dies, nothing changes by itself.
The program calls `PlaceManager.rebuild_active_places` when it can go on with another group; this
call tells it what has changed.

`change` makes the decision, and is pure. A manager belongs to the place that runs ``main``.
Section 2.3 of the paper has the idea.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from weakref import WeakKeyDictionary

from ...host import outfile
from ...host.errors import FtrmaError
from . import runtime
from .control import add_places, on_place_removed
from .placegroup import PlaceGroup


class NotEnoughPlaces(FtrmaError):
    """No reserve is left to replace a dead place, and the group may not shrink.

    MPI: raised in the place that rebuilds its group of active places.
    Fault: tells that more places died than there were reserves.
    """


@dataclass(frozen=True)
class ChangeDescription:
    """Tells how a group of active places has changed.

    Attributes:
        old, new: the groups before and after the change.
        removed: dead places of `old`, in the order of their ordinals.
        added: places that are new in `new`; ``added[i]`` takes over from ``removed[i]``. If there
            are more removed places than added ones, the rest leave no gap: later ordinals move up.
    """

    old: PlaceGroup
    new: PlaceGroup
    removed: tuple[int, ...]
    added: tuple[int, ...]

    @property
    def shrunk(self) -> tuple[int, ...]:
        """The removed places that no place has replaced."""
        return self.removed[len(self.added):]


def change(old: Sequence[int], alive: Callable[[int], bool], reserves: Iterable[int],
           allow_shrinking: bool) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Decide who is active after deaths.

    Args:
        old: the active places.
        alive: says whether a place is alive.
        reserves: places that may replace dead ones, in the order in which they are taken.
        allow_shrinking: a dead place for which there is no reserve is left out.

    Returns:
        The new group, the removed places and the added ones, as in `ChangeDescription`.

    Raises:
        NotEnoughPlaces: there are too few reserves and the group may not shrink, or no place would
            be left.
    """
    removed = tuple(place for place in old if not alive(place))
    added = tuple(place for place in reserves if alive(place) and place not in old)[:len(removed)]
    if len(added) < len(removed) and not allow_shrinking:
        raise NotEnoughPlaces(
            f"places {', '.join(map(str, removed))} are dead and {len(added)} reserves are left; "
            "start the job with more --spares, or use PlaceManager(allow_shrinking=True)")
    replacement = dict(zip(removed, added, strict=False))
    new = tuple(replacement.get(place, place) for place in old
                if place in replacement or place not in removed)
    if not new:
        raise NotEnoughPlaces("all active places are dead; start the job with more --spares")
    return new, removed, added


def replacements(removed: Sequence[int], added: Sequence[int], left: int) -> Iterator[str]:
    """Yield a line for each dead place that says which place replaces it.

    Args:
        removed, added: see `change`.
        left: number of active places.
    """
    for place, new in zip_longest(removed, added):
        if new is None:
            yield f"no reserve replaces place {place}; {left} place{'s' * (left > 1)} left"
        else:
            yield f"place {new} replaces place {place}"


def between(old: PlaceGroup, new: PlaceGroup) -> ChangeDescription:
    """Describe several changes as one."""
    return ChangeDescription(old, new, tuple(place for place in old if place not in new),
                             tuple(place for place in new if place not in old))


_groups: WeakKeyDictionary[Any, PlaceGroup] = WeakKeyDictionary()  # by attempt


def group() -> PlaceGroup:
    """Return the group of active places, as this place last knew it.

    An executor tells its places of each new group. A place that has not been told of a group has
    the group of the slots.

    MPI: local.
    Fault: dead places stay in the group until an executor, or a call of
        `PlaceManager.rebuild_active_places` in this place, has replaced them.
    """
    here = runtime.current()
    members = here.members
    return _groups.get(here) or PlaceGroup(members.everyone[:members.slots])


def set_group(group: PlaceGroup) -> None:
    """Set the group that `group` returns in this place."""
    _groups[runtime.current()] = group


class PlaceManager:
    """The group of active places, and reserves that replace dead ones.

    Args:
        allow_shrinking: the group becomes smaller when a place dies and no reserve is left. If
            false, `rebuild_active_places` raises in that case.
        spares: number of reserves to keep. If there are fewer, more places are started, as long as
            there is room for them (`add_places`).

    Attributes:
        allow_shrinking: see above; may be changed at any time.

    MPI: local.
    Fault: the group keeps dead places until `rebuild_active_places` is called.
    """

    def __init__(self, *, allow_shrinking: bool = False, spares: int = 0) -> None:
        self.allow_shrinking, self._spares = allow_shrinking, spares
        self._active = tuple(group())
        if spares:
            on_place_removed(lambda place: self._replenish())
            self._replenish()

    def _replenish(self, needed: int = 0) -> None:
        """Start places, until there are as many reserves as are to be kept, or are needed now."""
        members = runtime.current().members
        room = len(members.possible) - len(members.everyone)
        lacking = min(room, max(self._spares, needed) - len(self.reserves()))
        if lacking > 0:
            add_places(lacking)

    def active_places(self) -> PlaceGroup:
        """Return the group of active places; dead places stay in it until it is rebuilt.

        MPI: local.
        Fault: a death does not change the group.
        """
        return PlaceGroup(self._active)

    def reserves(self) -> tuple[int, ...]:
        """Return the living places that are not active, in the order in which they are taken.

        Places that are still starting come last.

        MPI: local.
        Fault: places whose death is known here are left out.
        """
        members = runtime.current().members
        found = [place for place in members.everyone
                 if place not in self._active and members.alive(place)]
        return tuple(sorted(found, key=lambda place: not members.mail.joined(place)))

    def rebuild_active_places(self) -> ChangeDescription:
        """Replace dead places by living reserves, or leave them out; return what has changed.

        If no place has died, nothing changes.

        Raises:
            NotEnoughPlaces: there are too few reserves and the group may not shrink. The group is
                unchanged.

        MPI: local.
        Fault: if a place dies meanwhile, the next call deals with it.
        """
        members = runtime.current().members
        old = self._active
        if self._spares:
            self._replenish(sum(not members.alive(place) for place in old))
        self._active, removed, added = change(old, members.alive, self.reserves(),
                                              self.allow_shrinking)
        set_group(PlaceGroup(self._active))
        for text in replacements(removed, added, len(self._active)):
            outfile.tell_first(text, who="apgas", unasked=True)
        return ChangeDescription(PlaceGroup(old), PlaceGroup(self._active), removed, added)

    def order(self, seats: Sequence[int]) -> None:
        """Order the active places by the numbers of their shelves in a store.

        After the death of place zero the program begins again, and the repair has seated the slots
        anew. The contents of a shelf belong to an ordinal, so each place has to get the ordinal of
        its shelf.

        Args:
            seats: the places to which the shelves belong, in the order of the shelves' numbers.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        ordinal = {place: shelf for shelf, place in enumerate(seats)}
        self._active = tuple(sorted(self._active,
                                    key=lambda place: ordinal.get(place, len(ordinal))))
        set_group(PlaceGroup(self._active))
