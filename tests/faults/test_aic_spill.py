"""Snapshots of ftrma.aic in files: a job that was lost goes on from there, by the same command.

Law: it goes on from the newest snapshot that all slots have whole files of, with the results of a
run that was not lost; a file that is damaged, missing or from another history is not used.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import Result, run_job, run_plain
from tiers import tiers

SCRIPT = Path(__file__).parent / "aicspill.py"
SLOTS = 3
MODES = ("virtual:0.03", "chandy-lamport:0.03", "synchronous:0.03", "hybrid:0.03")
LOST = ("--kill", "0@aic.begin:8", "--kill", "1@repair")  # two, and there is one parity


def launch(spill: Path | None, mode: str, *options: str) -> Result:
    return run_job(SCRIPT, SLOTS, *options, args=[mode], env={"SPILL": str(spill)} if spill else {})


@functools.cache
def whole() -> list[Any]:
    result = launch(None, MODES[0])
    assert result.status == 0, result
    return result.of_slots("slot", SLOTS)


def right(result: Result) -> list[list[int]]:
    """The results are those of a run that was not lost; which of them had ended before."""
    assert result.status == 0, result
    found = result.of_slots("slot", SLOTS)
    for mine, expected in zip(found, whole(), strict=True):
        assert mine["distances"].tobytes() == expected["distances"].tobytes(), result
    error = sum(abs(mine["ranks"] - expected["ranks"]).sum()
                for mine, expected in zip(found, whole(), strict=True))
    assert error <= 2 * found[0]["bound"], result
    return [np.asarray(mine["ended_before"]).tolist() for mine in found]


def numbers(spill: Path, run: int, slot: int) -> list[int]:
    """Snapshots of which a slot has a file, ascending."""
    found = (re.fullmatch(rf"ftrma-aic-run-{run}-\w+-{slot}-(\d+)\.npz", path.name)
             for path in spill.iterdir())
    return sorted(int(match[1]) for match in found if match)


def lose(spill: Path, mode: str) -> int:
    """Run a job that is lost amid its second run; the newest snapshot that all have a file of."""
    result = launch(spill, mode, *LOST)
    assert result.status == 70, result
    files = [numbers(spill, 2, slot) for slot in range(SLOTS)]
    return max(set.intersection(*map(set, files)))


@pytest.mark.parametrize("mode", tiers(MODES, full=MODES[:1], nightly=MODES[1:]))
def test_a_lost_job_goes_on(tmp_path: Path, mode: str) -> None:
    """Law: a run that had ended is not run again; the other goes on from its newest snapshot."""
    newest = lose(tmp_path, mode)
    result = launch(tmp_path, mode)
    assert right(result) == [[1, 0]] * SLOTS
    assert f"run 2 goes on from snapshot {newest}" in result.stderr, result
    assert {path.name.split("-")[-1] for path in tmp_path.iterdir()} == {"end.npz"}
    assert right(launch(tmp_path, mode)) == [[1, 1]] * SLOTS


@pytest.mark.full
def test_a_damaged_file_is_not_used(tmp_path: Path) -> None:
    newest = lose(tmp_path, MODES[0])
    path, = tmp_path.glob(f"ftrma-aic-run-2-*-1-{newest}.npz")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    result = launch(tmp_path, MODES[0])
    assert right(result) == [[1, 0]] * SLOTS
    assert "goes on from snapshot" not in result.stderr or (
        f"goes on from snapshot {newest - 1}" in result.stderr), result


@pytest.mark.full
def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = launch(tmp_path / "file", MODES[0])
    right(result)
    assert "goes on without a file of snapshot" in result.stderr, result


@pytest.mark.full
def test_under_plain_mpiexec(tmp_path: Path) -> None:
    """Law: files are written where nothing is protected, too, and serve a protected job."""
    env = {"SPILL": str(tmp_path)}
    for _ in range(2):
        result = run_plain(SCRIPT, SLOTS, args=[MODES[0]], env=env)
    assert right(result) == [[1, 1]] * SLOTS
    assert right(launch(tmp_path, MODES[0])) == [[1, 1]] * SLOTS
