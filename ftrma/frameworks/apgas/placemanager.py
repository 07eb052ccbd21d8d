"""Decides which places are active: dead ones are replaced by reserves, or left out.

A program names its places by their ordinals in a group, never by their ids. `PlaceManager` has the
group of active places; the others are reserves. Nothing changes by itself when a place dies: the
program calls `PlaceManager.rebuild_active_places` where it can go on with another group, and is
told what has changed.

`change` decides, and is pure. A manager belongs to the place that runs ``main``.
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
    """A dead place has no reserve that could replace it, and the group may not shrink.

    MPI: raised in the place that rebuilds its group of active places.
    Fault: more places died than there were reserves.
    """


@dataclass(frozen=True)
class ChangeDescription:
    """Tells how a group of active places has changed.

    Attributes:
        old, new: the groups.
        removed: dead places of `old`, in the order of their ordinals.
        added: places that are new in `new`; ``added[i]`` has the ordinal that ``removed[i]`` had.
            Ordinals of further removed places are gone, and those behind have moved up.
    """

    old: PlaceGroup
    new: PlaceGroup
    removed: tuple[int, ...]
    added: tuple[int, ...]

    @property
    def shrunk(self) -> tuple[int, ...]:
        """Removed places that nobody has replaced."""
        return self.removed[len(self.added):]


def change(old: Sequence[int], alive: Callable[[int], bool], reserves: Iterable[int],
           allow_shrinking: bool) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Decide who is active after deaths.

    Args:
        old: the active places.
        alive: says if a place lives.
        reserves: places that may replace dead ones, the first ones first.
        allow_shrinking: without a reserve, a dead place's ordinal goes.

    Returns:
        The new group, the places removed and those added, as `ChangeDescription` has them.

    Raises:
        NotEnoughPlaces: reserves are short and the group may not shrink, or nobody would be left.
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
    """Yield for each dead place a line that says who takes its part.

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
    """Return the group of active places, as this place was last told of it.

    An executor tells all of its places; elsewhere it is the group of the slots.

    MPI: local.
    Fault: dead places stay in it until an executor, or `PlaceManager.rebuild_active_places` in
        this place, has replaced them.
    """
    here = runtime.current()
    members = here.members
    return _groups.get(here) or PlaceGroup(members.everyone[:members.slots])


def set_group(group: PlaceGroup) -> None:
    """Have `group` return a group in this place."""
    _groups[runtime.current()] = group


class PlaceManager:
    """The group of active places, and reserves that replace dead ones.

    Args:
        allow_shrinking: the group becomes smaller when a place dies and no reserve is left;
            without it, `rebuild_active_places` raises then.
        spares: so many reserves are kept: if there are fewer, more places are started, as long as
            there is room for them (`add_places`).

    Attributes:
        allow_shrinking: may be changed at any time.

    MPI: local.
    Fault: nothing changes by itself.
    """

    def __init__(self, *, allow_shrinking: bool = False, spares: int = 0) -> None:
        self.allow_shrinking, self._spares = allow_shrinking, spares
        self._active = tuple(group())
        if spares:
            on_place_removed(lambda place: self._replenish())
            self._replenish()

    def _replenish(self, needed: int = 0) -> None:
        """Start places, so that the reserves are as many as are kept, or as are needed now."""
        members = runtime.current().members
        room = len(members.possible) - len(members.everyone)
        lacking = min(room, max(self._spares, needed) - len(self.reserves()))
        if lacking > 0:
            add_places(lacking)

    def active_places(self) -> PlaceGroup:
        """Return the group of active places, dead ones among them until it is rebuilt.

        MPI: local.
        Fault: nothing happens in it.
        """
        return PlaceGroup(self._active)

    def reserves(self) -> tuple[int, ...]:
        """Return the living places that are not active, in the order in which they are taken.

        Places that are still starting are the last ones.

        MPI: local.
        Fault: nothing happens in it.
        """
        members = runtime.current().members
        found = [place for place in members.everyone
                 if place not in self._active and members.alive(place)]
        return tuple(sorted(found, key=lambda place: not members.mail.joined(place)))

    def rebuild_active_places(self) -> ChangeDescription:
        """Replace dead places by living reserves, or leave them out, and tell what has changed.

        Without a death nothing changes.

        Raises:
            NotEnoughPlaces: reserves are short and the group may not shrink. The group is as it
                was.

        MPI: local.
        Fault: a place that dies meanwhile is dealt with by the next call.
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
        """Give the active places their ordinals by the shelves of a store that belong to them.

        After the death of place zero the program begins again, with slots as the core has seated
        them. What is in a shelf belongs to an ordinal, so the order of the shelves counts.

        Args:
            seats: the place that each shelf belongs to.

        MPI: local.
        Fault: nothing happens in it.
        """
        ordinal = {place: shelf for shelf, place in enumerate(seats)}
        self._active = tuple(sorted(self._active,
                                    key=lambda place: ordinal.get(place, len(ordinal))))
        set_group(PlaceGroup(self._active))
