"""P_cf: the printed equations, the exact models, and the checks from section 7.1 of the paper."""

from __future__ import annotations

import itertools
import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.reliability import machine, model, simulate
from ftrma.reliability.distribution import Exponential, TabledFailures
from ftrma.reliability.machine import Level, Machine
from ftrma.reliability.model import Groups, make_groups

TSUBAME = machine.load("tsubame2")
SWEEP = range(50, 1001, 50)
T_AWARE = range(1, 5)


def p_cf(checksums: int, aware: int, kind: str = "eq9") -> float:
    groups = make_groups(4000, checksums, 1)
    return model.total(model.p_cf_per_day(TSUBAME, groups, aware, kind))


# ---- the checks from the paper --------------------------------------------------------------


@pytest.mark.parametrize("kind", model.MODELS)
def test_without_awareness_checksum_ranks_do_not_matter(kind: str) -> None:
    """Law: no-topo is the same for every |CH|: the sum of all failures."""
    assert len({p_cf(checksums, 0, kind) for checksums in SWEEP}) == 1
    geometric = sum(a / math.expm1(b) for a, b in PRINTED)
    assert p_cf(200, 0) == pytest.approx(geometric, rel=1e-12)


PRINTED = [(0.30142e-2, 1.3567), (1.1836e-4, 1.4831), (3.9249e-5, 1.5902), (3.2257e-5, 1.5488)]


@pytest.mark.parametrize("aware", T_AWARE)
def test_awareness_gains_one_to_three_orders(aware: int) -> None:
    """Law: every t-aware strategy is 1 to 3 orders of magnitude below no-topo, at every |CH| of
    the sweep where its groups fit."""
    fitting = [c for c in SWEEP if 4000 / c + 1 <= TSUBAME.levels[aware - 1].count]
    assert len(fitting) >= 19
    for checksums in fitting:
        assert 1 <= math.log10(p_cf(checksums, 0) / p_cf(checksums, aware)) <= 3


def test_switches_are_about_four_times_below_nodes() -> None:
    """Law: at |CH| = 5 % of N = 4000 the ratio lies in 3 .. 5 (printed: about 4)."""
    assert 3 <= p_cf(200, 1) / p_cf(200, 3) <= 5
    assert p_cf(200, 1) / p_cf(200, 3) == pytest.approx(3.48, abs=0.01)


@pytest.mark.parametrize("kind", model.MODELS)
@pytest.mark.parametrize("aware", T_AWARE)
def test_more_checksum_ranks_help_less_and_less(aware: int, kind: str) -> None:
    """Law: P_cf falls along the sweep and levels off: the last fifth of it gains less than a tenth
    of what the first does."""
    found = [p_cf(c, aware, kind) for c in SWEEP if c >= 100]
    falls = list(itertools.pairwise(found))
    if kind == "eq9":
        assert all(a > b for a, b in falls)
    assert all(a >= b for a, b in falls)
    assert found[-5] - found[-1] < 0.1 * (found[0] - found[4])


def test_by_hand() -> None:
    """Law: eq. (9) for |CH| = 200, `nodes`, with sums of the geometric series worked out: |G| = 21,
    D_1 = 68, sum of x (x-1) q^x = 2 q^2 / (1-q)^3."""
    q = math.exp(-1.3567)
    nodes = 0.30142e-2 * 68 * 210 / (1408 * 1407) * 2 * q**2 / (1 - q) ** 3
    rest = sum(a / math.expm1(b) for a, b in PRINTED[1:])
    assert p_cf(200, 1) == pytest.approx(nodes + rest, rel=1e-12)


# ---- against counting -----------------------------------------------------------------------


def share_of_subsets(count: int, x: int, sets: list[set[int]], m: int) -> Fraction:
    """Share of the x-subsets of `count` elements that have more than m elements in some set."""
    subsets = [set(s) for s in itertools.combinations(range(count), x)]
    return Fraction(sum(any(len(s & g) > m for g in sets) for s in subsets), len(subsets))


