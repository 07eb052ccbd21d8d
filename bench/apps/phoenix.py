"""Programs of Phoenix's classes: what `ftrma graph --recovery phoenix` and ``cr`` run.

What: self-stabilizing are `Colour`, which gives each vertex the least colour that no neighbour of
higher priority has, `Pulled`, PageRank by Jacobi's iteration, and `Factors`, collaborative
filtering; locally-correcting are `Distance` (bfs and sssp) and `Component`; globally-correcting are
`Residual`, PageRank that pushes what has changed, and `Core`, which tells the vertices of the
k-core by counting down their neighbours.

Both PageRanks solve x = (1 - d)/n + d M x, in which the rank of vertices without edges is lost;
divided by its sum that is the PageRank in which it is spread over all. What is left of the error is
at most `tolerance`, as a sum over all vertices, before the division.

Source: R. Dathathri et al., "Phoenix", ASPLOS 2019, algorithms 1, 3 and 5.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ftrma.graph import (
    Block,
    Field,
    GloballyCorrecting,
    Graph,
    LocallyCorrecting,
    Round,
    SelfStabilizing,
)

DAMPING = 0.85
Floats = npt.NDArray[np.float64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no two ids have one priority


def priority(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The priority of each vertex, distinct, in a mixed order in which chains are short."""
    return ids.astype(np.uint64) * GOLDEN


class Colour(SelfStabilizing):
    """Greedy colouring in the order of `priority`, highest first; edges in both directions."""

    fields: ClassVar = {"colour": Field(np.int64, mirror=True)}

    def init(self, v: Block) -> None:
        v.colour = 0

    def operate(self, v: Block, ctx: Round) -> None:
        ptr, ids = v.neighbours("ids")
        _, colours = v.neighbours("colour")
        row = np.repeat(np.arange(len(v)), np.diff(ptr))
        before = priority(ids) > priority(v.ids)[row]
        row, colours = row[before], colours[before]
        order = np.lexsort((colours, row))
        row, colours = row[order], colours[order]
        first = np.ones(len(row), bool)
        first[1:] = (row[1:] != row[:-1]) | (colours[1:] != colours[:-1])
        row, colours = row[first], colours[first]
        # Distinct colours of a row ascend: as far as they are 0, 1, 2, ... they are taken.
        count = np.bincount(row, minlength=len(v))
        place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        least = np.bincount(row[place == colours], minlength=len(v))
        v.activate(least != v.colour)
        v.colour = least


def out_degree(graph: Graph) -> npt.NDArray[np.int64]:
    """Edges that leave each vertex, (n,)."""
    found = np.zeros(graph.n, np.int64)
    for source, _, _ in graph.chunks():
        found += np.bincount(source, minlength=graph.n)
    return found


class Pulled(SelfStabilizing):
    """PageRank of a graph that is given reversed, since vertices pull by the edges they have.

    Args:
        degree: edges that leave each vertex of the graph itself, (n,).
        tolerance: of the sum of all errors: at the end no rank changes by more than
            tolerance (1 - d) / (d n), and d / (1 - d) times the sum of the last changes bounds that
            of the errors.
    """

    fields: ClassVar = {"rank": Field(float), "share": Field(float, mirror=True)}

    def __init__(self, degree: npt.NDArray[np.int64], tolerance: float) -> None:
        self.degree, self.tolerance = degree.clip(1), tolerance

    def init(self, v: Block) -> None:
        v.rank = (1 - DAMPING) / len(self.degree)
        v.share = v.rank / self.degree[v.ids]

    def operate(self, v: Block, ctx: Round) -> None:
        degree = self.degree[v.ids]
        v.rank = (1 - DAMPING) / ctx.n + DAMPING * v.pull("share")
        # The others have seen the share, which after a failure need not be that of the old rank.
        change = abs(v.rank - v.share * degree)
        v.activate(change > self.tolerance * (1 - DAMPING) / DAMPING / ctx.n)
        v.share = v.rank / degree


