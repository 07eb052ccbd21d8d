"""From what each process of a job has recorded to one timeline.

Over several nodes the records come by several clocks, which were compared inexactly
(``ftrma/fabric/clock.py``), and puts to other nodes without the place that they took there, which
is told later.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..host import outfile
from .records import CLOCK_MARK, LIVE, MAX_SLOTS, MODES, RECORD, Mask, Records, What, document


def convert(directory: Path, to: Path, slots: int, events: list[dict[str, Any]]) -> int:
    """Write the timeline of a job that has ended.

    Args:
        directory: of the job, with the files ``trace-<proc>``.
        to: the file to write, see `outfile`; a regular one is there as a whole or not at all.
        slots: of the program.
        events: the job's story, as `ftrma/fabric/story.py` writes it in JSON.

    Returns:
        How many records it has; 0 of a job over several nodes, where there is only the story.

    Raises:
        ValueError: a file is not what the data plane writes, or `to` cannot be written.
    """
    records = load(directory, slots)
    began_ns = int(records["begin_ns"][0]) if len(records) else time.monotonic_ns()
    try:
        outfile.write(os.fspath(to), document(records, began_ns, slots, events))
    except OSError as error:
        raise ValueError(f"cannot write the trace {to}: {error.strerror}") from error
    return len(records)


def load(directory: Path, slots: int) -> Records:
    """Return the records of all processes, ordered by begin; each process's own order is kept.

    Raises:
        ValueError: a file holds what no process of such a job writes.
    """
    found, clocks, names = [np.empty(0, RECORD)], [np.empty(0, np.int64)], dict[str, int]()
    for path in sorted(directory.glob("trace-*")):
        data = path.read_bytes()
        # A process may have been killed in the middle of its last record, and what it made room
        # for but did not fill is zero.
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
    together = acknowledged(aligned(np.concatenate(found), np.concatenate(clocks)))
    order: npt.NDArray[np.int64] = np.argsort(together["begin_ns"], kind="stable")
    ordered: Records = together[order]
    return ordered


def aligned(records: Records, clocks: npt.NDArray[np.int64]) -> Records:
    """Move the times of clocks that are compared inexactly, so that what was first is first.

    No slot takes a checkpoint before all have come to its safepoint, none is committed before all
    have taken it, and nobody begins an entry before all have left the one before. Clocks that are
    behind that are set forward, as little as will do; where nothing will do, none is.

    Args:
        clocks: number of that of each record, from 0.
    """
    n = int(clocks.max(initial=0)) + 1
    late_ns = np.full((n, n), -(2**62))  # [a, b]: b must be set forward by so much more than a

    def after(first: Mask, then: Mask, field: str) -> None:
        for a, b in np.ndindex(n, n):
            one, other = first & (clocks == a), then & (clocks == b)
            if a != b and one.any() and other.any():
                by = int(records[field][one].max()) - int(records["begin_ns"][other].min())
                late_ns[a, b] = max(late_ns[a, b], by)

    if n == 1:
        return records
    what, entry, live = records["what"], records["entry"], records["mode"] == LIVE
    taken = live & (what == What.Checkpoint)
    keys = np.stack([records[name] for name in ("proc", "entry", "event")]).astype(np.uint64)
    _, key = np.unique(keys, axis=1, return_inverse=True)
    for e, version in np.unique(records[taken][["entry", "value0"]]).tolist():
        these = taken & (entry == e) & (records["value0"] == version)
        after((what == What.Safepoint) & live & np.isin(key, key[these]), these, "begin_ns")
        after(these, (what == What.Commit) & (records["value0"] == version), "begin_ns")
    for e in np.unique(entry[what == What.Rollback]).tolist():
        before = (entry < e) & (records["slot"] >= 0)
        after(before, (what == What.Rollback) & (entry == e), "end_ns")
    ahead_ns = np.zeros(n, np.int64)
    for _ in range(n):
        ahead_ns = np.maximum(ahead_ns, (ahead_ns[:, None] + late_ns).max(axis=0))
    if ((ahead_ns[:, None] + late_ns) > ahead_ns).any():
        return records  # what the trace is judged for
    moved = records.copy()
    for name in ("begin_ns", "end_ns"):
        moved[name] += ahead_ns[clocks].astype(np.uint64)
    return moved


def acknowledged(records: Records) -> Records:
    """Put what the Acks tell into the records of their puts, and leave them out."""
    is_ack = records["what"] == What.Ack
    acks, others = records[is_ack], records[~is_ack]
    puts = np.flatnonzero((others["what"] == What.Put) & (others["mode"] == LIVE))
    keys = [np.concatenate([others[name][puts], acks[name]]).astype(np.uint64)
            for name in ("proc", "entry", "event")]
    _, number = np.unique(np.stack(keys), axis=1, return_inverse=True)
    place = np.full(len(number), -1)  # of the put with this number
    place[number[: len(puts)]] = puts
    at = place[number[len(puts) :]]
    acks, at = acks[at >= 0], at[at >= 0]
    for name, told in (("seq", "seq"), ("clock", "clock"), ("value0", "begin_ns")):
        others[name][at] = acks[told]
    with_places: Records = others
    return with_places
