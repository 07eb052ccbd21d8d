"""Calls into ``csrc/graph/``: messages along edges, factors of a matrix, counting sorts.

`edgekernels` has the calls that make edges. The library does not use MPI, and is loaded here at its
first use. It has loops for np.add, np.minimum and np.maximum of float64, float32, int64, int32 and
uint64. For other dtypes and functions, and for arrays that are not contiguous, `references` is
used. Both have the same results, bit by bit (where one has a NaN, the other has a NaN).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...host.errors import FtrmaError
from . import references
from .references import AnyArray, Columns, Floats, Ints, Mask, Numbers

LIBRARY = Path(__file__).with_name("_kernels.so")
MOST = 2**32  # most rows or targets, since indices have 32 bits

How: TypeAlias = Any  # struct ftrma_graph_how

try:
    ffi: Any = import_module("ftrma.frameworks.graph._kerneldeclarations").ffi
except ModuleNotFoundError:
    raise FtrmaError(f"{Path(__file__).parents[2]} is not built: pip install -e .") from None


def _number(name: str) -> int:
    return int(ffi.integer_const(f"FTRMA_GRAPH_{name}"))


TYPES = {np.dtype(np.float64): _number("F64"), np.dtype(np.float32): _number("F32"),
         np.dtype(np.int64): _number("I64"), np.dtype(np.int32): _number("I32"),
         np.dtype(np.uint64): _number("U64")}
COMBINES = {np.add: _number("ADD"), np.minimum: _number("MIN"), np.maximum: _number("MAX")}
USES = {None: _number("PLAIN"), "plus": _number("PLUS"), "times": _number("TIMES")}


@cache
def lib() -> Any:
    return ffi.dlopen(str(LIBRARY))


# ---- messages along edges -------------------------------------------------------------------


def scatter(combine: np.ufunc, values: AnyArray, got: Mask | None, ptr: Ints, target: Numbers,
            weight: Floats | None, op: str | None, rows: Ints | None, x: AnyArray) -> None:
    """Send along all edges of some rows; combine at the targets in the order of rows and edges.

    Args:
        combine: combines two messages into one.
        values: value of each target, (t,); changed. Messages are converted to its dtype.
        got: mask of the targets that get a message, (t,); changed; None: not needed.
        ptr, target: the place at which the edges of each row begin, (n + 1,), and the target of
            each edge, (m,), which is not checked to be below t.
        weight: weight of each edge, (m,).
        op: "plus" or "times": the edge's weight is added to the value, or multiplies it; None: the
            weight is not used.
        rows: the rows that send; None: all rows.
        x: the value that each of these rows sends, (len(rows),).

    Raises:
        ValueError: lengths do not fit, there is no such row, or no such use of weights.
    """
    _check_use(op, weight)
    sending = len(ptr) - 1 if rows is None else len(rows)
    if len(x) != sending or len(target) != ptr[-1] or (
            weight is not None and len(weight) != len(target)):
        raise ValueError(f"scatter: {len(x)} values, {len(target)} targets and weights of "
                         f"{sending} rows that send and {ptr[-1]} edges")
    if rows is not None and len(rows) and not 0 <= rows.min() <= rows.max() < len(ptr) - 1:
        raise ValueError(f"scatter: rows {rows.min()} to {rows.max()} of {len(ptr) - 1}")
    how, sent = _how(combine, op, values, x)
    if how is None or not plain((ptr, np.int64), (target, np.uint32), (weight, np.float64),
                                 (rows, np.int64), (got, np.bool_)):
        references.scatter(combine, values, got, ptr, target, weight, op, rows, x)
        return
    _done(lib().ftrma_graph_scatter(
        how, at("char", values, True), at("uint8_t", got, True), at("int64_t", ptr),
        at("uint32_t", target), at("double", weight), at("int64_t", rows), sending,
        at("char", sent)))


def gather(combine: np.ufunc, values: AnyArray, got: Mask | None, by: Columns, x: AnyArray,
           sending: Mask | None, op: str | None = None, *, first: int = 0,
           last: int | None = None) -> None:
    """Combine messages by target, with the same bits as `scatter` over ascending rows.

    Args:
        values, got: see `scatter`; they are for targets first to last - 1 alone.
        by: the edges by target; its rows are not checked to be below the length of x.
        x: the value that each row sends, (n,).
        sending: mask of the rows that send, (n,) bool; None: all.
        first, last: the targets; None: to the end.

    Raises:
        ValueError: lengths do not fit, or there is no such use of weights.
    """
    _check_use(op, by.edge_weight)
    last = len(by.ptr) - 1 if last is None else last
    if not 0 <= first <= last < len(by.ptr) or len(values) != last - first or (
            got is not None and len(got) != len(values)):
        raise ValueError(f"gather: {len(values)} values for targets {first} to {last} of "
                         f"{len(by.ptr) - 1}")
    if sending is not None and (sending.dtype != bool or len(sending) != len(x)):
        raise ValueError(f"gather: {len(sending)} of {sending.dtype} say which of {len(x)} rows "
                         "send; give bool, one for each")
    how, sent = _how(combine, op, values, x)
    if how is None or not plain((by.ptr, np.int64), (by.row, np.uint32),
                                 (by.edge_weight, np.float64), (sending, np.bool_),
                                 (got, np.bool_)):
        references.gather(combine, values, got, by, x, sending, op, first=first, last=last)
        return
    _done(lib().ftrma_graph_gather(
        how, at("char", values, True), at("uint8_t", got, True), at("int64_t", by.ptr),
        at("uint32_t", by.row), at("double", by.edge_weight), first, last, at("char", sent),
        at("uint8_t", sending)))


def fold(combine: np.ufunc, values: AnyArray, got: Mask | None, rows: Ints, theirs: AnyArray,
         there: Mask | None) -> None:
    """Combine messages to some rows with the values that the rows have.

    Args:
        values, got: value of each row, and mask of the rows that get a message; changed.
        rows: distinct rows, (k,).
        theirs: the message to each of these rows, (k,).
        there: mask of the entries that are messages, (k,) bool; None: all.

    Raises:
        ValueError: lengths do not fit, or there is no such row.
    """
    if len(theirs) != len(rows) or (there is not None and (there.dtype != bool
                                                           or len(there) != len(rows))):
        raise ValueError(f"fold: {len(theirs)} values for {len(rows)} rows")
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(values):
        raise ValueError(f"fold: rows {rows.min()} to {rows.max()} of {len(values)}")
    how, sent = _how(combine, None, values, theirs)
    if how is None or not plain((rows, np.int64), (there, np.bool_), (got, np.bool_)):
        references.fold(combine, values, got, rows, theirs, there)
        return
    _done(lib().ftrma_graph_fold(
        how, at("char", values, True), at("uint8_t", got, True), at("int64_t", rows),
        len(rows), at("char", sent), at("uint8_t", there)))


def visit(entries: Columns, rows: Floats, columns: Floats, which: Ints, step: Floats,
          regularization: float, squares: Floats) -> None:
    """Take a step of stochastic gradient descent for each known entry of some columns of a matrix.

    Entries are taken one after the other, those of a column in the order of `entries`.

    Args:
        entries: the entries by column; the weights are the values. Its row numbers are not checked.
        rows: factors of each row, (n, rank); changed.
        columns: factors of these columns, (k, rank): a stretch of rows of a contiguous array;
            changed.
        which: numbers of these columns, (k,).
        step: length of the step of each column, (k,).
        regularization: the share of a factor that a step of 1 takes away.
        squares: (k,); set to the sum of squares of the errors, each before its step.

    Raises:
        ValueError: lengths do not fit, or there is no such column.
    """
    if not len(which) == len(columns) == len(step) == len(squares) or (
            columns.shape[1:] != rows.shape[1:] or entries.edge_weight is None):
        raise ValueError(f"visit: {len(which)} columns, factors {columns.shape}, {len(step)} "
                         f"steps, rows {rows.shape}")
    if len(which) and not 0 <= which.min() <= which.max() < len(entries.ptr) - 1:
        raise ValueError(f"visit: columns {which.min()} to {which.max()} of {len(entries.ptr) - 1}")
    assert plain((rows, np.float64), (which, np.int64), (step, np.float64), (squares, np.float64))
    stride, rank = columns.strides[0] // 8, rows.shape[1]
    assert columns.strides == (8 * stride, 8) or len(columns) < 2
    known = ffi.new("struct ftrma_graph_entries *", (
        at("int64_t", entries.ptr), at("uint32_t", entries.row),
        at("double", entries.edge_weight), rank, stride))
    lib().ftrma_graph_visit(
        known, at("double", rows, True), ffi.cast("double *", columns.ctypes.data),
        at("int64_t", which), len(which), at("double", step), regularization,
        at("double", squares, True))


def _check_use(op: str | None, weight: Floats | None) -> None:
    if op not in USES:
        raise ValueError(f"weights used by {op!r}: give \"plus\" or \"times\"")
    if op is not None and weight is None:
        raise ValueError(f"weights used by {op!r}: the graph has none")


def _how(combine: np.ufunc, op: str | None, values: AnyArray,
         x: AnyArray) -> tuple[How | None, AnyArray]:
    """Return the loop of C, or None if there is none, and x in the dtype of values."""
    kind = TYPES.get(values.dtype)
    if kind is None or combine not in COMBINES or not plain((values, values.dtype)):
        return None, x
    if op is not None:
        # C multiplies and adds in float64, as NumPy does with a weight and these dtypes.
        wide = values.dtype == np.float64 and x.dtype.kind in "biuf" and x.dtype.itemsize <= 8
        if not wide and not (values.dtype == x.dtype == np.float32):
            return None, x
    with np.errstate(all="ignore"):
        sent = np.ascontiguousarray(x, values.dtype)
    how = ffi.new("struct ftrma_graph_how *", (kind, COMBINES[combine], USES[op]))
    return how[0], sent


def plain(*arrays: tuple[AnyArray | None, npt.DTypeLike]) -> bool:
    """Say whether each of these arrays is contiguous and has the given dtype."""
    return all(array is None or (array.dtype == dtype and array.flags.c_contiguous
                                 and array.flags.aligned) for array, dtype in arrays)


def at(kind: str, array: AnyArray | None, writable: bool = False) -> Any:
    """Return an array's memory, for C."""
    if array is None:
        return ffi.NULL
    return ffi.from_buffer(f"{kind}[]", array, require_writable=writable)


