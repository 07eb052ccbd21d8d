"""An agent is killed at any moment and replaced on the same ledger: everything is done once.

Origins are processes of their own (`agentorigin.py`); every wait has an end.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import agentorigin
import pytest
from agentorigin import COUNTER, LOCKED, OWN, OWN_WORDS, ROW, ROW_ELEMENTS, SWAPPED
from tiers import tiers
from wirenode import FIRST_WORD, PATIENCE_S, WINDOW, Node, Raw, User, message, served
from wirenode import engine as engine

from ftrma.host.key import VARIABLE
from ftrma.native import wire
from ftrma.native.wire import Failpoint, Kind, Lock, Op, Type

ORIGINS = 3
STEP_S = 20.0  # the slowest start of an agent on a busy machine
ONE = (1).to_bytes(8, "little")
ROWS = 16
# The second grant is an unlock, the 7th change the first half of an accumulate, the 4th half of a
# put one of two runs. Behind ROLES are the mirror's (`test_mirror`).
STEPS = [f"{place.name}:1" for place in Failpoint if place < Failpoint.ROLES] + [
    "GRANT:2", "LOCKED:2", "APPLY:7", "HALF:4"]


class Crowd:
    """Origins at work on a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        tests = Path(__file__).resolve().parents[1]
        environment = {**os.environ, VARIABLE: node.key.text(),
                       "PYTHONPATH": os.pathsep.join([str(tests), *sys.path])}
        self.processes = [
            subprocess.Popen([sys.executable, agentorigin.__file__, str(node.directory), str(i),
                              str(node.directory / f"result-{i}")], env=environment)
            for i in range(ORIGINS)
        ]

    def done(self) -> int:
        return sum(wire.number_of(self.node.ledger, i, 0) for i in range(ORIGINS))

    def progress(self, requests: int) -> None:
        """Wait until so many more have been done."""
        goal, deadline = self.done() + requests, time.monotonic() + STEP_S
        while self.done() < goal:
            assert time.monotonic() < deadline, "the origins hang"
            assert all(process.poll() is None for process in self.processes), "one has failed"
            time.sleep(0.0005)

    def stop(self) -> list[dict[str, Any]]:
        """Stop the origins; return what each was told."""
        (self.node.directory / "stop").touch()
        for process in self.processes:
            assert process.wait(STEP_S) == 0
        return [json.loads((self.node.directory / f"result-{i}").read_text())
                for i in range(ORIGINS)]

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.mark.parametrize("kills", tiers([20, 200], full=["20"]))
def test_killed_again_and_again(kills: int) -> None:
    """Law: whatever the agent is inside of when it is killed, every sum is exact, every old value
    was told to one origin, nothing is torn, no put is lost, and nobody hangs."""
    picked = random.Random(20140623)
    with served(origins=ORIGINS) as node, contextlib.closing(Crowd(node)) as crowd:
        for i in range(kills):
            agent = node.agent
            assert agent
            crowd.progress(picked.randrange(1, 300))
            if i % 2:  # the next one waits already
                node.start()
                crowd.progress(picked.randrange(1, 100))
            time.sleep(picked.random() / 1000)
            os.kill(agent.pid, signal.SIGKILL)
            assert agent.wait(PATIENCE_S) == -signal.SIGKILL
            if i % 2 == 0:
                node.start()
        crowd.progress(50)
        told = crowd.stop()
        assert wire.agents_of(node.ledger) == kills + 1
        check(node, told)
    print(f"{kills} kills, {sum(len(t['added']) for t in told)} fetch-and-adds, longest pause "
          f"{1000 * max(t['longest_s'] for t in told):.0f} ms")


@pytest.mark.parametrize("times", tiers([60, 600], full=["60"]))
def test_held_and_killed(times: int) -> None:
    """Law: the same where the target goes on HOLD and live again all the time, and agents are
    killed before, amid and after that."""
    picked = random.Random(2014)
    with served(origins=ORIGINS + 1) as node, contextlib.closing(Crowd(node)) as crowd:
        leader = User(node, ORIGINS, patience_s=STEP_S)
        crowd.progress(50)
        for i in range(times):
            agent = node.agent
            assert agent
            if i % 10 == 9:
                node.start()
                if picked.random() < 0.5:
                    agent.kill()
            leader.origin.hold(0, hold=True)
            time.sleep(picked.random() / 300)
            if i % 10 == 9:
                agent.kill()
                agent.wait(PATIENCE_S)
            leader.origin.hold(0, hold=False)
            if picked.random() < 0.5:
                crowd.progress(picked.randrange(1, 60))
        crowd.progress(50)
        check(node, crowd.stop())
        leader.close()


