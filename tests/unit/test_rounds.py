"""What a process does in a round of repair, without a job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.fabric.base import RoundChanged
from ftrma.native import job
from ftrma.native.constants import CHECKSUM, SLOT
from ftrma.protocol import causal
from ftrma.protocol.rounds import take_answers


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
