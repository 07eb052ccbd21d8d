"""A mark's reasons against a replay: two processes add theirs at once, and both stay.

A spare that takes a checksum rank's seat notes, while slots go on, that their results are lost; a
slot notes a call that no replay repeats.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from cffi import FFI
from resultlog import Slot, apart

from ftrma.native import loading

FOREIGN, CHECKSUM = 1, 8  # FTRMA_BROKEN_*
TIMES = 300_000

pytestmark = pytest.mark.full


def _add(directory: Path) -> None:
    slot, inner = Slot(directory, 1 << 20), FFI()
    inner.cdef("void ftrma_break(uint32_t why);")
    add = inner.dlopen(str(loading.EXTENSION)).ftrma_break
    marks, lost = slot.ctl.slots[0].marks, slot.lib.ftrma_results_lost
    ready, tells = os.pipe()
    other = os.fork()
    if not other:
        os.write(tells, b"x")
        while True:
            lost(0)
    try:
        os.read(ready, 1)
        for _ in range(TIMES):
            marks[0].broken = marks[1].broken = 0
            add(FOREIGN)
            for _ in range(3):  # the other one has stored meanwhile, or will
                found = marks[0].broken & marks[1].broken
                assert found & FOREIGN, "a reason that was noted is gone"
            assert found in (FOREIGN, FOREIGN | CHECKSUM)
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def test_no_reason_is_lost(tmp_path: Path) -> None:
    """Law: a reason that is noted stays, whatever another process notes at the time."""
    apart(lambda: _add(tmp_path))
