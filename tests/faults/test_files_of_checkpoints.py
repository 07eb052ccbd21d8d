"""Checkpoints in files: a job of which nothing is left in memory goes on from there.

Law, where nothing else is said: whenever a job and its memory are lost, the resumed job ends with
the bits of the run without a loss, and goes on from the newest checkpoint that is whole in files.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from byhand import SLOTS, Job, ftrma, results, same
from nodes import launcher_options, remove_fake_ssh, why_not
from tiers import tiers
from tree import ROOT

from ftrma.fabric import spillfiles

pytestmark = pytest.mark.full
FILES = ("--spill", "files", "--spill-interval", "0.05")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Results of a run without a failure."""
    home = tmp_path_factory.mktemp("expected")
    whole = Job(home, *FILES)
    output, _ = whole.process.communicate(timeout=60)
    assert whole.process.returncode == 0, output
    assert (home / "files/ended").exists()
    return results(home)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    made: list[Job] = []

    def make(*options: str, **more: Any) -> Job:
        made.append(Job(tmp_path, *options, **more))
        return made[-1]

    yield make
    for killed in made:
        if killed.process.poll() is None:
            shutil.rmtree(killed.kill(), ignore_errors=True)
        if killed.process.stdout:
            killed.process.stdout.close()


def lose(job: Job) -> None:
    """Kill all of a job, and remove its memory, if the job has not just done so at its end."""
    shutil.rmtree(job.kill(), ignore_errors=True)


def go_on(home: Path, *options: str, files: str = "files") -> subprocess.CompletedProcess[str]:
    return ftrma("run", "--resume", files, "--interval", "0.05", *options, cwd=home,
                 env={**os.environ, "NAP": "0.01"})


def newest(home: Path) -> int:
    return spillfiles.points(home / "files")[-1].version


@pytest.mark.parametrize("step", tiers([3, 9, 17, 20, 31, 42, 59], full=["20"]))
def test_a_lost_job_goes_on(job: Any, tmp_path: Path, expected: Any, step: int) -> None:
    """Law of this file; without naming the program, in another directory."""
    lost = job(*FILES)
    lost.until((tmp_path / f"step-{step}").exists)
    lost.until(lambda: spillfiles.points(tmp_path / "files"))
    lose(lost)
    for path in tmp_path.glob("step-*"):
        path.unlink()
    at = newest(tmp_path)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    resumed = go_on(elsewhere, files=str(tmp_path / "files"))
    assert resumed.returncode == 0, resumed.stderr
    assert f"goes on from checkpoint {at} in {tmp_path}/files" in resumed.stderr
    assert same(results(tmp_path), expected), resumed.stderr
    assert not (tmp_path / "step-1").exists()  # it did not begin at the start


@pytest.mark.parametrize("seed", tiers(range(50), full=["0"]))
def test_losses_at_random_moments(job: Any, tmp_path: Path, expected: Any, seed: int) -> None:
    """Law of this file, with the same command each time, as batch scripts give it; the job may be
    lost several times, also while it comes up."""
    dice = random.Random(seed)
    command = (*FILES, "--resume", "files")
    for _ in range(dice.randint(1, 3)):
        lost = job(*command)
        lost.until(lambda: lost_has_begun(lost))  # noqa: B023
        time.sleep(dice.uniform(0, 1.5))
        if lost.process.poll() is not None:
            break
        lose(lost)
    else:
        ended = job(*command)
        output, _ = ended.process.communicate(timeout=60)
        assert ended.process.returncode == 0, output
    assert same(results(tmp_path), expected)


def lost_has_begun(job: Job) -> bool:
    """A process of the job tells its directory."""
    try:
        return job.directory.exists()
    except AssertionError:
        return job.process.poll() is not None


ROLES = {
    "checksums": ("--checksums", "3", "--group-size", "1", "--spares", "2"),
    "causal": ("--kill", "1@safepoint:4"),
    "rollback": ("--kill", "0@commit", "--policy", "rollback"),
    "restore": ("--kill", "2@restore"),
    "no spare": ("--kill", "c0@restore", "--spares", "0"),
    "stage": ("--kill", "1@stage:2", *FILES),
    "staged": ("--kill", "0@staged", *FILES, "--spares", "2"),
}


