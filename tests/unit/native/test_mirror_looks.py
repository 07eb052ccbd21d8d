"""Progress of the mirror: which look of an agent is settled, and what its echo says.

The agents are real processes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from mirrornodes import (
    ALARM,
    CALM,
    DATA,
    FLAGS,
    HOT,
    MANY,
    MANY_WORDS,
    PATIENCE_S,
    REGIONS,
    Looks,
    Mirrored,
    mirrors,
    settle,
    wait_until,
)
from tiers import tiers

from ftrma.native.wire import MirrorKind

pytestmark = pytest.mark.full

ROUNDS = 2000
ECHO = 3  # a word of each node; nothing else lies there
ECHOED = (*((8 * (ECHO + node), 8, MirrorKind.ECHO) for node in range(3)), *REGIONS)
SENT, PENDING_S = 6, 0.2  # number among the words of struct ftrma_mirror_header; ten looks


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Mirrored]]:
    """Three nodes for tests that leave no alarm pending."""
    with mirrors(regions=ECHOED) as made:
        yield made


# ---- looks that are settled -----------------------------------------------------------------


@pytest.mark.parametrize("one,other", [(0, 1), (1, 2)], ids=["hub and spoke", "two spokes"])
def test_of_two_who_store_one_sees_the_other(nodes: list[Mirrored], one: int, other: int) -> None:
    """Law: of two processes on two nodes that each store a word, wait until that is settled, and
    read the other's, one at least sees what the other has stored (Dekker)."""
    together = threading.Barrier(2)
    seen = {one: np.zeros(ROUNDS, "u8"), other: np.zeros(ROUNDS, "u8")}
    failed: list[BaseException] = []

    def take_turns(me: int, peer: int) -> None:
        node, looks = nodes[me], Looks(nodes[me])
        try:
            for i in range(ROUNDS):
                together.wait(PATIENCE_S)
                node.words[DATA + 10 * one + me] = i + 1
                looks.synchronize()
                seen[me][i] = int(node.words[DATA + 10 * one + peer])
        except BaseException as error:
            failed.append(error)
            together.abort()

    threads = [threading.Thread(target=take_turns, args=pair)
               for pair in ((one, other), (other, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    wanted = np.arange(1, ROUNDS + 1)
    late = {me: seen[me] < wanted for me in seen}
    assert not (late[one] & late[other]).any()
    assert all((seen[me] <= wanted).all() for me in seen)


def test_what_is_settled_is_seen_by_who_settles_later(nodes: list[Mirrored]) -> None:
    """Law: after one node's words are settled, whoever on another node stores one, and settles it,
    sees them."""
    looks = [Looks(node) for node in nodes]
    for i in range(1, 200):
        writer, reader = i % 3, (i + 1 + i % 2) % 3
        nodes[writer].words[DATA + 40] = i
        looks[writer].synchronize()
        nodes[reader].words[DATA + 41 + reader] = i
        looks[reader].synchronize()
        assert int(nodes[reader].words[DATA + 40]) == i


@pytest.mark.parametrize("victim", [0, 1], ids=["hub", "spoke"])
def test_looks_go_on_with_the_next_agent(victim: int) -> None:
    """Law: whoever waits while the agent of his node or the hub's is killed comes to an end with
    the one that follows, and so does who begins then, also where nothing was stored."""
    with mirrors(2, regions=ECHOED) as nodes:
        settle(nodes)
        looks = [Looks(node) for node in nodes]
        for i in range(1, 6):
            before = [(each.looks.value, each.settled.value) for each in looks]
            if stored := i % 2:
                nodes[1].words[DATA] = i
            goal = looks[1].begin()
            nodes[victim].kill()
            nodes[victim].start()
            wait_until(lambda g=goal: looks[1].is_settled(g), "never settled")
            assert not stored or int(nodes[0].words[DATA]) == i
            for each in looks:
                each.synchronize()
            for each, (looked, settled) in zip(looks, before, strict=True):
                assert each.looks.value >= looked and each.settled.value >= settled


def test_nothing_is_settled_without_the_hub() -> None:
    """Law: what the hub has not ordered is not settled, however often the spoke's agent looks."""
    with mirrors(2, regions=ECHOED) as nodes:
        settle(nodes)
        looks = Looks(nodes[1])
        looks.synchronize()
        assert nodes[0].agent
        nodes[0].agent.send_signal(signal.SIGSTOP)
        nodes[1].words[DATA] = 1
        goal = looks.begin()
        wait_until(lambda: looks.looks.value >= goal, "no look")
        assert not looks.is_settled(goal)
        nodes[0].agent.send_signal(signal.SIGCONT)
        wait_until(lambda: looks.is_settled(goal), "never settled")
        assert int(nodes[0].words[DATA]) == 1


# ---- echoes ---------------------------------------------------------------------------------


def echoes(node: Mirrored) -> list[int]:
    return [int(word) for word in node.words[ECHO : ECHO + 3]]


def await_echo(nodes: list[Mirrored], of: int, alarm: int, words: dict[int, int]) -> None:
    """Wait until the echo of a node is everywhere; whoever sees it sees these words of it."""
    late: list[tuple[int, int, int]] = []

    def watch(node: Mirrored) -> None:
        node.awaits(ECHO + of, alarm)
        late.extend((node.number, word, int(node.words[word])) for word in words
                    if int(node.words[word]) != words[word])
        if int(node.words[MANY : MANY + MANY_WORDS].min()) < words.get(MANY, 0):
            late.append((node.number, MANY, 0))

    threads = [threading.Thread(target=watch, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not late
    assert [echoes(node)[of] for node in nodes] == [alarm] * len(nodes)


def store_all(node: Mirrored, value: int) -> dict[int, int]:
    """Store words of all kinds and tell nobody, as a process does that is killed then."""
    node.words[MANY : MANY + MANY_WORDS] = value
    words = {MANY: value, HOT + node.number: value, DATA + 50 + node.number: value}
    for word in words:
        node.words[word] = value
    return words


def end_alarm(nodes: list[Mirrored], alarm: int) -> None:
    nodes[0].store(CALM, alarm)
    for node in nodes:
        node.awaits(CALM, alarm)


@pytest.mark.parametrize("source", range(3), ids=["hub's", "spoke's", "other spoke's"])
@pytest.mark.parametrize("raiser", [0, 1], ids=["hub", "spoke"])
def test_an_echo_comes_behind_all_words(nodes: list[Mirrored], raiser: int, source: int) -> None:
    """Law: when an alarm is pending, each node's echo becomes its value, on all nodes; who sees it
    sees all that processes of that node had stored when the alarm came there, though they have told
    nobody and several messages are needed."""
    alarm = int(nodes[0].words[ALARM]) + 1
    words = store_all(nodes[source], 1000 * alarm + source)
    nodes[raiser].store(ALARM, alarm)
    await_echo(nodes, source, alarm, words)
    for of in range(3):
        await_echo(nodes, of, alarm, {})
    end_alarm(nodes, alarm)


def test_an_alarm_while_one_is_pending_is_echoed(nodes: list[Mirrored]) -> None:
    """Law: the same of one that is raised while the one before is pending."""
    first = int(nodes[0].words[ALARM]) + 1
    for alarm in range(first, first + 3):
        words = store_all(nodes[1], alarm)
        nodes[alarm % 3].store(ALARM, alarm)
        await_echo(nodes, 1, alarm, words)
        for of in (0, 2):
            await_echo(nodes, of, alarm, {})
    end_alarm(nodes, first + 2)


def test_there_is_no_echo_while_all_is_calm(nodes: list[Mirrored]) -> None:
    """Law: whatever is stored without an alarm, no echo changes; nor by an alarm that is over."""
    alarm = int(nodes[0].words[ALARM]) + 1
    nodes[2].store(ALARM, alarm)
    for of in range(3):
        await_echo(nodes, of, alarm, {})
    end_alarm(nodes, alarm)
    before = [echoes(node) for node in nodes]
    for i, node in enumerate(nodes):
        store_all(node, 77 + i)
        settle(nodes)
        Looks(node).synchronize()
    assert [echoes(node) for node in nodes] == before
    nodes[1].words[CALM] = alarm + 1  # it is over when it comes
    nodes[1].store(ALARM, alarm + 1)
    for node in nodes:
        node.awaits(ALARM, alarm + 1)
    settle(nodes)
    for node in nodes:
        Looks(node).synchronize()
    assert [echoes(node) for node in nodes] == before


def test_what_cannot_be_sent_is_not_echoed() -> None:
    """Law: a spoke whose hub takes nothing has no echo before the hub has what it wants to send."""
    with mirrors(regions=ECHOED) as nodes:
        settle(nodes)
        hub, spoke, _ = nodes
        assert hub.agent
        hub.awaits_sleep()
        hub.agent.send_signal(signal.SIGSTOP)
        looks = Looks(spoke)
        for i in range(1, 4):  # so many messages can be under way
            spoke.words[FLAGS] = i
            goal = looks.begin()
            wait_until(lambda g=goal: looks.looks.value >= g, "no look")
        spoke.awaits_sleep()
        words = store_all(spoke, 5)
        spoke.store(ALARM, 1)
        spoke.awaits_sleep()
        assert echoes(spoke) == [0, 0, 0]
        hub.agent.send_signal(signal.SIGCONT)
        await_echo(nodes, 1, 1, words)


@pytest.mark.parametrize("victim", [0, 1], ids=["hub", "spoke"])
def test_who_has_no_agent_has_no_echo(victim: int) -> None:
    """Law: a node whose agent is gone when the alarm comes has its echo by the next one, behind all
    that was stored meanwhile; without the hub nobody has one."""
    with mirrors(regions=ECHOED) as nodes:
        settle(nodes)
        nodes[victim].kill()
        words = store_all(nodes[victim], 9)
        raiser = nodes[2 if victim else 1]
        raiser.store(ALARM, 1)
        for of in (0, 2) if victim else ():
            await_echo([nodes[0], nodes[2]], of, 1, {})
        assert all(echoes(node)[victim] == 0 for node in nodes)
        assert victim or not any(echoes(raiser))
        nodes[victim].start()
        await_echo(nodes, victim, 1, words)
        for of in range(3):
            await_echo(nodes, of, 1, {})


@pytest.mark.parametrize("count", tiers([1, 2, 3], full=["2"]))
@pytest.mark.parametrize("victim", [0, 1], ids=["hub", "spoke"])
def test_an_agent_that_is_killed_amid_its_words_has_no_echo(victim: int, count: int) -> None:
    """Law: nor one that is killed when it has noted words and sent only some of their messages."""
    with mirrors(regions=ECHOED) as nodes:
        settle(nodes)
        nodes[victim].kill()
        words = store_all(nodes[victim], 9)
        raiser = nodes[2 if victim else 1]
        raiser.store(ALARM, 1)
        nodes[victim].start(f"SCAN:{count}")
        assert nodes[victim].ended() == -signal.SIGKILL
        nodes[victim].start()
        await_echo(nodes, victim, 1, words)
