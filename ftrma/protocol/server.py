"""Checksum ranks and spares between repairs: they sum, commit and fold, and take vacant seats.

`coordinated` is the slots' side of a checkpoint; ``csrc/vault/checkpoint.c`` describes the steps.
"""

from __future__ import annotations

import contextlib
import time
from enum import Enum
from typing import Any

from ..fabric.round_changed import RoundChanged
from ..fabric.story import Checkpoint, Reseat
from ..fabric.view import JobView
from ..fabric.words import ProcessWords
from ..host.errors import FtrmaError
from ..native import job, logs, vaults
from ..native.constants import CHECKSUM, SPARE, WHAT
from ..native.shared import Version
from ..vault.group import Group, own_vault, rebuild_parity
from ..vault.vault import Vault
from .deaths import note_lost_results, report_deaths, report_deaths_of_servers
from .failure_state import read_seats
from .seating import next_checksum_seat

# A server sleeps for this time if nobody rings the bell. Some changes, such as new imports to make
# ahead, do not ring it.
IDLE_US = 200_000


class Served(Enum):
    """Reasons why a server stops serving."""

    ENDED = "the job ends"
    ALARMED = "a repair is due"
    CLAIMED = "a framework has its spares run the program, too"


class Server:
    """A checksum rank or a spare, between repairs.

    Args:
        view: this process's view of the job.
        vault: a checksum rank's vault; for a spare an empty vault that stands by, or None.
        idle: called now and then by a spare that has nothing to do.
    """

    def __init__(self, view: JobView, vault: Vault | None, idle: Any) -> None:
        self.view, self.vault, self.idle = view, vault, idle
        self.room = 0  # blocks of the vault whose memory is allocated or is being allocated
        self.mapped = 0  # blocks of other vaults that are mapped

    def serve(self, *, place: bool = False) -> Served:
        """Serve until there is something else to do.

        Args:
            place: this process has still to run the program in this attempt if a framework is told
                of deaths.
        """
        view = self.view
        view.free_lost_vaults()
        while True:
            seen = view.bell
            if view.is_ending():
                return Served.ENDED
            if view.alarmed():
                return Served.ALARMED
            role, index = view.role()
            if place and role == SPARE and view.tells_deaths:
                return Served.CLAIMED
            busy = False
            if role == CHECKSUM:
                busy = self.step(index)
                if not busy:
                    self.prepare(index)
            elif role == SPARE and not view.tells_deaths:
                busy = self.take_vacant_seat()
                if not busy:
                    self.idle()
                    self.stand_by()
            if view.may_commit(index if role == CHECKSUM else -1):
                report_deaths_of_servers(view)
            if not job.partitioned_help() and not busy:
                view.wait_for_bell(seen, IDLE_US)

    def step(self, checksum: int) -> bool:
        """Do the next step of a checkpoint for this parity; return False if there is none."""
        view, vault = self.view, self.vault
        assert vault is not None
        committed = view.words.committed
        # A spare that has just taken the role can be one version behind, if a commit was under way.
        # The members keep the version staged until this parity has it, too.
        version = Version(view.words.me.folded + 1)
        if view.words.me.folded < committed and view.words.me.summed == committed:
            view.visit("fold")
            with view.critical:
                vaults.parity_fold(vault.c, committed)
            view.words.me.folded = committed
            view.visit("folded")
            view.ring()
            return True
        number, parity = divmod(checksum, view.layout.strength)
        if view.words.me.summed < version and self.staged(number, version):
            view.visit("sum")
            try:
                with Group(view, number) as group:
                    group.sum_staged(vault, parity)
            except RoundChanged:  # it was reading from another node; a repair follows
                vaults.parity_drop(vault.c)
                return False
            vault.words.complete = version
            view.words.me.summed = version
            view.ring()
        may = view.may_commit(checksum) and version > committed
        if may and self.summed_everywhere(version):
            view.visit("commit")
            if view.words.commit(version):
                logs.trace_note(WHAT["COMMIT"], version)
                record_checkpoint(view, version)
                return True
        return False

    def staged(self, group: int, version: int) -> bool:
        """Say whether all members of a group have staged a version."""
        return all(words.staged == version for words in self.words_of_members(group))

    def words_of_members(self, group: int) -> list[ProcessWords]:
        """Words of the processes that hold a group's slots."""
        holders, words = self.view.slot_holders(), self.view.words
        return [words.process(holders[s]) for s in self.view.layout.members(group)]

    def summed_everywhere(self, version: int) -> bool:
        """Say whether all checksum ranks have summed a version."""
        view = self.view
        return all(view.words.process(p).summed == version for p in view.checksum_holders())

    def take_vacant_seat(self) -> bool:
        """Take a dead checksum rank's role while the slots go on; return False if there is none to
        take.

        Over several nodes a repair seats the spare instead, since two spares might see different
        deaths first.
        """
        view = self.view
        if view.several_nodes:
            return False
        chosen = next_checksum_seat(read_seats(view))
        if chosen is None or chosen[1] != view.proc:
            return False
        vacant, dead = chosen[0], view.checksum_holders()[chosen[0]]
        began = time.monotonic()
        report_deaths(view)
        note_lost_results(view, vacant)
        self.vault = self.vault or own_vault(view, create=True)
        # A framework's claim that keeps all seats as they are waits for processes with this flag,
        # since they may not have seen the claim.
        view.words.me.rebuilding = 1
        kept = view.keeps_seats
        if not kept:
            take_checksum_seat(view, vacant)
        self.withdraw_rebuild()
        if kept:
            return False
        job.arm()
        while not self.announce_rebuild(view.layout.group_of_checksum(vacant)):
            if view.alarmed():
                return True
            view.wait_for_bell(view.bell, 1000)
        try:
            rebuild_parity(view, self.vault, vacant, others_run=True)
        except RoundChanged:
            return True
        finally:
            self.withdraw_rebuild()
        view.put_vault_aside(dead)
        view.free_lost_vaults()
        took = time.monotonic() - began
        view.emit(Reseat(checksum=vacant, seconds=took, spares_left=len(view.spares())))
        view.tell(
            f"checksum {vacant} died; a spare rebuilt its parity in {took * 1e3:.0f} ms, the "
            "program went on"
        )
        return True

    def prepare(self, checksum: int) -> None:
        """Allocate, as a checksum rank, the memory that its members will fill (see
        `preallocation`)."""
        view = self.view
        members = self.words_of_members(view.layout.group_of_checksum(checksum))
        need = max(words.blocks for words in members)
        if need > self.room:
            assert self.vault is not None
            self.room = need
            self.vault.reserve_ahead(need, staging=need)

    def stand_by(self) -> None:
        """Allocate, as a spare, the memory of a vault, and map other vaults, so that restoring is
        quick."""
        view = self.view
        need = max(view.words.process(p).blocks for p in view.all_procs())
        if need > self.room:
            if self.vault is None:
                self.vault = own_vault(view, create=True)
            self.room = need
            # If there is no memory now, there may be some when the spare takes a role.
            self.vault.reserve_ahead(need)
        if view.words.committed and need > self.mapped:
            self.mapped = need
            for number in range(view.layout.groups):
                group = Group(view, number)
                for element in filter(group.is_local, range(group.k + group.m)):
                    # A checksum rank that is taking its seat makes its vault anew; the vault may be
                    # missing or incomplete.
                    with contextlib.suppress(OSError, FtrmaError):
                        vaults.map_in_use(group[element])

    def announce_rebuild(self, group: int) -> bool:
        """Keep a group's members from beginning to stage, if none is in the middle of it.

        A member that is staging may wait for others to begin, so these are not kept from it then.
        """
        if not self.nobody_stages(group):
            return False
        self.view.words.me.rebuilding = 1
        if self.nobody_stages(group):
            return True
        self.withdraw_rebuild()
        return False

    def withdraw_rebuild(self) -> None:
        """Let the members stage again."""
        self.view.words.me.rebuilding = 0
        self.view.ring()

    def nobody_stages(self, group: int) -> bool:
        """Say whether no member of a group is in the middle of staging."""
        committed = self.view.words.committed
        return all(words.staging <= committed or words.staged == words.staging
                   for words in self.words_of_members(group))


def take_checksum_seat(view: JobView, checksum: int) -> None:
    """Give a checksum rank to this process, by one store."""
    holders = view.checksum_holders()
    holders[checksum] = view.proc
    view.set_holders(view.slot_holders(), holders)
    view.ring()


def record_checkpoint(view: JobView, version: int) -> None:
    """Put a coordinated checkpoint in the job's story."""
    procs = [view.words.process(p) for p in view.slot_holders()]
    view.emit(Checkpoint(
        version=version, kind="coordinated", seconds=max(p.block_ns for p in procs) / 1e9,
        bytes=sum(p.bytes for p in procs), dirty_bytes=sum(p.dirty_bytes for p in procs),
        step=min(p.arrived for p in procs),  # a fast slot may already be at the next safepoint
    ))
