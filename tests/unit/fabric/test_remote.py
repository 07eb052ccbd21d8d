"""Files of other nodes: plain parts by hand, and as processes read them (``fabric/remote.py``)."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filenodes import PROCS, SLOTS, Nodes, several
from wirenode import FIRST_WORD, Node, Raw, User, message, served

from ftrma.fabric import remote
from ftrma.fabric.remote import File, Files
from ftrma.fabric.round_changed import RoundChanged
from ftrma.host.errors import FtrmaError
from ftrma.native import wire
from ftrma.native.wire import Kind, Lock, Op, Type, Unfinished, WireResult

ONE = (1).to_bytes(8, "little")
PLAIN = 99  # a window
WHERE = [0, 1, 1]  # nodes of processes 0, 1, 2


# ---- plain parts ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with served(origins=64, more=8) as made:
        yield made


def place(node: Node, name: str, data: bytes, head_bytes: int = 0) -> Path:
    """A file as a plain part, in place of the one before; only one at a time."""
    path = node.directory / name
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    wire.ledger_place(node.ledger, 3, window=PLAIN, target=0, generation=1, file=name, at=0,
                      size_bytes=len(data), head_bytes=head_bytes)
    return path


def test_a_plain_file_is_put_to_and_got_from(node: Node) -> None:
    """Law: puts and gets, in one stretch or in runs, reach a plain file, to its last byte and not
    beyond; where it has a head, its words can be set, and nowhere else."""
    user, data = User(node, node.fresh()), random.Random(1).randbytes(700_001)
    path = place(node, "plain", data)
    assert user.origin.get(0, PLAIN, 0, len(data)) == data
    assert user.origin.getv(0, PLAIN, [(5, 3), (700_000, 1)]) == data[5:8] + data[-1:]
    user.origin.put(0, PLAIN, 699_990, b"0123456789a")
    user.origin.putv(0, PLAIN, [(1, 2), (5, 1)], b"xyz")
    user.origin.flush(0)
    wanted = data[:1] + b"xy" + data[3:5] + b"z" + data[6:-11] + b"0123456789a"
    assert path.read_bytes() == wanted
    user.origin.set_word(0, PLAIN, FIRST_WORD, 7)
    with pytest.raises(Unfinished, match="no such word"):
        user.origin.flush(0)
    assert path.read_bytes() == wanted
    user.close()

    user = User(node, node.fresh())
    path = place(node, "headed", bytes(4096), head_bytes=FIRST_WORD + 8)
    user.origin.set_word(0, PLAIN, FIRST_WORD, 7)
    user.origin.flush(0)
    assert path.read_bytes()[FIRST_WORD : FIRST_WORD + 8] == (7).to_bytes(8, "little")
    with pytest.raises(Unfinished, match="outside of the part"):
        user.origin.get(0, PLAIN, 4090, 8)
    user.close()


@pytest.mark.parametrize("kind", [Kind.ACC, Kind.FOP, Kind.CAS, Kind.LOCK, Kind.UNLOCK])
def test_a_plain_file_has_neither_atomics_nor_locks(node: Node, kind: Kind) -> None:
    """Law: they are refused in words, and a repeated number does not reach words that are not
    there."""
    path = place(node, "plain", b"\xff" * 4096)
    atomic = kind not in (Kind.LOCK, Kind.UNLOCK)
    text = message(kind, ONE if atomic else b"", number=1, window=PLAIN,
                   op=Op.SUM if kind in (Kind.ACC, Kind.FOP) else 0,
                   type_=Type.I64 if atomic else 0)
    origin = node.fresh()
    raw = Raw(node, origin)
    reply = raw.ask(text)
    assert reply.kind == Kind.BROKEN and "plain file" in reply.payload.decode()
    raw.close()
    raw = Raw(node, origin)
    raw.ask(message(Kind.PUT, b"\xff", number=1, window=PLAIN) + message(Kind.FLUSH, number=5))
    if not atomic:
        assert raw.ask(text).kind == Kind.DONE
    assert raw.ask(message(Kind.NUMBER, number=6)).operand == 1
    assert path.read_bytes() == b"\xff" * 4096
    raw.close()


def test_who_asks_an_origin_for_them_is_told(node: Node) -> None:
    """Law: the same by an origin's calls."""
    place(node, "plain", bytes(4096))
    user = User(node, node.fresh())
    with pytest.raises(Unfinished, match="plain file") as caught:
        user.origin.lock(0, PLAIN, Lock.EXCLUSIVE)
    assert caught.value.result == WireResult.REFUSED
    user.close()


