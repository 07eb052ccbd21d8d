"""Parts that lie in the memory of a process, as those of windows from Create do."""

from __future__ import annotations

import contextlib
import subprocess

import pytest
from wirenode import PATIENCE_S, WINDOW, WORDS, User, served
from wirenode import engine as engine

from ftrma.native import wire
from ftrma.native.wire import Unfinished, WireResult


@pytest.mark.plain
def test_what_a_dead_process_held_is_never_told() -> None:
    """Law: once the process is dead nobody learns a value from its part. What is put there is
    done, for a replay has it from the log; an atomic is done when there is memory again."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    with served() as node, contextlib.closing(User(node)) as user, \
            contextlib.closing(User(node, slot=1)) as other:
        node.part(dtype="i8")[:2] = 7, 40
        assert user.get(0, 8) == (7).to_bytes(8, "little")  # the agent may remember that
        wire.ledger_place(node.ledger, 0, window=WINDOW, target=0, at=4096, pid=ended.pid,
                          generation=1, file="part-0", size_bytes=node.part_bytes, words=WORDS,
                          head_bytes=WORDS)
        user.put(0, b"for none")
        user.origin.flush(0)
        for who in user, other:
            who.origin.set_timeout(200)
        for attempt in (lambda: user.get(0, 8), lambda: other.add(8)):
            with pytest.raises(Unfinished) as caught:
                attempt()
            assert caught.value.result == WireResult.TIMEOUT
        for who in user, other:
            who.origin.set_timeout(int(1000 * PATIENCE_S))
        assert other.origin.number(0) == 0 and user.origin.number(0) == 1
        user.origin.hold(0, hold=True)
        other.origin.locate(0, 0, 1)  # so do all in a repair
        node.place(0, 1)  # memory of its replacement
        user.origin.hold(0, hold=False)
        assert other.origin.finish(0).old == (40).to_bytes(8, "little")
        assert node.part(dtype="i8")[:2].tolist() == [7, 41]
        assert user.get(0, 8) == (7).to_bytes(8, "little")
