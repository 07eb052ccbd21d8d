"""Plain files that a process of another node asks a node's agent for; see ``csrc/wire/files.c``."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wirenode import PATIENCE_S, Node, Raw, User, message, served
from wirenode import engine as engine

from ftrma.fabric.nodes_mail import window_of
from ftrma.native.wire import FileHow, Kind, Unfinished, WireResult

LOOK, MAKE, REMOVE = FileHow.LOOK, FileHow.MAKE, FileHow.REMOVE
NAME_BYTES = 127  # of the longest name


class Asker(User):
    """An origin that asks for files; of each name comes its own window."""

    def file(self, how: FileHow, name: str, size_bytes: int = 0) -> int:
        return self.origin.file(0, window_of(name), how, name, size_bytes)

    def write(self, name: str, offset: int, data: bytes) -> None:
        self.origin.put(0, window_of(name), offset, data)
        self.origin.flush(0)

    def read(self, name: str, offset: int, size_bytes: int) -> bytes:
        return self.origin.get(0, window_of(name), offset, size_bytes)


@pytest.fixture(scope="module")
def node(engine: str) -> Iterator[Node]:
    with served(origins=64, more=16) as made:
        yield made


@pytest.fixture
def asker(node: Node) -> Iterator[Asker]:
    """An origin; the files that it has made are gone afterwards."""
    with contextlib.closing(Asker(node, node.fresh())) as made:
        yield made
        made.origin.retry()
        for name in own_files(node):
            made.file(REMOVE, name)


def own_files(node: Node) -> dict[str, bytes]:
    """All files of the node that no job has made, and their bytes."""
    return {path.name: path.read_bytes() for path in node.directory.glob("own-*")}


def memory_of(path: Path) -> int:
    return 512 * path.stat().st_blocks


def replace_agent(node: Node) -> None:
    """Kill the agent by SIGKILL; another one takes over."""
    assert node.agent
    node.agent.kill()
    node.ended()
    node.start()


def test_a_file_is_made_and_lengthened(node: Node, asker: Asker) -> None:
    """Law: it has at least the bytes that were asked for, whose memory is taken; it becomes no
    shorter, but empty if no bytes are asked for; it is the owner's alone."""
    path = node.directory / "own-1"
    assert asker.file(MAKE, "own-1", 10_000) == 10_000
    assert path.read_bytes() == bytes(10_000) and memory_of(path) >= 10_000
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"x" * 10_000)
    assert asker.file(MAKE, "own-1", 300_001) == 300_001
    assert path.read_bytes() == b"x" * 10_000 + bytes(290_001) and memory_of(path) >= 300_001
    assert asker.file(MAKE, "own-1", 5) == 300_001
    assert asker.file(MAKE, "own-1", 0) == 0
    assert (path.read_bytes(), memory_of(path)) == (b"", 0)
    assert asker.file(MAKE, "own-2", 0) == 0
    assert own_files(node) == {"own-1": b"", "own-2": b""}


def test_a_made_file_is_put_to_and_got_from(node: Node, asker: Asker) -> None:
    """Law: puts and gets reach a file to its last byte, as it is made longer, and not beyond."""
    data = random.Random(1).randbytes(300_000)
    asker.file(MAKE, "own-1", 8)
    asker.write("own-1", 0, data[:8])
    asker.file(MAKE, "own-1", len(data))
    asker.write("own-1", 8, data[8:])
    assert own_files(node) == {"own-1": data} and asker.read("own-1", 0, len(data)) == data
    asker.file(MAKE, "own-1", 100)  # changes nothing
    assert asker.read("own-1", len(data) - 3, 3) == data[-3:]
    with pytest.raises(Unfinished, match="outside of the part"):
        asker.read("own-1", len(data) - 3, 4)


def test_a_look_tells_the_length(node: Node, asker: Asker) -> None:
    """Law: of any file of such a name, whoever has made it, after which it can be read; a link or
    a directory is no file, and what is not there is told."""
    assert asker.file(LOOK, "own-1") == -errno.ENOENT
    path = node.directory / "own-1"
    for size in (5000, 9000, 200, 0):  # made, lengthened and cut by the node itself
        data = random.Random(size).randbytes(size)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(data)
            file.truncate()
        assert asker.file(LOOK, "own-1") == size
        assert not size or asker.read("own-1", 0, size) == data
    (node.directory / "own-link").symlink_to("ledger")
    (node.directory / "own-directory").mkdir()
    assert asker.file(LOOK, "own-link") == -errno.EINVAL
    assert asker.file(MAKE, "own-link", 1) == -errno.ELOOP
    assert asker.file(LOOK, "own-directory") == -errno.EINVAL
    assert asker.file(MAKE, "own-directory", 1) == -errno.EISDIR
    (node.directory / "own-link").unlink()
    (node.directory / "own-directory").rmdir()


