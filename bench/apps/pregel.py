"""Vertex programs in Pregel's style: what ``graph.py`` runs, and what tests and figures run.

What: PageRank and distances (Malewicz et al., SIGMOD 2010, with the ranks of vertices without edges
spread over all); components by Hash-Min and by pointer jumping (S-V); triangles, by as many pairs
of neighbours in a step as the edges allow; maximal matching of a bipartite graph; k-core, by edges
that go; path doubling, by edges that come.

Why: between them they use all that a vertex program can do: combined and listed messages, those
along edges and to any vertex, masked steps, aggregates, changes of edges.

Source: D. Yan, J. Cheng, F. Yang, "Lightweight Fault Tolerance in Large-Scale Distributed Graph
Processing", for the classes and for triangles; J. Rastogi et al., "Finding connected components in
map-reduce in logarithmic rounds", ICDE 2013, for Hash-Min; Y. Shiloach, U. Vishkin, "An O(log n)
parallel connectivity algorithm", J. Algorithms 3, 1982.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ftrma import graph
from ftrma.graph import Context, Inbox, Vertices

DAMPING = 0.85
Ints = npt.NDArray[np.int64]


class PageRank(graph.VertexProgram):
    """A number of steps of the power iteration, or less if ranks change little.

    Ranks of vertices without edges are spread as `restart` says.

    Args:
        steps: iterations at most.
        damping: the share of a rank that goes along edges, 0 to 1.
        tolerance: the run ends when all changes of an iteration add up to no more; 0: never.
        restart: ids of the vertices where walks begin again, each equally likely, ascending; None:
            all vertices.
        weighted: edges are taken as likely as their weights say.
    """

    message = float
    combine = np.add
    aggregates: ClassVar = {"dangling": float, "change": float}

    def __init__(self, steps: int, *, damping: float = DAMPING, tolerance: float = 0,
                 restart: Ints | None = None, weighted: bool = False) -> None:
        self.steps, self.damping, self.tolerance = steps, damping, tolerance
        self.restart, self.weighted = restart, weighted
        self.fields = {"rank": float, **({"share": float} if weighted else {})}

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step == 1:
            v.rank = 1 / ctx.n
            if self.weighted:
                assert v.edges.weight is not None
                strength = np.bincount(v.edges.row, v.edges.weight, len(v))
                v.share = np.divide(1, strength, out=np.zeros(len(v)), where=strength > 0)
        else:
            before = v.rank.copy() if self.tolerance else 0
            again = 1 - self.damping + self.damping * ctx["dangling"]
            spread = again / ctx.n if self.restart is None else (
                np.isin(v.ids, self.restart) * again / len(self.restart))
            v.rank = spread + self.damping * inbox.values
            if self.tolerance:
                ctx.contribute("change", abs(v.rank - before).sum())
                if ctx.step > 2 and ctx["change"] <= self.tolerance:
                    ctx.stop()
        out = v.share == 0 if self.weighted else v.degree == 0
        ctx.contribute("dangling", v.rank[out].sum())
        if ctx.step > self.steps:
            v.vote_to_halt()

    def emit(self, v: Vertices, ctx: Context) -> None:
        if ctx.step > self.steps:
            return
        if self.weighted:
            v.send(v.rank * v.share, weight="times")
        else:
            v.send(v.rank / v.degree.clip(1))


class Least(graph.VertexProgram):
    """The least value that reaches a vertex; whoever has got a lesser one tells its neighbours."""

    fields: ClassVar = {"value": float, "changed": bool}
    message = float
    combine = np.minimum

    def first(self, v: Vertices) -> Any:
        """Values before the first step."""
        raise NotImplementedError

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step == 1:
            v.value = self.first(v)
            v.changed = np.isfinite(v.value)
        else:
            v.changed = inbox.values < v.value
            v.value = np.minimum(v.value, inbox.values)
        v.vote_to_halt()


class Distance(Least):
    """From one vertex, in steps or by weights."""

    def __init__(self, source: int, *, weighted: bool) -> None:
        self.source, self.weighted = source, weighted

    def first(self, v: Vertices) -> Any:
        return np.where(v.ids == self.source, 0.0, np.inf)

    def emit(self, v: Vertices, ctx: Context) -> None:
        if self.weighted:
            v.send(v.value, weight="plus", where=v.changed)
        else:
            v.send(v.value + 1, where=v.changed)


class Component(Least):
    """The least id in a vertex's component."""

    fields: ClassVar = {"value": np.int64, "changed": bool}
    message = np.int64

    def first(self, v: Vertices) -> Any:
        return v.ids

    def emit(self, v: Vertices, ctx: Context) -> None:
        v.send(v.value, where=v.changed)


