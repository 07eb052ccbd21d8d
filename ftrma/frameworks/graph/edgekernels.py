"""Calls into ``csrc/graph/`` that make edges, or bring them to their owners: text, R-MAT, owners.

`references` and `textform` have the same results as the code in C, bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import references, textform
from .kernels import MOST, at, ffi, lib, plain
from .references import AnyArray, Dealt, EdgeArrays, Floats, Ints
from .textform import TextForm


def rmat(seed: int, scale: int, pairs: npt.NDArray[np.uint8], first: int,
         count: int) -> tuple[Ints, Ints]:
    """Make edges first to first + count - 1 of R-MAT, each of which follows from its number.

    Args:
        seed: the seed, 0 to 2**64 - 1.
        scale: number of bits of an id, 0 to 40.
        pairs: for each draw two bits of the source, then two of the target, (65536,).

    Returns:
        Sources and targets, (count,).
    """
    source, target = np.empty(count, np.int64), np.empty(count, np.int64)
    assert len(pairs) == 65536 and plain((pairs, np.uint8))
    lib().ftrma_graph_rmat(seed, scale, at("uint8_t", pairs), first, count,
                            at("int64_t", source), at("int64_t", target))
    return source, target


# ---- edges and their owners -----------------------------------------------------------------


def deal(n: int, slots: int, bounds: Ints | None, source: Ints, target: Ints,
         weight: Floats | None) -> Dealt | None:
    """Group edges by the owners of their sources; the edges of a slot keep their order.

    Args:
        n: number of vertices.
        bounds: slot s owns vertices bounds[s] to bounds[s + 1] - 1, (slots + 1,); None: see
            `owners`.
        weight: weight of each edge, or None.

    Returns:
        The edges; None: an id is not that of a vertex.
    """
    if n > MOST or not plain((source, np.int64), (target, np.int64), (weight, np.float64)):
        return references.deal(n, slots, bounds, source, target, weight)
    sizes, owner = np.empty(slots, np.int64), np.empty(len(source), np.uint32)
    row, to = np.empty(len(source), np.uint32), np.empty(len(source), np.uint32)
    heavy = None if weight is None else np.empty(len(source), np.float64)
    if lib().ftrma_graph_deal(
            _owners(n, slots, bounds), at("int64_t", source), at("int64_t", target),
            at("double", weight), len(source), at("uint32_t", owner), at("int64_t", sizes),
            at("uint32_t", row), at("uint32_t", to), at("double", heavy)):
        return None
    return Dealt(sizes, row, to, heavy)


def number(n: int, slots: int, bounds: Ints | None,
           target: AnyArray) -> tuple[Ints, Ints, AnyArray]:
    """Number the distinct targets of edges: by owner, then ascending.

    Args:
        n, slots, bounds: see `deal`.
        target: ids, (m,); an array of uint32 is overwritten with the numbers.

    Returns:
        The place at which the targets of each slot begin, (slots + 1,); the distinct targets; the
        number of the target of each edge, (m,).
    """
    if target.dtype != np.uint32 or not plain((target, np.uint32)):
        return references.number(n, slots, bounds, target)
    begins, numbers, owners_ = np.empty(slots + 1, np.int64), np.zeros(n, np.uint32), _owners(
        n, slots, bounds)
    lib().ftrma_graph_mark(owners_, at("uint32_t", target), len(target),
                           at("uint32_t", numbers, True), at("int64_t", begins))
    distinct = np.empty(begins[-1], np.int64)
    lib().ftrma_graph_number(owners_, at("uint32_t", target, True), len(target),
                             at("uint32_t", numbers, True), at("int64_t", begins.copy(), True),
                             at("int64_t", distinct))
    return begins, distinct, target


def _owners(n: int, slots: int, bounds: Ints | None) -> Any:
    """Return the struct of owners, which refers to the bounds."""
    return ffi.new("struct ftrma_graph_ownership *", (n, at("int64_t", bounds), slots))


def owners(ids: Ints, slots: int) -> Ints:
    """Return the slot of each vertex, if ids are dealt out in rounds that begin at mixed slots.

    In round i each slot gets one of the vertices slots * i to slots * i + slots - 1; which one
    follows from i.

    Args:
        ids: ids that are not negative, (m,).
        slots: number of slots, 1 to 2**32 - 1.
    """
    given = np.ascontiguousarray(ids, np.int64)
    found = np.empty(len(given), np.int64)
    lib().ftrma_graph_owners(at("int64_t", given), len(given), slots,
                              at("int64_t", found, True))
    return found


# ---- edge lists as text ---------------------------------------------------------------------


def lines(text: bytes) -> int:
    """Count the line feeds in a text; with short lines `bytes.count` takes 20 times as long."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))


def parse(text: bytes, what: str, line0: int, form: TextForm = textform.PAIRS) -> EdgeArrays:
    """Read edges from lines of text: source, target and perhaps a weight, in some of the columns.

    Lines that are empty, or begin with #, % or //, are left out. The last line need not end with a
    line feed.

    Args:
        text: whole lines.
        what: name of the text, for errors.
        line0: number of lines before this text.
        form: form of the lines.

    Returns:
        Sources, targets, and weights if the form has them.

    Raises:
        ValueError: a line is no edge; the text has its number.
    """
    text = bytes(text)
    if not text.endswith(b"\n"):
        text += b"\n"
    room = lines(text)
    source, target = np.empty(room, np.int64), np.empty(room, np.int64)
    weight = np.empty(0 if form.weight is None else room, np.float64)
    read = ffi.new("struct ftrma_graph_read *")
    how = ffi.new("struct ftrma_graph_form *", (
        form.separator.encode() or b"\0", form.mark.encode() or b"\0", form.columns, form.source,
        form.target, -1 if form.weight is None else form.weight, form.base))
    result = lib().ftrma_graph_parse(
        ffi.from_buffer("char[]", text), len(text), how, read, at("int64_t", source),
        at("int64_t", target), at("double", weight))
    if result == -2:
        raise MemoryError("no memory for a locale")
    if result:
        line = text[read.begin : text.index(b"\n", read.begin)]
        textform.edge(line, f"{what}: line {line0 + read.lines + 1}", form)
        raise AssertionError(f"C refuses a line that the reference takes: {line!r}")
    count = int(read.edges)
    return source[:count], target[:count], None if form.weight is None else weight[:count]
