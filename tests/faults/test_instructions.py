"""Processes die at drawn instructions of ftrma's code in C, see `tests/instructions`.

Law: the job ends with the bits of the run without failure; it may say that it cannot go on if more
have died at a time than the group has checksum ranks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from instructions import code
from instructions.draw import Job, Kill
from instructions.judge import HONEST, RIGHT, Player, play
from instructions.programs import PROGRAMS, SLOTS
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


@pytest.mark.nightly
@pytest.mark.parametrize("program", list(PROGRAMS))
@pytest.mark.parametrize("seed", range(8))
def test_at_any_instruction(player: Player, program: str, seed: int, repetition: int) -> None:
    """Law of this file: instructions are drawn among those that the program executes."""
    if PROGRAMS[program].nodes > 1 and why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    record, told = player.play(1000 * repetition + seed, program)
    assert record["end"] in (RIGHT, HONEST), told
