"""All memory of the model over several nodes, and what agents, slots and recoveries ask of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TypeVar

from unit.protocol.model_nodes_truth import Delayed
from unit.protocol.model_nodes_words import (
    Checkpoint,
    Message,
    Node,
    Process,
    Rules,
    Slot,
    Wrong,
)
from unit.protocol.model_programs import ATOMIC, DATA, Program, State, Value

Steps = Generator[Callable[[], bool] | None, None, None]
Learning = Generator[Callable[[], bool] | None, None, Value | None]
Asking = Generator[Callable[[], bool] | None, None, bool]
T = TypeVar("T")


class Job:
    """The memory of all nodes and processes.

    Args:
        home: the node of each slot, of three.
    """

    def __init__(self, program: Program, home: list[int], rules: Rules, seed: int | None) -> None:
        self.program, self.rules, self.home = program, rules, list(home)
        self.n, self.m = len(program), 3
        self.random = None if seed is None else random.Random(seed)
        self.slots = [Slot(reached=[0] * self.n) for _ in program]
        self.processes = [Process(sent=[0] * self.n) for _ in program]
        self.incarnations = [0] * self.n
        self.nodes = [Node([0] * self.n, [[(0, 0), (0, 0)] for _ in program])
                      for _ in range(self.m)]
        self.epoch, self.moves, self.tokens = 0, list[int](), 0  # who has moved, in turn
        self.down: set[int] = set()  # dead, or being replayed
        self.history: dict[tuple[str, int, int], str] = {}  # in order; the kind of operation
        self.outcomes: list[str] = []
        self.checkpoint = self.snapshot()

    def pick(self, choices: list[T]) -> T:
        return choices[0] if self.random is None else self.random.choice(choices)

    def token(self) -> int:
        self.tokens += 1
        return self.tokens

    def here(self, node: int) -> list[int]:
        return [q for q in range(self.n) if self.home[q] == node]

    def late(self, message: Message) -> bool:
        """Say whether a request is of a process that is dead, or from before a rollback."""
        dead = message.incarnation != self.incarnations[message.origin]
        return bool((dead and self.rules.dead_refused)
                    or (message.epoch != self.epoch and self.rules.requests_of_epoch))

    def did(self, step: str, q: int, event: int, kind: str) -> None:
        """Note an effect; what is done again has taken effect the first time."""
        self.history.setdefault((step, q, event), kind)

    def forget_above(self, q: int, horizon: int) -> None:
        """Drop what the dead has begun and nobody has seen.

        An arrival stays: it says only that what came before may be seen.  So do atomics, which
        only an agent does before they are complete, and puts that have taken effect elsewhere.
        """
        self.history = {
            (step, p, e): kind for (step, p, e), kind in self.history.items()
            if p != q or e <= horizon or step == "arrive" or kind in ATOMIC
            or (kind == "put" and ("apply", p, e) in self.history)
        }

    def compare(self, slots: range | list[int]) -> None:
        """Compare parts and states with the events so far, one at a time.

        An atomic or put above the horizon, of a slot that died in it, may have taken effect.
        """
        truth, states = Delayed(self.program), dict[int, State]()
        for step, q, event in self.history:
            if step == "do" and q in slots and event > self.processes[q].event:
                truth.catch_up(q)
                states[q] = truth.states[q]
            truth.take(step, q, event)
        for q in slots:
            if q not in states:
                truth.catch_up(q)
                states[q] = truth.states[q]
            part = [self.slots[q].value(at) for at in range(DATA + 1)]
            if part != truth.parts[q]:
                raise Wrong(f"slot {q}: part {part}, should be {truth.parts[q]}")
            if self.processes[q].state != states[q]:
                raise Wrong(f"slot {q}: {self.processes[q].state}, should be {states[q]}")

    def snapshot(self) -> Checkpoint:
        return Checkpoint(
            [Process(p.state, p.event, p.clock, p.round, list(p.sent)) for p in self.processes],
            [[s.value(at) for at in range(DATA + 1)] for s in self.slots],
            [s.seq for s in self.slots], [list(s.reached) for s in self.slots], len(self.history))

    def started(self, saved: Process) -> Process:
        """A process that begins at a checkpoint, in the present epoch."""
        return replace(saved, sent=list(saved.sent), log=[], requests={}, replies={}, ways={},
                       refused=set(), epoch=self.epoch, moves=len(self.moves), pending=[])
