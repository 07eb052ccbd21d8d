"""Owners of vertices, simple graphs and triangles: by other means, and by kernels and references.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from ftrma.frameworks.graph import edgekernels, kernels, phoenix_lanes, references
from ftrma.frameworks.graph.messages import no_records
from ftrma.frameworks.graph.pregel_program import Context, Inbox, VertexProgram, Vertices, check
from ftrma.frameworks.graph.pregel_slot import PregelSlot
from ftrma.graph import data
from ftrma.graph.data import Partition


def some_edges(n: int, m: int, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    source, target = random.integers(0, n, (2, m))
    return source, target


def adjacency(n: int, source: Any, target: Any) -> scipy.sparse.csr_matrix:
    """1 between neighbours, without directions, and nothing from a vertex to itself."""
    found = scipy.sparse.coo_matrix((np.ones(len(source)), (source, target)), (n, n)).tocsr()
    found = (found + found.T).tocsr()
    found.setdiag(0)
    found.eliminate_zeros()
    found.data[:] = 1
    return found


@given(st.lists(st.integers(0, 2**44)), st.integers(1, 1000))
def test_owners_are_those_of_the_reference(ids: list[int], slots: int) -> None:
    given_ids = np.array(ids, np.int64)
    found = edgekernels.owners(given_ids, slots)
    assert found.tolist() == references.owners(given_ids, slots).tolist()
    rounds = np.arange(0, 50 * slots, dtype=np.int64)
    assert (np.sort(edgekernels.owners(rounds, slots).reshape(50, slots)) == np.arange(slots)).all()


@pytest.mark.parametrize("slots", [2, 3, 8])
def test_no_slot_has_many_more_edges_than_others(slots: int) -> None:
    """Law: of graphs whose ids have a pattern, no slot has more than 1.2 shares; by v mod N
    one of eight had 3 shares of R-MAT."""
    for graph in (data.rmat(14), data.symmetric(data.rmat(14, seed=3)), data.grid(96, 96)):
        source = np.concatenate([chunk[0] for chunk in graph.chunks()])
        partition = Partition("hash", graph.n, slots)
        edges = np.bincount(partition.owner(source), minlength=slots)
        assert edges.max() <= 1.2 * edges.mean(), (graph.what, slots, edges)
    mod = np.bincount(np.concatenate([c[0] for c in data.rmat(14).chunks()]) % 8)
    assert mod.max() > 3 * mod.mean()


@given(st.integers(1, 40), st.integers(0, 150), st.integers(1, 4), st.integers(0, 2**32))
def test_a_simple_graph(n: int, m: int, slots: int, seed: int) -> None:
    """Law: each pair of neighbours once in each direction, nobody with itself, whatever weights,
    repetitions and directions were given; what is left is in order, and no target is for nothing.
    """
    source, target = some_edges(n, m, seed)
    graph = data.simple(data.of_edges(n, source, target, np.ones(m) if seed % 2 else None))
    partition, rows, columns = data.partition_of("hash", graph, slots), [], []
    for slot in range(slots):
        part = graph.part(partition, slot)
        rows += np.repeat(part.ids, part.degree).tolist()
        columns += part.targets[part.target].tolist()
        assert part.weight is None and set(part.target.tolist()) == {*range(len(part.targets))}
        for mine in np.split(part.target.astype(np.int64), part.ptr[1:-1]):
            assert (np.diff(mine) > 0).all()
    expected = adjacency(n, source, target).tocoo()
    assert sorted(zip(rows, columns, strict=True)) == sorted(
        zip(expected.row.tolist(), expected.col.tolist(), strict=True))


@given(st.integers(1, 30), st.integers(0, 120), st.integers(0, 2**32))
def test_distinct_targets_and_their_triangles(n: int, m: int, seed: int) -> None:
    """Law: kernels have what references have; the triangles are those of the matrix's square."""
    source, target = some_edges(n, m, seed)
    matrix = adjacency(n, source, target)
    both = np.concatenate([source, target]), np.concatenate([target, source])
    other = both[0] != both[1]
    ptr, numbers, _ = kernels.csr(both[0][other], both[1][other], None, n)
    found = kernels.distinct(ptr, numbers, n)
    for mine, theirs in zip(found, references.distinct(ptr, numbers, n), strict=True):
        assert mine.dtype == theirs.dtype and mine.tolist() == theirs.tolist()
    row = np.repeat(np.arange(n), np.diff(found[0]))
    above = found[1] > row
    lists, member, _ = kernels.csr(row[above], found[1][above], None, n)
    count = kernels.triangles(*found, lists, member)
    assert count.tolist() == references.triangles(*found, lists, member).tolist()
    assert count.tolist() == ((matrix @ matrix).multiply(matrix).sum(axis=1).A1 // 2).tolist()


def test_triangles_of_other_numbers_are_refused() -> None:
    ptr, target = np.array([0, 1]), np.array([5], np.uint32)
    with pytest.raises(ValueError, match="triangles: 1 targets of 1 edges, 0 members of 0, with"):
        kernels.triangles(ptr, target, np.zeros(3, np.int64), np.zeros(0, np.uint32))


class Sums(VertexProgram):
    """Aggregates of each kind, seen in step 2, and weights by a function."""

    fields: ClassVar = {"heard": float, "most": float, "least": np.int64, "any": bool, "all": bool,
                        "bits": np.int64}
    message = float
    combine = np.add
    aggregates: ClassVar = {"most": (float, np.maximum), "least": (np.int64, np.minimum),
                            "any": (bool, np.logical_or), "all": (bool, np.logical_and),
                            "bits": (np.int64, np.bitwise_or), "sum": float}

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step == 1:
            begins = (ctx["most"], ctx["least"], ctx["any"], ctx["all"], ctx["bits"])
            assert begins == (-np.inf, 2**63 - 1, False, True, 0)
            ctx.contribute("most", -v.ids.max(initial=0) - 0.5)
            ctx.contribute("least", v.ids.min(initial=99))
            ctx.contribute("any", (v.ids == 7).any())
            ctx.contribute("all", (v.ids != 7).all())
            ctx.contribute("bits", np.bitwise_or.reduce(1 << v.ids))
        else:
            v.heard = inbox.values
            for name in ("most", "least", "any", "all", "bits"):
                setattr(v, name, ctx[name])
            ctx.stop()

    def emit(self, v: Vertices, ctx: Context) -> None:
        if ctx.step == 1:
            v.send(1.0 + v.ids, weight=lambda x, w: x * np.maximum(w, 0))


def test_aggregates_of_each_kind_and_weights_by_a_function() -> None:
    """Law: an aggregate begins with its ufunc's neutral value and takes all that is contributed."""
    graph = data.of_edges(9, [0, 1, 2, 3], [8, 8, 8, 7], [2.0, -5.0, 0.5, 1.0])
    part = graph.part(Partition("hash", 9, 1), 0)
    slot = PregelSlot(Sums(), part, 9, [np.arange(2)], "none", {}, {}, 1)  # type: ignore[arg-type]
    slot.resume(0)
    for step in (1, 2):
        sending = slot.outgoing(step, [True])
        lane = (sending.values, sending.got)
        final = slot.summed([slot.partial(step), slot.nothing()])
        slot.finish(step, final, [part.targets], ([lane], no_records(Sums())))
    fields = slot.fields()
    assert fields["heard"][8] == 1 * 2 + 2 * 0 + 3 * 0.5 and fields["heard"][7] == 4
    assert fields["most"][0] == -8.5 and fields["least"][0] == 0 and fields["bits"][0] == 511
    assert fields["any"].all() and not fields["all"].any()


@pytest.mark.parametrize(("aggregates", "words"), [
    ({"a": (float, np.subtract)}, "aggregate a is combined by <ufunc 'subtract'>, which has no"),
    ({"a": (complex, np.add)}, "a has dtype complex128; give bool, integers or floats"),
    ({"a": (float, max)}, "aggregate a is combined by <built-in function max>, which has no")])
def test_aggregates_that_cannot_be_are_told(aggregates: Any, words: str) -> None:
    program = Sums()
    program.aggregates = aggregates  # type: ignore[misc]
    with pytest.raises(ValueError, match=words):
        check(program)


@given(st.lists(st.tuples(st.sampled_from([np.float64, np.int32, np.bool_, np.uint16]),
                          st.integers(0, 30), st.floats(0, 1), st.booleans()), max_size=4),
       st.integers(0, 2**32))
def test_lanes_have_what_was_wanted(fields: list[Any], seed: int) -> None:
    """Law: each value that is wanted comes to its place, in no more bytes than all values take."""
    random = np.random.default_rng(seed)
    pieces = []
    for kind, size, share, whole in fields:
        values = random.integers(0, 100, size).astype(kind)
        pieces.append((values, None if whole else random.random(size) < share))
    lane = phoenix_lanes.pack(pieces)
    assert len(lane) <= sum(values.nbytes + phoenix_lanes.HEAD_BYTES for values, _ in pieces)
    longer = np.concatenate([lane, random.integers(0, 256, 9).astype(np.uint8)])
    found = phoenix_lanes.unpack(longer, [(kind, size) for kind, size, _, _ in fields])
    for (values, wanted), piece in zip(pieces, found, strict=True):
        got = np.zeros(len(values), bool)
        got[piece.at] = True
        assert got[... if wanted is None else wanted].all()
        assert (values[piece.at] == piece.values).all() and piece.values.dtype == values.dtype
