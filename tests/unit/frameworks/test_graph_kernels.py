"""Kernels of vertex programs: C and the references in NumPy do the same, bit by bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ftrma.frameworks.graph import edgekernels, generate, kernels, references, textform
from ftrma.frameworks.graph.references import AnyArray
from ftrma.frameworks.graph.textform import PAIRS, WEIGHTED, TextForm

SEEDS = st.integers(0, 2**32)
TYPES = [np.float64, np.float32, np.int64, np.int32, np.uint64]
COMBINES = [np.add, np.minimum, np.maximum]
OTHERS = [(np.int16, np.add), (np.bool_, np.logical_or), (np.float64, np.multiply),
          (np.float16, np.minimum)]  # C has no loops for these
KINDS = [*((kind, combine) for kind in TYPES for combine in COMBINES), *OTHERS]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1.7e308, -1.7e308, 0.1, 1e16]


def same(a: AnyArray, b: AnyArray) -> bool:
    """Bit by bit; any NaN is as good as another one."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "f":
        nan = np.isnan(a)
        if not (nan == np.isnan(b)).all():
            return False
        a, b = a[~nan], b[~nan]
    return a.tobytes() == b.tobytes()


def some(random: np.random.Generator, kind: Any, size: int) -> AnyArray:
    """Values of a dtype, among them those at its ends."""
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        values = np.where(random.random(size) < 0.3, random.choice(SPECIAL, size),
                          random.normal(0, 100, size))
        with np.errstate(over="ignore"):
            found: AnyArray = values.astype(dtype)
        return found
    if dtype.kind == "b":
        return random.random(size) < 0.5
    ends = np.iinfo(dtype)
    found = random.integers(ends.min, ends.max, size, dtype, endpoint=True)
    small = random.random(size) < 0.5
    found[small] = random.integers(0, 5, small.sum())
    return found


class Case:
    """A graph of rows and targets, and what is sent on it."""

    def __init__(self, seed: int, kind: Any) -> None:
        random = self.random = np.random.default_rng(seed)
        self.n, self.size = int(random.integers(1, 30)), int(random.integers(1, 20))
        m = int(random.integers(0, 150))
        self.row = random.integers(0, self.n, m).astype(np.uint32)
        self.to = random.integers(0, self.size, m).astype(np.uint32)
        self.weight = random.choice([0.5, -0.0, 1e-3, 3.0, np.inf, 1e300], m)
        self.ptr, self.target, sorted_ = references.csr(self.row, self.to, self.weight, self.n)
        assert sorted_ is not None
        self.by_row = sorted_
        self.sending = random.random(self.n) < random.choice([0.2, 0.8])
        self.rows = np.flatnonzero(self.sending)
        self.x, self.values = some(random, kind, self.n), some(random, kind, self.size)

    def begin(self) -> tuple[AnyArray, AnyArray]:
        return self.values.copy(), np.zeros(self.size, bool)


def uses(kind: Any) -> list[str | None]:
    return [None, "plus", "times"] if np.dtype(kind).kind == "f" else [None]


@pytest.mark.parametrize(("kind", "combine"), KINDS)
@settings(max_examples=25)
@given(seed=SEEDS)
def test_messages_along_edges(kind: Any, combine: np.ufunc, seed: int) -> None:
    """Law: by source and by target, in C and in NumPy, all targets get the same bits."""
    case = Case(seed, kind)
    by = references.by_target(case.ptr, case.target, case.by_row, case.size)
    for op in uses(kind):
        for rows, x, sending in ((None, case.x, None), (case.rows, case.x[case.rows],
                                                        case.sending)):
            expected, told = case.begin()
            references.scatter(combine, expected, told, case.ptr, case.target, case.by_row, op,
                               rows, x)
            for module in (kernels, references):
                found, got = case.begin()
                module.gather(combine, found, got, by, case.x, sending, op)
                assert same(found, expected) and (got == told).all()
            first, last = sorted(case.random.integers(0, case.size + 1, 2).tolist())
            found, got = case.begin()
            kernels.gather(combine, found[first:last], got[first:last], by, case.x, sending, op,
                           first=first, last=last)
            assert same(found[first:last], expected[first:last])
            assert same(found[:first], case.values[:first])
            assert same(found[last:], case.values[last:])
            found, got = case.begin()
            kernels.scatter(combine, found, got, case.ptr, case.target, case.by_row, op, rows, x)
            assert same(found, expected) and (got == told).all()
            found, _ = case.begin()
            kernels.scatter(combine, found, None, case.ptr, case.target, case.by_row, op, rows, x)
            assert same(found, expected)


