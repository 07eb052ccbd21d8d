"""Slots exchange records of all sizes through the channels of ftrma.aic, small ones that run full.

Each record says its number and fills itself with it; each slot counts what it gets of each other.
No slot takes a record before a channel of its own was full or all of its records were sent, so that
the first slot that takes one has met a full channel.
"""

from __future__ import annotations

import sys

import numpy as np

from ftrma import MPI
from ftrma import framework as fw
from ftrma.frameworks.aic.kinds import Kind
from ftrma.frameworks.aic.rings import Rings

directory, records = sys.argv[1], int(sys.argv[2])
comm = MPI.COMM_WORLD
fw.claim("rings")
rings = Rings(comm, 1 << 14)
random = np.random.default_rng(comm.rank)
sent, got, refused = [0] * comm.size, [0] * comm.size, 0
seen: list[list[int]] = [[] for _ in range(comm.size)]  # kinds, in their order
made: list[list[int]] = [[] for _ in range(comm.size)]


def receive() -> None:
    while taken := rings.take():
        source, kind, data = taken
        number, *rest = np.frombuffer(data, "i8").tolist()
        assert number == got[source] and set(rest) <= {number}, (source, number, got)
        got[source] += 1
        seen[source].append(kind)
        rings.release()


while min(got) < records or min(sent) < records or rings.behind():
    rings.check()
    fw.kill_place("rings.turn")
    for to in range(comm.size):
        if sent[to] < records:
            kind = Kind.DATA if random.random() < 0.8 else Kind.REPORT
            size = 1 + int(random.integers(rings.limit_bytes // 8 if kind == Kind.DATA else 20))
            if rings.append(to, kind, np.full(size, sent[to])):
                made[to].append(kind)
                sent[to] += 1
            else:
                refused += 1
    if (refused or min(sent) == records) and random.random() < 0.7:
        receive()
    elif random.random() < 0.1:
        rings.wait(0.001)
rings.check()
theirs = comm.alltoall([[int(kind) for kind in kinds] for kinds in made])
assert theirs == seen, "records came in another order"
assert comm.size == 1 or comm.allreduce(refused), "no channel was ever full"
rings.free()
np.savez(f"{directory}/slot-{comm.rank}.npz", got=got)
