"""Steps of a process in a round of repair, without a job."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vaultgroup import Group

from ftrma.fabric.round_changed import RoundChanged
from ftrma.native import job
from ftrma.native.constants import CHECKSUM, SLOT, PlanKind
from ftrma.protocol import causal
from ftrma.protocol.repair import STEPS, Phase, outcome, run_steps
from ftrma.protocol.repair_round import RepairProgress, RepairRound
from ftrma.protocol.repair_steps import log_answers, take_role
from ftrma.vault.vault import BLOCK


def view_of(role: int, broken: int) -> Any:
    marks = [SimpleNamespace(broken=broken), SimpleNamespace(broken=0)]
    slots = [SimpleNamespace(marks=[]), SimpleNamespace(marks=marks)]
    return SimpleNamespace(
        role=lambda: (role, 1), raise_alarm=lambda number: job.raise_alarm(number),
        words=SimpleNamespace(slot=slots.__getitem__))


@pytest.mark.parametrize(("before", "after", "again"), [
    (0, 0, False), (0, causal.FULL, True), (causal.FULL, causal.FULL, False),
    (causal.GETS, causal.GETS, False),
])
def test_an_answer_that_found_no_room_begins_another_round(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int, again: bool
) -> None:
    """Law: since the leader may have planned a replay before it knew, another round begins."""
    view, alarms = view_of(SLOT, before), []

    def answers(number: int) -> job.Wait:
        view.words.slot(1).marks[0].broken = after
        return job.Wait.OK

    monkeypatch.setattr(job, "far_answers", answers)
    monkeypatch.setattr(job, "raise_alarm", alarms.append)
    if again:
        with pytest.raises(RoundChanged):
            log_answers(RepairRound(view, 7, None))
    else:
        log_answers(RepairRound(view, 7, None))
    assert alarms == [7] * again
    log_answers(RepairRound(view, 8, None))  # it is known by now
    assert alarms == [7] * again


def test_who_holds_no_slot_has_no_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "far_answers", lambda number: job.Wait.OK)
    log_answers(RepairRound(view_of(CHECKSUM, 0), 1, None))


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("kind", [PlanKind.REENTRY, PlanKind.ROLLBACK])
@pytest.mark.parametrize("used", [0, 40])
@pytest.mark.parametrize("committed", [0, 3])
def test_who_begins_anew_has_an_empty_vault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready: bool, kind: PlanKind, used: int,
    committed: int
) -> None:
    """Law: where a framework enters again without a checkpoint, nothing stays of what a vault
    held, or of what was computed by half before that was known; memory taken ahead does stay."""
    monkeypatch.setattr(job, "arm", lambda: None)
    group = Group(tmp_path, [used * BLOCK or 1, 1], seed=1)
    try:
        vault, me = group.members[0], SimpleNamespace(ready=ready)
        if used:
            group.checkpoint()
        before = vault.c
        view = SimpleNamespace(
            role=lambda: (SLOT, 0), words=SimpleNamespace(me=me, committed=committed), proc=0,
            plan=SimpleNamespace(kind=kind), rename_vault=lambda: None,
            reach_holders=lambda: None, share_vault=lambda: None, vault_path=group.view.vault_path)
        now = RepairRound(view, 1, vault)
        take_role(now)
        anew = kind == PlanKind.REENTRY and not committed
        renewed = anew and (ready or used > 0)
        assert now.vault is vault and (vault.c != before) == renewed
        assert me.ready == (ready and not renewed)
        assert vault.used == (0 if renewed else used and 1 + used)
        assert vault.extents.regions == {} or not renewed
        vault.release()
    finally:
        group.close()


def test_the_steps_of_a_round_are_in_the_order_of_its_phases(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: all meet once at the beginning of each phase, in order; dead holders of roles are
    allowed before the plan alone; who takes no part in a step meets the others nevertheless."""
    met: list[tuple[int, int, bool]] = []
    view: Any = SimpleNamespace(
        proc=0, role=lambda: (CHECKSUM, 0),
        meet=lambda number, phase, *, planned: met.append((number, int(phase), planned)))
    done: list[Phase] = []
    quiet = [step._replace(who=lambda now: False) for step in STEPS]
    quiet.append(STEPS[-1]._replace(who=lambda now: True, action=lambda now: done.append(now)))
    monkeypatch.setattr("ftrma.protocol.repair.STEPS", quiet)
    now = RepairRound(view, 5, None)
    run_steps(now)
    assert met == [(5, phase, phase >= Phase.SEATED) for phase in list(Phase)[1:]]
    assert [step.phase for step in STEPS] == sorted(step.phase for step in STEPS)
    assert done == [now] and list(now.met_s) == list(Phase)[1:]


@pytest.mark.parametrize("noticed_s", [0.5, 0.0])
def test_a_repair_takes_as_long_as_its_phases(noticed_s: float) -> None:
    """Law: also if a death is noticed at its end, such as that of a lost node's last process."""
    now_s = time.monotonic()
    view: Any = SimpleNamespace(
        proc=0, claimant="", plan=SimpleNamespace(calm=False),
        words=SimpleNamespace(committed=1, death_ns=job.now_ns() - int(1e9 * noticed_s)))
    now = RepairRound(view, 5, None, RepairProgress(went_back=True))
    now.met_s.update({Phase.GATHERED: now_s - 0.3, Phase.SEATED: now_s - 0.2,
                      Phase.RESTORED: now_s - 0.1})
    found = outcome(now)
    phases = found.phases
    assert found.seconds == pytest.approx(max(noticed_s, 0.3), abs=0.05)
    assert found.seconds == pytest.approx(phases.detect + phases.repair + phases.restore, abs=1e-3)
