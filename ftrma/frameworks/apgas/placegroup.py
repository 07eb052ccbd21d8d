"""Groups of places: ordinals and neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload


class PlaceGroup(Sequence[int]):
    """Places in an order: the ordinal of each is its index.

    A group never changes. Programs use ordinals to divide work, since a place that replaces another
    one takes over its ordinal, but has a new id.

    Args:
        places: ids of the places, each once.

    Raises:
        ValueError: a place is named twice.

    MPI: local.
    Fault: a dead place stays in the group; `PlaceManager` makes a new group without it.
    """

    def __init__(self, places: Iterable[int]) -> None:
        self._places = tuple(places)
        self._ordinals = {place: i for i, place in enumerate(self._places)}
        if len(self._ordinals) < len(self._places):
            raise ValueError(f"PlaceGroup({list(self._places)}): a place is named twice")

    @overload
    def __getitem__(self, ordinal: int) -> int: ...
    @overload
    def __getitem__(self, ordinal: slice) -> tuple[int, ...]: ...
    def __getitem__(self, ordinal: Any) -> Any:
        return self._places[ordinal]

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, place: object) -> bool:
        return place in self._ordinals

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlaceGroup) and self._places == other._places

    def __hash__(self) -> int:
        return hash(self._places)

    def __repr__(self) -> str:
        return f"PlaceGroup({list(self._places)})"

    def index_of(self, place: int) -> int:
        """Return the ordinal of a place.

        Raises:
            ValueError: the group has no such place.
        """
        try:
            return self._ordinals[place]
        except (KeyError, TypeError):
            raise ValueError(f"place {place!r} is not in {self!r}") from None

    def next(self, place: int) -> int:
        """Return the place after a given one; the first place comes after the last one."""
        return self._places[(self.index_of(place) + 1) % len(self)]

    def prev(self, place: int) -> int:
        """Return the place before a given one; the last place comes before the first one."""
        return self._places[self.index_of(place) - 1]
