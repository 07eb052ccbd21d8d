"""Checksum ranks and spares between repairs: they sum, commit and fold, and take vacant roles.

`coordinated` is the slots' side of a checkpoint; ``csrc/vault/checkpoint.c`` describes the steps.
"""

from __future__ import annotations

import time
from typing import Any

from ..fabric.base import RoundChanged
from ..fabric.story import Checkpoint, Reseat
from ..fabric.world import World
from ..native import job, logs, vaults
from ..native.constants import CHECKSUM, SPARE, WHAT
from ..native.shared import Version
from ..vault.group import Group, own_vault, rebuild_parity
from ..vault.vault import Vault
from .deaths import note_lost_results, report_deaths, report_deaths_of_servers
from .failure_state import read_seats
from .seating import next_checksum_seat

# How long a server sleeps if nobody rings the bell. New imports, say, do not ring.
IDLE_US = 200_000


class Server:
    """A checksum rank or a spare, between repairs.

    Args:
        world: of this process.
        vault: of a checksum rank; for a spare an empty one that stands by, or None.
        idle: called now and then by a spare that has nothing to do.
    """

    def __init__(self, world: World, vault: Vault | None, idle: Any) -> None:
        self.world, self.vault, self.idle = world, vault, idle
        self.room = 0  # blocks of the vault whose memory is taken, or being taken
        self.mapped = 0  # blocks of other vaults that are mapped

    def serve(self) -> bool:
        """Serve until a repair is due (True) or the job ends (False)."""
        world = self.world
        world.free_lost_vaults()
        while True:
            seen = world.ctl.bell.word
            if world.ending():
                return False
            if world.alarmed():
                return True
            role, index = world.role()
            busy = False
            if role == CHECKSUM:
                busy = self.step(index)
                if not busy:
                    self.prepare(index)
            elif role == SPARE:
                busy = self.take_vacant_seat()
                if not busy:
                    self.idle()
                    self.stand_by()
            if world.commits(index if role == CHECKSUM else -1):
                report_deaths_of_servers(world)
            if not job.partitioned_help() and not busy:
                job.sleep(seen, IDLE_US)

    def step(self, checksum: int) -> bool:
        """Do the next step of a checkpoint for this parity; False if there is none."""
        world, vault = self.world, self.vault
        assert vault is not None
        committed = world.committed
        # A spare that has just taken the role can be a version behind, if a commit was under way.
        # The members keep the version staged until this parity has it, too.
        version = Version(world.me.folded + 1)
        if world.me.folded < committed and world.me.summed == committed:
            world.visit("fold")
            with world.critical:
                vaults.parity_fold(vault.c, committed)
            world.put("folded", committed)
            world.visit("folded")
            job.ring()
            return True
        number, parity = divmod(checksum, world.ctl.strength)
        if world.me.summed < version and self.staged(number, version):
            world.visit("sum")
            try:
                with Group(world, number) as group:
                    group.sum_staged(vault, parity)
            except RoundChanged:  # while it read from another node; the repair is next
                vaults.parity_drop(vault.c)
                return False
            vault.words.complete = version
            world.put("summed", version)
            job.ring()
        may = world.commits(checksum) and version > committed
        if may and self.summed_everywhere(version):
            world.visit("commit")
            if world.exchange("commit", committed << 1, version << 1):
                logs.trace_note(WHAT["COMMIT"], version)
                record_checkpoint(world, version)
                return True
        return False

    def staged(self, group: int, version: int) -> bool:
        """Say whether all members of a group have staged a version."""
        ctl, roles = self.world.ctl, self.world.roles
        return all(
            ctl.proc[roles.slot_proc[s]].staged == version for s in self.world.members(group)
        )

    def summed_everywhere(self, version: int) -> bool:
        """Say whether all checksum ranks have summed a version."""
        ctl, roles = self.world.ctl, self.world.roles
        holders = [roles.checksum_proc[c] for c in range(ctl.nchecksums)]
        return all(ctl.proc[p].summed == version for p in holders)

    def take_vacant_seat(self) -> bool:
        """Take a dead checksum rank's role while the slots go on; False if there is none to take.

        Over several nodes a repair does this, since two spares might see different deaths first.
        """
        world = self.world
        if world.load("nodes") > 1:
            return False
        ctl = world.ctl
        chosen = next_checksum_seat(read_seats(world))
        if chosen is None or chosen[1] != world.proc:
            return False
        vacant, dead = chosen[0], world.roles.checksum_proc[chosen[0]]
        began = time.monotonic()
        report_deaths(world)
        note_lost_results(world, vacant)
        self.vault = self.vault or own_vault(world, create=True)
        take_checksum_seat(world, vacant)
        job.arm()
        while not self.nobody_stages(world.group_of_checksum(vacant)):
            if world.alarmed():
                return True
            job.sleep(ctl.bell.word, 1000)
        try:
            rebuild_parity(world, self.vault, vacant)
        except RoundChanged:
            return True
        world.lose_vault(dead)
        world.free_lost_vaults()
        took = time.monotonic() - began
        world.emit(Reseat(checksum=vacant, seconds=took, spares_left=len(world.spares())))
        world.tell(
            f"checksum {vacant} died; a spare rebuilt its parity in {took * 1e3:.0f} ms, the "
            "program went on"
        )
        return True

    def prepare(self, checksum: int) -> None:
        """A checksum rank takes the memory that its members will fill (see `preallocation`)."""
        world = self.world
        holders = [world.roles.slot_proc[s] for s in
                   world.members(world.group_of_checksum(checksum))]
        need = max(world.ctl.proc[p].blocks for p in holders)
        if need > self.room:
            assert self.vault is not None
            self.room = need
            self.vault.reserve_ahead(need, staging=need)

    def stand_by(self) -> None:
        """A spare takes the memory of a vault, and maps others, so that restoring is quick."""
        world = self.world
        need = max(world.ctl.proc[p].blocks for p in world.procs_of_job())
        if need > self.room:
            if self.vault is None:
                self.vault = own_vault(world, create=True)
            self.room = need
            # If there is no memory now, there may be some when the spare takes a role.
            self.vault.reserve_ahead(need)
        if world.committed and need > self.mapped:
            self.mapped = need
            for number in range(world.ctl.ngroups):
                group = Group(world, number)
                for element in filter(group.is_local, range(group.k + group.m)):
                    vaults.map_in_use(group[element])

    def nobody_stages(self, group: int) -> bool:
        """Say whether no member of a group is in the middle of staging."""
        ctl, roles = self.world.ctl, self.world.roles
        procs = [ctl.proc[roles.slot_proc[s]] for s in self.world.members(group)]
        return all(p.staging <= self.world.committed or p.staged == p.staging for p in procs)


def take_checksum_seat(world: World, checksum: int) -> None:
    """Give a checksum rank to this process, by one store."""
    ctl = world.ctl
    now, new = ctl.roles_seq, ctl.roles_seq + 1
    job.copy_roles(ctl, new & 1, now & 1)
    ctl.roles[new & 1].checksum_proc[checksum] = world.proc
    world.store("roles_seq", new)
    job.ring()


def record_checkpoint(world: World, version: int) -> None:
    """Put a coordinated checkpoint in the job's story."""
    ctl, roles = world.ctl, world.roles
    procs = [ctl.proc[roles.slot_proc[s]] for s in range(ctl.nslots)]
    world.emit(Checkpoint(
        version=version, kind="coordinated", seconds=max(p.block_ns for p in procs) / 1e9,
        bytes=sum(p.bytes for p in procs), dirty_bytes=sum(p.dirty_bytes for p in procs),
    ))
