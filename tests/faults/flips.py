"""Real jobs over two nodes, on whose network one bit changes (`tests/c/bitflip.c`).

``python flips.py FIRST COUNT SECONDS`` draws jobs by number and runs them; each is told in a line.
Programs are those that `replay/drawn.py` draws, of which the half run with a death.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # beside conftest.py, as for tests

from instructions.programs import SLOTS, difference, run
from jobs import Result
from nodes import remove_fake_ssh
from tree import TESTS

FLIP = np.dtype([("nth", "u8"), ("least", "u8"), ("bit", "u8"), ("count", "u8"), ("struck", "u8"),
                 ("at", "u8"), ("size", "u8"), ("agent", "u8"), ("greeting", "u8"),
                 ("first", "S64")])
LIBRARY = "bitflip.so"
PROGRAM = "nodes"  # of `instructions.programs`
NUMBERS = 6  # programs that are drawn
MOST = 2000  # writes; a program has some hundred to some thousand
LEAST = (0, 0, 100, 4000)  # bytes of the write that is struck; the longer ones are rare
WAYS = (("--interval", "0"), ("--interval", "0.02"), ("--interval", "never"))
# Kill rules of a run with a death, which every second run has.
KILLS = ((), (), ("--kill", "1@fence:3"), ("--kill", "2@put:6"), ("--kill", "0@safepoint:4"))
STRENGTH = ("--checksums", "1", "--group-size", str(SLOTS), "--spares", "2")
RIGHT, HONEST, WRONG, HUNG, MUTE = "right", "honest", "wrong", "hung", "mute"


@dataclass(frozen=True)
class Flip:
    """One job.

    Attributes:
        number: of the program. options: of ``ftrma run``.
        nth, least, bit: which write of how many bytes, and which of its bits, changes.
    """

    number: int
    options: tuple[str, ...]
    nth: int
    least: int
    bit: int


def draw(seed: int) -> Flip:
    """Draw a job by a number."""
    dice = random.Random(seed)
    least = dice.choice(LEAST)
    nth = int(math.exp(dice.uniform(0, math.log(MOST if least < 1000 else 40))))
    return Flip(dice.randrange(NUMBERS), (*dice.choice(WAYS), *dice.choice(KILLS)), nth, least,
                dice.randrange(1 << 62))


def build(directory: Path) -> None:
    """Compile the library that changes a bit."""
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
                    str(directory / LIBRARY), str(TESTS / "c/bitflip.c"), "-ldl"], check=True)


def judge(flip: Flip, result: Result) -> tuple[str, str]:
    """Judge a job that has ended: in a word, and why."""
    if result.status == 0:
        differs = difference(PROGRAM, flip.number, result)
        return (WRONG, differs) if differs else (RIGHT, "")
    told = [line for line in result.stderr.splitlines() if "error" in line.lower()
            or "Exception: " in line]
    return HONEST if told else MUTE, f"status {result.status}: {told[-1] if told else ''}"


def play(flip: Flip, directory: Path) -> tuple[str, str, np.ndarray, Result]:
    """Run a job: how it ended, why, what was struck, and all that it said.

    Args:
        directory: where `build` has put the library, common to all nodes.
    """
    path = directory / f"flip-{flip.nth}-{flip.bit}"
    row = np.zeros(1, FLIP)
    row["nth"], row["least"], row["bit"] = flip.nth, flip.least, flip.bit
    row.tofile(path)
    env = {"LD_PRELOAD": str(directory / LIBRARY), "FLIP_FILE": str(path)}
    result = Result(-1, "", "")
    try:
        result = run(PROGRAM, flip.number, (*STRENGTH, *flip.options), env, directory)
        end, why = judge(flip, result)
    except AssertionError as error:
        end, why = HUNG, str(error)
    row = np.fromfile(path, FLIP)
    path.unlink()
    return end, why, row[0], result


def main(words: list[str]) -> int:
    first, count, over = int(words[0]), int(words[1]), time.monotonic() + float(words[2])
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="flips-") as home:
        directory = Path(home)
        build(directory)
        for seed in range(first, first + count):
            if time.monotonic() > over:
                break
            flip = draw(seed)
            end, why, row, result = play(flip, directory)
            ends[end if row["struck"] else f"not struck, {end}"] += 1
            who = "agent" if row["agent"] else "rank"
            kind = "greeting" if row["greeting"] else row["first"][:1]
            print(f"{seed}: {end}: {flip.number} {' '.join(flip.options)}; {who} {row['count']} "
                  f"writes, byte {row['at']} of {row['size']}, {kind}: {why[:1500]}", flush=True)
            if end not in (RIGHT, HONEST):
                print(result, flush=True)
    remove_fake_ssh()
    print(dict(ends))
    return int(bool({WRONG, HUNG, MUTE} & set(ends)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
