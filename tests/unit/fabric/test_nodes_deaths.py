"""Deaths in mail over several nodes: all nodes have them in one order, nothing of the dead comes
later, and nobody waits for what is lost.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest
from mailnodes import FIRST, Job, Nodes, body, take, taken, thread, wait_until
from mailnodes import job as job
from mailnodes import nodes as nodes
from mailnodes import started as started
from wirenode import PATIENCE_S

from ftrma.fabric import nodes_mail
from ftrma.fabric.nodes_mail import NodesMail
from ftrma.host.errors import FtrmaError, Rollback
from ftrma.native.mail import Mail

pytestmark = pytest.mark.plain  # its tests take seconds


def test_all_nodes_have_one_list_of_deaths(started: Callable[..., Job]) -> None:
    """Law: the list of each node is the root's, each death is there once, and those who wait on
    any node are woken."""
    job = started(0, 1, 1, 2, 2, 0, 1)
    order, wanted = job.order(), [4, 1, 5, 6]

    def follow(process: NodesMail) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while process.generation < len(wanted):
            assert time.monotonic() < deadline
            seen, deaths = process.bell, process.deaths()
            assert list(deaths) == wanted[:len(deaths)]
            assert not any(process.alive(p) for p in deaths)
            process.wait(seen, PATIENCE_S)

    with contextlib.ExitStack() as threads:
        for p in (2, 3):
            threads.enter_context(thread(lambda p=p: follow(job.mails[p])))
        threads.enter_context(thread(order.serve))
        for process in wanted:
            job.alive[process] = False
            wait_until(lambda p=process: p in order.told, "a death is not told")
        wait_until(lambda: all(job.mails[p].generation == 4 for p in (0, 2, 3)), "not all told")
        job.over = True
    assert {job.mails[p].deaths() for p in (0, 2, 3)} == {(4, 1, 5, 6)}
    assert {job.mails[p].deaths(2) for p in (0, 2, 3)} == {(5, 6)}
    assert [job.mails[3].alive(p) for p in range(7)] == [True, False, True, True] + [False] * 3


def test_nothing_of_the_dead_comes_after_their_death(job: Job, nodes: Nodes) -> None:
    """Law: neither a connection that is still open nor a new one stores anything, word or message,
    at any node once the death is told, also if an agent is replaced."""
    dead, root = job.mails[1], job.mails[0]
    for to in (0, 3):
        assert dead.append(to, 1, b"before") is Mail.OK
    dead.words.store(7, 5)
    job.tell_death(1)
    for _ in range(2):
        for late in (lambda: dead.append(0, 2, b"late"), lambda: dead.append(3, 2, b"late"),
                     lambda: dead.words.store(7, 6), lambda: dead.ring(0), lambda: dead.join()):
            with pytest.raises(FtrmaError, match="a later process of origin"):
                late()
            assert root.words.load(7) == 5 and not root.joined(1)
        nodes.kill_agent(0)
        nodes.nodes[0].start()
    for to in (0, 3):
        assert take(job.mails[to]) == (1, 1, b"before")
        assert taken(job.mails[to]) is None


def test_what_the_dead_have_on_their_way_does_not_come(job: Job, nodes: Nodes) -> None:
    """Law: requests that no agent has seen yet when the death is told have no effect later."""
    dead, ring = job.mails[1], job.spots.data + (3 * 4 + 1) * job.spots.ring_bytes
    assert dead.append(3, 1, b"before") is Mail.OK
    nodes.kill_agent(2)
    end = job.written(3, 1) + 8
    publish = job.spots.written + (3 * 4 + 1) * job.spots.pair_bytes, end
    dead.post.store(3, [(ring + 16, bytes(8))], [publish], wait=False)
    assert dead.post.origin.pending(FIRST + 2)
    nodes.nodes[2].start()
    job.tell_death(1)
    assert not dead.post.push(2)
    assert take(job.mails[3]) == (1, 1, b"before") and taken(job.mails[3]) is None


def test_the_stream_of_a_dead_process_ends_before_its_death(job: Job) -> None:
    """Law: while it sends on, all that its readers ever get is there when they learn of its
    death, by the list of their own node."""
    dead, order, shut = job.mails[1], job.order(), list[int]()
    told: dict[int, tuple[int, int]] = {}

    def state(to: int) -> tuple[int, int]:
        return job.written(to, 1), job.mails[0].words.load(2)

    def write() -> None:
        with pytest.raises(FtrmaError, match="a later process"):
            for number in range(1_000_000):
                dead.words.add(2)
                for to in (0, 3):
                    dead.append(to, number, body(number, 100))

    def follow(to: int) -> None:
        wait_until(lambda: not job.mails[to].alive(1), "the death is not told")
        told[to] = state(to)

    def shut_out(process: int, node: int) -> None:
        if not shut:  # let the dead store more beforehand
            most = job.mails[0].words.load(2) + 20
            wait_until(lambda: job.mails[0].words.load(2) > most, "nothing is stored")
        shut.append(node)
        job.shut_out(process, node)

    order.shut_out = shut_out
    with thread(write), thread(lambda: follow(0)), thread(lambda: follow(3)):
        take(job.mails[3])
        job.alive[1] = False
        order.look()
        wait_until(order.settled, "the nodes are not told")
    assert told == {to: state(to) for to in (0, 3)} and told[3][0] > 0
    assert sorted(shut) == [0, 2]


def test_the_death_of_a_node_is_told_to_the_others(started: Callable[..., Job], nodes: Nodes
                                                   ) -> None:
    """Law: a node whose processes are all dead, and whose agent is gone, stops neither the order
    of deaths nor those who send to it."""
    job = started(0, 1, 2, 2)
    nodes.kill_agent(2)
    try:
        began = time.monotonic()
        with thread(lambda: job.mails[1].append(2, 1, b"waits for the agent")) as sender:
            sender.join(0.1)
            assert sender.is_alive()
            job.alive[2] = job.alive[3] = False
        assert job.mails[1].append(3, 1, b"x") is Mail.DEAD  # its death is not told yet
        assert not job.mails[1].post.store(3, [(job.spots.data, b"x" * 8)])
        job.mails[1].ring(2)
        job.tell_death()
        assert time.monotonic() - began < PATIENCE_S / 2
    finally:
        nodes.nodes[2].start()
    assert job.mails[0].deaths() == job.mails[1].deaths() == (2, 3)
    assert job.mails[1].append(2, 1, b"x") is Mail.DEAD


def test_a_root_that_is_lost_stops_nobody(started: Callable[..., Job], nodes: Nodes,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: its words are read no more, in words, and stores to them end."""
    monkeypatch.setattr(nodes_mail, "ROLLBACK_MOST_S", 0.2)
    job = started(0, 1)
    nodes.kill_agent(0)
    job.alive[0] = False
    try:
        with pytest.raises(FtrmaError, match="the node of process 0 is lost"):
            job.mails[1].words.load(1)
        job.mails[1].words.store(1, 1)
        assert job.mails[1].append(0, 1, b"") is Mail.DEAD
    finally:
        nodes.nodes[0].start()


