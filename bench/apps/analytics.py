"""Programs that analysts ask for, which ``graph.py`` runs beside those of ``pregel.py``.

What: triangles by lists of neighbours.

Why: ``Triangles`` of ``pregel.py`` is the form of the paper, with a message for each pair of
neighbours; here a vertex's list goes to a slot once, whatever number of neighbours it has there.

Source: T. Schank, D. Wagner, "Finding, counting and listing all triangles in large graphs", WEA
2005, for neighbours above a vertex by degree; S. Suri, S. Vassilvitskii, "Counting triangles and
the curse of the last reducer", WWW 2011.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ftrma import graph
from ftrma.frameworks.graph import kernels
from ftrma.graph import Context, Inbox, Vertices

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class TriangleCount(graph.VertexProgram):
    """The triangles that each vertex is in, of a graph as `data.simple` makes it.

    Each vertex has a list of its neighbours of higher degree, or of equal degree and higher id. The
    list goes to each slot that has a neighbour of the vertex, as messages to the first of these
    neighbours: the vertex, as -1 - id, then the ids of the list. A slot counts for its own vertex v
    and each neighbour of v how many of that one's list are neighbours of v. A step sends the lists
    of some vertices, which bounds the memory for messages.

    Args:
        degree: of all vertices, (n,); any numbers give right counts, those of edges fast ones.
        at_once: neighbours of the vertices whose lists a slot sends in a step, about.
    """

    fields: ClassVar = {"count": np.int64}
    message = np.int64
    combine = None
    aggregates: ClassVar = {"left": np.int64}

    def __init__(self, degree: Ints, at_once: int = 1 << 21) -> None:
        self.degree, self.at_once = degree, at_once

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step > 1:
            lists, member = self.received(v, inbox)
            if len(member):
                v.count += kernels.triangles(v.edges.ptr, v.edges.place, lists, member)
            if not ctx["left"]:
                ctx.stop()
        ctx.contribute("left", max(len(v.edges) // self.at_once + 1 - ctx.step, 0))

    def emit(self, v: Vertices, ctx: Context) -> None:
        ptr, place, targets, owners = v.edges.ptr, v.edges.place, v.targets, v.owners
        first, last = np.searchsorted(ptr[:-1] // self.at_once, [ctx.step - 1, ctx.step])
        if first == last:
            return
        edges = slice(ptr[first], ptr[last])
        row = np.repeat(np.arange(last - first), np.diff(ptr[first : last + 1]))
        target = targets[place[edges]]
        above = self.above(v.ids[first:last], row, target)
        listed = np.bincount(row[above], minlength=last - first)
        begin, member = np.cumsum(listed) - listed, target[above]
        # Edges of a vertex are by owner of their targets: where it changes, another slot begins.
        owner = owners[place[edges]]
        begins = (np.diff(owner, prepend=-1) != 0) | (np.diff(row, prepend=-1) != 0)
        at = np.flatnonzero(begins & (listed[row] > 0))
        of, size = row[at], listed[row[at]] + 1
        head = np.cumsum(size) - size
        within = np.arange(size.sum()) - np.repeat(head, size)
        values = member[(np.repeat(begin[of], size) + within - 1).clip(0)]
        values[head] = -1 - v.ids[first + of]
        v.send_to(np.repeat(target[at], size), values)

    def above(self, ids: Ints, row: Ints, target: Ints) -> Mask:
        """Which edges lead from the vertices' rows to one above."""
        mine, theirs = self.degree[ids][row], self.degree[target]
        return (theirs > mine) | ((theirs == mine) & (target > ids[row]))

    def received(self, v: Vertices, inbox: Inbox) -> tuple[Ints, npt.NDArray[np.uint32]]:
        """The lists that have come, by the places of their vertices among the slot's targets.

        A member that no own vertex has an edge to is left out.
        """
        head = inbox.values < 0
        order = np.argsort(v.targets, kind="stable")
        ascending = v.targets[order]

        def places(ids: Ints) -> tuple[Ints, Mask]:
            at = np.searchsorted(ascending, ids).clip(max=max(len(order) - 1, 0))
            return order[at], ascending[at] == ids

        member, there = places(inbox.values[~head])
        of = places(-1 - inbox.values[head])[0][(np.cumsum(head) - 1)[~head]]
        lists, found, _ = kernels.csr(of[there], member[there], None, len(order))
        return lists, found