@pytest.mark.parametrize("how", [LOOK, MAKE])
def test_a_file_made_anew_takes_the_place(node: Node, asker: Asker, how: FileHow) -> None:
    """Law: after a look, or a make, the file is meant that has the name now, even if it is as long
    as the one before."""
    asker.file(MAKE, "own-1", 4096)
    asker.write("own-1", 0, b"a" * 4096)
    path = node.directory / "own-1"
    path.unlink()
    path.write_bytes(b"b" * 4096)
    assert asker.file(how, "own-1", 4096) == 4096
    assert asker.read("own-1", 0, 4096) == b"b" * 4096
    asker.write("own-1", 0, b"c" * 8)
    assert path.read_bytes() == b"c" * 8 + b"b" * 4088


@pytest.mark.parametrize("empty", [lambda path, asker: asker.file(MAKE, path.name, 0),
                                   lambda path, asker: os.truncate(path, 0)],
                         ids=["by-the-origin", "by-the-node"])
def test_a_file_that_became_empty_harms_nobody(
    node: Node, asker: Asker, empty: Callable[[Path, Asker], object]
) -> None:
    """Law: bytes of a file that was emptied are not served, and the agent stays alive; with new
    memory the file is served again."""
    agent = node.agent
    asker.file(MAKE, "own-1", 8192)
    asker.write("own-1", 0, b"a" * 8192)
    empty(node.directory / "own-1", asker)
    assert asker.file(LOOK, "own-1") == 0
    asker.origin.set_timeout(50)
    with pytest.raises(Unfinished):
        asker.read("own-1", 4096, 8)
    asker.origin.set_timeout(int(1000 * PATIENCE_S))
    asker.origin.locate(0, 0, 1)  # so that the agent takes requests again
    assert asker.file(MAKE, "own-1", 8192) == 8192
    assert asker.read("own-1", 0, 8192) == bytes(8192)
    assert agent and agent.poll() is None


def test_a_file_is_removed(node: Node, asker: Asker) -> None:
    """Law: its name is free and its memory is given back; to remove it twice is no error."""
    (node.directory / "own-other").write_bytes(b"stays")
    asker.file(MAKE, "own-1", 4096)
    asker.write("own-1", 0, b"x")
    assert asker.file(REMOVE, "own-1") == 0 == asker.file(REMOVE, "own-1")
    assert own_files(node) == {"own-other": b"stays"}
    assert node.agent and "/own-1" not in Path(f"/proc/{node.agent.pid}/maps").read_text()
    assert asker.file(LOOK, "own-1") == -errno.ENOENT
    assert asker.file(MAKE, "own-1", 16) == 16
    assert asker.read("own-1", 0, 16) == bytes(16)


def test_removed_files_leave_their_places(node: Node, asker: Asker) -> None:
    """Law: more files than there are places can be had, one after the other; one more than that at
    once is refused, and the others are as they were."""
    for number in range(40):
        assert asker.file(MAKE, f"own-{number}", 8) == 8
        asker.file(REMOVE, f"own-{number}")
    assert [asker.file(MAKE, f"own-{number}", 8) for number in range(16)] == [8] * 16
    assert asker.file(MAKE, "own-more", 8) == -errno.ENOSPC
    asker.write("own-15", 0, b"well off")
    assert (node.directory / "own-15").read_bytes() == b"well off"
    asker.file(REMOVE, "own-3")
    assert asker.file(MAKE, "own-more", 8) == 8


@pytest.mark.parametrize("name", [
    b"ledger", b"own", b"Own-1", b"part-0", b"own-/x", b"own-../ledger", b"/own-1", b"own-1\0",
    b"own-\0x", b"\0own-1", b"own-" + b"n" * (NAME_BYTES - 3), b"",
], ids=lambda name: name[:20].decode().replace("\0", "0") or "none")
@pytest.mark.parametrize("how", FileHow)
def test_other_names_are_refused(node: Node, name: bytes, how: FileHow) -> None:
    """Law: such a request ends its connection in words, and no file of the node is touched."""
    (node.directory / "own-1").write_bytes(b"mine")
    stays = {path: (path.stat().st_mtime_ns, path.stat().st_size)
             for path in node.directory.iterdir()}
    with contextlib.closing(Raw(node, node.fresh() % 64)) as raw:
        for path in node.directory.glob("ledger*"):
            stays.pop(path)  # it notes who has come
        reply = raw.ask(message(Kind.FILE, name, number=1, offset=how, operand=16))
        assert reply.kind == Kind.BROKEN and reply.payload
        assert raw.receive() is None
    found = {path: (path.stat().st_mtime_ns, path.stat().st_size)
             for path in node.directory.iterdir() if not path.name.startswith("ledger")}
    assert found == stays and (node.directory / "ledger").exists()
    (node.directory / "own-1").unlink()


