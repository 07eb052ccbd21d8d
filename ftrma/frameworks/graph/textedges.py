"""Edges of text files: edge lists, Matrix Market, METIS and DIMACS.

A text is read a stretch of lines at a time, anew for each part that is made, so a slot has no more
in memory than it keeps.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator

import numpy as np

from . import kernels, textform, textguess, texthead
from .parts import Graph
from .references import EdgeArrays
from .textform import TextForm
from .textguess import Wishes
from .texthead import Head, Metis

Stretches = Callable[[], Iterator[bytes]]  # gives a file's text, cut at ends of lines
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def graph_of(lines: Stretches, sample: bytes, whole: bool, name: str, n: int | None,
             wishes: Wishes) -> tuple[Graph, str]:
    """The graph of a text, and how it is read, for people.

    Args:
        sample: the first lines; `whole`: there are no others.
        n: vertices, if the user says how many.

    Raises:
        ValueError: the text is no graph, or not as the user wishes to read it.
    """
    if sample[:2] in UTF16:
        raise ValueError(f"{name}: is UTF-16; save it as UTF-8")
    if sample[:14].lower() == b"%%matrixmarket" or re.search(r"\.mtx(\.|$)", name):
        return _with_head(lines, texthead.matrix_market(sample, name), name, "Matrix Market",
                          counted=True)
    free = wishes.columns is None and wishes.skip is None and wishes.separator is None
    if free and not wishes.labels:
        if (arcs := texthead.dimacs(sample)) is not None:
            return _with_head(lines, arcs, name, "DIMACS", counted=not arcs.both)
        if (head := texthead.metis(sample, whole)) is not None:
            return (Graph(head.n, lambda: _neighbours(lines, head, name), name,
                          edges=2 * head.edges),
                    f"METIS, each edge in both directions, {head.n:,} vertices, ids from 1, "
                    f"{'' if head.weighted else 'no '}weights")
        texthead.refused(sample, name)
    found = textguess.guess(sample, name, wishes)
    made = (_labelled if found.labels else _numbered)(lines, found.form, name, n)
    graph, ids = made
    return graph, f"directed, {graph.n:,} vertices, {ids}, {found.told}"


def _with_head(lines: Stretches, head: Head, name: str, kind: str, *,
               counted: bool) -> tuple[Graph, str]:
    """The graph of a file whose head says how many vertices and edges it has."""
    def chunks() -> Iterator[EdgeArrays]:
        count = 0
        for source, target, weight in edges(lines, head.form, name):
            count += len(source)
            yield source, target, weight
            other = np.flatnonzero(source != target) if head.both else np.zeros(0, np.int64)
            if len(other):
                sign = -1 if head.both == "skew" else 1
                yield (target[other], source[other],
                       None if weight is None else sign * weight[other])
        if counted and count != head.entries:
            raise ValueError(f"{name}: cannot be read as {kind} (.mtx): it has {count} entries, "
                             f"and its head says {head.entries}" if kind != "DIMACS" else
                             f"{name}: has {count} arcs, and its head says {head.entries}")

    graph = Graph(head.n, chunks, name, edges=head.entries * (2 if head.both else 1))
    weights = "no weights" if head.form.weight is None else \
        f"weights from column {head.form.weight + 1}"
    way = "each edge in both directions" if head.both else "directed"
    return graph, f"{kind}, {way}, {head.n:,} vertices, ids from 1, {weights}"


def edges(lines: Stretches, form: TextForm, name: str) -> Iterator[EdgeArrays]:
    """All edges of lines of a form, a stretch at a time; no chunk is empty."""
    for text, line0 in stretches(lines, form.skip):
        found = kernels.parse(text, name, line0, form)
        if len(found[0]):
            yield found


def stretches(lines: Stretches, skip: int) -> Iterator[tuple[bytes, int]]:
    """The text behind some lines, a stretch at a time, with the number of lines in front."""
    line0 = 0
    for text in lines():
        begin = 0
        while line0 < skip and begin < len(text):
            begin = (text.find(b"\n", begin) + 1) or len(text)
            line0 += 1
        if begin < len(text):
            yield text[begin:] if begin else text, line0
            line0 += text.count(b"\n", begin)


def _numbered(lines: Stretches, form: TextForm, name: str, n: int | None) -> tuple[Graph, str]:
    """The graph of an edge list whose ids are numbers; and its ids in words."""
    def chunks() -> Iterator[EdgeArrays]:
        return edges(lines, form, name)

    ids = "1-based" if form.base else "0-based"
    if n is not None:
        next(chunks(), None)  # a file that is no text is refused here
        return Graph(n, chunks, name), ids
    most, least = -1, 1 << 62
    for source, target, _ in chunks():
        most = max(most, int(source.max()), int(target.max()))
        least = min(least, int(source.min()), int(target.min()))
    if most < 0:
        raise ValueError(f"{name}: has no edges; give n for a graph without any")
    if least == 1 and not form.base:
        ids += " though the least id is 1 (one_based=True or --one-based leaves vertex 0 out)"
    return Graph(most + 1, chunks, name), ids


# ---- ids that are words ---------------------------------------------------------------------


def _labelled(lines: Stretches, form: TextForm, name: str, n: int | None) -> tuple[Graph, str]:
    """The graph of an edge list whose ids are words, numbered as they come; and that in words."""
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
    """Sources, targets and weights of lines whose ids are words."""
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
    """The edges of a METIS file, whose lines are the vertices."""
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
