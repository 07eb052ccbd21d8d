"""Declares how a process of a job sees the job: what protocols and program need, and no more.

`JobView` consists of five protocols: who is who (`Membership`), words that all processes share
(`words.Words`), waits for each other (`Meeting`), vaults and logs (`JobFiles`), and reports
(`Reporting`). Three classes implement `JobView` and keep the laws of ``tests/fabriclaws.py``:

* `one_node.OneNodeView`, by a control file that all processes of one node map;
* `several_nodes.SeveralNodesView`, by a control file on each node; the nodes' agents keep the words
  in these files equal;
* ``tests/fakefabric.py``, whose processes are threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..host.record import Seal
from ..machine.topology import Domains, Layout
from ..native import job
from ..native.shared import Proc, Slot, Version
from .plans import PublishedPlan
from .story import Event
from .words import Words

if TYPE_CHECKING:  # a job on one node does without all that these load
    from . import remote
    from .post_office import PostOffice


class Membership(Protocol):
    """Roles of the processes, and which processes live.

    Attributes:
        proc: position of this process in the MPI world.
        domains: failure domains of each process; None: all processes are on one node.
        aware: level up to which no domain is to have too much of a group.
        policy: what is done about the death of a slot: "auto", "causal" or "rollback".
        fresh: all go back by being launched again, not in the same processes.
    """

    proc: Proc
    domains: Domains | None
    aware: str
    policy: str
    fresh: bool

    @property
    def layout(self) -> Layout:
        """Roles and groups of the job."""

    def role(self) -> tuple[int, int]:
        """This process's role (SLOT, CHECKSUM, SPARE) and its slot, checksum or spare number."""

    def role_of(self, proc: Proc) -> tuple[int, int]:
        """Role of a process, and its number in that role."""

    def all_slots(self) -> list[Slot]:
        """All slots, in their order."""

    def all_procs(self) -> list[Proc]:
        """All processes, in their order."""

    def slot_holders(self) -> list[Proc]:
        """Processes of the slots, in the slots' order."""

    def checksum_holders(self) -> list[Proc]:
        """Processes of the checksum ranks, in their order."""

    def spares(self) -> list[Proc]:
        """Living processes without a role, lowest first."""

    def set_holders(self, slots: Sequence[Proc], checksums: Sequence[Proc]) -> None:
        """Put other holders of the roles in force, by one store.

        Args:
            slots: process of each slot.
            checksums: process of each checksum rank.
        """

    def reach_holders(self) -> None:
        """Learn where the slots are after other holders are in force."""

    def alive(self, proc: Proc) -> bool:
        """No death of this process is known."""

    def ready(self, proc: Proc) -> bool:
        """A living process's vault holds what its role must hold."""

    @property
    def several_nodes(self) -> bool:
        """The job runs over several nodes."""

    def host_of(self, proc: Proc) -> str:
        """Name of the host of a process, in a job over several nodes; else empty."""

    def lost_with_node(self, proc: Proc) -> bool:
        """A process has died with all of its node, and with it what the node's memory had."""

    def slots_here(self) -> list[Slot]:
        """Slots whose holder is on this node."""

    @property
    def leads_node(self) -> bool:
        """This process is the lowest living one of its node."""

    def may_commit(self, checksum: int) -> bool:
        """This checksum rank (-1: a spare) may do what one process does for all.

        That is to commit, and to report deaths.
        """

    def set_policy(self, policy: str, *, fresh: bool) -> None:
        """Take what the user wants done about failures.

        Args:
            policy: as the attribute.
            fresh: as the attribute.
        """

    def logs_accesses(self, *, trace: bool) -> bool:
        """Slots log their accesses: for replays, or because a trace is wanted."""

    def set_claimant(self, name: str, bits: int) -> None:
        """Note that a framework recovers from now on; all slots say the same."""

    @property
    def claimant(self) -> str:
        """The framework that recovers; empty if there is none."""

    @property
    def tells_deaths(self) -> bool:
        """The framework is told of deaths, in this attempt; nothing else is done about them."""

    def tell_deaths(self, tells: bool) -> None:
        """Have the framework told of deaths from now on, as slot 0 once all have claimed; or not
        any more, as the leader of a repair in which all go back: then seats are taken again."""

    @property
    def keeps_seats(self) -> bool:
        """No spare takes the seat of a checksum rank, in this attempt."""

    def keep_seats(self) -> None:
        """Have no spare take such a seat any more, as slot 0 before deaths are told."""

    @property
    def may_forfeit(self) -> bool:
        """The framework recovers also without a checkpoint."""


