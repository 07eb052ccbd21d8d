"""The shipped protocol, in jobs whose processes take turns by a number.

Law: whatever befalls a job, it ends with the results of a run without failures, or, beyond what its
checksum ranks make up for, says honestly that it cannot go on. It never hangs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fabriclaws
import pytest
from fabriclaws import LAWS, SLOTS, Law
from tiers import tiers
from tree import TESTS

from ftrma.native import job
from ftrma.native.constants import FAILPOINTS, PlanKind
from ftrma.protocol import plan

from . import planted
from .draw import Tally, draw, run, shorten
from .process import SimulatedProcess, SimulatedView
from .scenario import Fault, Scenario
from .world import World

LIMIT_S = 100


def fails(scenario: Scenario) -> bool:
    return bool(run(scenario).wrong)


# Each run has some 11,000 accesses to shared words before which others may come, in 3,500 turns,
# and takes 70 ms. A plain run of the tests has 10^6 accesses, a full one 10^7, a nightly one 10^8.
# Two of five jobs run over several nodes.
NIGHTLY = [(1_000_000 + 100_000 * i, 1900) for i in range(5)]


@pytest.mark.parametrize(("first", "count"), tiers(
    [(0, 60), (100_000, 985), *NIGHTLY], plain=["0-60"], full=["100000-985"]))
def test_jobs_that_a_number_draws(first: int, count: int) -> None:
    tally = Tally()
    for seed in range(first, first + count):
        outcome = run(draw(seed))
        tally.add(outcome)
        if outcome.wrong:
            shortened = shorten(draw(seed), fails)
            pytest.fail(f"seed {seed}: {outcome.wrong[0]}\nshortened: {shortened}\n"
                        f"to see it again: cd tests && python -m sim {seed}")
    print(tally)
    assert tally.ends[0] > 0.7 * count
    assert min(tally.recoveries[kind] for kind in ("causal", "rollback", "relaunch")) > count / 50


# The simulator has no data plane, so processes never come by the places in that code.
PLACES = [name for name in FAILPOINTS if name not in (
    "get", "atomic", "flush", "fence", "lock-held", "call", "time", "replay", "demand")]


@pytest.mark.parametrize(("place", "after"), [
    pytest.param(place, after, marks=() if after == 1 else
                 pytest.mark.full if i % 3 == 0 else pytest.mark.nightly)
    for i, place in enumerate(PLACES) for after in (1, 4)])
def test_a_death_at_each_place(place: str, after: int) -> None:
    """Law: of whoever comes by, at the first visit or a later one, under both policies, with one
    checksum rank a group or two; alone, and behind a slot's death."""
    deaths = Tally()
    for role in ("slot", "checksum", "spare"):
        for case, policy in enumerate(("auto", "auto", "rollback")):
            before = (Fault("place", 25, place="put"),) * (case > 0)
            faults = *before, Fault("place", after, place=place, role=role)
            scenario = Scenario(100 * after + case, strength=1 + (after > 1), spares=3,
                                policy=policy, faults=faults)
            outcome = run(scenario)
            assert not outcome.wrong, (scenario, outcome.wrong)
            deaths.add(outcome)
    print(deaths)
    assert after > 1 or any(name.endswith(place) for name in deaths.deaths), deaths


