"""The resilient store: keys and values that outlive the place that has put them.

Each active place has a *shelf*, and the next active place keeps a copy of it. Access to the own
shelf costs as much as a dictionary and a copy of the value; access to another shelf takes a
message. After a death `recover` gives each shelf two places again.

Source: Resilient X10, sections 2.5 and 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .errors import DeadPlaceException
from .shelf import Change, Intent, Key
from .storeerrors import DeadPlaceAfterCommit, Refused
from .storepart import Part
from .storeregistry import Stores, stores_here
from .transactions import Transaction
from .values import Kept, check_key, decode, encode


def _attach(index: int, name: str, map_: str) -> ResilientMap:
    """Unpickle a store or a map of it, at any place."""
    part = stores_here().part(index, name)
    if map_:
        return ResilientMap(part, map_)
    store = ResilientStore.__new__(ResilientStore)
    ResilientMap.__init__(store, part, "")
    return store


def places_of(what: Any) -> list[int]:
    """Places of a group, of a PlaceManager, or of the change that it has made."""
    found = what.active_places() if hasattr(what, "active_places") else getattr(what, "new", what)
    return [int(place) for place in found]


class ResilientMap:
    """A named map of a store; each place has a shelf, and reads and writes its own.

    Values are copied when they are put and when they are read. Arrays of numbers stay arrays; all
    other values are pickled. Keys are strings. Tasks may take a map, or the store, as an argument.

    Each call waits while the store is being recovered.

    Raises:
        DeadPlaceException: a place that the call needs is dead, or a place died in the store's
            recovery. Make a new group of active places and call `recover`.
        CatastrophicFailure: shelves are lost. FtrmaError: this place has no shelf.

    MPI: local; calls that name an ordinal send a message and wait for its answer.
    Fault: a change that a call has made survives the death of the place. It also survives the death
        of the keeper, if a recovery has ended between the two deaths. A call that raises
        DeadPlaceException has changed nothing, unless its text says otherwise.
    """

    def __init__(self, part: Part, map_: str) -> None:
        self._part, self._map = part, map_

    def __reduce__(self) -> Any:
        return _attach, (self._part.index, self._part.name, self._map)

    def _key(self, key: str) -> Key:
        return self._map, check_key(key)

    # This place's shelf --------------------------------------------------------------------------

    def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of this place's value of a key.

        MPI: local.
        Fault: works even while the keeper is dead, until a recovery begins.
        """
        at, part = self._key(key), self._part
        part.enter_access(alone=False)
        value = part.value(part.own_shelf(), at)
        return default if value is None else decode(value)

    def set(self, key: str, value: Any) -> None:
        """Put a value into this place's shelf.

        Raises:
            DeadPlaceException: the keeper is dead; nothing has changed.
            NoRoom: shared memory is full; nothing has changed.

        MPI: local.
        Fault: once the call has returned, the keeper has the value, too.
        """
        self._commit({self._key(key): encode(value)})

    def set_all(self, values: Mapping[str, Any]) -> None:
        """Put several values at once: other places see all of them or none.

        MPI: local.
        Fault: as `set`; a death leaves all of the values or none.
        """
        self._commit({self._key(key): encode(value) for key, value in values.items()})

    def delete(self, key: str) -> None:
        """Delete a key of this place's shelf, if it is there.

        MPI: local.
        Fault: as `set`.
        """
        self._commit({self._key(key): None})

    def keys(self, ordinal: int | None = None) -> list[str]:
        """Return the map's keys in this place's shelf, or in another shelf that this place holds.

        Args:
            ordinal: number of the shelf, one of `ResilientStore.shelves`; None: this place's shelf.

        Raises:
            ValueError: this place does not hold the shelf.

        MPI: local.
        Fault: as `get`.
        """
        part = self._part
        part.enter_access(alone=False)
        shelf = part.own_shelf() if ordinal is None else ordinal
        if shelf not in part.held:
            raise ValueError(f"keys({ordinal}): place {part.me} does not hold that shelf")
        return [key for of, key in part.held[shelf].values if of == self._map]

    def transaction(self) -> Transaction:
        """Return a transaction of this place's shelf, for a ``with`` block; see `Transaction`.

        MPI: local.
        Fault: a death leaves all changes of the transaction or none.
        """
        return Transaction(self._part, self._map)

    def _commit(self, writes: dict[Key, Kept | None]) -> None:
        part = self._part
        part.enter_access()
        part.commit(part.own_shelf(), Change(writes))

    # Others' shelves -----------------------------------------------------------------------------

    def get_remote(self, ordinal: int, key: str, default: Any = None) -> Any:
        """Return a copy of the value of a key in any shelf.

        Args:
            ordinal: number of the shelf, which is its place's ordinal in the group that the store
                was made with. A shelf keeps its number when places are replaced or the group
                shrinks. If the program begins again, the numbers are ordinals in the new group.

        MPI: waits for an answer of the shelf's holder.
        Fault: if the holder is dead, the value is read from the keeper's copy.
        """
        at, part = self._key(key), self._part
        while True:
            part.enter_access(alone=False)
            generation, row = part.generation, part.row(ordinal)
            try:
                if ordinal in part.held:
                    value = part.value(ordinal, at)
                elif part.members.alive(row.holder):
                    value = part.ask(ordinal, "read", at)
                else:
                    value = part.read_file(ordinal).values.get(at)
                return default if value is None else decode(value)
            except Refused:
                part.wait_for_another(generation)
            except DeadPlaceException:
                if row.keeper < 0 or not part.members.alive(row.keeper):
                    raise

    def set_remote(self, ordinal: int, key: str, value: Any) -> None:
        """Put a value into any shelf.

        Args:
            ordinal: see `get_remote`.

        Raises:
            DeadPlaceException: the shelf's holder or keeper is dead. If the holder died while this
                call waited for it, the value may have been put or not.

        MPI: waits for an answer of the shelf's holder.
        Fault: once the call has returned, holder and keeper have the value.
        """
        at, kept, part = self._key(key), encode(value), self._part
        while True:
            part.enter_access()
            generation, row = part.generation, part.row(ordinal)
            if ordinal in part.held:
                part.commit(ordinal, Change({at: kept}))
                return
            if not part.members.alive(row.holder):
                raise DeadPlaceException(row.holder)
            try:
                part.raise_dead(part.ask(ordinal, "write", {at: kept}))
                return
            except Refused:
                part.wait_for_another(generation)

    def set2(self, key: str, value: Any, ordinal: int, key2: str, value2: Any, *,
             wait: bool = True) -> None:
        """Put a value into this place's shelf and one into another shelf: both, or neither.

        Args:
            ordinal: number of the other shelf, see `get_remote`.
            wait: return when both values are there. False: return as soon as it is certain that
                both will be; messages that are sent to the other place later arrive there after
                the value.

        Raises:
            DeadPlaceException: this place's keeper is dead; nothing was put.
            DeadPlaceAfterCommit: the other place or its keeper has died. The first value is put;
                the second one is there after `recover`.

        MPI: waits for the other place, if `wait` is true.
        Fault: if a place dies after the first value was put, both values are there after `recover`.
        """
        first, second, part = self._key(key), self._key(key2), self._part
        kept, kept2 = encode(value), encode(value2)
        part.enter_access()
        origin, row = part.own_shelf(), part.row(ordinal)
        if ordinal == origin:
            part.commit(origin, Change({first: kept, second: kept2}))
            return
        number, generation = part.next_number(origin), part.generation
        intent: Intent = (ordinal, *second, kept2)
        part.commit(origin, Change({first: kept}, {number: intent}, number=number))
        part.send_intent(origin, number)
        if wait:
            try:
                part.await_intent(origin, number, row.holder, generation)
            except DeadPlaceException as error:
                raise DeadPlaceAfterCommit(error.place) from None


