"""Transactions of a store: they read and write several keys of one shelf as if at one moment."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from .errors import DeadPlaceException
from .shelf import Change, Intent, Key
from .storepart import Part
from .values import Kept, check_key, decode, encode, own


class Transaction:
    """Reads and writes of this place's shelf that others see all at once, or not at all.

    It is used in a ``with`` block. Until the block ends, only the transaction's own `get` shows
    what it has written; then all of it is one commit. If an exception leaves the block, nothing is
    committed. A place has one transaction at a time, and its other commits wait meanwhile. So the
    block should not wait for tasks that use the store at this place.

    Raises:
        DeadPlaceException: at the end of the block, if the keeper is dead or the store was
            recovered meanwhile. Nothing was committed.

    MPI: local; waits for other transactions of this place, and while the store is being recovered.
    Fault: if this place dies, its keeper's copy has the whole commit or nothing of it.
    """

    def __init__(self, part: Part, map_: str) -> None:
        self._part, self._map = part, map_
        self._writes: dict[Key, Kept | None] = {}
        self._sent: list[Intent] = []

    def __enter__(self) -> Transaction:
        self._part.lock()
        try:
            self._shelf = self._part.own_shelf()
        except BaseException:
            self._part.unlock()
            raise
        self._generation = self._part.generation
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        part = self._part
        try:
            if kind is None and (self._writes or self._sent):
                if not part.is_open() or part.generation != self._generation:
                    raise DeadPlaceException(part.members.deaths()[-1] if part.members.deaths()
                                             else part.me)
                self._commit()
        finally:
            part.unlock()

    def _commit(self) -> None:
        part, shelf = self._part, self._shelf
        first = part.next_number(shelf)
        intents = dict(enumerate(self._sent, first))
        last = first + len(intents) - 1 if intents else 0
        part.commit(shelf, Change(self._writes, intents, number=last))
        for number in intents:
            part.send_intent(shelf, number)

    def get(self, key: str, default: Any = None, *, map: str | None = None) -> Any:
        """Return a copy of a value, as this transaction has written it or as it was before.

        Args:
            map: name of the map; None: the map whose `transaction` was called.
        """
        at = self._key(key, map)
        value = self._writes[at] if at in self._writes else self._part.value(self._shelf, at)
        return default if value is None else decode(value)

    def set(self, key: str, value: Any, *, map: str | None = None) -> None:
        """Write a value.

        Raises:
            TypeError: the key is no string, or the value cannot be pickled.
        """
        self._writes[self._key(key, map)] = own(encode(value))

    def delete(self, key: str, *, map: str | None = None) -> None:
        """Delete a key, if it is there."""
        self._writes[self._key(key, map)] = None

    def keys(self, *, map: str | None = None) -> list[str]:
        """Return the keys of a map, as this transaction leaves them."""
        name = self._map if map is None else map
        values = {**self._part.held[self._shelf].values, **self._writes}
        return [key for (of, key), value in values.items() if of == name and value is not None]

    def set_remote(self, ordinal: int, key: str, value: Any, *, map: str | None = None) -> None:
        """Put a value into another place's shelf, if and only if this transaction commits.

        Nobody waits for the value. It is there before any message that is sent to that place later
        arrives; if a place dies before, it is there after `recover`.

        Args:
            ordinal: see `ResilientMap.get_remote`.
        """
        at, kept = self._key(key, map), own(encode(value))
        self._part.row(ordinal)
        if ordinal == self._shelf:
            self._writes[at] = kept
        else:
            self._sent.append((ordinal, *at, kept))

    def _key(self, key: str, map_: str | None) -> Key:
        return self._map if map_ is None else map_, check_key(key)
