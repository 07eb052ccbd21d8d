"""One round of repair as one process sees it: what it knows, and what it has done so far.

A failure is answered by one repair, which is tried in rounds until all processes finish one.
`repair` has the table of a round's steps; `repair_steps` and `leading` have their actions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..fabric.story import Phases
from ..fabric.view import JobView
from ..native.constants import CHECKSUM, SLOT
from ..native.shared import Proc, Version
from ..vault.vault import Vault

NOBODY = Proc(-1)


class LaunchEnded(BaseException):
    """The launch ends for this process: the job is given up, or launched again."""


@dataclass(frozen=True)
class Repaired:
    """The outcome of a repair in place, as one process saw it.

    Attributes:
        leader: this process has led the repair.
        round: number of the round in which it ended; it rises from repair to repair.
        kind: "causal": lost slots are replayed, the others go on; "rollback": all go back;
            "reentry": all go back, and a framework recovers.
        version: the checkpoint that they go on from; 0 is the start of the program.
        seconds, phases: times from the death on, without the replay.
        silent: no process had died, and no slot goes back.
        died: some process had died; only the leader knows this.
    """

    leader: bool
    round: int
    kind: str
    version: Version
    seconds: float
    phases: Phases
    silent: bool = False
    died: bool = True


@dataclass
class RepairProgress:
    """State of a process over the rounds of one repair.

    Attributes:
        flushed: its accesses are complete, and no process accesses a window before the repair ends.
        went_back: it has begun to go back in some round. Unless a further failure came, that round
            was the last one, and others may have left it; so this process goes back in every later
            round of this repair.
        eventful: some round was about a death, even if the last one is about none.
        died: this process led a round and found that some process had died.
    """

    flushed: bool = False
    went_back: bool = False
    eventful: bool = False
    died: bool = False


@dataclass
class RepairRound:
    """A round of repair as this process sees it.

    Attributes:
        view: the job as this process sees it.
        number: number of the round.
        vault: this process's vault; None on a spare that has allocated no memory ahead.
        progress: state of this process over all rounds of this repair.
        leader: process that makes the plan; known from the second meeting on.
        connect_asked: over several nodes: some process has asked for the slots' communicator.
        causal: the plan replays the lost slots, and the others go on.
        vault_lost: this process's vault must be computed from those of its group.
        met_s: for each phase, when its meeting was over, by the monotonic clock.
    """

    view: JobView
    number: int
    vault: Vault | None
    progress: RepairProgress = field(default_factory=RepairProgress)
    leader: Proc = NOBODY
    connect_asked: bool = False
    causal: bool = False
    vault_lost: bool = False
    met_s: dict[int, float] = field(default_factory=dict)

    @property
    def leads(self) -> bool:
        return self.leader == self.view.proc

    @property
    def holds_slot(self) -> bool:
        return self.view.role()[0] == SLOT

    @property
    def holds_checksum(self) -> bool:
        return self.view.role()[0] == CHECKSUM