@pytest.mark.parametrize("roles", tiers(ROLES, full=["restore"]))
def test_with_other_roles_and_deaths(
    job: Any, tmp_path: Path, expected: Any, roles: str
) -> None:
    """Law of this file, with another layout, and with deaths of processes after the resumption."""
    lost = job(*FILES)
    lost.until((tmp_path / "step-25").exists)
    lose(lost)
    resumed = go_on(tmp_path, *ROLES[roles])
    assert resumed.returncode == 0, resumed.stderr
    assert same(results(tmp_path), expected), resumed.stderr


@pytest.mark.parametrize("place", tiers(["stage", "staged", "sum", "commit", "fold", "safepoint"],
                                        full=["staged"]))
@pytest.mark.parametrize("role", tiers(["0", "1"], full=["0"]))
def test_a_death_amid_writing(job: Any, tmp_path: Path, expected: Any, place: str, role: str
                              ) -> None:
    """Law: a process that dies while files are written costs none of them: its replacement writes
    the part, and each checkpoint that has a manifest is sound."""
    who = "c0" if place in ("sum", "fold") else role
    killed = job(*FILES, "--kill", f"{who}@{place}:6", "--spares", "2")
    output, _ = killed.process.communicate(timeout=60)
    assert killed.process.returncode == 0, output
    assert same(results(tmp_path), expected), output
    checked = ftrma("spill", "verify", str(tmp_path / "files"))
    # The job may end before the older ones are removed.
    assert checked.returncode == 0 and checked.stdout.count("sound") >= 2, checked.stdout


def test_a_damaged_checkpoint_is_set_aside(job: Any, tmp_path: Path, expected: Any) -> None:
    """Law: damage is told, the older checkpoint is taken, and nobody tries the damaged one again;
    with no whole one left nothing is begun."""
    lost = job(*FILES)
    lost.until((tmp_path / "step-30").exists)
    lost.until(lambda: len(spillfiles.points(tmp_path / "files")) == 2)
    lose(lost)
    older, newer = spillfiles.points(tmp_path / "files")
    path = max((tmp_path / "files" / newer.name).glob("slot-1-*.data"))
    with path.open("r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 1]))
    checked = ftrma("spill", "verify", str(tmp_path / "files"))
    assert checked.returncode == 1 and f"{newer.name}  damaged: " in checked.stdout
    resumed = go_on(tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert f"data of slot 1 are damaged (window 0); checkpoint {newer.version}" in resumed.stderr
    assert f"goes on from checkpoint {older.version}" in resumed.stderr
    assert same(results(tmp_path), expected)
    assert (tmp_path / f"files/damaged-{newer.name}").is_dir()
    (tmp_path / "files" / older.name / "slot-0.json").unlink()
    refused = go_on(tmp_path)
    assert refused.returncode == 2 and "slot-0.json is missing" in refused.stderr
    assert "no checkpoint in it is whole" in refused.stderr


@pytest.mark.parametrize("seed", tiers(range(1, 7), full=["1"]))
def test_over_several_nodes(job: Any, tmp_path: Path, expected: Any, seed: int) -> None:
    """Law of this file, over three nodes, from there to one node and back; a process of the resumed
    job dies, or a rule strikes while vaults are filled."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    dice = random.Random(seed)
    nodes = ("--mpirun", launcher_options())
    try:
        for _ in range(2):
            lost = job(*FILES, "--resume", "files", *dice.choice([nodes, nodes, ()]))
            step = dice.randint(8, 40)
            lost.until(lambda: (tmp_path / f"step-{step}").exists()  # noqa: B023
                       or lost.process.poll() is not None)  # noqa: B023
            if lost.process.poll() is None:
                lose(lost)
            for path in tmp_path.glob("step-*"):
                path.unlink()
        kill = dice.choice([(), ("--kill", "1@safepoint:3"), ("--kill", "2@restore")])
        ended = job(*FILES, "--resume", "files", *nodes, *kill)
        output, _ = ended.process.communicate(timeout=90)
        assert ended.process.returncode == 0, output
        assert "goes on from checkpoint" in output or "has ended" in output, output
        assert same(results(tmp_path), expected), output
    finally:
        remove_fake_ssh()


FAULTS = ("ENOSPC", "EIO", "short")


@pytest.fixture(scope="module")
def faulty_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes writes to files of checkpoints fail."""
    library = tmp_path_factory.mktemp("disk") / "faultydisk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library,
                    ROOT / "tests/c/faultydisk.c"], check=True)
    return library


