"""One round of repair as one process sees it: what it knows, and what it has done so far.

A failure is answered by one repair, which is tried in rounds until one ends with everybody.
`repair` has the steps of a round, `repair_steps` and `leading` have the actions.
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
        round: number of the round in which it ended, which rises from repair to repair.
        kind: "causal": lost slots are replayed, the others go on; "rollback": all go back;
            "reentry": all go back, and a framework recovers.
        version: of the checkpoint that they go on from; 0 is the start of the program.
        seconds, phases: from the death on, without the replay.
        silent: nobody had died, and nobody goes back.
        died: somebody had died; only the leader knows.
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
    """Things that a process has done in the rounds of one repair so far.

    Attributes:
        flushed: its accesses are complete, and nobody accesses anything before the repair ends.
        went_back: it has begun to go back in a round. Others may have left that round, which was
            the last one for this process unless a further failure came; so it goes back in every
            later round of this repair.
        eventful: a round was about a death, even if the last one is about none.
        died: the leader has found that somebody had died.
    """

    flushed: bool = False
    went_back: bool = False
    eventful: bool = False
    died: bool = False


@dataclass
class RepairRound:
    """A round of repair, in this process.

    Attributes:
        world: the job, as this process sees it.
        number: of the round.
        vault: of this process; None on a spare that has taken no memory ahead.
        progress: in all rounds of this repair.
        leader: process that makes the plan, from the second meeting on.
        connect_asked: over several nodes, somebody has asked for the slots' communicator.
        causal: the plan replays the lost slots, and the others go on.
        vault_lost: this process's vault must be computed from those of its group.
        met_s: when the meeting of each phase was over, by the monotonic clock.
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
