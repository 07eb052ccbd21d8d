"""Checkpoints in files, as one slot leaves them: what they are of, and when they go."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ftrma.frameworks.graph.parts import Graph, Partition
from ftrma.frameworks.graph.spill import Spill, key_of
from ftrma.graph import VertexProgram, data


class Program(VertexProgram):
    fields: ClassVar = {"a": int}

    def __init__(self, least: Any = 3) -> None:
        self.least = least


class Other(Program):
    pass


class Comm:
    """Two slots, of which the other says what it is told to, or what this one says."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.other: Callable[[Any], Any] = lambda value: value

    def allgather(self, value: Any) -> list[Any]:
        return [value, self.other(value)]


def key(graph: Graph, program: Any, slots: int = 2, recovery: str = "lwcp", run: int = 1,
        kind: str = "hash") -> str:
    return key_of(graph, Partition(kind, graph.n, slots), program, recovery, run)


def test_a_key_tells_what_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: equal for the same, another for each thing that a result may depend on."""
    path = data.path(9)
    edges = [data.of_edges(9, [0, 1], [1, end], [1.0, 2.0]) for end in (2, 3)]
    weights = data.of_edges(9, [0, 1], [1, 2], [1.0, 2.5])
    keys = [key(path, Program()), key(path, Other()), key(path, Program(4)),
            key(path, Program(np.arange(3))), key(path, Program(np.arange(4))),
            key(path, Program(), slots=3), key(path, Program(), recovery="hwcp"),
            key(path, Program(), run=2), key(path, Program(), kind="range"),
            key(data.path(8), Program()), key(data.symmetric(path), Program()),
            *(key(graph, Program()) for graph in (*edges, weights))]
    with monkeypatch.context() as another:
        another.setattr(sys, "argv", [*sys.argv, "--more"])
        keys.append(key(path, Program()))
    with monkeypatch.context() as another:
        another.setattr("inspect.getfile", lambda kind: os.devnull)
        keys.append(key(path, Program()))
    assert len(set(keys)) == len(keys)
    assert key(path, Program()) == keys[0] and key(path, Program(np.arange(3))) == keys[3]
    assert key(data.of_edges(9, [0, 1], [1, 2], [1.0, 2.0]), Program()) == keys[-5]


def test_what_cannot_be_told_apart_is_refused() -> None:
    unknown = Graph(9, data.path(9).chunks, "mine")
    with pytest.raises(ValueError, match=r"nothing tells the graph \(mine\) from others; give it a "
                       "key=, or leave spill out"):
        key(unknown, Program())
    with pytest.raises(ValueError, match="attributes of Program cannot be compared"):
        key(data.path(9), Program(lambda: 3))


def save(spill: Spill, step: int, value: float) -> None:
    spill.put("field a", np.full(3, value))
    spill.put("changes", np.arange(step), "append")
    spill.put("at", np.array([1, step, 7]))
    spill.write()


def steps(directory: Path) -> list[str]:
    return sorted(path.stem.rpartition("-")[2] for path in directory.iterdir())


def test_the_one_before_goes_when_all_have_the_next(tmp_path: Path,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    """Law: and not before; what has gone wrong is told by slot 0."""
    comm, where = Comm(), str(tmp_path / "new")
    spill = Spill(comm, where, 1, "k" * 64)
    save(spill, 10, 0.5)
    comm.other = lambda value: "No space left on device"
    save(spill, 20, 0.25)
    assert steps(tmp_path / "new") == ["10", "20"]
    assert capsys.readouterr().err == (f"graph: files in {where}: run 1 goes on without a file of "
                                       "this checkpoint: slot 1: No space left on device\n")
    comm.other = lambda value: {"10"} if isinstance(value, set) else value
    found = Spill(comm, where, 1, "k" * 64)
    found.recover({})
    assert found.read("at").tolist() == [1, 10, 7] and "field a" in found
    assert found.read("field a").tolist() == [0.5] * 3
    assert found.values["changes"][1] == "append"
    assert "goes on from there: 10 steps are done" in capsys.readouterr().err
    comm.other = lambda value: value
    save(found, 30, 0.125)
    assert steps(tmp_path / "new") == ["30"]
    for name in ("at", "field a", "changes"):
        found.drop(name)
    found.put("result 1", np.array([7, False]))
    found.write()
    assert steps(tmp_path / "new") == ["30"]  # it has not ended
    found.put("result 1", np.array([7, True]))
    found.write()
    assert steps(tmp_path / "new") == ["end"]


def test_nothing_is_taken_where_somebody_has_more(tmp_path: Path) -> None:
    """Law: who was there is newer than any file, and a file of another key is none."""
    comm = Comm()
    save(Spill(comm, str(tmp_path), 1, "k" * 64), 10, 0.5)
    for spill, kept, other in (
            (Spill(comm, str(tmp_path), 1, "k" * 64), {"1 step": 3}, lambda value: value),
            (Spill(comm, str(tmp_path), 1, "k" * 64), {},
             lambda value: None if isinstance(value, set) else value),
            (Spill(comm, str(tmp_path), 1, "k" * 24 + "j" * 40), {}, lambda value: value),
            (Spill(comm, str(tmp_path), 2, "k" * 64), {}, lambda value: value),
            (Spill(Comm(1), str(tmp_path), 1, "k" * 64), {}, lambda value: value)):
        comm.other = other
        spill.recover(kept)
        assert "at" not in spill
    kept = {"2 step": 3, "part 1 ids": np.arange(3)}  # of another run, and of the graph
    comm.other = lambda value: value
    spill = Spill(comm, str(tmp_path), 1, "k" * 64)
    spill.recover(kept)
    assert "at" in spill


def test_a_directory_that_cannot_be_written_to_is_told(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    spill = Spill(Comm(), f"{tmp_path}/file/below", 1, "k" * 64)
    save(spill, 10, 0.5)
    assert "slot 0: Not a directory" in capsys.readouterr().err


def test_nothing_is_left_of_what_could_not_be_written(tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    save(Spill(Comm(), str(tmp_path), 1, "k" * 64), 10, 0.5)
    assert list(tmp_path.iterdir()) == []
    assert "slot 0: No space left on device; free some space" in capsys.readouterr().err


def test_what_others_could_have_written_is_not_taken(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: the run begins anew and says why, by the first slot that has a reason."""
    save(Spill(Comm(), str(tmp_path), 1, "k" * 64), 10, 0.5)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for spoil, words in ((lambda: path.chmod(0o666), "is open to others (mode 666)"),
                         (lambda: path.write_bytes(whole[:99] + b"x" + whole[100:]),
                          "was damaged or changed"),
                         (lambda: (path.unlink(), os.mkfifo(path)), "is no regular file")):
        spoil()
        spill = Spill(Comm(), str(tmp_path), 1, "k" * 64)
        spill.recover({})
        assert "at" not in spill
        told = capsys.readouterr().err
        assert "run 1 begins anew: " in told and words in told, told
        if path.is_file():
            path.chmod(0o600)
    save(spill, 10, 0.5)
    assert path.read_bytes()[:9] == whole[:9] and path.is_file()
