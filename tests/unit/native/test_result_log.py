"""The result log: what repeats is counted, and a replay is told all of it.

Law: wherever a slot dies, between any two instructions, its replacement is told for each event up
to the horizon what that event had learned, bit for bit and nothing else; and goes on from there.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from resultlog import CALL, REPEAT, RESULT, Slot, apart

pytestmark = pytest.mark.full

SMALL = [1, 4, 8, 8, 8, 16, 64, 65, 100]
LARGE = [1024, 1025, 3000, 20000]
Loop = list[tuple[int, list[bytes]]]


class Program:
    """Makes events as programs do: loops that repeat mostly what they did, and marks."""

    def __init__(self, slot: Slot, seed: int) -> None:
        self.slot, self.random = slot, random.Random(seed)

    def value(self) -> bytes:
        size = self.random.choice(LARGE if self.random.random() < 0.02 else SMALL)
        return bytes([self.random.randrange(3)]) * size

    def loop(self) -> Loop:
        calls = [self.random.randrange(10) for _ in range(self.random.choice([1, 2, 3, 20, 300]))]
        return [(call, [self.value() for _ in range(self.random.choice([0, 1, 1, 1, 3]))])
                for call in calls]

    def change(self, values: list[bytes]) -> list[bytes]:
        """Return what a round learns now in place of `values`."""
        if self.random.random() > self.changing:
            return values
        return [bytes([self.random.randrange(256)]) * len(v) for v in values]

    def round(self, loop: Loop) -> None:
        for i, (call, values) in enumerate(loop):
            loop[i] = call, self.change(values)
            if self.random.random() < 0.01:
                self.slot.begin(99)
                self.slot.other(self.random.choice([2, 4]), bytes(self.random.choice([8, 500])))
                self.slot.lib.ftrma_event_finish()
                self.slot.events.append((99, []))
            self.slot.event(call, *loop[i][1])

    def run(self) -> None:
        """Some loops, with checkpoints in between that keep the log within its budget."""
        for _ in range(self.random.randrange(1, 5)):
            self.changing = self.random.choice([0, 0.001, 0.02, 0.5])
            loop = self.loop()
            for _ in range(self.random.randrange(1, 400) // (1 + len(loop)) + 1):
                self.round(loop)
            if self.random.random() < 0.7 or sum(s for _, s in self.slot.records()) > 1 << 20:
                self.slot.commit()
                self.slot.mark(commit=self.random.random() < 0.5)

    def die(self) -> None:
        """Between two events, or in the middle of one that has learned something already."""
        if self.random.random() < 0.7:
            call, values = self.loop()[0] if self.random.random() < 0.5 else self.again()
            self.slot.begin(call)
            for value in values:
                self.slot.learn(value)

    def again(self) -> tuple[int, list[bytes]]:
        return next((e for e in reversed(self.slot.events) if e[1]), (0, []))


@pytest.mark.parametrize("seed", [
    *range(10), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(10, 40))])
def test_whatever_is_learned_is_told_again(tmp_path: Path, seed: int) -> None:
    """Law: for loops of any length that learn the same, something else or nothing, with
    checkpoints, committed or not, and deaths anywhere, also in a replay and right behind it."""

    def lives() -> None:
        slot = Slot(tmp_path, 4 << 20)
        program = Program(slot, seed)
        for _ in range(12):
            program.run()
            assert not slot.ctl.slots[0].marks[slot.version & 1].broken & 2, "the log ran over"
            program.die()
            if program.random.random() < 0.3:
                horizon = slot.prepare()
                first = slot.marks[slot.version]
                slot.replay(program.random.randint(first, horizon))
            slot.recover()
            slot.event(program.random.randrange(10), b"live")
            if program.random.random() < 0.5:
                slot.recover()
                slot.event(7)

    apart(lives)


# ---- what is counted --------------------------------------------------------------------------


def zeros(n: int) -> Loop:
    return [(call, [bytes(8)]) for call in range(n)]


POLLS: dict[str, tuple[Loop, int]] = {
    "the same call": (zeros(1), 2),
    "a flag that is set": ([(3, [b"\1\0\0\0"])], 2),
    "two answers by turns": ([(1, [b"a" * 8]), (2, [b"b" * 8])], 3),
    "with events that learn nothing": ([(0, []), (1, [bytes(8)]), (2, []), (3, [])], 2),
    "one cell of each of 50": ([(c, [bytes([c % 3]) * 8]) for c in range(50)], 200),
    "all of 1000 empty cells": (zeros(1000), 2),
    "a collective": ([(1, [b"x" * 4, b"y" * 4, b"x" * 4, bytes(100)])], 10),
    "a kilobyte": ([(1, [b"z" * 1024])], 3),
}


@pytest.mark.parametrize("name", POLLS)
def test_polling_takes_no_room(tmp_path: Path, name: str) -> None:
    """Law: rounds that learn what the round before learned leave no records but the first ones."""
    loop, most = POLLS[name]

    def polls() -> None:
        slot = Slot(tmp_path, 1 << 20)
        for n in range(20000 // len(loop)):
            for call, values in loop:
                slot.event(call, *values)
            if n == 5:
                few = len(slot.records())
        assert len(slot.records()) == few <= most
        slot.recover()

    apart(polls)


def test_no_record_is_larger_than_what_it_stands_for(tmp_path: Path) -> None:
    """Law: a program that repeats each answer once uses no more than one that repeats nothing."""

    def lives() -> None:
        slot = Slot(tmp_path, 1 << 20)
        for n in range(1000):
            slot.event(1, n.to_bytes(8, "little"))
            slot.event(1, n.to_bytes(8, "little"))
        (one,) = {size for kind, size in slot.records() if kind == RESULT}
        (more,) = {size for kind, size in slot.records() if kind == REPEAT}
        assert len(slot.records()) == 2000 and more < one
        slot.recover()

    apart(lives)


@pytest.mark.parametrize("life", ["too little", "too much", "too late"])
def test_a_second_life_that_learns_something_else(tmp_path: Path, life: str) -> None:
    """Law: counted results are found out that are not used, wanted beyond the last, or wanted in an
    event behind it."""

    def lives() -> None:
        slot = Slot(tmp_path, 1 << 20)
        for _ in range(10):
            slot.event(1, bytes(8))
        slot.event(2)
        slot.prepare()
        slot.events[8] = 1, [bytes(8)] * (life == "too much")
        slot.replay(10)
        wrong = 11
        if life == "too little":
            slot.replay_one(2, [])
            wrong = 12
        slot.lib.ftrma_event_begin(CALL, 2)
        slot.log.ftrma_result_read(slot.inner.new("char[8]"), 8)
        assert f"its event {wrong} was not what it had been" in slot.refusal()

    apart(lives)


# ---- between any two instructions --------------------------------------------------------------

TRACE_ME, SINGLE_STEP = 0, 9
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def states(slot: Slot, work: Callable[[], object]) -> list[bytes]:
    """Do `work` in a process of its own, one instruction after the other.

    Returns:
        All that a death can leave: what the slot shares, before and behind each change to it.
    """
    pid = os.fork()
    if pid == 0:
        libc.ptrace(TRACE_ME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        work()
        os._exit(0)
    os.waitpid(pid, 0)
    found = [slot.shared()]
    while True:
        assert libc.ptrace(SINGLE_STEP, pid, None, None) == 0, os.strerror(ctypes.get_errno())
        if os.WIFEXITED(os.waitpid(pid, 0)[1]):
            return found
        now = slot.shared()
        if now != found[-1]:
            found.append(now)


# Values that the events so far have learned, and that the one that dies learns.
LAST = {
    "a record": ([1, 2, 3], [4]),
    "a record in another chunk": (range(51), [51]),
    "a run begins": ([1, 2, 3], [3]),
    "a run begins in another chunk": (range(51), [50]),
    "counted": ([1, 2, 3, 3, 3], [3]),
    "a run ends": ([1, 2, 3, 3, 3], [4]),
    "counted twice": ([3, 3, 3], [3, 3]),
}


@pytest.mark.parametrize("name", LAST)
def test_a_death_between_any_two_stores(tmp_path: Path, name: str) -> None:
    """Law: the event's results are there if and only if it is complete."""
    before, learned = LAST[name]
    values = [bytes([v]) * 8 for v in learned]
    complete = []

    def lives() -> None:
        slot = Slot(tmp_path, 36864)
        for v in before:
            slot.event(1, bytes([v]) * 8)
        told = list(slot.events)
        for state in states(slot, lambda: slot.event(1, *values)):
            slot.share(state)
            slot.events = [*told, (1, values)]
            slot.recover()
            complete.append(len(slot.events) > len(told))
            slot.event(1, *values)
            slot.event(1, bytes(8))
            slot.recover()
            assert len(slot.events) == len(told) + complete[-1] + 2
            slot.event(1)
        assert len(complete) >= 6 and complete[-1] and complete == sorted(complete)

    apart(lives)
