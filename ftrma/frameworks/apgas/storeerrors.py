"""Exceptions of the resilient store, in addition to those in `errors`."""

from __future__ import annotations

from typing import Any

from ...host.errors import CatastrophicFailure, FtrmaError
from .errors import DeadPlaceException


class LostShelves(CatastrophicFailure):
    """Shelves of a store are lost, because the holder and the keeper of each have died.

    Attributes:
        store: name of the store.
        lost: numbers of the lost shelves, a tuple.
        members: names of the lost shelves, such as ``shelf 2``.

    MPI: raised by `recover`, and by each later access to the store.
    Fault: tells that a holder and its keeper died before a recovery could copy the shelf.
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
    """A place has died after the commit of a `set2`; both its values are there after `recover`.

    MPI: raised by `set2` while it waits for the other place.
    Fault: tells that the other place, or its keeper, has died.
    """


class Refused(Exception):
    """The place that was asked does not serve now; ask again once the store has opened."""


class Forgotten(FtrmaError):
    """A holder of shelves, by the table, has nothing of them: the job was launched again.

    The recovery then loads the shelves' files.
    """