class PointerJumping(graph.VertexProgram):
    """The least id in a vertex's component, edges being there in both directions.

    A round has four steps: everybody hears of its neighbours' parents; tells the least one to its
    own parent, which takes it as its own; asks its parent for that one's parent; and is answered.
    Answers depend on who has asked: that step is masked.
    """

    fields: ClassVar = {"value": np.int64, "best": np.int64, "changed": bool}
    message = np.int64
    combine = None
    aggregates: ClassVar = {"changed": np.int64}

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        phase = ctx.step % 4
        if ctx.step == 1:
            v.value = v.ids
            v.changed = True
        elif phase == 1:
            v.changed |= inbox.got & (first(v, inbox) != v.value)
            v.value = np.where(inbox.got, first(v, inbox), v.value)
        elif phase == 2:
            if not ctx["changed"]:
                ctx.stop()
            v.best = np.minimum(v.value, least(v, inbox))
            v.changed = False
        else:
            hooked = least(v, inbox) < v.value
            v.value = np.where(hooked, least(v, inbox), v.value)
            v.changed = hooked
        if phase == 1:
            ctx.contribute("changed", v.changed.sum())

    def emit(self, v: Vertices, ctx: Context) -> None:
        phase = ctx.step % 4
        if phase == 1:
            v.send(v.value)
        elif phase == 2:
            better = v.best < v.value
            v.send_to(v.value[better], v.best[better])
        else:
            child = v.value != v.ids
            v.send_to(v.value[child], v.ids[child])

    def masked(self, ctx: Context) -> bool:
        return ctx.step % 4 == 0

    def compute(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        assert inbox.ptr is not None
        v.send_to(inbox.values, np.repeat(v.value, np.diff(inbox.ptr)))


def first(v: Vertices, inbox: Inbox) -> Ints:
    """The first message to each vertex that has got one."""
    assert inbox.ptr is not None
    found = np.zeros(len(v), np.int64)
    found[inbox.got] = inbox.values[inbox.ptr[:-1][inbox.got]]
    return found


def least(v: Vertices, inbox: Inbox) -> Ints:
    """The least message to each vertex; more than any where there is none."""
    assert inbox.ptr is not None
    found = np.full(len(v), np.iinfo(np.int64).max)
    if inbox.got.any():
        found[inbox.got] = np.minimum.reduceat(inbox.values, inbox.ptr[:-1][inbox.got])
    return found


class Triangles(graph.VertexProgram):
    """Triangles of which a vertex is the middle one; edges are there in both directions.

    Each vertex asks, for all pairs of its neighbours of higher ids, the lesser one whether the
    other one is its neighbour. In a step it has `quota` pairs for each of its edges, of which
    `asked` says how far it has come: `emit` goes back from there.
    """

    fields: ClassVar = {"count": np.int64, "asked": np.int64}
    message = np.int64
    combine = None

    def __init__(self, quota: int = 1) -> None:
        self.quota = quota

    def keys(self, v: Vertices, ctx: Context) -> Ints:
        """The edges of the block to higher ids, ascending, each once: id times n plus target."""
        edges = v.edges
        up = edges.target > v.ids[edges.row]
        return np.unique(v.ids[edges.row[up]] * ctx.n + edges.target[up])

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        assert inbox.ptr is not None
        keys = self.keys(v, ctx)
        row = np.repeat(np.arange(len(v)), np.diff(inbox.ptr))
        wanted = v.ids[row] * ctx.n + inbox.values
        place = np.searchsorted(keys, wanted).clip(max=max(len(keys) - 1, 0))
        hit = keys[place] == wanted if len(keys) else np.zeros(len(wanted), bool)
        v.count += np.bincount(row[hit], minlength=len(v))
        degree = np.bincount(np.searchsorted(v.ids, keys // ctx.n), minlength=len(v))
        pairs = degree * (degree - 1) // 2
        before = v.asked.copy()
        v.asked = np.minimum(before + self.quota * degree, pairs)
        v.vote_to_halt(v.asked == before)

    def emit(self, v: Vertices, ctx: Context) -> None:
        keys = self.keys(v, ctx)
        row = np.searchsorted(v.ids, keys // ctx.n)
        degree = np.bincount(row, minlength=len(v))
        begin = np.concatenate([[0], np.cumsum(degree)])[:-1]
        quota = (self.quota * degree).clip(1)
        pairs = degree * (degree - 1) // 2
        # Steps that the vertex has asked in, up to this one: after its last it asks no more.
        rounds = -(-v.asked // quota)
        count = np.where(rounds == ctx.step, v.asked - (rounds - 1) * quota, 0)
        count[pairs == 0] = 0
        of = np.repeat(np.arange(len(v)), count)
        number = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
        number += ((rounds - 1) * quota)[of]
        high = ((1 + np.sqrt(1 + 8 * number.astype(float))) / 2).astype(np.int64)
        high -= high * (high - 1) // 2 > number
        high += (high + 1) * high // 2 <= number
        low = number - high * (high - 1) // 2
        target = keys % ctx.n
        v.send_to(target[begin[of] + low], target[begin[of] + high])


class Matching(graph.VertexProgram):
    """A maximal matching of a graph whose edges lead, in both directions, between the vertices
    below `left` and the others: of each vertex its partner, or -1.

    A round has three steps: who is free below `left` asks its neighbours; who is free there grants
    one; who is granted takes one.
    """

    fields: ClassVar = {"partner": np.int64, "chosen": np.int64}
    message = np.int64
    combine = np.minimum
    aggregates: ClassVar = {"granted": np.int64}

    def __init__(self, left: int) -> None:
        self.left = left

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        below, phase = v.ids < self.left, ctx.step % 3
        if ctx.step == 1:
            v.partner = -1
        free = (v.partner < 0) & inbox.got
        v.chosen = np.where(free & (below == (phase == 0)), inbox.values, -1)
        if phase == 2:
            ctx.contribute("granted", (v.chosen >= 0).sum())
        elif phase == 0:
            v.partner = np.where(v.chosen >= 0, v.chosen, v.partner)
            if not ctx["granted"]:
                ctx.stop()
        else:
            v.partner = np.where(v.chosen >= 0, v.chosen, v.partner)

    def emit(self, v: Vertices, ctx: Context) -> None:
        if ctx.step % 3 == 1:
            v.send(v.ids, where=(v.ids < self.left) & (v.partner < 0))
        else:
            chosen = v.chosen >= 0
            v.send_to(v.chosen[chosen], v.ids[chosen])


class Core(graph.VertexProgram):
    """Which vertices are in the k-core, edges being there in both directions: the others go, and
    their edges with them."""

    fields: ClassVar = {"kept": bool, "going": bool}
    message = np.int64
    combine = None

    def __init__(self, k: int) -> None:
        self.k = k

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        assert inbox.ptr is not None
        edges = v.edges
        key = edges.row * ctx.n + edges.target
        told = np.repeat(np.arange(len(v)), np.diff(inbox.ptr)) * ctx.n + inbox.values
        drop = np.isin(key, told) | v.going[edges.row] | (edges.target == v.ids[edges.row])
        v.drop_edges(drop)
        degree = np.bincount(edges.row[~drop], minlength=len(v))
        kept = v.kept | (ctx.step == 1)
        going = kept & (degree < self.k)
        v.kept = kept & ~going
        v.going = going
        v.vote_to_halt(~going)  # who goes has its edges until all have been told

    def emit(self, v: Vertices, ctx: Context) -> None:
        v.send(v.ids, where=v.going)


class Doubling(graph.VertexProgram):
    """On a path whose edges lead on to the next: each vertex has, in the end, edges to those 1, 2,
    4 ... further on; `least` is the first one with an edge to it, and `far` its last target."""

    fields: ClassVar = {"far": np.int64, "asker": np.int64, "least": np.int64}
    message = np.int64
    combine = np.minimum

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step == 1:
            v.far = np.where(v.degree > 0, v.ids + 1, -1)
        elif ctx.step > 2 * self.rounds + 1:
            v.least = np.where(inbox.got, inbox.values, -1)
            ctx.stop()
        elif ctx.step % 2:
            known = inbox.got & (inbox.values >= 0)
            v.add_edges(np.flatnonzero(known), inbox.values[known])
            v.far = np.where(known, inbox.values, -1)
        else:
            v.asker = np.where(inbox.got, inbox.values, -1)

    def emit(self, v: Vertices, ctx: Context) -> None:
        if ctx.step == 2 * self.rounds + 1:
            v.send(v.ids)
        elif ctx.step % 2:
            asks = v.far >= 0
            v.send_to(v.far[asks], v.ids[asks])
        elif ctx.step < 2 * self.rounds + 1:
            asked = v.asker >= 0
            v.send_to(v.asker[asked], v.far[asked])
