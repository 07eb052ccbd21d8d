"""Declares how a process sees its job: what `protocol` and `program` need, and no more.

`JobView` has five parts: who is who (`Membership`), words that all processes share (`words.Words`),
waiting for each other (`Meeting`), vaults and logs (`JobFiles`), and reports (`Reporting`). Three
classes implement `JobView` and keep the laws of ``tests/fabriclaws.py``:

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
    """Roles of the processes, and which processes are alive.

    Attributes:
        proc: position of this process in the MPI world.
        domains: failure domains of each process; None: all processes are on one node.
        aware: level up to which no domain may hold more than m members of a group.
        policy: what is done about the death of a slot: "auto", "causal" or "rollback".
        fresh: a rollback launches the job again, with fresh processes.
    """

    proc: Proc
    domains: Domains | None
    aware: str
    policy: str
    fresh: bool

    @property
    def layout(self) -> Layout:
        """Return the job's roles and groups."""

    def role(self) -> tuple[int, int]:
        """Return this process's role (SLOT, CHECKSUM, SPARE), and its number in that role."""

    def role_of(self, proc: Proc) -> tuple[int, int]:
        """Return the role of a process, and its number in that role."""

    def all_slots(self) -> list[Slot]:
        """Return all slots, in order."""

    def all_procs(self) -> list[Proc]:
        """Return all processes, in order."""

    def slot_holders(self) -> list[Proc]:
        """Return the process of each slot, in the slots' order."""

    def checksum_holders(self) -> list[Proc]:
        """Return the process of each checksum rank, in the ranks' order."""

    def spares(self) -> list[Proc]:
        """Return the living processes without a role, lowest first."""

    def set_holders(self, slots: Sequence[Proc], checksums: Sequence[Proc]) -> None:
        """Put new holders of the roles in force, by one store.

        Args:
            slots: the process of each slot.
            checksums: the process of each checksum rank.
        """

    def reach_holders(self) -> None:
        """Learn where the slots are, after new holders were put in force."""

    def alive(self, proc: Proc) -> bool:
        """Say whether no death of this process is known."""

    def ready(self, proc: Proc) -> bool:
        """Say whether a process is alive and its vault holds what its role must hold."""

    @property
    def several_nodes(self) -> bool:
        """Say whether the job runs over several nodes."""

    def host_of(self, proc: Proc) -> str:
        """Return the name of a process's host in a job over several nodes; else an empty string."""

    def lost_with_node(self, proc: Proc) -> bool:
        """Say whether a process died with its whole node, so that the node's memory is lost,
        too."""

    def slots_here(self) -> list[Slot]:
        """Return the slots whose holder is on this node."""

    @property
    def leads_node(self) -> bool:
        """Say whether this process is the lowest living one of its node."""

    def may_commit(self, checksum: int) -> bool:
        """Say whether this checksum rank (-1: a spare) may do what one process does for all.

        These tasks are to commit, and to report deaths.
        """

    def set_policy(self, policy: str, *, fresh: bool) -> None:
        """Set what the user wants to be done about failures.

        Args:
            policy: see the attribute.
            fresh: see the attribute.
        """

    def logs_accesses(self, *, trace: bool) -> bool:
        """Say whether slots log their accesses, for replays or because a trace is wanted."""

    def set_claimant(self, name: str, bits: int) -> None:
        """Note that from now on a framework recovers; all slots do so with the same arguments."""

    @property
    def claimant(self) -> str:
        """Return the name of the framework that recovers; empty if there is none."""

    @property
    def tells_deaths(self) -> bool:
        """Say whether deaths in this attempt are only told to the framework, and not repaired."""

    def tell_deaths(self, tells: bool) -> None:
        """Set whether the framework is told of deaths. Slot 0 sets it when all have claimed; the
        leader of a repair in which all go back unsets it, and from then on spares take seats
        again."""

    @property
    def keeps_seats(self) -> bool:
        """Say whether spares take no seats of checksum ranks in this attempt."""

    def keep_seats(self) -> None:
        """Let spares take no such seats any more; slot 0 calls this before deaths are told."""

    @property
    def may_forfeit(self) -> bool:
        """Say whether the framework recovers even without a checkpoint."""