def check(node: Node, told: list[dict[str, Any]]) -> None:
    """The law of the crowd: what was told and what lies there belong together."""
    words = node.part(dtype="i8")
    added = sorted(old for t in told for old in t["added"])
    assert added == list(range(len(added))) and words[COUNTER // 8] == len(added)
    assert words[SWAPPED // 8] == sum(t["swapped"] for t in told)
    assert words[LOCKED // 8] == sum(t["locked"] for t in told)
    rows = words[ROW // 8 : ROW // 8 + ROW_ELEMENTS].tolist()
    assert rows == [sum(t["rows"] for t in told)] * ROW_ELEMENTS
    for slot, t in enumerate(told):
        at = OWN // 8 + OWN_WORDS * slot
        assert words[at : at + OWN_WORDS].tolist() == t["own"]
        assert not t["torn"] and not t["lost"]
        assert t["acknowledged"] == t["puts"] and t["in_order"]


def access(user: User) -> list[object]:
    """Some accesses of every kind, and what they tell."""
    told: list[object] = []
    for i in range(3):
        user.put(512 + 64 * i, bytes([i + 1] * 64))
    user.origin.putv(0, WINDOW, [(768, 8), (784, 8)], ONE * 2)
    for _ in range(3):
        told.append(user.add(COUNTER))
    for compare in (0, 1, 7):
        told.append(user.origin.atomic(Kind.CAS, None, Type.U64, 0, WINDOW, SWAPPED,
                                       (compare + 1).to_bytes(8, "little"), compare)[3:])
    for _ in range(2):
        told.append(user.origin.atomic(Kind.ACC, Op.SUM, Type.I64, 0, WINDOW, ROW,
                                       ONE * ROWS)[3:])
    user.origin.lock(0, WINDOW)
    told.append(user.get(512, 300))
    user.put(LOCKED, ONE)
    user.origin.unlock(0, WINDOW)
    user.origin.lock(0, WINDOW, Lock.SHARED)
    user.origin.unlock(0, WINDOW, Lock.SHARED)
    user.origin.lock(0, WINDOW, Lock.CHANGE)
    user.origin.unlock(0, WINDOW, Lock.CHANGE)
    user.origin.set_word(0, WINDOW, FIRST_WORD + 8, 5)
    user.origin.flush(0)
    return told


@pytest.fixture(scope="module")
def undisturbed() -> tuple[list[object], bytes, list[int]]:
    """The accesses without a failure: what they tell, the part's content, their numbers."""
    with served() as node, contextlib.closing(User(node)) as user:
        told = access(user)
        return told, node.part().tobytes(), user.numbers()


@pytest.mark.parametrize("where", STEPS)
def test_killed_at_each_step(
    where: str, undisturbed: tuple[list[object], bytes, list[int]]
) -> None:
    """Law: between any two steps of a request the agent can be replaced, and origin and part have
    what they have without a failure."""
    with served(where) as node, contextlib.closing(User(node)) as user:
        first = node.agent
        node.reach()
        node.start()  # waits for the first one's end
        told = access(user)
        assert (told, node.part().tobytes(), user.numbers()) == undisturbed
        assert first and first.wait(PATIENCE_S) == -signal.SIGKILL
        assert wire.agents_of(node.ledger) == 2 and node.word(1) == 5


def test_a_change_that_is_not_done_is_not_seen() -> None:
    """Law: the next agent takes back what the one before was inside of, before it serves anybody;
    the origin's request is then done, once, and the answer of the first time told for ever."""
    add = message(Kind.ACC, ONE * ROWS, number=1, op=Op.SUM, type_=Type.I64, offset=ROW)
    with served("APPLY") as node:
        node.part(dtype="i8")[ROW // 8 : ROW // 8 + ROWS] = 41
        raw = Raw(node, 0)
        raw.send(add)
        assert node.ended() == -signal.SIGKILL
        half = node.part(dtype="i8")[ROW // 8 : ROW // 8 + ROWS].tolist()
        assert half == [42] * (ROWS // 2) + [41] * (ROWS // 2)  # it was killed where it hurts
        raw.close()
        node.start()
        user = User(node, 1)
        assert user.get(ROW, 8 * ROWS) == (41).to_bytes(8, "little") * ROWS
        raw = Raw(node, 0)
        first, second = raw.ask(add), raw.ask(add)
        assert first.payload == second.payload
        assert first.payload[24:32] == (41).to_bytes(8, "little")
        user.add(ROW)
        raw.close()
        assert node.agent
        node.agent.kill()
        node.ended()
        node.start()
        raw = Raw(node, 0)
        assert raw.ask(add).payload == first.payload
        assert user.get(ROW, 16) == (43).to_bytes(8, "little") + (42).to_bytes(8, "little")
        raw.close()
        user.close()


def test_a_killed_agent_leaves_locks_with_those_who_have_them() -> None:
    """Law: who holds a lock holds it over the agent's death; who waits for it asks again, and gets
    it after the unlock."""
    with served() as node:
        holder, waiter = User(node, 0), User(node, 1)
        holder.origin.lock(0, WINDOW)
        waiter.origin.set_timeout(100)
        with pytest.raises(wire.Unfinished):
            waiter.origin.lock(0, WINDOW)
        assert node.agent
        node.agent.kill()
        node.ended()
        node.start()
        node.reach()
        with pytest.raises(wire.Unfinished):
            waiter.origin.finish(0)
        holder.origin.unlock(0, WINDOW)
        waiter.origin.set_timeout(int(1000 * PATIENCE_S))
        waiter.origin.finish(0)
        waiter.origin.unlock(0, WINDOW)
        holder.close()
        waiter.close()


def test_killed_amid_a_rollback() -> None:
    """Law: an agent that is killed with new roles in force and numbers not forgotten is followed by
    one that forgets them, once."""
    with served("ROLES") as node:
        user, leader = User(node, 0), User(node, 1)
        for _ in range(3):
            user.add(COUNTER)
        user.origin.lock(0, WINDOW)
        node.start()
        leader.origin.tell_roles(0, 1, forget=True)
        assert wire.agents_of(node.ledger) == 2
        assert wire.number_of(node.ledger, 0, 0) == 0
        leader.origin.take_roles(1, forget=True)
        leader.origin.lock(0, WINDOW)
        leader.origin.unlock(0, WINDOW)
        user.origin.take_roles(1, forget=True)
        assert user.add(COUNTER) == 3 and wire.number_of(node.ledger, 0, 0) == 1
        user.close()
        leader.close()


def test_an_origin_is_killed_amid_its_work() -> None:
    """Law: an origin's death ends nothing but its own connection; the others' work is exact, and
    whatever it did is whole: all that it had a number for, and nothing above."""
    with served(origins=ORIGINS) as node, contextlib.closing(Crowd(node)) as crowd:
        crowd.progress(500)
        victim = crowd.processes[0]
        victim.kill()
        victim.wait()
        later = User(node, 0, 1)
        done = later.origin.number(0)
        later.origin.unlock(0, WINDOW)  # it may have held it, and the others wait
        crowd.processes = crowd.processes[1:]
        crowd.progress(500)
        assert wire.number_of(node.ledger, 0, 0) == done + 1  # nothing of the dead one's came late
        words = node.part(dtype="i8")
        assert len(set(words[ROW // 8 : ROW // 8 + ROW_ELEMENTS].tolist())) == 1
        (node.directory / "stop").touch()
        for process in crowd.processes:
            assert process.wait(STEP_S) == 0
        told = [json.loads((node.directory / f"result-{i}").read_text()) for i in (1, 2)]
        added = [old for t in told for old in t["added"]]
        assert len(set(added)) == len(added) and max(added) < words[COUNTER // 8]
        for slot, t in enumerate(told, 1):
            at = OWN // 8 + OWN_WORDS * slot
            assert words[at : at + OWN_WORDS].tolist() == t["own"] and not t["torn"]
        later.close()