def _done(result: int) -> None:
    assert result == 0, "C has a loop for all that is handed to it"


# ---- edges by row and by target -------------------------------------------------------------


def csr(row: AnyArray, target: AnyArray, weight: Floats | None,
        size: int) -> tuple[Ints, Numbers, Floats | None]:
    """Sort edges by row, stably.

    Args:
        row, target: row and target of each edge, integers from 0 to 2**32 - 1, (m,).
        weight: weight of each edge, (m,), or None.
        size: number of rows.

    Returns:
        The place at which the edges of each row begin, (size + 1,), and the targets and weights of
        the edges, (m,).

    Raises:
        ValueError: lengths do not fit, a row is not below size, or there are more than 2**32 rows.
    """
    _check_size(size)
    rows, targets = _numbers(row), _numbers(target)
    weights = None if weight is None else np.ascontiguousarray(weight, np.float64)
    if len({len(array) for array in (rows, targets, weights) if array is not None}) > 1:
        raise ValueError(f"csr: {len(rows)} rows, {len(targets)} targets, and other weights")
    ptr, sorted_ = np.empty(size + 1, np.int64), np.empty(len(rows), np.uint32)
    heavy = None if weights is None else np.empty(len(rows), np.float64)
    if lib().ftrma_graph_csr(
            at("uint32_t", rows), at("uint32_t", targets), at("double", weights), len(rows),
            size, at("int64_t", ptr), at("uint32_t", sorted_), at("double", heavy)):
        raise ValueError(f"csr: row {rows.max()} of {size}")
    return ptr, sorted_, heavy


