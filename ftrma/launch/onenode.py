"""Watches a launch on one node by the control file, and goes on by the vaults in shared memory.

A launch that does not come to its own end is ended for one of these reasons: its processes ask for
it (for example because no spare is left), the launcher died, or a process hangs in the MPI library,
does not come to a repair, or died unnoticed.
"""

from __future__ import annotations

import contextlib
import signal
import time

from ..fabric import plans, saved, story
from ..fabric.absence import is_stopped, stopped
from ..fabric.control_file import place_of_kill
from ..fabric.story import Failure, Relaunch
from ..host import timeouts
from ..host.errors import CATASTROPHE, NO_ROOM, NotRecoverable
from ..host.outfile import tell
from ..host.processes import children
from ..host.sharedmemory import is_full
from ..host.signals import death_of, would_end
from ..native import job
from ..native.constants import CLAIM_TOLD, RESUME_REFUSED, ROLE_NAMES
from ..native.shared import Proc
from ..protocol.job_end import NO_PROGRESS, JobEnd, OwnExit, why_aborted, why_given_up
from . import eachhost, nexthosts
from .exitmessages import tell_exhausted, tell_not_started, tell_own_end
from .job import ABSENT, ALL_DIED, LATE, LAUNCHER_DIED
from .launch import Launch
from .noprogress import no_progress, step_of
from .relaunch import relaunch
from .stoppedprocesses import StoppedProcesses
from .vaulthandover import role_holders

COME_UP_EACH_S = 0.5  # additional time for each process, see `timeouts.COME_UP`


