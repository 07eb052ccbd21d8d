"""The plan in the control file: whole at every instant, and the words with which a job asks for a
relaunch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ftrma.fabric import plans
from ftrma.fabric.plans import PublishedPlan, ask_for_relaunch, in_force, publish, why_relaunch
from ftrma.native import job, loading
from ftrma.native.constants import REASON_BYTES, PlanKind

SLOTS = 5
OLD = PublishedPlan(PlanKind.ROLLBACK, 3, 7, "slot 1 has called MPI_Send " * 40, (1,), ())
NEW = PublishedPlan(PlanKind.CAUSAL, 4, 8, "", (0, 4), (4,))
NEWER = PublishedPlan(PlanKind.CATASTROPHIC, 5, 9, "group 0 lost slot 2 and slot 3", (2, 3), ())

loading.load()


class Killed(BaseException):
    """Ends what is done in the middle, as a SIGKILL would: memory stays as it is."""


@pytest.fixture
def ctl(tmp_path: Path) -> Any:
    return job.make_control(tmp_path / "control", SLOTS + 2, SLOTS, 1, 1, SLOTS, 16)


def killed_before_line(number: int, work: Callable[[], object]) -> bool:
    """Do `work` up to so many lines of `plans`; False if it has no more of them."""
    left = number

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != plans.__file__:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False


def test_what_is_published_is_read(ctl: Any) -> None:
    """Law: there is none at first; then it is the newest, with all that it says."""
    assert in_force(ctl) == PublishedPlan()
    for plan in (OLD, NEW, NEWER, OLD):
        publish(ctl, plan)
        assert in_force(ctl) == plan


def test_who_is_killed_publishing_leaves_a_whole_plan(ctl: Any) -> None:
    """Law: wherever the leader dies, the old plan or the new one is in force, never a mixture; and
    the next leader's comes through."""
    seen = set()
    for before, after in ((OLD, NEW), (NEW, NEWER), (NEWER, OLD)):
        line = 0
        while True:
            publish(ctl, before)
            killed = killed_before_line(line, lambda plan=after: publish(ctl, plan))
            found = in_force(ctl)
            assert found in (before, after), line
            seen.add(found == after)
            publish(ctl, OLD)
            assert in_force(ctl) == OLD
            if not killed:
                break
            line += 1
        assert line > 10, "nobody was killed in the middle"
    assert seen == {False, True}


@pytest.mark.parametrize("at", [1, 2])
def test_who_reads_slowly_gets_a_whole_plan(
    ctl: Any, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a reader (the supervisor takes no part in repairs) that is overtaken reads again."""
    publish(ctl, OLD)
    calls, read_bytes = 0, job.read_bytes

    def overtaken(*place: Any) -> bytes:
        nonlocal calls
        calls += 1
        if calls == at:
            publish(ctl, NEW)
            publish(ctl, NEWER)
        return read_bytes(*place)

    monkeypatch.setattr(job, "read_bytes", overtaken)
    assert in_force(ctl) == NEWER
    assert calls == 4


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("it\0said \ud800 \u00e9", "it\0said \\ud800 \u00e9"),
        ("x" * REASON_BYTES, "x" * REASON_BYTES),
        ("x" * (REASON_BYTES + 1), "x" * (REASON_BYTES - 3) + "..."),
        ("\u00e9" * REASON_BYTES, "\u00e9" * ((REASON_BYTES - 3) // 2) + "..."),
    ],
    ids=["odd characters", "fits", "too long", "cut in a character"],
)
def test_reasons_of_all_kinds(ctl: Any, reason: str, kept: str) -> None:
    """Law: what a program has said can be quoted; what is too long says so."""
    publish(ctl, PublishedPlan(PlanKind.RELAUNCH, 1, 0, reason))
    assert in_force(ctl).reason == kept


def alive(ctl: Any, *procs: int) -> None:
    for p in range(SLOTS):
        ctl.proc[p].state = job.ProcessState.ALIVE if p in procs else job.ProcessState.DEAD


def test_the_first_who_asks_is_heard(ctl: Any) -> None:
    """Law: one reason is told whoever else asks; nobody asks where the job is ending already."""
    alive(ctl, 1, 2)
    ask_for_relaunch(ctl, 1, "a thread goes on")
    ask_for_relaunch(ctl, 2, "another one")
    assert (ctl.request, why_relaunch(ctl)) == (job.Request.RELAUNCH, "a thread goes on")
    alive(ctl, 2)
    ask_for_relaunch(ctl, 2, "another one")
    assert why_relaunch(ctl) == "a thread goes on"


def test_nobody_asks_a_job_that_is_ending(ctl: Any) -> None:
    ctl.request = job.Request.ABORT
    ask_for_relaunch(ctl, 1, "a thread goes on")
    assert ctl.request == job.Request.ABORT


def test_who_is_killed_asking_can_be_followed(ctl: Any) -> None:
    """Law: until the request stands nothing is asked, and the next one may; then it has its
    words."""
    line, asked = 0, False
    while not asked:
        ctl.request, ctl.asker = job.Request.NOTHING, 0
        alive(ctl, 1, 2)
        asked = not killed_before_line(line, lambda: ask_for_relaunch(ctl, 1, "first"))
        alive(ctl, 2)
        if ctl.request == job.Request.NOTHING:
            ask_for_relaunch(ctl, 2, "second")
            assert why_relaunch(ctl) == "second"
        else:
            assert why_relaunch(ctl) == "first"
        assert ctl.request == job.Request.RELAUNCH
        line += 1
    assert line > 10


def test_the_reason_is_that_of_the_request(ctl: Any) -> None:
    """Law: a repair that goes on while somebody asks does not hide why; one that ends in a relaunch
    has its own reason; there is none where the launcher is gone."""
    alive(ctl, 1)
    publish(ctl, OLD)
    assert why_relaunch(ctl) == ""
    ask_for_relaunch(ctl, 1, "a thread goes on")
    publish(ctl, NEW)
    assert why_relaunch(ctl) == "a thread goes on"
    publish(ctl, PublishedPlan(PlanKind.RELAUNCH, 6, 7, "no spare is left"))
    assert why_relaunch(ctl) == "no spare is left"
