"""Files on the node of a process, which processes of any node make, write, read and remove."""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Callable

import pytest
from mailnodes import Job, Nodes, thread
from mailnodes import job as job
from mailnodes import nodes as nodes
from mailnodes import started as started
from wirenode import PATIENCE_S

from ftrma.fabric import node_files
from ftrma.fabric.node_files import NodeFiles
from ftrma.fabric.nodes_mail import OWN_FILES, window_of
from ftrma.host.errors import FtrmaError, NodeLost, NoRoom, Rollback


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