def test_an_agent_that_takes_over_leaves_plain_files_alone() -> None:
    """Law: neither the agent that follows one that was killed nor new roles change a plain file."""
    with served(more=8) as node:
        path = place(node, "plain", b"\xff" * 8192, head_bytes=FIRST_WORD)
        user = User(node)
        user.origin.put(0, PLAIN, 4096, b"\xee" * 8)
        user.origin.flush(0)
        wanted = path.read_bytes()
        assert node.agent
        node.agent.kill()
        node.ended()
        node.start()
        assert user.origin.get(0, PLAIN, 0, 8192) == wanted == path.read_bytes()
        user.origin.tell_roles(0, 1, forget=True)
        user.origin.take_roles(1, forget=True)
        assert user.origin.get(0, PLAIN, 0, 8192) == wanted == path.read_bytes()
        user.close()


# ---- files of processes ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair() -> Iterator[Nodes]:
    with several(2) as made:
        yield made


@pytest.fixture
def ways(pair: Nodes) -> Iterator[list[Files]]:
    """Files of the processes of `WHERE`."""
    yield [pair.files(p, WHERE) for p in range(3)]
    for node in range(2):
        for kind in File:
            for number in range(PROCS):
                pair.files(WHERE.index(node), WHERE).withdraw(kind, number)
    pair.close_files()


def written(nodes: Nodes, node: int, name: str, data: bytes) -> Path:
    path = nodes[node].directory / name
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def read(files: Files, node: int, kind: File, number: int, offset: int, size_bytes: int) -> bytes:
    room = bytearray(size_bytes)
    files.read(node, kind, number, offset, room)
    return bytes(room)


def test_files_have_names(pair: Nodes, ways: list[Files]) -> None:
    """Law: what is read is what lies on that node under that kind and number, any stretch of it,
    however long; a write changes just what it says."""
    picked, held = random.Random(2), {}
    for proc in range(3):
        for kind in File:
            data = picked.randbytes(600_000 + proc)
            path = written(pair, WHERE[proc], f"{kind.name}-{proc}", data)
            ways[proc].share(kind, proc, path)
            held[kind, proc] = path
    for files in ways:
        for (kind, proc), path in held.items():
            data = path.read_bytes()
            for offset, size in ((0, len(data)), (1, 1), (len(data) - 3, 3), (5, 300_000)):
                found = read(files, WHERE[proc], kind, proc, offset, size)
                assert found == data[offset : offset + size]
    path = held[File.VAULT, 1]
    data = path.read_bytes()
    ways[0].write(1, File.VAULT, 1, 100, b"mended")
    assert path.read_bytes() == data[:100] + b"mended" + data[106:]
    assert [files.here(1) for files in ways] == [False, True, True]


def test_a_file_made_anew_takes_the_place(pair: Nodes, ways: list[Files]) -> None:
    """Law: after `place` the new file is read, whoever placed the one before, and as long as it is
    now; of the one before no memory is left."""
    agent = pair[1].agent
    assert agent

    def mapped() -> str:
        return Path(f"/proc/{agent.pid}/maps").read_text()

    deadline = time.monotonic() + 10
    for i, placer in enumerate((1, 1, 2, 1)):
        data = bytes([i + 1]) * (4096 * (i + 1))
        path = written(pair, 1, "log", data)
        ways[placer].share(File.LOG, 0, path)
        while "/log (deleted)" in mapped():
            assert time.monotonic() < deadline
        assert read(ways[0], 1, File.LOG, 0, 0, len(data)) == data
    assert "/log" in mapped()
    ways[1].withdraw(File.LOG, 0)
    while "/log" in mapped():
        assert time.monotonic() < deadline