class Meeting(Protocol):
    """Waits for other processes; all of them end when a process fails."""

    def visit(self, place: str) -> None:
        """Pass a named place, where a ``--kill`` rule may strike."""

    def visit_named(self, place: str) -> None:
        """Pass a place that a framework has named, where a ``--kill`` rule may strike."""

    def alarmed(self) -> bool:
        """Say whether a failure is pending that is to be repaired."""

    def is_ending(self) -> bool:
        """Say whether the job is ending."""

    def unwind_if_alarmed(self) -> None:
        """Raise Rollback if a failure is pending that cannot be repaired in place."""

    def barrier(self) -> None:
        """Wait for all slots; raise Rollback if a failure comes first. Slots only."""

    def slot_that_differs(self, value: int) -> int | None:
        """Compare a value over all slots; return a slot that gave a different one, or None."""

    def end_program(self) -> None:
        """Wait for all slots at the program's end; raise Rollback if a failure comes first."""

    def requested_round(self) -> int:
        """Return the number of the newest repair round that was asked for; 0 if none was."""

    def begin_round(self) -> int:
        """Begin the newest repair round that was asked for, and return its number."""

    def meet(self, round_number: int, phase: int, *, planned: bool = True) -> None:
        """Wait for all living processes at a phase of repair; raise RoundChanged at another
        failure.

        Args:
            round_number: the number that `begin_round` returned.
            phase: 1 or more, and more than at the meeting before in this round.
            planned: all holders of roles must be alive.
        """

    def synchronize(self) -> None:
        """Wait until what this process has stored has its place in the order of all nodes' stores.

        Everything before that place can then be read. If two processes each store a word, call
        this, and then read the other's word, at least one of them sees what the other has stored.
        """

    def raise_alarm(self, round_number: int) -> None:
        """Ask for the round of repair after this one, unless it was already asked for."""

    def leave_round(self, round_number: int) -> None:
        """Note that this process has left a round of repair that all processes have finished."""

    @property
    def bell(self) -> int:
        """Return a word that changes whenever the bell is rung."""

    def ring(self) -> None:
        """Ring the bell: checksum ranks, spares and waiting processes look again."""

    def wait_for_bell(self, seen: int, timeout_us: int) -> None:
        """Sleep until the bell is rung; `seen` is the value of `bell` that was read before."""

    def arrive(self, ordinal: int, *, targeted: bool) -> job.Wait:
        """Wait for all slots at a safepoint. Slots only.

        Args:
            ordinal: the safepoint's number.
            targeted: stop waiting if `Words.checkpoint_target` moves on.

        Returns:
            OK; ALARM at a failure; TIMEOUT if no checkpoint is to be taken at this safepoint.
        """

    def admit(self, version: Version, *, wait: bool = True) -> bool:
        """Announce that this slot stages a version, once no parity hinders it.

        Args:
            wait: wait until all parities are at the version before and none is being computed;
                without this, only look whether that is so now.

        Returns:
            True if the version was announced.
        """

    def await_staged(self, version: Version) -> bool:
        """Wait until all slots have staged a version; False if a failure came first."""


