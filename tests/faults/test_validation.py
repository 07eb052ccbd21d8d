"""A program says that its state is wrong: no checkpoint is taken of it, and none gone on from.

Law: the checkpoint before stays, and a rollback leads there; a checkpoint in files that the program
refuses is set aside, an older one is taken, and the job ends with the bits of the run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobs import FTRMA, Result, run_command, run_job
from nodes import remove_fake_ssh, run_on_nodes
from tiers import tiers

SLOTS, STEPS = 2, 12
PROGRAM = f"""
import os, signal, sys, time
import numpy as np
import ftrma
from mpi4py import MPI
comm, home, how = MPI.COMM_WORLD, sys.argv[1], sys.argv[2]
me, n = comm.rank, comm.size

def is_right(states):
    if how == "calls MPI":
        comm.Barrier()
    if how == "refuses" and os.path.exists(f"{{home}}/resumed.txt"):
        return me != 1 or states["s"].step < 8
    if how == "dies in it" and me == 1 and states["s"].step == 4 and once():
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "dies behind it":
        return me != 0 or states["s"].step != 5
    return states["s"].x[0] >= 0

win = MPI.Win.Allocate(64, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
state = ftrma.protect("s", step=0, x=np.ones(1))

def once():
    try:
        return os.close(os.open(f"{{home}}/once.txt", os.O_CREAT | os.O_EXCL)) is None
    except FileExistsError:
        return False

while state.step < {STEPS}:
    ftrma.safepoint(durable=how in ("refuses", "fails"))
    if how in ("refuses", "fails") and not os.path.exists(f"{{home}}/resumed.txt"):
        while not os.path.exists(f"{{sys.argv[3]}}/0001-{{state.step + 1:06}}/manifest.json"):
            time.sleep(0.005)
    win.Fence()
    win.Put(np.array([state.step + 1]), (me + 1) % n)
    win.Fence()
    if how == "damaged" and me == 1 and state.step == 4 and once():
        state.x[0] = -1
        open(f"{{home}}/damaged.txt", "w").close()
    if me == 1 and state.step == 7 and os.path.exists(f"{{home}}/damaged.txt"):
        os.remove(f"{{home}}/damaged.txt")
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "dies behind it" and me == 1 and state.step == 6 and once():
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fails" and state.step == 9 and me == 1:
        os._exit(5)
    if how == "refuses" and state.step == 9 and once():
        os._exit(5)
    state.step += 1
np.savez(f"{{home}}/cells-{{me}}.npz", cells=cells, x=state.x)
"""


def right(result: Result) -> None:
    assert result.status == 0, result
    for slot, arrays in enumerate(result.of_slots("cells", SLOTS)):
        assert arrays["cells"][0] == STEPS and arrays["x"][0] == 1, slot


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


@pytest.mark.parametrize("nodes", tiers([1, 2], full="1", nightly="2"))
def test_a_wrong_state_is_in_no_checkpoint(nodes: int) -> None:
    """Law: a slot's memory is damaged at step 4, and all go back at step 7: to step 4's checkpoint,
    in which nothing was damaged."""
    options = ("--interval", "0", "--policy", "rollback", "--spares", "2", "--validate",
               "program:is_right")
    if nodes == 1:
        result = run_job(PROGRAM, SLOTS, *options, args=("damaged",))
    else:
        result = run_on_nodes(PROGRAM, SLOTS, *options, args=("damaged",), in_turn=nodes)
    right(result)
    assert [refusal["step"] for refusal in result.stats["refusals"]] == [6, 7, 8], result.stats
    assert all(refusal["slots"] == [1] for refusal in result.stats["refusals"])
    told = "program:is_right says that the state of slot 1 is wrong at safepoint 6"
    assert result.stderr.count(told) == 1 and "safepoint 7" not in result.stderr, result
    (recovery,) = result.stats["recoveries"]
    assert (recovery["kind"], recovery["version"]) == ("rollback", 5)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["dies in it", "dies behind it"])
def test_a_slot_that_dies_is_replayed_past_the_question(how: str) -> None:
    """Law: the replacement is asked anew where the dead slot had not answered, and is not asked
    where its safepoint was over; a checkpoint that was refused is no obstacle."""
    result = run_job(PROGRAM, SLOTS, "--interval", "0", "--validate", "program:is_right",
                     args=(how,))
    right(result)
    (recovery,) = result.stats["recoveries"]
    assert recovery["kind"] == "causal", recovery
    assert len(result.stats["refusals"]) == (how == "dies behind it")


@pytest.mark.nightly
def test_a_function_that_communicates_ends_the_job() -> None:
    result = run_job(PROGRAM, SLOTS, "--interval", "0", "--validate", "program:is_right",
                     args=("calls MPI",))
    assert result.status != 0 and "calls MPI, which it must not" in result.stderr, result


@pytest.mark.nightly
def test_refused_files_are_set_aside(tmp_path: Path) -> None:
    """Law: files that the program refuses are renamed, the older ones are taken, and a job that has
    none left ends with 93."""
    home, run = job_with_files(tmp_path, "refuses")
    assert run().status == 5
    (home / "resumed.txt").touch()
    result = run()
    assert "goes on from checkpoint" in result.stderr, result
    aside = [path.name for path in (tmp_path / "files").iterdir()
             if path.name.startswith("damaged-")]
    assert len(aside) == 2, (aside, result)  # steps 8 and 9
    assert result.stderr.count("program:is_right says that checkpoint") == 2, result
    assert result.status == 0, result


@pytest.mark.nightly
def test_nothing_is_left_that_is_right(tmp_path: Path) -> None:
    """Law: then the job ends with 93, and says so."""
    home, run = job_with_files(tmp_path, "refuses", "--spill-keep", "2")
    assert run().status == 5
    (home / "resumed.txt").touch()
    result = run()
    assert result.status == 93 and "that is right; start the program again" in result.stderr, result


@pytest.mark.nightly
def test_a_job_that_goes_on_in_vain_is_not_begun_again(tmp_path: Path) -> None:
    """Law: it does so as often as it may from one step; then it ends with 93 before it begins."""
    home, run = job_with_files(tmp_path, "fails", "--max-no-progress", "2")
    assert run().status == 5
    (home / "resumed.txt").touch()
    assert [run().status for _ in range(3)] == [5, 5, 93]
    last = run()
    assert "it went on from safepoint 10 in" in last.stderr, last
    assert "2 times running" in last.stderr, last
    assert run("--max-no-progress", "0").status == 5


def job_with_files(place: Path, how: str, *more: str) -> tuple[Path, Callable[..., Result]]:
    """Make a job that writes each step to files; returns its directory, and a function that runs
    it or goes on with it."""
    program, home, files = place / "program.py", place / "out", place / "files"
    program.write_text(PROGRAM)
    home.mkdir()

    def run(*options: str) -> Result:
        return run_command(
            [FTRMA, "run", "-n", str(SLOTS), "--spill", str(files), "--resume", str(files),
             "--spill-keep", "4", "--validate", "program:is_right", *more, *options, str(program),
             str(home), how, str(files)], timeout=60)

    return home, run