def by_target(ptr: Ints, target: AnyArray, weight: Floats | None, size: int) -> Columns:
    """Sort edges by target; those of a target are in ascending order of rows and edges.

    Args:
        ptr, target, weight: edges by row, as `csr` returns them.
        size: number of targets.

    Raises:
        ValueError: lengths do not fit, a target is not below size, or there are more than 2**32
            targets.
    """
    _check_size(max(size, len(ptr) - 1))
    targets, begins = _numbers(target), np.ascontiguousarray(ptr, np.int64)
    weights = None if weight is None else np.ascontiguousarray(weight, np.float64)
    if len(targets) != begins[-1] or (weights is not None and len(weights) != len(targets)):
        raise ValueError(f"by_target: {len(targets)} targets and weights of {begins[-1]} edges")
    by, row = np.empty(size + 1, np.int64), np.empty(len(targets), np.uint32)
    heavy = None if weights is None else np.empty(len(targets), np.float64)
    if lib().ftrma_graph_by_target(
            at("int64_t", begins), at("uint32_t", targets), at("double", weights),
            len(begins) - 1, size, at("int64_t", by), at("uint32_t", row),
            at("double", heavy)):
        raise ValueError(f"by_target: target {targets.max()} of {size}")
    return Columns(by, row, heavy)


