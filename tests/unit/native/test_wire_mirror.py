"""The mirror: files that agents keep equal on all nodes.

The agents are real processes; a test stores and rings as processes of three nodes would. Laws about
the death of agents are in `faults.test_mirror`; who is let in is in `test_mirror_door`.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mirrornodes import (
    ALARM,
    BELL,
    CALM,
    DATA,
    FLAGS,
    HOT,
    MANY,
    MANY_WORDS,
    PATIENCE_S,
    Mirrored,
    agree,
    mirrors,
    settle,
    wait_until,
)
from wirenode import Raw, message
from wirenode import engine as engine

from ftrma.native.wire import Kind

ROUNDS = 150  # of a writer whose values come in several messages
LOOPS = 100_000  # of one who stores two words


@pytest.fixture(scope="module")
def nodes(engine: str) -> Iterator[list[Mirrored]]:
    """Three nodes for tests that leave no alarm pending."""
    with mirrors() as made:
        yield made


def test_values_travel(nodes: list[Mirrored]) -> None:
    """Law: what is stored on one node is seen on all others, be it the hub's or a spoke's, and what
    was stored before the nodes came together, too."""
    for node in nodes:
        node.store(DATA + node.number, 100 + node.number)
    for node in nodes:
        for other in nodes:
            other.awaits(DATA + node.number, 100 + node.number)
    agree(nodes)


def test_conflicts_end_in_one_value(nodes: list[Mirrored]) -> None:
    """Law: whatever several nodes store in the same words at once, in the end all nodes have the
    same, which is the last that one of them has stored."""
    last: list[dict[int, int]] = [{} for _ in nodes]

    def write(node: Mirrored) -> None:
        picked = random.Random(node.number)
        for i in range(3000):
            word = DATA + picked.randrange(8)
            last[node.number][word] = 10 * i + node.number
            node.store(word, 10 * i + node.number)

    threads = [threading.Thread(target=write, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle(nodes)
    agree(nodes)
    for word in range(DATA, DATA + 8):
        assert int(nodes[0].words[word]) in {each[word] for each in last}


def test_a_spokes_change_that_was_not_sent_stays(nodes: list[Mirrored]) -> None:
    """Law: what a process has stored, and its agent has not seen yet, is not stored over by what
    comes, and is ordered behind it."""
    hub, spoke, other = nodes
    assert spoke.agent
    spoke.agent.send_signal(signal.SIGSTOP)
    hub.store(DATA + 40, 5)
    other.awaits(DATA + 40, 5)
    hub.store(DATA + 41, 5)
    other.awaits(DATA + 41, 5)  # so the 5 before was sent to both
    spoke.words[DATA + 40] = 6
    spoke.agent.send_signal(signal.SIGCONT)
    for node in nodes:
        node.awaits(DATA + 40, 6)
    settle(nodes)
    assert [int(node.words[DATA + 40]) for node in nodes] == [6] * 3


@pytest.mark.full
@pytest.mark.parametrize("source", [
    0, pytest.param(1, marks=pytest.mark.nightly)], ids=["hub", "spoke"])
def test_what_is_published_is_seen_behind(nodes: list[Mirrored], source: int) -> None:
    """Law: a word that is listed early is not seen new, on any node, before what was stored before
    it and is listed later."""
    flag, data, stop = FLAGS + source, DATA + 8 + source, threading.Event()
    torn: list[tuple[int, int, int]] = []

    def watch(node: Mirrored) -> None:
        while not stop.is_set() and not torn:
            seen = int(node.words[flag])
            if (late := int(node.words[data])) < seen:
                torn.append((node.number, seen, late))

    watchers = [threading.Thread(target=watch, args=(node,))
                for node in nodes if node.number != source]
    for thread in watchers:
        thread.start()
    for i in range(1, LOOPS + 1):
        nodes[source].words[data] = i
        nodes[source].words[flag] = i
        if i % 4 == 0:
            nodes[source].ring()
    for node in nodes:
        node.awaits(flag, LOOPS)
    stop.set()
    for thread in watchers:
        thread.join()
    assert not torn


@pytest.mark.plain
@pytest.mark.parametrize("source", [0, 1], ids=["hub", "spoke"])
def test_several_messages_keep_the_order(nodes: list[Mirrored], source: int) -> None:
    """Law: the same where what was stored before needs several messages."""
    node, others = nodes[source], [node for node in nodes if node.number != source]
    flag, base = FLAGS + 2 + source, 1000 * source
    for i in range(base + 1, base + ROUNDS + 1):
        node.words[MANY : MANY + MANY_WORDS] = i
        node.store(flag, i)
        if i % 3 == 0:
            continue  # another one comes amid this one
        for other in others:
            deadline = time.monotonic() + PATIENCE_S
            while (seen := int(other.words[flag])) < i:
                assert time.monotonic() < deadline
                assert seen == 0 or other.words[MANY : MANY + MANY_WORDS].min() >= seen
            assert other.words[MANY : MANY + MANY_WORDS].min() >= i
    settle(nodes)


def test_bells_ring(nodes: list[Mirrored]) -> None:
    """Law: where something has come, the bells of the node are rung; they are not mirrored."""
    before = [int(node.words[BELL]) for node in nodes]
    nodes[1].store(DATA + 20, before[0] + 1000)
    for node in (nodes[0], nodes[2]):
        wait_until(lambda n=node: int(n.words[BELL]) > before[n.number], "no bell")
    settle(nodes)
    nodes[1].words[BELL] = 77
    settle([nodes[1], nodes[0]])
    assert int(nodes[0].words[BELL]) != 77


@pytest.mark.plain
def test_an_idle_agent_sleeps(nodes: list[Mirrored]) -> None:
    """Law: while nothing is stored no agent computes."""
    settle(nodes)
    before = [node.ticks() for node in nodes]
    threading.Event().wait(1.0)
    assert [node.ticks() for node in nodes] == before


# ---- the alarm ------------------------------------------------------------------------------


def test_the_alarm_is_the_maximum(nodes: list[Mirrored]) -> None:
    """Law: of several alarms raised at once the highest stays, everywhere."""
    for i in range(100, 160, 3):
        for node in nodes:
            node.words[ALARM] = i + (node.number + i) % 3
        for node in nodes:
            node.ring()
        for node in nodes:
            node.awaits(ALARM, i + 2)
        settle(nodes)
        assert [int(node.words[ALARM]) for node in nodes] == [i + 2] * 3
    nodes[0].store(CALM, int(nodes[0].words[ALARM]))
    settle(nodes)


def test_the_alarm_pokes(nodes: list[Mirrored]) -> None:
    """Law: an alarm that comes of another node pokes who sleeps here, by its FIFO; one that was
    raised here, or that was known, does not; what is no FIFO is left alone."""
    ends = []
    for node in nodes:
        os.mkfifo(node.directory / "poke-1", 0o600)
        os.mkfifo(node.directory / "poke-nobody", 0o600)
        (node.directory / "poke-file").write_text("left alone")
        ends.append(os.open(node.directory / "poke-1", os.O_RDONLY | os.O_NONBLOCK))
    alarm = int(nodes[0].words[ALARM]) + 1
    nodes[1].store(ALARM, alarm)
    for node in nodes:
        node.awaits(ALARM, alarm)
    nodes[2].store(DATA + 21, alarm)  # while it is pending
    settle(nodes)
    nodes[0].store(CALM, alarm)
    settle(nodes)

    def poked(end: int) -> bytes:
        try:
            return os.read(end, 100)
        except BlockingIOError:
            return b""

    assert [len(poked(end)) for end in ends] == [1, 0, 1]
    for node, end in zip(nodes, ends, strict=True):
        os.close(end)
        assert (node.directory / "poke-file").read_text() == "left alone"
        for name in ("poke-1", "poke-nobody", "poke-file"):
            (node.directory / name).unlink()


def test_hot_words_travel_while_the_alarm_is_pending(nodes: list[Mirrored]) -> None:
    """Law: hot words are left alone until an alarm is pending; then all that have changed are sent,
    in front of the alarm itself, and what changes later without a ring, too; and once more in front
    of the word that ends it."""
    for turn, source in enumerate((1, 0, 2), 1):
        node, others = nodes[source], [n for n in nodes if n.number != source]
        before = [int(n.words[HOT + 1]) for n in others]
        alarm = int(node.words[ALARM]) + 1
        node.store(HOT + 1, 100 * alarm)
        node.store(HOT + 2, 100 * alarm)
        settle(nodes)
        assert [int(n.words[HOT + 1]) for n in others] == before, turn
        node.store(ALARM, alarm)
        for other in others:
            other.awaits(ALARM, alarm)
            assert int(other.words[HOT + 1]) == int(other.words[HOT + 2]) == 100 * alarm
        node.words[HOT + 1] = 100 * alarm + 1  # nobody rings
        for other in others:
            other.awaits(HOT + 1, 100 * alarm + 1)
        node.words[HOT + 3] = alarm
        node.store(CALM, alarm)
        for other in others:
            other.awaits(CALM, alarm)
            assert int(other.words[HOT + 3]) == alarm
        settle(nodes)
        node.store(HOT + 3, alarm + 5000)
        settle(nodes)
        assert [int(n.words[HOT + 3]) for n in others] == [alarm] * 2


def test_the_rest_of_an_agent_serves_as_ever(nodes: list[Mirrored]) -> None:
    """Law: an agent that mirrors answers origins, too, and takes words amid their requests."""
    raw = Raw(nodes[1], 2)
    for i in range(50):
        nodes[0].store(DATA + 30, 9000 + i)
        assert raw.ask(message(Kind.NUMBER, number=i + 1, generation=0)).kind == Kind.DONE
    nodes[1].awaits(DATA + 30, 9049)
    raw.close()


def peak_kb(node: Mirrored) -> int:
    """Memory that the node's agent has had at most."""
    assert node.agent
    status = Path(f"/proc/{node.agent.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1])


def test_a_spoke_that_sleeps_holds_nobody_up() -> None:
    """Law: a spoke that does not take what it is sent is cut off after some MiB; when it wakes, it
    has all at once."""
    with mirrors() as nodes:
        settle(nodes)
        hub, spoke = nodes[0], nodes[2]
        assert spoke.agent
        before = peak_kb(hub)
        spoke.agent.send_signal(signal.SIGSTOP)
        for i in range(1, 60):
            hub.words[MANY : MANY + MANY_WORDS] = i
            hub.store(FLAGS + 9, i)
            nodes[1].awaits(FLAGS + 9, i)
        assert peak_kb(hub) - before < 25_000  # 38 MB were for each
        spoke.agent.send_signal(signal.SIGCONT)
        spoke.awaits(FLAGS + 9, 59)
        agree(nodes)
