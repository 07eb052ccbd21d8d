"""The checker: runs of a correct machine are consistent, and each way to break one is named.

`tracesim.Job` is the machine. `scenario` is one fixed run with everything in it; each broken trace
is that run with one record dropped, doubled, moved or changed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
import tracesim
from hypothesis import example, given
from hypothesis import strategies as st
from tracebreak import Records, changed, doubled, dropped, index, report, swapped, times, told
from tracesim import BEGAN_NS, Job, random_job, trace_of

from ftrma.trace.check import check
from ftrma.trace.records import LIVE, REPLAY, Record, What


def scenario() -> Records:
    """Three slots; version 1; slot 1 dies and is replayed; version 2; a rollback to it."""
    job = Job(slots=3, seed=1)
    job.make_windows()
    job.write(What.Put, 0, 1, 256)
    job.fence()
    job.checkpoint()
    job.write(What.Put, 0, 1, 264)
    job.write(What.Put, 1, 2, 0)
    job.fence()
    job.write(What.Accumulate, 2, 1, 0)
    job.write(What.Accumulate, 0, 1, 0)
    job.atomic(1, 1, 0)
    job.read(1, 0, 0)
    job.flush(1, 0)
    job.atomic(0, 1, 0)
    job.atomic(2, 1, 0)
    job.write(What.Put, 1, 0, 8)
    job.recover(1)
    job.atomic(0, 1, 0)
    job.atomic(1, 1, 0)
    job.read(0, 1, 0)
    job.fence()
    job.checkpoint()
    job.write(What.Put, 0, 1, 0)
    job.rollback(2)
    job.write(What.Put, 2, 1, 0)
    job.atomic(0, 1, 0)
    job.fence()
    job.end()
    return job.records


# ---- good traces ------------------------------------------------------------------------------


def test_the_scenario_is_consistent() -> None:
    """Law: a correct run has no violation, and everything in it was looked at."""
    found = report(scenario())
    assert found.violation is None
    assert (found.checkpoints, found.recoveries, found.rollbacks) == (2, 1, 1)
    assert (found.applied, found.atomics, found.locations) == (6, 6, 2)
    # Put, fence, atomic, get, flush, put of slot 1; accesses and its atomic to it.
    assert (found.replayed, found.accesses) == (6, 16)
    assert found.lines(0)[-1].split() == ["result", "consistent"]


@pytest.mark.plain
@given(st.integers(0, 10**6))
def test_every_run_of_the_machine_is_consistent(seed: int) -> None:
    """Law: no false alarm for any program, interleaving, death, attempt cut short or rollback."""
    job = random_job(seed)
    assert check(job.trace()).violation is None


@pytest.mark.plain
@given(st.integers(0, 10**6), st.data())
def test_a_run_cut_short_is_consistent(seed: int, data: st.DataObject) -> None:
    """Law: a job may end at any record; what was done until then is right."""
    job = random_job(seed, 80)
    ordered = sorted(job.records, key=lambda r: r.begin_ns)
    kept = ordered[: data.draw(st.integers(0, len(ordered)))]
    assert check(trace_of(kept, job.slots)).violation is None


def test_a_window_may_be_gone_by_the_checkpoint() -> None:
    """Law: what a slot has freed is in no later checkpoint, and nothing is demanded of it."""
    job = Job(3)
    job.make_windows()
    job.write(What.Put, 0, 1, 0)
    job.all_call(What.Free, window=0)
    job.checkpoint()
    kept = [r for r in job.records if (r.what, r.window) != (What.Checkpoint, 0)]
    assert report(kept).violation is None
    held = [r for r in kept if r.what != What.Free]
    assert "holds that window up to seq 0, has it not" in told(held)


@pytest.mark.parametrize("size", [0, 8])
def test_what_changes_nothing_is_not_replayed(size: int) -> None:
    """Law: an access of no bytes, or to a window that is gone, need not be applied; others must."""
    job = Job(3)
    job.make_windows()
    job.write(What.Put, 0, 1, 0, size)
    job.all_call(What.Free, window=1)
    job.recover(1)
    kept = [r for r in job.records if r.what != What.Apply]
    assert (report(kept).violation is None) == (size == 0)
    elsewhere = [r._replace(window=1) if r.what == What.Put else r for r in kept]
    assert report(elsewhere).violation is None


def test_a_run_without_anything_is_consistent() -> None:
    assert report([]).violation is None


def killed_after(first: str, atomics: int, stop: int | None) -> tuple[Records, Records]:
    """Slot 1 does some atomics on itself, is killed and replayed; returns all records, and its."""
    job = Job(3)
    job.make_windows()
    job.checkpoint()
    if first == "rollback":
        job.rollback(0)
    elif first == "recovery":
        job.recover(1)
    for _ in range(atomics):
        job.atomic(1, 1, 0)
    made = job.records[-atomics:]
    job.recover(1, stop=stop)
    if stop is None:
        job.fence()
    return job.records, made


@pytest.mark.parametrize("stop", [None, 99])
@pytest.mark.parametrize("first", ["checkpoint", "rollback", "recovery"])
def test_the_very_last_event_of_a_killed_process_may_be_missing(
    first: str, stop: int | None
) -> None:
    """Law: it may have been killed before it recorded what it did last, and only that."""
    for atomics in (1, 2):
        records, made = killed_after(first, atomics, stop)
        assert report([r for r in records if r is not made[-1]]).violation is None
    assert "never made" in told([r for r in records if r is not made[0]])


NUMBERS = st.sampled_from([0, 1, 2, 3, 8, 2**63, 2**64 - 1])
ANYTHING = st.builds(
    Record, *[st.integers(BEGAN_NS, BEGAN_NS + 9)] * 2, st.sampled_from(What), st.integers(0, 2),
    st.integers(-1, 2), st.integers(0, 3), NUMBERS, NUMBERS, st.integers(-1, 1),
    st.integers(-1, 2), *[NUMBERS] * 10, st.just(0),
)


@pytest.mark.plain
@given(st.lists(ANYTHING, max_size=12))
def test_nonsense_is_judged_too(records: Records) -> None:
    """Law: whatever a file may say, the checker comes to an end and can tell it in a line."""
    found = report(records)
    assert all("\n" not in line for line in found.lines(BEGAN_NS))


@pytest.mark.plain
@given(st.integers(0, 10**6), st.data())
def test_a_run_with_nonsense_in_it_is_judged_too(seed: int, data: st.DataObject) -> None:
    job = random_job(seed, 40)
    place = data.draw(st.integers(0, len(job.records)))
    job.records[place:place] = data.draw(st.lists(ANYTHING, min_size=1, max_size=3))
    found = check(trace_of(job.records, max(3, job.slots)))
    assert all("\n" not in line for line in found.lines(BEGAN_NS))


# ---- broken checkpoints -----------------------------------------------------------------------


def checkpoint_of(records: Records, slot: int, version: int = 1, window: int = 0) -> int:
    return index(records, what=What.Checkpoint, slot=slot, value0=version, window=window)


def lock_over_checkpoint(records: Records) -> Records:
    """Slot 0's fence before the checkpoint becomes an exclusive lock of slot 2."""
    place = index(records, what=What.Fence, slot=0)
    return changed(records, place, what=What.Lock, target=2, value0=1)


