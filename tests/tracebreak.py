"""Traces that were broken by hand, and what the checker tells of them."""

from __future__ import annotations

from tracesim import trace_of

from ftrma.trace.check import Report, check
from ftrma.trace.records import Record

Records = list[Record]


def report(records: Records) -> Report:
    return check(trace_of(records, max(3, *(r.slot + 1 for r in records), 0)))


def told(records: Records) -> str:
    violation = report(records).violation
    assert violation, "nothing was found"
    assert "\n" not in violation.text
    return violation.text


def index(records: Records, number: int = 0, **fields: int) -> int:
    """The place of the number-th record with these fields."""
    found = [i for i, r in enumerate(records)
             if all(getattr(r, name) == value for name, value in fields.items())]
    return found[number]


def changed(records: Records, place: int, **fields: int) -> Records:
    return [r._replace(**fields) if i == place else r for i, r in enumerate(records)]


def dropped(records: Records, place: int) -> Records:
    return records[:place] + records[place + 1 :]


def doubled(records: Records, place: int) -> Records:
    r = records[place]
    again = r._replace(begin_ns=r.end_ns, end_ns=r.end_ns)
    return [*records[: place + 1], again, *records[place + 1 :]]


def swapped(records: Records, one: int, other: int) -> Records:
    """Two records in each other's places in time."""
    a, b = records[one], records[other]
    first = changed(records, one, **times(b))
    return changed(first, other, **times(a))


def times(r: Record) -> dict[str, int]:
    return {"begin_ns": r.begin_ns, "end_ns": r.end_ns}
