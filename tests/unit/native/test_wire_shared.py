"""Plain files that several processes of a node have in common, and say so, each for itself."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from wirenode import PATIENCE_S, Node, User, served
from wirenode import engine as engine

from ftrma.host.errors import FtrmaError
from ftrma.native import wire

pytestmark = pytest.mark.plain  # its tests take seconds

SHARED, TARGET, HEAD_BYTES, FILE_BYTES = 9, 1, 64, 4096
ARRIVED = 56  # a word in the head


def share(node: Node, file: str, window: int = SHARED) -> None:
    path = node.directory / file
    if not path.exists():
        path.write_bytes(bytes(FILE_BYTES))
    wire.ledger_share(node.ledger, window=window, target=TARGET, generation=1, file=file,
                      size_bytes=FILE_BYTES, head_bytes=HEAD_BYTES)


def word(node: Node, file: str) -> int:
    return int.from_bytes((node.directory / file).read_bytes()[ARRIVED : ARRIVED + 8], "little")


def spare(kill: str | None = None) -> contextlib.AbstractContextManager[Node]:
    """A node with room for one more part."""
    return served(kill, targets=TARGET + 1, more=1)


def test_said_twice_it_is_one_part() -> None:
    """Law: whoever says it finds it said; when it is gone for one it is gone for all, and the next
    file can have its name."""
    with spare() as node, contextlib.closing(User(node, patience_s=0.2)) as user:
        node.reach()
        for _ in range(5):  # there is room for one
            share(node, "board")
        user.origin.put(TARGET, SHARED, HEAD_BYTES, b"x" * 8)
        user.origin.flush(TARGET)
        assert (node.directory / "board").read_bytes()[HEAD_BYTES : HEAD_BYTES + 8] == b"x" * 8
        wire.ledger_unshare(node.ledger, SHARED, TARGET, 1)
        user.origin.put(TARGET, SHARED, HEAD_BYTES, b"y" * 8)
        with pytest.raises(wire.Unfinished):
            user.origin.flush(TARGET)
        share(node, "later")
        assert (node.directory / "board").read_bytes()[HEAD_BYTES : HEAD_BYTES + 8] == b"x" * 8


def test_two_files_of_one_name_are_refused() -> None:
    """Law: the second one is, and the first is as it was."""
    with spare() as node, contextlib.closing(User(node)) as user:
        share(node, "one")
        with pytest.raises(FtrmaError, match=os.strerror(17)):
            share(node, "two")
        share(node, "one")
        user.origin.set_word(TARGET, SHARED, ARRIVED, 7)
        user.origin.flush(TARGET)
        assert (word(node, "one"), word(node, "two")) == (7, 0)


def test_no_room_is_told() -> None:
    """Law: more than there is room for is refused, and room that comes free serves again."""
    with spare() as node:
        share(node, "one")
        with pytest.raises(FtrmaError):
            share(node, "two", window=SHARED + 1)
        wire.ledger_unshare(node.ledger, SHARED, TARGET, 1)
        share(node, "two", window=SHARED + 1)


def test_a_word_that_was_numbered_and_not_raised() -> None:
    """Law: an agent that dies between the two is followed by one that raises it."""
    with spare("NUMBER:1") as node, contextlib.closing(User(node)) as user:
        share(node, "board")
        first = node.agent
        node.reach()
        node.start()  # waits for the first one's end
        user.origin.set_word(TARGET, SHARED, ARRIVED, 3)
        user.origin.flush(TARGET)
        assert first and first.wait(PATIENCE_S) == -signal.SIGKILL
        assert word(node, "board") == 3


def test_a_word_whose_part_is_given_up_meanwhile() -> None:
    """Law: its origin does not wait for ever: whoever gives a part up waits for nothing there."""
    with spare("NUMBER:1") as node, contextlib.closing(User(node)) as user:
        share(node, "board")
        first = node.agent
        node.reach()
        user.origin.set_timeout(200)
        user.origin.set_word(TARGET, SHARED, ARRIVED, 3)
        with pytest.raises(wire.Unfinished):
            user.origin.flush(TARGET)
        assert first and first.wait(PATIENCE_S) == -signal.SIGKILL
        wire.ledger_unshare(node.ledger, SHARED, TARGET, 1)
        node.start()
        user.origin.set_timeout(int(1000 * PATIENCE_S))
        user.origin.flush(TARGET)
        assert user.origin.pending(TARGET) == 0


def test_several_targets_at_once() -> None:
    """Law: what these have not acknowledged is waited for, and nothing else is."""
    with served(targets=3) as node, contextlib.closing(User(node)) as user:
        for target in range(3):
            user.put(0, b"z" * 8, target)
        user.origin.flush_each([0, 2])
        assert [user.origin.pending(target) for target in (0, 2)] == [0, 0]
        assert user.numbers(0) == user.numbers(2) == [1]
        assert user.numbers(1) == [] and user.origin.pending(1) > 0
        user.origin.flush_each([])
        with pytest.raises(FtrmaError):
            user.origin.flush_each([1, 3])
        user.origin.flush_all()
        assert user.numbers(1) == [1]
