"""An agent: takes the requests that have arrived at its node one by one, and never waits inside.

For each origin and target it keeps the last number that has taken effect and the answer of the
last atomic; both lie in the target's file and outlive it.  Who waits for a lock, and clock and seq
of what it has not acknowledged, die with it.

Invariant: a request with a number takes effect when the number is stored, and once.
"""

from __future__ import annotations

from unit.protocol.model_nodes_job import Job, Steps
from unit.protocol.model_nodes_words import (
    Answer,
    Connection,
    Message,
    Node,
    Record,
    Reply,
    Slot,
    Undo,
    Wrong,
)
from unit.protocol.model_programs import combined


def serve(job: Job, y: int) -> Steps:
    """The agent of node y, from its start until it dies."""
    node = job.nodes[y]
    node.parked, node.unacknowledged, node.busy = [], {}, Node.STARTING
    node.agents += 1
    yield None
    yield from put_back(job, y)
    while True:
        node.busy = None
        yield lambda: any(way.arrived for way in node.ways) or any(
            free(job, y, message) for message in node.parked)
        message = choose(job, y)
        node.busy = message.target if message.kind != "set" else Node.SETTING
        yield None
        if not job.late(message):
            yield from handle(job, y, message)


def put_back(job: Job, y: int) -> Steps:
    """Take back what the agent before was inside of."""
    for t in job.here(y):
        to, undo = job.slots[t], job.slots[t].undo
        if undo and job.rules.undo and to.reached[undo.origin] < undo.number:
            for i in range(2):
                to.part[undo.at][i] = undo.old[i]
                yield None
        if job.rules.undo_cleared:
            to.undo = None
        to.serial = False


def free(job: Job, y: int, message: Message) -> bool:
    """Say whether a lock that was asked for can be had, or the request need not wait any longer."""
    to = job.slots[message.target]
    grants = to.grants(message.origin, message.kind == "lock_shared") and not to.hold
    return grants or job.late(message) or job.home[message.target] != y


def choose(job: Job, y: int) -> Message:
    node = job.nodes[y]
    parked = [message for message in node.parked if free(job, y, message)]
    ways = [way for way in node.ways if way.arrived]
    choices: list[Message | Connection] = [*parked, *ways]
    chosen = job.pick(choices)
    if isinstance(chosen, Message):
        node.parked.remove(chosen)
        return chosen
    return chosen.arrived.popleft()


def reply(message: Message, kind: str = "done", **fields: object) -> None:
    way = message.way
    assert way is not None
    if way.process and way.agent:
        way.answering.append(Reply(kind, message.target, message.token, message.epoch,
                                   **fields))  # type: ignore[arg-type]


def handle(job: Job, y: int, message: Message) -> Steps:
    node, rules = job.nodes[y], job.rules
    if message.kind == "set":
        for q, (goal, given, before) in message.words.items():
            if goal > node.arrived[q] or not rules.set_maximum:
                node.given[q][goal % 2] = given
                if rules.set_two:
                    node.given[q][1 - goal % 2] = before
                node.arrived[q] = goal
        reply(message)
        return
    to = job.slots[message.target]
    if job.home[message.target] != y or (to.hold and rules.hold):
        reply(message, "refused")
        return
    heap = node.unacknowledged.setdefault((message.origin, message.target), [])
    if message.number and repeated(job, to, message, heap):
        return
    if message.kind == "put":
        yield from put(job, to, message, heap)
    elif message.op is not None:
        yield from atomic(job, to, message)
    elif message.kind == "get":
        first = to.part[message.at][0]
        yield None
        reply(message, learned=(first, to.part[message.at][1]))
    elif message.kind == "flush":
        reply(message, acknowledged=list(heap))
        heap.clear()
    else:
        lock(job, node, to, message)


def repeated(job: Job, to: Slot, message: Message, heap: list[tuple[int, int, int]]) -> bool:
    """Say whether a request with a number is not the next; it is then answered here."""
    reached = to.reached[message.origin]
    if message.number > reached + 1 and job.rules.gaps:
        reply(message, "refused")
        return True
    if message.number > reached:
        return False
    if message.kind != "put" and message.op is None and job.rules.lock_numbers:
        reply(message)
        return True
    if message.kind == "put" and job.rules.numbers:
        to.seq += 1  # any moment between call and flush is as good as the first time
        heap.append((message.number, to.clock, to.seq))
        return True
    answer = to.answers.get(message.origin)
    if message.op is not None and job.rules.answers:
        if answer and answer.number == message.number:
            reply(message, learned=answer.learned, record=answer.record)
        return True
    return False


def put(job: Job, to: Slot, message: Message, heap: list[tuple[int, int, int]]) -> Steps:
    clock = to.clock
    yield None
    to.seq += 1
    seq = to.seq
    if not job.rules.applied_first:
        to.reached[message.origin] = max(message.number, to.reached[message.origin])
        heap.append((message.number, clock, seq))
        yield None
    for i in range(2):
        to.part[message.at][i] = message.value[i]
        yield None
    job.did("apply", message.origin, message.event, "put")
    to.reached[message.origin] = max(message.number, to.reached[message.origin])
    if job.rules.applied_first:
        heap.append((message.number, clock, seq))
    if job.pick([False, False, False, True]):
        reply(message, acknowledged=list(heap))
        heap.clear()


def atomic(job: Job, to: Slot, message: Message) -> Steps:
    """Note how to take it back, apply it, store the answer, then the number: now it is done."""
    op, q = message.op, message.origin
    assert op is not None
    to.serial = True
    clock, old = to.clock, to.value(message.at)
    to.seq += 1
    record = Record(q, message.target, message.at, combined(op, message.state, old),
                    message.event, message.number, clock, to.seq)
    to.undo = Undo(q, message.number, message.at, old)
    for i in range(2):
        yield None
        to.part[message.at][i] = record.value[i]
    yield None
    to.answers[q] = Answer(message.number, old, record)
    yield None
    to.reached[q] = message.number
    job.did("do", q, message.event, op.kind)
    yield None
    to.serial = False
    yield None
    reply(message, learned=old, record=record)


def lock(job: Job, node: Node, to: Slot, message: Message) -> None:
    q, shared = message.origin, message.kind == "lock_shared"
    if message.kind == "unlock":
        release(to, q)
    else:
        if not to.grants(q, shared):
            node.parked.append(message)
            return
        take(to, q, shared)
    to.reached[q] = max(message.number, to.reached[q])
    reply(message)


def take(to: Slot, q: int, shared: bool) -> None:
    if not to.grants(q, shared):
        raise Wrong(f"slot {q} takes a lock that {to.owner} and {to.holders} have")
    if shared:
        to.holders.add(q)
    else:
        to.owner = q


def release(to: Slot, q: int) -> None:
    """Unlock; done again it frees nobody else's."""
    to.owner = None if to.owner == q else to.owner
    to.holders.discard(q)
