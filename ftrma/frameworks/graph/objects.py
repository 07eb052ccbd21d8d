"""Graphs from objects that programs have: scipy.sparse, NetworkX, igraph, pandas, polars, arrays.

None of these packages is imported here: an object is recognized by the package of its class.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import files, parts, tablefiles, textguess
from .given import of_edges
from .parts import Graph
from .references import AnyArray
from .textguess import Wishes

KNOWN = ("a path, a matrix or array of scipy.sparse, a graph of NetworkX or igraph, a table of "
         "pandas, polars or Arrow, or arrays (source, target) or (source, target, weight)")


def load(source: Any, *, n: int | None = None, relabel: bool = False, comm: Any = None,
         **options: Any) -> Graph:
    """Load a graph from a file or an object.

    A path: see `files.load`. A matrix of scipy.sparse: its rows are sources, its entries weights. A
    graph of NetworkX or igraph: each edge of an undirected graph is there in both directions; the
    weights are the edges' ``weight``, if all edges have one; nodes that are not 0 to n - 1 become
    `Graph.names`. A table: its columns are chosen by their names, as for a text with a header.
    Arrays: (source, target), or (source, target, weight), or one array of shape (m, 2).

    Args:
        source: the file or object; all slots give the same edges.
        n, relabel, comm, options: see `files.load`; columns, one_based and labels are for tables,
            weighted is for all objects.

    Raises:
        ValueError: the object is no graph, or cannot be read with these options.
        TypeError: the object is of none of these kinds.
    """
    if isinstance(source, str | os.PathLike):
        return files.load(source, n=n, relabel=relabel, comm=comm, **options)
    if relabel and n is not None:
        raise ValueError(f"n {n} and relabel, which finds out n; leave one of them out")
    what, wishes = type(source).__name__, Wishes(**options)
    wishes.check(what)
    if wishes.skip is not None or wishes.separator is not None:
        raise ValueError(f"{what}: is no text: skip and separator are for text")
    found = _found(source, what, wishes)
    if n is not None and found.names is not None:
        raise ValueError(f"{what}: n {n}, and vertices that have names, which say how many there "
                         "are; leave n out")
    found = Graph(found.n if n is None else n, found.chunks, what, found.names, edges=found.edges,
                  key=_contents(found, n), read_as=found.read_as)
    return parts.relabel(found) if relabel else found


def _contents(graph: Graph, n: int | None) -> Any:
    """Return a function that returns the key of a graph, from its edges and names."""
    def key() -> str:
        found = hashlib.sha256()
        for chunk in graph.chunks():
            for array in chunk:
                found.update(b"-" if array is None else np.ascontiguousarray(array).data)
        if graph.names is not None:
            found.update(repr(graph.names.tolist()).encode())
        return f"object {graph.n if n is None else n} {found.hexdigest()}"

    return key


def _found(source: Any, what: str, wishes: Wishes) -> Graph:
    """Return the graph of an object, which is recognized by the package of its class."""
    if isinstance(source, Graph):
        return source
    packages = {kind.__module__.partition(".")[0] for kind in type(source).__mro__}
    table = packages & {"pandas", "polars", "pyarrow"} and hasattr(source, "columns")
    if not table and (wishes.columns is not None or wishes.one_based or wishes.labels):
        raise ValueError(f"{what}: columns, one_based and labels are for files and tables")
    if table:
        return _table(source, what, wishes)
    if packages & {"networkx"} and hasattr(source, "is_directed"):
        return _networkx(source, what, wishes)
    if packages & {"igraph"} and hasattr(source, "get_edgelist"):
        return _igraph(source, what, wishes)
    if packages & {"scipy"} and hasattr(source, "tocoo"):
        return _matrix(source, what, wishes)
    return _arrays(source, what, wishes)


def _weight(weight: Any, what: str, wishes: Wishes) -> Any:
    """Return the weights, or None if the user does not want them."""
    if wishes.weighted and weight is None:
        raise ValueError(f"{what}: weighted, and it has no weights")
    return None if wishes.weighted is False else weight


def _matrix(matrix: Any, what: str, wishes: Wishes) -> Graph:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{what}: a matrix of {' x '.join(map(str, matrix.shape))}; that of a "
                         "graph is square")
    found = matrix.tocoo()
    return of_edges(matrix.shape[0], found.row, found.col, _weight(found.data, what, wishes), what)


def _arrays(source: Any, what: str, wishes: Wishes) -> Graph:
    """Return the graph of arrays of ids and weights, or of one array of pairs."""
    if isinstance(source, np.ndarray) and source.ndim == 2 and source.shape[1] == 2:
        columns: list[Any] = list(source.T)
    elif isinstance(source, list | tuple) and len(source) in (2, 3) and all(
            np.ndim(array) == 1 for array in source):
        columns = [np.asarray(array) for array in source]
    elif isinstance(source, np.ndarray | list | tuple):
        shape = np.shape(source) if isinstance(source, np.ndarray) else f"({len(source)},)"
        raise ValueError(f"{what} of shape {shape}: give arrays (source, target) or (source, "
                         "target, weight), or one of shape (m, 2); of a matrix "
                         "scipy.sparse.coo_array(matrix)")
    else:
        raise TypeError(f"a graph of {what}: give {KNOWN}")
    weight = _weight(columns[2] if len(columns) == 3 else None, what, wishes)
    most = max((int(ids.max()) for ids in columns[:2] if ids.size and ids.dtype.kind in "iu"),
               default=0)
    return of_edges(1 + most, columns[0], columns[1], weight, what)


def _both(source: AnyArray, target: AnyArray,
          weight: AnyArray | None) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """Return edges in both directions; a loop stays one edge."""
    other = source != target
    return (np.concatenate([source, target[other]]), np.concatenate([target, source[other]]),
            None if weight is None else np.concatenate([weight, weight[other]]))


def _of_graph(ends: AnyArray, weight: Any, names: Iterable[Any], *, directed: bool, what: str,
              wishes: Wishes) -> Graph:
    """Return the graph of another package's graph: pairs of numbers, and names of all vertices."""
    every = list(names)
    weights = _weight(None if weight is None else np.asarray(weight), what, wishes)
    source, target = ends.reshape(-1, 2).T
    if not directed:
        source, target, weights = _both(source, target, weights)
    made = of_edges(len(every), source, target, weights, what)
    if every != list(range(len(every))):
        made.names = np.empty(len(every), object)
        made.names[:] = every
    way = "directed" if directed else "each edge in both directions"
    made.read_as = f"{way}, {made.n:,} vertices, {'no ' if weights is None else ''}weights"
    return made


