"""Named arrays that a framework saves with checkpoints, beside windows and declared state.

An array is saved with each checkpoint but is never restored automatically: in a new attempt the
framework reads the committed copy. The copy stays when the array is gone, so an array that need not
be saved again need not stay in memory either.

Law: only the committed version decides which bytes are clean, never a staged version, which can be
undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..host.errors import FtrmaError
from ..native.shared import Version
from ..vault.vault import Region

KINDS = ("value", "static", "append")
AnyArray = npt.NDArray[Any]
Form = tuple[str, np.dtype[Any], tuple[int, ...]]  # kind, type and shape


@dataclass
class BoundArray:
    """An array that the next checkpoint saves.

    Attributes:
        kind: one of KINDS.
        array: the values.
        staged: the newest version for which it was staged, and its bytes then.
        committed_bytes: how many of its first bytes are known to be in the committed copy.
    """

    kind: str
    array: AnyArray
    staged: tuple[Version, int] | None = None
    committed_bytes: int = 0

    def note_committed(self, committed: Version) -> None:
        """Note which version is committed."""
        if self.staged and self.staged[0] <= committed:
            self.committed_bytes, self.staged = self.staged[1], None

    @property
    def clean_bytes(self) -> int:
        return 0 if self.kind == "value" else self.committed_bytes


class EntryStore:
    """The saved arrays of a slot, in one attempt of the program.

    Args:
        saved: arrays in the checkpoint with which the attempt begins.
        view: returns the vault's bytes of a region, given its key and size.
    """

    def __init__(
        self, saved: Mapping[str, Form], view: Callable[[Any, int], Any]
    ) -> None:
        self.saved, self.view = dict(saved), view
        self.bound: dict[str, BoundArray] = {}
        self.fresh: set[str] = set()  # keys put since entries were staged
        # The arrays as they were saved before the newest version was staged, since it may be
        # undone.
        self.before: tuple[Version, dict[str, Form]] | None = None

    def put(self, key: str, value: npt.ArrayLike, kind: str) -> None:
        """See `ftrma.framework.SavedEntries`."""
        array = np.asarray(value, order="C")
        check(key, array, kind)
        before, entry = self.bound.get(key), BoundArray(kind, array)
        if kind == "append" and before and before.kind == kind:
            entry.staged, entry.committed_bytes = before.staged, before.committed_bytes
        elif kind == "append" and not before and self.saved.get(key, ("",))[0] == kind:
            entry.committed_bytes = size_of(self.saved[key])
        if array.nbytes < max(entry.committed_bytes, entry.staged[1] if entry.staged else 0):
            raise ValueError(f"entry {key!r}: {array.nbytes} bytes are less than are saved "
                             "already; one of kind \"append\" only grows: drop it first")
        self.bound[key] = entry
        self.fresh.add(key)

    def read(self, key: str) -> AnyArray:
        """See `ftrma.framework.SavedEntries`."""
        form = self.saved[key]
        _, dtype, shape = form
        found = np.frombuffer(self.view(("entry", key), size_of(form)), dtype).reshape(shape)
        found.flags.writeable = False
        return found

    def drop(self, key: str) -> None:
        """See `ftrma.framework.SavedEntries`."""
        self.saved.pop(key, None)
        if self.before:
            self.before[1].pop(key, None)
        self.bound.pop(key, None)
        self.fresh.discard(key)

    # -- a checkpoint -----------------------------------------------------------------------------

    def forms(self, *, fresh: bool = False) -> dict[str, Form]:
        """Return the forms of the arrays in the next checkpoint, for its record.

        Args:
            fresh: only those that were put since entries were staged.
        """
        bound = {key: (e.kind, e.array.dtype, e.array.shape) for key, e in self.bound.items()
                 if not fresh or key in self.fresh}
        return bound if fresh else {**self.saved, **bound}

    def regions(self, committed: Version, *, fresh: bool = False) -> list[Region]:
        """Return the regions of these arrays.

        Args:
            committed: the committed version.
            fresh: see `forms`.
        """
        for key, bound in list(self.bound.items()):
            bound.note_committed(committed)
            if bound.kind == "static" and bound.committed_bytes == bound.array.nbytes > 0:
                del self.bound[key]  # the committed copy is enough
        found = []
        for key, form in self.forms(fresh=fresh).items():
            size_bytes, entry = size_of(form), self.bound.get(key)
            where = (entry.array.ctypes.data, size_bytes, entry.clean_bytes) if entry else (
                0, size_bytes, size_bytes)
            found.append(Region(("entry", key), *where))
        return found

    def staged(self, version: Version, *, fresh: bool = False) -> None:
        """Note that arrays were staged for a version, which may not be committed yet.

        Args:
            fresh: see `forms`; the other arrays were already staged for this version.
        """
        if not fresh:
            self.before = version, self.saved
        self.saved = {**self.saved, **self.forms(fresh=fresh)}
        for key in self.fresh if fresh else self.bound:
            self.bound[key].staged = version, self.bound[key].array.nbytes
        self.fresh = set()

    def undone(self, version: Version) -> None:
        """Go back to the arrays of this version, since everything staged after it is undone."""
        if self.before and self.before[0] > version:
            self.saved, self.before = self.before[1], None
            for entry in self.bound.values():
                entry.staged = None


def size_of(form: Form) -> int:
    """Return the size of an array in bytes."""
    _, dtype, shape = form
    return dtype.itemsize * int(np.prod(shape, dtype=np.int64))


def check(key: str, array: AnyArray, kind: str) -> None:
    """Raise an error for an array that cannot be saved."""
    if kind not in KINDS:
        raise ValueError(f"entry {key!r}: kind {kind!r} is none of {', '.join(KINDS)}")
    if array.dtype.hasobject:
        raise FtrmaError(f"entry {key!r}: an array of objects cannot be saved; give numbers")
