"""The modes of snapshots: their words, what is refused, when one is due; records in an array."""

from __future__ import annotations

import numpy as np
import pytest

from ftrma.frameworks.aic.modes import (
    ChandyLamport,
    Hybrid,
    Schedule,
    SnapshotMode,
    Synchronous,
    VirtualSnapshot,
    make,
)
from ftrma.frameworks.aic.snapshots import pack, unpack


@pytest.mark.parametrize(("text", "mode"), [
    ("virtual:2", VirtualSnapshot(2.0)),
    ("virtual:20000u", VirtualSnapshot(updates=20000)),
    ("faic-d:0.5", VirtualSnapshot(0.5, aggregate=False)),
    ("chandy-lamport:daly", ChandyLamport("daly")),
    ("synchronous:1e-3", Synchronous(0.001)),
    ("hybrid:2", Hybrid(seconds=2.0, patience_s=0.1)),
    ("none", None),
])
def test_words(text: str, mode: SnapshotMode | None) -> None:
    """Law: each mode can be named on a command line."""
    assert make(text) == mode


@pytest.mark.parametrize("text", [
    "", "virtual", "virtual:", "virtual:0", "virtual:-1", "virtual:nan", "virtual:inf",
    "virtual:u", "virtual:0u", "virtual:1.5u", "virtual:weekly", "none:2", "sync:2",
])
def test_wrong_words(text: str) -> None:
    """Law: one message has the words and the remedy."""
    with pytest.raises(ValueError, match=r"give none|seconds above 0") as caught:
        make(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("mode", [VirtualSnapshot, ChandyLamport, Synchronous, Hybrid])
def test_how_often_is_checked(mode: type[SnapshotMode]) -> None:
    """Law: either seconds or updates, in range; the message names the class."""
    for options in ({}, {"seconds": 1, "updates": 1}, {"seconds": 0}, {"seconds": "often"},
                    {"seconds": None, "updates": 0}, {"updates": 1.5}):
        with pytest.raises(ValueError, match=mode.__name__):
            mode(**options)
    with pytest.raises(ValueError, match="patience_s"):
        Hybrid(1, patience_s=-1)


def test_when_a_snapshot_is_due() -> None:
    """Law: by seconds or updates since the last one began, or as the door says."""
    schedule = Schedule(VirtualSnapshot(2), 10.0, lambda: False)
    assert not schedule.due(11.9, 10**9)
    assert schedule.due(12.0, 0)
    schedule.begun(12.5, 0)
    assert not schedule.due(14.4, 0)
    schedule = Schedule(VirtualSnapshot(updates=100), 0.0, lambda: False)
    schedule.begun(0.0, 50)
    assert not schedule.due(10**9, 149)
    assert schedule.due(0.0, 150)
    assert Schedule(VirtualSnapshot("daly"), 0.0, lambda: True).due(0.0, 0)
    assert not Schedule(VirtualSnapshot("daly"), 0.0, lambda: False).due(10**9, 10**9)


def test_records_in_an_array() -> None:
    """Law: they come out as they went in, and can be read as numbers where they lie."""
    records = [(2, b""), (0, np.arange(3.0).tobytes()), (1, b"odd"), (7, bytes(8))]
    array = pack(records)
    assert array.dtype == np.uint8
    assert [(slot, bytes(data)) for slot, data in unpack(array)] == records
    assert all(np.frombuffer(data, "u1").ctypes.data % 8 == 0 for _, data in unpack(array))
    assert len(pack([])) and not list(unpack(pack([])))
