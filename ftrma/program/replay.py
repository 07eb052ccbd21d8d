"""The replay of a lost slot in its replacement: from which checkpoint it begins, at which safepoint
of the program that checkpoint was taken, and how the replay ends.

The replacement runs the program from its top. The extension answers its events from the logs up to
the horizon (``csrc/log/replay.c``). Then the slot is live, and the others, which have waited for
it, go on with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from ..fabric.story import Recovery
from ..fabric.view import JobView
from ..host.errors import Rollback
from ..native import logs
from ..native.shared import Slot
from ..protocol.demand import DemandStore
from ..protocol.repair_round import Repaired
from .checkpoint_source import CheckpointSource
from .state import State


class Replay:
    """The replay of one slot, in the process that replaces the dead one.

    Args:
        view: this process's view of the job.
        slot: the slot that is replayed.

    Attributes:
        demand: number of the demand checkpoint that it begins with; 0: the committed version.
        source: the checkpoint that it begins with; None: it begins at the program's start.
        anchored: the counters of `source` are restored at a safepoint of the program, which
            `is_anchor` finds. If not, the log reaches back to the program's top.
    """

    def __init__(self, view: JobView, slot: Slot) -> None:
        self.view, self.slot = view, slot
        self.began_s = time.monotonic()
        self.demand = 0
        self.source: CheckpointSource | None = None
        self.anchored = False

    def prepare(self, demands: DemandStore, committed: CheckpointSource | None) -> None:
        """Collect from the logs what the replay needs.

        Args:
            demands: demand checkpoints of the slot.
            committed: the committed version; None: the program's start.

        Raises:
            Rollback: the slot's demand checkpoint or a log is damaged, so the slot cannot be
                replayed.
        """
        view, cut, counters = self.view, b"", b""
        self.source = committed
        self.demand = logs.demand_of(self.slot, view.words.committed)
        if self.demand:
            found = demands.recover(self.demand)
            if not found:
                logs.refuse(f"slot {self.slot}'s demand checkpoint is damaged")
                raise Rollback("a process failed")
            self.source = CheckpointSource(self.slot, *found)
            cut = self.source.record["cut"]
        mark = view.words.slot(self.slot).marks[view.words.committed & 1]
        self.anchored = bool(self.demand or not mark.start)
        if self.anchored:
            assert self.source
            counters = self.source.record["counters"]
        if not logs.replay_prepare(self.slot, view.words.committed, counters, self.demand, cut):
            logs.refuse("a log from which it would be replayed is damaged")
            raise Rollback("a process failed")

    def is_anchor(self, states: Mapping[str, State]) -> bool:
        """Say whether this safepoint is the one at which the checkpoint was taken.

        It is if declared state and windows equal those in the checkpoint, since the program's
        further course depends on nothing else.

        Raises:
            Rollback: the replay has not come to the checkpoint yet, and this safepoint is not the
                one.
        """
        if logs.mode() is not logs.Mode.PROLOGUE and not logs.in_prefix():
            return False
        assert self.source
        if self.source.restore_windows() or self.source.differs(states):
            logs.refuse(
                "its program does not come to its first safepoint() with the state that the "
                "checkpoint has; call safepoint() at the top of the loop"
            )
            raise Rollback("a process failed")
        return True

    def begin_at_anchor(self) -> None:
        """Restore the counters of the checkpoint; events are replayed from here on."""
        if not logs.replay_anchor():
            raise Rollback("a process failed")

    def ended(self, repaired: Repaired) -> Recovery:
        """Say how the slot, which is live now, was recovered.

        Args:
            repaired: the repair that began this replay.
        """
        replay_s = time.monotonic() - self.began_s
        return Recovery(
            kind="causal", slots=(self.slot,), version=repaired.version,
            seconds=repaired.seconds + replay_s, phases=replace(repaired.phases, replay=replay_s),
            reason="", began_s=self.view.words.death_ns / 1e9, demand=self.demand,
        )