CUTS: list[tuple[str, Callable[[Records], Records], str]] = [
    (
        "an access that only its target has",
        lambda t: changed(t, checkpoint_of(t, 1), seq=2),
        r"version 1 is not RMA-consistent: slot 0's Put \(event 7, seq 2\) to slot 1, window 0, "
        r"bytes 264 to 271, comes after slot 0's checkpoint at event 6, but slot 1's, which holds "
        r"that window up to seq 2, has it already",
    ),
    (
        "an access that only its origin has",
        lambda t: changed(t, checkpoint_of(t, 1), seq=0),
        r"slot 0's Put \(event 3, seq 1\).* comes before .*up to seq 0, has it not",
    ),
    (
        "a clock that is behind",
        lambda t: changed(t, checkpoint_of(t, 1), clock=1),
        r"version 1 .*slot 1's checkpoint has clock 1, which is behind the 2 that slot 0's Put",
    ),
    (
        "a clock that is ahead",
        lambda t: changed(t, checkpoint_of(t, 1), clock=9),
        r"slot 1's checkpoint has clock 9, which is ahead of the 5 that slot 0's Put \(event 7",
    ),
    (
        "a counter that is behind",
        lambda t: changed(t, checkpoint_of(t, 0, version=2), gnc=0),
        r"version 2 .*slot 0's checkpoint at event 15 has GNC 0 of window 0, which is behind the 1 "
        r"of slot 0's Put \(event 7",
    ),
    (
        "a counter that is ahead",
        lambda t: changed(t, checkpoint_of(t, 1, window=1), gc=1),
        r"slot 1's checkpoint at event 5 has GC 1 of window 1, which is ahead of the 0 of slot 1's "
        r"Fetch_and_op",
    ),
    (
        "a get that comes from the future",
        lambda t: [r._replace(begin_ns=g - 2, end_ns=g - 1)
                   if (r.what, r.slot, r.value0) == (What.Checkpoint, 1, 2) else r
                   for g in [t[index(t, what=What.Get, slot=0)].begin_ns] for r in t],
        r"version 2 .*slot 0's Get .* comes before slot 0's checkpoint .* was made after slot 1's",
    ),
    (
        "an exclusive lock",
        lock_over_checkpoint,
        r"version 1 .*slot 0 took its checkpoint at event 6 while it held the exclusive lock of "
        r"slot 2, window 0, from event 4",
    ),
    (
        "a slot that had not staged",
        lambda t: [r for r in t if (r.what, r.slot, r.value0) != (What.Checkpoint, 2, 1)],
        r"version 1 was committed, but slot 2 had not staged it",
    ),
    (
        "a commit that comes too early",
        lambda t: [r._replace(begin_ns=t[-1].end_ns, end_ns=t[-1].end_ns)
                   if (r.what, r.slot, r.value0) == (What.Checkpoint, 2, 1) else r for r in t],
        r"version 1 was committed, but slot 2 had not staged it",
    ),
    (
        "a version of two entries",
        lambda t: [r._replace(entry=7) if (r.what, r.slot, r.value0) == (What.Checkpoint, 2, 1)
                   else r for r in t],
        r"version 1 was committed, but slot 0 had staged it in attempt 0 and slot 2 in "
        r"attempt 7",
    ),
]


