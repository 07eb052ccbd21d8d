"""Red and black versions of saved fields, and the flip record that says which ones count.

A field of a place's state has two slots in the store, red and black. A checkpoint writes each field
that it is given into the slot that does not count, then one record with all versions flips. A death
in between leaves the old record, and with it a whole older checkpoint.

Each field of each shelf has versions of its own, and the next one follows from the record: fields
that are given now and then keep their version in the checkpoints without them. A counter of its
own, or one version for all fields, would have a checkpoint that failed half-way overwrite a slot
that still counts. All functions here are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Versions = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True)
class Flip:
    """The record of a committed checkpoint.

    Attributes:
        iteration: steps that had been taken.
        versions: of the saved fields, by shelf and name.
    """

    iteration: int
    versions: Versions = field(default_factory=dict)


def slot(run: str, name: str, version: int) -> str:
    """The store's key of a field's version."""
    return f"{run}/{'red' if version % 2 else 'black'}/{name}"


def flip_key(run: str) -> str:
    """The store's key of a run's flip record."""
    return f"{run}/flip"


def next_versions(flip: Flip | None, shelf: int, names: Iterable[str]) -> dict[str, int]:
    """The versions that a checkpoint gives to a shelf's fields."""
    old = flip.versions.get(shelf, {}) if flip else {}
    return {name: old.get(name, -1) + 1 for name in names}


def flipped(flip: Flip | None, iteration: int, written: Versions, whole: bool) -> Flip:
    """The record that commits a checkpoint.

    Args:
        flip: the record before; None: there is none.
        iteration: steps that have been taken.
        written: versions that the checkpoint has written, by shelf and name.
        whole: all state was written; what was not given is forgotten, shelves that are gone too.
    """
    versions = {} if whole or not flip else {shelf: dict(names)
                                             for shelf, names in flip.versions.items()}
    for shelf, names in written.items():
        versions[shelf] = {**versions.get(shelf, {}), **names}
    return Flip(iteration, versions)
