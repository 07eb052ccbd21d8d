"""One bit changes on the network between nodes, see `flips` and ``tests/c/bitflip.c``.

Law: the job ends with the bits of the run without faults. An end in words would be honest, too, but
the message is sent again, so no job has had one; one that cannot begin at all would look the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from flips import RIGHT, Flip, build, draw, play
from nodes import remove_fake_ssh, why_not
from tiers import tiers

CHANGED = "was changed on its way"
TRIES = 3


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """The compiled library lies in it, and nodes have it in common."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    with tempfile.TemporaryDirectory(prefix="flips-") as made:
        build(Path(made))
        yield Path(made)
    remove_fake_ssh()


@pytest.mark.parametrize("flip", tiers([
    # Bytes that a program has got were wrong, and nobody noticed, before messages had sums.
    pytest.param(Flip(4, ("--interval", "never", "--kill", "1@fence:3"), 2, 4000,
                      8 * 7804 + 3), id="a result"),
    # A longer length, for whose bytes the other end waited.
    pytest.param(Flip(0, ("--interval", "0"), 30, 0, 8 * 5), id="a length"),
    pytest.param(Flip(1, ("--interval", "0.02"), 400, 0, 8 * 60 + 1), id="a sum"),
], full=["a result"]))
def test_a_message_is_sent_again(directory: Path, flip: Flip) -> None:
    """Law of this file, and that the change is told.

    At a job's end nobody may be left who could tell it; a busy machine has other messages last.
    """
    for _ in range(TRIES):
        end, why, row, result = play(flip, directory)
        assert row["struck"], result
        assert end == RIGHT, (why, result)
        if CHANGED in result.stderr:
            return
    raise AssertionError(f"{TRIES} changes were not told: {result}")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_any_bit(directory: Path, seed: int, repetition: int) -> None:
    """Law of this file: a write, its bit, the program, its options and a death are drawn."""
    end, why, _, result = play(draw(1000 * repetition + seed), directory)
    assert end == RIGHT, (why, result)


def test_draws_are_those_of_their_numbers() -> None:
    """Law: a number draws one job, and numbers draw greetings' and payloads' bits alike."""
    jobs = [draw(seed) for seed in range(200)]
    assert jobs == [draw(seed) for seed in range(200)]
    assert {job.least for job in jobs} == {0, 100, 4000}
    assert np.mean([job.nth > 100 for job in jobs]) > 0.1
