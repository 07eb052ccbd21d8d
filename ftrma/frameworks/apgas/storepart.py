"""A place's part of a store: the shelves that the place holds, and their answers to other places.

A commit writes the keeper's file, publishes it, and then changes the dictionary here. None of these
steps waits, so neither another task nor a rollback comes between them, and a dictionary never has a
value that a death could take back. A read uses the dictionary alone. If the keeper is dead, a
commit raises `DeadPlaceException`, and nothing has changed.

A recovery has a number, with which it *freezes* a part. A frozen part serves nobody until the
store's generation word has come to that number; each access and each message looks at the word
first.

`set2` commits one record, with the value here and an *intent*: the value that the other shelf is to
get. Then a message goes to that shelf's holder, which commits the value together with the number of
the intent; so an intent that arrives twice is applied once. After the holder has answered, the next
commit here deletes the intent.

A transaction has the part to itself, by a lock. Messages that ask for a commit wait for the lock in
the order of their arrival; no task waits for them.

Law: the dictionary agrees with the keeper's file, or is one commit behind it during a commit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from ...framework import kill_place
from ...host.errors import NO_ROOM, FtrmaError, NodeLost, NoRoom
from . import shelf as shelves
from . import storetable
from .door import Files, Members
from .errors import DeadPlaceException
from .kinds import STORE
from .shelf import Change, Far, Key, ShelfFile, State
from .storeerrors import LostShelves, Refused
from .storetable import DIRTY, FAILED, GENERATION, HALTED, LOST, Row, Table
from .values import Kept

MISSING = None  # stands for a value that is not there


def files_of(members: Members) -> Files | None:
    """Return the files on other nodes; None: all places are on one node."""
    return getattr(members.mail, "files", None)


class Part:
    """A place's shelves of a store; they stay when the program is entered again.

    Attributes:
        held: contents of the shelves that the place holds, by number.
        files: file of each held shelf (None: it has no keeper), and the row of the table that names
            the file.
        seat: the shelf that belongs to this place; -1: none does.
        owner: thread whose transaction has the lock; None: no transaction is under way.
    """

    def __init__(self, name: str, identity: int) -> None:
        self.name, self.identity = name, identity
        self.held: dict[int, State] = {}
        self.files: dict[int, tuple[ShelfFile | None, Row]] = {}
        self.acked: dict[int, set[int]] = {}
        self.dirty: set[int] = set()

    def enter(self, host: Any, index: int, table: Table) -> None:
        """Begin in an attempt of the program: closed, without questions under way, and unlocked."""
        self.host, self.index, self.table = host, index, table
        self.members, self.me = host.members, host.members.me
        self.frozen = self.generation = 0
        self.rows: list[Row] = []
        self.seat = -1
        self.owner: int | None = None
        self.inbox: deque[tuple[Any, ...]] = deque()
        self.refused: dict[tuple[int, int], int] = {}  # intents, and the place that was dead
        self.answers: dict[int, tuple[bool, Any]] = {}
        self.asked = 0
        for file, row in self.files.values():
            if file is not None:
                file.reach(self.far(row.keeper))

    # Open or closed ------------------------------------------------------------------------------

    def is_open(self) -> bool:
        """Say whether the store may be used here; if so, learn its newest table first."""
        now = self.table.get(GENERATION)
        if now == self.generation and not self.frozen:
            return now > 0
        if now == 0 or now < self.frozen:
            return False
        self.frozen = 0
        if now != self.generation:
            self._learn(now)
        return True

    def _learn(self, now: int) -> None:
        self.rows, seats = self.table.rows(), self.table.seats()
        self.seat = seats.index(self.me) if self.me in seats else -1
        for shelf in [s for s in self.held if self.rows[s].holder != self.me]:
            self.forget(shelf)
        self.generation = now

    def forget(self, shelf: int) -> None:
        """Drop a shelf that another place holds now."""
        del self.held[shelf]
        self.acked.pop(shelf, None)
        self.dirty.discard(shelf)
        self.files.pop(shelf, None)

    def check(self) -> None:
        """Raise the reason if a closed store will not open by itself.

        Raises:
            LostShelves: shelves are lost. DeadPlaceException: a place died in the recovery.
            FtrmaError: the recovery has failed.
        """
        if lost := self.table.get(LOST):
            raise LostShelves(self.name, storetable.of_mask(lost))
        if halted := self.table.get(HALTED):
            if halted == FAILED:
                raise FtrmaError(f"store {self.name!r}: its recovery has failed; call recover(), "
                                 "which raises why, before it is used")
            raise DeadPlaceException(halted - 1)

    def settled(self) -> bool:
        """Say whether the store is open; raise as `check` does if it is not."""
        if self.is_open():
            return True
        self.check()
        return False

    def enter_access(self, alone: bool = True) -> None:
        """Wait until the store is open and, with `alone`, no other transaction is under way."""
        while not (self.is_open() and self._may(alone)):
            mine = self.owner == threading.get_ident()
            if mine and alone:
                raise FtrmaError(
                    f"store {self.name!r}: inside of a transaction use the transaction's own get, "
                    "set and delete; a commit beside it would wait for its end")
            if mine and self.is_open():
                return
            self.host.scheduler.wait(lambda: self.settled() and (mine or self._may(alone)))  # noqa: B023

    def _may(self, alone: bool) -> bool:
        return self.owner is None or not (alone or self.inbox)

    def wait_for_another(self, generation: int) -> None:
        """Wait until the store has another generation than the given one.

        Raises:
            LostShelves, DeadPlaceException, FtrmaError: see `check`.
        """
        def has_come() -> bool:
            if self.table.get(GENERATION) != generation:
                return True
            self.check()
            return False

        self.host.scheduler.wait(has_come)

    def own_shelf(self) -> int:
        """Return the shelf that belongs to this place.

        Raises:
            FtrmaError: no shelf belongs to it.
        """
        if self.seat < 0 or self.seat not in self.held:
            raise FtrmaError(
                f"store {self.name!r}: place {self.me} has no shelf of it. Only active places have "
                "one: a place that replaces a dead one gets its shelf by recover(changes)")
        return self.seat

    # Commits -------------------------------------------------------------------------------------

    def commit(self, shelf: int, change: Change) -> None:
        """Commit a change to a shelf that is held here, without waiting.

        Raises:
            DeadPlaceException: the keeper is dead; nothing has changed.
            NoRoom: shared memory is full; nothing has changed.
        """
        state, (file, row) = self.held[shelf], self.files[shelf]
        acked = self.acked[shelf]
        if acked:
            change.drops = tuple(acked)
        if file is not None and not self.members.alive(row.keeper):
            raise DeadPlaceException(row.keeper)
        if shelf not in self.dirty:
            self.table.put(DIRTY + shelf, 1)
            self.dirty.add(shelf)
        if file is not None:
            try:
                file.append(change, state)
            except NodeLost:
                raise DeadPlaceException(row.keeper) from None
            kill_place("apgas.published")
        state.make(change)
        if acked:
            acked.clear()

    def next_number(self, shelf: int) -> int:
        """Return the number of the next intent of a shelf."""
        return self.held[shelf].number + 1

    def send_intent(self, origin: int, number: int, round_: int = 0) -> None:
        """Send an intent to the holder of its shelf, which applies it once.

        Args:
            round_: number of the recovery that replays the intent; 0: no recovery does.
        """
        shelf, map_, key, value = self.held[origin].intents[number]
        holder = (self.table.row(shelf) if round_ else self.rows[shelf]).holder
        self.refused.pop((origin, number), None)
        self.post(holder, "apply", round_ or self.generation, bool(round_), origin, number, shelf,
                  (map_, key), value)

    def await_intent(self, origin: int, number: int, holder: int = -1,
                     generation: int = 0) -> None:
        """Wait until an intent was applied.

        Args:
            holder: holder of the intent's shelf; -1: the one in the table.
            generation: generation of the store when the intent was sent; once the store has another
                one, a recovery has applied the intent. 0: a recovery is asking.

        Raises:
            DeadPlaceException: holder or keeper of the shelf has died; the intent stays.
        """
        shelf = self.held[origin].intents[number][0]
        holder = self.table.row(shelf).holder if holder < 0 else holder

        def is_applied() -> bool:
            return (origin not in self.held or number in self.acked[origin]
                    or number not in self.held[origin].intents
                    or (generation > 0 and self.table.get(GENERATION) != generation))

        def has_ended() -> bool:
            return (is_applied() or (origin, number) in self.refused
                    or not self.members.alive(holder))

        self.host.scheduler.wait(has_ended)
        if is_applied():
            return
        dead = self.refused.get((origin, number), -1)
        if dead == FAILED:
            self.raise_dead(dead)
        raise DeadPlaceException(dead if dead >= 0 else self._latest_death(holder))

    def _latest_death(self, holder: int) -> int:
        deaths = self.members.deaths()
        return holder if not self.members.alive(holder) or not deaths else deaths[-1]

    def raise_dead(self, dead: int) -> None:
        """Raise the error that a place has answered when asked to commit; -1: there is none."""
        if dead == FAILED:
            raise NoRoom(f"store {self.name!r}: {NO_ROOM}")
        if dead >= 0:
            raise DeadPlaceException(dead)

    # The lock ------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Wait until this task can have the part to itself, and take the lock."""
        self.enter_access()
        self.owner = threading.get_ident()

    def unlock(self) -> None:
        """Release the lock; the commits whose messages have waited come first."""
        self.owner = None
        self.drain()

    def freeze(self, round_: int) -> None:
        """Serve nobody until a recovery has opened the store; refuse the messages that wait."""
        self.frozen = round_
        self.drain()

    # Messages ------------------------------------------------------------------------------------

    def post(self, to: int, what: str, *rest: Any) -> None:
        self.host.mailroom.post(to, STORE, (self.index, what, *rest))

    def ask(self, shelf: int, what: str, *rest: Any) -> Any:
        """Ask the holder of a shelf, and return its answer.

        Raises:
            Refused: the place is no longer the holder, or its part is frozen.
            DeadPlaceException: the place died meanwhile.
        """
        holder = self.rows[shelf].holder
        self.asked += 1
        number = self.asked
        self.post(holder, what, number, shelf, *rest)
        self.host.scheduler.wait(lambda: number in self.answers or not self.members.alive(holder))
        if number not in self.answers:
            raise DeadPlaceException(holder)
        how, answer = self.answers.pop(number)
        if not how:
            raise Refused(answer)
        return answer

    def take(self, source: int, what: str, rest: tuple[Any, ...]) -> None:
        """Take a message; neither wait nor raise."""
        if what in ("apply", "write"):
            self.inbox.append((source, what, rest))
            self.drain()
        elif what == "read":
            number, shelf, key = rest
            holds = self.is_open() and shelf in self.held
            value = self.held[shelf].values.get(key, MISSING) if holds else None
            self.post(source, "answer", number, holds, value)
        elif what == "answer":
            self.answers[rest[0]] = rest[1:]
        elif what == "applied":
            if rest[0] in self.held:
                self.acked[rest[0]].add(rest[1])
        elif what == "refused":
            self.refused[rest[:2]] = rest[2]

    def drain(self) -> None:
        """Make the commits that messages ask for, unless a transaction is under way."""
        while self.inbox and (self.owner is None or not self.is_open()):
            source, what, rest = self.inbox.popleft()
            self.inbox_of[what](self, source, *rest)

    def _apply(self, source: int, tag: int, replayed: bool, origin: int, number: int, shelf: int,
               key: Key, value: Kept | None) -> None:
        """Apply an intent of another shelf, if it is of this generation and not applied yet."""
        ready = self.is_open()
        may = self.frozen == tag if replayed else ready and self.generation == tag
        dead = -1
        if may and shelf in self.held:
            if number > self.held[shelf].applied.get(origin, 0):
                dead = self._try(shelf, Change({key: value}, applied={origin: number}))
            if dead < 0:
                kill_place("apgas.applied")
                self.post(source, "applied", origin, number)
                return
        self.post(source, "refused", origin, number, dead)

    def _write(self, source: int, number: int, shelf: int,
               writes: dict[Key, Kept | None]) -> None:
        """Commit another place's values to a shelf."""
        if not (self.is_open() and shelf in self.held):
            self.post(source, "answer", number, False, None)
            return
        dead = self._try(shelf, Change(writes))
        self.post(source, "answer", number, True, dead)

    def _try(self, shelf: int, change: Change) -> int:
        """Commit; return -1, or the dead keeper, or `FAILED` if memory or descriptors are short."""
        try:
            self.commit(shelf, change)
        except DeadPlaceException as error:
            return error.place
        except (FtrmaError, OSError):
            return FAILED
        return -1

    inbox_of: ClassVar[dict[str, Callable[..., None]]] = {"apply": _apply, "write": _write}

    # Reading a dead place's shelf ----------------------------------------------------------------

    def read_file(self, shelf: int) -> State:
        """Read the file of a shelf whose holder is dead.

        Raises:
            DeadPlaceException: the keeper is dead, too. Refused: a recovery has removed the file.
        """
        row = self.rows[shelf]
        if row.keeper < 0 or not self.members.alive(row.keeper):
            raise DeadPlaceException(row.holder)
        try:
            state = shelves.read(self.path(shelf, row), self.far(row.keeper))
        except FileNotFoundError:
            state = None
        if not self.members.alive(row.keeper):
            raise DeadPlaceException(row.holder)
        if state is None or self.table.get(GENERATION) != self.generation:
            raise Refused(None)
        return state

    def row(self, shelf: int) -> Row:
        """Return the row of a shelf.

        Raises:
            ValueError: there is no such shelf.
        """
        if not 0 <= shelf < len(self.rows):
            raise ValueError(f"store {self.name!r}: ordinal {shelf}; there are 0 to "
                             f"{len(self.rows) - 1}")
        return self.rows[shelf]

    def path(self, shelf: int, row: Row) -> Any:
        """Return the path of the file of a shelf, on the node of its keeper."""
        return storetable.shelf_path(self.members.directory, self.name, self.identity, shelf,
                                     row.made)

    def sweep(self) -> None:
        """Remove the files on this node that belong to no shelf any more."""
        if self.members.directory:
            rows = enumerate(self.table.rows())
            storetable.sweep(self.members.directory, self.name,
                             [self.path(shelf, row) for shelf, row in rows])

    def place_with_file(self, shelf: int, made: int) -> int:
        """Return a living place of the node that has the file of a shelf; -1: no node has it.

        Args:
            made: the recovery in which the file was made.
        """
        path, files = self.path(shelf, Row(-1, -1, made)), files_of(self.members)
        by_node = {files.node_of(place) if files else 0: place
                   for place in self.members.everyone if self.members.alive(place)}
        return next((place for place in by_node.values()
                     if shelves.is_there(path, self.far(place))), -1)

    def far(self, keeper: int) -> Far | None:
        """Return the node of a keeper; None: it is this node."""
        files = files_of(self.members)
        return Far(files, keeper) if files and not files.is_here(keeper) else None

    def value(self, shelf: int, key: Key) -> Kept | None:
        """Return the kept value of a key in a shelf that is held here; it is the store's object."""
        return self.held[shelf].values.get(key, MISSING)
