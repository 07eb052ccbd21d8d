"""In place of a dead slot, on its node or another: collect, restore, replay, go live.

Below the horizon nothing is done again, with one exception: puts that died in the dead process's
send buffer.  The agents' numbers tell which; they are sent again as the replay comes to them.

Invariant: a replay issues what no agent has, and nothing that one has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from unit.protocol.model_nodes_demand import held
from unit.protocol.model_nodes_job import Job, Steps
from unit.protocol.model_nodes_origin import put
from unit.protocol.model_nodes_words import Node, Record, Wrong
from unit.protocol.model_programs import ATOMIC, Op, Value, operand

NUMBERED = {"put", "lock", "lock_shared", "unlock"} | ATOMIC


def recover(job: Job, q: int, to: int) -> Steps:
    """Put in order what slot q left, and seat a replacement on node `to` (-1: the same)."""
    me, y = job.slots[q], job.home[q]
    if me.demand:  # which can be in force before its event is complete
        me.horizon = max(me.horizon, me.demand.process.event)
    yield None
    me.hold = True
    yield None
    busy = {q, Node.STARTING} if job.rules.undo_first else {q}
    yield lambda: job.nodes[y].busy not in busy and all(s.inside != q for s in job.slots)
    # New roles: from here on the dead process's requests are refused.
    job.incarnations[q] += 1
    me.results = {e: result for e, result in me.results.items() if e <= me.horizon}
    if not job.rules.answers_kept:
        me.answers = {}
    if to not in {-1, y}:
        move(job, q, to)
    yield from restore(job, q, y)
    yield None


def move(job: Job, q: int, to: int) -> None:
    """The slot's file is on another node from now on; its words and contributions go along."""
    old, new = job.nodes[job.home[q]], job.nodes[to]
    if job.rules.words_move:
        new.arrived[q], new.given[q] = old.arrived[q], list(old.given[q])
    job.home[q], job.slots[q].moved = to, True
    job.moves.append(q)
    job.outcomes.append("move")


def restore(job: Job, q: int, was: int) -> Steps:
    """Memory of the checkpoint; what has been written to it since, in the order of numbers."""
    me, rules, records = job.slots[q], job.rules, list[Record]()
    demand = me.demand
    own = job.processes[q] = job.started(
        demand.process if demand else job.checkpoint.processes[q])
    own.replaying, own.node, own.reached = True, was, [0] * job.n
    if job.home[q] != was and rules.set_moved:
        own.moves -= 1
    for o in set(range(job.n)) - {q}:
        yield None
        records += [replace(r) for r in job.processes[o].log
                    if r.target == q and (not r.pending or rules.pending_counts)]
        if rules.number_between:
            yield idle(job, o)
        own.reached[o] = job.slots[o].reached[q]
    job.forget_above(q, me.horizon)  # now that no agent has a request of the dead in its hands
    yield None
    known = {(r.origin, r.number) for r in records if r.number}
    if rules.answers_rebuilt:
        records += [a.record for o, a in me.answers.items()
                    if a.number <= me.reached[o] and (o, a.number) not in known
                    and a.record.seq > job.checkpoint.seqs[q]]
    records += [record for _, record in me.results.values() if record]
    records = [r for r in records if not held(job, r)]
    own.pending = sorted(records, key=lambda r: (r.pending, r.seq, r.number))
    me.part = [list(value) for value in (demand.part if demand else job.checkpoint.parts[q])]
    if not rules.pending_last:
        own.pending.sort(key=lambda r: not r.pending)
        for record in own.pending:
            record.clock = max(record.clock, 0)
    apply(job, q, own.clock)


def idle(job: Job, t: int) -> Callable[[], bool]:
    """Say whether no agent has a request to slot t in its hands."""
    return lambda: job.nodes[job.home[t]].busy != t


def apply(job: Job, q: int, clock: int | None) -> None:
    """Write records up to a clock (None: all) to the part."""
    own, later = job.processes[q], []
    for record in own.pending:
        if clock is None or 0 <= record.clock <= clock:
            job.slots[q].part[record.at][:] = record.value
            if record.pending:
                job.did("apply", record.origin, record.event, "put")
        else:
            later.append(record)
    own.pending = later


def answer(job: Job, q: int, op: Op, at: int) -> Value | None:
    """An event below the horizon: it took effect, but for puts that were not sent."""
    me, own = job.slots[q], job.processes[q]
    node = own.node if job.rules.dead_locality else job.home[q]
    if op.kind == "put" and op.target == q:
        me.part[at][:] = operand(op, own.state)
    elif op.kind in NUMBERED and node != job.home[op.target]:
        own.sent[op.target] += 1
        unsent = own.sent[op.target] > own.reached[op.target]
        if op.kind == "put" and unsent and job.rules.above_number:
            put(job, q, op, at, operand(op, own.state), own.event + 1)
    if op.kind in {"get", "allreduce"} | ATOMIC:
        if own.event + 1 not in me.results:
            raise Wrong(f"slot {q}: event {own.event + 1} {op} has no answer in the log")
        return me.results[own.event + 1][0]
    return None


def go_live(job: Job, q: int) -> Steps:
    me, own = job.slots[q], job.processes[q]
    yield None
    apply(job, q, None)
    job.compare([q])
    yield None
    me.clock = max(me.clock, own.clock)
    me.hold, own.replaying = False, False
    job.down.discard(q)
    job.outcomes.append("causal" if me.demand is None else "causal from a demand checkpoint")
