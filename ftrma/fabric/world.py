"""The job as one process sees it: roles, membership, files, plan, events.

`base.Fabric` on one node, and what the protocols need beyond it: a thin view of the
control file (see ``csrc/ftrma.h``). It holds facts and waits; what to do about them is decided in
`protocol`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Rollback
from ..host import cgroup, lineoutput
from ..host.key import Key
from ..host.lock import lock_shared
from ..host.private import check_directory
from ..host.record import Seal
from ..machine.topology import NO_LEVEL, Domains, Layout
from ..native import job, logs, vaults
from ..native.constants import CLAIM_FORFEIT, FAILPOINTS, NAME_BYTES
from ..native.shared import Control, Proc, Process, Roles, Slot, Version
from . import plans, story
from .base import RoundChanged

if TYPE_CHECKING:
    from .remote import Files

SETTLE_S = 0.1  # so long a death may be unknown that shows as an error elsewhere
LOOK_S = 0.005  # how often it is looked whether one is known now


class World:
    """One process's place in the job.

    Args:
        directory: of the job's memory files.
        key: of the job.
        proc: position of this process in the MPI world.
        ctl: the control file, if it is not the one in the directory.

    Attributes:
        policy: "auto", "causal" or "rollback".
        fresh: all go back by being launched again, not in the same processes.
        domains, aware: elements of each process, and up to which no group is to have too much in
            one; None and "none" on one node.
        critical: held while a vault is written that must not be left half written, where the
            launch is ended otherwise than by a signal to each process.
        files: the way to what other nodes' processes have; None: all are on this node.
    """

    policy = "rollback"
    fresh = False
    domains: Domains | None = None
    aware = NO_LEVEL
    critical: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    files: Files | None = None

    def __init__(
        self, directory: Path, key: Key, proc: Proc, ctl: Control | None = None
    ) -> None:
        check_directory(directory)
        self.directory, self.key = directory, key
        self.lock = lock_shared(self.of_job(directory))
        os.register_at_fork(after_in_child=self.lock.close)
        self.proc = proc
        self.ctl = ctl or job.open_control(directory / "control")
        job.join(self.ctl, proc, directory)
        self.mapped: dict[Proc, Any] = {}  # vaults of other processes, see group.mapped_vault

    @staticmethod
    def of_job(directory: Path) -> Path:
        """The job's directory on this node."""
        return directory

    # -- roles --------------------------------------------------------------------------------

    def role(self) -> tuple[int, int]:
        """This process's role (SLOT, CHECKSUM, SPARE) and its slot, checksum or spare number."""
        return job.my_role()

    @property
    def roles(self) -> Roles:
        return self.ctl.roles[self.ctl.roles_seq & 1]

    def slots_of_job(self) -> list[Slot]:
        return [Slot(s) for s in range(self.ctl.nslots)]

    def slots_here(self) -> list[Slot]:
        """Slots whose holder is on this node."""
        return self.slots_of_job()

    def procs_of_job(self) -> list[Proc]:
        return [Proc(p) for p in range(self.ctl.nprocs)]

    def holders(self) -> list[Proc]:
        """Processes of the slots, in their order."""
        return [self.roles.slot_proc[s] for s in range(self.ctl.nslots)]

    def servers(self) -> list[Proc]:
        """Processes of the checksum ranks, in their order."""
        return [self.roles.checksum_proc[c] for c in range(self.ctl.nchecksums)]

    @property
    def me(self) -> Process:
        return self.ctl.proc[self.proc]

    def alive(self, proc: Proc) -> bool:
        return proc >= 0 and self.ctl.proc[proc].state == job.State.ALIVE

    def choose(self, policy: str, *, fresh: bool) -> None:
        """Take what the user wants done about failures."""
        self.policy, self.fresh = policy, fresh

    def place_vault(self) -> None:
        """Let other nodes read this process's vault."""
        if self.files:
            self.files.place_vault(self.proc, self.vault_path(self.proc))

    def begin_entry(self, number: int) -> None:
        """The program is entered anew by all slots: no error of before is the job's."""
        self.ctl.error_owner = 0
        self.store("attempt", number)

    def open_trace(self) -> None:
        """Have this process's events recorded."""
        logs.trace_open()

    def logs(self, *, trace: bool) -> bool:
        """Whether slots log their accesses: for replays, or because a trace is wanted."""
        return trace or self.policy != "rollback"

    def claim(self, name: str, bits: int) -> None:
        """A framework recovers from now on; all slots say the same."""
        job.write_bytes(self.ctl.claimant, name.encode().ljust(NAME_BYTES, b"\0"))
        self.store("claim", bits)

    @property
    def claimant(self) -> str:
        """The framework that recovers; empty if there is none."""
        return job.text(self.ctl.claimant) if self.load("claim") else ""

    @property
    def forfeits(self) -> bool:
        """It does so also without a checkpoint."""
        return bool(self.load("claim") & CLAIM_FORFEIT)

    def seal(self, version: int | str) -> Seal:
        """What the record of this process's slot is bound to, in a checkpoint of this version."""
        return Seal(self.key, f"slot {self.role()[1]}", str(version))

    def members(self, group: int) -> list[Slot]:
        """Slots of a group, in the order of the code's columns."""
        return [s for s in self.slots_of_job() if self.roles.slot_group[s] == group]

    def group_of_checksum(self, checksum: int) -> int:
        return checksum // self.ctl.strength

    def checksums_of(self, group: int) -> range:
        """Checksum ranks of a group, in the order of its parities."""
        return range(group * self.ctl.strength, (group + 1) * self.ctl.strength)

    def ready(self, proc: Proc) -> bool:
        """A living process's vault holds what its role must hold."""
        return self.alive(proc) and bool(self.ctl.proc[proc].ready)

    def spares(self) -> list[Proc]:
        """Living processes without a role, lowest first."""
        busy = {*self.holders(), *self.servers()}
        return [p for p in self.procs_of_job() if p not in busy and self.alive(p)]

    @property
    def committed(self) -> Version:
        return Version(self.load("commit") >> 1)

    def load(self, name: str) -> int:
        """Read a word of the control file that others write."""
        return job.load(self.ctl, name)

    def ending(self) -> bool:
        return self.load("alarm") == job.ENDED

    def store(self, name: str, value: int) -> None:
        job.store(self.ctl, name, value)

    def exchange(self, name: str, expected: int, desired: int) -> bool:
        """Compare and swap a word of the control file; whether it was exchanged."""
        return job.exchange(self.ctl, name, expected, desired)

    def put(self, name: str, value: int) -> None:
        """Store a word of this process's own entry."""
        job.store(self.me, name, value)

    # -- who may, of those that could -----------------------------------------------------------

    def commits(self, checksum: int) -> bool:
        """Whether this checksum rank (-1: a spare) may do what one of all does: commit, report."""
        return True

    def freeze(self) -> None:
        """From here to the end of repair no version is committed."""
        word = self.load("commit")
        while not word & 1:
            self.exchange("commit", word, word | 1)
            word = self.load("commit")

    def synchronize(self) -> None:
        """Wait until all that this process has stored is seen, in one order for all who do so."""

    def take_seat(self) -> None:
        """Roles are new."""

    def begin_round(self) -> int:
        """The newest round of repair that is asked for; what rang for it is heard."""
        return self.round_asked()

    def hold(self) -> None:
        """Have accesses of other nodes to slots that are dead wait, as the first of a node."""

    def live(self, slot: Slot) -> None:
        """A slot has been replayed: such accesses go on."""

    def let_on(self, *, causally: bool) -> None:
        """Have them go on, as the first of a node: to slots that are not replayed, or to all."""

    def place_log(self, slot: Slot) -> None:
        """The log of a slot is there, for others to read."""

    def fetch_log(self, slot: Slot) -> None:
        """Have the put log of a slot on this node; only while nobody writes to it."""

    def new_timeline(self, number: int) -> None:
        """All go back, in this round of repair; again for who has been told of it."""

    def repairing(self, number: int) -> None:
        """A round of repair has a plan that is being carried out: the leader says so."""

    def working(self) -> contextlib.AbstractContextManager[None]:
        """While it is open, a repair is bringing or computing bytes, which takes its time."""
        return contextlib.nullcontext()

    def repaired(self, number: int) -> None:
        """A round of repair is over: the leader says so."""

    def lost_spare(self, proc: Proc) -> None:
        """A spare is dead, and nothing is to be repaired."""

    # -- waits --------------------------------------------------------------------------------

    def visit(self, place: str) -> None:
        job.visit(FAILPOINTS[place])

    def visit_named(self, place: str) -> None:
        job.visit_named(place)

    def alarmed(self) -> bool:
        return job.alarmed()

    def unwind_if_alarmed(self) -> None:
        """Have a pending failure repaired; raises Rollback unless that was possible in place.

        It does so too in a thread of an earlier attempt, which can have nothing repaired.
        """
        if job.must_unwind():
            raise Rollback("a process failed")

    def barrier(self) -> None:
        """Wait for all slots; raises Rollback when a failure comes first."""
        if not job.slots_barrier():
            raise Rollback("a process failed")

    def same_everywhere(self, value: int) -> int | None:
        """Compare a value over all slots; returns a slot that gave another one, or None."""
        if logs.replay_over():  # what is only replayed others have compared
            self.put("protect_hash", value)
        self.barrier()
        if logs.mode() is not logs.Mode.LIVE:
            self.barrier()
            return None  # it was compared in the past that is being replayed
        theirs = [self.ctl.proc[p].protect_hash for p in self.holders()]
        different = next((s for s, v in enumerate(theirs) if v != value), None)
        if different is None:
            self.barrier()  # nobody gives the next value before all have seen this one
        return different

    def end_program(self) -> None:
        """Wait for all slots at the program's end; raises Rollback when a failure comes first."""
        if not job.end_program():
            raise Rollback("a process failed")

    def round_asked(self) -> int:
        """Number of the newest repair round that was asked for; 0 if none was."""
        return self.load("alarm")

    def meet(self, round_number: int, phase: int, *, planned: bool = True) -> None:
        """Wait for all the living at a phase of repair; raises RoundChanged at another failure."""
        if not job.meet(round_number, phase, planned=planned):
            raise RoundChanged

    # -- files --------------------------------------------------------------------------------

    def vault_path(self, proc: Proc) -> Path:
        return self.directory / f"vault-{proc}"

    def name_vault(self) -> None:
        """This process has come to a role."""

    def tidy(self) -> None:
        """A repair is over: nothing of before it is needed."""

    def host_of(self, proc: Proc) -> str:
        """Name of the host of a process, in a job over several nodes."""
        return ""

    @property
    def leads_node(self) -> bool:
        """This process is the lowest living one of its node."""
        return self.proc == min(p for p in self.procs_of_job() if self.alive(p))

    @property
    def offered(self) -> bool:
        """The vaults of the launch before are not taken over by all yet, and are the truth."""
        return bool(self.ctl.takeover == job.Takeover.OFFERED)

    def taken_over(self) -> None:
        """Every role's vault is with its process: whoever dies from now on takes it along."""
        if self.offered:
            self.ctl.takeover = job.Takeover.DONE

    def give_up_vault(self, at: int) -> None:
        """A vault of the launch before is about to go: the launch after this one cannot have it.

        Args:
            at: its role: slots, then checksum ranks.
        """
        self.ctl.lost[at] = 1

    def lose_vault(self, proc: Proc) -> None:
        """Put a dead process's vault out of reach; freeing its memory takes longer and can wait."""
        for at, holder in enumerate([*self.holders(), *self.servers()]):
            if holder == proc and self.offered:
                self.give_up_vault(at)
        with contextlib.suppress(FileNotFoundError):
            self.vault_path(proc).rename(self.directory / f"lost-{proc}")

    def free_lost_vaults(self) -> None:
        for path in self.directory.glob("lost-*"):
            path.unlink(missing_ok=True)

    # -- the supervisor -------------------------------------------------------------------------

    def claim_error(self, *, meanwhile: Callable[[], object] | None = None) -> bool:
        """True for the one process whose error is the job's."""
        settled = time.monotonic() + SETTLE_S
        while meanwhile:
            meanwhile()
            if self.ctl.error_owner or time.monotonic() > settled:
                break
            time.sleep(LOOK_S)
        job.claim_error()
        return self.ctl.error_owner == self.proc + 1

    def release_error(self) -> None:
        """The error of this process is not the job's, after all."""
        if self.ctl.error_owner == self.proc + 1:
            self.ctl.error_owner = 0

    def abort(self, status: int) -> None:
        """Ask for the end of the whole job with this status."""
        self.ctl.exit_status = status
        self.store("request", job.Request.ABORT)

    def ask_for_end(self, request: job.Request, status: int) -> None:
        """Have the supervisor end the launch, as the plan in force says it."""
        self.ctl.exit_status = status
        self.store("request", request)

    def ask_for_relaunch(self, reason: str) -> None:
        """Have the supervisor launch the job again, unless it is asked for something already."""
        plans.ask_for_relaunch(self.ctl, self.proc, reason)

    def why_relaunch(self) -> str:
        """The reason for which the job asks for a relaunch."""
        return plans.why_relaunch(self.ctl)

    @property
    def plan(self) -> plans.PublishedPlan:
        """The newest plan that a repair has made."""
        return plans.in_force(self.ctl)

    def publish_plan(self, plan: plans.PublishedPlan) -> None:
        """Put a plan in force, as the leader of a repair."""
        plans.publish(self.ctl, plan)

    def leave(self) -> None:
        """The last that this process does in the job, after it has ended well."""

    def events(self) -> list[story.Event]:
        """The job's story so far."""
        return story.read(self.directory)

    def emit(self, event: story.Event) -> None:
        """Append an event to the job's story."""
        story.emit(self.directory, event)

    def tell(self, text: str) -> None:
        """One line for people, on the user's stderr, whatever the program has made of sys.stderr;
        where it cannot be written nobody is told."""
        with contextlib.suppress(OSError):
            lineoutput.put(2, f"ftrma: {text}\n".encode(errors="backslashreplace"))