class Meeting(Protocol):
    """Waits for other processes, which end when somebody fails."""

    def visit(self, place: str) -> None:
        """Be at a named place, where a ``--kill`` rule may strike."""

    def visit_named(self, place: str) -> None:
        """Be at a place of a framework, where a ``--kill`` rule may strike."""

    def alarmed(self) -> bool:
        """A failure is pending that is to be repaired."""

    def is_ending(self) -> bool:
        """The job ends."""

    def unwind_if_alarmed(self) -> None:
        """Raise Rollback if a failure is pending that cannot be repaired in place."""

    def barrier(self) -> None:
        """Wait for all slots; raises Rollback when a failure comes first. Slots only."""

    def slot_that_differs(self, value: int) -> int | None:
        """Compare a value over all slots; returns a slot that gave another one, or None."""

    def end_program(self) -> None:
        """Wait for all slots at the program's end; raises Rollback when a failure comes first."""

    def requested_round(self) -> int:
        """Number of the newest repair round that was asked for; 0 if none was."""

    def begin_round(self) -> int:
        """Begin the newest round of repair that was asked for; returns its number."""

    def meet(self, round_number: int, phase: int, *, planned: bool = True) -> None:
        """Wait for all the living at a phase of repair; raises RoundChanged at another failure.

        Args:
            round_number: as `begin_round` gave it.
            phase: 1 or more, and more than at the meeting before in this round.
            planned: all who hold a role must live.
        """

    def synchronize(self) -> None:
        """Wait until what this process has stored has its place in the order of all nodes' stores.

        All that is before it there can be read then. Of two processes that each store a word, do
        so, and read the other's, at least one sees what the other has stored.
        """

    def raise_alarm(self, round_number: int) -> None:
        """Ask for the round of repair after this one, unless it was asked for."""

    def leave_round(self, round_number: int) -> None:
        """Note that this process has left a round of repair, which has ended with everybody."""

    @property
    def bell(self) -> int:
        """Word that changes whenever the bell is rung."""

    def ring(self) -> None:
        """Ring the bell: checksum ranks, spares and waiting processes look again."""

    def wait_for_bell(self, seen: int, timeout_us: int) -> None:
        """Sleep until the bell is rung; `seen` is `bell` as it was read before."""

    def arrive(self, ordinal: int, *, targeted: bool) -> job.Wait:
        """Wait for all slots at a safepoint. Slots only.

        Args:
            ordinal: of the safepoint.
            targeted: stop waiting if `Words.checkpoint_target` moves on.

        Returns:
            OK; ALARM at a failure; TIMEOUT if no checkpoint is taken at this safepoint.
        """

    def admit(self, version: Version, *, wait: bool = True) -> bool:
        """Announce that this slot stages a version, once no parity hinders it.

        Args:
            wait: until all parities are at the version before and none is being computed; else
                only look whether it is so now.

        Returns:
            False if a failure came first, or it is not so now.
        """

    def await_staged(self, version: Version) -> bool:
        """Wait until all slots have staged a version; False if a failure came first."""