# ---- broken replays ---------------------------------------------------------------------------


def apply_of(records: Records, source: int, number: int = 0) -> int:
    return index(records, number, what=What.Apply, value0=source)


def replayed(records: Records, what: What) -> int:
    return index(records, what=what, mode=REPLAY, slot=1)


PREFIX = r"recovery of slot 1 from version 1 by process 3: "
REPLAYS: list[tuple[str, Callable[[Records], Records], str]] = [
    (
        "an access that is not applied",
        lambda t: dropped(t, apply_of(t, 2)),
        PREFIX + r"slot 2's Accumulate \(event 7, seq 3\) to slot 1, window 0, bytes 0 to 7, was "
        r"not applied",
    ),
    (
        "the last access that is not applied",
        lambda t: dropped(t, apply_of(t, 2, 1)),
        PREFIX + r"slot 2's Fetch_and_op .*was not applied",
    ),
    (
        "an atomic on itself that is not applied",
        lambda t: dropped(t, apply_of(t, 1)),
        PREFIX + r"slot 1's Fetch_and_op .*was not applied",
    ),
    (
        "an access that is applied twice",
        lambda t: doubled(t, apply_of(t, 0)),
        PREFIX + r"slot 0's access \(event 7, seq 2\) to slot 1, window 0, bytes 264 to 271, was "
        r"applied a second time",
    ),
    (
        "an access that the checkpoint holds",
        lambda t: changed(doubled(t, apply_of(t, 0)), apply_of(t, 0), seq=1, value1=3, at=256,
                          clock=2),
        r"slot 0's access \(event 3, seq 1\).*the checkpoint holds it already.* up to seq 1",
    ),
    (
        "an access that nobody made",
        lambda t: changed(t, apply_of(t, 2), seq=99, value1=4),
        r"slot 2's access \(event 4, seq 99\).*was applied, but never made",
    ),
    (
        "an access that is applied elsewhere",
        lambda t: changed(t, apply_of(t, 2), at=8),
        r"slot 2's access .*bytes 8 to 15, at clock 6 was applied, but what was made is slot 2's "
        r"Accumulate .*bytes 0 to 7",
    ),
    (
        "an access of which a part is not applied",
        lambda t: changed(t, apply_of(t, 2), bytes=4),
        r"slot 2's Accumulate \(event 7, .*bytes 0 to 7, was applied in part only: bytes 0 to 3",
    ),
    (
        "accumulates out of order",
        lambda t: swapped(t, apply_of(t, 2), apply_of(t, 0, 1)),
        r"slot 2's access \(event 7, seq 3\).* was applied after slot 0's access \(event 9, seq 4\)"
        r".* comes later in cohb order",
    ),
    (
        "puts of one clock out of order",
        lambda t: swapped(
            [r._replace(what=What.Put) if r.what == What.Accumulate else r for r in t],
            apply_of(t, 2), apply_of(t, 0, 1),
        ),
        r"slot 2's access \(event 7, seq 3\).* was applied after slot 0's access \(event 9",
    ),
    (
        "accumulates whose clocks belie their numbers",
        lambda t: [
            r._replace(clock=5, **times(t[apply_of(t, 0)] if r.what == What.Apply else r))
            if (r.what in (What.Accumulate, What.Apply), r.window, r.seq) == (True, 0, 4) else r
            for r in t
        ],
        r"slot 2's access \(event 7, seq 3\).*, at clock 6 was applied after slot 0's access "
        r"\(event 9, seq 4\).*, at clock 5",
    ),
    (
        "an access that is not applied, in a call that returned late",
        lambda t: dropped(changed(t, index(t, what=What.Accumulate, slot=2),
                                  end_ns=t[index(t, what=What.Recovery)].end_ns + 1),
                          apply_of(t, 2)),
        r"slot 2's Accumulate \(event 7, seq 3\).*was not applied",
    ),
    (
        "clocks out of order",
        lambda t: swapped(t, apply_of(t, 2), apply_of(t, 0)),
        r"slot 2's access .* saw the slot at clock 6, was applied at clock 5",
    ),
    (
        "an access that is applied before the synchronization that it followed",
        lambda t: changed(t, apply_of(t, 2), **{
            k: t[replayed(t, What.Put)].end_ns for k in ("begin_ns", "end_ns")}),
        r"slot 2's access .* saw the slot at clock 6, was applied at clock 5",
    ),
    (
        "an access that is applied late",
        lambda t: changed(t, apply_of(t, 0), **{
            k: t[index(t, what=What.Recovery)].begin_ns for k in ("begin_ns", "end_ns")}),
        r"slot 0's access \(event 7, seq 2\).* at clock 5 was applied after .*, at clock 8",
    ),
    (
        "an event that is not replayed",
        lambda t: dropped(t, replayed(t, What.Get)),
        PREFIX + r"slot 1's Get \(event 9\) to slot 0, window 0, bytes 0 to 7, was not replayed; "
        r"the horizon is event 11",
    ),
    (
        "an event that is replayed twice",
        lambda t: doubled(t, replayed(t, What.Get)),
        r"slot 1's Get .*was replayed a second time",
    ),
    (
        "events replayed in another order",
        lambda t: swapped(t, replayed(t, What.Get), replayed(t, What.Flush)),
        r"slot 1's Get \(event 9\).*was replayed after event 10",
    ),
    (
        "another target",
        lambda t: changed(t, replayed(t, What.Get), target=2),
        r"slot 1's Get \(event 9\) to slot 2, .* but what the slot had done is slot 1's Get "
        r"\(event 9\) to slot 0",
    ),
    *(
        (
            f"another {name}",
            lambda t, name=name, value=value: changed(t, replayed(t, What.Get), **{name: value}),
            r"slot 1's .*was replayed, but what the slot had done is slot 1's Get \(event 9\)",
        )
        for name, value in (("what", What.Put), ("window", 1), ("at", 16), ("bytes", 4))
    ),
    (
        "an event of before the checkpoint",
        lambda t: changed(doubled(t, replayed(t, What.Put)), replayed(t, What.Put), event=3),
        r"slot 1's Put \(event 3.*was replayed, but lies before the checkpoint at event 5",
    ),
    (
        "an event above the horizon",
        lambda t: changed(t, index(t, what=What.Replay), value1=10),
        r"slot 1's Put \(event 11.*was replayed, but lies above the horizon, event 10",
    ),
    (
        "an event below the horizon done live",
        lambda t: changed(t, index(t, slot=1, proc=3, mode=LIVE, what=What.Fetch_and_op), event=11),
        r"slot 1's Fetch_and_op \(event 11.*was done a second time, though the horizon is event 11",
    ),
    (
        "an event after a replay that did not come to its end",
        lambda t: dropped(t, index(t, what=What.Recovery)),
        r"slot 1's Fetch_and_op \(event 12.*was done, though the replay had no end",
    ),
    (
        "a recovery from a version that is not there",
        lambda t: changed(t, index(t, what=What.Replay), value0=5),
        r"version 5 was taken for slot 1's replay, but slot 0 had not staged it",
    ),
    (
        "a replay that does not say what it starts from",
        lambda t: dropped(t, index(t, what=What.Replay)),
        r"process 3 replays slot 1, but does not say from what",
    ),
]


