"""A model of causal recovery over several nodes: slots, an agent per node, messages, deaths.

A slot reaches parts on its own node directly and others by requests to the agent of their node,
which applies them later.  Slots, agents and wires are generators that yield wherever another may
run or death may come; a wire moves one message at a time, so what a dead process had not sent is
lost, and what had arrived is not.

The inside of atomics on direct parts, which `unit.protocol.model` shows on one node, is one step
here.  Not modelled: post-start-complete-wait, partial overlap, the stages of a checkpoint, the
messages by which a repair meets and decides.  The death of a node rolls everybody back.

Invariant: when a recovered slot goes live, its part and its local state are those that the events
so far, one at a time in the order in which they took effect, lead to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from unit.protocol import model_nodes_agent as agents
from unit.protocol.model_nodes_job import Job, Steps
from unit.protocol.model_nodes_recovery import recover
from unit.protocol.model_nodes_slot import execute
from unit.protocol.model_nodes_words import Node, Rules, Slot, Wrong
from unit.protocol.model_programs import Program


class Death(NamedTuple):
    """A death instead of a step that the machine takes."""

    step: int
    kind: str  # slot, agent, node
    which: int
    to: int = -1  # the node on which a slot's replacement comes; -1: on the same


class Machine(Job):
    """Runs a program under a schedule and a list of deaths.

    Args:
        home: the node of each slot.
        schedule: a seed, or the actors to step in turn (then lowest first): slots, then agents,
            then the wires of the nodes.
    """

    def __init__(self, program: Program, home: list[int], schedule: int | list[int] = 0,
                 deaths: list[Death] | None = None, rules: Rules | None = None) -> None:
        seed = schedule if isinstance(schedule, int) else None
        super().__init__(program, home, rules or Rules(), seed)
        self.schedule = list(schedule) if isinstance(schedule, list) else []
        self.deaths = sorted(deaths or [])
        count = self.n + 2 * self.m
        self.blocked: list[Callable[[], bool] | None] = [None] * count
        self.running: list[Steps | None] = [execute(self, q) for q in range(self.n)]
        self.running += [agents.serve(self, y) for y in range(self.m)]
        self.running += [self.carry(y) for y in range(self.m)]
        self.paces = [1.0] * count
        self.slowest = self.random.choice([1, 0.1, 0.003]) if self.random else 1.0
        self.switching = self.random.choice([1.0, 0.6, 0.3]) if self.random else 1.0
        self.steps = 0

    # ---- the scheduler -------------------------------------------------------------------------

    def run(self) -> Machine:
        """Run to the end and compare with the events one at a time."""
        last = 0
        while any(self.running[: self.n]):
            if self.random and self.steps % 60 == 0:  # some are slow for a while
                self.paces = [self.random.choice([1, 1, self.slowest]) for _ in self.paces]
            last = self.choose(last)
            self.steps += 1
            if self.deaths and self.deaths[0].step <= self.steps:
                self.die(self.deaths.pop(0))
            else:
                self.step(last)
            if self.steps > 40000:
                raise Wrong("endless")
        self.compare(range(self.n))
        return self

    def ready(self, actor: int) -> bool:
        blocked = self.blocked[actor]
        return self.running[actor] is not None and (blocked is None or blocked())

    def choose(self, last: int) -> int:
        if self.random and self.random.random() > self.switching and self.ready(last):
            return last
        ready = [actor for actor in range(len(self.running)) if self.ready(actor)]
        if not ready:
            raise Wrong("deadlock")
        if self.random:
            return self.random.choices(ready, [self.paces[actor] for actor in ready])[0]
        while self.schedule:
            wanted = self.schedule.pop(0)
            if wanted in ready:
                return wanted
        return ready[0]

    def step(self, actor: int) -> None:
        running = self.running[actor]
        assert running is not None
        try:
            self.blocked[actor] = next(running)
        except StopIteration:
            self.running[actor] = self.blocked[actor] = None

    def carry(self, y: int) -> Steps:
        """The wire of a node."""
        node = self.nodes[y]
        while True:
            yield lambda: any(way.sending or way.answering for way in node.ways)
            node.ways = [w for w in node.ways if w.agent and (w.process or w.arrived)]
            moves = [(way, way.sending) for way in node.ways if way.sending]
            way, sending = self.pick(moves + [(w, w.answering) for w in node.ways if w.answering])
            if sending is way.sending:
                way.arrived.append(way.sending.popleft())
            else:
                self.processes[way.origin].inbox.append(way.answering.popleft())

    # ---- deaths and rollback -------------------------------------------------------------------

    def die(self, death: Death) -> None:
        if death.kind == "agent":
            self.end_agent(death.which)
        elif death.kind == "slot":
            self.end_process(death.which, death.to)
        else:
            self.end_agent(death.which)
            for q in self.here(death.which):
                self.end_process(q, None)
                if death.to >= 0:
                    self.home[q] = death.to
            self.roll_back("a node is dead")

    def end_agent(self, y: int) -> None:
        """SIGKILL: its memory and connections are gone; another begins sometime."""
        for way in self.nodes[y].ways:
            way.agent = False
            way.sending.clear()
            way.arrived.clear()
            way.answering.clear()
        self.nodes[y].ways, self.nodes[y].busy = [], Node.STARTING
        self.outcomes.append("agent")
        self.running[self.n + y], self.blocked[self.n + y] = agents.serve(self, y), None

    def end_process(self, q: int, to: int | None) -> None:
        """SIGKILL: its put log and what it has not sent are gone; a replacement comes on node `to`
        (-1: the same; None: everybody goes back)."""
        for way in self.processes[q].ways.values():
            way.process = False
            way.sending.clear()
            way.answering.clear()
        self.outcomes.append("process")
        self.processes[q] = self.started(self.checkpoint.processes[q])
        self.slots[q].whole, self.slots[q].inside = False, None
        if to is None:
            return
        if self.down - {q}:
            self.roll_back("two slots are dead")
        elif not all(slot.whole for p, slot in enumerate(self.slots) if p != q):
            self.roll_back("the put log of another slot is incomplete")
        elif self.slots[q].moved and self.rules.moved_once:
            self.roll_back("the slot has moved")
        else:
            self.down.add(q)
            self.running[q], self.blocked[q] = self.replacement(q, to), None

    def replacement(self, q: int, to: int) -> Steps:
        yield from recover(self, q, to)
        yield from execute(self, q)

    def roll_back(self, reason: str) -> None:
        """Everybody goes back; connections of the living stay, with what is on its way."""
        self.outcomes.append("rollback: " + reason)
        while self.rules.between and any(node.busy is not None for node in self.nodes):
            for y in range(self.m):
                if self.nodes[y].busy is not None:
                    self.step(self.n + y)
        self.epoch += 1
        self.down.clear()
        self.history = dict(list(self.history.items())[: self.checkpoint.history])
        for q in range(self.n):
            old, saved = self.processes[q], self.checkpoint.processes[q]
            own = self.processes[q] = self.started(saved)
            own.inbox, own.ways = old.inbox, {y: w for y, w in old.ways.items() if w.process}
            answers = {} if self.rules.forget else self.slots[q].answers
            self.slots[q] = Slot([list(value) for value in self.checkpoint.parts[q]], own.clock,
                                 self.checkpoint.seqs[q], horizon=own.event, answers=answers,
                                 reached=list(self.checkpoint.reached[q]))
            for node in self.nodes:
                node.arrived[q] = own.round
            self.running[q], self.blocked[q] = execute(self, q), None
        for node in self.nodes:
            if self.rules.forget:
                node.unacknowledged.clear()


