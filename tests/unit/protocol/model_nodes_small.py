"""The smallest programs that need the rules which random programs seldom need, and their deaths."""

from __future__ import annotations

import random
from typing import NamedTuple

from unit.protocol.model_nodes import Death
from unit.protocol.model_nodes_cases import Case
from unit.protocol.model_programs import Op, Program

X, Y = (0,), (1,)
FENCE = Op("fence")


class Small(NamedTuple):
    """A program, the nodes of its slots, and what dies, in this order: kind, which, to."""

    program: Program
    home: list[int]
    deaths: list[tuple[str, int, int]]
    within: int = 100  # steps before the first
    later: int = 40  # steps between deaths

    def case(self, number: int) -> Case:
        luck = random.Random(number)
        step, deaths = luck.randrange(self.within), []
        for kind, which, to in self.deaths:
            deaths.append(Death(step, kind, which, to))
            step += luck.randrange(self.later)
        return Case(self.program, self.home, luck.getrandbits(32), deaths)


TWO_PUTS: Program = (
    (FENCE, FENCE),
    (Op("put", 0, X), Op("put", 0, Y), FENCE, FENCE),
    (FENCE, Op("put", 0, X, 1), FENCE),
)
SWAPS: Program = (
    (Op("swap", 0, X, 1), Op("swap", 0, X, 2), Op("swap", 0, X, 3), FENCE),
    (Op("swap", 0, X), Op("swap", 0, X, 4), FENCE),
)
LOCKED_PUTS: Program = (
    (FENCE,),
    (Op("lock", 0), Op("put", 0, X, 1), Op("unlock", 0), FENCE),
    (Op("lock", 0), Op("put", 0, X, 2), Op("unlock", 0), FENCE),
)
LOCKS: Program = (
    (FENCE,),
    (Op("put", 0, Y), Op("lock", 0), Op("unlock", 0), FENCE),
    (Op("lock", 0), Op("unlock", 0), Op("lock", 0), Op("unlock", 0), FENCE),
)
SMALL: dict[str, Small] = {
    # A put that was sent twice comes the second time when a new neighbour has written there.
    "numbers": Small(
        ((FENCE,), (Op("put", 0, X, 1), Op("flush", 0), Op("put", 0, X, 2), FENCE)),
        [0, 1], [("slot", 0, 1)], 40),
    # The first of two puts is refused, the second comes when the slot is live.
    "gaps": Small(TWO_PUTS, [0, 1, 1], [("slot", 0, -1)], 60),
    # The agent dies again after a neighbour's swap.
    "undo_cleared": Small(SWAPS, [0, 1], [("agent", 0, -1), ("agent", 0, -1)], 50),
    # Agent and slot die; the slot moves away before the next agent has begun.
    "undo_first": Small(SWAPS, [0, 1], [("agent", 0, -1), ("slot", 0, 2)], 50, 5),
    # An old acknowledgement makes a put look applied that is still on its way.
    "replies_of_epoch": Small(
        ((FENCE,), (Op("put", 0, X), Op("get", 2, X), Op("flush", 0), FENCE), (FENCE,)),
        [0, 1, 2], [("node", 2, -1)], 60),
    # A put gets the clock and number that it had before all went back.
    "forget": Small(LOCKED_PUTS, [0, 1, 2], [("node", 2, -1), ("slot", 0, -1)], 60, 150),
    # A lock that was sent again is granted when its slot has had it already.
    "lock_numbers": Small(LOCKS, [0, 1, 2], [("slot", 0, 1)], 100),
    # The next holder's put is acknowledged, the one before is still pending; then slot 0 dies.
    "unlock_after": Small(LOCKED_PUTS, [0, 1, 2], [("slot", 0, -1)], 150),
    "unlock_acknowledged": Small(LOCKED_PUTS, [0, 1, 2], [("slot", 1, -1)], 200),
    # The last that slot 1 does is to tell others that it has come.
    "set_acknowledged": Small(((FENCE,), (FENCE,)), [0, 1], [("slot", 1, -1)], 60),
    "set_again": Small(
        ((FENCE, FENCE), (FENCE, FENCE), (FENCE, FENCE)), [0, 0, 1], [("slot", 0, 2)], 100),
    "set_moved": Small(
        ((FENCE,),) * 3, [0, 0, 1], [("slot", 0, 2)], 100),
    "words_move": Small(
        ((Op("allreduce"),) * 3,) * 3, [0, 0, 1], [("slot", 0, 2)], 150),
    "above_number": Small(
        ((FENCE,), (Op("put", 0, X), FENCE)), [0, 1], [("slot", 1, -1)], 50),
    # The put is applied, its acknowledgement is with an agent that has no more to do with it.
    "resend_moved": Small(
        ((FENCE,), (Op("put", 0, X), FENCE)), [0, 1], [("slot", 0, 2)], 50),
    # The agent has counted a put and is about to write it.
    "demand_looks": Small(
        ((Op("demand", 0), FENCE), (Op("put", 0, X), FENCE)), [0, 1], [("slot", 0, -1)], 60),
    # It dies amid a swap, and the slot before the next agent does it again.
    "demand_whole": Small(
        ((Op("demand", 0), FENCE), (Op("swap", 0, X, 1), FENCE)), [0, 1],
        [("agent", 0, -1), ("slot", 0, -1)], 30),
    "demand_looks_again": Small(
        ((Op("demand", 0), FENCE), (Op("swap", 0, X, 1), FENCE)), [0, 1],
        [("agent", 0, -1), ("slot", 0, -1)], 30),
    # A put dies with the process, which has checkpointed since.
    "demand_flushes": Small(
        ((Op("put", 1, X), Op("demand", 0), FENCE), (FENCE,)), [0, 1], [("slot", 0, -1)], 60),
    "applied_first": Small(
        ((FENCE,), (Op("put", 0, X), FENCE)), [0, 1], [("agent", 0, -1)], 50),
}
