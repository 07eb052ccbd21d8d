"""Draws a job and the instructions at which its processes die, by a number and a survey."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import code
from .programs import PROGRAMS, SLOTS, draw_number
from .survey import AFTER, MOST

VISITS = 20  # of an instruction that a survey has not counted to the end: most that are drawn
ON_ONE_NODE = {"slot": 6, "checksum": 3, "spare": 1}
ON_NODES = {"slot": 6, "checksum": 2, "spare": 1, "nobody": 2}
Survey = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Kill:
    """A death at an instruction.

    Attributes:
        at: place of the instruction, in bytes from the beginning of the library.
        nth: the visit before which the process dies.
        role: one of `survey.ROLES`; "nobody" is an agent, or a process that has no place yet.
        index: number of the slot or checksum rank; -1: whoever comes first.
        first: so many others have died before, or the visit does not count.
    """

    at: int
    nth: int
    role: str
    index: int
    first: int


@dataclass(frozen=True)
class Job:
    """A job that is run.

    Attributes:
        program: one of `PROGRAMS`; number: of a drawn one.
        library: where the instructions are, `code.NATIVE` or `code.WIRE`.
        strength: checksum ranks of the one group.
        options: of ``ftrma run``.
        kills: at most one of them is at each instruction.
    """

    seed: int
    program: str
    number: int
    library: str
    strength: int
    options: tuple[str, ...]
    kills: tuple[Kill, ...]


def draw_kill(dice: random.Random, survey: Survey, functions: Mapping[int, str], weights:
              Mapping[str, int], strength: int, before: int) -> Kill:
    """Draw a death: half of them by instruction, half by function, so that short ones have their
    share.

    Args:
        before: deaths that have been drawn.
    """
    after = AFTER if before and dice.random() < 0.4 else ""
    roles = [role for role in weights if survey[role + after]]
    role = dice.choices(roles, [weights[role] for role in roles])[0]
    seen = survey[role + after]
    places = sorted(seen)
    if dice.random() < 0.5:
        function = dice.choice(sorted({functions[at] for at in places}))
        places = [at for at in places if functions[at] == function]
    at = dice.choice(places)
    nth = dice.randint(1, seen[at]) if seen[at] < MOST else round(VISITS ** dice.random())
    numbers = {"slot": SLOTS, "checksum": strength}.get(role, 0)
    index = dice.randrange(numbers) if numbers and dice.random() < 0.3 and not after else -1
    first = 1 if after else dice.randint(0, min(before, 5))
    return Kill(at, nth, role, index, first)


def draw(seed: int, program: str, survey_of: Callable[[str, str], Survey]) -> Job:
    """Draw a job of a program.

    Args:
        survey_of: returns the survey of a program and a library.
    """
    dice = random.Random(f"{program} {seed}")
    several = PROGRAMS[program].nodes > 1
    library = dice.choice([code.NATIVE, code.WIRE]) if several else code.NATIVE
    weights = ON_NODES if library == code.WIRE else ON_ONE_NODE
    functions = code.code_of(library).functions
    survey = survey_of(program, library)
    strength, spares = dice.choice([1, 2, 2]), dice.choice([3, 4])
    kills: dict[int, Kill] = {}
    for number in range(dice.randint(5, 9)):
        kill = draw_kill(dice, survey, functions, weights, strength, number)
        kills[kill.at] = kill
    options = ("--group-size", str(SLOTS), "--checksums", str(strength), "--spares", str(spares),
               "--max-relaunch", "6", *dice.choice(PROGRAMS[program].ways))
    return Job(seed, program, draw_number(program, dice), library, strength, options,
               tuple(kills.values()))