ADDRESS_BYTES = 64 << 40  # half of what a process can have on x86-64


def capacity_blocks(processes: int, layout: Layout) -> int:
    """Blocks of a new vault: as much as the machine has memory; the file is sparse.

    A process may map all vaults of its node, and images of all of its group, at once: where they
    would not fit beside each other, a vault has less.

    Args:
        processes: on this node.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4096
    share = ADDRESS_BYTES // (processes + layout.group_size + layout.strength)
    return min(memory, share // vaults.block_bytes(layout.group_size))


LOG_BYTES = 64 << 20  # default budget: some seconds of puts of a program that does little else
LOG_SHARE = 8  # all logs together take at most this part of the free shared memory by default


def log_bytes(directory: Path, slots: int, least: int) -> int:
    """Default budget of each slot's logs, bytes."""
    room, allowed = os.statvfs(directory), cgroup.room_bytes()
    free = room.f_bavail * room.f_frsize
    share = (free if allowed is None else min(free, allowed)) // LOG_SHARE // slots
    return max(least, min(LOG_BYTES, share))


def check_log_budget(budget: int | None) -> None:
    """Refuse a budget of logs that holds next to nothing."""
    least = logs.log_least()
    if budget is not None and budget < least:
        raise ValueError(
            f"--log-budget {budget}: too small for a slot's access logs; give {least} bytes or more"
        )


def make_control(
    path: Path, layout: Layout, log_budget: int | None = None, processes: int | None = None
) -> Control:
    """Make a job's control file.

    Args:
        log_budget: of each slot's logs, bytes; None: the default.
        processes: on this node; None: all.
    """
    ctl = job.make_control(path, layout.processes, layout.slots, layout.groups, layout.strength,
                           layout.group_size,
                           capacity_blocks(processes or layout.processes, layout))
    ctl.log_bytes = log_budget or log_bytes(path.parent, layout.slots, logs.log_least())
    for slot in range(layout.slots):
        ctl.roles[0].slot_group[slot] = layout.group_of(slot)
    return ctl
