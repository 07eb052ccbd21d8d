"""SIGKILL of ``ftrma run`` itself: its processes end, its job can be gone on with or cleaned away.

Law: within 5 s no process of the job lives, children of ranks included; of its files only the job's
directory is left, for its owner alone; ``ftrma run --resume`` comes to the same bits as a run
without a kill; a living job is neither listed, nor removed, nor resumed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from byhand import END_S, Job, ftrma, results, same
from jobs import FTRMA, SHARED, marked
from nodes import launcher_options, remove_fake_ssh, why_not
from tiers import tiers

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    "step",
    [20, *(pytest.param(s, marks=pytest.mark.nightly) for s in (0, 1, 3, 8, 15, 27, 41, 52, 59))],
)
def test_a_killed_job_goes_on(job: Any, tmp_path: Path, expected: Any, step: int) -> None:
    killed = job("--stats", "stats.json")
    killed.until((tmp_path / f"step-{step}").exists if step else (lambda: marked_ranks(killed)))
    before = set(SHARED.iterdir())
    directory = killed.kill()
    assert directory.exists() and stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert not list(directory.glob("launch-*"))
    for name in ("key", "start"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600
    assert not {p for p in set(SHARED.iterdir()) - before if killed.mark in p.name}
    listed = ftrma("clean").stdout
    assert directory.name in listed and "program.py" in listed and "--resume JOB" in listed
    (elsewhere := tmp_path / "elsewhere").mkdir()
    resumed = ftrma("run", "--resume", directory.name, "--trace", "trace", cwd=elsewhere,
                    env=killed.env)
    assert resumed.returncode == 0, resumed.stderr
    assert "ftrma run was killed; launching the job again from" in resumed.stderr
    assert same(results(tmp_path), expected), resumed.stderr
    assert not directory.exists() and not marked(killed.mark)
    assert (tmp_path / "stats.json").exists() and (elsewhere / "trace").exists()


def marked_ranks(killed: Job) -> bool:
    """A rank has been started; the program has not."""
    return any(b"OMPI_COMM_WORLD_RANK" in Path(f"/proc/{p}/environ").read_bytes()
               for p in marked(killed.mark))


@pytest.mark.nightly
def test_it_may_be_killed_again(job: Any, tmp_path: Path, expected: Any) -> None:
    """Law: a job that was resumed and killed is resumed like any other."""
    killed = job()
    killed.until((tmp_path / "step-10").exists)
    directory = killed.kill()
    for step in (25, 40):
        again = subprocess.Popen(
            [FTRMA, "run", "--resume", str(directory)], env=killed.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        killed.until((tmp_path / f"step-{step}").exists)
        again.kill()
        again.wait()
        killed.until(lambda: not marked(killed.mark), END_S)
    assert ftrma("run", "--resume", directory.name).returncode == 0
    assert same(results(tmp_path), expected)


def test_a_living_job_is_left_alone(job: Any, tmp_path: Path) -> None:
    living = job(nap="0.2")
    living.until((tmp_path / "step-5").exists)
    directory = living.directory
    for words in (["clean"], ["clean", "--remove"]):
        assert directory.name not in ftrma(*words).stdout
    assert directory.exists() and living.process.poll() is None


@pytest.mark.full
def test_a_living_job_is_not_resumed(job: Any, tmp_path: Path) -> None:
    living = job(nap="0.2")
    living.until((tmp_path / "step-5").exists)
    directory = living.directory
    refused = ftrma("run", "--resume", directory.name)
    assert refused.returncode == 2 and "the job lives" in refused.stderr, refused.stderr
    assert directory.exists() and living.process.poll() is None


def test_clean_removes_what_is_dead(job: Any, tmp_path: Path) -> None:
    killed = job()
    killed.until((tmp_path / "step-5").exists)
    directory = killed.kill()
    removed = ftrma("clean", "--remove").stdout
    assert directory.name in removed and "removed" in removed and not directory.exists()


def test_what_cannot_be_resumed_is_told(job: Any, tmp_path: Path) -> None:
    """Law: one line, status 2, with the reason; and a job with another key's records is refused."""
    killed = job()
    killed.until((tmp_path / "step-20").exists)
    directory = killed.kill()
    name = directory.name
    for words, why in [
        (["--resume", "ftrma-0-nosuch"], "there is no"),
        (["--resume", name, "program.py"], "leave out the script program.py"),
        (["--resume", name, "--spares", "2"], "leave out --spares"),
        (["--resume", name, "--stats", "/none/x"], "--stats /none/x"),
    ]:
        refused = ftrma("run", *words)
        assert refused.returncode == 2 and why in refused.stderr, (words, refused.stderr)
        assert refused.stderr.count("\n") == 1
    key = directory / "key"
    key.chmod(0o644)
    assert "not a file of this user's alone" in ftrma("run", "--resume", name).stderr
    key.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(directory, 20002, 20002)
        assert "belongs to user 20002" in ftrma("run", "--resume", name).stderr
        os.chown(directory, 0, 0)
    program = tmp_path / "program.py"
    program.rename(tmp_path / "moved.py")
    moved = ftrma("run", "--resume", name)
    assert moved.returncode == 2 and "program.py is gone; put it back" in moved.stderr, moved
    (tmp_path / "moved.py").rename(program)
    secret = key.read_bytes()
    key.write_bytes(bytes(32))
    forged = ftrma("run", "--resume", name)
    assert forged.returncode == 70 and "was not written by this job" in forged.stderr, forged
    assert f"{name} is kept" in forged.stderr and directory.exists()
    key.write_bytes(secret)
    assert ftrma("run", "--resume", name).returncode == 0


