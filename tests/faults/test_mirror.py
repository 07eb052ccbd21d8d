"""The mirror survives its agents: hub and spokes are killed amid the writes of all nodes.

What a node's processes have stored is never taken back there, and in the end is everywhere.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from itertools import cycle

import numpy as np
import pytest
from mirrornodes import (
    ALARM,
    CALM,
    DATA,
    FEW,
    FLAGS,
    Mirrored,
    agree,
    mirrors,
    settle,
    wait_until,
)
from tiers import tiers

from ftrma.host.errors import FtrmaError
from ftrma.native import wire

SENT = 6  # its number among the words of struct ftrma_mirror_header
OWN = 16  # words of each node in a region
HUB, SPOKE = 0, 1
PLACES = [*((HUB, place) for place in ("SCAN", "MIRROR", "SHADOW", "FORWARD")),
          *((SPOKE, place) for place in ("SCAN", "MIRROR", "SHADOW"))]


class Writer(threading.Thread):
    """A process of a node, in what it writes: words of its own, each counts up."""

    def __init__(self, node: Mirrored) -> None:
        super().__init__()
        self.node, self.writes, self.stopped = node, 0, threading.Event()
        first = OWN * node.number
        self.last = {base + first + i: 0 for base in (FLAGS, DATA) for i in range(OWN)}
        self.wrong: list[tuple[int, int, int]] = []

    def run(self) -> None:
        picked = random.Random(self.node.number)
        words = list(self.last)
        while not self.stopped.is_set() and not self.wrong:
            word = picked.choice(words)
            if (found := int(self.node.words[word])) != self.last[word]:
                self.wrong.append((word, found, self.last[word]))
            self.last[word] += 1
            self.node.words[word] = self.last[word]
            if picked.random() < 0.7:
                self.node.ring()
            self.writes += 1
            if self.writes % 50 == 0:
                time.sleep(0.001)  # the agents need the cores, too


class Watcher(threading.Thread):
    """A process of a node, in what it reads of the others: no word goes back."""

    def __init__(self, node: Mirrored) -> None:
        super().__init__()
        self.node, self.stopped = node, threading.Event()
        self.wrong: list[tuple[int, int, int]] = []

    def run(self) -> None:
        seen = self.node.words[FLAGS : DATA + FEW].copy()
        while not self.stopped.wait(0.0002):
            now = self.node.words[FLAGS : DATA + FEW].copy()
            for at in (now < seen).nonzero()[0]:
                self.wrong.append((int(at) + FLAGS, int(now[at]), int(seen[at])))
            seen = now


@contextlib.contextmanager
def crowd(nodes: list[Mirrored]) -> Iterator[list[Writer]]:
    """All write and watch; then they stop, and all is everywhere."""
    writers = [Writer(node) for node in nodes]
    threads = [*writers, *(Watcher(node) for node in nodes)]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        for thread in threads:
            thread.stopped.set()
            thread.join()
    assert not [thread.wrong for thread in threads if thread.wrong]
    settle(nodes)
    agree(nodes)
    for writer in writers:
        for word, value in writer.last.items():
            assert int(nodes[0].words[word]) == value, (writer.node.number, word)


@pytest.mark.parametrize("kills", tiers([20, 200], full=["20"]))
def test_killed_again_and_again(kills: int) -> None:
    """Law: whoever of the agents is killed, at any moment, no word goes back anywhere, and in the
    end all nodes have what each writer has stored last."""
    picked = random.Random(20141117)
    with mirrors() as nodes, crowd(nodes) as writers:
        for _, victim in zip(range(kills), cycle((0, 1, 0, 2)), strict=False):
            goal = writers[victim].writes + picked.randrange(100, 2000)
            wait_until(lambda w=writers[victim], g=goal: w.writes > g, "a writer hangs")
            nodes[victim].kill()
            nodes[victim].start()
            if picked.random() < 0.3:
                continue  # the next one goes while this one comes
            nodes[victim].reach()
            word, other = FLAGS + OWN * victim, nodes[(victim + 1) % 3]
            before = int(nodes[victim].words[word])
            wait_until(lambda o=other, w=word, b=before: int(o.words[w]) >= b, "no mirror")


@pytest.mark.parametrize(("victim", "place", "count"), tiers(
    [(*place, count) for place in PLACES for count in (1, 7, 40)],
    plain=["0-SCAN-1", "1-SHADOW-7"],
    full=["0-MIRROR-1", "0-SHADOW-7"]))
def test_killed_at_a_place(victim: int, place: str, count: int) -> None:
    """Law: the same where the agent is killed between two of its steps, early and late."""
    kills = [f"{place}:{count}" if node == victim else None for node in range(2)]
    with mirrors(2, kills) as nodes, crowd(nodes) as writers:
        assert nodes[victim].ended() == -signal.SIGKILL
        nodes[victim].start()
        wait_until(lambda: min(w.writes for w in writers) > 300, "a writer hangs")


@pytest.mark.parametrize("place", tiers(
    ["MIRROR", "SHADOW", "FORWARD"], plain=["MIRROR"], others="full"))
def test_what_the_hub_was_killed_amid_is_taken_once(place: str) -> None:
    """Law: a message that the hub was killed amid counts as taken by the next one, which tells the
    others; what somebody answers to it is not stored over by the message once more."""
    with mirrors(3, [f"{place}:1"]) as nodes:
        hub, first, second = nodes
        first.store(FLAGS, 5)
        assert hub.ended() == -signal.SIGKILL
        assert int(hub.words[FLAGS]) == (0 if place == "MIRROR" else 5)
        assert int(second.words[FLAGS]) == 0
        assert first.agent
        first.agent.send_signal(signal.SIGSTOP)  # it comes last
        hub.start()
        second.awaits(FLAGS, 5)
        second.store(FLAGS, 6)
        hub.awaits(FLAGS, 6)
        first.agent.send_signal(signal.SIGCONT)
        first.awaits(FLAGS, 6)
        settle(nodes)
        assert [int(node.words[FLAGS]) for node in nodes] == [6] * 3


def test_what_the_hub_has_not_taken_is_sent_again() -> None:
    """Law: what a spoke has sent and the hub was killed in front of is sent to the next one."""
    with mirrors() as nodes:
        settle(nodes)
        hub, spoke, other = nodes
        sent = np.memmap(spoke.directory / "mirror", "u8", "r", 0, (SENT + 1,))
        before = int(sent[SENT])
        assert hub.agent
        hub.agent.send_signal(signal.SIGSTOP)
        spoke.store(DATA, 5)
        wait_until(lambda: int(sent[SENT]) > before, "nothing is sent")
        hub.kill()
        hub.start()
        for node in (hub, other):
            node.awaits(DATA, 5)


def test_the_alarm_reaches_who_was_without_an_agent() -> None:
    """Law: an alarm that is raised while a node has no agent comes with the next one."""
    with mirrors() as nodes:
        settle(nodes)
        nodes[1].kill()
        nodes[2].store(ALARM, 3)
        nodes[0].awaits(ALARM, 3)
        nodes[1].store(ALARM, 2)
        nodes[1].start()
        nodes[1].awaits(ALARM, 3)
        settle(nodes)
        nodes[0].kill()
        nodes[1].store(ALARM, 9)
        nodes[0].store(ALARM, 7)
        nodes[0].start()
        for node in nodes:
            node.awaits(ALARM, 9)
        nodes[0].store(CALM, 9)
        settle(nodes)
        agree(nodes)


def test_a_mirror_that_is_gone_ends_the_agent() -> None:
    """Law: an agent whose state cannot be taken up says so, and ends."""
    with mirrors(1, start=False) as (node,):
        (node.directory / "mirror").write_bytes(b"")
        node.start()
        assert node.ended() == 1 and "mirroring by" in node.said()
        with pytest.raises(FtrmaError):
            wire.mirror_make(node.directory / "mirror", "control", [])
