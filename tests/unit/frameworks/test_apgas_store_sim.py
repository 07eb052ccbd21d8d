"""The resilient store: histories of each key are linearizable, and nothing is lost, over deaths.

Places in one process run random programs of all calls of the store, in an order that a number
chooses, while places die at waits and at named places of the code, one after the other and in the
middle of recoveries (`storesim`). The root replaces the dead by reserves, or goes on with fewer.

Tokens move between shelves by `set2`: each is there exactly once in the end.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter, defaultdict
from typing import Any

import pytest
import storesim
from linearizable import NEVER, Operation, is_linearizable
from storesim import Simulation
from tiers import tiers

from ftrma.frameworks.apgas import shelf as shelves
from ftrma.frameworks.apgas import store as stores
from ftrma.frameworks.apgas import storerecovery, storetable
from ftrma.frameworks.apgas.errors import DeadPlaceException
from ftrma.frameworks.apgas.shelf import State
from ftrma.frameworks.apgas.storeerrors import DeadPlaceAfterCommit, LostShelves, Refused
from ftrma.frameworks.apgas.storepart import Part
from ftrma.frameworks.apgas.storetable import Table
from ftrma.frameworks.apgas.values import decode, encode
from ftrma.host.errors import FtrmaError

SEED = int(os.environ.get("FTRMA_STORE_SEED", 1))
RUNS = int(os.environ.get("FTRMA_STORE_RUNS", 40))
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


def play(seed: int, directory: Any, monkeypatch: Any, root_dies: bool,
         relaunches: int = 0, loses: bool = False) -> Program:
    choose = storesim.random.Random(seed)
    directory.mkdir()
    sim = Program(seed, directory, choose.choice([3, 4]), choose.choice([0, 1, 2, 3]),
                  deaths=choose.choice([0, 1, 2, 2, 3, 4]), root_dies=root_dies,
                  relaunches=relaunches, loses=loses)
    sim.patch(monkeypatch)
    sim.begin()
    sim.run()
    sim.check_histories()
    sim.close()
    return sim


# A kind says if the root dies, how often all places die at once and the job is launched again, and
# if files are lost then.
KINDS = [(False, 0, False), (True, 0, False), (True, 3, False), (True, 3, True)]


@pytest.mark.parametrize(("root_dies", "relaunches", "loses"),
                         tiers(KINDS, plain=["True-3-False"], others="full"),
                         ids=["others", "root", "all", "files"])
@pytest.mark.parametrize("block", tiers(range(12), plain=["0"], full=["1", "2"]))
def test_histories(block: int, root_dies: bool, relaunches: int, loses: bool, tmp_path: Any,
                   monkeypatch: Any) -> None:
    """Law: see above; and a place that dies is met in each part of the code."""
    total: Counter[str] = Counter()
    for seed in range(SEED + block * RUNS, SEED + (block + 1) * RUNS):
        try:
            sim = play(seed, tmp_path / str(seed), monkeypatch, root_dies, relaunches, loses)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        total += sim.counts
        total[sim.over] += 1
    assert len(os.listdir("/proc/self/fd")) < 600
    print(dict(sorted(total.items())))
    assert total["ok"] > RUNS // 3


# Rules, each of which is left out by a patch of the code.


def no_replay(patch: Any) -> None:
    patch.setitem(storerecovery.JOBS, "replay", lambda part, round_: None)


def no_freeze(patch: Any) -> None:
    patch.setitem(storerecovery.JOBS, "freeze", lambda part, round_: None)


def no_loss_told(patch: Any) -> None:
    patch.setattr(storerecovery.Recovery, "_refuse_loss", lambda *_: None)


def no_lock(patch: Any) -> None:
    patch.setattr(Part, "lock", lambda part: part.enter_access())


def no_table_copy(patch: Any) -> None:
    put = Table.put
    patch.setattr(Table, "put", lambda table, word, value: put(table, word, value) if
                  word < storetable.SEAT else table._words.store(table.base + word, value))


def applied_is_not_looked_at(patch: Any) -> None:
    apply = Part.inbox_of["apply"]

    def forgetful(part: Any, *message: Any) -> None:
        for state in part.held.values():
            state.applied = {}
        apply(part, *message)

    patch.setitem(Part.inbox_of, "apply", forgetful)


def intents_go_unanswered(patch: Any) -> None:
    commit = Part.commit

    def hasty(part: Any, shelf: int, change: Any) -> None:
        part.acked[shelf] |= set(part.held[shelf].intents)
        commit(part, shelf, change)

    patch.setattr(Part, "commit", hasty)


def forgotten_in_a_flip(name: str) -> Any:
    def leave_out(patch: Any) -> None:
        after = State.after

        def forgetful(state: Any, change: Any) -> Any:
            whole = after(state, change)
            setattr(whole, name, {})
            return whole

        patch.setattr(State, "after", forgetful)

    return leave_out


def messages_pass_transactions(patch: Any) -> None:
    def drain(part: Any) -> None:
        while part.inbox:
            source, what, rest = part.inbox.popleft()
            part.inbox_of[what](part, source, *rest)

    patch.setattr(Part, "drain", drain)


def files_stay(patch: Any) -> None:
    patch.setattr(Part, "sweep", lambda _: None)


RULES = {
    "no_replay": no_replay, "no_freeze": no_freeze, "no_loss_told": no_loss_told,
    "no_lock": no_lock, "no_table_copy": no_table_copy,
    "applied_is_not_looked_at": applied_is_not_looked_at,
    "intents_go_unanswered": intents_go_unanswered,
    "flip_without_intents": forgotten_in_a_flip("intents"),
    "flip_without_applied": forgotten_in_a_flip("applied"),
    "messages_pass_transactions": messages_pass_transactions, "files_stay": files_stay,
}


def files_stay_unfound(patch: Any) -> None:
    patch.setattr(Part, "place_with_file", lambda part, shelf, made: 0)


LAUNCHES = {"files_stay_unfound": files_stay_unfound}
LONG = {"no_freeze", "no_loss_told", "files_stay_unfound"}


@pytest.mark.parametrize("rule", tiers([*RULES, *LAUNCHES], nightly=LONG,
                                       quick=sorted({*RULES, *LAUNCHES} - LONG)))
def test_each_rule_is_needed(rule: str, tmp_path: Any, monkeypatch: Any) -> None:
    """Law: without the rule a law above does not hold."""
    {**RULES, **LAUNCHES}[rule](monkeypatch)
    for seed in range(1, 301):
        try:
            play(seed, tmp_path / str(seed), monkeypatch, True, 3 if rule in LAUNCHES else 0)
        except Exception as error:
            print(f"seed {seed}: {error}"[:300])
            return
    raise AssertionError("nothing fails")


def test_programs_after_each_other(tmp_path: Any, monkeypatch: Any) -> None:
    """Law: a store belongs to the program that has made it, over attempts; the next program of the
    same attempt begins with an empty one of that name."""
    sim = Simulation(SEED, tmp_path, 2, 0, deaths=0)
    sim.patch(monkeypatch)
    found = []

    def main() -> None:
        store = stores.ResilientStore([0, 1], "s")
        found.append([store.get_remote(shelf, "k") for shelf in (0, 1)])
        for shelf in (0, 1):
            store.set_remote(shelf, "k", shelf)
        found.append([store.get_remote(shelf, "k") for shelf in (0, 1)])
        dirty = [store._part.table.get(storetable.DIRTY + shelf) for shelf in (0, 1)]
        assert dirty == [1, 1]  # also in the place of another store's shelves

    for attempt in (1, 1, 2):
        sim.attempt = attempt
        for place in sim.places:
            place.enter()
        sim.spawn(sim.places[0], main)
        sim.run()
    assert found == [[None, None], [0, 1], [None, None], [0, 1], [0, 1], [0, 1]]


class Alone:
    """A part of a store at place 1, that a test asks what it wants; nobody else goes on.

    Shelf 0 has place 0, shelf 1 place 1; each keeps the other one's.
    """

    def __init__(self, directory: Any, patch: Any) -> None:
        self.sim = Simulation(SEED, directory, 2, 1, deaths=0)
        self.sim.patch(patch)
        self.sim.spawn(self.sim.places[0], lambda: stores.ResilientStore([0, 1], "s"))
        self.sim.run()
        self.place = self.sim.places[1]
        self.part = self.place.stores.part(0, "s")
        self.sim.slow = 0
        assert self.part.is_open()

    def take(self, what: str, *rest: Any) -> tuple[Any, ...]:
        """Take a message of place 0; the answer."""
        with self.sim.be(self.place):
            self.part.take(0, what, rest)
        _, data = self.sim.rings[1, 0].pop()
        return tuple(pickle.loads(data)[1:])

    def apply(self, tag: int, replayed: bool, number: int) -> str:
        """Ask for an intent of shelf 0 to be applied; how it was answered."""
        return str(self.take("apply", tag, replayed, 0, number, 1, ("", "x"), encode(number))[0])

    def value(self) -> Any:
        kept = self.part.held[1].values.get(("", "x"))
        return kept and decode(kept)


def test_a_frozen_part_serves_nobody(tmp_path: Any, monkeypatch: Any) -> None:
    """Law: once frozen, a part neither applies nor writes nor reads, since another place may have
    loaded its shelf; it applies what the same recovery replays. Intents of other generations
    are refused, and so is what has waited for a transaction."""
    alone = Alone(tmp_path, monkeypatch)
    part, now = alone.part, alone.part.generation
    assert alone.apply(now, False, 1) == "applied" and alone.value() == 1
    assert alone.apply(now - 1, False, 2) == "refused"
    with alone.sim.be(alone.place):
        part.owner = -1  # a transaction is under way
        part.take(0, "apply", (now, False, 0, 2, 1, ("", "x"), encode(2)))
        assert not alone.sim.rings[1, 0]
        part.freeze(now + 1)
        part.owner = None
    assert pickle.loads(alone.sim.rings[1, 0].pop()[1])[1] == "refused"
    assert alone.apply(now, False, 2) == "refused"
    assert alone.apply(now, True, 2) == "refused"
    assert alone.take("write", 1, 1, {("", "x"): encode(5)}) == ("answer", 1, False, None)
    assert alone.take("read", 2, 1, ("", "x")) == ("answer", 2, False, None)
    assert alone.value() == 1
    assert alone.apply(now + 1, True, 2) == "applied" and alone.value() == 2


@pytest.mark.parametrize("meanwhile", ["the keeper dies", "a recovery ends", "the file is gone"])
def test_a_file_that_is_removed_while_it_is_read(
    tmp_path: Any, monkeypatch: Any, meanwhile: str
) -> None:
    """Law: what was read of a copy counts only if the copy counted to the end; no place becomes the
    holder by a copy that did not."""
    alone = Alone(tmp_path, monkeypatch)
    part, sim = alone.part, alone.sim
    now, row = part.generation, part.row(0)

    def read(path: Any, far: Any) -> State:
        if meanwhile == "a recovery ends":
            part.table.put(storetable.GENERATION, now + 1)
            return State()
        sim.told.append(row.keeper)
        if meanwhile == "the keeper dies":
            return State()
        raise FileNotFoundError(path)

    monkeypatch.setattr(shelves, "read", read)
    with sim.be(alone.place):
        with pytest.raises(Refused if meanwhile == "a recovery ends" else DeadPlaceException):
            part.read_file(0)
        if meanwhile != "a recovery ends":
            sim.told.clear()
            with pytest.raises(DeadPlaceException):
                storerecovery.load(part, now + 1, 0, True, True)
            assert part.row(0) == part.table.row(0) == row and 0 not in part.held


def test_the_copy_of_a_word_comes_first(tmp_path: Any) -> None:
    """Law: whoever dies between the two stores has not shown others what the next attempt lacks."""
    class Failing(storesim.Words):
        def store(self, i: int, value: int) -> None:
            raise KeyboardInterrupt

    table = Table(storesim.Words(), 0, tmp_path / "table", make=True)
    table._words = Failing()
    with pytest.raises(KeyboardInterrupt):
        table.put(storetable.SEAT, 5)
    assert table.saved(storetable.SEAT) == 5


def test_a_table_of_before_is_closed(tmp_path: Any) -> None:
    """Law: a new attempt has the table of the one before, and opens it by a recovery."""
    table = Table(storesim.Words(), 0, tmp_path / "table", make=True)
    for word in (storetable.GENERATION, storetable.HALTED, storetable.SHELVES):
        table.put(word, 3)
    again = Table(storesim.Words(), 0, tmp_path / "table")
    again.renew()
    assert [again.get(word) for word in (storetable.GENERATION, storetable.HALTED,
                                         storetable.SHELVES)] == [0, 0, 3]


def test_all_holders_are_frozen(tmp_path: Any, monkeypatch: Any) -> None:
    """Law: a living holder that is no longer active is frozen, too, before its shelf is loaded."""
    asked: list[list[tuple[int, str]]] = []
    call = storerecovery.Recovery._call

    def noted(recovery: Any, jobs: Any) -> None:
        asked.append([(job.place, job.what) for job in jobs])
        call(recovery, jobs)

    monkeypatch.setattr(storerecovery.Recovery, "_call", noted)
    alone = Alone(tmp_path, monkeypatch)
    asked.clear()
    recovery = alone.sim.places[0].stores.led[0]
    alone.sim.spawn(alone.sim.places[0], lambda: recovery.run([0, 2]))
    alone.sim.run()
    assert asked[0] == [(0, "freeze"), (1, "freeze"), (2, "freeze")]
    assert (2, "load") in asked[1]
