"""What a framework saves of itself: entries, by name, beside windows and declared state.

An entry is one array. It is saved with each checkpoint and never put back by itself: whoever enters
the program reads the copy that is committed. That stays when the array is gone, so what needs not
be saved again is not needed in memory either.

Law: what is clean follows from what is committed, not from what was staged: that can be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FtrmaError
from ..native.shared import Version
from ..vault.vault import Region

KINDS = ("value", "static", "append")
AnyArray = npt.NDArray[Any]
Form = tuple[str, np.dtype[Any], tuple[int, ...]]  # kind, type and shape


@dataclass
class Bound:
    """An array that the next checkpoint saves.

    Attributes:
        staged: the newest version that it was staged for, and how many bytes it had then.
        committed_bytes: of its first bytes, that are in the committed copy, as far as is known.
    """

    kind: str
    array: AnyArray
    staged: tuple[Version, int] | None = None
    committed_bytes: int = 0

    def settle(self, committed: Version) -> None:
        """Take note of what has been committed."""
        if self.staged and self.staged[0] <= committed:
            self.committed_bytes, self.staged = self.staged[1], None

    @property
    def clean_bytes(self) -> int:
        return 0 if self.kind == "value" else self.committed_bytes


class Entries:
    """The entries of a slot, in one attempt of the program.

    Args:
        saved: what the checkpoint has at which the program is entered.
        view: the bytes that the vault has of a region, by its key and size.
    """

    def __init__(
        self, saved: Mapping[str, Form], view: Callable[[Any, int], Any]
    ) -> None:
        self.saved, self.view = dict(saved), view
        self.bound: dict[str, Bound] = {}
        self.before: tuple[Version, dict[str, Form]] | None = None  # as `Vault.before`

    def put(self, key: str, value: npt.ArrayLike, kind: str) -> None:
        """See `ftrma.framework.SavedEntries`."""
        array = np.asarray(value, order="C")
        check(key, array, kind)
        before, entry = self.bound.get(key), Bound(kind, array)
        if kind == "append" and before and before.kind == kind:
            entry.staged, entry.committed_bytes = before.staged, before.committed_bytes
        elif kind == "append" and not before and self.saved.get(key, ("",))[0] == kind:
            entry.committed_bytes = size_of(self.saved[key])
        if array.nbytes < max(entry.committed_bytes, entry.staged[1] if entry.staged else 0):
            raise ValueError(f"entry {key!r}: {array.nbytes} bytes are less than are saved "
                             "already; one of kind \"append\" only grows: drop it first")
        self.bound[key] = entry

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
        self.bound.pop(key, None)

    # -- a checkpoint -----------------------------------------------------------------------------

    def forms(self) -> dict[str, Form]:
        """What the next checkpoint has, for its record."""
        bound = {key: (e.kind, e.array.dtype, e.array.shape) for key, e in self.bound.items()}
        return {**self.saved, **bound}

    def regions(self, committed: Version) -> list[Region]:
        """The same, as the vault takes it."""
        for key, bound in list(self.bound.items()):
            bound.settle(committed)
            if bound.kind == "static" and bound.committed_bytes == bound.array.nbytes > 0:
                del self.bound[key]  # the copy does
        found = []
        for key, form in self.forms().items():
            size_bytes, entry = size_of(form), self.bound.get(key)
            where = (entry.array.ctypes.data, size_bytes, entry.clean_bytes) if entry else (
                0, size_bytes, size_bytes)
            found.append(Region(("entry", key), *where))
        return found

    def staged(self, version: Version) -> None:
        """All of it was staged for this version, which may not be committed yet."""
        self.before, self.saved = (version, self.saved), self.forms()
        for entry in self.bound.values():
            entry.staged = version, entry.array.nbytes


    def undone(self, version: Version) -> None:
        """The vault is at this version: what was staged since is as if it had not been."""
        if self.before and self.before[0] > version:
            self.saved, self.before = self.before[1], None
            for entry in self.bound.values():
                entry.staged = None


def size_of(form: Form) -> int:
    """Bytes of an array."""
    _, dtype, shape = form
    return dtype.itemsize * int(np.prod(shape, dtype=np.int64))


def check(key: str, array: AnyArray, kind: str) -> None:
    """Refuse what cannot be saved."""
    if kind not in KINDS:
        raise ValueError(f"entry {key!r}: kind {kind!r} is none of {', '.join(KINDS)}")
    if array.dtype.hasobject:
        raise FtrmaError(f"entry {key!r}: an array of objects cannot be saved; give numbers")
