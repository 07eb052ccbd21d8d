"""Fixtures of several unit tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vaultgroup import SEED, SIZES, Group


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    made = []

    def maker(
        sizes: list[int] = SIZES, seed: int = SEED, versions: int = 0, strength: int = 1
    ) -> Group:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Group(directory, sizes, seed, strength))
        for _ in range(versions):
            made[-1].checkpoint()
        return made[-1]

    yield maker
    for group in made:
        group.close()