@pytest.mark.parametrize("call", [
    lambda process: process.append(3, 1, b"x"), lambda process: process.words.load(1),
    lambda process: process.ring(3),
], ids=["append", "load", "ring"])
def test_who_waits_for_an_agent_goes_back_with_the_others(
    job: Job, nodes: Nodes, call: Callable[[NodesMail], object]
) -> None:
    """Law: a call that waits ends by Rollback when all go back; so do those after the close."""
    with nodes.stopped(0), nodes.stopped(2):
        def wait() -> None:
            with pytest.raises(Rollback):
                call(job.mails[1])

        with thread(wait) as waiting:
            waiting.join(0.05)
            assert waiting.is_alive()
            job.over = True
    job.over = False
    for _ in range(2):  # a second close does nothing
        job.mails[1].post.close()
        with pytest.raises(Rollback):
            call(job.mails[1])


def test_an_earlier_attempt_is_written_to_no_more(started: Callable[..., Job]) -> None:
    """Law: its processes that still run reach neither its files nor those of the next attempt."""
    before = started(0, 1)
    late = before.mails[1]
    assert late.append(0, 1, b"early") is Mail.OK
    after = started(0, 1)
    before.alive[0] = False  # or it would wait for an agent that takes the message
    assert late.append(0, 2, b"late") is Mail.DEAD
    assert taken(before.mails[0]) == (1, 1, b"early")
    assert taken(before.mails[0]) is None is taken(after.mails[0])
    assert after.mails[1].append(0, 3, b"new") is Mail.OK
    assert taken(after.mails[0]) == (1, 3, b"new")
