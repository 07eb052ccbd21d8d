"""Draws scenarios by a number, runs them, and shortens one that fails."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .faults import AT_PLACES
from .nodes import NodesWorld
from .scenario import Fault, Outcome, Scenario
from .world import World

# Places of the protocol, by the role of those who come by; a repair's are all roles'.
REPAIR = ("repair", "restore", "reset")
PLACES = {
    "slot": ("start", "end", "put", "put-landed", "safepoint", "checkpoint", "stage", "staged",
             "reentry", "live", *REPAIR),
    "checksum": ("sum", "commit", "fold", "folded", *REPAIR),
    "spare": REPAIR,
}
PLACES["leader"] = PLACES["slot"]
KINDS = (*("kill",) * 10, *("place",) * 12, *("pause",) * 5, "freeze", "freeze", "flip", "flip",
         "launcher", "supervisor", "stumble", "node", "agent", "agent",
         *("connection",) * 3)
# Some jobs have faults of few kinds, at few places, in few roles: so that these meet each other.
HARSH = ((*("kill",) * 3, "place"), ("kill", "freeze"), ("place", "pause"), ("pause", "kill"),
         ("kill", "launcher", "supervisor"), ("place", "launcher", "supervisor"), ("kill", "flip"),
         ("kill", "connection", "connection"), ("kill", "node", "launcher"),
         ("kill", "agent", "agent"))
ROLES = ("", "", "slot", "checksum", "checksum", "leader", "spare")


@dataclass(frozen=True)
class Harm:
    """Faults of a job, as they are drawn.

    Attributes:
        kinds: of its faults; roles: of who is killed; places: where.
        places_too: also those who die at places have these roles.
        chained: see `Scenario`. within: turns between one fault and the next.
    """

    kinds: tuple[str, ...] = KINDS
    roles: tuple[str, ...] = ("",)
    places: tuple[str, ...] = ()
    chained: bool = False
    within: tuple[int, ...] = (300, 20, 60, 300)
    places_too: bool = False

    def fault(self, random: Random, within: int) -> Fault:
        """Draw what befalls a job after the fault before, so many turns later at most."""
        kind = random.choice(self.kinds)
        after = random.randrange(within // 20 + 1, within)
        if kind in AT_PLACES:
            usual = ("slot", "slot", "slot", "checksum", "checksum", "spare")
            role, place = random.choice([
                (role, place) for role in (self.roles if self.places_too else usual)
                for place in PLACES[role] if not self.places or place in self.places])
            most = {"put": 6, "put-landed": 6}.get(place, 2 if place in REPAIR else 4)
            ms = random.choice((0, 1, 3, 10)) if kind == "pause" else 0
            more = random.choice((0, 0, 1, 2, 4, 8, 16)) if self.roles != ("",) else 0
            return Fault(kind, int(2 ** random.uniform(0, most)), place=place, role=role, ms=ms,
                         more=more)
        ms = {"freeze": random.choice((1, 30, 800, 7000)), "flip": random.getrandbits(16)}
        return Fault(kind, after, random.randrange(64), role=random.choice(self.roles),
                     ms=ms.get(kind, 0))


def draw_harm(random: Random) -> Harm:
    if random.random() < 0.4:
        return Harm()
    places = random.sample(PLACES["slot"], 2) + random.sample(PLACES["checksum"], 2)
    return Harm(random.choice(HARSH), tuple(random.sample(ROLES, 2)), tuple(places),
                random.random() < 0.5, random.choice(((300, 60), (12, 40), (20,), (60, 150))))


# Jobs in which a certain thing goes wrong, again and again; with fields of `Scenario`.
FOCUSED: dict[str, tuple[Harm, dict[str, Any]]] = {
    "nothing": (Harm(()), {
        "faults": (), "nodes": 1, "slots": 4, "group_size": 4, "strength": 1, "safepoints": 3,
        "late": True, "interval": 1e-4}),
    "leaders": (Harm(("kill",), ("leader", "slot"), chained=True, within=(200,)), {
        "spares": 4, "nodes": 1, "alone": False}),
    "targets": (Harm(("place",), ("leader",), ("safepoint",), places_too=True), {
        "spares": 3, "nodes": 1, "safepoints": 3, "interval": 1e-4, "alone": False,
        "policy": "auto"}),
    "seats": (Harm(("place", "place", "kill"), ("checksum",), ("sum", "commit", "fold"), True,
                   (60, 20), True), {"spares": 4, "nodes": 1, "interval": 0}),
    "starts": (Harm(("place",), ("slot",), ("start", "reentry"), places_too=True), {
        "spares": 4, "nodes": 1, "alone": False, "policy": "auto"}),
    "ends": (Harm(("place",), ("slot",), ("end",), places_too=True), {
        "spares": 3, "nodes": 1, "steps": 1}),
    "ends of nodes": (Harm(("place",), ("slot",), ("end",), places_too=True), {
        "spares": 3, "nodes": 2, "steps": 2}),
    "pairs": (Harm(("kill",), ("slot", "checksum"), chained=True, within=(12, 100)), {
        "slots": 4, "group_size": 4, "strength": 2, "spares": 5, "nodes": 1}),
    "commits": (Harm(("pause", "kill", "kill"), ("checksum", "slot"), ("commit",), True, (20, 40)),
                {"spares": 4, "nodes": 1, "strength": 2, "interval": 0}),
    "told seats": (Harm(("kill",), ("checksum",), (), False, (100, 200)), {
        "nodes": 1, "spares": 3, "steps": 2, "alone": False, "told": True, "policy": "rollback"}),
    "told": (Harm(("kill", "kill", "kill", "freeze"), ("slot", "", "spare"), (), False,
                  (12, 60, 200)), {
        "nodes": 1, "spares": 3, "alone": False, "told": True, "policy": "rollback"}),
    "launches": (Harm(("launcher", "supervisor", "kill"), ("",), (), True, (200, 60)), {
        "nodes": 1, "interval": 0, "spares": 1}),
    "agents": (Harm(("agent", "agent", "kill", "connection"), ("",), (), False, (100, 300, 600)), {
        "nodes": 3, "spares": 3}),
    "spares of nodes": (Harm(("kill", "kill", "launcher"), ("slot",), (), True, (1200, 800)), {
        "nodes": 2, "interval": 0, "spares": 4, "alone": False}),
    "launches of nodes": (Harm(("node", "kill", "kill", "launcher"), ("",), (), True,
                               (1500, 600, 200)), {"nodes": 3, "interval": 0, "spares": 1}),
    "lost nodes": (Harm(("node", "node", "kill", "kill", "agent"), ("",), (), True,
                        (1500, 600, 200, 60)), {
        "nodes": 3, "interval": 0, "spares": 4, "relayed": True, "alone": False}),
}


def draw(seed: int, focus: str = "") -> Scenario:
    """Draw a scenario.

    Args:
        focus: one of `FOCUSED`; empty: all that a job may meet.
    """
    harm, fixed = FOCUSED[focus] if focus else (None, {})
    drawn = draw_any(seed, harm, fixed.get("nodes", 0))
    return dataclasses.replace(drawn, **fixed)


def draw_any(seed: int, harm: Harm | None, nodes: int) -> Scenario:
    """Draw a scenario with faults of a kind, over so many nodes; None, 0: of any."""
    random = Random(f"scenario {seed}")
    slots = random.choice((3, 4, 4, 5))
    size = random.choice((2, 3, slots))
    strength = random.choice((1, 1, 2))
    groups = -(-slots // size)
    harm = harm or draw_harm(random)
    count = random.choice((0, 1, 2, 2, 3, 3, 4, 5, 6)) if harm.kinds else 0
    steps = random.choice((4, 8, 12))
    nodes = nodes or random.choice((1, 1, 1, 2, 3))
    steps = steps if nodes == 1 else steps // 2  # a job over several nodes takes twice as long
    # The start takes 200 turns on one node and 800 over several, a step 60, a repair 200: some
    # faults come amid others' repairs.
    long = 200 + 50 * steps if nodes == 1 else 1400 + 200 * steps
    faults = tuple(harm.fault(random, random.choice(harm.within) if i else long)
                   for i in range(count))
    told = nodes == 1 and random.random() < 0.15
    # Frameworks that do so have all go back after a failure.
    alone = not told and random.random() < 0.2
    # None of these comes about there.
    missing = {"supervisor"} if nodes > 1 else {"node", "connection", "agent"}
    faults = tuple(fault for fault in faults if fault.kind not in missing)
    return Scenario(
        seed, nodes, slots, size, strength,
        spares=random.choice((0, 1, 2, 3, 3, 4, 5, groups * strength)), steps=steps,
        late=random.random() < 0.5, safepoints=random.choice((1, 1, 2, 3)),
        alone=alone, told=told,
        policy=random.choice(("auto", "auto", "rollback")) if not alone | told else "rollback",
        interval=random.choice((0, 0, 0, 1e-4, 1e-4, 5e-4, "daly", "never")),
        relayed=nodes > 1 and Random(f"relays {seed}").random() < 0.5,
        fresh=random.random() < 0.05, ulfm=random.random() < 0.95, chained=harm.chained,
        faults=faults)


@dataclass
class Tally:
    """Sums of runs: their number, turns and accesses, and how often each thing came to pass."""

    runs: int = 0
    failed: int = 0
    turns: int = 0
    points: int = 0
    faults: int = 0
    ends: Counter[int | None] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    recoveries: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.failed += bool(outcome.wrong)
        self.turns += outcome.turns
        self.points += outcome.points
        self.faults += outcome.fired
        self.ends[outcome.status] += 1
        self.deaths.update(outcome.deaths)
        self.recoveries.update(outcome.recoveries)


def run(scenario: Scenario) -> Outcome:
    return (NodesWorld if scenario.nodes > 1 else World)(scenario).run()


def first_failure(first: int, count: int, focus: str = "", limit_s: int = 60) -> None:
    """Run drawn scenarios to the first that fails; exits with status 1 then.

    Args:
        focus: see `draw`.
        limit_s: in a run that takes longer, something goes round without taking turns; the process
            ends by SIGALRM.
    """
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        signal.alarm(limit_s)
        outcome = run(draw(seed, focus))
        if outcome.wrong:
            print(outcome.wrong[0])
            sys.exit(1)


def smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with less in them: fewer faults above all."""
    faults = scenario.faults
    for i in range(len(faults)):
        yield dataclasses.replace(scenario, faults=faults[:i] + faults[i + 1:])
    for steps in range(1, scenario.steps):
        yield dataclasses.replace(scenario, steps=steps)
    for name, plain in (("late", False), ("safepoints", 1), ("alone", False), ("chained", False)):
        if getattr(scenario, name) != plain:
            yield dataclasses.replace(scenario, **{name: plain})
    if scenario.nodes > 1:
        yield dataclasses.replace(scenario, nodes=scenario.nodes - 1)
    for spares in range(scenario.spares):
        yield dataclasses.replace(scenario, spares=spares)
    if scenario.slots > 3:
        yield dataclasses.replace(scenario, slots=scenario.slots - 1)
    for i, fault in enumerate(faults):
        for after in {1, fault.after // 2} - {fault.after, 0}:
            less = dataclasses.replace(fault, after=after)
            yield dataclasses.replace(scenario, faults=(*faults[:i], less, *faults[i + 1:]))


def shorten(scenario: Scenario, fails: Callable[[Scenario], bool], tries: int = 300) -> Scenario:
    """Leave out of a scenario what it fails without.

    Each smaller scenario is also tried with a few other orders of turns.

    Args:
        fails: runs a scenario.
        tries: runs at most.
    """
    while tries > 0:
        for less in smaller(scenario):
            orders = [less, *(dataclasses.replace(less, seed=scenario.seed + n) for n in (1, 2, 3))]
            tries -= len(orders)
            found = next((each for each in orders if fails(each)), None)
            if found or tries <= 0:
                break
        else:
            return scenario
        scenario = found or scenario
    return scenario
