"""Makes one timeline from the records of all processes of a job.

Over several nodes the times in the records come from several clocks, which were compared inexactly
(``ftrma/fabric/clock.py``). A put to another node is recorded without its number there, which a
later record contains.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..host import outfile
from . import spans
from .records import CLOCK_MARK, LIVE, MAX_SLOTS, MODES, RECORD, TOLD, Records, What, document

Clocks = npt.NDArray[np.int64]
FAR_NS = 2**61  # larger than any clock's time, and half of the largest integer


def convert(directory: Path, to: Path, slots: int, events: list[dict[str, Any]]) -> int:
    """Write the timeline of a job that has ended.

    Args:
        directory: the job's directory, with the files ``trace-<proc>``.
        to: the file to write, see `outfile`; a regular file is written completely or not at all.
        slots: number of slots of the program.
        events: the job's story, as `ftrma/fabric/story.py` writes it in JSON.

    Returns:
        The number of records, including those of frameworks.

    Raises:
        ValueError: a file is not what the data plane writes, or `to` cannot be written.
    """
    loaded = load(directory, slots)
    began_ns = int(loaded["begin_ns"][0]) if len(loaded) else time.monotonic_ns()
    of_frameworks = np.isin(loaded["what"], TOLD)
    told = spans.timeline(loaded[of_frameworks], spans.lasts(loaded), began_ns, slots)
    try:
        outfile.write(os.fspath(to),
                      document(loaded[~of_frameworks], began_ns, slots, events, told))
    except OSError as error:
        raise ValueError(f"cannot write the trace {to}: {outfile.why(error)}") from error
    return len(loaded)


def load(directory: Path, slots: int) -> Records:
    """Return the records of all processes, ordered by their begin; the order within a process is
    kept.

    Raises:
        ValueError: a file contains what no process of such a job writes.
    """
    found, clocks, names = [np.empty(0, RECORD)], [np.empty(0, np.int64)], dict[str, int]()
    whole = True
    for path in sorted(directory.glob("trace-*")):
        data = path.read_bytes()
        whole &= bool(path.stat().st_mode & stat.S_IWUSR)  # see csrc/log/trace.c
        # A process may have been killed in the middle of its last record. Space that it reserved
        # but did not fill is zero.
        records = np.frombuffer(data[: len(data) // RECORD.itemsize * RECORD.itemsize], RECORD)
        records = records[records["begin_ns"] > 0]
        for field, low, high in (
            ("what", 0, len(What) - 1), ("mode", 0, len(MODES) - 1), ("slot", -1, slots - 1),
            ("target", -1, slots - 1), ("window", -1, 2**31 - 1), ("proc", 0, MAX_SLOTS - 1),
        ):
            wrong = np.flatnonzero((records[field] < low) | (records[field] > high))
            if len(wrong):
                raise ValueError(
                    f"{path}: record {wrong[0]} has {field} {records[field][wrong[0]]}, which is "
                    f"not within {low} to {high}: was it written by another version of ftrma?"
                )
        found.append(records)
        clock = path.name.partition(CLOCK_MARK)[2]
        clocks.append(np.full(len(records), names.setdefault(clock, len(names))))
    if not whole:
        outfile.tell("warning: the trace ends before the job did: shared memory was nearly full. "
                     "What ftrma check finds wrong at its end may be what is missing")
    raw = np.concatenate(found)
    moved = aligned(raw, np.concatenate(clocks))
    if moved is None:
        outfile.tell(
            "warning: the clocks of the job's nodes ran apart: what ftrma check says of the order "
            "of things on different nodes is uncertain"
        )
    together = acknowledged(raw if moved is None else moved)
    order: npt.NDArray[np.int64] = np.argsort(together["begin_ns"], kind="stable")
    ordered: Records = together[order]
    return ordered


def aligned(records: Records, clocks: Clocks) -> Records | None:
    """Correct the times of clocks that were compared inexactly, so that causes precede effects.

    No slot takes a checkpoint before all have come to its safepoint. No checkpoint is committed
    before all have taken it. No slot begins an attempt before all have left the one before. Clocks
    that contradict this are set forward, by as little as possible.

    Args:
        clocks: number of the clock of each record, from 0.

    Returns:
        The records; None if no setting of the clocks achieves this.
    """
    n = int(clocks.max(initial=0)) + 1
    if n == 1:
        return records
    steps = np.isin(records["what"], (What.Safepoint, What.Checkpoint, What.Commit))
    late_ns = np.maximum(
        late_at_checkpoints(records[steps], clocks[steps], n),
        late_at_rollbacks(records, clocks, n),
    )
    ahead_ns = np.zeros(n, np.int64)
    for _ in range(n):
        ahead_ns = np.maximum(ahead_ns, (ahead_ns[:, None] + late_ns).max(axis=0))
    if ((ahead_ns[:, None] + late_ns) > ahead_ns).any():
        return None
    moved = records.copy()
    for name in ("begin_ns", "end_ns"):
        moved[name] += ahead_ns[clocks].astype(np.uint64)
    return moved


class Span:
    """Several occasions, each with records before it and records after it.

    Attributes:
        last: for each clock the time of the last record before each occasion.
        first: for each clock the time of the first record after each occasion.
    """

    def __init__(self, occasions: int, n: int) -> None:
        self.last = np.full((occasions, n), -FAR_NS)
        self.first = np.full((occasions, n), FAR_NS)

    def before(self, occasion: Clocks, clocks: Clocks, at_ns: Clocks) -> None:
        np.maximum.at(self.last, (occasion, clocks), at_ns.astype(np.int64))

    def behind(self, occasion: Clocks, clocks: Clocks, at_ns: Clocks) -> None:
        np.minimum.at(self.first, (occasion, clocks), at_ns.astype(np.int64))

    def late_ns(self) -> Clocks:
        """Return [a, b]: by how much more than a clock b must be set forward; diagonal: not at
        all."""
        n = self.last.shape[1]
        late = np.full((n, n), -FAR_NS)
        for a in range(n):
            between = self.last[:, a, None] - self.first + 1
            late[a] = between.max(axis=0, initial=-FAR_NS)
        np.fill_diagonal(late, -FAR_NS)
        return late


def late_at_checkpoints(records: Records, clocks: Clocks, n: int) -> Clocks:
    """Return the times by which clocks are late at checkpoints, see `Span.late_ns`."""
    what, live = records["what"], records["mode"] == LIVE
    taken = np.flatnonzero(live & (what == What.Checkpoint))
    # Number of the occasion for an attempt and a version; and for a process, an attempt and a
    # safepoint's event.
    version: dict[tuple[int, int], int] = {}
    place: dict[tuple[int, int, int], int] = {}
    occasion = np.zeros(len(taken), np.int64)
    for i, (attempt, number, proc, event) in enumerate(
        records[taken][["entry", "value0", "proc", "event"]].tolist()
    ):
        occasion[i] = version.setdefault((attempt, number), len(version))
        place[proc, attempt, event] = int(occasion[i])
    arrived, committed = Span(len(version), n), Span(len(version), n)
    arrived.behind(occasion, clocks[taken], records["begin_ns"][taken])
    committed.before(occasion, clocks[taken], records["begin_ns"][taken])
    for span, add, kind, names, known in (
        (arrived, Span.before, What.Safepoint, ["proc", "entry", "event"], place),
        (committed, Span.behind, What.Commit, ["entry", "value0"], version),
    ):
        at = np.flatnonzero((what == kind) & (records["mode"] == LIVE))
        found = np.array([known.get(key, -1) for key in records[at][names].tolist()], np.int64)
        at, found = at[found >= 0], found[found >= 0]
        add(span, found, clocks[at], records["begin_ns"][at])
    return np.maximum(arrived.late_ns(), committed.late_ns())


def late_at_rollbacks(records: Records, clocks: Clocks, n: int) -> Clocks:
    """Return the times by which clocks are late when attempts begin, see `Span.late_ns`."""
    attempts, attempt = np.unique(records["entry"], return_inverse=True)
    span, back = Span(len(attempts), n), records["what"] == What.Rollback
    # A framework's threads may record something after an attempt's end.
    mine = (records["slot"] >= 0) & (attempt + 1 < len(attempts)) & ~np.isin(records["what"], TOLD)
    span.before(attempt[mine] + 1, clocks[mine], records["end_ns"][mine])
    span.last = np.maximum.accumulate(span.last)
    span.behind(attempt[back], clocks[back], records["begin_ns"][back])
    return span.late_ns()


def acknowledged(records: Records) -> Records:
    """Put the contents of Acks into the records of their puts, and drop the Acks."""
    is_ack = records["what"] == What.Ack
    if not is_ack.any():
        return records
    acks, others = records[is_ack], records[~is_ack]
    puts = np.flatnonzero((others["what"] == What.Put) & (others["mode"] == LIVE))
    keys = [np.concatenate([others[name][puts], acks[name]]).astype(np.uint64)
            for name in ("proc", "entry", "event")]
    _, number = np.unique(np.stack(keys), axis=1, return_inverse=True)
    place = np.full(len(number), -1)  # index of the put with this number
    place[number[: len(puts)]] = puts
    at = place[number[len(puts) :]]
    acks, at = acks[at >= 0], at[at >= 0]
    for name, told in (("seq", "seq"), ("clock", "clock"), ("value0", "begin_ns")):
        others[name][at] = acks[told]
    with_places: Records = others
    return with_places
