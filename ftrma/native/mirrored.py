"""Lists, in order, the words of the control file that are kept equal on all nodes of a job.

Agents look through the list from its beginning, and write incoming words from its end. So a process
that sees a new word also sees the words that were stored before it, provided that they come after
it in this list. Therefore words that say "it is done" come first, and the words that they refer to
come later. Words that are not in the list belong to each node: clocks, bells, and words that no
other node looks at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import extension as c
from .shared import Control
from .wireconstants import LOST as LOST
from .wireconstants import MirrorKind

Span = tuple[int, int]  # first byte, and end


def regions(ctl: Control) -> list[tuple[int, int, MirrorKind]]:
    """List (offset, bytes, kind) of each stretch, for `wire.mirror_make`."""
    return [(a // 8 * 8, (b + 7) // 8 * 8 - a // 8 * 8, kind) for (a, b), kind in _spans(ctl)]


def _spans(ctl: Control) -> Iterator[tuple[Span, MirrorKind]]:
    words, hot = MirrorKind.WORDS, MirrorKind.HOT
    procs = [_at("proc", p) for p in range(ctl.nprocs)]
    slots = [_at("slots", s) for s in range(ctl.nslots)]
    for p in procs:
        yield _field("struct ftrma_proc", p, "met"), words
    for y in range(ctl.nodes):
        at = _at("scanned", y)
        yield (at, at + 8), MirrorKind.ECHO
    yield _field("struct ftrma_ctl", 0, "alarm"), MirrorKind.ALARM
    yield _field("struct ftrma_ctl", 0, "repaired"), MirrorKind.CALM
    for name in ("plan_round", "request", "roles_seq", "plan_seq", "attempt", "spilled", "commit",
                 "spill", "halt", "taken", "target", "halting", "wanted", "replays", "causal",
                 "told_full", "told_demand", "stumbles", "connect", "dynamic", "claim", "claimant"):
        yield _field("struct ftrma_ctl", 0, name), words
    for s in slots:
        yield _field("struct ftrma_slot", s, "arrived", "entered"), words
    for p in procs:
        yield _field("struct ftrma_proc", p, "ordinal", "finished"), words
    for p in procs:
        yield _field("struct ftrma_proc", p, "pid", "death_round"), words
        yield _field("struct ftrma_proc", p, "blocks", "leaving"), words
        yield _field("struct ftrma_proc", p, "waiting", "syncs"), hot
    for s in slots:
        yield _field("struct ftrma_slot", s, "events", "atomic_done"), hot
        yield _field("struct ftrma_slot", s, "marks", "held"), words
    for i in range(ctl.nrules):
        yield _field("struct ftrma_rule", _at("rules", i), "failpoint", "fired"), words
        yield _field("struct ftrma_rule", _at("rules", i), "visits"), hot
    yield _field("struct ftrma_ctl", 0, "refusal"), words
    for i in range(2):
        table = _at("roles", i)
        for name, used in (("slot_proc", ctl.nslots), ("checksum_proc", ctl.nchecksums),
                           ("slot_group", ctl.nslots)):
            at = table + _offset("struct ftrma_roles", name)
            yield (at, at + 4 * used), words
        at = _at("plans", i)
        yield (at, at + c.ffi.sizeof("struct ftrma_plan")), words
    for name in ("bell", "barrier", "live"):
        yield _field("struct ftrma_ctl", 0, name), MirrorKind.BELL


def clocks() -> tuple[int, int]:
    """Return the offset of the first slot's clock in the control file, and the distance between
    clocks."""
    first = _at("slots", 0)
    return first + _offset("struct ftrma_slot", "clock"), _at("slots", 1) - first


def _offset(struct: str, name: str) -> int:
    return int(c.ffi.offsetof(struct, name))


def _at(array: str, index: int) -> int:
    """Return the offset of an element of an array in the control file."""
    return int(c.ffi.offsetof("struct ftrma_ctl", array, index))


def _field(struct: str, at: int, first: str, last: str = "") -> Span:
    """Return the span from one field of a struct at offset `at` to the end of another field."""
    fields: dict[str, Any] = dict(c.ffi.typeof(struct).fields)
    end = fields[last or first]
    return at + fields[first].offset, at + end.offset + c.ffi.sizeof(end.type)
