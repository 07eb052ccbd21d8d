"""Befalls a simulated job: deaths, pauses, damage, as its scenario says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import greenlet

from ftrma.native import job, loading
from ftrma.native.constants import CHECKSUM, FAILPOINTS, ROLE_NAMES, SLOT

from . import library
from .scenario import Fault
from .scheduler import Task

if TYPE_CHECKING:
    from .world import SimulatedLaunch

LOOK_TURNS = 40  # between two looks whether parities are what they must be
AT_PLACES = ("place", "pause")
NOTICE_NS = (50_000, 300_000, 3_000_000)  # until a death is noticed by a process
SPOILT = b"spoilt.."  # of which a block has a whole number
PLACES = {number: name for name, number in FAILPOINTS.items()}


class Faults:
    """The part of a `world.World` that harms the job. It also counts what groups have lost."""

    scenario: Any
    scheduler: Any
    layout: Any
    launch: Any

    def fault(self) -> Fault | None:
        faults = self.scenario.faults
        return faults[self.next_fault] if self.next_fault < len(faults) else None

    def fired(self) -> None:
        self.happened += 1
        self.armed_at = self.scheduler.turns

    def before(self, turn: int) -> None:
        """Before a turn: do what is to befall the job now."""
        if turn % LOOK_TURNS == 0 and self.launch:
            self.check_parities(self.launch)
            self.check_words(self.launch)
        chained = self.scenario.chained
        fault = self.fault()
        while fault and fault.kind in AT_PLACES and not (chained and self.awaited):
            self.awaited.append([fault, fault.after])
            self.next_fault += 1
            fault = self.fault()
        if fault is None or turn - self.armed_at < fault.after or (chained and self.awaited):
            return
        launch = self.launch
        if launch is None or launch.launcher_died or self.is_over(launch):
            return
        living = self.living_in(launch, fault.role)
        if not living:
            return
        self.fired()
        self.next_fault += 1
        victim = living[fault.who % len(living)]
        if fault.kind == "kill":
            self.kill(launch, victim, "amid")
        elif fault.kind == "freeze":
            launch.tasks[victim].waits.frozen = self.scheduler.now_ns + fault.ms * 1_000_000
        elif fault.kind == "stumble":
            self.stumbles += 1
        elif fault.kind == "flip":
            self.flip(launch, victim, fault.ms)
        elif fault.kind == "connection":
            self.lose_connection(fault.who)
        elif fault.kind == "agent":
            self.kill_agent(fault.who)
        elif fault.kind == "node":
            self.lose_node(fault.who)
        elif fault.kind == "launcher":
            launch.launcher_died = True
            self.kill_all(launch)
        elif fault.kind == "supervisor":
            launch.launcher_died = True
            self.kill_all(launch)
            self.scheduler.kill(self.supervisor)
            self.supervise(resumed=True)

    def lose_connection(self, which: int) -> None:
        """There is none on one node."""

    def kill_agent(self, which: int) -> None:
        """There is none on one node."""

    def lose_node(self, which: int) -> None:
        """There is one alone."""

    def is_over(self, launch: Any) -> bool:
        """Say whether the program has ended, so that deaths do not matter any more."""
        return bool(launch.ctl.alarm == job.ENDED)

    def living_in(self, launch: Any, role: str) -> list[int]:
        """Living processes that have a role now."""
        living: list[int] = launch.living()
        if role == "leader":
            return living[:1]
        return [p for p in living
                if not role or ROLE_NAMES[job.role_of(launch.ctl, p)[0]] == role]

    def flip(self, launch: Any, victim: int, at: int) -> None:
        """Flip a bit of a vault, as a stray store might; it counts as a loss for good."""
        role, index = job.role_of(self.control_of(victim), victim)
        vault = launch.tasks[victim].owner.vault
        if role not in (SLOT, CHECKSUM) or not vault or not vault.used:
            return
        group = (self.layout.group_of(index) if role == SLOT
                 else self.layout.group_of_checksum(index))
        self.flipped[group] = self.flipped.get(group, 0) + 1
        view = vault.bytes_at(at % vault.used, 4096)
        view[at % 4096] = bytes([view[at % 4096][0] ^ 0x10])
        self.deaths["flip"] = self.deaths.get("flip", 0) + 1

    def beyond(self) -> bool:
        """Some group has lost more than its checksum ranks make up for."""
        return any(self.lost_since.get(group, 0) + self.flipped.get(group, 0)
                   > self.scenario.strength for group in range(self.layout.groups))

    def kill_all(self, launch: SimulatedLaunch) -> None:
        for task in list(self.scheduler.tasks):
            if task.launch == launch.number:
                self.scheduler.kill(task)

    def on_call(self, kind: int, value: int, ns: int) -> int:
        process = self.scheduler.current.owner
        if kind == library.VISIT:
            self.visit(process.proc, PLACES[value])
            return 0
        if kind == library.INTERRUPT:
            return process.interrupted()
        self.live(process, differs=bool(value))
        return 0

    def visit(self, proc: int, place: str) -> None:
        if not self.awaited:
            self.scheduler.point()
            return
        roles = {"", ROLE_NAMES[job.role_of(self.launch.ctl, proc)[0]]}
        roles |= {"leader"} if proc == min(self.launch.living()) else set()
        for each in [each for each in self.awaited
                     if each[0].place == place and each[0].role in roles]:
            each[1] -= 1
            if each[1] > 0:
                continue
            self.awaited.remove(each)
            self.fired()
            if each[0].kind == "place" and each[0].more:
                self.scheduler.current.doomed = each[0].more
                return
            if each[0].kind == "place":
                self.die(place)
            self.scheduler.current.waits.frozen = self.scheduler.now_ns + each[0].ms * 1_000_000
            self.scheduler.hub.switch()
            return

    def die(self, place: str) -> None:
        """The process whose turn it is dies."""
        self.kill(self.launch, self.scheduler.current.process, place)
        self.scheduler.hub.switch()

    def kill(self, launch: SimulatedLaunch, proc: int, place: str) -> None:
        task, ctl = launch.tasks[proc], launch.ctl
        role, index = job.role_of(ctl, proc)
        name = f"{ROLE_NAMES[role]} {place}"
        self.deaths[name] = self.deaths.get(name, 0) + 1
        if role in (SLOT, CHECKSUM):
            group = (self.layout.group_of(index) if role == SLOT
                     else self.layout.group_of_checksum(index))
            if self.is_whole(launch, group):
                self.lost_since[group] = 0
            self.lost_since[group] = self.lost_since.get(group, 0) + 1
        if role == CHECKSUM and index == self.layout.checksums_of(group)[0]:
            for slot in self.layout.members(group):
                if not ctl.slots[slot].replaying:  # else its replacement has the log
                    self.results[slot] = {}
        self.scheduler.kill(task)
        for other in sorted(launch.watching - {proc}):
            self.notice(launch, other, proc)

    def doom(self, task: Task) -> None:
        """Kill a process some turns behind the place that its fault names."""
        if self.launch.tasks.get(task.process) is task and not self.is_over(self.launch):
            self.kill(self.launch, task.process, "behind a place")

    def spoil(self, launch: Any, proc: int) -> None:
        """Spoil the copy in the vault of one whose death is known: nobody may use it any more.

        One who died just before the launcher did is taken for having died with it, when vaults are
        good.
        """
        vault = launch.tasks[proc].owner.vault
        together = {fault.kind for fault in self.scenario.faults} & {"launcher", "supervisor"}
        together |= {"unknown"} if launch.ctl.proc[proc].state != job.ProcessState.DEAD else set()
        if vault and vault.used and not launch.ctl.takeover and not together:
            copy = vault.bytes_at(0, 4096 * vault.used)
            copy[:] = SPOILT * (len(copy) // len(SPOILT))

    def is_whole(self, launch: SimulatedLaunch, group: int) -> bool:
        ctl, living = launch.ctl, set(launch.living())
        roles = ctl.roles[ctl.roles_seq & 1]
        holders = [roles.slot_proc[s] for s in self.layout.members(group)]
        holders += [roles.checksum_proc[c] for c in self.layout.checksums_of(group)]
        return all(p in living and ctl.proc[p].ready for p in holders)

    def notice(self, launch: SimulatedLaunch, watcher: int, dead: int) -> None:
        """Have a process's watching thread notice a death, a little later."""
        of = launch.tasks.get(watcher)
        if of is None or of.dead:
            return
        random = self.scheduler.random

        def run() -> None:
            try:
                if not of.dead:
                    job.note_death(dead)
                    library.words().sim.sim_see_alarm()
                    self.spoil(launch, dead)
            except greenlet.GreenletExit:
                pass

        task = Task(f"watch {watcher}", run, watcher, launch.number)
        self.watch_state(launch, task, watcher)
        delay_ns = int(random.random() * random.choice(NOTICE_NS)) + 1
        task.waits.until = self.scheduler.now_ns + delay_ns
        self.scheduler.add(task)

    def watch_state(self, launch: Any, task: Task, watcher: int) -> None:
        """Have a task run in a process, beside it."""
        self.place(task, launch.ctl, watcher, -1)

    def ahead_ns(self, node: int) -> int:
        """Nanoseconds by which a node's clock is ahead of the simulated one."""
        return 0

    def place(self, task: Task, ctl: Any, proc: int, node: int) -> None:
        words = library.words()
        address = int(loading.load().ffi.cast("uintptr_t", ctl))
        task.ahead_ns = self.ahead_ns(node)
        words.sim.sim_watch(task.state, words.ffi.cast("void *", address), proc, node)
