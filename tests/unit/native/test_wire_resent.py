"""Requests to an agent that come twice, too early, or to one who cannot take them now: each is done
once, in its order.
"""

from __future__ import annotations

import struct
import threading
import time

import pytest
from wirenode import HEAD, ONE, PATIENCE_S, WINDOW, Node, Raw, User, message, sealed, served
from wirenode import engine as engine
from wirenode import new_raw as new_raw
from wirenode import new_user as new_user
from wirenode import node as node
from wirenode import slot as slot

from ftrma.native import wire
from ftrma.native.wire import Kind, Op, Type, Unfinished, Why, WireResult

pytestmark = pytest.mark.plain  # its tests take seconds

# ---- numbers --------------------------------------------------------------------------------


NUMBERED = {
    "put": (message(Kind.PUT, ONE, number=1, offset=256), Kind.ACK),
    "putv": (message(Kind.PUTV, struct.pack("<QQ", 256, 8) + ONE, number=1, operand=1), Kind.ACK),
    "acc": (message(Kind.ACC, ONE * 2, number=1, op=Op.SUM, type_=Type.I64, offset=256),
            Kind.ANSWER),
    "fop": (message(Kind.FOP, ONE, number=1, op=Op.SUM, type_=Type.I64, offset=256), Kind.ANSWER),
    "cas": (message(Kind.CAS, ONE, number=1, type_=Type.I64, offset=256), Kind.ANSWER),
    "lock": (message(Kind.LOCK, number=1), Kind.DONE),
}


def numbered(text: bytes, number: int) -> bytes:
    fields = list(HEAD.unpack(text[: HEAD.size]))
    fields[4] = number
    return sealed(HEAD.pack(*fields), text[HEAD.size :])


@pytest.mark.parametrize("name", NUMBERED)
def test_what_comes_twice_is_done_once(node: Node, slot: int, name: str) -> None:
    """Law: a request whose number is reached is not done, and gets the reply of the first time,
    over a new connection, too; a later change stays."""
    text, kind = NUMBERED[name]
    part = node.part(dtype="i8")
    part[32:34] = 0
    flush = message(Kind.FLUSH, number=77) if kind == Kind.ACK else b""
    raw = Raw(node, slot)
    first = raw.ask(text + flush)
    assert first.kind == kind
    part[32] = 1000  # somebody else's
    replies = [raw.ask(text + flush)]
    raw.close()
    raw = Raw(node, slot)
    replies += [raw.ask(text + flush), raw.ask(text * 3 + flush)]
    assert part[32] == 1000
    for reply in replies:
        assert reply.kind == kind
        if kind == Kind.ANSWER:
            assert reply.payload == first.payload
        if kind == Kind.ACK:
            assert struct.unpack("<Q", reply.payload[:8]) == (1,)
    raw.close()
    if name == "lock":
        raw = Raw(node, slot)
        assert raw.ask(message(Kind.UNLOCK, number=2)).kind == Kind.DONE
        assert raw.ask(message(Kind.UNLOCK, number=2)).kind == Kind.DONE
        assert raw.ask(text).kind == Kind.DONE  # late: it is not locked again
        other = User(node, node.fresh())
        other.origin.lock(0, WINDOW)
        assert raw.ask(message(Kind.UNLOCK, number=2)).kind == Kind.DONE  # frees nobody else's
        raw.send(message(Kind.LOCK, number=3))
        assert raw.ask(message(Kind.NUMBER, number=9)).operand == 2
        other.origin.unlock(0, WINDOW)
        assert raw.receive() is not None
        raw.ask(message(Kind.UNLOCK, number=4))
        other.close()
        raw.close()


