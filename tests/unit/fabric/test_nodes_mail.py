"""Mail of a framework over several nodes: messages, words, deaths in one order, files.

A node is a directory with an agent; all processes of a job are objects of this process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from wirenode import PATIENCE_S, Node

from ftrma.fabric import node_files, nodes_mail
from ftrma.fabric.agent_access import AgentAccess
from ftrma.fabric.agents import Asking
from ftrma.fabric.death_order import DeathOrder
from ftrma.fabric.node_files import NodeFiles
from ftrma.fabric.nodes_mail import OWN_FILES, NodesMail, NodesWords, Post, share, window_of
from ftrma.host.errors import FtrmaError, NodeLost, NoRoom, Rollback
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


def send(process: NodesMail, to: int, number: int, size: int) -> None:
    """Append a message as soon as there is room."""
    while process.append(to, number, body(number, size)) is not Mail.OK:
        time.sleep(0.0005)


# ---- messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [0, 2, 3], ids=["to-the-root", "on-the-node", "to-a-third"])
def test_messages_arrive_whole_and_in_order(job: Job, to: int) -> None:
    """Law: a pair's messages arrive in their order over many ends of the ring, whatever their
    sizes; a full ring takes nothing, and the reader's take makes room."""
    sender, reader, dice = job.mails[1], job.mails[to], random.Random(to)
    sizes = [0, 1, 7, 8, 5000, sender.limit_bytes]
    assert sender.limit_bytes == mail.LEAST_RING_BYTES // 2 - 8
    sent: list[tuple[int, int]] = []
    ends = number = fulls = 0
    while ends < 10 or sent:
        size = dice.choice(sizes)
        result = sender.append(to, number, body(number, size)) if ends < 10 else Mail.FULL
        if result is Mail.OK:
            sent.append((number, size))
            number += 1
        else:
            assert result is Mail.FULL
            fulls += 1
            while sent and dice.random() < 0.8:
                awaited, size = sent.pop(0)
                assert taken(reader) == (1, awaited, body(awaited, size))
        ends = job.written(to, 1) // job.spots.ring_bytes
    assert fulls > 3 and taken(reader) is None


def test_a_full_ring_refuses_until_the_reader_takes(job: Job) -> None:
    """Law: so it is with the same message; what was refused has changed nothing."""
    sender, reader, size = job.mails[3], job.mails[1], job.mails[3].limit_bytes
    assert [sender.append(1, i, body(i, size)) for i in range(3)] == [Mail.OK] * 2 + [Mail.FULL]
    before = job.written(1, 3)
    assert sender.append(1, 9, b"") is Mail.FULL and job.written(1, 3) == before
    found = reader.take()
    assert found is not None and sender.append(1, 9, b"") is Mail.FULL  # until `release`
    reader.release()
    assert sender.append(1, 9, b"") is Mail.OK
    assert [take(reader) for _ in range(2)] == [(3, 1, body(1, size)), (3, 9, b"")]
    with pytest.raises(FtrmaError, match=f"a message of {size + 1} bytes"):
        sender.append(1, 1, bytes(size + 1))
    with pytest.raises(FtrmaError):
        sender.append(4, 1, b"")


