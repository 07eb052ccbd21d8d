"""Parts of graphs in files come back as they were; files that others may have made do not count."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ftrma.frameworks.graph import cache, data
from ftrma.graph.data import Graph, Part, Partition


def same(a: Part, b: Part) -> bool:
    return all(x is y is None or (x.dtype == y.dtype and x.tobytes() == y.tobytes())
               for x, y in ((getattr(part, name) for part in (a, b)) for name in (
                   "ids", "ptr", "target", "weight", "targets", "bounds")))


def test_no_flipped_bit_is_taken(tmp_path: Path) -> None:
    """Law: wherever one is, the file is passed over in words."""
    path, arrays = str(tmp_path / "f.npz"), {"a": np.arange(9), "b": np.ones(3)}
    assert cache.leave(path, "key", arrays) == ""
    whole = Path(path).read_bytes()
    for at in range(0, len(whole), 7):
        Path(path).write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1:])
        found, why = cache.fetch(path, "key")
        assert found is None and "was damaged or changed" in why
    Path(path).write_bytes(whole)
    found, why = cache.fetch(path, "key")
    assert found is not None and not why and found["a"].tolist() == [*range(9)]
    assert cache.fetch(path, "another")[0] is None
    os.rename(path, tmp_path / "g.npz")
    assert cache.fetch(str(tmp_path / "g.npz"), "key")[0] is None
    assert cache.fetch(path, "key") == (None, "")


@pytest.mark.parametrize("how", ["0666", "group", "fifo", "link", "directory"])
def test_what_others_may_have_made_is_passed_over(tmp_path: Path, how: str) -> None:
    """Law: at once, whatever lies under the name, and what a link leads to stays as it is."""
    path, other = tmp_path / "f.npz", tmp_path / "other"
    assert cache.leave(str(path), "key", {"a": np.arange(9)}) == ""
    if how in ("0666", "group"):
        path.chmod(0o666 if how == "0666" else 0o620)
    else:
        path.rename(other)
        make = {"fifo": os.mkfifo, "directory": os.mkdir, "link": partial(os.symlink, other)}[how]
        make(path)
    found, why = cache.fetch(str(path), "key")
    assert found is None and str(path) in why
    before = other.read_bytes() if other.exists() else b""
    assert (cache.leave(str(path), "key", {"a": np.arange(3)}) == "") == (how != "directory")
    if how != "directory":
        found, _ = cache.fetch(str(path), "key")
        assert found is not None and found["a"].tolist() == [0, 1, 2]
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600 and path.is_file()
    assert (other.read_bytes() if other.exists() else b"") == before
    assert len(list(tmp_path.iterdir())) == 1 + other.exists()


def test_a_key_that_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: what was written by it serves no longer, and that is told; one that cannot be had
    is no failure."""
    path = str(tmp_path / "f.npz")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert cache.leave(path, "key", {"a": np.arange(9)}) == ""
    (tmp_path / "state" / "ftrma" / "key").unlink()
    found, why = cache.fetch(path, "key")
    assert found is None and f"or the key {tmp_path}/state/ftrma/key is another one" in why
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    for why in (cache.fetch(path, "key")[1], cache.leave(path, "key", {"a": np.arange(9)})):
        assert "can be neither read nor made (Not a directory); set XDG_STATE_HOME" in why


@pytest.mark.parametrize("graph", [
    data.rmat(6), data.symmetric(data.grid(5, 3)), data.of_edges(4, [0], [3], [2.5], key="own")],
    ids=["rmat", "grid", "weights"])
def test_parts_in_files(tmp_path: Path, graph: Graph) -> None:
    """Law: a part is read as it was written, by the same graph, partition and slot alone."""
    where, partition = str(tmp_path / "new" / "cache"), Partition("hash", graph.n, 3)
    made = [graph.part(partition, slot) for slot in range(3)]
    assert cache.read(where, graph, partition, 1) is None
    for slot in range(3):
        cache.write(where, graph, partition, slot, made[slot])
    found = [cache.read(where, graph, partition, slot) for slot in range(3)]
    assert all(b is not None and same(a, b) for a, b in zip(made, found, strict=True))
    for other in (Partition("range", graph.n, 3), Partition("hash", graph.n, 4),
                  Partition("edges", graph.n, 3, [0, 1, 2, graph.n])):
        assert cache.read(where, graph, other, 1) is None
    assert cache.read(where, data.rmat(6, seed=2), Partition("hash", 64, 3), 1) is None
    assert len(os.listdir(where)) == 3


def test_parts_of_files_that_change(tmp_path: Path) -> None:
    """Law: another content is another graph."""
    path, where = tmp_path / "a.txt", str(tmp_path / "cache")
    path.write_text("0 1\n1 2\n")
    partition = Partition("hash", 3, 1)
    graph = data.load(path)
    cache.write(where, graph, partition, 0, graph.part(partition, 0))
    assert cache.read(where, data.load(path), partition, 0) is not None
    assert cache.read(where, data.symmetric(data.load(path)), partition, 0) is None
    path.write_text("0 1\n0 2\n")
    assert cache.read(where, data.load(path), partition, 0) is None


def test_parts_that_do_not_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    """Law: of files that are cut, changed or another's nothing is taken; a directory that cannot
    be written to is told once for each part, and what a dead process had begun is removed."""
    graph, where = data.rmat(6), str(tmp_path)
    partition = Partition("hash", 64, 2)
    part = graph.part(partition, 0)
    unknown = Graph(graph.n, graph.chunks, "mine")
    cache.write(where, unknown, partition, 0, part)
    assert os.listdir(where) == [] and cache.read(where, unknown, partition, 0) is None
    path, _ = cache.place_of(where, graph, partition, 0)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    node = os.uname().nodename
    for pid in (dead.pid, os.getppid()):
        Path(f"{path}.{node}-{pid}-0a1b2c3d").write_bytes(b"half of it")
    cache.write(where, graph, partition, 0, part)
    assert sorted(os.listdir(where)) == sorted(map(os.path.basename, (
        path, f"{path}.{node}-{os.getppid()}-0a1b2c3d")))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    whole = Path(path).read_bytes()
    at = whole.index(part.target.tobytes())
    for broken in (whole[:-9], b"", whole[:at] + b"\x01\x02\x03\x04" + whole[at + 4:]):
        Path(path).write_bytes(broken)
        assert cache.read(where, graph, partition, 0) is None
        assert f"graph: slot 0 makes its part of rmat again: {path} was damaged or changed, or " \
            in capsys.readouterr().err
    cache.write(where, graph, partition, 0, part)
    assert cache.read(where, graph, partition, 0) is not None
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert cache.fetch(*cache.place_of(where, graph, partition, 0))[0] is None
    assert capsys.readouterr().err == ""
    cache.write(f"{path}/below", graph, partition, 1, part)
    assert capsys.readouterr().err == (
        f"graph: slot 1 cannot leave its part of rmat in {path}/below: Not a directory; it is "
        "made again when it is needed\n")
