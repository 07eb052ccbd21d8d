"""A slot that takes much longer for its steps than the others is found, though all wait for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.launch import pace
from ftrma.launch.pace import Pace, PaceWatch, slow_slots, summary


@pytest.mark.parametrize(("own", "steps", "found"), [
    ([1.0, 1.1, 3.0, 0.9], 100, {2: 3.0}), ([1.0, 1.1, 1.9, 0.9], 100, {}),
    ([1.0, 3.0, 3.0, 1.0], 100, {1: 3.0, 2: 3.0}),
    ([0.1, 0.1, 0.3, 0.1], 100, {}),  # too short to be judged
    ([1.0, 1.0, 3.0, 1.0], 19, {}), ([1.0, 3.0], 50, {1: 3.0}), ([3.0], 50, {}), ([], 0, {})])
def test_who_is_slow(own: list[float], steps: int, found: dict[int, float]) -> None:
    """Law: twice the median of the others and more, over some steps and some time."""
    paces = [Pace(steps, own_s) for own_s in own]
    assert slow_slots(paces) == pytest.approx(found)
    assert [entry["slot"] for entry in summary(paces)["slow"]] == [*found]


class Job:
    """A control file as far as `PaceWatch` reads it, of two slots."""

    def __init__(self) -> None:
        self.start_ns = self.attempt = 1
        self.alarm = self.repaired = self.roles_seq = 0
        self.roles = [SimpleNamespace(slot_proc=[0, 1])]
        self.proc = [SimpleNamespace(pid=pid, step=0, waited_ns=0, finished=0) for pid in (8, 9)]
        self.slots = [SimpleNamespace(replaying=0) for _ in range(2)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_time_without_waiting_counts(clock: SimpleNamespace) -> None:
    """Law: steps, time and waits between two looks are a slot's; other processes, attempts,
    repairs and replays are left out, and so is the wait at the program's end."""
    ctl: Any = Job()
    paces = [Pace(), Pace()]
    watch = PaceWatch(ctl, paces)

    def go(steps: int, waited_s: float, seconds: float = 2.0) -> None:
        clock.now += seconds
        ctl.proc[0].step += steps
        ctl.proc[0].waited_ns += int(waited_s * 1e9)
        watch.look()

    go(5, 1.0)  # nothing to compare with yet
    go(4, 0.5)
    assert paces == [Pace(4, 1.5, 0.5), Pace(0, 2.0, 0.0)]
    go(3, 0.1, seconds=0.5)  # too soon
    assert paces[0] == Pace(4, 1.5, 0.5)
    go(0, 0.0, seconds=0.5)
    assert paces[0] == Pace(7, 2.4, 0.6)
    for change in ({"pid": 7}, {"finished": 1}):
        vars(ctl.proc[0]).update(change)
        go(9, 0.0)
        assert paces[0].steps == 7
    vars(ctl.proc[0]).update(finished=0)
    go(9, 0.0)
    ctl.alarm = 1
    go(9, 0.0)
    ctl.repaired = 1
    go(9, 0.0)
    assert paces[0].steps == 7
    clock.now += 0.1
    ctl.proc[0].step += 2
    watch.look(at_once=True)
    assert paces[0].steps == 9
