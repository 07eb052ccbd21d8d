"""Edges that are given as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .parts import Graph
from .references import MOST_ID, AnyArray, EdgeArrays, Floats

EXACT = 2**53  # integers up to here are floats without rounding


def of_edges(n: int, source: npt.ArrayLike, target: npt.ArrayLike,
             weight: npt.ArrayLike | None = None, what: str = "edges", *, key: str = "") -> Graph:
    """Return a graph of given edges, all of which each slot has.

    If no key is given, the key follows from the edges.

    Raises:
        ValueError: see `edge_arrays`.
    """
    ends = np.asarray(source), np.asarray(target)
    first, second, weights = edge_arrays(
        *ends, None if weight is None else np.asarray(weight), what)
    # The user may change arrays later.
    first, second = (array.copy() if np.may_share_memory(array, of) else array
                     for array, of in zip((first, second), ends, strict=True))
    if weights is not None and np.may_share_memory(weights, np.asarray(weight)):
        weights = weights.copy()

    def contents() -> str:
        found = hashlib.sha256()
        for array in (first, second, weights):
            if array is not None:
                found.update(array.data)
        return f"edges {found.hexdigest()}"

    return Graph(n, lambda: iter([(first, second, weights)]), what, edges=len(first),
                 key=key or contents)


def edge_arrays(source: AnyArray, target: AnyArray, weight: AnyArray | None,
                what: str) -> EdgeArrays:
    """Return edges from arrays; an array that has the right dtype is not copied.

    Raises:
        ValueError: the arrays differ in length, ids are not whole numbers, or weights are not
            numbers.
    """
    if weight is not None and weight.dtype.kind not in "biuf":
        raise ValueError(f"{what}: weights of dtype {weight.dtype}; give real numbers")
    weights = None if weight is None else _weights(weight, what)
    ends = [source, target]
    _check_edges(what, ends, ends if weights is None else [*ends, weights])
    first, second = (np.ascontiguousarray(array, np.int64) for array in ends)
    return first, second, weights


def _weights(weight: AnyArray, what: str) -> Floats:
    """Return weights as floats; integers that a float does not hold are refused, not rounded."""
    if weight.dtype.kind in "iu" and weight.dtype.itemsize == 8:
        large = weight[(weight > EXACT) | (weight < (-EXACT if weight.dtype.kind == "i" else 0))]
        for value in large.tolist():
            if int(float(value)) != value:
                raise ValueError(f"{what}: weight {value} is no number that a float holds exactly; "
                                 "give floats to have it rounded")
    return np.asarray(weight, np.float64)


def _check_edges(what: str, ends: Sequence[AnyArray], arrays: Sequence[AnyArray]) -> None:
    """Refuse arrays of different lengths, and ids that are not valid.

    Args:
        ends: sources and targets.
        arrays: sources, targets, and weights if there are any.
    """
    lengths = {array.shape for array in arrays}
    if len(lengths) > 1 or ends[0].ndim != 1:
        shapes = " and ".join(str(shape) for shape in sorted(lengths))
        raise ValueError(f"{what}: arrays of shapes {shapes}; give one entry for each edge in each")
    if any(array.size and array.dtype.kind not in "iu" for array in ends):
        kinds = " and ".join(str(array.dtype) for array in ends)
        raise ValueError(f"{what}: ids of dtype {kinds}; ids of vertices have to be whole numbers")
    for array in ends:
        if array.size and array.max() > MOST_ID:
            raise ValueError(f"{what}: id {array.max()} is out of range; ids go up to 2**63 - 1")
