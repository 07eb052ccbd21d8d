"""The meaning of a program whose puts take effect between their call and their completion.

Invariant: a put has taken effect when the flush, unlock or collective that completes it is over,
and when the next slot has the lock under which it was made; nobody has a lock that another has.
"""

from __future__ import annotations

from collections import defaultdict

from unit.protocol.model_nodes_words import Wrong
from unit.protocol.model_programs import COLLECTIVE, Program, Sequential, Value, operand, place


class Delayed(Sequential):
    """The program executed one event at a time; to "arrive" and "do" comes "apply"."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        # By origin and event: target, place, value, whether made under the target's lock.
        self.under_way: dict[tuple[int, int], tuple[int, int, Value, bool]] = {}
        self.held: dict[int, dict[int, str]] = defaultdict(dict)  # by part, by holder
        self.arrivals: dict[tuple[int, int], int] = {}  # by round and slot: the event

    def take(self, step: str, q: int, event: int) -> None:
        if step == "apply":
            if (q, event) not in self.under_way:
                raise Wrong(f"slot {q}: put {event} is applied without having been called")
            target, at, value, _ = self.under_way.pop((q, event))
            self.parts[target][at] = value
            return
        op = self.catch_up(q)
        if op is None or event != self.events[q] + 1:
            raise Wrong(f"slot {q}: {step} {event} after {self.events[q]}")
        if op.kind == "unlock" and step == "arrive":
            self.held[op.target].pop(q, None)
        elif op.kind in COLLECTIVE and step == "arrive":
            self.arrivals[self.rounds[q], q] = event
        elif op.kind == "put":
            at, state = place(op, self.states[q]), self.states[q]
            before = self.parts[op.target][at]
            super().take(step, q, event)
            self.parts[op.target][at] = before
            locked = q in self.held[op.target]
            self.under_way[q, event] = op.target, at, operand(op, state), locked
            return
        elif step == "do":
            self.check(op.kind, op.target, q)
        super().take(step, q, event)

    def check(self, kind: str, target: int, q: int) -> None:
        """Draw from an operation that is over what it says about puts and locks."""
        late = False
        for (o, event), (to, _, _, locked) in self.under_way.items():
            if kind in {"flush", "unlock"}:
                late |= o == q and to == target
            elif kind in {"lock", "lock_shared"}:
                late |= to == target and locked and o not in self.held[target]
            elif kind in COLLECTIVE:
                late |= event < self.arrivals.get((self.rounds[q], o), 0)
        if late:
            raise Wrong(f"slot {q}: {kind} {target} is over, a put before it is not")
        if kind in {"lock", "lock_shared"}:
            others = {o: how for o, how in self.held[target].items() if o != q}
            if others and (kind == "lock" or "lock" in others.values()):
                raise Wrong(f"slots {q} and {others} have the lock of {target}")
            self.held[target][q] = kind
