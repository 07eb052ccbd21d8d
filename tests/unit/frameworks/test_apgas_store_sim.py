"""The resilient store: histories of each key are linearizable, and nothing is lost, over deaths.

Places in one process run random programs of all calls of the store, in an order that a number
chooses, while places die at waits and at named places of the code, one after the other and in the
middle of recoveries (`storeprogram`, `storesim`). The root replaces the dead by reserves, or goes
on with fewer.

Tokens move between shelves by `set2`: each is there exactly once in the end.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from typing import Any

import pytest
import storesim
from storeprogram import Program
from storesim import Simulation
from tiers import tiers

from ftrma.frameworks.apgas import shelf as shelves
from ftrma.frameworks.apgas import store as stores
from ftrma.frameworks.apgas import storerecovery, storetable
from ftrma.frameworks.apgas.errors import DeadPlaceException
from ftrma.frameworks.apgas.shelf import State
from ftrma.frameworks.apgas.storeerrors import Refused
from ftrma.frameworks.apgas.storepart import Part
from ftrma.frameworks.apgas.storetable import Table
from ftrma.frameworks.apgas.values import decode, encode

SEED = int(os.environ.get("FTRMA_STORE_SEED", 1))
RUNS = int(os.environ.get("FTRMA_STORE_RUNS", 40))


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