def test_a_record_ends_where_the_ring_ends(job: Job) -> None:
    """Law: a record that just fits needs no skip, and one that does not is found at the begin,
    for each place at which a ring may end."""
    sender, reader, size = job.mails[1], job.mails[3], job.spots.ring_bytes
    number = 0
    for left in (8, 16, 24, 40):
        while (at := job.written(3, 1) % size) != size - left:
            gap = size - left - at if at < size - left else size - at
            length = min(gap, size // 2) - 8
            assert sender.append(3, number, body(number, length)) is Mail.OK
            assert take(reader) == (1, number, body(number, length))
            number += 1
        for data in (b"s" * 9, b"", b"t" * 7):
            assert sender.append(3, number, data) is Mail.OK
            assert take(reader) == (1, number, data)
            number += 1


def test_all_pairs_have_their_own_rings(job: Job) -> None:
    """Law: no message of one pair comes to another, or in the place of another."""
    everyone = range(len(job.mails))
    for source in everyone:
        for to in everyone:
            assert job.mails[source].append(to, 10 * source + to, bytes([source, to])) is Mail.OK
    for to in everyone:
        found = sorted(take(job.mails[to]) for _ in everyone)
        assert found == [(p, 10 * p + to, bytes([p, to])) for p in everyone]
        assert taken(job.mails[to]) is None


def test_a_message_to_the_dead_is_refused(job: Job) -> None:
    """Law: after its death is told nothing is sent to a process; its own last words stay."""
    assert job.mails[1].append(3, 1, b"last") is Mail.OK
    assert job.mails[3].append(1, 2, b"words") is Mail.OK
    job.tell_death(3)
    before = job.written(3, 1)
    assert [job.mails[p].append(3, 5, b"x") for p in (0, 1, 2)] == [Mail.DEAD] * 3
    job.mails[1].ring(3)
    assert job.written(3, 1) == before
    assert take(job.mails[1]) == (3, 2, b"words")


@pytest.mark.parametrize("how", ["ring", "append", "death"])
def test_a_wait_ends_at_once(job: Job, how: str) -> None:
    """Law: a process of another node that waits is woken, and others of its node are not by a
    ring or a message."""
    bells = [process.bell for process in job.mails]
    ended = threading.Event()

    def wait() -> None:
        job.mails[1].wait(bells[1], PATIENCE_S)
        ended.set()

    began = time.monotonic()
    with thread(wait):
        if how == "ring":
            job.mails[3].ring(1)
        elif how == "append":
            job.mails[3].append(1, 1, b"")
        else:
            job.tell_death(3)
    assert ended.is_set() and time.monotonic() - began < PATIENCE_S / 2
    assert job.mails[1].bell != bells[1]
    assert (job.mails[2].bell != bells[2]) == (how == "death")


def test_who_has_joined_is_known(job: Job) -> None:
    """Law: the root's node has it, and all ask there."""
    assert not any(p.joined(q) for p in job.mails for q in range(4))
    for joins in (3, 0, 2):
        job.mails[joins].join()
        assert all(p.joined(joins) for p in job.mails)
    assert not any(p.joined(1) for p in job.mails)


# ---- words ----------------------------------------------------------------------------------


def test_words_are_the_roots(job: Job) -> None:
    """Law: each call of a process of another node reads and changes the words of the root."""
    root, far, other = (job.mails[p].words for p in (0, 1, 3))
    assert isinstance(far, NodesWords) and not isinstance(root, NodesWords)
    last = root.count - 1
    assert far.count == root.count == other.count
    far.store(5, 2**64 - 1)
    root.store(6, 17)
    other.store(last, 4)
    assert [w.load(at) for w in (root, far, other) for at in (5, 6, last)] == [2**64 - 1, 17, 4] * 3
    assert (far.add(6, 3), far.add(6), root.load(6), far.add(7, 0)) == (20, 21, 21, 0)
    far.store(6, 1)
    assert (far.add(6), root.load(6)) == (2, 2)
    assert far.read(4, 4).tolist() == [0, 2**64 - 1, 2, 0] == root.read(4, 4).tolist()
    assert far.read(4, 0).tolist() == [] and far.read(last, 1).tolist() == [4]
    far.read(4, 1)[0] = 5  # a copy
    for at, value in enumerate([2**64 - 1, 2, 1]):
        other.store(1005 + at, value)
    assert far.equal(5, 1005, 2) and not far.equal(5, 1005, 3) and far.equal(5, 1006, 0)
    assert far.equal(5, 1005, 2) == root.equal(5, 1005, 2)
    for call in (lambda: far.load(last + 1), lambda: far.store(-1, 0), lambda: far.add(last + 1),
                 lambda: far.read(last, 2), lambda: far.equal(0, last, 2)):
        with pytest.raises(IndexError):
            call()
    assert (root.load(last), root.load(5)) == (4, 2**64 - 1)


def test_many_words_are_read_at_once(job: Job) -> None:
    """Law: a row that takes several messages is read whole."""
    job.mails[0].words.store(99_999, 8)
    row = job.mails[3].words.read(0, 100_000)
    assert (row.shape, int(row.sum()), int(row[-1])) == ((100_000,), 8, 8)


def test_an_addition_after_a_death_goes_on(job: Job) -> None:
    """Law: who takes over a word of a dead process counts on from what that one has stored."""
    for _ in range(3):
        job.mails[1].words.add(9)
    job.tell_death(1)
    heir = job.mails[3].words
    assert [heir.add(9, 10) for _ in range(2)] == [13, 23]
    assert job.mails[0].words.load(9) == 23


def test_words_come_before_what_is_sent_later(job: Job, nodes: Nodes) -> None:
    """Law: who takes a message sees all words that its sender stored before, also where the root's
    agent is slow and that of the reader's node is not."""
    sender, reader, root = job.mails[1], job.mails[3], job.mails[0]
    seen: list[int] = []

    def read() -> None:
        take(reader)
        seen.append(root.words.load(3))

    def write() -> None:
        sender.words.store(3, 77)
        sender.append(3, 1, b"")

    sender.append(3, 0, b"")  # all connections are there
    take(reader)
    sender.words.store(3, 1)
    with thread(read), contextlib.ExitStack() as stop:
        stop.enter_context(nodes.stopped(0))
        with thread(write):
            time.sleep(0.05)  # a message that were ahead of the word would come now
            stop.close()
    assert seen == [77]


def test_words_and_messages_keep_their_order(job: Job) -> None:
    """Law: so it is for each message of a stream, to the root and to a third node."""
    sender, root = job.mails[1], job.mails[0]

    def write() -> None:
        for number in range(1, 101):
            sender.words.add(4)
            send(sender, 3 * (number % 2), number, 40)

    with thread(write):
        for number in range(1, 101):
            _, kind, _ = take(job.mails[3 * (number % 2)])
            assert kind == number <= root.words.load(4)


# ---- agents that die ------------------------------------------------------------------------


@pytest.mark.parametrize("kill", ["HALF:7", "PUT:12", "NUMBER:9"])
def test_messages_come_once_if_the_agent_dies(job: Job, nodes: Nodes, kill: str) -> None:
    """Law: each message of a stream comes once, whole and in order, if the agent dies amid a
    record, before it notes a record, or before it publishes one."""
    nodes.kill_agent(2)
    first = nodes.nodes[2].start(kill)
    nodes.nodes[2].reach()
    nodes.nodes[2].start()  # waits for the first one's end
    stream(job, 60)
    assert first.wait(PATIENCE_S) == -signal.SIGKILL


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_messages_come_once_if_agents_die_at_any_time(job: Job, nodes: Nodes, seed: int) -> None:
    """Law: so it is if agents are killed again and again."""
    dice, over = random.Random(seed), threading.Event()

    def kill() -> None:
        for node in (2, 0, 2, 2, 0, 2, 0, 2):
            time.sleep(dice.random() * 0.02)
            nodes.kill_agent(node)
            nodes.nodes[node].start()
            nodes.nodes[node].reach()
        over.set()

    with thread(kill):
        while not over.is_set():
            stream(job, 200)


def stream(job: Job, count: int) -> None:
    """Have process 1 send messages and count words; check them at process 3 and at the root."""
    dice, before = random.Random(count), job.mails[0].words.load(8)
    sizes = [dice.choice([0, 1, 7, 8, 900, 5000]) for _ in range(count)]

    def write() -> None:
        for number, size in enumerate(sizes):
            job.mails[1].words.add(8)
            send(job.mails[1], 3, number, size)

    with thread(write):
        for number, size in enumerate(sizes):
            assert take(job.mails[3]) == (1, number, body(number, size))
            assert job.mails[0].words.load(8) > before + number
    assert taken(job.mails[3]) is None and job.mails[0].words.load(8) == before + count


# ---- deaths ---------------------------------------------------------------------------------


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


# ---- files ----------------------------------------------------------------------------------


def test_files_lie_on_the_node_of_a_process(job: Job, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
                                            ) -> None:
    """Law: they are made, lengthened, written, read and removed where the process is, and each
    process of another node finds there what was written."""
    monkeypatch.setattr(node_files, "STEP_BYTES", 1 << 19)  # several of them
    files, other = NodeFiles(job.mails[0].post), NodeFiles(job.mails[1].post)
    assert [files.is_here(p) for p in range(4)] == [True, False, False, False]
    assert [other.node_of(p) for p in range(4)] == [0, 1, 1, 2]
    path, data = nodes.nodes[2].directory / "own-1", random.Random(3).randbytes(2_500_000)
    with pytest.raises(FileNotFoundError, match="own-1"):
        files.look(3, "own-1")
    files.make(3, "own-1", 100)
    files.write(3, "own-1", 0, data[:100])
    files.make(3, "own-1", len(data))
    files.write(3, "own-1", 100, memoryview(data)[100:])
    assert path.read_bytes() == data
    assert other.look(3, "own-1") == len(data)
    assert other.read(3, "own-1", 0, len(data)) == data
    assert other.read(3, "own-1", 99, 3) == data[99:102] and other.read(3, "own-1", 5, 0) == b""
    files.make(3, "own-1", 0)
    assert (path.read_bytes(), other.look(3, "own-1")) == (b"", 0)
    other.remove(3, "own-1")
    files.remove(3, "own-1")
    assert not path.exists()
    with pytest.raises(FtrmaError, match="no name of such a file"):
        files.make(3, "mine", 8)
    files.make(3, "own-2", 8)  # and then go on
    files.remove(3, "own-2")


def test_a_file_stays_whole_if_the_agent_dies(job: Job, nodes: Nodes) -> None:
    """Law: what was written is there after the death of an agent amid it, and is read again."""
    nodes.kill_agent(2)
    first = nodes.nodes[2].start("HALF:2")
    nodes.nodes[2].reach()
    nodes.nodes[2].start()
    files, data = NodeFiles(job.mails[1].post), random.Random(4).randbytes(1_500_000)
    files.make(3, "own-1", len(data))
    files.write(3, "own-1", 0, data)
    assert first.wait(PATIENCE_S) == -signal.SIGKILL
    assert files.read(3, "own-1", 0, len(data)) == data
    nodes.kill_agent(2)
    nodes.nodes[2].start()
    assert files.read(3, "own-1", 7, 1000) == data[7:1007]
    files.remove(3, "own-1")


def test_a_file_that_is_removed_meanwhile(job: Job, nodes: Nodes) -> None:
    """Law: whoever reads or writes it is told so, and what comes behind it is carried out."""
    files, other = NodeFiles(job.mails[0].post), NodeFiles(job.mails[1].post)
    files.make(3, "own-1", 100)
    assert other.look(3, "own-1") == 100
    files.remove(3, "own-1")
    with pytest.raises(FileNotFoundError):
        other.read(3, "own-1", 0, 8)
    with pytest.raises(NodeLost, match="own-1: the file is gone"):
        other.write(3, "own-1", 0, b"12345678")
    assert not (nodes.nodes[2].directory / "own-1").exists()
    other.make(3, "own-2", 8)
    other.write(3, "own-2", 0, b"12345678")
    assert other.read(3, "own-2", 0, 8) == b"12345678"
    other.remove(3, "own-2")


def test_full_memory_is_told(job: Job, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: it is `NoRoom`, and other errors of the file system are told in its words."""
    monkeypatch.setattr(node_files, "STEP_BYTES", 1 << 60)
    files = NodeFiles(job.mails[0].post)
    with pytest.raises(NoRoom, match="own-1: shared memory is full"):
        files.make(3, "own-1", 1 << 50)
    assert files.look(3, "own-1") == 0
    files.remove(3, "own-1")
    (nodes.nodes[2].directory / "own-1").mkdir()
    with pytest.raises(FtrmaError, match=f"own-1: {os.strerror(errno.EISDIR)}"):
        files.make(3, "own-1", 8)
    (nodes.nodes[2].directory / "own-1").rmdir()


def test_files_of_a_lost_node_are_lost(started: Callable[..., Job], nodes: Nodes) -> None:
    """Law: each call ends by `NodeLost`, and those to other nodes are served."""
    job = started(0, 1, 2)
    files = NodeFiles(job.mails[0].post)
    files.make(2, "own-1", 8)
    nodes.kill_agent(2)
    job.alive[2] = False
    try:
        for call in (lambda: files.look(2, "own-1"), lambda: files.make(2, "own-1", 8),
                     lambda: files.read(2, "own-1", 0, 8), lambda: files.remove(2, "own-1"),
                     lambda: files.write(2, "own-1", 0, b"12345678")):
            with pytest.raises(NodeLost, match="own-1: its node is lost"):
                call()
        files.make(1, "own-1", 8)
        files.remove(1, "own-1")
    finally:
        nodes.nodes[2].start()
    (nodes.nodes[2].directory / "own-1").unlink()


def test_a_write_ends_before_all_go_back(job: Job, nodes: Nodes) -> None:
    """Law: bytes of a file are there, or its node is lost, when a write ends; all other calls end
    by Rollback."""
    files = NodeFiles(job.mails[1].post)
    files.make(3, "own-1", 8)
    with nodes.stopped(2), thread(lambda: files.write(3, "own-1", 0, b"12345678")) as writing:
        job.over = True
        writing.join(0.1)
        assert writing.is_alive()
        os.kill(nodes.nodes[2].agent.pid, signal.SIGCONT)  # type: ignore[union-attr]
    assert (nodes.nodes[2].directory / "own-1").read_bytes() == b"12345678"
    with nodes.stopped(2), pytest.raises(Rollback):
        files.look(3, "own-1")
    (nodes.nodes[2].directory / "own-1").unlink()


def test_names_have_windows() -> None:
    """Law: the window of a name is that of no window of MPI and of no other kind of file."""
    found = {window_of(f"own-{number}") for number in range(1000)}
    assert len(found) == 1000 and {window & OWN_FILES for window in found} == {OWN_FILES}