@pytest.mark.nightly
def test_a_late_guardian_harms_nobody(job: Any, tmp_path: Path, expected: Any) -> None:
    """Law: as long as it has not done its work, the job counts as living."""
    killed = job()
    killed.until((tmp_path / "step-10").exists)
    directory = killed.directory
    (late,) = [p for p in marked(killed.mark)
               if b"guardian.py" in Path(f"/proc/{p}/cmdline").read_bytes()]
    os.kill(late, signal.SIGSTOP)
    killed.process.kill()
    refused = ftrma("run", "--resume", directory.name)
    assert refused.returncode == 2 and "the job lives" in refused.stderr
    os.kill(late, signal.SIGCONT)
    killed.until(lambda: not [p for p in marked(killed.mark) if p != killed.process.pid], END_S)
    assert ftrma("run", "--resume", directory.name).returncode == 0
    assert same(results(tmp_path), expected)


@pytest.mark.parametrize("step", tiers(range(6), full=["0", "3"]))
def test_arranging_can_be_cut_off_anywhere(tmp_path: Path, step: int, monkeypatch: Any) -> None:
    """Law: whoever is killed between two launches leaves vaults that the next attempt finds."""
    from ftrma.fabric.control_file import make_control
    from ftrma.host.key import Key
    from ftrma.host.lock import lock_alone
    from ftrma.launch.job import Job
    from ftrma.launch.relaunch import lost_roles
    from ftrma.launch.vaulthandover import finish_handover, hand_over
    from ftrma.machine.topology import make_layout
    from ftrma.native import loading
    from ftrma.settings import options as settings

    loading.load()
    layout = make_layout(3)
    old = make_control(tmp_path / "control", layout)
    old.commit = 5 << 1
    for s, p in enumerate((4, 1, 2)):  # a spare has slot 0
        old.roles[0].slot_proc[s] = p
    for p in range(layout.processes):
        old.proc[p].ready = 1
        (tmp_path / f"vault-{p}").write_text(f"of process {p}")
    made = Job(tmp_path, Key.make(), layout, settings.Options(slots=3), ["x"])
    count, rename = [0], Path.rename

    def cut_off(self: Path, target: Any) -> Any:
        if count[0] == step + 1:
            raise KeyboardInterrupt
        count[0] += 1
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", cut_off)
    with contextlib.suppress(KeyboardInterrupt):
        hand_over(made, lost_roles(made, set()), made.ctl.commit >> 1, 1)
    monkeypatch.undo()
    finish_handover(made)
    if made.ctl.resume == 0:  # it was taken back
        assert lost_roles(made, set()) == []
        hand_over(made, [], made.ctl.commit >> 1, 1)
    assert made.ctl.resume == 1 and made.ctl.commit == 5 << 1
    found = {p.name: p.read_text() for p in tmp_path.glob("[vk]*-*")}
    assert found == {"vault-0": "of process 4", "vault-1": "of process 1",
                     "vault-2": "of process 2", "vault-3": "of process 3"}
    assert lock_alone(tmp_path) is None, "not yet old enough to be taken for dead"


def test_over_several_nodes_it_is_refused(job: Any, tmp_path: Path) -> None:
    """Law: there, too, all processes end; and going on is refused with the reason."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    try:
        killed = job("--mpirun", launcher_options())
        killed.until((tmp_path / "step-5").exists)
        directory = killed.kill()
        refused = ftrma("run", "--resume", directory.name)
        assert refused.returncode == 2 and "may have run over several nodes" in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert directory.name in ftrma("clean", "--remove").stdout and not directory.exists()
    finally:
        remove_fake_ssh()
