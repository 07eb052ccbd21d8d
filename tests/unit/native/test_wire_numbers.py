"""Calls of C on an origin beside accesses: numbers, answers, who is told acknowledgements.

Python has no use for these calls, so they are made here as C makes them. A slot that is replayed
gives its requests the numbers that they had: what has taken effect is not done again. And the
clocks that come with acks and answers, where they lie in a file of the node's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from wirenode import PATIENCE_S, WINDOW, Node, User, served
from wirenode import engine as engine

from ftrma.host.errors import FtrmaError
from ftrma.native import wire
from ftrma.native.wire import Kind, Op, Type
from ftrma.native.wireconstants import declarations as ffi

LIB: Any = ffi.dlopen(str(wire.LIBRARY))
TARGETS, CLOCKS, FIRST, STEP = 3, 2, 16, 24


@pytest.fixture(scope="module")
def node(engine: str) -> Iterator[Node]:
    with served(origins=64, targets=TARGETS) as made:
        yield made


class Origin:
    """The calls on an origin that C alone makes; those of a user are at hand, too."""

    def __init__(self, node: Node, slot: int, incarnation: int = 0) -> None:
        self.user = User(node, slot, incarnation)
        self.c = ffi.cast("struct ftrma_origin *", self.user.origin.address)

    def last(self, target: int = 0) -> int:
        return int(LIB.ftrma_origin_last_number(self.c, target))

    def go_on(self, number: int, target: int = 0) -> None:
        LIB.ftrma_origin_continue(self.c, target, number)

    def reached(self, target: int = 0) -> int:
        found = ffi.new("uint64_t *")
        assert LIB.ftrma_origin_reached(self.c, target, found) == 0
        return int(found[0])

    def ask(self, value: int, offset: int = 0, target: int = 0) -> int:
        """Begin to add."""
        return int(LIB.ftrma_origin_atomic_begin(self.c, Kind.FOP, Op.SUM, Type.I64, target, WINDOW,
                                                 offset, 0, value.to_bytes(8, "little"), 8))

    def answered(self, target: int = 0) -> bool:
        return bool(LIB.ftrma_origin_answered(self.c, target))

    def close(self) -> None:
        self.user.close()


def value(node: Node, offset: int, target: int = 0) -> int:
    return int(node.part(target, "i8")[offset // 8])


# ---- numbers --------------------------------------------------------------------------------


def test_a_replacement_does_nothing_twice(node: Node) -> None:
    """Law: by the numbers that the slot's requests had, its replacement sends them again: those
    that have taken effect do so no more and are acknowledged, the last atomic is answered as it
    was, and what was not reached is done."""
    slot = node.fresh()
    first = Origin(node, slot)
    first.user.put(100, b"first")
    assert first.user.add(200, 5) == 0
    first.user.put(100, b"third")
    assert first.user.add(200, 7) == 5
    first.user.origin.flush(0)
    assert first.last() == first.reached() == 4
    first.close()
    other = User(node, node.fresh())
    other.put(100, b"other")
    assert other.add(200, 100) == 12
    other.origin.flush(0)
    other.close()

    again = Origin(node, slot, 1)
    assert again.last() == 0 and again.reached() == 4 and again.last() == 0
    again.user.put(100, b"first")
    again.go_on(2)  # of number 2 the replay knows the answer, and passes it over
    again.user.put(100, b"third")
    again.user.origin.flush(0)
    assert again.user.numbers() == [1, 3]
    assert bytes(node.part()[100:105]) == b"other" and value(node, 200) == 112
    assert again.user.add(200, 7) == 5 and value(node, 200) == 112
    assert again.last() == 4
    assert again.user.add(200, 1) == 112 and value(node, 200) == 113
    assert again.last() == again.reached() == 5
    again.close()


def test_who_has_sent_none_goes_on(node: Node) -> None:
    """Law: to ask for the number makes a process that has sent nothing go on there, and no other
    one; `reached` changes nothing."""
    slot = node.fresh()
    first = Origin(node, slot)
    for i in range(3):
        first.user.put(300, bytes([i]))
    assert first.user.origin.number(0) == 3 == first.last()
    first.close()
    again = Origin(node, slot, 1)
    assert (again.reached(), again.last()) == (3, 0)
    assert (again.user.origin.number(0), again.last()) == (3, 3)
    again.user.put(300, b"\x09")
    assert (again.last(), again.last(1), again.reached(1)) == (4, 0, 0)
    again.user.origin.flush(0)
    assert again.user.numbers() == [4] and node.part()[300] == 9
    assert (again.user.origin.number(0), again.last()) == (4, 4)
    again.close()


def test_numbers_count_for_each_target(node: Node) -> None:
    """Law: what goes to one target is not counted at another."""
    origin = Origin(node, node.fresh())
    for target, puts in enumerate((2, 0, 3)):
        for _ in range(puts):
            origin.user.put(400, b"x", target)
    origin.go_on(0, 1)
    assert [origin.last(target) for target in range(TARGETS)] == [2, 0, 3]
    assert [origin.reached(target) for target in range(TARGETS)] == [2, 0, 3]
    origin.close()


def test_what_was_sent_before_is_told_with_the_number(node: Node) -> None:
    """Law: who has the number that is reached has heard of all that took effect before it, for
    acks and answers come on the same way."""
    origin = Origin(node, node.fresh())
    for _ in range(50):
        origin.user.put(500, b"y")
    assert origin.ask(3, 504) == 0
    assert origin.reached() == 51
    assert origin.answered() and origin.user.numbers() == list(range(1, 51))
    answer = ffi.new("struct ftrma_wire_answer *")
    assert LIB.ftrma_origin_finish(origin.c, 0, answer) == 0
    assert answer.number == 51
    assert struct.unpack_from("<qq", bytes(ffi.buffer(answer.data))) == (0, 3)
    origin.close()


# ---- an atomic in two steps -----------------------------------------------------------------


def test_an_atomic_that_is_asked_for_is_done_beside_others(node: Node) -> None:
    """Law: an atomic that was begun takes effect whoever waits; until its answer is taken nothing
    else goes to its target, and anything to others."""
    origin = Origin(node, node.fresh())
    assert [origin.ask(1, 600, target) for target in range(TARGETS)] == [0] * TARGETS
    for target in range(TARGETS):
        assert origin.ask(1, 600, target) == -errno.EBUSY
        with pytest.raises(FtrmaError, match=os.strerror(errno.EBUSY)):
            origin.user.put(600, b"z", target)
        assert origin.reached(target) == 1 and origin.answered(target)
    for target in range(TARGETS):
        assert origin.ask(1, 600, target) == -errno.EBUSY  # it is here, and was not taken
        assert origin.user.origin.finish(target).new == (1).to_bytes(8, "little")
        assert not origin.answered(target) and value(node, 600, target) == 1
        assert origin.ask(1, 600, target) == 0
        assert origin.user.origin.finish(target).old == (1).to_bytes(8, "little")
    with pytest.raises(FtrmaError):
        origin.user.origin.finish(0)
    origin.close()


@pytest.mark.parametrize("kind,op,type_,size", [
    (Kind.PUT, 0, 0, 8), (Kind.LOCK, 0, 0, 0), (Kind.FOP, 0, Type.I64, 8),
    (Kind.FOP, Op.SUM, Type.I64, 4), (Kind.FOP, 16, Type.I64, 8), (Kind.FOP, Op.SUM, -1, 8),
    (Kind.ACC, Op.SUM, Type.I64, wire.ATOMIC_BYTES + 8), (Kind.CAS, Op.SUM, Type.I64, 8),
])
def test_an_atomic_that_cannot_be_is_not_begun(
    node: Node, kind: int, op: int, type_: int, size: int
) -> None:
    """Law: it is refused on the spot, has no number, and the target is free for others."""
    origin = Origin(node, node.fresh())
    data = bytes(wire.ATOMIC_BYTES + 8)
    result = LIB.ftrma_origin_atomic_begin(origin.c, kind, op, type_, 0, WINDOW, 0, 0, data, size)
    assert result == -errno.EINVAL and origin.last() == 0
    result = LIB.ftrma_origin_atomic_begin(origin.c, Kind.FOP, Op.SUM, Type.I64, TARGETS, WINDOW, 0,
                                           0, data, 8)
    assert result == -errno.EINVAL
    origin.user.put(700, b"free")
    origin.user.origin.flush(0)
    assert origin.last() == 1 and not origin.answered(TARGETS)
    origin.close()


def test_an_answer_outlives_the_agent() -> None:
    """Law: an atomic that was begun is answered by the next agent, once."""
    with served("NUMBER:1") as node, contextlib.closing(Origin(node, 0)) as origin:
        assert origin.ask(4) == 0
        node.reach()
        waiter = threading.Thread(target=origin.reached)
        waiter.start()
        node.ended()
        node.start()
        waiter.join(PATIENCE_S)
        assert origin.user.origin.finish(0).old == bytes(8) and value(node, 0) == 4


# ---- who is told ----------------------------------------------------------------------------


def test_another_one_is_told_from_now_on(node: Node) -> None:
    """Law: what is acknowledged after `tell` is told to whom it names, and to nobody before."""
    origin = Origin(node, node.fresh())
    told: list[tuple[int, int, int]] = []
    told_by = ffi.callback("ftrma_wire_acked", lambda _, target, acks, n: told.extend(
        (target, acks[i].number, acks[i].count) for i in range(n)))
    origin.user.put(800, b"a")
    origin.user.origin.flush(0)
    LIB.ftrma_origin_set_acked(origin.c, told_by)
    origin.user.put(800, b"b")
    origin.user.put(800, b"c", 2)
    origin.user.origin.flush_all()
    assert origin.user.numbers() == [1]
    assert sorted(told) == [(0, 2, 1), (2, 1, 1)]
    origin.close()


# ---- clocks ---------------------------------------------------------------------------------


def write_clock(node: Node, target: int, clock: int) -> None:
    """Store a clock as its target does, in the file of clocks."""
    with (node.directory / "clocks").open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack("<Q", clock), FIRST + STEP * target)


@contextlib.contextmanager
def clocked(kill: str | None = None) -> Iterator[Node]:
    """A node whose first targets have their clocks in a file, which is not there yet."""
    with served(kill, targets=TARGETS) as node:
        wire.ledger_clocks(node.ledger, "clocks", CLOCKS, FIRST, STEP)
        for target in range(TARGETS):
            wire.write_clock(node.ledger, target, 1000 + target)
        yield node


def make_clocks(node: Node) -> None:
    """The file, which ends behind the last clock."""
    (node.directory / "clocks").write_bytes(b"\xff" * (FIRST + STEP * (CLOCKS - 1) + 8))
    for target in range(CLOCKS):
        write_clock(node, target, 0)


def clocks(user: User) -> list[int]:
    """The clocks of targets that acks and answers tell."""
    found = []
    for target in range(TARGETS):
        user.acks.clear()
        user.put(0, bytes(8), target)
        user.origin.flush(target)
        answer = user.origin.atomic(Kind.FOP, Op.SUM, Type.I64, target, WINDOW, 0, bytes(8))
        assert [ack.clock for _, ack in user.acks] == [answer.clock]
        found.append(answer.clock)
    return found


def test_clocks_come_from_the_file() -> None:
    """Law: acks and answers have the clock that stands in the file when they are applied; of a
    target that has none there, that of the ledger."""
    with clocked() as node, contextlib.closing(User(node)) as user:
        make_clocks(node)
        assert clocks(user) == [0, 0, 1002]
        for i in range(1, 20):
            for target in range(CLOCKS):
                write_clock(node, target, 10 * i + target)
            wire.write_clock(node.ledger, 2, 500 + i)
            assert clocks(user) == [10 * i, 10 * i + 1, 500 + i]


def test_the_next_agent_reads_them_there_too() -> None:
    """Law: where the clocks lie outlives the agent."""
    with clocked() as node, contextlib.closing(User(node)) as user:
        make_clocks(node)
        write_clock(node, 1, 7)
        assert clocks(user) == [0, 7, 1002]
        assert node.agent
        node.agent.kill()
        node.ended()
        node.start()
        write_clock(node, 1, 8)
        assert clocks(user) == [0, 8, 1002]


def test_a_file_of_clocks_that_is_not_whole_is_not_read() -> None:
    """Law: until it is there, to the last clock, those of the ledger are told."""
    with clocked() as node, contextlib.closing(User(node)) as user:
        assert clocks(user) == [1000, 1001, 1002]
        (node.directory / "clocks").write_bytes(b"\xff" * (FIRST + STEP * (CLOCKS - 1) + 7))
        assert clocks(user) == [1000, 1001, 1002]
        (node.directory / "clocks").unlink()
        (node.directory / "elsewhere").write_bytes(b"\xff" * 4096)
        (node.directory / "clocks").symlink_to(node.directory / "elsewhere")
        assert clocks(user) == [1000, 1001, 1002]
        (node.directory / "clocks").unlink()
        make_clocks(node)
        assert clocks(user) == [0, 0, 1002]


@pytest.mark.parametrize("file,targets,at,step", [
    ("clocks", 0, 0, 8), ("clocks", TARGETS + 1, 0, 8), ("clocks", 1, 4, 8), ("clocks", 1, 0, 12),
    ("../clocks", 1, 0, 8), ("/dev/shm/clocks", 1, 0, 8), ("c" * 128, 1, 0, 8),
], ids=["none", "many", "odd", "odd step", "above", "far", "long"])
def test_clocks_that_cannot_be(node: Node, file: str, targets: int, at: int, step: int) -> None:
    """Law: they are refused, and those of the ledger stay."""
    with pytest.raises(FtrmaError, match="placing clocks: Invalid"):
        wire.ledger_clocks(node.ledger, file, targets, at, step)
    wire.write_clock(node.ledger, 0, 77)
    user = User(node, node.fresh())
    assert clocks(user)[0] == 77
    user.close()
