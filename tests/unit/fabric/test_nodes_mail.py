"""Mail of a framework over several nodes: messages and words, also if agents die."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time

import pytest
from mailnodes import Job, Nodes, body, take, taken, thread
from mailnodes import job as job
from mailnodes import nodes as nodes
from mailnodes import started as started
from wirenode import PATIENCE_S

from ftrma.fabric.nodes_mail import NodesMail, NodesWords
from ftrma.host.errors import FtrmaError
from ftrma.native import mail
from ftrma.native.mail import Mail


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
