"""The supersteps of all slots in one process, killed at random: `graph.superstep` by a model.

Each slot is a thread; `Away` stands for what is between them. A kill takes some slots' memory and
interrupts all, at any place of any step; then all enter again, with what that has left them. The
result has to be that of the run without failure, in each bit. A rule that is left out has to show.
"""

from __future__ import annotations

import functools
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from ftrma.graph import data, superstep
from ftrma.graph.data import Partition
from ftrma.graph.program import Context, Inbox, Sending, VertexProgram, Vertices
from ftrma.graph.superstep import RECOVERIES, Lane, Slot

SLOTS, STEPS, EVERY = 4, 11, 3
PLACES = ("recover", "compute", "emit", "exchange", "sync", "meet", "stage", "staged", "commit")


class Mixing(VertexProgram):
    """Everything depends on everything: state, messages, step and the aggregate before."""

    fields: ClassVar = {"a": np.uint64, "b": float}
    message = np.uint64
    combine = np.add
    aggregates: ClassVar = {"sum": np.uint64}

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        old = v.a if ctx.step > 1 else v.ids.astype(np.uint64)
        v.a = (old * np.uint64(6364136223846793005) + inbox.values + ctx["sum"]
               + np.uint64(ctx.step)) ^ (old >> np.uint64(13))
        v.b = v.b / 3 + inbox.got + v.degree
        ctx.contribute("sum", v.a.sum())
        v.vote_to_halt(v.a % np.uint64(3) == 0 if ctx.step < STEPS else None)

    def emit(self, v: Vertices, ctx: Context) -> None:
        if ctx.step < STEPS:
            v.send(v.a ^ ctx["sum"], where=v.a % np.uint64(5) > 0)


entered: Counter[str] = Counter()


class Killed(BaseException):
    """Unwinds all slots."""


class Job:
    """What outlives slots' attempts: their memory, the checkpoints, and who kills."""

    def __init__(self, seed: int, deaths: int) -> None:
        self.dice = random.Random(seed)
        self.kept: list[dict[str, Any]] = [{} for _ in range(SLOTS)]
        self.versions: list[list[dict[str, Any]]] = [[{} for _ in range(SLOTS)]]
        self.staged: list[dict[str, Any]] | None = None
        self.lock = threading.Lock()
        self.deaths = deaths
        self.turn()

    def commit(self) -> None:
        """What all have staged, if they have."""
        with self.lock:
            if self.staged:
                self.versions.append(self.staged)
            self.staged = None

    def turn(self) -> None:
        """All enter; one of them is killed at a place and visit, and others with it. What was
        staged has been committed by then, or it is undone."""
        if self.dice.random() < 0.5:
            self.commit()
        self.staged = None
        self.board: list[Any] = [None] * SLOTS
        self.barrier = threading.Barrier(SLOTS)
        self.lanes: dict[tuple[int, int, int], Lane] = {}
        self.dead: set[int] = set()
        self.at: tuple[int, str, int] | None = None
        if self.deaths:
            self.deaths -= 1
            self.at = self.dice.randrange(SLOTS), self.dice.choice(PLACES), self.dice.randrange(9)


class Saved:
    """Entries of one slot: `put` what the next version has, `read` what the newest one had."""

    def __init__(self, job: Job, me: int) -> None:
        self.now = dict(job.versions[-1][me])
        self.copy = dict(self.now)

    def put(self, key: str, value: Any, kind: str = "value") -> None:
        self.now[key] = np.array(value)

    def read(self, key: str) -> Any:
        return self.copy[key]

    def drop(self, key: str) -> None:
        self.now.pop(key, None)
        self.copy.pop(key, None)

    def __contains__(self, key: str) -> bool:
        return key in self.copy


class Away:
    """Between slot `me` and the others."""

    def __init__(self, job: Job, me: int, saved: Saved, parts: Sequence[data.Part]) -> None:
        self.job, self.me, self.saved, self.parts = job, me, saved, parts
        self.visits: dict[str, int] = {}

    def place(self, name: str) -> None:
        self.visits[name] = self.visits.get(name, 0) + 1
        if self.job.at == (self.me, name, self.visits[name]):
            self.job.dead.add(self.me)
            self.job.barrier.abort()
            raise Killed
        if self.job.barrier.broken and self.job.dice.random() < 0.5:
            raise Killed  # the alarm is seen early, or at the next wait

    def pause(self) -> None:
        if self.job.barrier.broken:
            raise Killed

    def wait(self) -> None:
        try:
            self.job.barrier.wait(timeout=20)
        except threading.BrokenBarrierError:
            raise Killed from None

    def gather(self, value: Any) -> list[Any]:
        self.job.board[self.me] = value
        self.wait()
        found = list(self.job.board)
        self.wait()
        return found

    def send(self, step: int, sending: Sending, to: Sequence[bool]) -> None:
        for slot, wanted in enumerate(to):
            at = self.parts[self.me].to(slot)
            if wanted:
                self.job.lanes[self.me, slot, step % 2] = (sending.values[at].copy(),
                                                           sending.got[at].copy())

    def meet(self, step: int, partial: Any) -> list[Any]:
        found = self.gather(partial.copy())
        self.place("meet")
        return found

    def incoming(self, step: int) -> list[Lane]:
        nothing = np.zeros(0, np.uint64), np.zeros(0, bool)
        found = []
        for slot in range(SLOTS):
            at = self.parts[slot].to(self.me)
            none = np.resize(nothing[0], at.stop - at.start), np.zeros(at.stop - at.start, bool)
            found.append(self.job.lanes.get((slot, self.me, step % 2), none))
        return found

    def checkpoint(self) -> int:
        self.wait()
        self.job.commit()  # the one before
        self.place("stage")
        staged = self.gather(dict(self.saved.now))
        self.place("staged")
        version = len(self.job.versions)
        self.wait()
        self.saved.copy = dict(self.saved.now)
        if self.me == 0:
            self.job.staged = staged
        self.wait()
        self.place("commit")
        return version

    def committed(self) -> int:
        if self.job.dice.random() < 0.1:  # soon after
            self.job.commit()
        return len(self.job.versions) - 1