def distinct(ptr: Ints, target: AnyArray, size: int) -> tuple[Ints, Numbers]:
    """Sort the targets of each row, ascending, and keep only one of equal targets.

    Args:
        ptr, target: edges by row, as `csr` returns them.
        size: number of targets.

    Returns:
        The place at which the edges of each row begin, and their targets.

    Raises:
        ValueError: see `by_target`.
    """
    turned = by_target(ptr, target, None, size)
    again = by_target(turned.ptr, turned.row, None, len(ptr) - 1)
    lib().ftrma_graph_distinct(at("int64_t", again.ptr, True), at("uint32_t", again.row, True),
                                len(ptr) - 1)
    return again.ptr, again.row[: again.ptr[-1]].copy()


def triangles(ptr: Ints, target: Numbers, lists: Ints, member: Numbers) -> Ints:
    """Count for each row the members of its targets' lists that are also targets of the row.

    If the list of a vertex has those of its neighbours that are greater than it, in any order of
    all vertices, each triangle of a vertex is counted once: by the edge opposite to the vertex.

    Args:
        ptr, target: distinct targets by row, as `distinct` returns them, numbers below t.
        lists, member: the place at which the list of each target begins, (t + 1,), and the members
            of the lists, which are numbers of targets.

    Returns:
        The counts, (n,).

    Raises:
        ValueError: lengths do not fit, or a number is not below t.
    """
    size = len(lists) - 1
    if len(target) != ptr[-1] or len(member) != lists[-1] or any(
            len(array) and array.max() >= size for array in (target, member)):
        raise ValueError(f"triangles: {len(target)} targets of {ptr[-1]} edges, {len(member)} "
                         f"members of {lists[-1]}, with numbers below {size}")
    assert plain((ptr, np.int64), (target, np.uint32), (lists, np.int64), (member, np.uint32))
    mark, found = np.zeros(size, np.uint8), np.zeros(len(ptr) - 1, np.int64)
    lib().ftrma_graph_triangles(
        at("int64_t", ptr), at("uint32_t", target), len(ptr) - 1, at("int64_t", lists),
        at("uint32_t", member), at("uint8_t", mark, True), at("int64_t", found, True))
    return found


def _check_size(size: int) -> None:
    if not 0 <= size < MOST:
        raise ValueError(f"{size} rows or targets in a slot; more slots have less than 2**32 each")


def _numbers(array: AnyArray) -> Numbers:
    return np.ascontiguousarray(array, np.uint32)
