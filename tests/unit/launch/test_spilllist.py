"""Texts of `ftrma spill` about a directory that has nothing to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftrma.fabric import spillfiles
from ftrma.launch import spilllist


@pytest.mark.parametrize(("begun", "why"), [
    (False, "there is no checkpoint in it yet"), (True, "no checkpoint in it is whole")])
def test_a_directory_without_a_checkpoint(tmp_path: Path, begun: bool, why: str) -> None:
    """Law: a checkpoint that was begun and is not whole is told apart from none at all."""
    if begun:
        (tmp_path / "0001-000001").mkdir()
        assert spillfiles.points(tmp_path, whole=False)
    with pytest.raises(ValueError, match=why):
        spilllist.describe(str(tmp_path), "list")