def test_a_name_may_have_any_other_byte(node: Node, asker: Asker) -> None:
    """Law: the longest name, dots and letters of any script are as good as others."""
    longest = "own-" + "n" * (NAME_BYTES - 4)
    for name in (longest, "own-", "own-..", "own-ftrma läuft"):
        assert asker.file(MAKE, name, 8) == 8
        asker.write(name, 0, b"12345678")
        assert own_files(node) == {name: b"12345678"}
        asker.file(REMOVE, name)


def test_an_unknown_wish_is_refused(node: Node) -> None:
    """Law: it ends the connection in words, and nothing is made."""
    with contextlib.closing(Raw(node, node.fresh())) as raw:
        reply = raw.ask(message(Kind.FILE, b"own-1", number=1, offset=len(FileHow), operand=8))
        assert reply.kind == Kind.BROKEN and "neither look" in reply.payload.decode()
    assert own_files(node) == {}


def test_two_names_of_one_window(node: Node, asker: Asker) -> None:
    """Law: the second name is refused while the first file is there, which stays as it is."""
    window = window_of("own-1")
    asker.file(MAKE, "own-1", 8)
    asker.write("own-1", 0, b"original")
    (node.directory / "own-2").write_bytes(b"another")
    assert asker.origin.file(0, window, MAKE, "own-2", 8) == -errno.EEXIST
    assert asker.origin.file(0, window, LOOK, "own-2") == -errno.EEXIST
    assert asker.origin.file(0, window, REMOVE, "own-3") == 0  # is not there
    assert asker.read("own-1", 0, 8) == b"original"
    asker.file(REMOVE, "own-1")
    assert asker.origin.file(0, window, LOOK, "own-2") == 8
    assert asker.read("own-1", 0, 7) == b"another"  # by the window's number
    asker.origin.file(0, window, REMOVE, "own-2")


def test_more_than_there_is_memory_for(node: Node, asker: Asker) -> None:
    """Law: it is refused as such, the file keeps what it had, and the agent goes on."""
    agent = node.agent
    asker.file(MAKE, "own-1", 8)
    asker.write("own-1", 0, b"12345678")
    assert asker.file(MAKE, "own-1", 1 << 50) == -errno.ENOSPC
    assert asker.file(MAKE, "own-1", (1 << 64) - 8) < 0
    assert asker.read("own-1", 0, 8) == b"12345678"
    assert own_files(node) == {"own-1": b"12345678"}
    assert agent and agent.poll() is None


@pytest.mark.plain
def test_a_request_that_comes_again_does_no_harm(node: Node, asker: Asker) -> None:
    """Law: the agent that follows one that was killed answers as that one did, to requests that
    were answered and to those that it never saw; bytes stay, and are reached again."""
    asker.file(MAKE, "own-1", 4096)
    asker.write("own-1", 8, b"payload.")
    replace_agent(node)
    assert asker.read("own-1", 8, 8) == b"payload."
    assert asker.file(MAKE, "own-1", 4096) == 4096 == asker.file(LOOK, "own-1")
    assert asker.read("own-1", 8, 8) == b"payload."

    replace_agent(node)
    assert asker.file(MAKE, "own-1", 8192) == 8192  # nobody served when it was sent
    asker.write("own-1", 8184, b"the end.")
    assert node.agent
    node.agent.send_signal(signal.SIGSTOP)
    asker.origin.set_timeout(20)
    with pytest.raises(Unfinished) as caught:
        asker.file(MAKE, "own-2", 16)  # is sent, and dies with the agent
    assert caught.value.result is WireResult.TIMEOUT
    asker.origin.set_timeout(int(1000 * PATIENCE_S))
    replace_agent(node)
    assert asker.file(MAKE, "own-2", 16) == 16
    assert asker.file(REMOVE, "own-1") == 0
    replace_agent(node)
    assert asker.file(REMOVE, "own-1") == 0
    assert asker.file(LOOK, "own-1") == -errno.ENOENT
    assert own_files(node) == {"own-2": bytes(16)}


def test_a_file_outlives_who_made_it(node: Node, asker: Asker) -> None:
    """Law: it stays when its maker is gone, and another origin finds and removes it."""
    with contextlib.closing(Asker(node, node.fresh())) as first:
        first.file(MAKE, "own-1", 8)
        first.write("own-1", 0, b"12345678")
    assert asker.file(LOOK, "own-1") == 8 and asker.read("own-1", 0, 8) == b"12345678"
    asker.file(REMOVE, "own-1")
    assert own_files(node) == {}
