"""Replays that start from a demand checkpoint, are cut short or given up, as the checker sees them.

`demanded` is one fixed run of `tracesim.Job`; each broken trace is that run with something changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tracebreak import Records, changed, dropped, index, report, told
from tracesim import Job

from ftrma.trace.records import REPLAY, Record, What


def demanded() -> Records:
    """Slot 1 checkpoints alone. Slot 0's put is under way then, slot 2's accumulate is over without
    having said so, and slot 3's comes between. Then slot 1 dies and is replayed from there."""
    job = Job(slots=4, seed=1)
    job.make_windows()
    job.checkpoint()
    job.write(What.Put, 0, 1, 256)
    job.write_slowly(0, 1, 512)
    job.write(What.Accumulate, 2, 1, 0)
    job.demand(1, behind=2, between=3)
    job.write(What.Put, 1, 2, 0)
    job.fence()
    job.write(What.Put, 0, 1, 264)
    job.recover(1)
    job.fence()
    job.end()
    return job.records


def applied_too(records: Records, made: Record) -> Records:
    """The access is applied before all others."""
    place = index(records, what=What.Apply)
    first = records[place]
    row = first._replace(
        end_ns=first.begin_ns, at=made.at, bytes=made.bytes, seq=made.seq, clock=made.clock,
        value0=made.slot, value1=made.event,
    )
    return [*records[:place], row, *records[place:]]


def test_a_replay_may_start_from_a_demand_checkpoint() -> None:
    """Law: what it does not hold for certain is applied again, by number and by event, and no
    more."""
    records = demanded()
    found = report(records)
    assert found.violation is None
    assert (found.recoveries, found.applied, found.replayed) == (1, 4, 2)
    assert [r.seq for r in records if r.what == What.Apply] == [2, 4, 3, 5]


def test_a_slot_without_windows_may_checkpoint_alone() -> None:
    """Law: one record tells of it; a process killed in it does it again, with the same number."""
    job = Job(slots=2)
    job.demand(1)
    job.state.event[1], job.state.clock[1], job.taken[1] = 0, 0, 0
    job.proc[1] = 7
    job.demand(1)
    job.all_call(What.Collective)
    job.recover(1)
    assert [r.window for r in job.records if r.what == What.Demand] == [-1, -1]
    assert report(job.records).violation is None


ALONE = r"recovery of slot 1 from version 1 and demand checkpoint 1 by process 4: "
DEMANDS: list[tuple[str, Callable[[Records], Records], str]] = [
    (
        "an access that is held is applied",
        lambda t: applied_too(t, t[index(t, what=What.Put, slot=0)]),
        ALONE + r"slot 0's access \(event 5, seq 1\) to slot 1, .* was applied, but the checkpoint "
        r"holds it already: its window is there up to seq 2, slot 0 up to event 5",
    ),
    (
        "an access that had no number is left out",
        lambda t: dropped(t, index(t, what=What.Apply, seq=4)),
        ALONE + r"slot 0's Put \(event 6, seq 4\) to slot 1, .* was not applied",
    ),
    (
        "an access that took its number later, though it was complete, is left out",
        lambda t: dropped(t, index(t, what=What.Apply, seq=3)),
        ALONE + r"slot 3's Accumulate \(event 5, seq 3\) to slot 1, .* was not applied",
    ),
    (
        "an access that was not known to be complete is left out",
        lambda t: dropped(t, index(t, what=What.Apply, seq=2)),
        ALONE + r"slot 2's Accumulate \(event 5, seq 2\) to slot 1, .* was not applied",
    ),
    (
        "a base that was never published",
        lambda t: [r for r in t if r.what != What.Demand],
        ALONE + r"that demand checkpoint had not been published when it began",
    ),
    (
        "a base of another number",
        lambda t: changed(t, index(t, what=What.Replay), at=2),
        r"recovery .* and demand checkpoint 2 by process 4: that demand checkpoint had not been "
        r"published when it began",
    ),
    (
        "a base that was published too late",
        lambda t: [r._replace(begin_ns=t[-1].end_ns, end_ns=t[-1].end_ns)
                   if r.what == What.Demand else r for r in t],
        ALONE + r"that demand checkpoint had not been published when it began",
    ),
    (
        "an event before it is replayed",
        lambda t: changed(t, index(t, what=What.Put, mode=REPLAY), event=5),
        ALONE + r"slot 1's Put \(event 5.*, was replayed, but lies before the checkpoint at event "
        r"5",
    ),
    (
        "a replay from the version all the same",
        lambda t: changed(t, index(t, what=What.Replay), at=0),
        r"recovery of slot 1 from version 1 by process 4: .* saw the slot at clock 5, was applied "
        r"at clock 4",
    ),
]


@pytest.mark.parametrize("change, words", [d[1:] for d in DEMANDS], ids=[d[0] for d in DEMANDS])
def test_each_way_to_break_a_replay_from_a_demand_checkpoint_is_named(
    change: Callable[[Records], Records], words: str
) -> None:
    assert re.match(words, told(change(demanded())))


def test_an_attempt_cut_short_is_judged_by_what_it_started_from() -> None:
    """Law: a demand checkpoint that was recorded and never published is none."""
    job = Job(3)
    job.make_windows()
    job.checkpoint()
    job.write(What.Put, 0, 1, 256)
    job.flush(0, 1)
    job.demand(1, published=False)
    job.recover(1, stop=1)
    assert report(job.records).violation is None
    records = demanded()
    recovery = records[index(records, what=What.Recovery)]
    left = [r for r in records if r.begin_ns < recovery.begin_ns]
    assert report(left).violation is None
    held = left[index(left, what=What.Put, slot=0)]
    assert "demand checkpoint 1" in told(applied_too(left, held))


def test_an_attempt_that_was_given_up_may_differ() -> None:
    """Law: a program that does something else when it is executed again is not the library's
    fault, as long as nothing of it goes live."""
    job = Job(3)
    job.make_windows()
    job.checkpoint()
    for _ in range(3):
        job.write(What.Put, 1, 0, 256)
    job.recover(1, stop=2)
    place = index(job.records, what=What.Put, mode=REPLAY)
    other = changed(job.records, place, what=What.Get, seq=0)
    assert report(other).violation is None
    job.recover(1)
    place = index(job.records, -1, what=What.Put, mode=REPLAY)
    assert "was replayed, but" in told(changed(job.records, place, what=What.Get, seq=0))
