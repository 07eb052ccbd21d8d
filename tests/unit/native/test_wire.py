"""Accesses and locks by an agent, what it refuses, and its process; by an origin and by hand.

The agent is a real process; laws about its death are in `faults.test_agent`, those about requests
that come again are in `test_wire_resent`.
"""

from __future__ import annotations

import random
import re
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from wirenode import (
    FIRST_WORD,
    HEAD,
    ONE,
    PATIENCE_S,
    WINDOW,
    WORDS,
    Node,
    Raw,
    Reply,
    User,
    message,
    served,
)
from wirenode import engine as engine
from wirenode import new_raw as new_raw
from wirenode import new_user as new_user
from wirenode import node as node
from wirenode import slot as slot

from ftrma.host.errors import FtrmaError
from ftrma.native import wire
from ftrma.native.wire import Kind, Op, Type, Unfinished, WireResult

TYPES = {Type.I32: "i4", Type.U32: "u4", Type.F32: "f4", Type.I64: "i8", Type.U64: "u8",
         Type.F64: "f8"}
OPS: dict[Op, Callable[..., np.ndarray]] = {
    Op.SUM: np.add, Op.PROD: np.multiply, Op.MIN: np.minimum, Op.MAX: np.maximum,
    Op.BAND: np.bitwise_and, Op.BOR: np.bitwise_or, Op.BXOR: np.bitwise_xor,
    Op.REPLACE: lambda old, new: new, Op.NO_OP: lambda old, new: old,
}


