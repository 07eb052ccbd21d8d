"""Programs of frameworks with checkpoints in files: a job that was lost goes on from there.

Law: started again, it comes to the results of a job that was not lost: the same bits, or, of sums
that slots add up in no order, within the bounds that are stated.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import FTRMA, Result, run_command

GRAPH = ("rmat:9", "-n", "4", "--checkpoint", "5")
SNAPSHOTS = ("-n", "4", "--group-size", "4", "--snapshot")
# Words of a job; where two of its slots die; how far from each other its results may be.
PROGRAMS: dict[str, tuple[tuple[str, ...], str, float]] = {
    **{name: (("graph", "pagerank", *GRAPH, "--recovery", name), "graph.compute:12", 0.0)
       for name in ("hwcp", "lwcp", "hwlog", "lwlog")},
    **{name: (("graph", "pagerank", *GRAPH, "--recovery", name), "safepoint:13", 0.0)
       for name in ("causal", "rollback")},
    "kcore": (("graph", "kcore", "path:100", "-n", "4", "--checkpoint", "5"),
              "graph.exchange:24", 0.0),
    "cr": (("graph", "pagerank", *GRAPH, "--recovery", "cr"), "graph.compute:12", 1e-5),
    **{mode: (("aic", "sssp", "path:1500", *SNAPSHOTS, f"{mode}:0.02"), "aic.begin:4", 0.0)
       for mode in ("virtual", "chandy-lamport", "synchronous", "hybrid")},
    "ranks": (("aic", "pagerank", "rmat:12", *SNAPSHOTS, "virtual:0.02", "--portion", "0.02",
               "--eps", "1e-12"), "aic.begin:3", 1e-4),
    "mc": (("aic", "mc", "planted:400x90", *SNAPSHOTS, "virtual:0.02", "--epochs", "30"),
           "aic.append:400", np.inf),
}
FULL = ("virtual",)
STRANGER = 20002  # uid


def run(name: str, home: Path, *options: str) -> Result:
    return run_command([FTRMA, *PROGRAMS[name][0], "--out", str(home / "out"), *options])


def files_in(home: Path) -> tuple[str, ...]:
    return "--spill", str(home / "ckpt"), "--spill-interval", "1-th", "--resume", str(home / "ckpt")


def arrays(home: Path) -> list[np.ndarray[Any, Any]]:
    found = np.load(next(home.glob("out*")))
    return [found] if isinstance(found, np.ndarray) else [found[name] for name in found.files]


@functools.cache
def expected(name: str, home: Path) -> list[np.ndarray[Any, Any]]:
    home.mkdir()
    result = run(name, home)
    assert result.status == 0, result
    return arrays(home)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.full if name in FULL else pytest.mark.nightly)
    for name in PROGRAMS])
def test_a_lost_job_goes_on(tmp_path: Path, name: str) -> None:
    """Law: two slots of one group die, which ends the job; it goes on behind the steps that a
    checkpoint has, also if a slot dies then; once it has ended it is not run again."""
    _, place, bound = PROGRAMS[name]
    files = files_in(tmp_path)
    lost = run(name, tmp_path, *files, "--max-relaunch", "0", "--kill", f"1@{place}", "--kill",
               f"2@{place}")
    assert lost.status == 70 and not list(tmp_path.glob("out*")), lost
    again = run(name, tmp_path, *files, "--spares", "1", "--kill", "3@stage")
    assert again.status == 0, again
    version = re.search(r"goes on from checkpoint (\d+)", again.stderr)
    assert version and int(version[1]) >= 1, again
    for mine, right in zip(arrays(tmp_path), expected(name, tmp_path / "whole"), strict=True):
        assert mine.shape == right.shape and mine.dtype == right.dtype
        if bound == 0.0:
            assert mine.tobytes() == right.tobytes(), again
        elif bound < np.inf:
            assert np.abs(mine - right).sum() <= bound * np.abs(right).sum(), again
    ended = run(name, tmp_path, *files)
    assert ended.status == 0 and "has ended with status 0" in ended.stderr, ended


@pytest.mark.nightly
def test_another_graph_is_refused(tmp_path: Path) -> None:
    """Law: a graph with other edges than when the checkpoint was taken ends the job in words."""
    random = np.random.default_rng(1)
    edges = random.integers(0, 100, (2, 900))

    def write(count: int) -> None:
        np.savez(tmp_path / "graph.npz", src=edges[0, :count], dst=edges[1, :count], n=100)

    def job(*options: str) -> Result:
        return run_command([FTRMA, "graph", "pagerank", str(tmp_path / "graph.npz"), "-n", "2",
                            "--checkpoint", "5", *files_in(tmp_path), *options])

    write(900)
    lost = job("--max-relaunch", "0", "--group-size", "2", "--kill", "0@graph.compute:12", "--kill",
               "1@graph.compute:12")
    assert lost.status == 70, lost
    write(880)
    result = job()
    assert result.status not in (0, 70), result
    assert "was of another program, graph, partition or recovery" in result.stderr, result


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="another user is played by files of his")
def test_files_of_another_user_change_nothing(tmp_path: Path) -> None:
    """Law: in a cache that all can write to, under the names that a job will look for, files, FIFOs
    and links of somebody else are neither believed nor waited for nor followed."""
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    victim.write_text("precious")

    def job(*more: str) -> tuple[bytes, str]:
        out = tmp_path / "out.npy"
        result = run_command([FTRMA, "graph", "pagerank", "rmat:8", "-n", "4", "--out", str(out),
                              *more])
        assert result.status == 0, result
        return out.read_bytes(), result.stderr

    plain = job()
    assert job("--cache", str(shared)) == plain
    parts = sorted(shared.iterdir())
    assert len(parts) == 4, parts
    shared.chmod(0o777)
    whole = parts[0].read_bytes()
    for path, kind in zip(parts, ("file", "fifo", "link", "mode"), strict=True):
        path.unlink()
        if kind == "fifo":
            os.mkfifo(path, 0o666)
        elif kind == "link":
            path.symlink_to(victim)
        else:
            path.write_bytes(whole)
            path.chmod(0o666)
        if kind != "mode":
            os.lchown(path, STRANGER, STRANGER)
    found, told = job("--cache", str(shared))
    assert found == plain[0] and told.count("makes its part of rmat again: ") == 4, told
    assert victim.read_text() == "precious" and victim.stat().st_uid == 0
    assert all(path.is_file() and path.stat().st_uid == 0 for path in parts)
