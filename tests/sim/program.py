"""The program of a simulated job: deterministic, and free of races.

In a step slots put into two others' windows and get from one, with barriers between, compute, and
come to safepoints. With `Order.late` they put last, so that nothing but a checkpoint's own barrier
orders the puts of a step before another slot's checkpoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np

WINDOW, STATE = 600, 520  # numbers of 8 bytes: two blocks each, with the record's
MASK = (1 << 64) - 1


def mix(*values: int) -> int:
    """Mix numbers into one that shows each change of any of them."""
    found = 0x9E3779B97F4A7C15
    for value in values:
        found = (found ^ value) * 0xBF58476D1CE4E5B9 & MASK
        found ^= found >> 29
    return found


class Memory:
    """Memory of a slot's program.

    Attributes:
        window, state: its part of the window, its state.
        step: that it has come to.
        passed: safepoints at the end of the step before that it has passed.
        amid: it has computed this step, and is still to meet the others.
    """

    def __init__(self) -> None:
        self.window, self.state = np.zeros(WINDOW, "u8"), np.zeros(STATE, "u8")
        self.step = self.passed = 0
        self.amid = False

    def at(self) -> tuple[int, int, bool, bytes]:
        """All of it: a version restores what it was when it was staged."""
        return self.step, self.passed, self.amid, self.bytes()

    def bytes(self) -> bytes:
        return self.window.tobytes() + self.state.tobytes()


def puts_of(slot: int, slots: int, step: int, state: Any) -> list[tuple[int, int, int]]:
    """Targets, places and values of what a slot puts in a step."""
    return [((slot + away) % slots, (slot * 8 + step % 8 + 256 * (away - 1)) % WINDOW,
             mix(int(state[0]), step, slot, away)) for away in (1, 2)]


def place_of_get(slot: int, slots: int, step: int) -> tuple[int, int]:
    source = (slot - 1) % slots
    return source, (((source - 1) % slots) * 8 + step % 8) % WINDOW


def compute(memory: Memory, got: int, slot: int, step: int) -> None:
    state, window = memory.state, memory.window
    at = (step * 67 + slot) % STATE
    state[at] ^= np.uint64(mix(got, int(window[(step * 31) % WINDOW]), step))
    state[0] = mix(int(state[0]), int(state[at]), int(window.sum(dtype="u8")), got)


def without_failure(slots: int, steps: int, *, late: bool) -> list[bytes]:
    """Compute in a loop the bytes that each slot has at the end."""
    all_of = [Memory() for _ in range(slots)]

    def put(step: int) -> None:
        made = [puts_of(s, slots, step, memory.state) for s, memory in enumerate(all_of)]
        for target, place, value in (one for several in made for one in several):
            all_of[target].window[place] = value

    for step in range(steps):
        if not late:
            put(step)
        got = [int(all_of[source].window[place])
               for source, place in (place_of_get(s, slots, step) for s in range(slots))]
        for slot, memory in enumerate(all_of):
            compute(memory, got[slot], slot, step)
        if late:
            put(step)
    return [memory.bytes() for memory in all_of]
