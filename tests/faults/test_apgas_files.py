"""An executor's file in whole jobs: a job that is lost goes on in the next one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import FTRMA, Result, run_command

SIZES = ("--points", "2000", "--clusters", "4", "--dimensions", "3", "--steps", "40")


def kmeans(*options: str) -> Result:
    return run_command([FTRMA, "apgas", "kmeans", "-n", "3", "--spares", "0", *SIZES,
                        "--checkpoint", "5", *options])


@pytest.mark.full
def test_a_lost_job_goes_on_from_its_file(tmp_path: Path) -> None:
    """Law: after a loss that ends the job, the same command goes on from the file, and has the
    bits of a run without one."""
    file = tmp_path / "kmeans.npz"
    words = ("--file", str(file), "--file-interval", "0")
    lost = kmeans(*words, "--kill", "1@apgas.step:18")  # there is no spare
    assert lost.status != 0 and "start the job with more --spares" in lost.stderr, lost
    assert file.exists()
    found = kmeans(*words, "--check")
    assert found.status == 0, found
    said = json.loads(found.stdout.splitlines()[-1])
    assert said["equal"] and said["steps"] == 25
    again = kmeans(*words, "--check")
    assert again.status == 0, again
    assert json.loads(again.stdout.splitlines()[-1])["steps"] == 0


@pytest.mark.full
def test_files_of_checkpoints_are_not_promised(tmp_path: Path) -> None:
    """Law: who asks for `--spill` is told at once that it writes no checkpoint."""
    found = kmeans("--spill", str(tmp_path))
    assert found.status == 0, found
    assert "warning: --spill writes no checkpoint: apgas keeps" in found.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"ended", "lock"}