class OneNode:
    """See `launchcontrol.LaunchControl`."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.made = launch, launch.made
        self.ctl = launch.ctl
        self.seen_call: dict[int, tuple[int, float]] = {}
        self.away_since: dict[int, int] = {}  # since (ns), by process missing in a repair
        self.told_away: set[int] = set()
        self.unnoticed_since: float | None = None
        self.handed: dict[int, tuple[int, int, float]] = {}  # by pid: slot, signal, when
        self.children, self.lacking_since = 0, time.monotonic()
        self.stopped_processes = StoppedProcesses()

    def ended_slots(self) -> tuple[dict[int, OwnExit], bool, bool]:
        ctl, launch = self.ctl, self.launch
        if not launch.ranks or launch.mpirun.poll() is not None:
            return {}, False, False
        gone, left, waiting = set(launch.dead()), {}, True
        roles = ctl.roles[ctl.roles_seq & 1]
        for slot in range(launch.layout.slots):
            p = ctl.proc[roles.slot_proc[slot]]
            if p.pid in gone:
                value = p.leaving & job.LEFT_VALUE
                if p.leaving & job.Left.BY_SIGNAL:
                    left[slot] = OwnExit(by_signal=value)
                elif p.leaving & (job.Left.BY_STATUS | job.Left.BY_EXIT):
                    sure = bool(p.leaving & job.Left.BY_STATUS)
                    left[slot] = OwnExit(status=value, sure=sure)
            else:
                waiting &= job.waits(ctl, p)
        # Nobody waits for a process if a framework is told of its death.
        if ctl.claim & CLAIM_TOLD and len(gone) < len(launch.ranks):
            left = {slot: how for slot, how in left.items() if not how.well}
        return left, bool(ctl.alarm != ctl.repaired), waiting

    def program_begun(self) -> bool:
        return bool(self.ctl.start_ns)

    def forward_signal(self, number: int, slots: set[int]) -> set[int]:
        roles, left = self.ctl.roles[self.ctl.roles_seq & 1], set()
        for slot in slots:
            pid = self.ctl.proc[roles.slot_proc[slot]].pid
            fd = self.launch.ranks.get(pid)
            if fd is None or would_end(pid, number):
                left.add(slot)
                continue
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
                self.handed[pid] = slot, number, time.monotonic()
        return left

    def unhandled_signals(self) -> list[tuple[int, int]]:
        return []  # `forward_signal` has already returned these

    def killed_by_signal(self) -> tuple[int, int] | None:
        if not self.handed:
            return None
        finished = {p.pid for p in self.launch.procs() if p.finished == self.ctl.attempt}
        for pid in self.launch.dead():
            slot, number, at = self.handed.pop(pid, (0, 0, 0.0))
            if number and pid not in finished and self.died_of(pid, number, at):
                return slot, number
        return None

    def died_of(self, pid: int, number: int, at: float) -> bool:
        """Say whether a dead process died of a signal that was forwarded to it at that time."""
        found = time.monotonic()
        while (of := death_of(self.launch.ranks[pid])) is None:
            if time.monotonic() - found > timeouts.TOLD.s:  # an older kernel does not tell
                return found - at < timeouts.SUSPECT.s
            time.sleep(0.001)
        return of == number

    def saved(self, *, halt: bool) -> saved.Saved | None:
        if bool(self.ctl.halt) != halt:
            job.store(self.ctl, "halt", int(halt))
        return saved.read(self.ctl)

    def check(self, *, undecided: bool) -> str | None:
        ctl, launch = self.ctl, self.launch
        if ctl.request == job.Request.ABORT:
            return ""
        if ctl.request == job.Request.RELAUNCH:
            if launch.mpirun.poll() is not None:
                return LAUNCHER_DIED
            return plans.why_relaunch(ctl) or LAUNCHER_DIED
        if self.ended():
            return "" if len(launch.dead()) == len(launch.ranks) else None
        return self.trouble() or None

    def finish(self, own_end: JobEnd | None) -> int:
        # After an error the ranks wait until they are ended.
        status, aborted = int(self.ctl.exit_status), self.ctl.request == job.Request.ABORT
        if own_end:
            self.ctl.request = job.Request.ABORT  # deaths from now on are no failures
        self.launch.end(patience_s=0.0 if aborted or own_end else timeouts.OWN_END.s)
        return tell_own_end(own_end or JobEnd(status, self.why_aborted() if aborted else ""))

    def why_aborted(self) -> str:
        """Return why the job was ended; empty if the program's own error says it."""
        plan, ctl = plans.in_force(self.ctl), self.ctl
        for slot, proc in enumerate(role_holders(self.made)[: self.launch.layout.slots]):
            how, status = ctl.proc[proc].leaving, int(ctl.exit_status)
            if how == job.Left.BY_ABORT | (status & job.LEFT_VALUE):
                return why_aborted(f"slot {slot}", status)
        return why_given_up(plan.kind, plan.reason)

    def prepare_next(self, reason: str) -> int | None:
        ctl, made, launch = self.ctl, self.made, self.launch
        noticed_ns = job.now_ns()
        # Deaths from now on belong to the launch's end, and are no failures.
        ctl.request = job.Request.RELAUNCH
        died = self.dead_procs()
        if reason not in (LAUNCHER_DIED, ALL_DIED):  # else they did not die by themselves
            self.report(died)
        stuck = no_progress(self.made, Relaunch(
            reason, (), step=step_of(ctl), repair=int(ctl.repaired)))
        was_full = self.memory_was_full()
        first = not ctl.start_ns and not ctl.resume  # no launch of this job has come up yet
        hopeless = first and launch.says_why()
        launch.end()
        if was_full:
            tell(f"error: {reason}: {NO_ROOM}")
            return CATASTROPHE
        if stuck:
            return tell_own_end(stuck)
        if ctl.resume == RESUME_REFUSED:
            return None if made.begin_from_older(reason) else NO_PROGRESS
        failed = eachhost.failing(made.directory, made.words) if first and made.may_spread else {}
        if failed:
            reason = f"{reason}: {nexthosts.tell_failed(failed)}"
        without = nexthosts.can_do_without(failed, made.words, made.layout)
        if made.exhausted or (hopeless and not without):
            return self.give_up(reason, hopeless=hopeless)
        if without:
            try:
                chosen = nexthosts.first_without(failed, made.words, made.layout, made.room)
            except NotRecoverable as error:
                return self.give_up(f"{reason}; {error}", hopeless=True)
            made.go_on_with(*chosen)
        return None if relaunch(made, reason, died, noticed_ns) else CATASTROPHE

    def give_up(self, reason: str, *, hopeless: bool) -> int:
        """End the job, which is not launched again, and return the exit status.

        Args:
            hopeless: no launch has come up, and the next one would not come up either.
        """
        made = self.made
        if made.may_spread:
            eachhost.sweep(made.directory, made.first_words)  # daemons may have come up there
        ended = (self.launch.mpirun.poll() or 0) > 0 and not self.ctl.start_ns
        if hopeless or ended:
            return tell_not_started(self.launch, reason)
        return tell_exhausted(reason, made.relaunches)

    def dead_procs(self) -> set[int]:
        """Return the processes whose death was noticed."""
        return {i for i, p in enumerate(self.launch.procs()) if p.state == job.ProcessState.DEAD}

    def abandon(self) -> None:
        self.ctl.request = job.Request.ABORT
        self.launch.end()

    def report(self, died: set[int]) -> None:
        """Add to the job's story the deaths that no repair has added."""
        for proc in sorted(died):
            p, (role, index) = self.ctl.proc[proc], job.role_of(self.ctl, Proc(proc))
            if job.exchange(p, "reported", 0, 1):
                story.emit(self.made.directory, Failure(
                    role=ROLE_NAMES[role], index=index, pid=p.pid,
                    place=place_of_kill(self.ctl, role, index), step=step_of(self.ctl),
                    repair=int(self.ctl.repaired)))

    # -- what ails it -------------------------------------------------------------------------

    def ended(self) -> bool:
        """Say whether the program has ended well."""
        return bool(self.ctl.alarm == job.ENDED)

    def memory_was_full(self) -> bool:
        """Say whether the launch has to be ended because shared memory is full."""
        by_memory = job.Left.BY_MEMORY
        lacking = any(p.leaving & by_memory for p in self.launch.procs())
        return is_full(self.launch.directory) and (lacking or not self.ctl.start_ns)

    def trouble(self) -> str:
        """Say why this launch cannot go on, in words; empty while it can."""
        launch = self.launch
        if launch.mpirun.poll() is not None:
            return LAUNCHER_DIED
        if len(launch.ranks) < launch.layout.processes:
            # If there are other nodes, the launcher starts processes only when the last daemon has
            # come up.
            if not self.made.may_spread and self.lost_at_birth():
                return "a process died before it had come up"
            if time.monotonic() - launch.came_up > come_up_s(launch.layout.processes):
                return f"only {len(launch.ranks)} of {launch.layout.processes} processes came up"
            return launch.refused()
        gone = launch.dead()
        if len(gone) == len(launch.ranks):
            return ALL_DIED
        return self.waits_for_stopped() or self.unnoticed(gone) or self.stuck() or self.absent()

    def waits_for_stopped(self) -> str:
        """Say that a repair waits for a process that is stopped; empty if none does."""
        dead = [self.name(i) for i, p in enumerate(self.launch.procs())
                if p.state == job.ProcessState.DEAD and not p.reported]
        died = f"{' and '.join(dead)} died" if dead else "a repair is under way"
        return self.stopped_processes.check(stopped(self.ctl), died)

    def lost_at_birth(self) -> bool:
        """Say whether the launcher, which starts all processes at once, has lacked some for
        long."""
        count = len(children(self.launch.mpirun.pid))
        if count != self.children or count in (0, self.launch.layout.processes):
            self.children, self.lacking_since = count, time.monotonic()
        return time.monotonic() - self.lacking_since > timeouts.FORKED.s

    def unnoticed(self, gone: list[int]) -> str:
        # A process may die while it joins: then the control file has its number, but not the state
        # ALIVE.
        noticed = {p.pid for p in self.launch.procs() if p.state == job.ProcessState.DEAD}
        if noticed >= {*gone}:
            self.unnoticed_since = None
        elif self.unnoticed_since is None:
            self.unnoticed_since = time.monotonic()
        elif time.monotonic() - self.unnoticed_since > timeouts.UNNOTICED.s:
            return "a process died before the others could watch over it"
        return ""

    def stuck(self) -> str:
        """Name a process that is still in the call of MPI in which it was when the failure came."""
        if self.ctl.alarm == self.ctl.repaired:
            self.seen_call.clear()
            return ""
        now = time.monotonic()
        for i, p in enumerate(self.launch.procs()):
            calls = p.calls
            if p.state != job.ProcessState.ALIVE or not job.is_in_call(p) or is_stopped(p.pid):
                self.seen_call.pop(i, None)
            elif self.seen_call.get(i, (None, 0))[0] != calls:
                self.seen_call[i] = (calls, now)
            elif now - self.seen_call[i][1] > timeouts.STUCK.s:
                return f"process {p.pid} hangs inside the MPI library"
        return ""

    def absent(self) -> str:
        """Name a process that waits outside of MPI while all others wait for it in a repair.

        A process that computes comes with its next call of MPI; the user is only told of it.
        """
        ctl, now = self.ctl, job.now_ns()
        for i, p in enumerate(self.launch.procs()):
            awaited = ctl.alarm != ctl.repaired and p.met >> 8 < ctl.alarm
            if p.state != job.ProcessState.ALIVE or not awaited or is_stopped(p.pid):
                self.away_since.pop(i, None)
                self.told_away.discard(i)
                continue
            since = self.away_since.setdefault(i, now)
            if now - max(since, p.busy_ns) > timeouts.ABSENT.s * 1e9:
                return f"{self.name(i)} {ABSENT}"
            if now - since > timeouts.ABSENT.s * 1e9 and i not in self.told_away:
                self.told_away.add(i)
                tell(f"{self.name(i)} {LATE}")
        return ""

    def name(self, proc: int) -> str:
        """Return the name of a process's role, with its number."""
        role, index = job.role_of(self.ctl, Proc(proc))
        return f"{ROLE_NAMES.get(role, 'process')} {index}"


def come_up_s(processes: int) -> float:
    """Return how many seconds a launch of so many processes may take until all have joined."""
    return timeouts.COME_UP.s + COME_UP_EACH_S * processes