def attempt(job: Job, parts: Sequence[data.Part], rows: Sequence[Sequence[Any]], recovery: str,
            program: VertexProgram) -> list[Any]:
    """All slots enter once; what each returns, None where it was interrupted."""
    results: list[Any] = [None] * SLOTS
    errors: list[BaseException] = []

    def enter(me: int) -> None:
        saved = Saved(job, me)
        way = Away(job, me, saved, parts)
        try:
            for run in (1, 2):
                found = superstep.concluded(program, job.kept[me], saved, run, 7)
                if found is None:
                    slot = Slot(program, parts[me], 40, rows[me], recovery, job.kept[me], saved,
                                run, 7)
                    found = superstep.run(slot, way, every=EVERY, most=60)
                results[me] = found
        except Killed:
            results[me] = None
        except BaseException as error:
            errors.append(error)
            job.barrier.abort()

    threads = [threading.Thread(target=enter, args=(me,)) for me in range(SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def play(recovery: str, seed: int, deaths: int) -> list[Any]:
    """A job; its result."""
    dice = np.random.default_rng(seed % 7)
    graph = data.of_edges(40, dice.integers(0, 40, 150), dice.integers(0, 40, 150))
    partition = Partition("hash" if seed % 2 else "range", graph.n, SLOTS)
    parts = [graph.part(partition, me) for me in range(SLOTS)]
    rows = [[partition.local(part.targets[part.to(me)]) for part in parts] for me in range(SLOTS)]
    job, program = Job(seed, deaths), Mixing()
    for turn in range(deaths + 2):
        entered["again" if turn else "first"] += 1
        results = attempt(job, parts, rows, recovery, program)
        if all(result is not None for result in results):
            return results
        for me in range(SLOTS):
            if me in job.dead or (job.dead and job.dice.random() < 0.2):
                job.kept[me] = {}
        job.turn()
    raise AssertionError("it goes on and on")


def same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return all(a[name].tobytes() == b[name].tobytes()
               for a, b in zip(found, expected, strict=True) for name in ("a", "b"))


def wrong(recovery: str, seeds: range) -> int:
    """How many runs with failures go otherwise than the one without."""
    count = 0
    for seed in seeds:
        try:
            found = play(recovery, seed, 1 + seed % 4)
        except (KeyError, AssertionError, IndexError, ValueError):
            count += 1
        else:
            count += not same(found, expected(recovery, seed % 14))
    return count


@functools.cache
def expected(recovery: str, seed: int) -> list[Any]:
    return play(recovery, seed, 0)


@pytest.mark.parametrize("recovery", RECOVERIES)
def test_every_failure_is_recovered(recovery: str) -> None:
    """Law: up to four failures of several slots each, at any place: same bits, in all ways."""
    before = entered["again"]
    assert wrong(recovery, range(30)) == 0
    assert entered["again"] - before > 20, "hardly anybody was killed"
    assert all(same(expected(recovery, seed), expected("hwcp", seed)) for seed in range(14))


@pytest.mark.long
@pytest.mark.parametrize("recovery", RECOVERIES)
def test_many_failures_are_recovered(recovery: str) -> None:
    """Law: the same of many more."""
    assert wrong(recovery, range(30, 1030)) == 0


def newest(slot: Slot, i: int) -> dict[str, Any]:
    finals = [int(key.split()[2]) for key in slot.kept if key.startswith(f"{slot.run} final ")]
    final = slot.get(f"final {max(finals)}")
    return {name: final[name] for name in slot.program.aggregates}


def from_logs_alone(slot: Slot, i: int) -> Sending:
    if i > slot.step:
        return slot._compute(i)
    fields = {name: slot.get(f"log {i} field {name}") for name in slot.program.fields}
    return slot._emit(i, fields, slot.get(f"log {i} computed"))


def silent(slot: Slot, i: int) -> Sending:
    return slot._compute(i) if i > slot.step else Sending(slot.part, slot.program)


def fully(slot: Slot) -> tuple[int, int]:
    full = int(slot.get("full")) if slot.has("step") else superstep.FRESH
    if full != superstep.FRESH:
        slot.keep({"step": full})
    return full, full


RULES: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "messages are emitted with F of the step before": (Slot, "before", newest),
    "the checkpoint's copy is the log of its step": (Slot, "outgoing", from_logs_alone),
    "who has a step behind it sends again": (Slot, "outgoing", silent),
    "F is the survivors'": (Slot, "finals", lambda slot: []),
    "a step that is partially committed is not computed again": (Slot, "level", fully),
    "logs stay until the checkpoint is committed": (Away, "committed", lambda way: 1 << 30),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: left out, it shows."""
    monkeypatch.setattr(*RULES[rule])
    assert any(wrong("lwlog", range(seed, seed + 5)) for seed in range(0, 60, 5))
