"""Judges a simulated job: its parities while it runs, its results and its status at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from .process import without_failure


class Judge:
    """The part of a `world.World` that says what is wrong."""

    scenario: Any
    layout: Any
    launch: Any
    expect: Any
    beyond: Any

    def control_of(self, proc: int) -> Any:
        """The control file that a process of the newest launch writes to."""
        return self.launch.ctl

    def check_parities(self, launch: Any) -> None:
        """See whether each group's first parity is the XOR of its members' copies.

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
            parity = checksums[self.layout.checksums_of(group)[0]]
            if group in self.flipped or not {*members, parity} <= living:
                continue
            if not (procs[parity].ready and procs[parity].folded == version
                    and procs[parity].summed == version):
                continue
            if not all(procs[p].ready and procs[p].staged == version
                       and procs[p].staging <= version for p in members):
                continue
            vaults = [launch.tasks[p].owner.vault for p in (*members, parity)]
            if all(vaults):
                self.compare(group, version, vaults)

    def roles_of(self, ctl: Any) -> tuple[list[int], list[int]]:
        roles, layout = ctl.roles[ctl.roles_seq & 1], self.layout
        return ([roles.slot_proc[s] for s in range(layout.slots)],
                [roles.checksum_proc[c] for c in range(layout.checksums)])

    def compare(self, group: int, version: int, vaults: list[Any]) -> None:
        size_bytes = 4096 * max(vault.used for vault in vaults)
        total = np.zeros(size_bytes, "u1")
        for vault in vaults:
            part = np.frombuffer(vault.bytes_at(0, 4096 * vault.used), "u1")
            total[:len(part)] ^= part
        self.expect(not total.any(),
                    f"the parity of group {group} is not that of version {version}")

    def judge(self) -> None:
        """Judge the end of the job."""
        scenario = self.scenario
        if self.wrong:
            return
        relaunches = self.recoveries.get("relaunch", 0)
        self.expect(relaunches <= self.happened,
                    f"{relaunches} relaunches for {self.happened} faults")
        if self.status == 0:
            right = without_failure(scenario.slots, scenario.steps)
            for slot in range(scenario.slots):
                self.expect(self.finals.get(slot) == right[slot],
                            f"slot {slot} has a wrong result")
            return
        given_up = any("CatastrophicFailure" in line for line in self.told)
        if given_up or self.claimed_catastrophe:
            self.expect(self.beyond(), "the job gives up, and no group has lost more than "
                                f"{scenario.strength}: {self.told[-3:]}")
            return
        exhausted = relaunches >= scenario.max_relaunch
        repeated = any("killed 3 times running" in line for line in self.told)
        self.expect(exhausted or repeated, f"the job ends with status {self.status}: "
                                           f"{self.told[-3:]}")