# ---- accesses -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 8, 4096, 262143, 262144, 262145, 1 << 20])
def test_what_is_put_is_got(node: Node, user: User, size: int) -> None:
    """Law: bytes of any length arrive whole, where they belong, and nothing beside them changes;
    each message is acknowledged once."""
    data, part = random.Random(size).randbytes(size), node.part()
    start = (1 << 20) - size
    part[:] = 0
    user.put(start, data)
    user.origin.flush(0)
    assert user.get(start, size) == data == part[start:].tobytes() and not part[:start].any()
    assert user.numbers() == list(range(1, -(-size // wire.PAYLOAD_BYTES) + 1))
    assert user.origin.pending(0) == 0


def test_runs(node: Node, user: User) -> None:
    """Law: PUTV and GETV are as many puts and gets, whatever their lengths."""
    picked, part = random.Random(4), node.part()
    part[:] = 0
    for count in (1, 3, 300, 2000):
        cuts = sorted(picked.sample(range(1 << 20), 2 * count))
        runs = [(a, b - a) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
        data = picked.randbytes(sum(n for _, n in runs))
        wanted, at = part.copy(), 0
        for offset, n in runs:
            wanted[offset : offset + n] = np.frombuffer(data, "u1")[at : at + n]
            at += n
        user.origin.putv(0, WINDOW, runs, data)
        user.origin.flush(0)
        assert (part == wanted).all() and user.origin.getv(0, WINDOW, runs) == data


def test_puts_stay_in_order(node: Node, user: User) -> None:
    """Law: first in, first out: of many puts to one place the last one stays, and a get that
    follows sees it."""
    for i in range(3000):
        user.put(64, i.to_bytes(8, "little"))
        if i % 500 == 0:
            assert int.from_bytes(user.get(64, 8), "little") == i
    assert int.from_bytes(user.get(64, 8), "little") == 2999
    user.origin.flush(0)
    assert user.numbers() == list(range(1, 3001))


def test_more_is_put_than_is_kept(node: Node, user: User) -> None:
    """Law: who puts without ever flushing is told unasked, and keeps a few MiB only."""
    block = bytes(range(256)) * 256
    for i in range(256):
        user.put(i % 16 * len(block), block)
        assert user.origin.pending(0) <= (4 << 20) + 2 * len(block)
    user.origin.flush(0)
    assert user.numbers() == list(range(1, 257))


@pytest.mark.parametrize("type_", TYPES)
def test_operations(node: Node, user: User, type_: Type) -> None:
    """Law: all operations on all types, of one element and of as many as go: the old ones, the new
    ones, and what lies there are those of NumPy."""
    dtype, picked = np.dtype(TYPES[type_]), np.random.default_rng(5)
    part = node.part(dtype=dtype.str)
    for op, function in OPS.items():
        if dtype.kind == "f" and op in (Op.BAND, Op.BOR, Op.BXOR):
            with pytest.raises(FtrmaError):
                user.origin.atomic(Kind.FOP, op, type_, 0, WINDOW, 0, bytes(dtype.itemsize))
            continue
        most = wire.ATOMIC_BYTES // dtype.itemsize
        for kind, n in ((Kind.FOP, 1), (Kind.ACC, 1), (Kind.ACC, most)):
            old = picked.integers(1, 100, n).astype(dtype)
            data = picked.integers(1, 100, n).astype(dtype)
            part[8 : 8 + n] = old
            answer = user.origin.atomic(kind, op, type_, 0, WINDOW, 8 * dtype.itemsize,
                                        data.tobytes())
            new = function(old, data).astype(dtype)
            assert (answer.old, answer.new) == (old.tobytes(), new.tobytes())
            assert (part[8 : 8 + n] == new).all()


@pytest.mark.parametrize("type_", [Type.I32, Type.U64])
def test_compare_and_swap(node: Node, user: User, type_: Type) -> None:
    """Law: it is changed exactly if it was what is compared; the old one is told in any case."""
    dtype = np.dtype(TYPES[type_])
    part = node.part(dtype=dtype.str)
    part[3] = 5
    for compare, new, left in ((4, 9, 5), (5, 9, 9), (9, 1, 1)):
        old = int(part[3])
        answer = user.origin.atomic(Kind.CAS, None, type_, 0, WINDOW, 3 * dtype.itemsize,
                                    new.to_bytes(dtype.itemsize, "little"), compare)
        assert int.from_bytes(answer.old, "little") == old and part[3] == left
        assert int.from_bytes(answer.new, "little") == left


def test_records_have_clock_and_seq(node: Node, user: User) -> None:
    """Law: each put and each atomic gets the target's clock of when it is applied, and the next
    number in the order of changes; an atomic's answer acknowledges the puts before it."""
    seqs = []
    for clock in (5, 6, 7):
        wire.write_clock(node.ledger, 1, clock)
        before = len(user.acks)
        for i in range(3):
            user.put(8 * i, ONE, target=1)
        answer = user.origin.atomic(Kind.FOP, Op.SUM, Type.I64, 1, WINDOW, 0, ONE)
        assert user.origin.pending(1) == 0
        told = [ack for _, ack in user.acks[before:]]
        assert sum(ack.records for ack in told) == 3
        assert {ack.clock for ack in told} == {clock} == {answer.clock}
        seqs += [ack.seq + i for ack in told for i in range(ack.records)] + [answer.seq]
    assert seqs == list(range(seqs[0], seqs[0] + 12))


def test_words_take_the_maximum(node: Node, user: User) -> None:
    """Law: a word never goes back, in whatever order it is set."""
    for value in (3, 9, 5, 2**64 - 1, 0):
        user.origin.set_word(0, WINDOW, FIRST_WORD + 16, value)
    user.origin.flush(0)
    assert node.word(2) == 2**64 - 1 and node.word(1) == 0


# ---- locks ----------------------------------------------------------------------------------


def test_locks_are_granted_in_order(node: Node, user: User) -> None:
    """Law: first asked, first granted; shared ones that follow each other together, and none
    overtakes an exclusive one that waits. The agent serves others meanwhile."""
    raws = [Raw(node, node.fresh()) for _ in range(6)]
    for raw, shared in zip(raws, (0, 0, 1, 1, 0, 1), strict=True):
        raw.send(message(Kind.LOCK, number=1, operand=shared))
        holds(raw)  # it is taken down before the next one asks
        user.put(0, ONE)
        user.origin.flush(0)
    for granted, leaving in ((1, [0]), (2, [1]), (4, [2]), (4, [3]), (5, [4]), (6, [5])):
        assert [holds(raw) for raw in raws] == [i < granted for i in range(6)]
        for i in leaving:
            unlock(raws[i])
    for raw in raws:
        raw.close()


def holds(raw: Raw) -> bool:
    """The lock of a connection has been granted: number 1 is done."""
    token = 1 << 63
    reply: Reply | None = raw.ask(message(Kind.NUMBER, number=token))
    while reply and reply.number != token:  # that of the lock
        reply = raw.receive()
    assert reply
    return reply.operand >= 1


def unlock(raw: Raw, number: int = 2) -> None:
    reply: Reply | None = raw.ask(message(Kind.UNLOCK, number=number))
    while reply and reply.number != number:
        reply = raw.receive()
    assert reply and reply.kind == Kind.DONE


def test_who_goes_away_waits_no_longer(node: Node) -> None:
    """Law: a request for a lock goes with its connection; what stood behind it is granted."""
    first, second, third = (Raw(node, node.fresh()) for _ in range(3))
    first.ask(message(Kind.LOCK, number=1, operand=1))
    second.send(message(Kind.LOCK, number=1))  # exclusive, waits
    assert second.ask(message(Kind.NUMBER, number=5)).operand == 0
    third.send(message(Kind.LOCK, number=1, operand=1))  # would be granted beside the first
    assert third.ask(message(Kind.NUMBER, number=5)).operand == 0
    second.close()
    assert third.receive() is not None and holds(third)
    for raw in (first, third):
        unlock(raw)
        raw.close()


def test_processes_of_the_node_come_first_for_a_moment_only(node: Node) -> None:
    """Law: where one of them waits for the lock, too, the agent leaves it to them for a
    millisecond, also if others keep it busy all that time."""
    sleepers = np.memmap(node.directory / "part-0", "u4", "r+", 0, (2,))
    over, others = threading.Event(), [User(node, node.fresh()) for _ in range(2)]
    block = bytes(1 << 20)

    def keep_busy(other: User) -> None:
        while not over.is_set():
            other.put(0, block)

    busy = [threading.Thread(target=keep_busy, args=(other,)) for other in others]
    for thread in busy:
        thread.start()
    try:
        for _ in range(5):
            first, second = (Raw(node, node.fresh()) for _ in range(2))
            first.ask(message(Kind.LOCK, number=1))
            second.send(message(Kind.LOCK, number=1))
            assert not holds(second)
            sleepers[1] = 1  # at the first bell of the part's file
            unlock(first)
            began = time.monotonic()
            granted = second.receive()
            assert granted and granted.kind == Kind.DONE
            assert time.monotonic() - began < 0.5
            sleepers[1] = 0
            unlock(second)
            first.close(), second.close()
    finally:
        over.set()
        sleepers[1] = 0
        for thread, other in zip(busy, others, strict=True):
            thread.join(PATIENCE_S)
            other.close()


def test_all_who_want_a_lock_get_it(node: Node) -> None:
    """Law: nobody starves, and a word that is read, then written under the lock counts all."""
    rounds, users = 40, [User(node, node.fresh()) for _ in range(3)]
    order: list[int] = []
    node.part()[:8] = 0

    def work(i: int) -> None:
        for _ in range(rounds):
            users[i].origin.lock(0, WINDOW)
            value = int.from_bytes(users[i].get(0, 8), "little")
            users[i].put(0, (value + 1).to_bytes(8, "little"))
            order.append(i)
            users[i].origin.unlock(0, WINDOW)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert int.from_bytes(users[0].get(0, 8), "little") == 3 * rounds == len(order)
    for user in users:
        user.close()


def test_a_neighbour_inside_a_change_parks_that_request_only(node: Node, user: User) -> None:
    """Law: an atomic waits for a process of the node that is inside a change of the part, and
    nobody else does."""
    raw = Raw(node, node.fresh())
    wire.write_owner(node.ledger, 0, 7)
    raw.send(message(Kind.FOP, ONE, number=1, op=Op.SUM, type_=Type.I64, offset=128))
    before = user.get(128, 8)
    assert raw.ask(message(Kind.NUMBER, number=3)).operand == 0
    raw.send(message(Kind.FOP, ONE, number=1, op=Op.SUM, type_=Type.I64, offset=128))  # again
    assert user.get(128, 8) == before
    wire.write_owner(node.ledger, 0, 0)
    answer = raw.receive()
    assert answer and answer.kind == Kind.ANSWER and answer.payload[24:32] == before
    assert int.from_bytes(user.get(128, 8), "little") == int.from_bytes(before, "little") + 1
    assert wire.read_owner(node.ledger, 0) == 0
    assert raw.ask(message(Kind.NUMBER, number=3)).operand == 1  # and not twice
    raw.close()


def test_the_alarm_ends_every_wait(node: Node, user: User) -> None:
    """Law: a wait ends when somebody rings, whoever is waited for; what was under way goes on."""
    holder = User(node, node.fresh())
    holder.origin.lock(0, WINDOW)
    alarm = threading.Timer(0.05, user.origin.ring)
    alarm.start()
    started = time.monotonic()
    with pytest.raises(Unfinished) as caught:
        user.origin.lock(0, WINDOW)
    assert caught.value.result == WireResult.ALARM and time.monotonic() - started < 5
    with pytest.raises(FtrmaError, match="busy"):
        user.put(0, ONE)  # nothing follows what has no answer
    user.origin.clear_alarm()
    holder.origin.unlock(0, WINDOW)
    user.origin.finish(0)
    user.origin.unlock(0, WINDOW)
    user.put(0, ONE)
    user.origin.flush(0)
    holder.close()


# ---- what nobody can obey -------------------------------------------------------------------


def one_run(offset: int, size_bytes: int) -> bytes:
    """A put of 8 bytes whose run says something else."""
    run = struct.pack("<QQ", offset, size_bytes)
    return message(Kind.PUTV, run + ONE, number=1, operand=1)


PUT = message(Kind.PUT, ONE, number=1)
WRONG = {
    "another format": (message(Kind.PUT, ONE, number=1, format_=9), "format"),
    "kind 0": (message(0, number=1), "unknown kind"),
    "kind 200": (message(200, number=1), "unknown kind"),
    "a reply": (message(Kind.DONE), "not a request"),
    "4 GiB": (message(Kind.PUT, number=1, length=2**32 - 1), "too long"),
    "a byte too much": (message(Kind.PUT, number=1, length=wire.PAYLOAD_BYTES + 1), "too long"),
    "nothing": (message(Kind.PUT, number=1), "too short"),
    "no number": (message(Kind.PUT, ONE), "number"),
    "a strange window": (message(Kind.FLUSH, window=3), "a window"),
    "a get of nothing": (message(Kind.GET), "asks for"),
    "a get of all": (message(Kind.GET, operand=2**40), "asks for"),
    "no such type": (message(Kind.FOP, ONE, number=1, op=1, type_=7), "type"),
    "no such operation": (message(Kind.FOP, ONE, number=1, op=12, type_=4), "operation"),
    "bits of floats": (message(Kind.FOP, ONE, number=1, op=Op.BOR, type_=Type.F64), "floating"),
    "an operation of a swap": (message(Kind.CAS, ONE, number=1, op=1, type_=4), "operation"),
    "half an element": (message(Kind.ACC, ONE + b"1234", number=1, op=1, type_=4), "length"),
    "too many elements": (message(Kind.ACC, ONE * 129, number=1, op=1, type_=4), "too long"),
    "odd place": (message(Kind.FOP, ONE, number=1, op=1, type_=4, offset=4), "offset"),
    "behind the end": (message(Kind.PUT, ONE, number=1, offset=(1 << 20) - 7), "outside"),
    "far away": (message(Kind.PUT, ONE, number=1, offset=2**64 - 4), "outside"),
    "a get far away": (message(Kind.GET, offset=2**64 - 8, operand=16), "outside"),
    "an atomic far away": (message(Kind.FOP, ONE, number=1, op=1, type_=4, offset=2**64 - 8),
                           "outside"),
    "no runs": (message(Kind.PUTV, ONE * 3, number=1), "runs"),
    "too many runs": (message(Kind.PUTV, ONE * 3, number=1, operand=2**60), "runs"),
    "an empty run": (one_run(0, 0), "runs"),
    "a long run": (one_run(0, 9), "runs"),
    "a short run": (one_run(0, 7), "no run"),
    "a run far away": (one_run(2**64 - 4, 8), "outside"),
    "half a run": (message(Kind.GETV, ONE * 3), "half a run"),
    "runs of 2 GiB": (message(Kind.GETV, struct.pack("<QQ", 0, 1 << 31)), "runs"),
    "no such target": (message(Kind.PUT, ONE, number=1, target=9), "target"),
    "no such word": (message(Kind.SET, number=1, offset=WORDS), "word"),
    "the last word of all": (message(Kind.SET, number=1, offset=2**64 - 8, operand=1), "word"),
    "half a word": (message(Kind.SET, number=1, offset=4), "word"),
    "no such target to hold": (message(Kind.HOLD, target=2**32 - 1), "target"),
    "a lock that is neither": (message(Kind.LOCK, number=1, operand=3), "lock"),
}


@pytest.mark.parametrize("name", WRONG)
def test_nonsense_is_refused_in_words(node: Node, user: User, raw: Raw, name: str) -> None:
    """Law: what nobody can obey is told why and ends its own connection; nothing is written, what
    follows it is not looked at, and others are served."""
    part = node.part()
    part[:] = 0x5A
    text, why = WRONG[name]
    reply = raw.ask(text + PUT)
    assert reply.kind == Kind.BROKEN and why in reply.payload.decode(), reply.payload
    assert raw.receive() is None
    assert (part == 0x5A).all()
    user.origin.locate(1, 0, 1)
    user.put(0, ONE, target=1)
    user.origin.flush(1)


def test_garbage_ends_only_its_own_connection(node: Node, user: User, slot: int) -> None:
    """Law: random bytes behind the welcome, whole and cut off, harm nobody; the agent goes on."""
    picked, part = random.Random(6), node.part()
    part[:] = 0x5A
    for i in range(40):
        raw = Raw(node, slot, i)
        text = bytearray(picked.randbytes(picked.randrange(1, 300)))
        if i % 2 and len(text) >= HEAD.size:  # closer to the truth
            text[:4] = HEAD.pack(picked.randrange(30), 1, picked.randrange(256), 0, *[0] * 7)[:4]
            text[4:8] = picked.randrange(200).to_bytes(4, "little")
        raw.send(bytes(text))
        raw.close()
    user.put(0, ONE, target=1)
    user.origin.flush(1)
    assert user.get(0, 8, target=1) == ONE


def test_an_origin_is_told_and_does_not_try_for_ever(node: Node, user: User) -> None:
    """Law: what the agent refuses ends the call with its words."""
    with pytest.raises(Unfinished, match="outside of the part") as caught:
        user.get((1 << 20) - 4, 8)
    assert caught.value.result == WireResult.REFUSED
    user.origin.retry()
    assert user.get(0, 1)


# ---- the process ----------------------------------------------------------------------------


@pytest.mark.plain
def test_an_idle_agent_costs_nothing() -> None:
    """Law: without requests an agent takes no time, and at most 20 MB of memory of its own; it
    has neither MPI nor NumPy in it."""
    with served(origins=16) as node:
        users = [User(node, i) for i in range(16)]
        for user in users:
            user.put(0, bytes(1 << 20))
            user.origin.flush(0)
        assert node.agent
        time.sleep(0.05)  # the look after the last request
        before = cpu_ticks(node.agent.pid)
        time.sleep(0.5)
        assert cpu_ticks(node.agent.pid) - before <= 1
        rollup = Path(f"/proc/{node.agent.pid}/smaps_rollup").read_text()
        private = sum(int(size) for size in re.findall(r"Private_\w+:\s+(\d+)", rollup))
        assert private <= 20_000, private
        maps = Path(f"/proc/{node.agent.pid}/maps").read_text()
        assert "_wire" in maps and not re.search(r"libmpi|numpy|_native|mpi4py", maps)
        for user in users:
            user.close()


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_large_ledger_takes_little_memory() -> None:
    """Law: of a ledger for many slots only what is used has memory, also after a rollback."""
    with served(origins=1024, targets=64) as node:
        user = User(node, 1000)
        user.put(0, ONE, target=63)
        user.origin.flush(63)
        for roles_number in (1, 2):
            user.origin.tell_roles(0, roles_number, forget=True)
            user.origin.take_roles(roles_number, forget=True)
            user.put(0, ONE, target=63)
            user.origin.flush(63)
        assert wire.number_of(node.ledger, 1000, 63) == 1
        assert node.ledger_path.stat().st_size > 100 << 20
        assert node.ledger_path.stat().st_blocks * 512 < 1 << 20
        user.close()


def test_an_agent_ends_with_its_stdin() -> None:
    """Law: it does not outlive who has started it."""
    with served() as node:
        node.reach()
        assert node.agent and node.agent.stdin
        node.agent.stdin.close()
        assert node.ended() == 0


def test_ipv6() -> None:
    """Law: the same over IPv6."""
    try:
        with served(bind="::1") as node:
            user = User(node)
            user.put(0, ONE)
            assert user.get(0, 8) == ONE
            address = node.address()
            assert address and address.addresses == ("::1",)
            user.close()
    except AssertionError:
        if not Path("/proc/net/if_inet6").exists():
            pytest.skip("this machine has no IPv6")
        raise
