"""Reads names and numbers that C and Python share from C's declarations (``csrc/shared.h``).

This works before the MPI library is loaded: the command line needs the places of ``--kill``.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import Any

from ..host.errors import FtrmaError

try:
    _ffi: Any = import_module("ftrma._declarations").ffi
except ModuleNotFoundError:
    raise FtrmaError(
        f"{Path(__file__).parents[1]} is not built, and hides an ftrma that is installed: build it "
        "in place (pip install -e '.[bench]'), or start from another directory"
    ) from None


def number(name: str) -> int:
    """Return the value of a constant of C."""
    return int(_ffi.integer_const(f"FTRMA_{name}"))


def names(enum: str, prefix: str) -> dict[str, int]:
    """Return the constants of an enum that begin with a prefix, by name without the prefix, in
    order."""
    found = _ffi.typeof(f"enum {enum}").relements
    return {name.removeprefix(prefix): value for name, value in sorted(found.items(), key=_value)
            if name.startswith(prefix)}


def fields(struct: str) -> list[tuple[str, str]]:
    """Return the fields of a struct of numbers, with NumPy's names of their types, arrays one by
    one.

    Raises:
        ValueError: the struct has a gap, which a packed record would not have.
    """
    kind = _ffi.typeof(f"struct {struct}")
    found: list[tuple[str, str]] = []
    for name, field in kind.fields:
        item = field.type.item if field.type.kind == "array" else field.type
        code = f"<{'u' if item.cname.startswith('u') else 'i'}{_ffi.sizeof(item)}"
        count = field.type.length if field.type.kind == "array" else 0
        names_of = [f"{name}{i}" for i in range(count)] or [name]
        found += [(each, code) for each in names_of]
    if sum(int(code[2:]) for _, code in found) != _ffi.sizeof(kind):
        raise ValueError(f"struct {struct} has gaps")
    return found


def size_of(struct: str) -> int:
    """Return the size of a struct, without an array of variable length at its end."""
    return int(_ffi.sizeof(f"struct {struct}"))


@contextlib.contextmanager
def viewed(struct: str, memory: mmap.mmap | bytes) -> Iterator[Any]:
    """Give the block a view of bytes as a struct of C, for reading."""
    pointer = _ffi.from_buffer(f"struct {struct} *", memory)
    try:
        yield pointer
    finally:
        _ffi.release(pointer)


def _value(item: tuple[str, int]) -> int:
    return item[1]


MAX_PROCS, MAX_RULES = number("MAX_PROCS"), number("MAX_RULES")
HELD_WINDOWS = number("HELD_WINDOWS")
AWAITED_SLOT = number("AWAITED_SLOT")  # mask of the slot + 1 in a process's `awaits`
REASON_BYTES, NAME_BYTES = number("REASON_BYTES"), number("NAME_BYTES")
CLAIM_REENTRY, CLAIM_FORFEIT = number("CLAIM_REENTRY"), number("CLAIM_FORFEIT")
CLAIM_TOLD, CLAIM_SEATED = number("CLAIM_TOLD"), number("CLAIM_SEATED")
RESUME_LAUNCH, RESUME_FILES = number("RESUME_LAUNCH"), number("RESUME_FILES")
RESUME_REFUSED = number("RESUME_REFUSED")
SLOT_DIED, SLOT_REPLAYED = number("SLOT_DIED"), number("SLOT_REPLAYED")
SPARE, SLOT, CHECKSUM = number("ROLE_SPARE"), number("ROLE_SLOT"), number("ROLE_CHECKSUM")
ROLE_NAMES = {SLOT: "slot", CHECKSUM: "checksum", SPARE: "spare"}
# Kinds of events, and of records in a trace.
WHAT = names("ftrma_what", "FTRMA_WHAT_")
FLAGS = names("ftrma_flags", "FTRMA_FLAGS_")  # of each kind
# Places where --kill can strike, as the user writes them.
FAILPOINTS = {name.lower().replace("_", "-"): value
          for name, value in names("ftrma_failpoint", "FTRMA_FAILPOINT_").items()}
NAMED = FAILPOINTS.pop("named")  # stands for a framework's own places


class PlanKind(IntEnum):
    """Kinds of plans after a failure (``enum ftrma_plan_kind``)."""

    NONE = number("PLAN_NONE")
    CAUSAL = number("PLAN_CAUSAL")
    ROLLBACK = number("PLAN_ROLLBACK")
    REENTRY = number("PLAN_REENTRY")
    RELAUNCH = number("PLAN_RELAUNCH")
    CATASTROPHIC = number("PLAN_CATASTROPHIC")
    REFUSED = number("PLAN_REFUSED")
    REPEATED = number("PLAN_REPEATED")
    FULL = number("PLAN_FULL")


assert PlanKind.__members__ == names("ftrma_plan_kind", "FTRMA_PLAN_")