class JobFiles(Protocol):
    """Vaults and logs of the job's processes, on this node and on others.

    Attributes:
        directory: the job's directory on this node.
        remote_files: the way to files on other nodes; None: all processes are on this node.
        post_office: opens mails of frameworks over several nodes; None: as for `remote_files`.
        mapped_vaults: vaults of other processes that this process has mapped.
        critical: lock that is held while a vault must not be left half written.
    """

    directory: Path
    remote_files: remote.Files | None
    post_office: PostOffice | None
    mapped_vaults: dict[Proc, Any]
    critical: contextlib.AbstractContextManager[Any]

    def seal(self, version: int | str) -> Seal:
        """Return the seal that binds a record of this process's slot to a checkpoint of this
        version."""

    def vault_path(self, proc: Proc) -> Path:
        """Return the path of a process's vault, if the process is on this node."""

    def rename_vault(self) -> None:
        """Rename this process's vault after the role that the process has now."""

    def share_vault(self) -> None:
        """Let other nodes read this process's vault."""

    def put_vault_aside(self, proc: Proc) -> None:
        """Move a dead process's vault out of reach; freeing its memory takes longer and can
        wait."""

    def free_lost_vaults(self) -> None:
        """Free the memory of vaults that are out of reach."""

    def remove_moved_vaults(self) -> None:
        """Remove vaults and demand checkpoints of roles that are now on other nodes."""

    @property
    def takeover_pending(self) -> bool:
        """Say whether the vaults of the launch before still count, since not all are taken over
        yet."""

    def finish_takeover(self) -> None:
        """Note that every role's vault is with its process."""

    def mark_vault_lost(self, at: int) -> None:
        """Note that a vault of the launch before is about to go.

        Args:
            at: number of its role: slots are counted first, then checksum ranks.
        """

    def is_vault_lost(self, at: int) -> bool:
        """Say whether the vault of a role, numbered as in `mark_vault_lost`, did not survive."""

    def share_log(self, slot: Slot) -> None:
        """Let other nodes read the log of a slot."""

    def fetch_log(self, slot: Slot) -> None:
        """Bring the put log of a slot to this node; call this only while nobody writes to it."""

    def hold_accesses(self) -> None:
        """Hold back other nodes' accesses to dead slots of this node; its first process does
        this."""

    def release_accesses_to(self, slot: Slot) -> None:
        """Let accesses to a slot that was replayed go on."""

    def release_accesses(self, *, causally: bool) -> None:
        """Let held accesses go on; the first process of a node does this.

        Args:
            causally: let only accesses to slots that are not replayed go on; else all.
        """


class Reporting(Protocol):
    """Reports to the user, to the supervisor, and to readers of the job's story."""

    def emit(self, event: Event) -> None:
        """Append one event to the job's story."""

    def events(self) -> list[Event]:
        """Return the job's story so far."""

    def tell(self, text: str) -> None:
        """Write one line for users, on their stderr."""

    def place_of_kill(self, role: int, index: int) -> str:
        """Return the place where a ``--kill`` rule struck a role, only once; "unknown" if none
        did."""

    def open_trace(self) -> None:
        """Begin to record this process's events for the trace."""

    def trace_of_late(self, number: int) -> int:
        """Open a descriptor for the trace of a process that this process starts; raise OSError if
        it fails."""

    def begin_attempt(self, number: int) -> None:
        """Begin an attempt, as the leader of a repair; no earlier error counts as the job's any
        more."""

    def end_attempt(self, number: int) -> None:
        """Forget what belongs to the attempt that ends in this round of repair."""

    def report_plan(self, number: int) -> None:
        """Tell the supervisor, as the leader, that the plan of a repair is being carried out."""

    def report_work(self) -> contextlib.AbstractContextManager[None]:
        """Tell the supervisor, while this context is open, that a repair brings or computes
        bytes."""

    def report_repaired(self, number: int) -> None:
        """Tell the supervisor, as the leader, that a repair is over."""

    def report_lost_spare(self, proc: Proc) -> None:
        """Tell the supervisor that a spare is dead and nothing is to be repaired."""

    def claim_error(self, *, meanwhile: Callable[[], object] | None = None) -> bool:
        """Return True in the one process whose error is the job's, until it dies or all slots go
        back.

        Args:
            meanwhile: called again and again for a moment, since the error may be due to a failure
                that is not known yet; its exceptions pass through.
        """

    def release_error(self) -> None:
        """Note that the error of this process is not the job's after all."""

    @property
    def plan(self) -> PublishedPlan:
        """Return the newest plan that a repair has made."""

    def publish_plan(self, plan: PublishedPlan) -> None:
        """Put a plan in force, as the leader of a repair."""

    def abort(self, status: int) -> None:
        """Ask for the end of the whole job with this status."""

    def ask_for_end(self, request: job.Request, status: int, why: str) -> None:
        """Have the supervisor end the launch.

        Args:
            request: ABORT or RELAUNCH.
            status: the job's exit status.
            why: the reason, in words.
        """

    def ask_for_relaunch(self, reason: str) -> None:
        """Have the supervisor launch the job again, unless it is asked for something already."""

    def why_relaunch(self) -> str:
        """Return the reason why the job asks for a relaunch."""

    def leave(self) -> None:
        """Leave the job, as the last thing that this process does after it has ended well."""


class JobView(Membership, Meeting, JobFiles, Reporting, Protocol):
    """The job as one of its processes sees it.

    Attributes:
        words: the words that all processes share.
    """

    @property
    def words(self) -> Words: ...