# ---- broken trails and rollbacks --------------------------------------------------------------


REST: list[tuple[str, Callable[[Records], Records], str]] = [
    (
        "an atomic that was lost",
        lambda t: changed(t, index(t, what=What.Fetch_and_op, slot=2), value0=0),
        r"slot 2's Fetch_and_op \(event 8, seq 3\) to slot 1, window 1, bytes 0 to 7, found 0, but "
        r"slot 0's Fetch_and_op .*seq 2.*, had left \d+, and nothing came between",
    ),
    (
        "a memory that a recovery restored wrongly",
        lambda t: changed(t, index(t, 1, what=What.Fetch_and_op, slot=0), value0=1),
        r"slot 0's Fetch_and_op \(event 11.*found 1, but slot 2's Fetch_and_op",
    ),
    (
        "a number that is taken twice",
        lambda t: changed(t, index(t, what=What.Accumulate, slot=0), seq=3),
        r"slot 0's Accumulate \(event 9, seq 3\).*took the number that slot 2's Accumulate",
    ),
    (
        "an event that is done twice",
        lambda t: doubled(t, index(t, what=What.Get, slot=0)),
        r"slot 0's Get \(event 12\).*was done after event 12 of the same process 0",
    ),
    (
        "an access of before the rollback that lands after it",
        lambda t: changed(t, index(t, what=What.Put, slot=0, seq=5),
                          end_ns=t[index(t, what=What.Rollback)].begin_ns + 1),
        r"slot 0's Put .* of attempt 0 of the program ended after slot 0 had gone back and begun "
        r"attempt 1",
    ),
    (
        "a rollback to two versions",
        lambda t: changed(t, index(t, what=What.Rollback, slot=2), value0=1),
        r"slot 2 went back to version 1, slot 0 to version 2",
    ),
    (
        "a rollback to a version that is not there",
        lambda t: changed(t, index(t, what=What.Rollback), value0=5),
        r"version 5 was taken for slot 0's rollback, but slot 0 had not staged it",
    ),
]


