"""The line that people read after a recovery."""

from __future__ import annotations

import dataclasses

import pytest

from ftrma.fabric.story import Phases, Recovery
from ftrma.native.shared import Slot, Version
from ftrma.program.recovery_words import recovery_line

CAUSAL = Recovery(kind="causal", slots=(Slot(2),), version=Version(7), seconds=0.25,
                  phases=Phases(detect=0.001, repair=0.004, restore=0.005, replay=0.24),
                  reason="", began_s=1.0)
UNTIL_HERE = dataclasses.replace(CAUSAL.phases, replay=0.0)


@pytest.mark.parametrize(("changes", "claimant", "died", "line"), [
    ({}, "", True, "slot 2 died; replayed from checkpoint 7 in 250 ms "
     "(detect 1, repair 4, restore 5, replay 240); 1 spare left"),
    ({"demand": 3}, "", True, "slot 2 died; replayed from its demand checkpoint 3 in"),
    ({"version": 0}, "", True, "slot 2 died; replayed from the start in"),
    ({"phases": UNTIL_HERE}, "", True, "slot 2 died; replaced before it had begun in"),
    ({"phases": UNTIL_HERE, "slots": ()}, "", True, "a server died; replaced in"),
    ({"phases": UNTIL_HERE, "slots": ()}, "", False, "communicators are made again; replaced in"),
    ({"kind": "rollback", "slots": (0, 3), "reason": "no logs"}, "", True,
     "slot 0 and slot 3 died; back at checkpoint 7 in 250 ms "
     "(detect 1, repair 4, restore 5, replay 240) (no logs)"),
    ({"kind": "reentry", "reason": "ring recovers"}, "ring", True,
     "slot 2 died; ring recovers from checkpoint 7 in 250 ms "
     "(detect 1, repair 4, restore 5, replay 240); 1"),
    ({"kind": "reentry", "version": 0}, "ring", True, "ring recovers without a checkpoint in"),
])
def test_a_recovery_is_told(changes: dict[str, object], claimant: str, died: bool,
                            line: str) -> None:
    """Law: the line says who died, how the job goes on and from where, how long each phase took,
    why (once), and how many spares are left."""
    recovery = dataclasses.replace(CAUSAL, **changes)  # type: ignore[arg-type]
    assert line in recovery_line(recovery, spares=1, claimant=claimant, died=died)


def test_spares_are_counted() -> None:
    for spares, words in ((0, "0 spares left"), (1, "1 spare left"), (2, "2 spares left")):
        assert recovery_line(CAUSAL, spares=spares, claimant="", died=True).endswith(words)
