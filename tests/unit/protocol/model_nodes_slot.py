"""A slot of the model over several nodes: its program, live or in replay.

`near` decides for each access whether it goes to the part directly or by request; so a replacement
on another node, and its new neighbours, change their ways.

Invariant: an event is complete, and the horizon moves over it, when nothing that it needs can die
with the process any more, but for puts, which the agent's number tells.
"""

from __future__ import annotations

from unit.protocol.model_nodes_agent import release, take
from unit.protocol.model_nodes_demand import snapshot
from unit.protocol.model_nodes_job import Asking, Job, Learning, Steps
from unit.protocol.model_nodes_origin import ask, flush, post, put, tell, wait
from unit.protocol.model_nodes_recovery import answer, apply, go_live
from unit.protocol.model_nodes_words import Message, Record
from unit.protocol.model_programs import (
    ATOMIC,
    COLLECTIVE,
    LOCAL,
    Op,
    Value,
    combined,
    finish,
    operand,
    place,
    total,
)


def execute(job: Job, q: int) -> Steps:
    """The program of slot q from its process's state on."""
    me, own = job.slots[q], job.processes[q]
    while own.state.pc < len(job.program[q]):
        op = job.program[q][own.state.pc]
        at, learned = place(op, own.state), None
        if op.kind in LOCAL:
            yield None
            if op.kind == "load":
                learned = me.value(at)
            else:
                me.part[at][:] = operand(op, own.state)
            own.state = finish(op, own.state, learned)
            continue
        if own.replaying and own.event >= me.horizon:
            yield from go_live(job, q)
        yield None
        own.clock += op.kind not in {"put", "get"}
        own.round += op.kind in COLLECTIVE
        if own.replaying:
            learned = answer(job, q, op, at)
            own.event += 1
            own.state = finish(op, own.state, learned)
            apply(job, q, own.clock)
            continue
        me.clock = own.clock
        yield None
        learned = yield from live(job, q, op, at)
        yield None
        me.horizon = own.event = own.event + 1
        own.state = finish(op, own.state, learned)
    if own.replaying:
        yield from go_live(job, q)
    own.ended = True  # nobody leaves while others may need what it sends again
    yield from wait(job, q, lambda: all(p.ended for p in job.processes))


def near(job: Job, q: int, t: int) -> bool:
    """Say whether slot q reaches part t directly.

    A replacement asks even a new neighbour as long as the dead may have asked already.
    """
    own = job.processes[q]
    asked = bool(own.reached) and own.sent[t] < own.reached[t]
    return job.home[q] == job.home[t] and not (asked and job.rules.neighbours)


def enter(job: Job, q: int, t: int) -> Asking:
    """Begin a direct access: say so first, then look; returns whether it may be direct."""
    me, to = job.slots[q], job.slots[t]
    while near(job, q, t):
        if t == q:
            return True
        me.inside = t
        yield None
        if near(job, q, t) and not (to.hold and job.rules.hold):
            return True
        me.inside = None
        yield from wait(job, q, lambda: not to.hold)
    return False


def live(job: Job, q: int, op: Op, at: int) -> Learning:
    event = job.processes[q].event + 1
    if op.kind == "put":
        yield from write(job, q, op, at)
    elif op.kind == "get":
        return (yield from read(job, q, op, at))
    elif op.kind in ATOMIC:
        return (yield from atomic(job, q, op, at))
    elif op.kind in COLLECTIVE:
        return (yield from collective(job, q, op))
    elif op.kind == "unlock":
        yield from unlock(job, q, op.target)
        job.did("do", q, event, op.kind)
    else:
        if op.kind == "flush":
            yield from flush(job, q, op.target)
        elif op.kind in {"lock", "lock_shared"}:
            yield from lock(job, q, op)
        elif op.kind == "demand":
            yield from snapshot(job, q, op)
        job.did("do", q, event, op.kind)
    return None


def write(job: Job, q: int, op: Op, at: int) -> Steps:
    me, own, to = job.slots[q], job.processes[q], job.slots[op.target]
    event, value = own.event + 1, operand(op, own.state)
    if not (yield from enter(job, q, op.target)):
        own.sent[op.target] += 1
        job.did("do", q, event, op.kind)
        put(job, q, op, at, value, event)
        return
    clock = to.clock
    yield None
    to.seq += 1
    if op.target != q:
        own.log.append(Record(q, op.target, at, value, event, 0, clock, to.seq))
    kind = "put" if op.target != q else "own put"
    job.did("do", q, event, kind)
    for i in range(2):
        yield None
        to.part[at][i] = value[i]
    job.did("apply", q, event, kind)
    yield None
    me.inside = None


