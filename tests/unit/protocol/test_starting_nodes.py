"""A launch over several nodes takes over the vaults of the one before, one process at a time.

MPI is not started; vaults are real files.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vaultgroup import SEAL

from ftrma.machine.topology import make_layout
from ftrma.native import loading, vaults
from ftrma.native.constants import SPARE
from ftrma.native.shared import Version
from ftrma.protocol.retrieval import Retrieval
from ftrma.protocol.starting_nodes import restore
from ftrma.protocol.vault_inventory import VaultInventory
from ftrma.vault.vault import BLOCK, Region, Vault


class Comm:
    """A communicator of one process, which sends nothing."""

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def Barrier(self) -> None:
        pass


loading.load()


def view_of_one(directory: Path) -> Any:
    layout = make_layout(1, spares=0)
    return SimpleNamespace(
        inventory=VaultInventory(directory, "a", layout, 64), layout=layout, words=SimpleNamespace(
            me=SimpleNamespace(ready=0), set_committed=lambda version: None),
        critical=threading.Lock(), proc=0, table=table_of(["a"], 0),
        visit=lambda place: None, barrier=lambda: None,
        tell=print, seal=lambda version: SEAL, remote_files=None,
        share_vault=lambda: None,
    )


def table_of(hosts: list[str], proc: int) -> Any:
    return SimpleNamespace(hosts=hosts, host="a", proc=proc, first_on_node=True)


def stage(vault: Vault, version: int, array: Any) -> None:
    vault.stage(version, [Region("x", array.ctypes.data, array.nbytes)], {}, SEAL)
    vault.words.complete = version


def test_the_end_does_not_reach_a_vault_that_is_being_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: what another death makes of a launch that is restoring, no vault is left half undone."""
    seen = []
    view = view_of_one(tmp_path)

    def watched(name: str) -> None:
        real = getattr(vaults, name)

        def call(*args: Any) -> None:
            seen.append((name, view.critical.locked()))
            real(*args)

        monkeypatch.setattr(vaults, name, call)

    for name in ("stage_undo", "parity_fold", "parity_drop"):
        watched(name)
    array = np.arange(3 * BLOCK, dtype="u1")
    for kind, at in (("slot", 1), ("checksum", 1), ("checksum", 0)):
        vault = Vault(tmp_path / f"{kind}-{at}", 64, 1, create=True)
        stage(vault, 1, array)
        vault.words.version = at
        view.inventory.opened[kind, at] = vault
    view.role = lambda: (SPARE, 0)
    mine = Retrieval(view, view.inventory, Comm(), {})
    mine.version = 1
    mine._bring_to_version()
    assert sorted(seen) == [
        ("parity_drop", True), ("parity_fold", True), ("stage_undo", True)
    ]
    for vault in view.inventory.opened.values():
        vault.close()


@pytest.mark.parametrize(("homes", "found"), [
    ([], True), ([("slot", 0, "a")], True), ([("slot", 0, "b")], False),
    ([("slot", 0, "a"), ("slot", 0, "b")], True), ([("slot", 1, "b")], True)])
def test_a_vault_counts_where_its_role_was(
    tmp_path: Path, homes: list[tuple[str, int, str]], found: bool
) -> None:
    """Law: a vault is looked for where its role was last, at both places if it was moving."""
    view = view_of_one(tmp_path)
    view.inventory.open(("slot", 0), create=True).close()
    view.inventory.exchange(Comm(), homes, looking=True)
    assert (("slot", 0) in view.inventory.found) == found


def test_a_vault_that_is_elsewhere_too_goes(tmp_path: Path) -> None:
    """Law: after a launch has restored, no node has a vault of a role that it does not hold."""
    view = view_of_one(tmp_path)
    view.table, view.proc = table_of(["b", "a"], 1), 1
    view.inventory.found = {("slot", 0): ("b", frozenset({Version(0)}))}
    view.role = lambda: (2, 0)
    (tmp_path / "slot-0").touch()
    view.everyone, view.slot_holders, view.checksum_holders = Comm(), lambda: [0], lambda: [1]
    vault, _ = restore(view, view.inventory)
    assert vault is not None and os.listdir(tmp_path) == ["checksum-0"]
    vault.close()
