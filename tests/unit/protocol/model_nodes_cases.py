"""Random cases for the model over several nodes: program, nodes of the slots, schedule, deaths.

Programs are those of `unit.protocol.model_programs`, race-free also where a put takes effect late:
between a put and the next access of its slot to the same place, or the hand-over of the part, is a
flush.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from unit.protocol.model_nodes import Death
from unit.protocol.model_programs import COLLECTIVE, DATA, Op, Phase, Program, section

KINDS = [["slot"], ["slot"], ["agent"], ["slot", "agent"], ["slot", "slot", "agent", "node"]]


class Case(NamedTuple):
    program: Program
    home: list[int]
    schedule: int | list[int]
    deaths: list[Death]


def flushed(ops: list[Op]) -> tuple[Op, ...]:
    """The operations of a slot, with flushes where MPI asks for them."""
    made: list[Op] = []
    put: set[tuple[int, int]] = set()  # what has been put and not been completed
    for op in ops:
        if op.kind == "signal" or any((op.target, at) in put for at in op.places):
            if any(target == op.target for target, _ in put):
                made.append(Op("flush", op.target))
            put = {(target, at) for target, at in put if target != op.target}
        if op.kind == "put":
            put |= {(op.target, at) for at in op.places}
        elif op.kind in {"flush", "unlock"}:
            put = {(target, at) for target, at in put if target != op.target}
        elif op.kind in COLLECTIVE:
            put = set()
        made.append(op)
    return tuple(made)


def program(
    luck: random.Random, slots: int, modes: list[int], *, demand: bool = False
) -> Program:
    """Phases of sections; `modes` are the digits that say how locations are used. demand: slots
    checkpoint alone now and then, while others write to them or have just."""
    made: list[list[Op]] = [[] for _ in range(slots)]
    turns, hot = [0] * slots, luck.randrange(slots)
    for _ in range(luck.randint(1, 3)):
        alike = luck.random() < 0.5
        digits = [luck.choice(modes)] * (slots * DATA) if alike else [
            luck.choice(modes) for _ in range(slots * DATA)]
        phase = Phase(slots, int("".join(map(str, digits))))
        for _ in range(luck.randint(0, 7)):
            number = luck.randrange(10**7)
            if luck.random() < 0.7:  # most sections meet in one part, many at one place
                number += slots * (hot - number // slots % slots)
            slot, ops = section(phase, number, turns)
            made[slot] += ops
            if demand and luck.random() < 0.4:
                made[hot].append(Op("demand", hot))
        ending = luck.choice(["fence", "allreduce", "safepoint"])
        for ops in made:
            ops.append(Op(ending))
    return tuple(flushed(ops) for ops in made)


def demanding(seed: int) -> Case:
    """The random case of a number with checkpoints on demand."""
    return case(seed, demand=True)


def case(seed: int, settled: bool = False, *, demand: bool = False) -> Case:
    """The random case of a number; settled: without locks and atomics; demand: of `program`."""
    luck = random.Random(seed)
    slots, nodes = luck.choice([2, 3, 3]), luck.choice([2, 2, 3])
    modes = [0, 1, 2, 3] if settled else luck.choice([list(range(10)), [1, 4], [6], [0, 8], [8]])
    home = [luck.randrange(nodes) for _ in range(slots)]
    made = program(luck, slots, modes, demand=demand)
    kinds, step, deaths = luck.choice(KINDS), 0, []
    for _ in range(luck.choice([0, 1, 1, 2, 3, 4])):
        step += luck.randrange(luck.choice([30, 100, 300]))
        kind = luck.choice(kinds)
        which = luck.randrange(slots if kind == "slot" else nodes)
        to = luck.randrange(nodes) if luck.random() < 0.5 else -1
        deaths.append(Death(step, kind, which, to))
    return Case(made, home, luck.getrandbits(32), deaths)
