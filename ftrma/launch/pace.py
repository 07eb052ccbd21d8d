"""Finds slots whose steps take much longer than those of others (fail-slow), from outside.

All slots leave a fence together, however slow one of them is, since the others wait. So this module
compares the time that each slot spends on its steps without the time for which it waits for others.
Waits inside the MPI library (messages) are not known, and count as the slot's own time. A slot may
also be slow because it has more to do; only the user knows which of the two it is.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..native.shared import Control

# Time between looks; with many slots it is longer. Counts are exact; only a process's last moments
# are missed.
LOOK_S, MANY, LOOK_MANY_S = 1.0, 64, 5.0
# Below these limits a difference may be a coincidence. They were chosen: pauses of the machine
# itself are shorter.
LEAST_STEPS, LEAST_OWN_S = 20, 1.0
MUCH = 2.0  # so many times the median of the others


@dataclass
class Pace:
    """The steps of one slot, over all launches and attempts.

    Attributes:
        steps: number of safepoints that it has passed, including repeated ones.
        own_s: time that it has spent on them without waiting for others, seconds.
        waited_s: time for which it has waited, in seconds.
    """

    steps: int = 0
    own_s: float = 0.0
    waited_s: float = 0.0


@dataclass(frozen=True)
class Sample:
    """The state of a slot at one look: its process and attempt, and the words that are compared."""

    holder: tuple[int, int]
    at: float
    step: int
    waited_ns: int


def slow_slots(paces: Sequence[Pace]) -> dict[int, float]:
    """Find slots that take much longer for a step; return for each how many times as long as the
    others."""
    per_step = {slot: pace.own_s / pace.steps for slot, pace in enumerate(paces)
                if pace.steps >= LEAST_STEPS}
    found = {}
    for slot, own_s in per_step.items():
        others = [other_s for other, other_s in per_step.items() if other != slot]
        usual_s = statistics.median(others) if others else 0.0
        if usual_s and own_s >= MUCH * usual_s and paces[slot].own_s >= LEAST_OWN_S:
            found[slot] = own_s / usual_s
    return found


class PaceWatch:
    """Records the pace of the slots of a launch.

    Args:
        ctl: the launch's control file.
        paces: the pace of each slot, to which new measurements are added.
    """

    def __init__(self, ctl: Control, paces: list[Pace]) -> None:
        self.ctl, self.paces = ctl, paces
        self.samples: dict[int, Sample] = {}
        self.looked, self.look_s = 0.0, LOOK_S if len(paces) <= MANY else LOOK_MANY_S

    def look(self, *, at_once: bool = False) -> None:
        """Look at all slots if it is time to; skip a slot that is in a repair, or is replayed.

        Args:
            at_once: look now, since it is the last look.
        """
        ctl, now = self.ctl, time.monotonic()
        if now - self.looked < self.look_s and not at_once:
            return
        self.looked = now
        if not ctl.start_ns:
            return
        roles = ctl.roles[ctl.roles_seq & 1]
        for slot, pace in enumerate(self.paces):
            p, before = ctl.proc[roles.slot_proc[slot]], self.samples.get(slot)
            here = Sample((p.pid, int(ctl.attempt)), now, int(p.step), int(p.waited_ns))
            calm = ctl.alarm == ctl.repaired and not ctl.slots[slot].replaying
            if p.finished == ctl.attempt:
                calm = False
            if calm and before and before.holder == here.holder:
                waited_s = (here.waited_ns - before.waited_ns) / 1e9
                pace.steps += here.step - before.step
                pace.waited_s += waited_s
                pace.own_s += max(0.0, here.at - before.at - waited_s)
            if calm:
                self.samples[slot] = here
            else:
                self.samples.pop(slot, None)


def summary(paces: Sequence[Pace]) -> dict[str, Any]:
    """Return the entries of ``--stats``: ``pace`` of each slot, and ``slow`` slots."""
    slow = slow_slots(paces)
    return {
        "pace": [{"steps": pace.steps, "own_s": round(pace.own_s, 3),
                  "waited_s": round(pace.waited_s, 3)} for pace in paces],
        "slow": [{"slot": slot, "times": round(times, 2)} for slot, times in slow.items()],
    }
