"""Exceptions of the resilient store, beside those of all places."""

from __future__ import annotations

from typing import Any

from ...host.errors import CatastrophicFailure, FtrmaError
from .errors import DeadPlaceException


class LostShelves(CatastrophicFailure):
    """Shelves of a store are lost: both places that had each of them have died.

    Attributes:
        store: name of the store.
        lost: numbers of the shelves, a tuple.
        members: names of what was lost, such as ``shelf 2``.

    MPI: raised by `recover`, and by each access to the store from then on.
    Fault: a holder and its keeper died before a recovery could copy the shelf.
    """

    def __init__(self, store: str, lost: tuple[int, ...]) -> None:
        self.store, self.lost = store, lost
        self.group, self.version, self.members = 0, 0, tuple(f"shelf {shelf}" for shelf in lost)
        FtrmaError.__init__(
            self, f"store {store!r}: {' and '.join(self.members)} lost: the place that held it and "
            "the next one, which kept its copy, both died before recover() had copied it. Nothing "
            "of this store is served any more; begin anew with a store of another name")

    def __reduce__(self) -> Any:
        return type(self), (self.store, self.lost)


class DeadPlaceAfterCommit(DeadPlaceException):
    """A place has died behind a commit: both values of a `set2` are put, once `recover` has ended.

    MPI: raised by `set2`, where it waits for the other place.
    Fault: the other place, or its keeper, has died.
    """


class Refused(Exception):
    """The place that was asked does not serve now: ask again once the store has opened."""


class Forgotten(FtrmaError):
    """A place holds shelves by the table and has nothing of them: the job was launched again."""
