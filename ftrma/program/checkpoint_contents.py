"""The contents of a slot's part of a checkpoint: a framework's entries, windows, declared state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..native import logs
from ..native.shared import Version
from ..vault.vault import Region
from .entries import EntryStore
from .state import State


def sizes_bytes(states: Mapping[str, State]) -> list[int]:
    """Return the size of each field of the states and of each window; those of pickled fields are
    estimates."""
    arrays = [getattr(getattr(s, f), "nbytes", 64) for s in states.values() for f in s._fields]
    return arrays + [w.size_bytes for w in logs.windows()]


def contents(
    states: Mapping[str, State], ordinal: int, step: int, committed: Version,
    entries: EntryStore | None,
) -> tuple[list[Region], dict[str, Any]]:
    """Return the regions that a checkpoint holds, and the record that describes them.

    Args:
        states: the states that the program has declared, by name.
        ordinal: number of the safepoint.
        step: safepoints since the program's start.
        committed: the committed version.
        entries: a framework's; None for a demand checkpoint, which does not contain them.
    """
    regions = [] if entries is None else entries.regions(committed)
    record: dict[str, Any] = {"states": {}, "windows": {}, "ordinal": ordinal, "step": step,
                              "entries": {} if entries is None else entries.forms()}
    found = logs.windows()
    for window, counters in zip(found, logs.window_counters(), strict=True):
        record["windows"][window.ordinal] = (window.size_bytes, counters)
        if window.size_bytes:
            key = ("window", window.ordinal)
            regions.append(Region(key, window.address, window.size_bytes))
    for name, state in states.items():
        arrays, record["states"][name] = state._save()
        regions += [Region(key, a.ctypes.data, a.nbytes) for key, a in arrays.items()]
    record["counters"] = logs.counters_save()
    return regions, record
