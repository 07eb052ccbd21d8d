"""Mail of a framework over several nodes, without a job.

A node is a directory with an agent; all processes of a job are objects of this process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from wirenode import PATIENCE_S, Node

from ftrma.fabric.agent_access import AgentAccess
from ftrma.fabric.agents import Asking
from ftrma.fabric.death_order import DeathOrder
from ftrma.fabric.nodes_mail import NodesMail, Post, share
from ftrma.host.errors import Rollback
from ftrma.host.key import Key
from ftrma.native import loading, mail
from ftrma.native.mail import Mail
from ftrma.native.wire import Unfinished

NODES, FIRST, ORIGINS = 3, 1, 512  # FIRST: target that is node 0
Message = tuple[int, int, bytes]


class Nodes:
    """Nodes with agents, over which there is one mail after the other."""

    def __init__(self) -> None:
        key = Key.make()
        self.nodes = [Node(ORIGINS, FIRST + NODES, 4096, more=64, key=key) for _ in range(NODES)]
        self.attempt = self.origins = 0
        for node in self.nodes:
            node.start()

    def kill_agent(self, node: int) -> None:
        agent = self.nodes[node].agent
        assert agent
        agent.kill()
        agent.wait(PATIENCE_S)

    @contextlib.contextmanager
    def stopped(self, node: int) -> Iterator[None]:
        """An agent that stands still."""
        agent = self.nodes[node].agent
        assert agent
        agent.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            agent.send_signal(signal.SIGCONT)

    def close(self) -> None:
        for node in self.nodes:
            node.close()


class Job:
    """The mail of one attempt.

    Args:
        where: node of each process; that of process 0 is the root's.

    Attributes:
        alive: says if each process is.
        over: all go back.
    """

    def __init__(self, nodes: Nodes, where: Sequence[int]) -> None:
        nodes.attempt += 1
        self.nodes, self.where, self.attempt = nodes, where, nodes.attempt
        self.first_origin = nodes.origins
        nodes.origins += len(where)
        self.alive, self.over = [True] * len(where), False
        self.spots = mail.find_spots(len(where))
        for node in set(where):
            mail.create(self.path(node), len(where))
            share(nodes.nodes[node].ledger, self.path(node), target=FIRST + node,
                  attempt=self.attempt, spots=self.spots,
                  processes=[p for p, at in enumerate(where) if at == node])
        self.mails = [NodesMail(self.path(where[p]), p, self._post(p), 0)
                      for p in range(len(where))]

    def path(self, node: int) -> Path:
        return self.nodes.nodes[node].directory / f"mail-{self.attempt}"

    def asking(self, process: int, incarnation: int) -> Asking:
        """The origin of a process for mail, see `AgentAccess.mail_origin`."""
        made = Asking(self.nodes.nodes[0].key, self.first_origin + process, incarnation,
                      FIRST + NODES, NODES, lambda node: self.nodes.nodes[node].address())
        for node in range(NODES):
            made.origin.locate(FIRST + node, node, 1)
        return made

    def _post(self, process: int) -> Post:
        return Post(self.asking(process, self.attempt).origin, self.where, self.where[process],
                    FIRST, self.attempt, self.spots, self._check, self.is_lost)

    def _check(self) -> None:
        if self.over:
            raise Rollback("a process failed")

    def is_lost(self, node: int) -> bool:
        return not any(self.alive[p] for p, at in enumerate(self.where) if at == node)

    def shut_out(self, process: int, node: int) -> None:
        """Shut a process out as `PostOffice` does."""
        asking = self.asking(process, AgentAccess.NEWEST)
        with contextlib.closing(asking.origin) as origin:
            while not (self.over or self.is_lost(node)):
                origin.set_timeout(200)
                with contextlib.suppress(Unfinished):
                    origin.number(FIRST + node)
                    return
                origin.retry()

    def order(self) -> DeathOrder:
        """The order of deaths, as the root tells them."""
        return DeathOrder(self.mails[0], range(len(self.where)), lambda p: self.alive[p],
                          self.shut_out, lambda: 0, lambda seen, us: time.sleep(0.001),
                          lambda: self.over, lambda: None, pytest.fail)

    def tell_death(self, *processes: int) -> None:
        """Have processes be dead, and all nodes know it."""
        order = self.order()
        order.told = list(self.mails[0].deaths())
        for process in processes:
            self.alive[process] = False
            order.look()
        order.look()
        wait_until(order.settled, "the nodes are not told")

    def raw(self, node: int, offset: int, size_bytes: int = 8) -> bytes:
        """Bytes of a node's mail file."""
        with self.path(node).open("rb") as file:
            return os.pread(file.fileno(), size_bytes, offset)

    def written(self, to: int, source: int) -> int:
        """Bytes that a process has ever published for another one."""
        pair = to * len(self.where) + source
        at = self.spots.written + pair * self.spots.pair_bytes
        return int.from_bytes(self.raw(self.where[to], at), "little")

    def close(self) -> None:
        for process in self.mails:
            process.post.close()
        for node in set(self.where):
            self.path(node).unlink()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    loading.load()
    made = Nodes()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def started(nodes: Nodes) -> Iterator[Callable[..., Job]]:
    """Starts a job over the nodes; all its rings are small."""
    jobs = []

    def start(*where: int) -> Job:
        jobs.append(Job(nodes, where))
        return jobs[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mail, "MOST_RING_BYTES", mail.LEAST_RING_BYTES)
        yield start
    for job in jobs:
        job.close()


@pytest.fixture
def job(started: Callable[..., Job]) -> Job:
    """One process on node 0, two on node 1, one on node 2."""
    return started(0, 1, 1, 2)


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.0005)


@contextlib.contextmanager
def thread(function: Callable[[], object]) -> Iterator[threading.Thread]:
    """A thread that runs a function, whose error is raised at the end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:  # raised where the thread is waited for
            errors.append(error)

    running = threading.Thread(target=run)
    running.start()
    try:
        yield running
    finally:
        running.join(PATIENCE_S)
    assert not running.is_alive(), "the thread goes on"
    if errors:
        raise errors[0]


def taken(process: Mail) -> Message | None:
    found = process.take()
    if found is None:
        return None
    source, kind, data = found
    copy = bytes(data)
    process.release()
    return source, kind, copy


def take(process: Mail) -> Message:
    """Wait for a message, and take it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = process.bell
        if found := taken(process):
            return found
        assert time.monotonic() < deadline, "no message comes"
        process.wait(seen, 0.2)


def body(number: int, size: int) -> bytes:
    return bytes([number % 251]) * size