class JobFiles(Protocol):
    """Vaults and logs of the job's processes, on this node and on others.

    Attributes:
        directory: of the job on this node.
        remote_files: the way to files on other nodes; None: all processes are on this node.
        post_office: opens mails of frameworks over several nodes; None: see above.
        mapped_vaults: vaults of other processes that this one has mapped.
        critical: held while a vault is written that must not be left half written.
    """

    directory: Path
    remote_files: remote.Files | None
    post_office: PostOffice | None
    mapped_vaults: dict[Proc, Any]
    critical: contextlib.AbstractContextManager[Any]

    def seal(self, version: int | str) -> Seal:
        """Bind the record of this process's slot to a checkpoint of this version."""

    def vault_path(self, proc: Proc) -> Path:
        """File of a process's vault, if the process is on this node."""

    def rename_vault(self) -> None:
        """Name this process's vault after the role to which the process has come."""

    def share_vault(self) -> None:
        """Let other nodes read this process's vault."""

    def put_vault_aside(self, proc: Proc) -> None:
        """Put a dead process's vault out of reach; freeing its memory takes longer and can wait."""

    def free_lost_vaults(self) -> None:
        """Free the memory of vaults that are out of reach."""

    def remove_moved_vaults(self) -> None:
        """Remove vaults and demand checkpoints of roles that are on other nodes now."""

    @property
    def takeover_pending(self) -> bool:
        """The vaults of the launch before are not taken over by all yet, and are the truth."""

    def finish_takeover(self) -> None:
        """Note that every role's vault is with its process."""

    def mark_vault_lost(self, at: int) -> None:
        """Note that a vault of the launch before is about to go.

        Args:
            at: its role: slots, then checksum ranks.
        """

    def is_vault_lost(self, at: int) -> bool:
        """The vault of a role, numbered as in `mark_vault_lost`, did not survive."""

    def share_log(self, slot: Slot) -> None:
        """Let other nodes read the log of a slot."""

    def fetch_log(self, slot: Slot) -> None:
        """Have the put log of a slot on this node; only while nobody writes to it."""

    def hold_accesses(self) -> None:
        """Have accesses of other nodes to dead slots wait, as the first of a node."""

    def release_accesses_to(self, slot: Slot) -> None:
        """Let accesses to a slot that has been replayed go on."""

    def release_accesses(self, *, causally: bool) -> None:
        """Let accesses go on, as the first of a node.

        Args:
            causally: only those to slots that are not replayed; else all.
        """


class Reporting(Protocol):
    """Reports to the user, to the supervisor, and to readers of the job's story."""

    def emit(self, event: Event) -> None:
        """Append one event to the job's story."""

    def events(self) -> list[Event]:
        """The job's story so far."""

    def tell(self, text: str) -> None:
        """Write one line for people, on the user's stderr."""

    def place_of_kill(self, role: int, index: int) -> str:
        """Place where a ``--kill`` rule struck a role, once; "unknown" if none did."""

    def open_trace(self) -> None:
        """Have this process's events recorded."""

    def trace_of_late(self, number: int) -> int:
        """Open a descriptor for the trace of a process that this one starts; raises OSError."""

    def begin_attempt(self, number: int) -> None:
        """Begin an attempt, as the leader of a repair; no error of before is the job's."""

    def end_attempt(self, number: int) -> None:
        """Have forgotten what belongs to the attempt that ends in this round of repair."""

    def report_plan(self, number: int) -> None:
        """Tell, as the leader, that the plan of a repair is being carried out."""

    def report_work(self) -> contextlib.AbstractContextManager[None]:
        """Tell, while this is open, that a repair brings or computes bytes."""

    def report_repaired(self, number: int) -> None:
        """Tell, as the leader, that a repair is over."""

    def report_lost_spare(self, proc: Proc) -> None:
        """Tell that a spare is dead, and nothing is to be repaired."""

    def claim_error(self, *, meanwhile: Callable[[], object] | None = None) -> bool:
        """True for the one process whose error is the job's, until it dies or all go back.

        Args:
            meanwhile: is called again and again for a moment, since the error may come of a failure
                that is not known yet; what it raises passes.
        """

    def release_error(self) -> None:
        """The error of this process is not the job's, after all."""

    @property
    def plan(self) -> PublishedPlan:
        """The newest plan that a repair has made."""

    def publish_plan(self, plan: PublishedPlan) -> None:
        """Put a plan in force, as the leader of a repair."""

    def abort(self, status: int) -> None:
        """Ask for the end of the whole job with this status."""

    def ask_for_end(self, request: job.Request, status: int, why: str) -> None:
        """Have the supervisor end the launch.

        Args:
            request: ABORT or RELAUNCH.
            status: of the job.
            why: in words.
        """

    def ask_for_relaunch(self, reason: str) -> None:
        """Have the supervisor launch the job again, unless it is asked for something already."""

    def why_relaunch(self) -> str:
        """The reason for which the job asks for a relaunch."""

    def leave(self) -> None:
        """The last that this process does in the job, after it has ended well."""


class JobView(Membership, Meeting, JobFiles, Reporting, Protocol):
    """The job as one of its processes sees it.

    Attributes:
        words: that all processes share.
    """

    @property
    def words(self) -> Words: ...