def read(job: Job, q: int, op: Op, at: int) -> Learning:
    me, to, event = job.slots[q], job.slots[op.target], job.processes[q].event + 1
    learned: Value | None
    if (yield from enter(job, q, op.target)):
        first = to.part[at][0]
        yield None
        learned = first, to.part[at][1]
        me.inside = None
    else:
        learned = yield from ask(job, q, Message("get", q, op.target, at=at))
    assert learned is not None
    job.did("do", q, event, op.kind)
    me.results[event] = learned, None
    return learned


def atomic(job: Job, q: int, op: Op, at: int) -> Learning:
    """Direct ones are one step: what is inside is modelled in `unit.protocol.model`."""
    me, own, to = job.slots[q], job.processes[q], job.slots[op.target]
    event = own.event + 1
    while (yield from enter(job, q, op.target)):
        if to.serial and job.rules.serial:
            me.inside = None
            yield from wait(job, q, lambda: not to.serial)
            continue
        old = to.value(at)
        to.seq += 1
        record = Record(q, op.target, at, combined(op, own.state, old), event, 0, to.clock, to.seq)
        to.part[at][:] = record.value
        job.did("do", q, event, op.kind)
        me.results[event] = old, record if op.target == q else None
        if op.target != q:
            own.log.append(record)
        me.horizon, me.inside = event, None
        return old
    own.sent[op.target] += 1
    message = Message(op.kind, q, op.target, number=own.sent[op.target], at=at, op=op,
                      state=own.state, event=event)
    learned = yield from ask(job, q, message)
    assert learned is not None
    me.results[event] = learned, None
    return learned


def lock(job: Job, q: int, op: Op) -> Steps:
    """A lock word changes in one step; that of a slot that is being recovered is closed."""
    to, shared = job.slots[op.target], op.kind == "lock_shared"

    def free() -> bool:
        if not job.rules.mine and (to.owner == q or q in to.holders):
            return False
        return to.grants(q, shared) and (not to.hold or op.target == q)

    while near(job, q, op.target):
        yield from wait(job, q, lambda: free() or not near(job, q, op.target))
        if near(job, q, op.target):
            take(to, q, shared)
            return
    yield from ask(job, q, numbered(job, q, op.kind, op.target))


def numbered(job: Job, q: int, kind: str, t: int) -> Message:
    sent = job.processes[q].sent
    sent[t] += 1
    return Message(kind, q, t, number=sent[t])


def unlock(job: Job, q: int, t: int) -> Steps:
    to, rules, event = job.slots[t], job.rules, job.processes[q].event + 1
    if rules.unlock_after:
        yield from flush(job, q, t)
    job.did("arrive", q, event, "unlock")
    yield None
    yield from wait(job, q, lambda: not to.hold or t == q or not near(job, q, t))
    if near(job, q, t):
        release(to, q)
    elif rules.unlock_acknowledged:
        yield from ask(job, q, numbered(job, q, "unlock", t))
    else:
        post(job, q, numbered(job, q, "unlock", t))
    yield from flush(job, q, t)


def collective(job: Job, q: int, op: Op) -> Learning:
    """The last to arrive at a node tells all others of everybody there."""
    me, own, node = job.slots[q], job.processes[q], job.nodes[job.home[q]]
    goal, event, tokens = own.round, own.event + 1, []
    for t in range(job.n):
        yield from flush(job, q, t)
    node.given[q][goal % 2] = operand(op, own.state)
    yield None
    job.did("arrive", q, event, op.kind)
    node.arrived[q] = goal
    yield None
    here = job.here(job.home[q])
    if all(node.arrived[o] >= goal for o in here):
        tokens = tell(job, q, here)
    yield from wait(job, q, lambda: all(a >= goal for a in node.arrived))
    learned = total([given[goal % 2] for given in node.given])
    if job.rules.set_acknowledged:
        yield from wait(job, q, lambda: not any(token in own.requests for token in tokens))
    if op.kind == "safepoint":
        own.staged = goal
        yield from wait(job, q, lambda: job.checkpoint.processes[q].round >= goal
                        or all(p.staged >= goal for p in job.processes))
        if job.checkpoint.processes[q].round < goal:
            commit(job, op)
        return None
    job.did("do", q, event, op.kind)
    if op.kind == "fence":
        return None
    me.results[event] = learned, None
    return learned


def commit(job: Job, op: Op) -> None:
    """Everybody has arrived at the safepoint and nobody has left: one step in the model."""
    for q in range(job.n):
        job.did("do", q, job.processes[q].event + 1, op.kind)
    job.checkpoint = job.snapshot()
    job.outcomes.append("checkpoint")
    for me, own, saved in zip(job.slots, job.processes, job.checkpoint.processes, strict=True):
        saved.event, saved.state = saved.event + 1, finish(op, own.state, None)
        me.horizon, me.results, me.whole, me.moved = saved.event, {}, True, False
        me.demand = None
        own.log = []
