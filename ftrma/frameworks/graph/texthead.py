"""Forms of text that say what they are: Matrix Market, DIMACS and METIS."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .textform import TextForm

LINES = 1000  # most lines that are looked at
DIMACS = re.compile(rb"p[ \t]+([a-z]+)[ \t]+([0-9]+)[ \t]+([0-9]+)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Head:
    """The beginning of a file that says how many vertices and edges it has.

    Attributes:
        n, entries: number of vertices, and of lines that have an edge.
        both: each line has an edge in one direction and stands for both; "skew": the edge in the
            other direction has the negative weight.
    """

    form: TextForm
    n: int
    entries: int
    both: str = ""


def matrix_market(sample: bytes, name: str) -> Head:
    """Return the head of a Matrix Market file in coordinate format.

    Raises:
        ValueError: the head is damaged, or the matrix is not that of a graph.

    Source: R. Boisvert, R. Pozo, K. Remington, "The Matrix Market Exchange Formats", 1996.
    """
    lines = sample.split(b"\n")
    words = lines[0].decode("ascii", "replace").lower().split()
    if len(words) < 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
        raise ValueError(f"{name}: cannot be read as .mtx: its first line is no banner of a matrix "
                         "(%%MatrixMarket matrix coordinate real general)")
    _, _, kind, field, symmetry = words[:5]
    if kind != "coordinate" or field not in ("real", "integer", "pattern", "double"):
        raise ValueError(f"{name}: a matrix of {field} numbers in {kind} format; save it with "
                         "real, integer or pattern ones in coordinate format")
    if symmetry not in ("general", "symmetric", "skew-symmetric"):
        raise ValueError(f"{name}: a {symmetry} matrix; save it as general or symmetric")
    for number, line in enumerate(lines[1:], 2):
        if not line.strip() or line.startswith(b"%"):
            continue
        sizes = line.split()
        if len(sizes) != 3 or not all(size.isdigit() and len(size) < 20 for size in sizes):
            raise ValueError(f"{name}: cannot be read as .mtx: line {number} has not rows, columns "
                             "and entries")
        rows, columns, entries = map(int, sizes)
        if rows != columns:
            raise ValueError(f"{name}: a matrix of {rows} x {columns}; that of a graph is square")
        pattern = field == "pattern"
        form = TextForm(weight=None if pattern else 2, columns=2 if pattern else 3, base=1,
                        skip=number)
        both = {"general": "", "symmetric": "both", "skew-symmetric": "skew"}[symmetry]
        return Head(form, rows, entries, both)
    raise ValueError(f"{name}: cannot be read as .mtx: no line has rows, columns and entries")


def dimacs(sample: bytes) -> Head | None:
    """Return the head of a file of the DIMACS challenges; None: it is no such file.

    Files for shortest paths and flows have arcs (lines ``a``), files for colouring and cliques have
    edges (lines ``e``).

    Source: challenges 1 (1991), 2 (1993) and 9 (2006) of DIMACS.
    """
    for line in sample.split(b"\n"):
        if not line.strip() or (line[:1] == b"c" and not line[1:2].isalnum()):
            continue
        found = DIMACS.fullmatch(line)
        if found is None:
            return None
        kind, n, entries = found[1].decode().lower(), int(found[2]), int(found[3])
        if kind in ("edge", "edges", "col", "clq"):
            return Head(TextForm(source=1, target=2, columns=0, mark="e", base=1), n, entries,
                        "both")
        return Head(TextForm(source=1, target=2, weight=3, columns=4, mark="a", base=1), n,
                    entries)
    return None


@dataclass(frozen=True)
class Metis:
    """The head of a METIS file, in which a line for each vertex has its neighbours, from 1 on.

    Attributes:
        front: number of words in a line before the neighbours: a size and weights of the vertex.
        weighted: after each neighbour comes the weight of the edge.
        skip: number of lines up to the head.
    """

    n: int
    edges: int
    front: int
    weighted: bool
    skip: int


def metis(sample: bytes, whole: bool) -> Metis | None:
    """Return the head of a file that may be METIS's; None: its first lines show that it is not.

    Args:
        sample: the first lines.
        whole: the file has no other lines.

    Source: G. Karypis, "METIS: A Software Package for Partitioning ...", manual of version 5.
    """
    lines = sample.split(b"\n")
    if not lines[-1]:
        del lines[-1]
    at = next((i for i, line in enumerate(lines) if not line.startswith(b"%")), None)
    words = [] if at is None else lines[at].split()
    if at is None or not 2 <= len(words) <= 4 or not all(
            word.isdigit() and len(word) < 16 for word in words):
        return None
    fmt = words[2].decode().zfill(3) if len(words) > 2 else "000"
    if len(fmt) != 3 or set(fmt) - {"0", "1"}:
        return None
    constraints = int(words[3]) if len(words) == 4 else int(fmt[1])
    head = Metis(int(words[0]), int(words[1]), int(fmt[0]) + (constraints if fmt[1] == "1" else 0),
                 fmt[2] == "1", at + 1)
    if not head.n:
        return None
    some = lines[at + 1 : None if whole else at + LINES]
    body = [line.split() for line in some if not line.startswith(b"%")]
    counts = [(len(row) - head.front) / (1 + head.weighted) for row in body]
    if any(count < 0 or count % 1 for count in counts) or len(counts) > head.n:
        return None
    most = str(head.n).encode()
    if any(not word.isdigit() or (len(word), word) > (len(most), most) or word == b"0"
           for row in body for word in row[head.front :: 1 + head.weighted]):
        return None
    if whole:
        ends = {(v, int(word)) for v, row in enumerate(body, 1)
                for word in row[head.front :: 1 + head.weighted]}
        symmetric = all(v != w and (w, v) in ends for v, w in ends)
        return head if symmetric and len(counts) == head.n and sum(counts) == 2 * head.edges \
            else None
    # The lines of an edge list have equally many words, and so have those of a regular graph.
    if len(set(counts)) == 1 and counts[0] * head.n != 2 * head.edges:
        return None
    return head


def refused(sample: bytes, name: str) -> None:
    """Refuse texts that are not edge lists.

    Raises:
        ValueError: the text is none; the message says what it is instead, and the remedy.
    """
    begin = sample.lstrip()[:200].lower()
    kinds = {b"<": "XML, such as GraphML or GEXF", b"{": "JSON", b"[": "JSON",
             b"*vertices": "Pajek", b"*network": "Pajek", b"graph [": "GML", b"graph\n[": "GML",
             b"creator": "GML", b"digraph": "DOT", b"strict": "DOT", b"graph {": "DOT"}
    for word, kind in kinds.items():
        if begin.startswith(word):
            raise ValueError(f"{name}: is {kind}; read it with NetworkX or igraph and give the "
                             "object to Engine.load, or save a list of edges")
