"""Processes die at drawn instructions of ftrma's code in C, see `tests/instructions`.

Law: the job ends with the bits of the run without failure; it may say that it cannot go on if more
have died at a time than the group has checksum ranks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from instructions import code, survey
from instructions.draw import Job, Kill
from instructions.judge import HONEST, RIGHT, Player, breakpoints_of, play
from instructions.programs import PROGRAMS, SLOTS
from jobs import run_job
from nodes import remove_fake_ssh, why_not
from tiers import tiers

# A role, a function in which it dies, and the deaths before which it does not.
ACCESSES = (("slot", "put", 0), ("slot", "ftrma_access_log", 0), ("slot", "MPI_Fetch_and_op", 1),
            ("checksum", "ftrma_parity_fold", 1),
            ("slot", "ftrma_replay_begin", 1), ("checksum", "ftrma_note_death", 1))
CHECKPOINTS = (("slot", "ftrma_delta_stage", 0), ("checksum", "ftrma_parity_fold", 0),
               ("slot", "ftrma_counters_save", 1), ("checksum", "ftrma_parity_rebuild", 1))
REPAIRS = (("slot", "MPI_Win_fence", 0), ("slot", "ftrma_windows_settle", 1),
           ("slot", "ftrma_copy_changed", 1), ("spare", "ftrma_meet", 0))


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    made = Player()
    yield made
    made.close()
    remove_fake_ssh()


@pytest.mark.parametrize("chosen", tiers(
    [pytest.param(ACCESSES, id="accesses"), pytest.param(CHECKPOINTS, id="checkpoints"),
     pytest.param(REPAIRS, id="repairs")], full=["accesses"]))
def test_in_named_functions(player: Player, chosen: tuple[tuple[str, str, int], ...]) -> None:
    """Law of this file: three instructions of each function are drawn, of which some are those of a
    branch that is not taken."""
    dice = random.Random(str(chosen))
    functions = code.code_of(code.NATIVE).functions
    kills = {}
    for role, function, first in chosen:
        places = [at for at, name in functions.items() if name == function]
        for at in dice.sample(places, 3):
            kills[at] = Kill(at, dice.randint(1, 4), role, -1, first)
    options = ("--group-size", str(SLOTS), "--checksums", "2", "--spares", "3",
               "--max-relaunch", "6", "--interval", "0")
    job = Job(0, "mixed", 0, code.NATIVE, 2, options, tuple(kills.values()))
    record, told = play(job, player.directory, player.trap)
    assert record["end"] in (RIGHT, HONEST), told
    assert record["deaths"], told


# Slot 1 comes to its end first. Slot 0 kills it there, and ends when all others are about to note
# the death.
ENDING = """
import os, signal, sys
from pathlib import Path
import numpy as np
import ftrma
from ftrma import MPI
from ftrma.native import job
comm = MPI.COMM_WORLD
me, ctl = comm.rank, job.open_control(Path(os.environ["FTRMA_JOB"]) / "control")
cells = np.frombuffer(MPI.Win.Allocate(80, 8, comm=comm).tomemory())
state = ftrma.protect("s", step=0)
while state.step < 3:
    comm.Barrier()
    cells += me + 0.1 * state.step
    state.step += 1
    ftrma.safepoint()
np.save(f"{sys.argv[1]}/cells-{me}.npy", cells)
with open(f"{sys.argv[1]}/entered-{me}.txt", "a") as file:
    file.write("x")
if me == 0 and "TRAP_FILE" in os.environ:
    count = np.memmap(os.environ["TRAP_FILE"], "u8", "r")[2:3]  # of threads that wait
    other = ctl.proc[ctl.roles[0].slot_proc[1]]
    while job.load(other, "finished") < 1:
        pass
    os.kill(other.pid, signal.SIGKILL)
    while count[0] < ctl.nprocs - 1:
        pass
"""


@pytest.mark.full
def test_a_death_that_is_noted_while_the_program_ends(player: Player) -> None:
    """Law: no repair begins behind the end. Who notes the death has seen that the program has not
    ended, and the program ends before the death is marked."""
    at = code.place_of(code.NATIVE, "ftrma_note_death", "lock cmpxchg")
    job = Job(0, "ending", 0, code.NATIVE, 1, (), (Kill(at, 1, "slot", -1, 0),))
    file = player.directory / "hold"
    breakpoints_of(job).tofile(file)
    env = survey.environment(code.NATIVE, file, "hold", player.trap)
    right, found = (run_job(ENDING, 2, "--interval", "0", "--spares", "2", env=more)
                    for more in ({}, env))
    for result in (right, found):
        assert result.status == 0 and not result.stats["recoveries"], result
        assert result.of_slots("entered", 2) == ["x", "x"], result
    for slot, cells in enumerate(found.of_slots("cells", 2)):
        assert cells.tobytes() == right.results[f"cells-{slot}"].tobytes()


@pytest.mark.nightly
@pytest.mark.parametrize("program", list(PROGRAMS))
@pytest.mark.parametrize("seed", range(8))
def test_at_any_instruction(player: Player, program: str, seed: int, repetition: int) -> None:
    """Law of this file: instructions are drawn among those that the program executes."""
    if PROGRAMS[program].nodes > 1 and why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    record, told = player.play(1000 * repetition + seed, program)
    assert record["end"] in (RIGHT, HONEST), told