@pytest.mark.parametrize("fault", tiers(FAULTS, full=["ENOSPC"]))
@pytest.mark.parametrize("rate", tiers([3, 40], full=["40"]))
def test_a_faulty_disk_costs_no_bits(
    job: Any, tmp_path: Path, expected: Any, faulty_disk: Path, fault: str, rate: int
) -> None:
    """Law: whatever the disk refuses, the job goes on, and what has a manifest is sound."""
    env = {"LD_PRELOAD": str(faulty_disk), "DISK_FAULT": fault, "DISK_RATE": str(rate)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        broken = job(*FILES)
    output, _ = broken.process.communicate(timeout=60)
    assert broken.process.returncode == 0, output
    assert same(results(tmp_path), expected)
    if fault != "short":
        assert "is not written to" in output or "is not whole" in output, output
    if spillfiles.points(tmp_path / "files"):
        assert ftrma("spill", "verify", str(tmp_path / "files")).returncode == 0


def test_a_full_disk_hinders_no_end(job: Any, tmp_path: Path, faulty_disk: Path) -> None:
    """Law: a job that is asked to end does so though its files cannot be written, and says it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"LD_PRELOAD": str(faulty_disk), "DISK_FAULT": "ENOSPC",
                            "DISK_RATE": "1"}.items():
            patch.setenv(name, value)
        full = job(*FILES, nap="0.2")
    full.until((tmp_path / "step-5").exists)
    assert ftrma("halt", full.directory.name).returncode == 0
    output, _ = full.process.communicate(timeout=20)
    assert full.process.returncode == 70, output
    assert "were not written" in output and "nothing is left to go on from" in output, output
    assert output.count("No space left on device") <= SLOTS, output  # told once by each


def test_a_directory_is_one_jobs(job: Any, tmp_path: Path, expected: Any) -> None:
    """Law: two jobs do not use a directory at a time; a job that begins anew does not take one of
    a job that has not ended; another program, or another number of slots, is refused."""
    lost = job(*FILES)
    lost.until((tmp_path / "step-20").exists)
    second = go_on(tmp_path)
    assert second.returncode == 2 and "another job uses it now" in second.stderr
    lose(lost)
    anew = ftrma("run", "-n", "3", *FILES, "program.py", str(tmp_path), cwd=tmp_path)
    assert anew.returncode == 2 and "that has not ended: go on with --resume" in anew.stderr
    (tmp_path / "other.py").write_text("pass\n")
    other = go_on(tmp_path, "other.py")
    assert other.returncode == 2 and "are of program.py, not of other.py" in other.stderr
    number = go_on(tmp_path, "-n", "4")
    assert number.returncode == 2 and "are of 3 slots, and -n 4" in number.stderr
    (tmp_path / "sink").mkdir(mode=0o700)
    shutil.copytree(tmp_path / "files", tmp_path / "sink", dirs_exist_ok=True)
    taken = go_on(tmp_path, "--spill", "sink")
    assert taken.returncode == 2 and "--spill" in taken.stderr and "not ended" in taken.stderr
    resumed = go_on(tmp_path, "--spill", "files")
    assert resumed.returncode == 0 and same(results(tmp_path), expected), resumed.stderr
    again = go_on(tmp_path)
    assert again.returncode == 0 and "has ended with status 0" in again.stderr


@pytest.mark.parametrize(("make", "why"), [
    (lambda home: None, "there is no such directory"),
    (lambda home: (home / "files").write_text(""), "this is no directory"),
    (lambda home: (home / "files").mkdir(0o700), "no checkpoint in it is whole"),
    (lambda home: (home / "files").mkdir() or (home / "files").chmod(0o777), "others may write"),
    (lambda home: (home / "files").mkdir() or os.chown(home / "files", 20002, 20002),
     "belongs to user 20002"),
])
def test_what_is_no_directory_of_checkpoints(tmp_path: Path, make: Any, why: str) -> None:
    """Law: one line says what is wrong with the directory, and nothing is begun."""
    if "20002" in why and os.geteuid():
        pytest.skip("only root gives files away")
    make(tmp_path)
    refused = go_on(tmp_path, "-n", "2", "x.py")
    assert refused.returncode == 2 and why in refused.stderr, refused.stderr
    assert refused.stderr.count("\n") == 1 and "--resume files: " in refused.stderr
