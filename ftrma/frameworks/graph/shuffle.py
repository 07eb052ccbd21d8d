"""Parts of a graph that all slots make together: each reads a slice, and sends edges to owners.

Law: such a part has the same bits as the part that its slot makes alone (`parts.Graph.part`), since
edges arrive in the order of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from . import edgekernels
from .memory import MemoryWatch
from .parts import Graph, Part, Partition, vertices_with_edges
from .references import AnyArray, EdgeArrays, Ints

Piece = tuple[AnyArray, list[AnyArray]]  # edges for each slot; rows, targets and weights, by slot


def agree(comm: Any, values: tuple[Any, ...], problem: str = "") -> list[list[Any]]:
    """Gather values; return a list for each value, with those of all slots in their order.

    Args:
        problem: a text that says what this slot cannot do; "": there is no problem.

    Raises:
        ValueError: a slot has a problem; raised on all slots, with the first slot's problem.

    MPI: collective over all slots.
    """
    found = comm.allgather((values, problem))
    told = next((problem for _, problem in found if problem), "")
    if told:
        raise ValueError(told)
    return [list(each) for each in zip(*(values for values, _ in found), strict=True)]


def part(comm: Any, graph: Graph, partition: Partition) -> Part:
    """Make this slot's part of a graph that has slices.

    Raises:
        ValueError: see `parts.Graph.part`; raised on all slots.

    MPI: collective over all slots.
    """
    pieces, problem = [], ""
    try:
        graph.check_room(partition.slots)
    except ValueError as error:
        problem = str(error)
    agree(comm, (), problem)  # slots may communicate when they read their slices
    try:
        pieces = _pieces(graph, partition, comm.rank)
    except ValueError as error:
        problem = str(error)
    weighted = any(len(arrays) == 3 for _, arrays in pieces)
    rounds, weights = map(max, agree(comm, (len(pieces), int(weighted)), problem))
    kinds: list[Any] = [np.uint32, graph.short, *([np.float64] if weights else [])]
    pieces.reverse()
    return graph.assemble(partition, comm.rank,
                          *_exchange(comm, pieces, rounds, kinds))


def degrees(comm: Any, graph: Graph) -> Ints:
    """Count the edges that leave each vertex of a graph that has slices.

    Raises:
        ValueError: see `parts.Graph.degrees`; raised on all slots.

    MPI: collective over all slots.
    """
    mine = _of_slice(comm, graph, graph.check_room_for_degrees, graph.degrees)
    found = np.empty_like(mine)
    comm.Allreduce(mine, found)
    return found


def ids_with_edges(comm: Any, graph: Graph) -> Ints:
    """Find the vertices that have edges, of a graph that has slices.

    Raises:
        ValueError: an edge cannot be read, or the memory does not suffice; raised on all slots.

    MPI: collective over all slots.
    """
    mine = _of_slice(comm, graph, lambda: None, partial(vertices_with_edges, graph))
    return np.unique(np.concatenate(comm.allgather(mine)))


def _of_slice(comm: Any, graph: Graph, check: Callable[[], None],
              work: Callable[[Iterator[EdgeArrays]], Ints]) -> Ints:
    """Return the result of `work` for the edges of this slot's slice, if no slot has a problem.

    Args:
        check: is called before anything is read, and may raise ValueError; slots may communicate
            while they read, so all have to know of a problem before.
    """
    assert graph.slices is not None
    found, problem = np.zeros(0, np.int64), ""
    try:
        check()
    except ValueError as error:
        problem = str(error)
    agree(comm, (), problem)
    try:
        found = work(graph.slices(comm.rank, comm.size))
    except ValueError as error:
        problem = str(error)
    agree(comm, (), problem)
    return found


def _pieces(graph: Graph, partition: Partition, slot: int) -> list[Piece]:
    """Return the edges of this slot's slice, by their owners, chunk by chunk."""
    assert graph.slices is not None
    found: list[Piece] = []
    watch = MemoryWatch(graph.what)
    for source, target, weight in graph.slices(slot, partition.slots):
        dealt = edgekernels.deal(*partition.owners, source, target, weight)
        if dealt is None or dealt.weight is not None:
            graph.check(source, target, weight)
        assert dealt is not None
        arrays = [array for array in dealt[1:] if array is not None]
        found.append((dealt.sizes, arrays))
        size = sum(array.nbytes for array in arrays)
        watch.took(size, size)
    return found


def _exchange(comm: Any, pieces: list[Piece], rounds: int,
              kinds: list[Any]) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """Send pieces to their owners, one piece of each slot at a time; return the edges that come.

    The edges are in the order of the graph.

    Args:
        pieces: the pieces of this slot, the last one first; the list is emptied.
        rounds: the greatest number of pieces of any slot.
        kinds: dtypes of the arrays of a piece.
    """
    none = np.zeros(comm.size, np.int64)
    sums = sum((counts for counts, _ in pieces), none)
    coming = np.zeros(comm.size, np.int64)
    comm.Alltoall(sums, coming)
    at = np.concatenate([[0], np.cumsum(coming)[:-1]])  # the next place for edges of each slot
    found = [np.empty(int(coming.sum()), kind) for kind in kinds]
    for _ in range(rounds):
        counts, arrays = pieces.pop() if pieces else (none, [np.zeros(0, kind) for kind in kinds])
        theirs = np.zeros(comm.size, np.int64)
        comm.Alltoall(counts, theirs)
        for array, into in zip(arrays, found, strict=True):
            came = np.empty(int(theirs.sum()), into.dtype)
            comm.Alltoallv(buffer(array, counts), buffer(came, theirs))
            ends = np.cumsum(theirs)
            for slot in np.flatnonzero(theirs):
                begin = at[slot]
                into[begin : begin + theirs[slot]] = came[ends[slot] - theirs[slot] : ends[slot]]
        at += theirs
    return found[0], found[1], found[2] if len(found) == 3 else None


def buffer(array: AnyArray, counts: AnyArray) -> list[Any]:
    """Return an array and its stretches for each slot, in the form that mpi4py takes."""
    return [array, (counts.tolist(), (np.cumsum(counts) - counts).tolist())]