class Factors(SelfStabilizing):
    """Factors of rated pairs by gradient descent: a product of two vertices' factors is near the
    weight of the edge between them; edges in both directions, of weight 0 up.

    In a round each vertex takes a step along the mean gradient of its edges, from its neighbours'
    factors of the round before. From any factors but zeros the error falls, so after a failure the
    lost ones begin anew. The run ends with a round in which no factor changes by more than
    `tolerance`, or after a number of rounds.

    Args:
        rank: factors of a vertex.
        rounds: most of them.
        tolerance: of a change.
        step: share of the mean gradient that is gone; regularization: share of a factor that a step
            of 1 takes away.
    """

    def __init__(self, rank: int, rounds: int, tolerance: float, *, step: float = 0.1,
                 regularization: float = 0.02) -> None:
        self.rank, self.rounds, self.tolerance = rank, rounds, tolerance
        self.step, self.regularization = step, regularization
        self.names = [f"factor{i}" for i in range(rank)]
        self.fields = {**{name: Field(float, mirror=True) for name in self.names},
                       "squares": Field(float)}

    def init(self, v: Block) -> None:
        for i, name in enumerate(self.names):
            mixed = priority(v.ids * self.rank + i + 1) >> np.uint64(11)
            setattr(v, name, (0.5 + mixed * 2.0**-53) / np.sqrt(self.rank))

    def operate(self, v: Block, ctx: Round) -> None:
        ptr, rating = v.neighbours("weights")
        row = np.repeat(np.arange(len(v)), np.diff(ptr))
        mine = [getattr(v, name) for name in self.names]
        theirs = [v.neighbours(name)[1] for name in self.names]
        error = rating - sum(a[row] * b for a, b in zip(mine, theirs, strict=True))
        v.squares = np.bincount(row, error * error, len(v))
        change = np.zeros(len(v))
        for name, old, other in zip(self.names, mine, theirs, strict=True):
            gradient = np.bincount(row, error * other, len(v)) / v.degree.clip(1)
            move = self.step * (gradient - self.regularization * old)
            change = np.maximum(change, abs(move))
            setattr(v, name, old + move)
        if ctx.round < self.rounds:
            v.activate(change > self.tolerance)


class Distance(LocallyCorrecting):
    """From one vertex, in steps or by weights."""

    fields: ClassVar = {"value": Field(float, reduce=np.minimum)}

    def __init__(self, source: int, *, weighted: bool) -> None:
        self.source, self.weighted = source, weighted

    def init(self, v: Block) -> None:
        v.value = np.where(v.ids == self.source, 0.0, np.inf)
        v.activate(v.ids == self.source)

    def operate(self, v: Block, ctx: Round) -> None:
        if self.weighted:
            v.push("value", v.value, weight="plus")
        else:
            v.push("value", v.value + 1)


class Component(LocallyCorrecting):
    """The least id in a vertex's component; edges in both directions."""

    fields: ClassVar = {"value": Field(np.int64, reduce=np.minimum)}

    def init(self, v: Block) -> None:
        v.value = v.ids
        v.activate()

    def operate(self, v: Block, ctx: Round) -> None:
        v.push("value", v.value)


class Residual(GloballyCorrecting):
    """PageRank that pushes what has not been pushed yet.

    Args:
        n: vertices of the graph.
        tolerance: of the sum of all errors: what is left at the end is at most
            tolerance (1 - d) / n at each vertex, and 1 / (1 - d) times its sum bounds that of the
            errors.
        damping: d, the share of a rank that goes along edges.
        restart: ids of the vertices where walks begin again, ascending; None: all.
        weighted: edges are taken as likely as their weights say.
    """

    fields: ClassVar = {"rank": Field(float, recover=np.maximum),
                        "residual": Field(float, reduce=np.add, derived=True)}

    def __init__(self, n: int, tolerance: float, *, damping: float = DAMPING,
                 restart: npt.NDArray[np.int64] | None = None, weighted: bool = False) -> None:
        self.n, self.tolerance, self.damping = n, tolerance, damping
        self.restart, self.weighted = restart, weighted

    def init(self, v: Block) -> None:
        v.rank = 0
        v.activate()
        self.reinit(v)

    def reinit(self, v: Block) -> None:
        v.residual = (1 - self.damping) / self.n
        if self.restart is not None:
            v.residual = (1 - self.damping) / len(self.restart) * np.isin(v.ids, self.restart)

    def operate(self, v: Block, ctx: Round) -> None:
        # Below 0 where ranks that were lost had been pushed.
        some = abs(v.residual) > self.tolerance * (1 - self.damping) / ctx.n
        self.hand_on(v, v.residual, some)
        v.rank[some] += v.residual[some]
        v.residual[some] = 0

    def recompute(self, v: Block, ctx: Round) -> None:
        v.residual -= v.rank
        self.hand_on(v, v.rank, None)

    def hand_on(self, v: Block, values: Floats, where: npt.NDArray[np.bool_] | None) -> None:
        """Push these values, damped, along the edges of each vertex."""
        if self.weighted:
            strength = v.strength
            each = np.divide(values, strength, out=np.zeros(len(v)), where=strength > 0)
            v.push("residual", self.damping * each, weight="times", where=where)
        else:
            v.push("residual", self.damping * values / v.degree.clip(1), where=where)


class Core(GloballyCorrecting):
    """Marks the vertices of the k-core; edges in both directions.

    They are left when vertices with less than k neighbours go, again and again."""

    fields: ClassVar = {"value": Field(bool, recover=np.logical_and),
                        "left": Field(np.int64, reduce=np.add, derived=True)}

    def __init__(self, k: int) -> None:
        self.k = k

    def init(self, v: Block) -> None:
        v.value = True
        v.activate()
        self.reinit(v)

    def reinit(self, v: Block) -> None:
        v.left = v.degree

    def operate(self, v: Block, ctx: Round) -> None:
        goes = v.value & (v.left < self.k)
        v.push("left", -1, where=goes)
        v.value[goes] = False

    def recompute(self, v: Block, ctx: Round) -> None:
        v.push("left", -1, where=~v.value)