def test_a_run_is_repeated_exactly() -> None:
    """Law: seed and sources give a run, turn by turn, in another process, too."""
    seeds = range(40, 45)
    mine = [(o.digest, o.turns, o.status, o.told) for o in map(run, map(draw, seeds))]
    script = (f"from sim.draw import draw, run\nfound = map(run, map(draw, {seeds}))\n"
              "print([(o.digest, o.turns, o.status, o.told) for o in found])")
    for hashes in ("1", "2"):
        theirs = subprocess.run(
            [sys.executable, "-c", script], cwd=TESTS, text=True, capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": hashes}, timeout=LIMIT_S)
        assert theirs.stdout.strip() == str(mine), theirs.stderr


@pytest.mark.full
def test_a_death_beside_the_end_of_a_job_over_nodes() -> None:
    """Law: if one node ends the job while another one notices a death, the end counts: who has
    begun a round of repair waits there for nobody, and no round comes behind the end."""
    for seed in (*range(30), 700_057):
        outcome = run(draw(seed, "ends of nodes"))
        assert not outcome.wrong, (seed, outcome)


def test_members_are_the_same_for_all_beside_a_death_of_a_checksum_rank() -> None:
    """Law: no spare takes a checksum rank's seat behind a claim of a framework that is told of
    deaths: for some it would be a member, and the root would wait for it for ever."""
    for seed in range(20):
        outcome = run(draw(seed, "told seats"))
        assert not outcome.wrong and outcome.status == 0, (seed, outcome)


@pytest.mark.full
def test_a_slot_dies_while_a_spare_computes_a_parity_from_it() -> None:
    """Law: blocks that the spare finds damaged then are mended in the repair. Before all have met
    there, members are at versions of their own, and none matches its checksums."""
    for seed in (500_324, *range(12)):
        outcome = run(Scenario(seed, group_size=4, strength=2, spares=5, steps=12, late=True,
                               safepoints=3, ulfm=False, chained=True, faults=(
                                   Fault("kill", 772, 54, role="checksum"),
                                   Fault("kill", 10, 17, role="slot"))))
        assert not outcome.wrong, (seed, outcome)


def test_a_parity_that_was_half_computed_before_the_first_checkpoint_begins_anew() -> None:
    """Law: a spare that is called to a repair while it computes a parity, before any version is
    committed, does not keep what it has of the members' stages by then."""
    for seed in (600_164, *range(12)):
        outcome = run(Scenario(seed, group_size=4, strength=2, spares=5, steps=8, chained=True,
                               faults=(Fault("kill", 356, 48, role="checksum"),
                                       Fault("kill", 3, 12, role="slot"))))
        assert not outcome.wrong, (seed, outcome)


def test_a_target_that_moves_on_while_a_slot_waits_there() -> None:
    """Law: a slot that waits at a target that is moved on meanwhile goes on to the new one. It does
    not take the slots that are there already for ones that have come to the old one."""
    for seed in (32, 103, 106, *range(4)):
        outcome = run(Scenario(seed, spares=0, group_size=4, late=True, safepoints=3,
                               policy="rollback", interval=1e-4))
        assert not outcome.wrong and outcome.status == 0, (seed, outcome)


@pytest.mark.full
def test_a_failing_run_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: of many faults and steps those are left that the mistake needs."""
    monkeypatch.setattr(plan, "plan_seating", lambda now, whole=plan.plan_seating: (
        plan.Plan(PlanKind.REFUSED, tuple(now.slot_proc), tuple(now.checksum_proc))
        if now.committed > 1 and now.lost_slots else whole(now)))
    monkeypatch.setattr(sys.modules["ftrma.protocol.plan"], "plan_seating", plan.plan_seating)
    long = Scenario(1, spares=4, steps=8, faults=(
        Fault("freeze", 20, ms=1), Fault("kill", 500, 0), Fault("stumble", 1),
        Fault("kill", 90, 2)))
    assert fails(long)
    short = shorten(long, fails)
    assert fails(short) and len(short.faults) == 1 and short.steps < 8


def test_a_death_amid_joining() -> None:
    """Law: who dies between giving its number and being counted among the living is missed."""
    for seed in range(36):
        outcome = run(Scenario(seed, steps=1, faults=(Fault("kill", 1 + seed % 9, seed),)))
        assert not outcome.wrong and outcome.status == 0, (seed, outcome)


# ---- planted mistakes ------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize("mistake", planted.PLANTS, ids=lambda mistake: mistake.name)
def test_planted_mistakes_apply(mistake: planted.Plant) -> None:
    """Law: the text that a mistake replaces is in its file once, and names are no others'."""
    assert (planted.ROOT / mistake.path).read_text().count(mistake.before) == 1
    assert mistake.before != mistake.after
    assert [mistake.name for each in planted.PLANTS if each.name == mistake.name] == [mistake.name]


@pytest.mark.parametrize("mistake", tiers(
    [pytest.param(each, id=each.name) for each in planted.PLANTS if not each.missed],
    full=["one spare for two roles"]))
def test_planted_mistakes_are_found(mistake: planted.Plant, tmp_path: Path) -> None:
    """Law: among the drawn runs one fails, of so many as some minutes are enough for."""
    assert planted.hunt(mistake, tmp_path), "no run has failed"


# ---- the simulated job is one, as far as the laws of a view say ------------------------------


class LawWorld(World):
    """A job whose processes do what a law says."""

    def __init__(self, law: Law) -> None:
        super().__init__(Scenario(1, slots=SLOTS, group_size=SLOTS, spares=1))
        self.law, self.seen = law, dict[int, Any]()

    def obey(self, process: SimulatedProcess) -> None:
        mine = process.view = SimulatedView(self, self.directory, self.launch.ctl, process.proc)
        while not all(p.state == job.ProcessState.ALIVE for p in self.launch.procs()):
            self.time.sleep(0.001)
        job.watch()
        if process.proc < SLOTS or self.law.everyone:
            saw = self.law.body(mine, lambda: self.die("by the law"))
            if process.proc < SLOTS:
                self.seen[process.proc] = saw
        if set(self.seen) == set(range(SLOTS)) - set(self.law.deaths):
            self.end(0)
        self.wait_for_end()

    def judge(self) -> None:
        """The law does."""


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_laws(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: that of `fabriclaws`, which real jobs keep, too."""
    world = LawWorld(law)
    monkeypatch.setattr(SimulatedProcess, "run", lambda process: world.obey(process))
    monkeypatch.setattr(SimulatedProcess, "interrupted", lambda process: 1)
    monkeypatch.setattr(fabriclaws, "time", world.time)
    outcome = world.run()
    if law.name == "an_abort_has_its_status":
        assert outcome.status == fabriclaws.STATUS
        return
    assert not outcome.wrong
    law.holds(world.seen)
