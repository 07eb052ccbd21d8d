"""Judges a simulated job: words and parities while it runs, its results and status at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrma.launch.job import ABSENT
from ftrma.native import job
from ftrma.vault import erasure

from .program import without_failure

PRODUCTS = erasure.product(np.arange(256)[:, None], np.arange(256))  # of any two bytes


class Judge:
    """The part of a `world.World` that says what is wrong."""

    scenario: Any
    layout: Any
    scheduler: Any
    launch: Any
    told: Any
    expect: Any
    beyond: Any
    controls: Any
    finals: Any
    ending: Any
    memory: Any
    begun: Any
    newest: Any
    compared: Any

    def begins(self, view: Any, slot: int, *, replay: bool) -> None:
        """A slot begins the program, or is replayed: it has not come to its end any more."""
        if self.scheduler.over:
            return
        self.finals.pop(slot, None)
        self.ending.discard(slot)
        if not replay:
            self.expect(view.words.attempt > self.begun.get(slot, 0),
                        f"slot {slot} begins attempt {view.words.attempt} once more")

    def concluded(self, view: Any) -> None:
        """The leader of a repair has come out of it, and nobody can have gone through another."""
        self.expect(not view.words.refusal, f"a refusal is left: {view.words.refusal}")

    def check_words(self, launch: Any) -> None:
        """See whether words that several processes read say what they may say."""
        for ctl in self.controls_in_use(launch):
            key = id(ctl)
            before = self.newest.get(key, (0, 0))
            now = ctl.alarm, ctl.commit >> 1
            self.newest[key] = now
            self.expect(now[0] >= before[0], f"the alarm went down from {before[0]} to {now[0]}")
            self.expect(now[1] >= before[1], f"version {before[1]} is not committed any more")
            slots, checksums = self.roles_of(ctl)
            self.expect(len({*slots, *checksums}) == len(slots) + len(checksums),
                        f"a process has two roles: {slots}, {checksums}")
            if ctl.alarm != ctl.repaired or ctl.request or self.begins_launch(launch):
                continue
            for proc in checksums:
                p = self.control_of(proc).proc[proc]
                if p.ready and p.state == job.ProcessState.ALIVE:
                    self.expect(p.folded <= p.summed <= p.folded + 1,
                                f"a parity is at version {p.folded} and has summed {p.summed}")
            if self.control_of(slots[0]) is ctl:
                most = max(ctl.proc[p].ordinal for p in slots) + 1
                self.expect(ctl.target <= most, f"the target is safepoint {ctl.target}, and nobody "
                                                f"has come beyond {most - 1}")

    def begins_launch(self, launch: Any) -> bool:
        """A launch restores what the one before has left, and says so word by word."""
        return False

    def controls_in_use(self, launch: Any) -> list[Any]:
        return [launch.ctl]

    def control_of(self, proc: int) -> Any:
        """The control file that a process of the newest launch writes to."""
        return self.launch.ctl

    def check_parities(self, launch: Any) -> None:
        """See whether each group's parities are the sums of its members' copies.

        Nobody must be amid a checkpoint or a repair, of all this group has to do with.
        """
        holders = self.roles_of(launch.ctl)
        procs = [self.control_of(p).proc[p] for p in range(self.layout.processes)]
        ctls = {id(ctl): ctl for ctl in map(self.control_of, range(self.layout.processes))}
        if len({ctl.commit for ctl in ctls.values()}) > 1 or any(
                ctl.alarm != ctl.repaired or self.roles_of(ctl) != holders
                for ctl in ctls.values()):
            return
        slots, checksums = holders
        version, living = launch.ctl.commit >> 1, set(launch.living())
        for group in range(self.layout.groups) if version else ():
            members = [slots[s] for s in self.layout.members(group)]
            parities = [checksums[c] for c in self.layout.checksums_of(group)]
            if group in self.flipped or not {*members, *parities} <= living:
                continue
            if not all(procs[p].ready and procs[p].folded == procs[p].summed == version
                       for p in parities):
                continue
            if not all(procs[p].ready and procs[p].staged == version
                       and procs[p].staging <= version for p in members):
                continue
            vaults = [launch.tasks[p].owner.vault for p in (*members, *parities)]
            state = launch.number, launch.ctl.repaired, version, *members, *parities
            if all(vaults) and self.compared.get(group) != state:
                self.compared[group] = state
                self.compare(group, version, vaults, len(members))

    def roles_of(self, ctl: Any) -> tuple[list[int], list[int]]:
        roles, layout = ctl.roles[ctl.roles_seq & 1], self.layout
        return ([roles.slot_proc[s] for s in range(layout.slots)],
                [roles.checksum_proc[c] for c in range(layout.checksums)])

    def compare(self, group: int, version: int, vaults: list[Any], k: int) -> None:
        size_bytes = 4096 * max(vault.used for vault in vaults)
        parts = [np.frombuffer(vault.bytes_at(0, 4096 * vault.used), "u1") for vault in vaults]
        all_weights = erasure.coefficients(k, len(vaults) - k)
        for weights, parity in zip(all_weights, parts[k:], strict=True):
            total = np.zeros(size_bytes, "u1")
            total[:len(parity)] = parity
            for weight, part in zip(weights, parts[:k], strict=True):
                total[:len(part)] ^= PRODUCTS[weight][part]
            self.expect(not total.any(),
                        f"a parity of group {group} is not that of version {version}")

    def judge(self) -> None:
        """Judge the end of the job."""
        scenario = self.scenario
        if self.wrong:
            return
        self.judge_words_told()
        relaunches = self.recoveries.get("relaunch", 0)
        self.expect(relaunches <= self.happened,
                    f"{relaunches} relaunches for {self.happened} faults")
        if self.status == 0 and scenario.told:
            self.judge_told_end()
            return
        if self.status == 0:
            right = without_failure(scenario.slots, scenario.steps, late=scenario.late)
            for slot in range(scenario.slots):
                # One may have died at its end, when it had done all: nobody noticed before the job
                # had ended. Over several nodes one may end it that has not heard of the death.
                last = self.finals.get(slot)
                if not last and slot in self.ending:
                    last = self.memory[slot].bytes()
                self.expect(last == right[slot], f"slot {slot} has a wrong result")
            return
        given_up = any("CatastrophicFailure" in line or "no node is left" in line
                       for line in self.told)
        if given_up or self.claimed_catastrophe:
            self.expect(self.beyond(), "the job gives up, and no group has lost more than "
                                f"{scenario.strength}: {self.told[-3:]}")
            return
        exhausted = relaunches >= scenario.max_relaunch
        repeated = any("killed 3 times running" in line for line in self.told)
        self.expect(exhausted or repeated, f"the job ends with status {self.status}: "
                                           f"{self.told[-3:]}")

    def judge_told_end(self) -> None:
        """All slots that live have come to the end of a told program."""
        for slot, holder in enumerate(self.roles_of(self.launch.ctl)[0]):
            died = self.launch.tasks[holder].dead
            self.expect(died or slot in self.ending or slot in self.finals,
                        f"slot {slot} has not come to its end")

    def judge_words_told(self) -> None:
        """See whether something was told that cannot have been."""
        kinds = {fault.kind for fault in self.scenario.faults}
        absent = [line for line in self.told if ABSENT in line]
        self.expect("freeze" in kinds or not absent, f"nobody is frozen, and {absent}")
        harmed = kinds & {"flip", "launcher", "supervisor"} or self.beyond()
        damage = [line for line in self.told if "corrupt" in line or "damaged" in line]
        self.expect(harmed or not damage, f"no vault is damaged, and {damage}")
