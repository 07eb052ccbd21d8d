"""A random program of all calls of a store, and a root that recovers it, in a simulated job.

The histories of its keys, its tokens and, at the end, all shelves and their files are looked at.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from typing import Any

from linearizable import NEVER, Operation, is_linearizable
from storesim import Simulation

from ftrma.frameworks.apgas import shelf as shelves
from ftrma.frameworks.apgas import store as stores
from ftrma.frameworks.apgas import storetable
from ftrma.frameworks.apgas.errors import DeadPlaceException
from ftrma.frameworks.apgas.storeerrors import DeadPlaceAfterCommit, LostShelves
from ftrma.frameworks.apgas.values import decode
from ftrma.host.errors import FtrmaError

CALLS = ["set", "set_all", "delete", "get", "tx", "tx", "remote", "remote", "put", "put", "two",
         "two", "eat", "steal", "steal", "steal"]
TOKENS = 3  # of each shelf at first


class Program(Simulation):
    """Places that use a store in all ways, and a root that recovers it.

    Args:
        loses: files of a shelf may be gone when the job is launched again, as if they had lain on
            a machine that was lost.
    """

    def __init__(self, *args: Any, loses: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loses, self.gone = loses, False
        self.history: dict[tuple[int, str], list[Operation]] = defaultdict(list)
        self.pairs: list[tuple[Any, Any]] = []
        self.value, self.over = 0, ""
        self.active = list(self.everyone[:self.slots])
        self.shrink = self.random.choice([0, 0, 0.5, 1])  # how often a reserve waits for later
        self.begun: set[int] = set()  # shelves with their first tokens

    def begin(self) -> None:
        self.spawn(self.places[self.root], self.main)

    def working(self) -> bool:
        """A worker has not ended, or something is under way to a living place, or is not told."""
        return (any(task.working and not task.place.dead for task in self.tasks)
                or any(ring and not self.places[to].dead for (_, to), ring in self.rings.items())
                or any(place.dead and place.me not in self.told for place in self.places))

    def next_root(self, living: list[int]) -> int:
        reserves = [p for p in living if p not in self.active]
        chosen = reserves[0] if reserves else living[0]
        if reserves:
            self.active[0] = chosen
        self.active = [p for p in self.active if p in living]
        if self.random.random() < 0.5:  # slots may be seated in another order
            self.random.shuffle(self.active)
        return chosen

    def ended(self) -> None:
        self.active = list(range(self.slots))
        path = storetable.table_path(self.directory, "s")
        assert path
        table = memoryview(path.read_bytes() if path.exists() else b"").cast("Q")
        rows = [storetable.Row.of(word) for word in table[storetable.TABLE:][:self.slots]]
        if rows and self.loses and self.random.random() < 0.5:
            shelf = self.random.randrange(len(rows))
            for file in self.directory.glob(f"own-shelf-*-*-{shelf}-*-*"):
                file.unlink()
                self.gone = True
                self.counts["files lost"] += 1
        self.whole = not self.gone and all(row.keeper >= 0 for row in rows)

    def said(self, text: str) -> None:
        """Law: a store begins empty only if a shelf had no keeper when all places died, or no file
        behind that."""
        if "begins empty" in text:
            assert not self.whole, text
            self.counts["empty"] += 1
            self.history.clear()
            self.begun.clear()

    # -- the root
    def main(self) -> None:
        try:
            self.places_of_work: dict[int, int] = {}
            self.store = stores.ResilientStore(self._living(), name="s")
            part = self.store._part
            if not self._broken() and len(self.active) == len(part.table.rows()):
                assert list(self.store.seats) == self.active
            again = True
            while True:
                if again or self._broken():
                    try:
                        again = True
                        self.active = self._living()
                        self.store.recover(self.active)
                        again = False
                        self.counts["recovered"] += 1
                        self._start(part)
                    except DeadPlaceException:
                        self.counts["interrupted"] += 1
                        continue
                again = len(self.active) < self.slots and self.random.random() < 0.5
                until = self.clock + self.random.randrange(300)
                self._wait(again, until)
                if not (again or self.working() or self._broken()):
                    if self.left and self.random.random() < 0.5:
                        self.pause()
                        continue
                    self.check()
                    self.over = self.over or "ok"
                    return
        except LostShelves as error:
            self._check_lost(error)
            self.over = "lost"

    def _wait(self, again: bool, until: int) -> None:
        assert self.running
        self.running.wait(lambda: not self.working() or self._broken()
                          or (again and until < self.clock))

    def _broken(self) -> bool:
        return any(place in self.told for place in self.active)

    def _living(self) -> list[int]:
        """The active places, with reserves in the places of the dead."""
        reserves = [p for p in self.everyone if p not in self.active and p not in self.told
                    and p != self.root]
        found = []
        for place in self.active:
            if place not in self.told:
                found.append(place)
            elif reserves and self.random.random() >= self.shrink:
                found.append(reserves.pop(0))
        if reserves and len(found) < self.slots and self.random.random() < 0.5:
            found.append(reserves.pop(0))
            self.counts["grown"] += 1
        return found

    def _start(self, part: Any) -> None:
        for shelf, place in enumerate(part.table.seats()):
            if place >= 0 and self.places_of_work.get(shelf) != place:
                self.places_of_work[shelf] = place
                for _ in range(2):
                    data = pickle.dumps(self.store)
                    self.spawn(self.places[place], lambda d=data: self.work(d)).working = True

    # -- workers
    def work(self, data: bytes) -> None:
        store = pickle.loads(data)
        part = store._part
        generation = 0
        for _ in range(self.random.randrange(2, 9)):
            self.pause()
            try:
                store.get("x")
                shelf, generation = part.own_shelf(), part.generation
                self._one(store, part, shelf)
            except DeadPlaceException:
                self.counts["DPE"] += 1
                self.running.wait(  # type: ignore[union-attr]
                    lambda g=generation: part.table.get(0) != g or self.over != "")
                if self.over:
                    break
            except LostShelves:
                break
            except FtrmaError as error:
                assert "has no shelf" in str(error), error
                break

    def _one(self, store: Any, part: Any, shelf: int) -> None:
        what = self.random.choice(CALLS)
        self.counts[what] += 1
        key = self.random.choice("xy")
        other = self.random.randrange(len(part.rows))
        if what == "get":
            self._read(shelf, key, lambda: store.get(key))
        elif what == "remote":
            self._read(other, key, lambda: store.get_remote(other, key))
        elif what == "set":
            self._write(shelf, {key: self._next()}, lambda w: store.set(key, w[key]))
        elif what == "set_all":
            value = self._next()
            self._write(shelf, {"x": value, "y": value}, store.set_all)
        elif what == "delete":
            self._write(shelf, {key: None}, lambda w: store.delete(key))
        elif what == "put":
            self._write(other, {key: self._next()},
                        lambda w: store.set_remote(other, key, w[key]), sure=other == shelf)
        elif what == "two":
            self._two(store, shelf, other)
        elif what == "tx":
            self._transaction(store, shelf)
        else:
            self._move(store, shelf, other if what == "steal" and other != shelf else -1)

    def _next(self) -> int:
        self.value += 1
        return self.value

    def _read(self, shelf: int, key: str, call: Any) -> None:
        called = self.clock
        value = call()
        self.clock += 1
        self.history[shelf, key].append(Operation(called, self.clock, False, value))

    def _write(self, shelf: int, writes: dict[str, Any], call: Any, sure: bool = True) -> None:
        """Record a write; one that a death has ended may have happened, if it is not sure."""
        called, returned, done = self.clock, NEVER, True
        try:
            call(writes)
            self.clock += 1
            returned = self.clock
        except DeadPlaceException:
            done = not sure
            raise
        finally:  # also if this place is dead
            if done:
                for key, value in writes.items():
                    self.history[shelf, key].append(Operation(called, returned, True, value))

    def _transaction(self, store: Any, shelf: int) -> None:
        value, called, returned = self._next(), self.clock, NEVER
        seen: dict[str, Any] = {}
        try:
            with store.transaction() as tx:
                called = self.clock
                for key in "xy":
                    seen[key] = tx.get(key)
                    self.pause()
                for key in "xy":
                    tx.set(key, value)
                    assert tx.get(key) == value
                if self.random.random() < 0.2:
                    store.get_remote((shelf + 1) % len(store._part.rows), "x")
            self.clock += 1
            returned = self.clock
        except DeadPlaceException:
            self.clock += 1
            for key, was in seen.items():
                self.history[shelf, key].append(Operation(called, self.clock, False, was))
            seen = {}
            raise
        finally:  # also if this place is dead
            if len(seen) == 2:
                for key, was in seen.items():
                    self.history[shelf, key].append(Operation(called, returned, True, value, was))

    def _move(self, store: Any, shelf: int, other: int) -> None:
        with store.transaction() as tx:
            first = tx.get("bag") is None
            bag = set(range(TOKENS * shelf, TOKENS * (shelf + 1))) if first else set(tx.get("bag"))
            names = tx.keys()
            for key in filter(lambda name: name.startswith("loot"), names):
                bag |= set(tx.get(key))
                tx.delete(key)
                self.pause()
            half = set()
            if other >= 0:
                half = set(self.random.sample(sorted(bag), (len(bag) + 1) // 2))
                tx.set_remote(other, f"loot {shelf} {self._next()}", sorted(half))
            tx.set("bag", sorted(bag - half))
            self.pause()
        if first:
            self.begun.add(shelf)

    def _two(self, store: Any, shelf: int, other: int) -> None:
        """Write a key of this shelf and one of another, by one `set2`."""
        mine, theirs = self._next(), self._next()
        called = self.clock
        key, key2 = self.random.choice("xy"), self.random.choice("xy")
        if other == shelf and key == key2:
            return
        wait, first, second = self.random.random() < 0.7, NEVER, NEVER
        committed = True
        try:
            store.set2(key, mine, other, key2, theirs, wait=wait)
            self.clock += 1
            first = self.clock
            second = self.clock if wait or other == shelf else NEVER
        except DeadPlaceException as error:
            committed = isinstance(error, DeadPlaceAfterCommit)
            raise
        finally:
            if committed:
                self.history[shelf, key].append(Operation(called, first, True, mine))
                self.history[other, key2].append(Operation(called, second, True, theirs))

    # -- what must hold
    def check(self) -> None:
        """Look at all shelves, once all is quiet."""
        table = self.store._part.table
        have: Counter[int] = Counter()
        kept = [self.store._part.path(shelf, row)
                for shelf, row in enumerate(table.rows()) if row.keeper >= 0]
        found = {path.name[:-1] for path in self.directory.glob("own-shelf-*")}
        assert found == {path.name for path in kept}, found
        for shelf, row in enumerate(table.rows()):
            part = self.places[row.holder].stores.part(0, "s")
            state = part.held[shelf]
            if row.keeper >= 0:
                file = shelves.read(part.path(shelf, row))
                for name in ("values", "intents", "applied", "number"):
                    assert getattr(file, name) == getattr(state, name), (shelf, name)
            for number, (to, _, _, _) in state.intents.items():
                there = self.places[table.row(to).holder].stores.part(0, "s").held[to]
                assert there.applied.get(shelf, 0) >= number, f"intent {shelf}.{number}"
            for (_, key), value in state.values.items():
                if key == "bag" or key.startswith("loot"):
                    have.update(decode(value))
            for key in "xy":
                value = state.values.get(("", key))
                self.clock += 1
                self.history[shelf, key].append(Operation(
                    self.clock, self.clock, False, value if value is None else decode(value)))
        filled = {t // TOKENS for t in have}
        assert set(have) == {TOKENS * s + i for s in filled for i in range(TOKENS)}, have
        assert set(have.values()) <= {1}, have
        assert self.begun <= filled

    def _check_lost(self, error: LostShelves) -> None:
        for shelf in error.lost:
            row = self.store._part.table.row(shelf) if hasattr(self, "store") else None
            if row:
                assert row.keeper < 0 or row.keeper in self.told
                assert row.holder in self.told

    def check_histories(self) -> None:
        for (shelf, key), history in self.history.items():
            assert is_linearizable(history), (shelf, key, sorted(history))
