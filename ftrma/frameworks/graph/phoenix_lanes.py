"""Bytes that go from slot to slot in a round of Phoenix: the values that have changed, or all.

A lane begins with a number for each field, which says how many values follow; -1: all of them do,
and no places. Else the places of the values are in front of these. All is sent where places and
values would take as many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .references import AnyArray, Mask

HEAD_BYTES = 8  # a field takes so many in front of its values
ALL = -1

Bytes = npt.NDArray[np.uint8]


class Piece(NamedTuple):
    """Values of a field.

    Attributes:
        at: their places among all values between two slots: an index of NumPy.
        values: as many as there are places.
    """

    at: Any
    values: AnyArray


def pack(pieces: Sequence[tuple[AnyArray, Mask | None]]) -> Bytes:
    """A lane.

    Args:
        pieces: of each field all values, and a mask of those that have to be sent; None: all.
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
    """The values in a lane; more bytes may follow them.

    Args:
        kinds: of each field its dtype, and the number of all values.
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
