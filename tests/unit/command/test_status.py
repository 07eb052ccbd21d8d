"""The text of ``ftrma status``: times for people, tables, many slots, jobs in all states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ftrma.command import status
from ftrma.launch.effectivetime import EffectiveTime
from ftrma.launch.jobstatus import JobStatus, SlotStatus


def slot(number: int, **more: Any) -> SlotStatus:
    return replace(SlotStatus(number, number // 8, 100 + number, 0, "computes", "", None, 50,
                              1 << 20, 2 << 20), **more)


def job(slots: int = 4, **more: Any) -> JobStatus:
    """A job that is well."""
    found = JobStatus(
        job="ftrma-1000-00000001", program=["app.py", "7"], supervisor=1, state="running",
        began=1.0, seconds=100.0, slots=slots, checksums=2, spares=1, groups=2, strength=1,
        spares_left=1, checksums_given_up=0, spares_given_up=0, degraded=[], worst_lack=0,
        version=3, checkpoint_age_s=2.0, spilled=0, spill_age_s=None,
        protected_bytes=1 << 20, step=50, steps_per_s=10.0, checkpoints={}, deaths={},
        recoveries={}, launches=1, log_budget_bytes=64 << 20,
        effective=EffectiveTime(100.0, 10.0), loss_s=2.0, repair_s=None, stalls=0, hangs="",
        ends="", each_slot=[slot(s) for s in range(slots)])
    return replace(found, **more)


@pytest.mark.parametrize(("seconds", "said"), [
    (0.0, "0 ms"), (0.0123, "12.3 ms"), (0.99951, "1.0 s"), (59.94, "59.9 s"), (59.96, "1 min"),
    (61.2, "1 min 1 s"), (3599.4, "59 min 59 s"), (3600, "1 h"), (3661, "1 h 1 min"),
    (86399, "23 h 59 min"), (86400, "1 d"), (90000, "1 d 1 h"), (864000, "10 d")])
def test_times(seconds: float, said: str) -> None:
    """Law: two units at most, and none that is zero behind another one."""
    assert status.lasting(seconds) == said


@pytest.mark.parametrize(("size_bytes", "said"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (6.2 * 2**20, "6.2 MiB"), (2**38, "256.0 GiB"),
    (2**62, "4096.0 PiB")])
def test_sizes(size_bytes: float, said: str) -> None:
    assert status.size(size_bytes) == said


def test_a_table_of_jobs() -> None:
    """Law: several jobs are a line each; a job that is degraded says so there."""
    lines = status.text([job(), job(degraded=[1], worst_lack=1, steps_per_s=None)], full=False)
    assert len(lines) == 4 and lines[0].split()[:2] == ["job", "state"]
    assert "running, degraded" in lines[2] and "90.0 %" in lines[1]


@pytest.mark.parametrize(("more", "said"), [
    ({}, "whole: each group survives 1 loss"),
    ({"degraded": [0, 1], "worst_lack": 1}, "degraded: groups 0, 1; 0 more losses would be"),
    ({"checksums_given_up": 2, "spares_given_up": 1},
     "degraded, 2 checksum ranks and 1 spare given up: each group survives 1 loss"),
    ({"version": 0, "checkpoint_age_s": None}, "none yet: a rollback goes to the start"),
    ({"spilled": 2, "spill_age_s": 9.0}, "version 3, 2.0 s ago, 1.0 MiB; in files: version 2, 9.0"),
    ({"deaths": {"slot": 2}, "recoveries": {"causal": 2}}, "2 slots died; recoveries: 2 causal"),
    ({"repair_s": 0.25}, "cost at most 2.0 s of work, which is done again, and a repair of 250 ms"),
    ({"each_slot": []}, "they are on other nodes"),
    ({"began": None}, "they, and times, are told where ftrma run is"),
    ({"state": "left behind"}, "'ftrma run --resume ftrma-1000-00000001' goes on with it"),
    ({"hangs": "stall of slot 2"}, "hangs       stall of slot 2"),
    ({"ends": "time limit in 9 s"}, "end         time limit in 9 s"),
    ({"program": ["a\nb\x1b[2J"]}, "a\\nb\\x1b[2J"),
])
def test_a_job_at_length(more: dict[str, Any], said: str) -> None:
    """Law: what is unlike a job that is well is said; control characters of others are escaped."""
    lines = "\n".join(status.text([job(**more)], full=True))
    assert said in lines, lines


def test_of_many_slots_those_that_stand_out_are_shown() -> None:
    """Law: the table is short, and begins with the slots that are behind."""
    each = [slot(s) for s in range(128)]
    each[77] = slot(77, step=3, state="waits", waits_in="a fence", awaited=5)
    lines = status.slots(job(128, each_slot=each))
    assert len(lines) == 4 and lines[-1].split()[0] == "77"
    assert "waits in a fence, for slot 5" in lines[-1] and "127 computes" in lines[1]
    same = status.slots(job(128))
    assert same == ["", "  slots: 128 computes"]


def test_the_rate_of_a_watch() -> None:
    """Law: it is that between two looks; after steps that were thrown away there is none of it."""
    before, after = job(), job(seconds=102.0, step=80)
    assert status.with_rate(after, [before]).steps_per_s == 15.0
    assert status.with_rate(replace(after, step=10), [before]).steps_per_s == 10.0
    assert status.with_rate(after, []).steps_per_s == 10.0


def test_no_job() -> None:
    assert status.text([], full=False) == ["no job of yours runs on this machine"]
    assert status.text([], full=True) == ["the job has ended"]
