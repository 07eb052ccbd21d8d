"""Fixtures of several unit tests, and how many examples a property of hypothesis is tried with.

A run that is awaited takes few of them, others by each run; `FTRMA_EXAMPLES` asks for more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from vaultgroup import SEED, SIZES, Group

# The examples' time depends on what runs beside them, so there is no deadline.
settings.register_profile("unit", deadline=None,
                          max_examples=int(os.environ.get("FTRMA_EXAMPLES", 25)))
settings.load_profile("unit")


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
