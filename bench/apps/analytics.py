"""Programs that analysts ask for, which ``graph.py`` runs beside those of ``pregel.py``.

What: shortest paths; triangles by lists of neighbours; hubs and authorities (HITS); communities by
label propagation; a maximal independent set; betweenness; a minimum spanning forest.

Why: ``Triangles`` of ``pregel.py`` is the form of the paper, with a message for each pair of
neighbours; here a vertex's list goes to a slot once, whatever number of neighbours it has there.

Source: T. Schank, D. Wagner, "Finding, counting and listing all triangles in large graphs", WEA
2005, for neighbours above a vertex by degree; J. Kleinberg, "Authoritative sources in a hyperlinked
environment", J. ACM 46, 1999; U. Raghavan, R. Albert, S. Kumara, Phys. Rev. E 76, 2007, in the
synchronous form of LDBC Graphalytics; M. Luby, "A simple parallel algorithm for the maximal
independent set problem", SIAM J. Computing 15, 1986; U. Brandes, "A faster algorithm for
betweenness centrality", J. Mathematical Sociology 25, 2001.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ftrma import graph
from ftrma.frameworks.graph import kernels
from ftrma.graph import Context, Inbox, Vertices

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def forward(values: Floats, weight: Floats) -> Floats:
    """Messages along the edges of a graph of `data.both`, none along reversed ones."""
    return values * np.maximum(weight, 0)


def backward(values: Floats, weight: Floats) -> Floats:
    """Messages along the reversed edges of a graph of `data.both`."""
    return values * np.maximum(-weight, 0)


def lengthened(paths: npt.NDArray[np.void], weight: Floats) -> npt.NDArray[np.void]:
    """Messages of `ShortestPaths` along edges of these lengths."""
    found = paths.copy()
    found["distance"] += weight
    return found


class ShortestPaths(graph.VertexProgram):
    """Distances from one vertex, in steps or by weights, and the vertex in front of each on a
    shortest path, which is -1 for the first one and where no path leads.

    Of several shortest paths the one with the fewest edges is taken, then the one by the least id.
    So paths end at the first vertex, also along edges of weight 0.
    """

    fields: ClassVar = {"value": float, "parent": np.int64, "changed": bool}
    message: ClassVar = [("distance", float), ("parent", np.int64)]
    combine = None

    def __init__(self, source: int, *, weighted: bool) -> None:
        self.source, self.weighted = source, weighted

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step == 1:
            v.changed = v.ids == self.source
            v.value = np.where(v.changed, 0, np.inf)
            v.parent = -1
        else:
            assert inbox.ptr is not None
            row = np.repeat(np.arange(len(v)), np.diff(inbox.ptr))
            distance, parent = inbox.values["distance"], inbox.values["parent"]
            order = np.lexsort((parent, distance, row))
            best = order[np.diff(row[order], prepend=-1) != 0]  # the first one of each vertex
            best = best[distance[best] < v.value[row[best]]]
            v.changed = False
            v.changed[row[best]] = True
            v.value[row[best]], v.parent[row[best]] = distance[best], parent[best]
        v.vote_to_halt()

    def emit(self, v: Vertices, ctx: Context) -> None:
        paths = np.zeros(len(v), self.message)
        paths["distance"], paths["parent"] = v.value, v.ids
        if not self.weighted:
            paths["distance"] += 1
        v.send(paths, weight=lengthened if self.weighted else None, where=v.changed)


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


class Hits(graph.VertexProgram):
    """Hubs and authorities, each adding up to 1, of a graph as `data.both` makes it.

    An iteration takes two steps: hubs go along edges, which makes authorities, and these go back.
    All are divided by their sum one step after they have been made, when it is known.

    Args:
        rounds: iterations at most.
        tolerance: the run ends when the changes of all authorities in an iteration add up to no
            more.
    """

    fields: ClassVar = {"authority": float, "hub": float, "before": float}
    message = float
    combine = np.add
    aggregates: ClassVar = {"all": float, "change": float}

    def __init__(self, rounds: int, tolerance: float = 0) -> None:
        self.rounds, self.tolerance = rounds, tolerance

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        scale = ctx["all"] or 1.0
        if ctx.step == 1:
            v.hub = 1 / ctx.n
            ctx.contribute("all", v.hub.sum())
        elif ctx.step % 2:
            v.authority /= scale
            ctx.contribute("change", abs(v.authority - v.before).sum())
            v.before = v.authority
            v.hub = inbox.values / scale
            ctx.contribute("all", v.hub.sum())
        else:
            v.hub /= scale
            small = bool(self.tolerance) and ctx.step > 2 and ctx["change"] <= self.tolerance
            if small or ctx.step > 2 * self.rounds:
                ctx.stop()
            else:
                v.authority = inbox.values / scale
                ctx.contribute("all", v.authority.sum())

    def emit(self, v: Vertices, ctx: Context) -> None:
        if ctx.step % 2:
            v.send(v.hub, weight=forward)
        else:
            v.send(v.authority, weight=backward)


class Labels(graph.VertexProgram):
    """Communities: each vertex takes the label that most of its neighbours have, the least one of
    several, for a number of rounds or until none changes; edges in both directions."""

    fields: ClassVar = {"label": np.int64}
    message = np.int64
    combine = None
    aggregates: ClassVar = {"changed": np.int64}

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step == 1:
            v.label = v.ids
            return
        assert inbox.ptr is not None
        row = np.repeat(np.arange(len(v)), np.diff(inbox.ptr))
        order = np.lexsort((inbox.values, row))
        row, label = row[order], inbox.values[order]
        begins = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(label, prepend=-1) != 0))
        row, label, count = row[begins], label[begins], np.diff(begins, append=len(row))
        order = np.lexsort((label, -count, row))
        best = order[np.diff(row[order], prepend=-1) != 0]
        now = v.label.copy()
        now[row[best]] = label[best]
        ctx.contribute("changed", (now != v.label).sum())
        v.label = now
        if ctx.step > self.rounds or (ctx.step > 2 and not ctx["changed"]):
            ctx.stop()

    def emit(self, v: Vertices, ctx: Context) -> None:
        if ctx.step <= self.rounds:
            v.send(v.label)


class Independent(graph.VertexProgram):
    """A maximal independent set: no two of it are neighbours, and all others have one of it;
    of a graph as `data.simple` makes it.

    In a round of two steps each open vertex draws a key, and those whose key is less than those of
    all neighbours are taken, whose neighbours are closed.

    Args:
        seed: of the draws.
    """

    fields: ClassVar = {"inside": bool, "open": bool, "won": bool, "key": np.int64}
    message = np.int64
    combine = np.minimum
    aggregates: ClassVar = {"open": np.int64}

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed  # type: ignore[misc]

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step % 2:
            v.open = True if ctx.step == 1 else v.open & ~inbox.got
            # Random bits, then the id, so that no two keys are equal.
            high = (ctx.random(v) * (1 << 62 - ctx.n.bit_length())).astype(np.int64)
            v.key = high * ctx.n + v.ids
            ctx.contribute("open", v.open.sum())
        else:
            v.won = v.open & (v.key < inbox.values)
            v.inside = v.inside | v.won
            v.open = v.open & ~v.won
            if not ctx["open"]:
                ctx.stop()

    def emit(self, v: Vertices, ctx: Context) -> None:
        v.send(v.key if ctx.step % 2 else -1, where=v.open if ctx.step % 2 else v.won)


def some_of(n: int, count: int | None) -> Ints:
    """Ids of so many vertices of a graph, far from each other; of all without a count."""
    if count is None or count >= n:
        return np.arange(n)
    return np.arange(count) * n // count


class State(NamedTuple):
    """The state of `Betweenness` in a step: the round of sources whose turn it is, the distance at
    which vertices send, and whether sums go back to the sources."""

    turn: int
    level: int
    back: bool


class Betweenness(graph.VertexProgram):
    """For each vertex the shortest paths between others that lead over it, each pair's as a share.

    Many sources take their turn at once, one in each copy of the graph: paths are counted from the
    sources outwards, a step for each distance, then shares are added up from the farthest vertices
    back. At last the copies of a vertex send their sums to the first one, which has the result.

    Args:
        n: vertices of one copy, as `data.copies` makes them of a graph of `data.both`, or of one of
            `data.simple`, where each path counts once, not in each direction.
        sources: ids in the first copy; all vertices, or some, whose sums are scaled up to all.
        copies: of the graph.
    """

    fields: ClassVar = {"value": float, "distance": np.int32, "paths": float, "share": float}
    message = float
    combine = np.add
    aggregates: ClassVar = {"turn": np.int64, "level": np.int64, "back": (bool, np.logical_or),
                            "found": np.int64}

    def __init__(self, n: int, sources: Ints, copies: int, *, directed: bool) -> None:
        self.n, self.sources, self.copies, self.directed = n, sources, copies, directed

    def state(self, ctx: Context) -> State:
        """The state that follows from the one of the step before."""
        turn, level, back = int(ctx["turn"]), int(ctx["level"]), bool(ctx["back"])
        if ctx.step == 1:
            return State(0, 0, False)
        if self.done(turn):
            return State(turn, level + 1, False)
        if not back:
            return State(turn, level + 1, False) if ctx["found"] else State(turn, level - 1, True)
        return State(turn, level - 1, True) if level > 0 else State(turn + 1, 0, False)

    def done(self, turn: int) -> bool:
        """All sources have had their turn."""
        return turn * self.copies >= len(self.sources)

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        turn, level, back = now = self.state(ctx)
        if 0 in v.ids[:1]:  # its slot tells the state to all
            for name, value in now._asdict().items():
                ctx.contribute(name, value)
        if self.done(turn):
            if level:  # the sums of all copies are here
                scale = self.n / len(self.sources) / (1 if self.directed else 2)
                v.value = (v.value + inbox.values) * scale
                ctx.stop()
            return
        if back:
            mine = v.distance == level
            v.share = np.where(mine, v.paths * inbox.values, v.share)
            if level:
                v.value += np.where(mine, v.share, 0)
            return
        if level == 0:
            chosen = self.sources[turn * self.copies:][:self.copies]
            found = np.isin(v.ids, chosen + self.n * np.arange(len(chosen)))
            v.distance, v.paths, v.share = -1, found, 0
        else:
            found = (v.distance < 0) & (inbox.values > 0)
            v.paths = np.where(found, inbox.values, v.paths)
        v.distance = np.where(found, level, v.distance)
        ctx.contribute("found", found.sum())

    def emit(self, v: Vertices, ctx: Context) -> None:
        turn, level, back = self.state(ctx)
        if self.done(turn):
            more = np.flatnonzero(v.ids >= self.n) if level == 0 else np.zeros(0, np.int64)
            v.send_to(v.ids[more] % self.n, v.value[more])
            return
        at = v.distance == level
        if not back:
            v.send(v.paths, where=at, weight=forward if self.directed else None)
        elif level:
            shares = (1 + v.share) / np.maximum(v.paths, 1)
            v.send(shares, where=at, weight=backward if self.directed else None)


class Forest(graph.VertexProgram):
    """A minimum spanning forest; edges in both directions. Edges of equal weight are ordered by
    their ends, so there is one.

    Each tree has a leader, whose id is the `label` of its vertices. In a round each tree finds the
    least edge that leaves it, and its leader hooks the tree to the one at the other end; of two
    trees that do so to each other by one edge the lesser id leads on. A leader hooks once, so it
    keeps the edge: `low`, `high` and `weight`; `low` is -1 where a vertex leads still. Then labels
    jump from leader to leader, until each is the id of one that leads still.

    Phases: 0, vertices tell neighbours their labels; 1, and tell leaders their least edges; 2,
    leaders choose, and tell the leaders they hook to; 3, they hook, and all ask for the label of
    their label; 4, answers, which is masked; 5, labels jump, and all ask again.

    Source: S. Chung, A. Condon, "Parallel implementation of Boruvka's minimum spanning tree
    algorithm", IPPS 1996.
    """

    fields: ClassVar = {"label": np.int64, "low": np.int64, "high": np.int64, "weight": float,
                        "edge_low": np.int64, "edge_high": np.int64, "edge_weight": float,
                        "other": np.int64}
    message: ClassVar = [("weight", float), ("low", np.int64), ("high", np.int64),
                         ("label", np.int64)]
    combine = None
    aggregates: ClassVar = {"phase": np.int64, "found": np.int64}

    def phase(self, ctx: Context) -> int:
        """The phase that follows from the one of the step before."""
        if ctx.step == 1:
            return 0
        if ctx["phase"] == 5:
            return 4 if ctx["found"] else 0
        return int(ctx["phase"]) + 1

    def masked(self, ctx: Context) -> bool:
        return self.phase(ctx) == 4

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        phase, (row, told) = self.phase(ctx), self.told(v, inbox)
        if 0 in v.ids[:1]:  # its slot tells the phase to all
            ctx.contribute("phase", phase)
        if ctx.step == 1:
            v.label, v.low, v.high = v.ids, -1, -1
        elif phase == 1:
            told["low"], told["high"] = (by(told["low"], v.ids[row])
                                         for by in (np.minimum, np.maximum))
            leaves = told["label"] != v.label[row]
            self.choose(v, row[leaves], told[leaves])
            ctx.contribute("found", (v.other >= 0).sum())
        elif phase == 2:
            self.choose(v, row, told)
            if not ctx["found"]:
                ctx.stop()
        elif phase == 3:
            stays = np.zeros(len(v), bool)
            stays[row[(told["label"] == v.other[row]) & (told["low"] == v.edge_low[row])
                      & (told["high"] == v.edge_high[row]) & (v.ids[row] < told["label"])]] = True
            hooks = (v.other >= 0) & ~stays
            for name, value in (("label", v.other), ("low", v.edge_low), ("high", v.edge_high),
                                ("weight", v.edge_weight)):
                setattr(v, name, np.where(hooks, value, getattr(v, name)))
        elif phase == 5:
            ctx.contribute("found", (told["label"] != v.label[row]).sum())
            v.label[row] = told["label"]

    def emit(self, v: Vertices, ctx: Context) -> None:
        phase, known = self.phase(ctx), v.other >= 0
        if phase == 0:
            messages = self.messages(1, v.ids, v.ids, v.label)
            v.send(messages, weight=None if v.edges.weight is None else with_weight)
        elif phase == 1:
            v.send_to(v.label[known], self.messages(
                v.edge_weight[known], v.edge_low[known], v.edge_high[known], v.other[known]))
        elif phase == 2:
            v.send_to(v.other[known], self.messages(
                0, v.edge_low[known], v.edge_high[known], v.ids[known]))
        else:
            below = v.label != v.ids
            v.send_to(v.label[below], self.messages(0, 0, 0, v.ids[below]))

    def compute(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if 0 in v.ids[:1]:
            ctx.contribute("phase", 4)
        row, told = self.told(v, inbox)
        v.send_to(told["label"], self.messages(0, 0, 0, v.label[row]))

    def told(self, v: Vertices, inbox: Inbox) -> tuple[Ints, npt.NDArray[np.void]]:
        """The messages, and the places of the vertices that they have come to."""
        assert inbox.ptr is not None
        return np.repeat(np.arange(len(v)), np.diff(inbox.ptr)), inbox.values.copy()

    def messages(self, weight: object, low: object, high: object,
                 label: Ints) -> npt.NDArray[np.void]:
        """Messages of these parts."""
        found = np.zeros(len(label), self.message)
        for name, value in (("weight", weight), ("low", low), ("high", high), ("label", label)):
            found[name] = value
        return found

    def choose(self, v: Vertices, row: Ints, told: npt.NDArray[np.void]) -> None:
        """Have each vertex keep the least edge of those it is told of, or none."""
        order = np.lexsort((told["high"], told["low"], told["weight"], row))
        least = order[np.diff(row[order], prepend=-1) != 0]
        at, told = row[least], told[least]
        v.other = -1
        v.other[at], v.edge_weight[at] = told["label"], told["weight"]
        v.edge_low[at], v.edge_high[at] = told["low"], told["high"]


def with_weight(messages: npt.NDArray[np.void], weight: Floats) -> npt.NDArray[np.void]:
    """Messages of `Forest` that have the weights of the edges they go along."""
    found = messages.copy()
    found["weight"] = weight
    return found
