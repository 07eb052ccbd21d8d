"""Implements the view of a job on one node by the control file.

The control file is shared memory (see ``csrc/shared.h``), so this class is thin: it reads and
writes facts and waits. `protocol` decides what is done about them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..host import lineoutput, messages, private
from ..host.errors import Rollback
from ..host.key import Key
from ..host.lock import lock_shared
from ..host.record import Seal
from ..machine.topology import NO_LEVEL, Domains, Layout
from ..native import job, logs
from ..native.constants import CLAIM_FORFEIT, CLAIM_SEATED, CLAIM_TOLD, FAILPOINTS, NAME_BYTES
from ..native.shared import Control, Proc, Slot, Version
from . import plans, story
from .control_file import place_of_kill
from .control_words import ControlWords
from .round_changed import RoundChanged

if TYPE_CHECKING:  # for several nodes
    from .post_office import PostOffice
    from .remote import Files

SETTLE_S = 0.1  # how long a death may be unknown that shows as an error elsewhere
LOOK_S = 0.005  # how often a process looks whether a death is known now


class OneNodeView:
    """One process's view of a job on one node, see `view.JobView`.

    Args:
        directory: the directory of the job's files in shared memory.
        key: of the job.
        proc: position of this process in the MPI world.
        ctl: the control file, if not the one in the directory.
    """

    policy = "rollback"
    fresh = False
    domains: Domains | None = None
    aware = NO_LEVEL
    critical: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    remote_files: Files | None = None
    post_office: PostOffice | None = None

    def __init__(
        self, directory: Path, key: Key, proc: Proc, ctl: Control | None = None
    ) -> None:
        private.check_directory(directory)
        self.directory, self.key = directory, key
        self.lock = lock_shared(self.of_job(directory))
        os.register_at_fork(after_in_child=self.lock.close)
        self.proc = proc
        self.ctl = ctl or job.open_control(directory / "control")
        self.words = ControlWords(self.ctl, proc)
        job.join(self.ctl, proc, directory)
        self.mapped_vaults: dict[Proc, Any] = {}  # see group.mapped_vault

    @staticmethod
    def of_job(directory: Path) -> Path:
        """Return the job's directory on this node."""
        return directory

    # -- membership ---------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        ctl = self.ctl
        spares = ctl.nprocs - ctl.nslots - ctl.nchecksums
        groups = tuple(ctl.roles[0].slot_group[s] for s in range(ctl.nslots))
        return Layout(ctl.nslots, ctl.nchecksums, spares, ctl.group_size, groups)

    def role(self) -> tuple[int, int]:
        return job.my_role()

    def role_of(self, proc: Proc) -> tuple[int, int]:
        return job.role_of(self.ctl, proc)

    def all_slots(self) -> list[Slot]:
        return [Slot(s) for s in range(self.ctl.nslots)]

    def all_procs(self) -> list[Proc]:
        return [Proc(p) for p in range(self.ctl.nprocs)]

    def slot_holders(self) -> list[Proc]:
        table = self.ctl.roles[self.ctl.roles_seq & 1].slot_proc
        return [table[s] for s in range(self.ctl.nslots)]

    def checksum_holders(self) -> list[Proc]:
        table = self.ctl.roles[self.ctl.roles_seq & 1].checksum_proc
        return [table[c] for c in range(self.ctl.nchecksums)]

    def spares(self) -> list[Proc]:
        busy = {*self.slot_holders(), *self.checksum_holders()}
        return [p for p in self.all_procs() if p not in busy and self.alive(p)]

    def set_holders(self, slots: Sequence[Proc], checksums: Sequence[Proc]) -> None:
        now = job.load(self.ctl, "roles_seq")
        new = self.ctl.roles[now + 1 & 1]
        for s, group in enumerate(self.layout.slot_group):
            new.slot_proc[s], new.slot_group[s] = slots[s], group
        for c, proc in enumerate(checksums):
            new.checksum_proc[c] = proc
        job.store(self.ctl, "roles_seq", now + 1)

    def reach_holders(self) -> None:
        """Do nothing: all slots are on this node."""

    def alive(self, proc: Proc) -> bool:
        return proc >= 0 and self.ctl.proc[proc].state == job.ProcessState.ALIVE

    def ready(self, proc: Proc) -> bool:
        # The caller reads the vault next. After a plain load it might see the vault's older
        # contents.
        return self.alive(proc) and bool(job.load(self.ctl.proc[proc], "ready"))

    def slots_here(self) -> list[Slot]:
        return self.all_slots()

    def lost_with_node(self, proc: Proc) -> bool:
        return False

    def host_of(self, proc: Proc) -> str:
        return ""

    @property
    def leads_node(self) -> bool:
        return self.proc == min(p for p in self.all_procs() if self.alive(p))

    @property
    def several_nodes(self) -> bool:
        return False

    def may_commit(self, checksum: int) -> bool:
        return True

    def set_policy(self, policy: str, *, fresh: bool) -> None:
        self.policy, self.fresh = policy, fresh

    def logs_accesses(self, *, trace: bool) -> bool:
        return trace or self.policy != "rollback"

    def set_claimant(self, name: str, bits: int) -> None:
        job.write_bytes(self.ctl.claimant, name.encode().ljust(NAME_BYTES, b"\0"))
        job.store(self.ctl, "claim", bits)

    @property
    def claimant(self) -> str:
        return job.text(self.ctl.claimant) if job.load(self.ctl, "claim") else ""

    @property
    def tells_deaths(self) -> bool:
        return bool(job.load(self.ctl, "claim") & CLAIM_TOLD)

    def tell_deaths(self, tells: bool) -> None:
        bits = job.load(self.ctl, "claim") & ~(CLAIM_TOLD if tells else CLAIM_TOLD | CLAIM_SEATED)
        job.store(self.ctl, "claim", bits | CLAIM_TOLD * tells)
        job.ring()

    @property
    def keeps_seats(self) -> bool:
        return bool(job.load(self.ctl, "claim") & CLAIM_SEATED)

    def keep_seats(self) -> None:
        job.store(self.ctl, "claim", job.load(self.ctl, "claim") | CLAIM_SEATED)

    @property
    def may_forfeit(self) -> bool:
        return bool(job.load(self.ctl, "claim") & CLAIM_FORFEIT)

    # -- meeting ------------------------------------------------------------------------------

    def visit(self, place: str) -> None:
        job.visit(FAILPOINTS[place])

    def visit_named(self, place: str) -> None:
        job.visit_named(place)

    def alarmed(self) -> bool:
        return job.alarmed()

    def unwind_if_alarmed(self) -> None:
        """Have a pending failure repaired; raise Rollback unless that was possible in place.

        A thread of an earlier attempt can have nothing repaired, so Rollback is raised there, too.
        """
        if job.must_unwind():
            raise Rollback("a process failed")

    def barrier(self) -> None:
        if not job.slots_barrier():
            raise Rollback("a process failed")

    def slot_that_differs(self, value: int) -> int | None:
        if logs.replay_over():  # what is only replayed was compared before
            self.words.me.protect_hash = value
        self.barrier()
        if logs.mode() is not logs.Mode.LIVE:
            self.barrier()
            return None  # it was compared before, in the part that is replayed
        theirs = [self.ctl.proc[p].protect_hash for p in self.slot_holders()]
        different = next((s for s, v in enumerate(theirs) if v != value), None)
        if different is None:
            self.barrier()  # no slot gives its next value before all have seen this one
        return different

    def end_program(self) -> None:
        if not job.end_program():
            raise Rollback("a process failed")

    def is_ending(self) -> bool:
        return self.requested_round() == job.ENDED

    def requested_round(self) -> int:
        return job.load(self.ctl, "alarm")

    def begin_round(self) -> int:
        return self.requested_round()

    def meet(self, round_number: int, phase: int, *, planned: bool = True) -> None:
        if not job.meet(round_number, phase, planned=planned):
            raise RoundChanged

    def synchronize(self) -> None:
        """Do nothing: all processes see each store at once."""

    def raise_alarm(self, round_number: int) -> None:
        job.raise_alarm(round_number)

    def leave_round(self, round_number: int) -> None:
        job.set_round(round_number)

    @property
    def bell(self) -> int:
        return self.ctl.bell.word

    def ring(self) -> None:
        job.ring()

    def wait_for_bell(self, seen: int, timeout_us: int) -> None:
        job.sleep(seen, timeout_us)

    def arrive(self, ordinal: int, *, targeted: bool) -> job.Wait:
        return job.arrive(ordinal, targeted=targeted)

    def admit(self, version: Version, *, wait: bool = True) -> bool:
        return job.admit(version, wait=wait)

    def await_staged(self, version: Version) -> bool:
        return job.await_staged(version)

    # -- files --------------------------------------------------------------------------------

    def seal(self, version: int | str) -> Seal:
        return Seal(self.key, f"slot {self.role()[1]}", str(version))

    def vault_path(self, proc: Proc) -> Path:
        return self.directory / f"vault-{proc}"

    def rename_vault(self) -> None:
        """Do nothing: a vault is named by the number of its process, whatever the role."""

    def share_vault(self) -> None:
        if self.remote_files:
            self.remote_files.share_vault(self.proc, self.vault_path(self.proc))

    def put_vault_aside(self, proc: Proc) -> None:
        for at, holder in enumerate([*self.slot_holders(), *self.checksum_holders()]):
            if holder == proc and self.takeover_pending:
                self.mark_vault_lost(at)
        with contextlib.suppress(FileNotFoundError):
            self.vault_path(proc).rename(self.directory / f"lost-{proc}")

    def free_lost_vaults(self) -> None:
        for path in self.directory.glob("lost-*"):
            path.unlink(missing_ok=True)

    def remove_moved_vaults(self) -> None:
        """Do nothing: no role is on another node."""

    @property
    def takeover_pending(self) -> bool:
        return bool(self.ctl.takeover == job.Takeover.OFFERED)

    def finish_takeover(self) -> None:
        if self.takeover_pending:
            self.ctl.takeover = job.Takeover.DONE

    def mark_vault_lost(self, at: int) -> None:
        self.ctl.lost[at] = 1

    def is_vault_lost(self, at: int) -> bool:
        return bool(self.ctl.lost[at])

    def share_log(self, slot: Slot) -> None:
        """All logs are on this node."""

    def fetch_log(self, slot: Slot) -> None:
        """All logs are on this node."""

    def hold_accesses(self) -> None:
        """No accesses come from other nodes."""

    def release_accesses_to(self, slot: Slot) -> None:
        """No accesses come from other nodes."""

    def release_accesses(self, *, causally: bool) -> None:
        """No accesses come from other nodes."""

    # -- reporting ----------------------------------------------------------------------------

    def emit(self, event: story.Event) -> None:
        story.emit(self.directory, event)

    def events(self) -> list[story.Event]:
        return story.read(self.directory)

    def tell(self, text: str) -> None:
        """Write one line for people, on the user's stderr.

        It does not use `sys.stderr`, which the program may have replaced. If the line cannot be
        written, it is lost.
        """
        if line := messages.line(text):
            with contextlib.suppress(OSError):
                lineoutput.put(2, line.encode(errors="backslashreplace"))

    def open_trace(self) -> None:
        logs.trace_open(self.directory / f"trace-{self.proc}")

    def trace_of_late(self, number: int) -> int:
        with private.make(self.directory / f"trace-{number}-{self.words.attempt}") as file:
            return os.dup(file.fileno())

    def place_of_kill(self, role: int, index: int) -> str:
        return place_of_kill(self.ctl, role, index)

    def begin_attempt(self, number: int) -> None:
        self.ctl.error_owner = 0
        self.words.attempt = number

    def end_attempt(self, number: int) -> None:
        """Do nothing: there is no agent that has words of the ending attempt."""

    def report_plan(self, number: int) -> None:
        """The supervisor reads the control file."""

    def report_work(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def report_repaired(self, number: int) -> None:
        """The supervisor reads the control file."""

    def report_lost_spare(self, proc: Proc) -> None:
        """The supervisor reads the control file."""

    def claim_error(self, *, meanwhile: Callable[[], object] | None = None) -> bool:
        settled = time.monotonic() + SETTLE_S
        while meanwhile:
            meanwhile()
            if self.ctl.error_owner or time.monotonic() > settled:
                break
            time.sleep(LOOK_S)
        job.claim_error()
        return self.ctl.error_owner == self.proc + 1

    def release_error(self) -> None:
        if self.ctl.error_owner == self.proc + 1:
            self.ctl.error_owner = 0

    @property
    def plan(self) -> plans.PublishedPlan:
        return plans.in_force(self.ctl)

    def publish_plan(self, plan: plans.PublishedPlan) -> None:
        plans.publish(self.ctl, plan)

    def abort(self, status: int) -> None:
        self.ctl.exit_status = status
        self.words.request = job.Request.ABORT

    def ask_for_end(self, request: job.Request, status: int, why: str) -> None:
        """Have the supervisor end the launch; it reads the reason in the plan that is in force."""
        self.ctl.exit_status = status
        self.words.request = request

    def ask_for_relaunch(self, reason: str) -> None:
        plans.ask_for_relaunch(self.ctl, self.proc, reason)

    def why_relaunch(self) -> str:
        return plans.why_relaunch(self.ctl)

    def leave(self) -> None:
        """Do nothing: the supervisor sees the process end."""
