"""What a process does in a round of repair, without a job."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vaultgroup import Group

from ftrma.fabric.base import RoundChanged
from ftrma.native import job
from ftrma.native.constants import CHECKSUM, SLOT, PlanKind
from ftrma.protocol import causal
from ftrma.protocol.rounds import take_answers, take_role
from ftrma.vault.vault import BLOCK


def world_of(role: int, broken: int) -> Any:
    marks = [SimpleNamespace(broken=broken), SimpleNamespace(broken=0)]
    slots = [SimpleNamespace(marks=[]), SimpleNamespace(marks=marks)]
    return SimpleNamespace(role=lambda: (role, 1), ctl=SimpleNamespace(slots=slots))


@pytest.mark.parametrize(("before", "after", "again"), [
    (0, 0, False), (0, causal.FULL, True), (causal.FULL, causal.FULL, False),
    (causal.GETS, causal.GETS, False),
])
def test_an_answer_that_found_no_room_begins_another_round(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int, again: bool
) -> None:
    """Who leads has perhaps looked at this slot's logs already, and would have it replay."""
    world, alarms = world_of(SLOT, before), []

    def answers(number: int) -> job.Wait:
        world.ctl.slots[1].marks[0].broken = after
        return job.Wait.OK

    monkeypatch.setattr(job, "far_answers", answers)
    monkeypatch.setattr(job, "raise_alarm", alarms.append)
    if again:
        with pytest.raises(RoundChanged):
            take_answers(world, 7)
    else:
        take_answers(world, 7)
    assert alarms == [7] * again
    take_answers(world, 8)  # it is known by now
    assert alarms == [7] * again


def test_who_holds_no_slot_has_no_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "far_answers", lambda number: job.Wait.OK)
    take_answers(world_of(CHECKSUM, 0), 1)


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
        vault, words = group.members[0], {"ready": ready}
        if used:
            group.checkpoint()
        before = vault.c
        world = SimpleNamespace(
            role=lambda: (SLOT, 0), me=SimpleNamespace(ready=ready), proc=0, committed=committed,
            plan=SimpleNamespace(kind=kind), put=lambda name, value: words.update({name: value}),
            name_vault=lambda: None, place_vault=lambda: None, vault_path=group.world.vault_path)
        taken, _ = take_role(world, vault)
        anew = kind == PlanKind.REENTRY and not committed
        renewed = anew and (ready or used > 0)
        assert taken is vault and (vault.c != before) == renewed
        assert words["ready"] == (ready and not renewed)
        assert vault.used == (0 if renewed else used and 1 + used)
        assert vault.extents.regions == {} or not renewed
        vault.release()
    finally:
        group.close()
