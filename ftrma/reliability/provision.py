"""The search of ``ftrma plan``: the cheapest protection that keeps P_cf below a target.

Every group size, number of checksum ranks per group and awareness level is tried. P_cf is that of
the `scattered` model, the most careful one: it holds wherever groups lie, as long as their members
lie apart. Costs are estimated from one bandwidth:

* a checkpoint holds the program up while each slot stages its memory: memory / bandwidth;
* a checksum rank then reads its group's memory while the program computes; no checkpoint begins
  before that is over, so the interval is Daly's or that time, whichever is longer;
* a restart reads a group's memory once to rebuild the lost part.

The cheapest layout takes the least processor time: processes, times the run time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..machine.interval import daly_interval, expected_waste
from ..machine.topology import MAX_MEMBERS, MAX_PROCESSES, NO_LEVEL, NODES
from .machine import Machine
from .model import Groups, at_level

MOST_M = 8  # with so many, higher levels dominate P_cf; more only add cost
# Memory of a process in multiples of a slot's memory, as csrc allocates it: a slot has a copy and a
# staging area, a checksum rank a parity and a sum, a spare one such part.
SLOT_COPIES, CHECKSUM_PARTS, SPARE_PARTS = 2, 2, 1


@dataclass(frozen=True)
class Demand:
    """The needs of a job.

    Attributes:
        ranks: N, computing ranks.
        memory_bytes: memory to protect, per rank.
        target_per_day: highest P_cf per day that is allowed.
        mtbf_s: mean time between failures that hit the job.
        bandwidth_bytes_per_s: speed at which a process reads, compares and copies memory.
    """

    ranks: int
    memory_bytes: float
    target_per_day: float
    mtbf_s: float
    bandwidth_bytes_per_s: float


@dataclass(frozen=True)
class Offer:
    """One layout with its safety and its costs.

    Attributes:
        aware: name of the level up to which members of a group lie apart.
        spares: as many as run on one element of the lowest level, so that its loss is repaired.
        p_cf_per_day: P_cf by the `scattered` model.
        delta_s: time that a checkpoint holds the program up.
        interval_s: computing time between checkpoints.
        waste: expected share of the time lost to checkpoints, lost work and restarts.
        memory_bytes: additional memory, in all processes together.
        processor_time: additional processor time, as a share of what the unprotected job needs.
    """

    groups: Groups
    aware: str
    spares: int
    p_cf_per_day: float
    delta_s: float
    interval_s: float
    waste: float
    memory_bytes: float
    processor_time: float

    @property
    def processes(self) -> int:
        return self.groups.ranks + self.groups.checksums + self.spares

    def command(self, mtbf_s: float) -> str:
        """Return the command line that runs a program with this layout."""
        groups = self.groups
        # `ftrma run` sees nodes by itself and needs to be told what lies above them.
        topology = "" if self.aware in (NO_LEVEL, NODES) else "--topology FILE "
        return (
            f"ftrma run -n {groups.ranks} --group-size {groups.size} --checksums "
            f"{groups.checksums} --spares {self.spares} {topology}--aware {self.aware} --mtbf "
            f"{mtbf_s:.6g} app.py"
        )

    @property
    def too_large(self) -> str:
        """Say why the command line cannot be run as it is; empty if it can."""
        if self.processes <= MAX_PROCESSES:
            return ""
        return f"needs {self.processes} processes; this version serves at most {MAX_PROCESSES}"


def search(machine: Machine, demand: Demand) -> tuple[list[Offer], Offer | None]:
    """Return the layouts that reach the target, and the safest of those that do not.

    Returns:
        The cheapest layout for each pair of m and awareness level, cheapest first; and, if there
        are none, the layout with the lowest P_cf of all.

    Raises:
        ValueError: failures come so fast that no layout makes progress.
    """
    best: dict[tuple[int, str], Offer] = {}
    safest: Offer | None = None
    able = [offer for offer in offers(machine, demand) if offer.waste < 1]
    if not able:
        raise ValueError(
            f"--mtbf {demand.mtbf_s:g}: with a checkpoint of {demand.memory_bytes:g} bytes taking "
            f"{demand.memory_bytes / demand.bandwidth_bytes_per_s:.3g} s, the program never gets "
            "on; protect less memory per rank or use a better machine"
        )
    for offer in able:
        if offer.p_cf_per_day <= demand.target_per_day:
            key = (offer.groups.m, offer.aware)
            if key not in best or rank(offer) < rank(best[key]):
                best[key] = offer
        elif safest is None or offer.p_cf_per_day < safest.p_cf_per_day:
            safest = offer
    found = sorted(best.values(), key=rank)
    return found, None if found else safest


def rank(offer: Offer) -> tuple[float, float]:
    """Return the order of preference: cheaper layouts first, then safer ones."""
    return offer.processor_time, offer.p_cf_per_day


def offers(machine: Machine, demand: Demand) -> Iterator[Offer]:
    """Yield every layout that the machine has room for."""
    for groups in layouts(demand.ranks):
        # Levels at which members lie apart, from below; failures at the others are certainly
        # catastrophic.
        parts = [level.total_per_day() for level in machine.levels]
        for aware, name in enumerate(machine.strategies):
            if aware:
                level = machine.levels[aware - 1]
                # There must be one element more than members, or a lost member could not come back
                # apart from the others.
                if groups.members >= level.count:
                    break
                parts[aware - 1] = at_level(level, groups, "scattered")
            yield price(machine, demand, groups, name, min(1.0, sum(parts)))


def layouts(ranks: int) -> Iterator[Groups]:
    """Yield every division of the ranks into groups that the code allows, each once."""
    for m in range(1, MOST_M + 1):
        counts = {-(-ranks // size) for size in range(1, min(ranks, MAX_MEMBERS - m) + 1)}
        for count in sorted(counts):
            yield Groups(ranks, count, m)


def price(
    machine: Machine, demand: Demand, groups: Groups, aware: str, p_cf_per_day: float
) -> Offer:
    """Return the layout with its costs."""
    memory = demand.memory_bytes
    delta_s = memory / demand.bandwidth_bytes_per_s
    group_s = groups.size * delta_s
    interval_s = max(daly_interval(delta_s, demand.mtbf_s), group_s)
    waste = expected_waste(interval_s, delta_s, demand.mtbf_s, group_s)
    spares = -(-(groups.ranks + groups.checksums) // machine.levels[0].count)
    parts = SLOT_COPIES * groups.ranks + CHECKSUM_PARTS * groups.checksums + SPARE_PARTS * spares
    processes = groups.ranks + groups.checksums + spares
    slower = 1 / (1 - waste) if waste < 1 else math.inf
    return Offer(
        groups, aware, spares, p_cf_per_day, delta_s, interval_s, waste, parts * memory,
        processes / groups.ranks * slower - 1,
    )