class ResilientStore(ResilientMap):
    """A store over the active places, which survives the death of any one place at a time.

    The program makes it at the root place and passes it to other places as an argument of tasks. A
    program that runs ``everywhere`` makes it at all active places, and all get the same store. If
    the program begins again, because the root has died or the job was launched again, a store of
    the same name begins with its former contents.

    Args:
        places: the active places: a group, a PlaceManager, or numbers of places.
        name: name of the store; each store of an attempt has a name of its own.

    Raises:
        ValueError: this is not the root place, unless the program runs everywhere; or the name is
            in use.
        CatastrophicFailure: there was a store of that name before, and shelves of it are lost.

    MPI: waits for all active places.
    Fault: if a place dies meanwhile, the store is made all the same. The next access to it raises
        DeadPlaceException, as after any death during a recovery.
    """

    def __init__(self, places: Any, name: str = "store") -> None:
        stores = stores_here()
        if stores.members.me != stores.members.root:
            self._follow(stores, name)
            return
        active = places_of(places)
        with suppress(DeadPlaceException):  # accesses raise it, until recover()
            super().__init__(stores.lead(name, active), "")
            stores.led[self._part.index].run(active)

    def _follow(self, stores: Stores, name: str) -> None:
        """Attach to the store that the root makes at the same time."""
        if not stores.host.everywhere:
            raise ValueError("ResilientStore(): a store is made at the root place, by main(); "
                             "other places get it as an argument of a task")
        stores.host.scheduler.wait(lambda: stores.named(name) is not None)
        part = stores.named(name)
        assert part is not None
        super().__init__(part, "")

    def map(self, name: str) -> ResilientMap:
        """Return the map of the store that has a name; its keys are separate from other maps' keys.

        Raises:
            TypeError: the name is no string.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        return ResilientMap(self._part, check_key(name))

    @property
    def shelves(self) -> tuple[int, ...]:
        """Numbers of the shelves that this place holds, its own shelf first.

        After the group has shrunk, a place may hold more shelves than its own; `get_remote` reads
        them.
        """
        part = self._part
        part.enter_access(alone=False)
        return tuple(sorted(part.held, key=lambda shelf: (shelf != part.seat, shelf)))

    @property
    def seats(self) -> tuple[int, ...]:
        """The places to which the shelves belong, in the order of the shelves' numbers; -1: none.

        Such a place is active, unless it has died.
        """
        return tuple(self._part.table.seats())

    def recover(self, changes: Any) -> None:
        """Give each shelf a holder and a keeper among the active places, and open the store.

        It may be called at any time. If it has raised DeadPlaceException, call it again.

        Args:
            changes: what `PlaceManager.rebuild_active_places` has returned; or the active places.

        Raises:
            DeadPlaceException: a place died meanwhile: find a replacement and call `recover` again.
            CatastrophicFailure: shelves are lost, because a place and its keeper both died. All
                later accesses raise it, too.
            ValueError: this is not the root place.

        MPI: called at the root place; waits for all active places.
        Fault: if a place dies meanwhile, the call raises, and all accesses to the store raise until
            another call has succeeded.
        """
        led = stores_here().led.get(self._part.index)
        if led is None:
            raise ValueError("ResilientStore.recover(): the root place leads it; call it in main()")
        led.run(places_of(changes))

