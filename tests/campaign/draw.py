"""Draws jobs: a number says the program, its options, and who dies where and when."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from .works import Work, draw_work

SERVER_PLACES = {"sum": 6, "commit": 6, "fold": 6, "folded": 6, "repair": 2, "restore": 2}
REPAIR_PLACES = {"repair": 2, "restore": 2, "reset": 2, "reentry": 2, "replay": 6, "live": 2}
EDGES = {"start": 1, "end": 1}
SPARE_PLACES = {"repair": 2, "restore": 2}
LONGEST_S = 1.5  # a death by a timer comes within this time
BY_PLACE, BY_TIMER = 0.62, 0.66  # shares of deaths, the others come from outside
WHEN = -0.1, 0.8  # its last part is the job's end, behind the program's
PAUSES_FROM = 100_000  # jobs of smaller numbers have none
PAUSE_S = 0.05, 3.0
HASTE = ("stopped=1", "absent=1", "stuck=1")  # time-outs behind which a paused process is given up
OF_LAUNCHER = 0.04  # share of deaths from outside
DEATHS = {1: 8, 2: 17, 3: 20, 4: 20, 6: 15, 8: 12, 10: 8}  # numbers of them, with their weights
MISSED = 0.6  # share of rules beside which another one is drawn, since many strike nobody
AGENTS = 0.2  # share of deaths at places that take the node's agent instead


@dataclass(frozen=True)
class Strike:
    """A SIGKILL from outside, or a pause: SIGSTOP, and SIGCONT later.

    Attributes:
        part: when: of the time from the program's begin to the end of a run without deaths;
            below 0: of the time in which the job comes up, from its end.
        pick: chooses among the living processes.
        launcher: it strikes the launcher.
        pause_s: how long a process is paused; 0: it is killed.
    """

    part: float
    pick: int
    launcher: bool
    pause_s: float = 0.0


@dataclass(frozen=True)
class Case:
    """One job of the campaign.

    Attributes:
        seed: which draws it.
        options: of ``ftrma run``, without those for nodes and rules.
        strength: checksum ranks of each group.
        nodes: over which its ranks go in turn.
        rules: for ``--kill``.
        strikes: deaths from outside.
    """

    seed: int
    work: Work
    options: tuple[str, ...]
    group_size: int
    strength: int
    nodes: int
    rules: tuple[str, ...]
    strikes: tuple[Strike, ...]
    policy: str


def visit(dice: random.Random, most: int) -> int:
    """Draw a visit, early ones more often."""
    return max(1, min(most, int(most ** (0.9 * dice.random()) * 1.2)))


def draw_rule(dice: random.Random, work: Work, checksums: int, spares: int, nodes: int) -> str:
    """Draw a death at a place, or by a timer, for one of the roles."""
    role = dice.choices(["slot", "checksum", "spare"], [7, 2, 1 if spares else 0])[0]
    most: Mapping[str, int]
    if role == "slot":
        victim = str(dice.randrange(work.slots))
        most = dice.choice([work.most, work.most, work.most, work.most, REPAIR_PLACES, EDGES])
    elif role == "checksum":
        victim, most = f"c{dice.randrange(checksums)}", SERVER_PLACES
    else:
        victim, most = f"s{dice.randrange(spares)}", SPARE_PLACES
    if dice.random() < (BY_TIMER - BY_PLACE) / BY_TIMER:
        return f"{victim}@time:{dice.uniform(0.01, LONGEST_S):.3f}"
    place = dice.choice(list(most))
    agent = "a" if nodes > 1 and role != "spare" and dice.random() < AGENTS else ""
    return f"{agent}{victim}@{place}:{visit(dice, most[place])}"


def draw_options(dice: random.Random, work: Work, policy: str) -> list[str]:
    """Draw options that concern no layout."""
    found = ["--policy", policy] if policy != "auto" else []
    if not work.claims:
        found += ["--interval", dice.choice(["0", "0", "0", "0.05", "never"])]
        if policy != "causal" and dice.random() < 0.08:
            found += ["--rollback", "fresh"]
        if dice.random() < 0.12:
            found += ["--log-budget", "64K", "--demand", dice.choice(["bulk", "stream"])]
    elif work.judge == "aic":
        found += ["--interval", "never"]
    return found


def add_pauses(dice: random.Random, options: list[str], strikes: list[Strike]) -> None:
    """Draw processes that are paused, some for so long that the job goes on without them."""
    for _ in range(dice.choice([1, 1, 2])):
        strikes.append(Strike(dice.uniform(0, WHEN[1]), dice.randrange(1 << 16), False,
                              dice.uniform(*PAUSE_S)))
    if dice.random() < 0.6:
        options += [word for bound in HASTE for word in ("--timeout", bound)]


def draw(seed: int) -> Case:
    """Draw the job of a number."""
    dice = random.Random(seed)
    work = draw_work(dice)
    alone = work.name.startswith("apgas")  # is told of deaths, which needs one node
    nodes = 1 if alone else dice.choices([1, 2, 3], [86, 9, 5])[0]
    if work.name.startswith("groups"):
        nodes = 1  # it wants two slots on each node
    deaths = dice.choices(list(DEATHS), list(DEATHS.values()))[0]
    halves = work.slots == 4 and dice.random() < 0.3
    group_size = work.slots // 2 if halves else work.slots
    strength = dice.choice([1, 1, 2])
    checksums = strength * (work.slots // group_size)
    spares = dice.choice([deaths, deaths, deaths, deaths, max(deaths - 1, 0)])
    policy = "auto" if work.claims else dice.choices(["auto", "rollback", "causal"], [75, 20, 5])[0]
    options = ["--group-size", str(group_size), "--checksums", str(checksums),
               "--spares", str(spares), *draw_options(dice, work, policy)]
    rules: list[str] = []
    strikes: list[Strike] = []
    for _ in range(deaths):
        if dice.random() < BY_TIMER:
            rules += [draw_rule(dice, work, checksums, spares, nodes)
                      for _ in range(1 + (dice.random() < MISSED))]
        else:
            strikes.append(Strike(dice.uniform(*WHEN), dice.randrange(1 << 16),
                                  dice.random() < OF_LAUNCHER))
    if seed >= PAUSES_FROM and dice.random() < 0.6:
        add_pauses(dice, options, strikes)
    return Case(seed, work, tuple(options), group_size, strength, nodes, tuple(rules),
                tuple(strikes), policy)
