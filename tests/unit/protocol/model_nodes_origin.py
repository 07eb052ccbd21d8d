"""A slot's side of requests: sending, waiting for replies, sending again what has none.

What waits for an acknowledgement is in the put log (puts, *pending* until clock and seq come back)
or in `requests`.  A slot looks at its replies, and at what has died and moved, only where it waits.

Invariant: whatever is not acknowledged is sent again, in the order of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from unit.protocol.model_nodes_job import Job, Learning, Steps
from unit.protocol.model_nodes_words import Connection, Message, Record, Reply
from unit.protocol.model_programs import Op, Value


def send(job: Job, q: int, message: Message) -> None:
    own, y = job.processes[q], message.node if message.target < 0 else job.home[message.target]
    if y not in own.ways:
        own.ways[y] = Connection(q, y)
        job.nodes[y].ways.append(own.ways[y])
    way = own.ways[y]
    if way.agent:
        way.sending.append(replace(message, incarnation=job.incarnations[q], epoch=own.epoch,
                                   way=way))


def ask(job: Job, q: int, message: Message) -> Learning:
    """Send a request and wait for what it tells."""
    token = post(job, q, message)
    replies = job.processes[q].replies
    yield from wait(job, q, lambda: token in replies)
    return replies.pop(token)


def post(job: Job, q: int, message: Message) -> int:
    message.token = job.token()
    job.processes[q].requests[message.token] = message
    send(job, q, message)
    return message.token


def put(job: Job, q: int, op: Op, at: int, value: Value, event: int) -> None:
    own = job.processes[q]
    record = Record(q, op.target, at, value, event, own.sent[op.target])
    own.log.append(record)
    send(job, q, put_message(record))


def put_message(record: Record) -> Message:
    return Message("put", record.origin, record.target, number=record.number, at=record.at,
                   value=record.value, event=record.event)


def flush(job: Job, q: int, target: int) -> Steps:
    own = job.processes[q]
    while any(r.pending and r.target == target for r in own.log) and job.rules.flush_waits:
        yield from ask(job, q, Message("flush", q, target))


def wait(job: Job, q: int, condition: Callable[[], bool]) -> Steps:
    own = job.processes[q]
    while not condition():
        yield lambda: condition() or bool(own.inbox) or due(job, q)
        if condition():
            return
        if due(job, q):
            send_again(job, q)
        else:
            learn(job, q, own.inbox.popleft())


def live(job: Job, q: int) -> set[int]:
    """Targets that have refused something and are live again."""
    return {t for t in job.processes[q].refused
            if not job.slots[t].hold and job.rules.resend_live}


def due(job: Job, q: int) -> bool:
    own = job.processes[q]
    return bool(own.moves != len(job.moves) or live(job, q)
                or any(not way.agent for way in own.ways.values()))


def send_again(job: Job, q: int) -> None:
    own, rules = job.processes[q], job.rules
    nodes = {y for y, way in own.ways.items() if not way.agent}
    for y in nodes:
        del own.ways[y]
    targets = live(job, q)
    own.refused -= targets
    if own.moves != len(job.moves):
        if rules.resend_moved:
            targets |= set(job.moves[own.moves :])
        if rules.set_again:
            tell(job, q, [q])
    own.moves = len(job.moves)
    if not rules.resend_agent:
        nodes = set()
    for record in own.log:
        if record.pending and (record.target in targets or job.home[record.target] in nodes):
            send(job, q, put_message(record))
    for message in own.requests.values():
        y = message.node if message.target < 0 else job.home[message.target]
        if message.target in targets or y in nodes:
            send(job, q, message)


def tell(job: Job, q: int, slots: list[int]) -> list[int]:
    """Tell all other nodes the words of some slots as they are on this one; returns tokens."""
    own, y = job.nodes[job.home[q]], job.home[q]
    words = {o: (goal, own.given[o][goal % 2], own.given[o][1 - goal % 2])
             for o in slots for goal in [own.arrived[o]]}
    return [post(job, q, Message("set", q, node=z, words=words))
            for z in range(job.m) if z != y]


def learn(job: Job, q: int, reply: Reply) -> None:
    """Take in a reply."""
    own = job.processes[q]
    if reply.epoch != own.epoch and job.rules.replies_of_epoch:
        return
    if reply.kind == "refused":
        if not reply.token or reply.token in own.requests:
            own.refused.add(reply.target)
        return
    for number, clock, seq in reply.acknowledged:
        for record in own.log:
            if record.pending and (record.target, record.number) == (reply.target, number):
                record.clock, record.seq = clock, seq
    if own.requests.pop(reply.token, None):
        own.replies[reply.token] = reply.learned
        if reply.record:
            own.log.append(reply.record)