@pytest.mark.parametrize("breaking, text", [pytest.param(b, t, id=n) for n, b, t in
                                            [*CUTS, *REPLAYS, *REST]])
def test_each_way_to_break_a_run_is_named(
    breaking: Callable[[Records], Records], text: str
) -> None:
    """Law: the violation names slots, event, window and number of what is wrong."""
    found = told(breaking(scenario()))
    assert re.search(text, found), found


def test_the_first_violation_is_told() -> None:
    """Law: of several violations the one that is earliest in time is told."""
    records = scenario()
    early = lambda t: changed(t, index(t, what=What.Fetch_and_op, slot=2), value0=0)  # noqa: E731
    late = lambda t: changed(t, index(t, what=What.Rollback, slot=2), value0=1)  # noqa: E731
    assert told(late(early(records))) == told(early(records)) != told(late(records))


# ---- any run, broken at any place -------------------------------------------------------------


def broken_anywhere(seed: int, choose: Callable[[Records, random.Random], Records | None]) -> None:
    """Break a random run; it must be found, if there was something to break."""
    job = random_job(seed)
    broken = choose(job.records, random.Random(seed))
    if broken is not None:
        found = check(trace_of(broken, job.slots)).violation
        assert found, f"seed {seed}"


def finished(records: Records) -> Records:
    """The events that ended recoveries began with, applied and replayed."""
    ends = {(r.entry, r.proc) for r in records if r.what == What.Recovery}
    return [r for r in records if (r.entry, r.proc) in ends and r.mode == REPLAY]