def _networkx(graph: Any, what: str, wishes: Wishes) -> Graph:
    number = {node: i for i, node in enumerate(graph)}
    found = list(graph.edges(data="weight"))
    ends = np.array([(number[a], number[b]) for a, b, _ in found], np.int64)
    weights = [weight for _, _, weight in found]
    having = sum(weight is not None for weight in weights)
    if having not in (0, len(weights)) and wishes.weighted is not False:
        raise ValueError(f"{what}: {having} of {len(weights)} edges have a weight; give all of "
                         "them one, or leave weights out (weighted=False)")
    return _of_graph(ends, weights if having else None, number, directed=graph.is_directed(),
                     what=what, wishes=wishes)


def _igraph(graph: Any, what: str, wishes: Wishes) -> Graph:
    ends = np.array(graph.get_edgelist(), np.int64)
    weight = graph.es["weight"] if graph.is_weighted() else None
    names = graph.vs["name"] if "name" in graph.vs.attributes() else range(graph.vcount())
    return _of_graph(ends, weight, names, directed=graph.is_directed(), what=what, wishes=wishes)


def _table(frame: Any, what: str, wishes: Wishes) -> Graph:
    """Return the graph of a table, by the names of its columns."""
    names = [str(name) for name in getattr(frame, "column_names", frame.columns)]
    source, target, weight, told = textguess.columns_of(names, what, wishes)
    if max(source, target, weight or 0) >= len(names):
        raise ValueError(f"{what}: has {len(names)} columns; give those of source and target, and "
                         "perhaps weight")
    columns = [_column(frame, i) for i in (source, target, weight) if i is not None]
    for array in columns:
        lacks = (array != array) if array.dtype.kind == "f" else np.array(
            [value is None or value != value for value in array.tolist()]
            if array.dtype == object else False)
        if lacks.any():
            raise ValueError(f"{what}: {int(lacks.sum())} edges have no value in a column; leave "
                             "such edges out")
    edges = (columns[0], columns[1], columns[2] if len(columns) == 3 else None)
    made = tablefiles.of_frames(lambda: iter([edges]), what, wishes)
    ids = "ids are words" if made.names is not None else f"{int(wishes.one_based)}-based"
    made.read_as = f"directed, {made.n:,} vertices, {ids}, {told}"
    return made


def _column(frame: Any, i: int) -> AnyArray:
    column = frame.iloc[:, i] if hasattr(frame, "iloc") else (
        frame.to_series(i) if hasattr(frame, "to_series") else frame.column(i))
    found: AnyArray = np.asarray(column.to_numpy())
    return found
