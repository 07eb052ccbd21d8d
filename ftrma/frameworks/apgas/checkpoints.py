"""Red and black versions of saved fields, and the flip record that says which versions count.

The store has two keys for each field of a place's state, red and black. A checkpoint writes each
field that it is given to the key that does not count; then it writes one record with the versions
of all fields, the flip record. If a place dies in between, the old record still names a whole,
older checkpoint.

Each field of each shelf has a version of its own, and the next version follows from the record. A
field that is not given keeps its version. With a separate counter, or one version for all fields, a
checkpoint that failed half-way could make the next one overwrite a value that still counts. All
functions here are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Versions = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True)
class Flip:
    """The record of a committed checkpoint.

    Attributes:
        iteration: number of steps that had been taken.
        versions: versions of the saved fields, by shelf and name.
    """

    iteration: int
    versions: Versions = field(default_factory=dict)


def slot(run: str, name: str, version: int) -> str:
    """Return the store's key of a version of a field."""
    return f"{run}/{'red' if version % 2 else 'black'}/{name}"


def flip_key(run: str) -> str:
    """Return the store's key of a run's flip record."""
    return f"{run}/flip"


def next_versions(flip: Flip | None, shelf: int, names: Iterable[str]) -> dict[str, int]:
    """Return the versions that a checkpoint gives to the fields of a shelf."""
    old = flip.versions.get(shelf, {}) if flip else {}
    return {name: old.get(name, -1) + 1 for name in names}


def flipped(flip: Flip | None, iteration: int, written: Versions, whole: bool) -> Flip:
    """Return the record that commits a checkpoint.

    Args:
        flip: the previous record; None: there is none.
        iteration: number of steps that have been taken.
        written: versions that the checkpoint has written, by shelf and name.
        whole: all state was written; other fields, and shelves that are gone, are forgotten.
    """
    versions = {} if whole or not flip else {shelf: dict(names)
                                             for shelf, names in flip.versions.items()}
    for shelf, names in written.items():
        versions[shelf] = {**versions.get(shelf, {}), **names}
    return Flip(iteration, versions)