@pytest.mark.parametrize("name", NUMBERED)
def test_gaps_are_refused(node: Node, raw: Raw, name: str) -> None:
    """Law: a request whose number is not the next is sent back with the last one that is done, and
    so is all that follows it, until RESEND."""
    text, _ = NUMBERED[name]
    part = node.part()
    part[256:272] = 0
    back = raw.ask(numbered(text, 2))
    assert (back.kind, back.operand, back.offset) == (Kind.REJECTED, Why.GAP, 0)
    assert raw.ask(text + message(Kind.NUMBER, number=5)).operand == 0  # not even the right one
    assert not part[256:272].any()
    raw.send(message(Kind.RESEND))
    assert raw.ask(text + message(Kind.FLUSH, number=6)).kind != Kind.REJECTED
    if name == "lock":
        raw.receive()
        raw.ask(message(Kind.UNLOCK, number=2))


def test_an_origin_goes_on_from_the_number(node: Node, slot: int) -> None:
    """Law: a later process of a slot asks for the number, and its requests follow it; what the one
    before still has to say counts no more, and it is told."""
    first = User(node, slot, 0)
    for i in range(5):
        first.put(512, i.to_bytes(8, "little"))
    first.origin.flush(0)
    second = User(node, slot, 1)
    assert second.origin.number(0) == 5
    second.put(512, ONE)
    second.origin.flush(0)
    assert second.numbers() == [6] and second.get(512, 8) == ONE
    first.put(512, bytes(8))
    with pytest.raises(Unfinished, match="later process of origin") as caught:
        first.origin.flush(0)
    assert caught.value.result == WireResult.REFUSED and second.get(512, 8) == ONE
    first.close()
    second.close()


def test_half_a_message_counts_not_at_all(node: Node, slot: int) -> None:
    """Law: an origin that dies amid a message has not sent it, wherever it was cut; those before
    it count."""
    text = message(Kind.PUT, b"\xff" * 64, number=2, offset=1024)
    for cut in (1, HEAD.size - 1, HEAD.size, HEAD.size + 1, len(text) - 1):
        node.part()[1024:1088] = 0
        raw = Raw(node, slot, cut)
        raw.send(message(Kind.PUT, b"\x11" * 8, number=1, offset=1024) + text[:cut])
        raw.close()
        user = User(node, slot, cut + 1)
        deadline = time.monotonic() + PATIENCE_S
        while node.part()[1024] != 0x11 and wire.number_of(node.ledger, slot, 0) < 1:
            assert time.monotonic() < deadline
        assert user.origin.number(0) == 1
        assert not node.part()[1032:1088].any()
        user.close()


# ---- targets and roles ----------------------------------------------------------------------


def test_hold_refuses_and_live_asks_again(node: Node, user: User) -> None:
    """Law: a target on HOLD takes nothing, not even a flush, a lock or an atomic; all of it is
    done at RELEASE, in its order. Other targets are served, and the number is told."""
    leader, helper_slot = User(node, node.fresh()), node.fresh()
    helper = User(node, helper_slot)
    node.part()[:64] = 0
    user.put(0, ONE)
    user.origin.flush(0)
    leader.origin.hold(0, hold=True)
    for i in range(2, 40):
        user.put(8 * (i % 8), i.to_bytes(8, "little"))
    user.put(0, ONE, target=1)
    user.origin.flush(1)
    user.origin.set_timeout(100)
    helper.origin.set_timeout(100)
    for attempt in (lambda: user.origin.flush(0), lambda: user.get(0, 8), lambda: helper.add(64)):
        with pytest.raises(Unfinished) as caught:
            attempt()
        assert caught.value.result == WireResult.TIMEOUT
    user.origin.set_timeout(int(1000 * PATIENCE_S))
    helper.origin.set_timeout(int(1000 * PATIENCE_S))
    assert user.origin.number(0) == 1 and node.part()[8] == 0
    live = threading.Timer(0.05, lambda: leader.origin.hold(0, hold=False))
    live.start()
    user.origin.flush(0)
    assert user.numbers() == list(range(1, 40))
    assert node.part(dtype="i8")[:8].tolist() == [32, 33, 34, 35, 36, 37, 38, 39]
    assert helper.origin.finish(0).number == wire.number_of(node.ledger, helper_slot, 0)
    live.join()
    leader.close()
    helper.close()