@given(st.integers(2, 10), st.data())
def test_aligned_is_counting(count: int, data: st.DataObject) -> None:
    """Law: equal to enumerating all failures of x elements, for blocks side by side."""
    m = data.draw(st.integers(1, min(3, count - 1)))
    size = data.draw(st.integers(1, count - m))
    groups = Groups(size * data.draw(st.integers(1, 6)), 0, m)
    groups = Groups(groups.ranks, groups.ranks // size, m)
    blocks = min(groups.count, count // groups.members)
    sets = [set(range(i * groups.members, (i + 1) * groups.members)) for i in range(blocks)]
    found = model.aligned(count, count, groups)
    for x in range(count + 1):
        assert found[x] == pytest.approx(float(share_of_subsets(count, x, sets, m)), rel=1e-9)


@given(st.integers(2, 9), st.integers(1, 12), st.data())
def test_scattered_is_counting(count: int, many: int, data: st.DataObject) -> None:
    """Law: with q the share of failures that one group does not survive, found by enumeration, it
    is 1 - (1 - q)^g; for groups of two sizes, with a factor for each."""
    m = data.draw(st.integers(1, min(3, count - 1)))
    ranks = data.draw(st.integers(many, many * (count - m)))
    groups = Groups(ranks, many, m)
    found = model.scattered(np.arange(count + 1), count, groups)
    for x in range(count + 1):
        safe = 1.0
        for members, number in groups.sizes:
            lost = share_of_subsets(count, x, [set(range(members))], m)
            safe *= float(1 - lost) ** number
        assert found[x] == pytest.approx(1 - safe, abs=1e-12)


@given(st.integers(2, 60), st.integers(1, 30), st.integers(1, 4), st.integers(2, 400))
def test_eq8_is_its_binomials(x: int, size: int, m: int, more: int) -> None:
    """Law: D C(|G|, s) C(H-s, x-s) / C(H, x) with s = m + 1, in exact integers."""
    count = x + size + m + more
    groups = Groups(size * 7, 7, m)
    s, members = m + 1, size + m
    expected = Fraction(0)
    if x >= s:
        expected = Fraction(
            -(-count // members) * math.comb(members, s) * math.comb(count - s, x - s),
            math.comb(count, x),
        )
    found = model.eq8(np.array([float(x)]), count, groups)[0]
    assert found == pytest.approx(float(expected), rel=1e-12)


@given(st.integers(1, 20), st.integers(1, 60), st.integers(1, 3), st.integers(0, 300))
def test_exact_probabilities_are_sound(size: int, many: int, m: int, more: int) -> None:
    """Law: within 0 and 1, growing with x, zero up to m; eq. (8) bounds aligned from above."""
    groups = Groups(size * many, many, m)
    count = groups.members + more
    last = min(count, 40)
    x = np.arange(last + 1)
    aligned, scattered = model.aligned(last, count, groups), model.scattered(x, count, groups)
    for found in (aligned, scattered):
        assert (found >= 0).all() and (found <= 1 + 1e-9).all()
        assert (np.diff(found) >= -1e-9 * found[1:]).all() and not found[: m + 1].any()
    assert (aligned <= model.eq8(x.astype(float), count, groups) * (1 + 1e-9)).all()


def test_more_losses_than_double_range() -> None:
    """Law: hundreds of concurrent failures on a slow decay neither overflow nor vanish: certain
    loss is the limit, and the level's part is below its failures."""
    level = Level("nodes", 10**6, Exponential(1e-3, 0.01))
    groups = Groups(10**6, 50_000, 1)
    for kind in model.MODELS[1:]:
        found = model.at_level(level, groups, kind)
        assert 0 < found < level.total_per_day() and math.isfinite(found)
    assert model.aligned(1200, 10**6, groups)[1200] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("kind", model.MODELS[1:])
def test_what_is_not_looked_at_counts_as_lost(kind: str) -> None:
    """Law: failures of more elements than are computed are catastrophic, never forgotten."""
    failures = Exponential(1e-3, 1e-4)
    found = model.at_level(Level("nodes", 10**6, failures), Groups(100, 10, 1), kind)
    assert found >= failures.beyond(model.LAST_X, 10**6)
    assert found == pytest.approx(failures.beyond(model.LAST_X, 10**6), rel=1e-4)


# ---- against simulation ---------------------------------------------------------------------


@pytest.mark.plain
@pytest.mark.parametrize("placement", ["aligned", "scattered"])
@pytest.mark.parametrize(
    ("counts", "ranks", "many", "m"),
    [
        ((64, 16), 60, 20, 1),
        ((60, 12), 96, 12, 2),
        ((100, 50, 25), 210, 30, 1),
        ((40, 20), 33, 3, 3),
    ],
)
def test_simulation_confirms(
    placement: str, counts: tuple[int, ...], ranks: int, many: int, m: int
) -> None:
    """Law: the exact P_cf lies within the 99.9 % bounds of a simulation that shares no formula
    with it, and these are narrow enough to notice an error of a fifth."""
    levels = tuple(Level(f"l{i}", count, Exponential(0.1, 0.4)) for i, count in enumerate(counts))
    some = Machine("some", "", levels)
    groups = Groups(ranks, many, m)
    found = simulate.simulate(some, groups, len(levels), placement, 4000, seed=11)
    exact = model.total(model.p_cf_per_day(some, groups, len(levels), placement))
    assert found.low <= exact <= found.high
    assert found.half_width_per_day < 0.2 * exact


def test_simulation_of_the_machine_of_the_paper() -> None:
    """Law: on TSUBAME2.0 at |CH| = 5 % the printed P_cf of `nodes`, whose error is small there,
    lies within the bounds as well, for the placement that it supposes."""
    found = simulate.simulate(TSUBAME, make_groups(4000, 200, 1), 1, "aligned", 10_000, seed=5)
    assert found.low <= p_cf(200, 1) <= found.high and found.low > p_cf(1000, 1)


def test_seeds_decide() -> None:
    """Law: the same seed gives the same estimate, another one another."""
    groups = Groups(60, 20, 1)
    some = Machine("some", "", (Level("nodes", 64, TabledFailures.of([0.1, 0.1, 0.1])),))
    runs = [simulate.simulate(some, groups, 1, "scattered", 1000, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


# ---- distributions, layouts, speed ----------------------------------------------------------


@given(st.floats(1e-6, 10), st.floats(1e-3, 5), st.integers(0, 50), st.integers(0, 200))
def test_tails_are_sums(amplitude: float, decay: float, x: int, more: int) -> None:
    """Law: what lies beyond x is the sum of the values beyond x, up to the number of elements."""
    values = Exponential(amplitude, decay).per_day(np.arange(1, x + more + 1))
    for found in (Exponential(amplitude, decay), TabledFailures.of(values)):
        assert found.beyond(x, x + more) == pytest.approx(values[x:].sum(), rel=1e-9)


@pytest.mark.parametrize(
    ("ranks", "checksums", "m", "words"),
    [
        (0, 1, 1, "--ranks 0: must be"),
        (10, 0, 1, "--checksums 0: must be"),
        (10, 2, 0, "--m 0: must be"),
        (10, 5, 2, "2 per group do not divide them; use 4 or 6"),
        (10, 11, 1, "11 groups for 10 ranks; use at most 10"),
        (4000, 10, 1, "groups of 400 + 1 members; at most 255; use 16"),
        (4000, 30, 2, "use 32 checksum ranks or more"),
    ],
)
def test_impossible_groups_are_told(ranks: int, checksums: int, m: int, words: str) -> None:
    """Law: a ValueError with the value and the remedy, and the remedy works."""
    with pytest.raises(ValueError, match="--") as error:
        make_groups(ranks, checksums, m)
    assert words in str(error.value)
    if "use 16" in words or "use 32" in words:
        make_groups(ranks, int(words.split("use ")[1].split()[0]), m)


def test_groups_larger_than_a_level_are_told() -> None:
    """Law: members that cannot lie apart are refused, and the remedy works."""
    with pytest.raises(ValueError) as error:
        p_cf(50, 4)
    assert "81 members and TSUBAME2.0 44 racks; use 94 checksum ranks" in str(error.value)
    assert p_cf(94, 4) > 0


def test_a_million_ranks_in_time() -> None:
    """Law: 10^6 ranks on 10^5 nodes take less than a second of computing a point."""
    counts = (100_000, 25_000, 6_250, 3_125)
    levels = tuple(Level(level.name, count, level.failures)
                   for level, count in zip(TSUBAME.levels, counts, strict=True))
    large = Machine("large", "", levels)
    began = time.process_time()
    by_m = []
    for m in (1, 2, 3):
        groups = make_groups(10**6, 50_000 * m, m)
        found = [model.total(model.p_cf_per_day(large, groups, 4, k)) for k in model.MODELS]
        assert 0 < found[1] <= found[0] < found[2] < 1e-5
        by_m.append(found)
    assert time.process_time() - began < 3
    assert all(b < a / 100 for one, two in itertools.pairwise(by_m)
               for a, b in zip(one, two, strict=True))
