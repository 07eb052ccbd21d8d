"""A slot's checkpoint on demand in the model over several nodes; see `unit.protocol.model_demand`.

What other nodes write is done by the agent, one request at a time, perhaps long after the event of
its origin is complete.  So the snapshot waits, with the number of accesses in hand, until the agent
is between two requests: then all up to that number is in memory, whatever its event.

Invariant: a record whose number and event the snapshot covers was in memory before the copy began,
and what the slot itself has sent is known to the agents.
"""

from __future__ import annotations

import math
from dataclasses import replace

from unit.protocol.model_nodes_job import Job, Steps
from unit.protocol.model_nodes_origin import flush, wait
from unit.protocol.model_nodes_words import Demand, Node, Record
from unit.protocol.model_programs import Op, finish


def snapshot(job: Job, q: int, op: Op) -> Steps:
    """Take a checkpoint of slot q within its event."""
    me, own, node, rules = job.slots[q], job.processes[q], job.nodes[job.home[q]], job.rules
    if rules.demand_flushes:
        for t in range(job.n):
            yield from flush(job, q, t)
    agents, seq = node.agents, me.seq
    yield None
    if rules.demand_looks:
        yield from wait(job, q, lambda: node.busy not in {q, Node.STARTING})
    events = [job.slots[p].horizon if job.home[p] == job.home[q] else math.inf
              for p in range(job.n)]
    process = replace(own, state=finish(op, own.state, None), event=own.event + 1,
                      sent=list(own.sent))
    part = []
    for at in range(len(me.part)):
        yield None
        first = me.part[at][0]
        yield None
        part.append((first, me.part[at][1]))
    if rules.demand_looks_again:
        yield from wait(job, q, lambda: node.busy not in {q, Node.STARTING})
    if node.agents != agents and rules.demand_whole:
        return
    me.demand = Demand(process, part, seq, events)
    job.did("do", q, process.event, op.kind)
    me.results = {e: result for e, result in me.results.items() if e > process.event}
    job.outcomes.append("demand")


def held(job: Job, record: Record) -> bool:
    """Say whether the target's checkpoint on demand holds an access for certain."""
    demand = job.slots[record.target].demand
    if demand is None:
        return False
    numbered = 0 <= record.seq <= demand.seq or not job.rules.demand_numbers
    return numbered and record.event <= demand.events[record.origin]
