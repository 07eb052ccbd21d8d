"""Bytes that go from slot to slot in a round of Phoenix: the values that have changed, or all.

For each field a lane has a number that says how many values follow. If it is -1, all values follow,
without places. Otherwise the places of the values come before the values. All values are sent if
places and changed values would take as many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .references import AnyArray, Mask

HEAD_BYTES = 8  # bytes of a field before its values
ALL = -1

Bytes = npt.NDArray[np.uint8]


class Piece(NamedTuple):
    """Values of a field.

    Attributes:
        at: places among all values between two slots: an index of NumPy.
        values: the values, as many as there are places.
    """

    at: Any
    values: AnyArray


def pack(pieces: Sequence[tuple[AnyArray, Mask | None]]) -> Bytes:
    """Return a lane.

    Args:
        pieces: for each field all values, and a mask of those that have to be sent; None: all.
    """
    head, body = np.full(len(pieces), ALL, np.int64), []
    for i, (values, wanted) in enumerate(pieces):
        places = None if wanted is None else np.flatnonzero(wanted).astype(np.uint32)
        if places is None or len(places) * (4 + values.itemsize) >= values.nbytes:
            body.append(values.view(np.uint8))
        else:
            head[i] = len(places)
            body += [places.view(np.uint8), values[places].view(np.uint8)]
    return np.concatenate([head.view(np.uint8), *body])


def unpack(lane: Bytes, kinds: Sequence[tuple[npt.DTypeLike, int]]) -> list[Piece]:
    """Return the values in a lane; more bytes may follow them.

    Args:
        kinds: for each field its dtype and the number of all its values.
    """
    end = HEAD_BYTES * len(kinds)
    found = []
    for (kind, size), count in zip(kinds, lane[:end].copy().view(np.int64), strict=True):
        at: Any = slice(None)
        if count != ALL:
            size, begin, end = int(count), end, end + 4 * int(count)
            at = lane[begin:end].copy().view(np.uint32)
        begin, end = end, end + size * np.dtype(kind).itemsize
        found.append(Piece(at, lane[begin:end].copy().view(kind)))
    return found
