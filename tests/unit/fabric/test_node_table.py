"""A launch over several nodes clears what the one before has left on a node."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.fabric import node_table
from ftrma.fabric.node_table import NodeTable
from ftrma.native.shared import Proc

pytestmark = pytest.mark.quick


class Alone:
    """A communicator of one process."""

    def allgather(self, value: Any) -> list[Any]:
        return [value]


def test_only_the_vaults_of_roles_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a process that was a spare has kept its vault under its number. The next launch removes
    it, or a process of that number would have it in place of its role's when it takes a role."""
    monkeypatch.setattr(node_table.job, "set_clock", lambda ahead_ns: None)
    link: Any = SimpleNamespace(request=lambda event: {"ns": 0}, directory=None)
    first = NodeTable(Alone(), Proc(0), link, tmp_path / "job")
    kept = {"slot-1", "checksum-0", "control", "events"}
    for name in ("vault-3", "comm-1", "window-2", "demand-1-1", *kept):
        (first.directory / name).touch()
    again = NodeTable(Alone(), Proc(0), link, tmp_path / "job")
    assert again.directory == first.directory == link.directory
    assert {path.name for path in again.directory.iterdir()} == kept
