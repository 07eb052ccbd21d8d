"""The parts of the FT benchmark that need no MPI, against their definition and published values.

Why: the benchmark judges protected runs by its checksums, so its own arithmetic must be right
before a disagreement can be blamed on anything else.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.fft
from numpy.typing import NDArray
from tree import APPS

# The benchmark programs are scripts beside each other, not a package.
sys.path.insert(0, str(APPS))

import npb


@pytest.mark.parametrize("name", ["S", "W"])
def test_checksums_agree_with_the_published_ones(name: str) -> None:
    problem = npb.PROBLEMS[name]
    sums = solve_in_one_process(problem, problem.iterations)
    assert npb.verify(problem, sums) is True


def test_random_numbers_are_those_of_the_scalar_generator() -> None:
    problem = npb.PROBLEMS["S"]
    lines = 3
    expected = []
    x = npb.SEED
    for _ in range(lines * 2 * problem.nx):
        x = x * npb.MULTIPLIER % 2**npb.MODULUS_BITS
        expected.append(x / 2**npb.MODULUS_BITS)
    got = initial_field(problem, range(1), range(lines))
    assert got.view(np.float64).ravel().tolist() == expected


@pytest.mark.parametrize("name", ["S", "W"])
def test_any_slab_of_the_field_is_that_part_of_the_whole(name: str) -> None:
    problem = npb.PROBLEMS[name]
    whole = initial_field(problem, range(problem.nz), range(problem.ny))
    z_range, y_range = range(problem.nz // 2, problem.nz), range(16, 48)
    slab = initial_field(problem, z_range, y_range)
    assert np.array_equal(slab, whole[z_range.start : z_range.stop, 16:48])


def test_last_number_of_the_largest_class_is_a_direct_jump() -> None:
    problem = npb.PROBLEMS["B"]
    z_range, y_range = range(problem.nz - 1, problem.nz), range(problem.ny - 1, problem.ny)
    last = initial_field(problem, z_range, y_range).view(np.float64).ravel()[-1]
    modulus = 2**npb.MODULUS_BITS
    assert last == npb.SEED * pow(npb.MULTIPLIER, 2 * problem.points, modulus) % modulus / modulus


@pytest.mark.parametrize("count", [1, 2, 3, 64, 100])
def test_powers_are_exact_in_their_low_bits(count: int) -> None:
    modulus = 2**npb.MODULUS_BITS
    got = [int(power) % modulus for power in npb.powers(npb.MULTIPLIER, count)]
    assert got == [pow(npb.MULTIPLIER, exponent, modulus) for exponent in range(count)]


def test_wave_numbers_are_signed_and_wrap_at_half_the_size() -> None:
    assert npb.wave_numbers(8).tolist() == [0, 1, 2, 3, -4, -3, -2, -1]


def test_evolution_factors_follow_their_formula() -> None:
    problem = npb.PROBLEMS["W"]
    x_range, y_range = range(60, 70), range(120, 128)
    factors = npb.evolution_factors(problem, x_range, y_range)
    assert factors.shape == (len(x_range), len(y_range), problem.nz)
    # x = 66, y = 125 and z = 17 have the wave numbers -62, -3 and -15.
    squares = 62**2 + 3**2 + 15**2
    assert factors[6, 5, 17] == pytest.approx(np.exp(-4e-6 * np.pi**2 * squares), rel=1e-15)
    reused = np.zeros_like(factors)
    assert npb.evolution_factors(problem, x_range, y_range, out=reused) is reused
    assert np.array_equal(reused, factors)


@pytest.mark.parametrize("name", ["S", "W", "A", "B"])
def test_checksum_points_are_shared_out_without_loss(name: str) -> None:
    problem = npb.PROBLEMS[name]
    got = []
    for slot in range(4):
        z_range, y_range = npb.Pencils(problem, 2, 2, slot).real_ranges
        for position in npb.checksum_indices(problem, z_range, y_range).tolist():
            line, x = divmod(position, problem.nx)
            z, y = divmod(line, len(y_range))
            got.append((x, y_range[y], z_range[z]))
    expected = [
        (j % problem.nx, 3 * j % problem.ny, 5 * j % problem.nz)
        for j in range(1, npb.CHECKSUM_POINTS + 1)
    ]
    assert sorted(got) == sorted(expected)


@pytest.mark.parametrize(
    ("name", "slots", "grid"),
    [
        ("S", 1, (1, 1)),
        ("S", 2, (1, 2)),
        ("A", 4, (2, 2)),
        ("A", 8, (2, 4)),
        ("A", 16, (4, 4)),
        ("W", 4096, (128, 32)),
        ("W", 3, None),
        ("W", 8192, None),
    ],
)
def test_slot_grid_is_as_square_as_the_sizes_allow(
    name: str, slots: int, grid: tuple[int, int] | None
) -> None:
    assert npb.slot_grid(npb.PROBLEMS[name], slots) == grid


def test_usable_slot_count_is_the_next_one_below() -> None:
    assert npb.usable_slots_near(npb.PROBLEMS["W"], 7) == 4


@pytest.mark.parametrize(("p1", "p2"), [(1, 1), (2, 4), (4, 2)])
def test_pencils_cover_each_space_once_and_peers_agree(p1: int, p2: int) -> None:
    problem = npb.PROBLEMS["S"]
    real = np.zeros((problem.nz, problem.ny), dtype=int)
    frequency = np.zeros((problem.nx, problem.ny), dtype=int)
    for slot in range(p1 * p2):
        pencils = npb.Pencils(problem, p1, p2, slot)
        for counts, (outer, inner) in (
            (real, pencils.real_ranges),
            (frequency, pencils.frequency_ranges),
        ):
            counts[outer.start : outer.stop, inner.start : inner.stop] += 1
        for peers, count in ((pencils.row, p1), (pencils.column, p2)):
            assert len(peers.slots) == count
            assert peers.slots[peers.me] == slot
            assert sorted(peers.order) == list(range(count))
    assert (real == 1).all()
    assert (frequency == 1).all()


def test_verification_needs_every_sum_to_agree() -> None:
    problem = npb.PROBLEMS["S"]
    right = list(problem.checksums)
    assert npb.verify(problem, right[:2]) is True
    assert npb.verify(problem, [*right, 1j]) is None
    wrong = [*right[:5], right[5] * (1 + 3e-12)]
    assert npb.verify(problem, wrong) is False
    assert npb.verify(problem, [*wrong, 1j]) is False
    assert npb.verify(problem, [*right[:5], complex("nan")]) is False


def test_operation_count_is_that_of_npb() -> None:
    problem = npb.PROBLEMS["S"]
    log_points = np.log(64.0**3)
    operations = 64**3 * (14.8157 + 7.19641 * log_points + 6 * (5.23518 + 7.21113 * log_points))
    assert npb.mops(problem, 6, 2.0) == pytest.approx(operations / 2e6)


def initial_field(problem: npb.Problem, z_range: range, y_range: range) -> NDArray[np.complex128]:
    """The initial field of one slab, as [z, y, x]."""
    field = np.empty((len(z_range), len(y_range), problem.nx), dtype=np.complex128)
    npb.InitialField(problem, y_range).fill(z_range.start, field)
    return field


def solve_in_one_process(problem: npb.Problem, iterations: int) -> list[complex]:
    """The whole benchmark with SciPy's own 3-D transform instead of the distributed one."""
    ranges = range(problem.nz), range(problem.ny)
    spectrum = scipy.fft.fftn(initial_field(problem, *ranges))
    factors = npb.evolution_factors(problem, range(problem.nx), range(problem.ny))
    points = npb.checksum_indices(problem, *ranges)
    sums = []
    for _ in range(iterations):
        spectrum *= factors.transpose(2, 1, 0)
        result = scipy.fft.ifftn(spectrum)
        sums.append(complex(result.ravel()[points].sum()))
    return sums