def test_a_file_that_comes_late_is_read(
    pair: Nodes, ways: list[Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: who asks before the file is placed gets it once it is."""
    monkeypatch.setattr(remote, "FIRST_TRY_S", 0.02)
    path = written(pair, 1, "late", b"here it is")
    later = threading.Timer(0.1, lambda: ways[1].share(File.DEMAND, 3, path))
    later.start()
    assert read(ways[0], 1, File.DEMAND, 3, 0, 10) == b"here it is"
    later.join()


@pytest.mark.plain
def test_a_file_that_never_comes_is_an_error(pair: Nodes, ways: list[Files]) -> None:
    """Law: a read of what is not there ends in words, after the patience; then others are read."""
    ways[0].patience_s = 0.2
    with pytest.raises(FtrmaError, match=r"reading vault 5 on node 1: no answer within 0\.2 s"):
        read(ways[0], 1, File.VAULT, 5, 0, 8)
    other = pair.files(3, [*WHERE, 0])
    other.patience_s = 0.2
    with pytest.raises(FtrmaError, match=r"mending vault 5 on node 1: no answer within 0\.2 s"):
        other.write(1, File.VAULT, 5, 0, ONE)
    path = written(pair, 1, "there", ONE)
    ways[1].share(File.VAULT, 1, path)
    assert read(ways[0], 1, File.VAULT, 1, 0, 8) == ONE


def test_what_is_refused_is_an_error(pair: Nodes, ways: list[Files]) -> None:
    """Law: bytes behind the end of a file are refused in words, and the next read is served."""
    ways[1].share(File.VAULT, 1, written(pair, 1, "short", ONE))
    with pytest.raises(FtrmaError, match=r"reading vault 1 on node 1: .*outside of the part"):
        read(ways[0], 1, File.VAULT, 1, 4, 8)
    assert read(ways[0], 1, File.VAULT, 1, 0, 8) == ONE


def test_the_alarm_ends_a_read(pair: Nodes, ways: list[Files]) -> None:
    """Law: a read that waits, or begins, while the alarm rings is another round's; after
    `clear_alarm` reads are served again."""
    ways[1].share(File.VAULT, 1, written(pair, 1, "vault", ONE))
    alarm = threading.Timer(0.1, ways[0].ring)
    alarm.start()
    for _ in range(2):
        with pytest.raises(RoundChanged):
            read(ways[0], 1, File.VAULT, 5, 0, 8)
    alarm.join()
    ways[0].clear_alarm()
    began = time.monotonic()
    assert read(ways[0], 1, File.VAULT, 1, 0, 8) == ONE
    assert time.monotonic() - began < remote.FIRST_TRY_S  # at once, and not at the second try


def test_new_roles_end_a_read() -> None:
    """Law: a process that has not heard of the roles in force reads nothing by those before."""
    with several(2) as nodes:
        files = [nodes.files(p, WHERE) for p in range(2)]
        files[1].share(File.VAULT, 1, written(nodes, 1, "vault", ONE))
        files[1].origin.tell_roles(1, 1, forget=False)
        with pytest.raises(RoundChanged):
            read(files[0], 1, File.VAULT, 1, 0, 8)
        files[0].origin.take_roles(1, forget=False)
        assert read(files[0], 1, File.VAULT, 1, 0, 8) == ONE


def test_a_write_is_done_though_the_alarm_rings(
    pair: Nodes, ways: list[Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: nothing that was written can come later: who is called away amid a write leaves when it
    is done, and the alarm rings on; who is called away before has written nothing."""
    path = written(pair, 1, "vault", bytes(8))
    ways[1].share(File.VAULT, 1, path)
    origin, flush = ways[0].origin, ways[0].origin.flush

    def flush_alarmed(target: int) -> None:
        monkeypatch.undo()
        origin.ring()
        flush(target)

    monkeypatch.setattr(origin, "flush", flush_alarmed)
    with pytest.raises(RoundChanged):
        ways[0].write(1, File.VAULT, 1, 0, ONE)
    assert path.read_bytes() == ONE and origin.pending(SLOTS + 1) == 0
    for _ in range(2):
        with pytest.raises(RoundChanged):
            ways[0].write(1, File.VAULT, 1, 0, bytes(8))
    assert path.read_bytes() == ONE and origin.pending(SLOTS + 1) == 0


def test_a_dead_agent_only_takes_longer(pair: Nodes, ways: list[Files]) -> None:
    """Law: reads and writes go on with the agent that follows one that was killed."""
    data = os.urandom(3 << 20)
    path = written(pair, 1, "vault", data)
    ways[1].share(File.VAULT, 1, path)
    room, done = bytearray(len(data)), threading.Event()

    def read_all() -> None:
        ways[0].read(1, File.VAULT, 1, 0, room)
        done.set()

    for _ in range(3):
        done.clear()
        reader = threading.Thread(target=read_all)
        reader.start()
        pair.replace_agent(1)
        reader.join(20)
        assert done.is_set() and room == data
        ways[0].write(1, File.VAULT, 1, 0, ONE)
        assert path.read_bytes()[:8] == ONE
        data = ONE + data[8:]