@pytest.mark.parametrize("name", ["acc", "fop", "cas"])
def test_on_hold_what_is_done_is_answered(node: Node, raw: Raw, name: str) -> None:
    """Law: the answer of an atomic that died with an agent is had while the target is on hold, for
    its replay; one that is not done waits for the target."""
    text, _ = NUMBERED[name]
    first = raw.ask(text)
    leader = User(node, node.fresh())
    leader.origin.hold(0, hold=True)
    assert raw.ask(text) == first
    back = raw.ask(numbered(text, 2))
    assert (back.kind, back.operand) == (Kind.REJECTED, Why.HELD)
    leader.origin.hold(0, hold=False)
    leader.close()


def test_hold_sends_those_back_that_wait(node: Node) -> None:
    """Law: who waits for a lock of a target that goes on HOLD gets it after RELEASE."""
    leader, first, second = (User(node, node.fresh()) for _ in range(3))
    first.origin.lock(0, WINDOW)
    second.origin.set_timeout(50)
    with pytest.raises(Unfinished):
        second.origin.lock(0, WINDOW)
    leader.origin.hold(0, hold=True)
    leader.origin.hold(0, hold=False)
    second.origin.set_timeout(int(1000 * PATIENCE_S))
    release = threading.Timer(0.05, lambda: first.origin.unlock(0, WINDOW))
    release.start()
    second.origin.finish(0)
    release.join()
    second.origin.unlock(0, WINDOW)
    for user in (leader, first, second):
        user.close()


def test_roles() -> None:
    """Law: requests under older roles are stale, those under newer ones wait; a process takes
    the new roles and its requests are done. A rollback forgets numbers, answers and locks, once."""
    with served() as node:
        first, second, late = (User(node, i) for i in range(3))
        first.put(0, ONE)
        first.origin.flush(0)
        second.origin.lock(0, WINDOW)
        late.put(0, bytes(8))
        late.origin.flush(0)
        first.origin.tell_roles(0, 1, forget=False)
        late.put(0, b"too late")
        with pytest.raises(Unfinished) as caught:
            late.origin.flush(0)
        assert caught.value.result == WireResult.STALE and node.part()[0] == 0
        late.origin.take_roles(1, forget=False)
        late.origin.flush(0)
        assert node.part()[:8].tobytes() == b"too late" and late.numbers() == [1, 2]

        first.origin.take_roles(1, forget=False)
        first.origin.set_timeout(50)
        with pytest.raises(Unfinished):
            first.origin.lock(0, WINDOW)  # the second's, over a change of roles
        second.origin.take_roles(2, forget=True)  # before the agent
        second.origin.set_timeout(50)
        with pytest.raises(Unfinished) as caught:
            second.add(8)
        assert caught.value.result == WireResult.TIMEOUT and node.part()[8] == 0
        first.origin.take_roles(2, forget=True)
        first.origin.set_timeout(int(1000 * PATIENCE_S))
        second.origin.set_timeout(int(1000 * PATIENCE_S))
        first.origin.tell_roles(0, 2, forget=True)
        assert second.origin.finish(0).number == 1  # numbers begin anew
        first.origin.lock(0, WINDOW)
        first.origin.tell_roles(0, 2, forget=True)  # again: it forgets nothing more
        assert wire.number_of(node.ledger, 0, 0) == 1
        first.origin.unlock(0, WINDOW)
        for user in (first, second, late):
            user.close()


def test_a_part_that_is_not_here(node: Node, user: User) -> None:
    """Law: a request to a part of another generation is sent back; when the origin has heard of
    the generation it is sent there."""
    node.place(1, 5)
    user.origin.locate(1, 0, 1)
    user.put(0, ONE, target=1)
    user.origin.set_timeout(50)
    with pytest.raises(Unfinished):
        user.origin.flush(1)
    assert node.part(1)[0] == 0 or user.origin.pending(1)
    user.origin.set_timeout(int(1000 * PATIENCE_S))
    user.origin.locate(1, 0, 5)
    user.origin.flush(1)
    assert user.numbers(1) == [1]
    node.place(1, 1)