@pytest.mark.plain
@given(st.integers(0, 10**6))
@example(4)
def test_whatever_is_left_out_of_a_replay_is_found(seed: int) -> None:
    """Law: a finished recovery without one of its records is not exact. The very last event may
    have been lost by the process that was killed, not by the replay."""

    def drop(records: Records, rng: random.Random) -> Records | None:
        made = {(r.entry, r.slot, r.event) for r in records if r.mode == LIVE}
        work = [
            r for r in finished(records)
            if (r.entry, *((r.value0, r.value1) if r.what == What.Apply else (r.slot, r.event)))
            in made
        ]
        return dropped(records, records.index(rng.choice(work))) if work else None

    broken_anywhere(seed, drop)


@pytest.mark.plain
@given(st.integers(0, 10**6))
def test_whatever_a_replay_does_twice_is_found(seed: int) -> None:
    """Law: no record of a replay may be there twice."""

    def double(records: Records, rng: random.Random) -> Records | None:
        work = finished(records)
        return doubled(records, records.index(rng.choice(work))) if work else None

    broken_anywhere(seed, double)


@pytest.mark.plain
@given(st.integers(0, 10**6))
def test_a_checkpoint_that_is_off_by_one_access_is_found(seed: int) -> None:
    """Law: a part that holds one access more or less than all others know of is not consistent."""

    def shift(records: Records, rng: random.Random) -> Records | None:
        torn = {r.value0 for r in records if r.what == What.Checkpoint and r.entry}
        versions = {r.value0 for r in records if r.what == What.Commit} - torn
        parts = [r for r in records if r.what == What.Checkpoint and r.seq > 0
                 and r.value0 in versions
                 and any(w.target == r.slot and w.window == r.window and w.seq == r.seq
                         and w.entry == 0 and w.mode == LIVE and w.what in tracesim.WRITES
                         for w in records)]
        if not parts:
            return None
        part = rng.choice(parts)
        return changed(records, records.index(part), seq=part.seq - 1)

    broken_anywhere(seed, shift)