@pytest.mark.parametrize(("kind", "combine"), KINDS)
@settings(max_examples=25)
@given(seed=SEEDS, all_there=st.booleans())
def test_folding(kind: Any, combine: np.ufunc, seed: int, all_there: bool) -> None:
    """Law: what has come is combined with what is there, in the same bits."""
    case = Case(seed, kind)
    rows = case.random.permutation(case.size)[: case.random.integers(0, case.size + 1)]
    theirs = some(case.random, kind, len(rows))
    there = None if all_there else case.random.random(len(rows)) < 0.5
    results = []
    for module in (kernels, references):
        found, got = case.begin()
        module.fold(combine, found, got, rows, theirs, there)
        results.append((found, got))
    (found, got), (expected, told) = results
    assert same(found, expected) and (got == told).all()
    assert sorted(np.flatnonzero(got)) == sorted(rows if there is None else rows[there])


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("message", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("sent", [np.float64, np.float32, np.int64, np.uint64, np.int8, bool])
@pytest.mark.parametrize("op", [None, "plus", "times"])
def test_what_is_sent_is_converted(combine: np.ufunc, message: Any, sent: Any,
                                   op: str | None) -> None:
    """Law: messages of another dtype than that of their targets become as NumPy makes them."""
    case = Case(7, message)
    case.x = some(case.random, sent, case.n)
    if np.dtype(message).kind == "i":
        # NumPy does not say what becomes of floats that are out of the range of integers.
        case.x = np.nan_to_num(case.x.astype(float)).clip(0, 99).astype(sent)
        case.by_row = np.full(len(case.by_row), 0.3)
    results = []
    for module in (kernels, references):
        found, got = case.begin()
        module.scatter(combine, found, got, case.ptr, case.target, case.by_row, op, None, case.x)
        results.append(found)
    assert same(*results)


def test_sums_have_one_order() -> None:
    """Law: sums of floats are made edge after edge; a product is rounded before it is added."""
    ptr = np.array([0, 1, 2, 3])
    target, weight = np.zeros(3, np.uint32), np.array([1 + 2**-52, 3.0, 1.0])
    x = np.array([1 + 2**-52, 1e16, -1e16])
    found = np.zeros(1)
    kernels.scatter(np.add, found, None, ptr, target, weight, None, None, x)
    assert found[0] == (1 + 2**-52 + 1e16) - 1e16
    found[0] = -1.0
    kernels.scatter(np.add, found, None, ptr, target, weight, "times", np.array([0]), x[:1])
    assert found[0] == (1 + 2**-52) * (1 + 2**-52) - 1.0


def test_arrays_in_pieces() -> None:
    """Law: what does not lie in one piece is the same."""
    case = Case(3, np.float64)
    expected, told = case.begin()
    references.scatter(np.add, expected, told, case.ptr, case.target, case.by_row, "times", None,
                       case.x)
    wide, got = np.zeros((case.size, 2)), np.zeros(case.size, bool)
    wide[:, 0] = case.values
    kernels.scatter(np.add, wide[:, 0], got, case.ptr, case.target, case.by_row, "times", None,
                    np.repeat(case.x, 2)[::2])
    assert same(wide[:, 0].copy(), expected) and (got == told).all()
    found, got = case.begin()
    kernels.scatter(np.add, found, got, case.ptr, np.repeat(case.target, 2)[::2], case.by_row,
                    "times", None, case.x)
    assert same(found, expected)


@given(SEEDS, st.booleans())
def test_sorting(seed: int, weighted: bool) -> None:
    """Law: edges by row and by target are stable counting sorts."""
    case = Case(seed, np.float64)
    weight = case.weight if weighted else None
    found, expected = (module.csr(case.row, case.to, weight, case.n)
                       for module in (kernels, references))
    for a, b in zip(found, expected, strict=True):
        assert (a is None and b is None) or (a is not None and b is not None and same(a, b))
    ptr, target, heavy = expected
    by, also = (module.by_target(ptr, target, heavy, case.size)
                for module in (kernels, references))
    assert same(by.ptr, also.ptr) and same(by.row, also.row)
    assert (by.edge_weight is None) == (also.edge_weight is None) == (not weighted)
    assert by.edge_weight is None or same(by.edge_weight, also.edge_weight)
    for at in range(case.size):
        assert (np.diff(by.row[by.ptr[at] : by.ptr[at + 1]].astype(int)) >= 0).all()


@given(st.integers(0, 2**64 - 1), st.integers(0, 40), st.integers(0, 2**40), st.integers(0, 50))
@example(0, 0, 0, 3)
@example(1, 40, 2**40, 3)
def test_rmat(seed: int, scale: int, first: int, count: int) -> None:
    """Law: C draws as the reference does; no id has more bits than the scale."""
    found, expected = (module.rmat(seed, scale, generate.pairs(), first, count)
                       for module in (edgekernels, references))
    assert same(found[0], expected[0]) and same(found[1], expected[1])
    assert not count or (found[0].max() < 1 << scale and found[0].min() >= 0)


@given(SEEDS, st.integers(1, 60), st.integers(0, 90), st.integers(1, 6), st.booleans(),
       st.booleans(), st.sampled_from([0, 0, 0, -1, 2**31, 2**32]))
def test_edges_go_to_their_owners(seed: int, n: int, m: int, slots: int, mixed: bool,
                                  weighted: bool, more: int) -> None:
    """Law: C deals and numbers as the reference does; an id that is no vertex's is told."""
    random = np.random.default_rng(seed)
    n += max(more, 0)
    source, target = random.integers(max(0, n - 60), n, (2, m))
    if more < 0 and m:
        random.choice([source, target])[random.integers(m)] = random.choice([-1, n, 2**40])
        source, target = (np.array(ids) for ids in (source, target))
    bounds = None if mixed else np.sort(np.concatenate(
        [[0, n], random.integers(0, n + 1, slots - 1)])).astype(np.int64)
    weight = random.random(m) if weighted else None
    found = edgekernels.deal(n, slots, bounds, source, target, weight)
    expected = references.deal(n, slots, bounds, source, target, weight)
    if found is None or expected is None:
        assert found is expected is None and n > 0
        return
    for one, other in zip(found, expected, strict=True):
        assert one is other is None or same(one, other)
    if more > 0:  # C has a number for each vertex
        return
    numbered = edgekernels.number(n, slots, bounds, target.astype(np.uint32))
    for one, other in zip(numbered, references.number(n, slots, bounds, target), strict=True):
        assert same(one, other)


WORDS = st.one_of(
    st.integers(0, 2**63 - 1).map(str), st.integers(-3, 3).map(str),
    st.sampled_from(["9223372036854775807", "9223372036854775808", "0" * 30 + "1", "1" * 20, "-0",
                     "+1", "1.", ".5", ".", "1e5", "1e-5", "-1e+22", "1e23", "1e400", "-1e-400",
                     "2.2250738585072011e-308", "9007199254740993", "0.1", "1e", "1e+", "inf",
                     "-INF", "Infinity", "infinite", "nan", "-NaN", "0x10", "1_0", "x", "#", "%1",
                     "\x00", "1\x0b2", "é", "1" + "0" * 22, "9" * 400, "-9007199254740993", "",
                     "0" * 5000 + "7", '"7"', '"1', '"a,b"', '"a""b"', '"1"2', '""', "//", "a"]),
    st.floats(allow_nan=False).map(repr), st.floats(allow_nan=False).map(lambda x: f'"{x!r}"'),
    st.text("0123456789.eE+-\"", max_size=30))
BLANKS = st.sampled_from([" ", "\t", ",", "  ", ", ", " \t,", ";", "; ", " ;", ";;"])
LINES = st.builds(lambda words, blank, before, after, end: before + blank.join(words) + after + end,
                  st.lists(WORDS, max_size=4), BLANKS, st.sampled_from(["", " ", "\t", ";"]),
                  st.sampled_from(["", " ", ",", ";"]), st.sampled_from(["", "\r"]))
NUMBERS = st.floats(allow_nan=False).map(repr)
IDS = st.integers(0, 2**63 - 1).map(str)
GOOD = st.one_of(st.sampled_from(["", "# x", "%", "//", " \t", "\r"]),
                 st.builds(lambda a, b, w, blank: blank.join([a, b, w]), IDS, IDS, NUMBERS, BLANKS))
FORMS = st.builds(TextForm, st.sampled_from(["", "", ",", ";", "\t"]), st.integers(0, 2),
                  st.integers(0, 2), st.sampled_from([None, 0, 1, 2, 3]), st.integers(0, 4),
                  st.sampled_from(["", "", "a"]), st.integers(0, 2)).filter(
                      lambda form: len({form.source, form.target, form.weight}) == 3)


def parsed(module: Any, text: bytes, form: TextForm) -> Any:
    try:
        return module.parse(text, "text", 5, form)
    except ValueError as error:
        return str(error)


@settings(max_examples=6 * settings.default.max_examples)
@given(st.one_of(st.lists(LINES, max_size=3), st.lists(GOOD, max_size=6)),
       st.one_of(FORMS, st.sampled_from([PAIRS, WEIGHTED, replace(WEIGHTED, separator=";")])),
       st.sampled_from(["", "\n"]))
@example(["0 1 1\x00"], WEIGHTED, "\n")
@example(["0 1 1e308999999999999999999"], WEIGHTED, "")
@example(["1 2 1" + "0" * 400 + "e-400"], WEIGHTED, "")
@example(["1 2 0." + "0" * 400 + "1e400"], WEIGHTED, "")
@example(["1 2 12345678901234567890123e-5"], WEIGHTED, "")
@example(["1 2 9007199254740993", "1 2 9007199254740992"], WEIGHTED, "")
@example(["1 2 -9007199254740993"], WEIGHTED, "")
@example(["1 2 9007199254740993.0"], WEIGHTED, "")
@example(["1 2 1" + "0" * 22, "1 2 1" + "0" * 23], WEIGHTED, "")
@example(['"1" , "2",  "a,""b" ,3'], TextForm(",", weight=3, columns=4), "")
@example(['1,"2,3'], TextForm(","), "")
@example(["1,2,,"], TextForm(",", columns=4), "\r\n")
@example(["p 3", "a 1 2 7"], TextForm("", 1, 2, 3, 4, "a", 1), "")
@example(["\r 1 2"], PAIRS, "")
def test_text(lines: list[str], form: TextForm, end: str) -> None:
    """Law: C finds the edges that the reference finds, weights to the last bit, and refuses the
    same lines in the same words."""
    text = ("\n".join(lines) + end).encode()
    found, expected = parsed(edgekernels, text, form), parsed(textform, text, form)
    if isinstance(expected, str):
        assert found == expected
        return
    assert same(found[0], expected[0]) and same(found[1], expected[1])
    assert (found[2] is None) == (expected[2] is None) == (form.weight is None)
    assert found[2] is None or same(found[2], expected[2])


@pytest.mark.parametrize(("call", "words"), [
    (lambda: kernels.csr(np.array([3]), np.array([0]), None, 3), "csr: row 3 of 3"),
    (lambda: kernels.csr(np.array([1, 2]), np.array([0]), None, 3), "csr: 2 rows, 1 targets"),
    (lambda: kernels.csr(np.array([1]), np.array([0]), None, 2**32), "4294967296 rows or targets"),
    (lambda: kernels.by_target(np.array([0, 1]), np.array([5]), None, 2), "target 5 of 2"),
    (lambda: kernels.by_target(np.array([0, 2]), np.array([5]), None, 9), "of 2 edges"),
    (lambda: kernels.scatter(np.add, np.zeros(2), None, np.array([0, 1]),
                             np.array([0], np.uint32), None, None, np.array([1]), np.ones(1)),
     "scatter: rows 1 to 1 of 1"),
    (lambda: kernels.scatter(np.add, np.zeros(2), None, np.array([0, 1]),
                             np.array([0], np.uint32), None, None, None, np.ones(3)),
     "scatter: 3 values"),
    (lambda: kernels.scatter(np.add, np.zeros(2), None, np.array([0, 1]),
                             np.array([0], np.uint32), None, "plus", None, np.ones(1)),
     "weights used by 'plus': the graph has none"),
    (lambda: kernels.fold(np.add, np.zeros(2), None, np.array([2]), np.ones(1), None),
     "fold: rows 2 to 2 of 2"),
    (lambda: kernels.fold(np.add, np.zeros(2), None, np.array([0, 1]), np.ones(1), None),
     "fold: 1 values for 2 rows"),
])
def test_what_does_not_fit_is_told(call: Any, words: str) -> None:
    """Law: C is not asked for what would lead out of an array."""
    with pytest.raises(ValueError, match=words):
        call()


@given(SEEDS)
def test_visit(seed: int) -> None:
    """Law: factors after the steps along some columns, and their errors, are those of NumPy."""
    random = np.random.default_rng(seed)
    n, m, rank, k = (int(random.integers(1, most)) for most in (30, 12, 27, 9))
    count = int(random.integers(0, 150))
    ptr, row, value = references.csr(random.integers(0, m, count).astype(np.uint32),
                                     random.integers(0, n, count).astype(np.uint32),
                                     random.normal(0, 1, count), m)
    entries = references.Columns(ptr, row, value)
    rows, wide = random.normal(0, 1, (n, rank)), random.normal(0, 1, (k, rank + 2))
    which, step = random.integers(0, m, k), random.random(k) / 10
    results = []
    for module in (kernels, references):
        ours, theirs, squares = rows.copy(), wide.copy(), np.full(k, np.nan)
        module.visit(entries, ours, theirs[:, 2:], which, step, 0.01, squares)
        results.append((ours, theirs, squares))
    assert all(same(a, b) for a, b in zip(*results, strict=True))


def test_visit_refuses_columns_that_are_none() -> None:
    entries = references.Columns(np.array([0, 1]), np.zeros(1, np.uint32), np.ones(1))
    for which, length in (([1], 1), ([-1], 1), ([0], 2)):
        with pytest.raises(ValueError, match="visit: "):
            kernels.visit(entries, np.ones((1, 3)), np.ones((1, 3)), np.array(which),
                          np.ones(length), 0.0, np.zeros(1))
