"""Edges of text files: edge lists, Matrix Market, METIS and DIMACS.

A text is read a stretch of lines at a time, and read again for each part that is made. So a slot
has hardly more in memory than the part that it keeps.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import edgekernels, textform, textguess, texthead
from .parts import Graph
from .references import EdgeArrays, Floats, Ints
from .slices import Sliced, extremes
from .textform import TextForm
from .textguess import Wishes
from .texthead import Head, Metis

Stretches = Callable[..., Iterator[bytes]]  # gives the text of some blocks, cut at ends of lines
UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass
class Text:
    """A text in a file.

    Attributes:
        lines: yields the text of blocks first to last - 1; (0, None): of all blocks.
        blocks: number of the blocks; 0: the text can only be read from its beginning.
        first: number of lines that end in block 0, as far as the sample has them.
        key: tells the file and its state from others.
        comm: the slots that all read the text now; None: this slot reads it alone.
    """

    lines: Stretches
    name: str
    sample: bytes
    whole: bool
    blocks: int
    first: int
    key: str
    comm: Any = None


def graph_of(text: Text, n: int | None, wishes: Wishes) -> tuple[Graph, str]:
    """Return the graph of a text, and a text that says how it is read.

    Args:
        n: number of vertices, if the user gives it.

    MPI: collective over the text's slots, if there are some.

    Raises:
        ValueError: the text is no graph, or cannot be read as the user wishes.
    """
    lines, name, sample, whole = text.lines, text.name, text.sample, text.whole
    if sample[:2] in UTF16:
        raise ValueError(f"{name}: is UTF-16; save it as UTF-8")
    if sample[:14].lower() == b"%%matrixmarket" or re.search(r"\.mtx(\.|$)", name):
        return _with_head(text, texthead.matrix_market(sample, name), "Matrix Market",
                          counted=True)
    free = wishes.columns is None and wishes.skip is None and wishes.separator is None
    if free and not wishes.labels:
        if (arcs := texthead.dimacs(sample)) is not None:
            return _with_head(text, arcs, "DIMACS", counted=not arcs.both)
        if (head := texthead.metis(sample, whole)) is not None:
            return (Graph(head.n, lambda: _neighbours(lines, head, name), name,
                          edges=2 * head.edges),
                    f"METIS, each edge in both directions, {head.n:,} vertices, ids from 1, "
                    f"{'' if head.weighted else 'no '}weights")
        texthead.refused(sample, name)
    found = textguess.guess(sample, name, wishes)
    graph, ids = (_labelled(lines, found.form, name, n) if found.labels else
                  _numbered(text, found.form, n))
    return graph, f"directed, {graph.n:,} vertices, {ids}, {found.told}"


def _with_head(text: Text, head: Head, kind: str, *, counted: bool) -> tuple[Graph, str]:
    """Return the graph of a file whose head says how many vertices and edges it has."""
    def check(count: int) -> None:
        if counted and count != head.entries:
            raise ValueError(f"{text.name}: cannot be read as .mtx: it has {count} entries, and "
                             f"its head says {head.entries}" if kind != "DIMACS" else
                             f"{text.name}: has {count} arcs, and its head says {head.entries}")

    def chunks() -> Iterator[EdgeArrays]:
        count = 0
        for chunk in edges(text.lines, head.form, text.name):
            count += len(chunk[0])
            yield chunk
        check(count)

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        yield source, target, weight
        other = np.flatnonzero(source != target) if head.both else np.zeros(0, np.int64)
        if len(other):
            sign = -1 if head.both == "skew" else 1
            yield (target[other], source[other], None if weight is None else sign * weight[other])

    sliced = _sliced(text, head.form)
    if sliced is not None:
        check(sliced.look().edges)
    made = Graph(head.n, chunks, text.name, slices=sliced.slices if sliced else None)
    both, slices = made.through(change)
    graph = Graph(head.n, both, text.name, edges=head.entries * (2 if head.both else 1),
                  slices=slices)
    weights = "no weights" if head.form.weight is None else \
        f"weights from column {head.form.weight + 1}"
    way = "each edge in both directions" if head.both else "directed"
    return graph, f"{kind}, {way}, {head.n:,} vertices, ids from 1, {weights}"


def edges(lines: Stretches, form: TextForm, name: str) -> Iterator[EdgeArrays]:
    """Yield all edges of lines of a form, a stretch at a time; no chunk is empty."""
    for text, line0 in stretches(lines, form.skip):
        found = edgekernels.parse(text, name, line0, form)
        if len(found[0]):
            yield found


def stretches(lines: Stretches, skip: int) -> Iterator[tuple[bytes, int]]:
    """Yield the text after some lines, a stretch at a time, with the number of lines before it."""
    line0 = 0
    for text in lines():
        begin = 0
        while line0 < skip and begin < len(text):
            begin = (text.find(b"\n", begin) + 1) or len(text)
            line0 += 1
        if begin < len(text):
            behind = text[begin:] if begin else text
            yield behind, line0
            line0 += edgekernels.lines(behind)


def _numbered(text: Text, form: TextForm, n: int | None) -> tuple[Graph, str]:
    """Return the graph of an edge list whose ids are numbers, and words about its ids."""
    def chunks() -> Iterator[EdgeArrays]:
        return edges(text.lines, form, text.name)

    ids, sliced = "1-based" if form.base else "0-based", _sliced(text, form)
    slices = sliced.slices if sliced else None
    if n is not None:
        next(chunks(), None)  # a file that is no text is refused here
        return Graph(n, chunks, text.name, slices=slices), ids
    most, least, count, weight = sliced.look() if sliced else extremes(chunks())
    if most < 0:
        raise ValueError(f"{text.name}: has no edges; give n for a graph without any")
    if least == 1 and not form.base:
        ids += " though the least id is 1 (one_based=True or --one-based leaves vertex 0 out)"
    return Graph(most + 1, chunks, text.name, edges=count, slices=slices,
                 least_weight=weight), ids


def _sliced(text: Text, form: TextForm) -> Sliced | None:
    """Return the edges of a text of which each slot reads some blocks; None: it is read whole."""
    comm, head = text.comm, form.skip <= text.first  # all lines that are skipped are in block 0
    if not text.blocks or not head or comm is None or comm.size == 1:
        return None

    def read(i: int, many: int) -> Iterator[EdgeArrays]:
        first, last = (text.blocks * k // many for k in (i, i + 1))
        mine = form if first == 0 else replace(form, skip=0)
        try:
            yield from edges(lambda: text.lines(first, last), mine, text.name)
        except ValueError:
            for _ in edges(text.lines, form, text.name):
                pass  # which knows the number of the line that is wrong
            raise

    return Sliced(comm, text.key, read)


# ---- ids that are words ---------------------------------------------------------------------


def _labelled(lines: Stretches, form: TextForm, name: str, n: int | None) -> tuple[Graph, str]:
    """Return the graph of an edge list whose ids are words, and words about its ids.

    The ids are numbered in the order in which they appear.
    """
    if n is not None:
        raise ValueError(f"{name}: n {n}, and ids that are words, which say how many there are; "
                         "leave n out")
    number: dict[str, int] = {}

    def words() -> Iterator[tuple[list[str], list[str], list[float] | None]]:
        for text, line0 in stretches(lines, form.skip):
            yield _words(text, line0, form, name)

    for sources, targets, _ in words():
        for pair in zip(sources, targets, strict=True):
            for word in pair:
                number.setdefault(word, len(number))
    if not number:
        raise ValueError(f"{name}: has no edges, so no vertices")

    def chunks() -> Iterator[EdgeArrays]:
        for sources, targets, weights in words():
            if sources:
                yield (np.array([number[word] for word in sources], np.int64),
                       np.array([number[word] for word in targets], np.int64),
                       None if weights is None else np.array(weights, np.float64))

    names = np.empty(len(number), object)
    names[:] = list(number)
    return Graph(len(number), chunks, name, names), f"ids are words ({next(iter(number))!r} is 0)"


def _words(text: bytes, line0: int, form: TextForm,
           name: str) -> tuple[list[str], list[str], list[float] | None]:
    """Return sources, targets and weights of lines whose ids are words."""
    sources: list[str] = []
    targets: list[str] = []
    weights: list[float] = []
    for number, line in enumerate(text.splitlines(), line0 + 1):
        if textform.is_left_out(line, form):
            continue
        where = f"{name}: line {number}"
        row = _row(line, form.separator, where)
        textform.check_width(row, form, where)
        sources.append(row[form.source].decode("utf-8", "surrogateescape"))
        targets.append(row[form.target].decode("utf-8", "surrogateescape"))
        if not sources[-1] or not targets[-1]:
            raise ValueError(f"{where}: an id is empty; leave the line out, or give it a name")
        if form.weight is not None:
            weights.append(textform.weight_of(row[form.weight], where))
    return sources, targets, None if form.weight is None else weights


def _row(line: bytes, separator: str, where: str) -> list[bytes]:
    if b'"' in line:
        found = next(csv.reader([line.decode("utf-8", "surrogateescape")], delimiter=separator,
                                skipinitialspace=True), []) if separator else None
        if found is not None:
            return [word.strip(" \t").encode("utf-8", "surrogateescape") for word in found]
        return textform.fields(line, separator, where)
    if separator:
        return [word.strip(b" \t") for word in line.split(separator.encode())]
    return line.replace(b",", b" ").split()


# ---- METIS ----------------------------------------------------------------------------------


def _neighbours(lines: Stretches, head: Metis, name: str) -> Iterator[EdgeArrays]:
    """Yield the edges of a METIS file, whose lines are the vertices."""
    vertex, count, step = 0, 0, 1 + head.weighted
    for text, line0 in stretches(lines, head.skip):
        rows = [(number, line.split()) for number, line in enumerate(text.splitlines(), line0 + 1)
                if not line.startswith(b"%")]
        if not rows:
            continue
        lengths = [len(row) - head.front for _, row in rows]
        try:
            words = np.array([word for _, row in rows for word in row[head.front:]], np.float64)
        except ValueError:
            raise ValueError(f"{name}: a word of lines {rows[0][0]} to {rows[-1][0]} is no number; "
                             "a line of METIS has the neighbours of a vertex") from None
        wrong = next((number for (number, _), length in zip(rows, lengths, strict=True)
                      if length < 0 or length % step), 0)
        if wrong:
            raise ValueError(f"{name}: line {wrong}: has not the columns that the head says")
        source = np.repeat(np.arange(vertex, vertex + len(rows)), np.array(lengths) // step)
        target = words[::step].astype(np.int64) - 1
        vertex, count = vertex + len(rows), count + len(target)
        if len(target):
            yield source, target, words[1::step].copy() if head.weighted else None
    if vertex != head.n or count != 2 * head.edges:
        raise ValueError(
            f"{name}: read as METIS it has {vertex} vertices and {count} neighbours, and its head "
            f"says {head.n} and {2 * head.edges}; if it is an edge list, say columns=(0, 1) or "
            "--columns 0,1")
