"""The parts of the NAS Parallel Benchmark FT that need no MPI.

What: problem classes and their published checksums, the random numbers of the initial field, the
evolution factors, the checksum points, the pencil decomposition, and the operation count.

Why apart from the program: each of these is a pure function of its arguments, so it can be tested
against the published values in one process.

Invariants: every number that depends on a position depends on the global position alone, never on
the slot that computes it; so any decomposition gives the same field.

Source: D. Bailey et al., The NAS Parallel Benchmarks, RNR-94-007 (kernel FT), with the class sizes,
the reference checksums and the operation count of NPB 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SEED = 314159265
MULTIPLIER = 5**13
MODULUS_BITS = 46
ALPHA = 1e-6
CHECKSUM_POINTS = 1024
TOLERANCE = 1e-12

_MASK = np.uint64(2**MODULUS_BITS - 1)
_SCALE = 2.0**-MODULUS_BITS


@dataclass(frozen=True)
class Problem:
    """One problem class: the grid, the number of iterations, the published checksums."""

    nx: int
    ny: int
    nz: int
    iterations: int
    checksums: tuple[complex, ...]

    @property
    def points(self) -> int:
        """Number of points of the grid."""
        return self.nx * self.ny * self.nz


@dataclass(frozen=True)
class Peers:
    """The slots a transpose exchanges with, in order of the axis they share out."""

    slots: tuple[int, ...]
    me: int

    @property
    def order(self) -> tuple[int, ...]:
        """Positions in `slots`, rotated so that no two members begin with the same target."""
        count = len(self.slots)
        return tuple((self.me + step) % count for step in range(1, count + 1))


@dataclass(frozen=True)
class Pencils:
    """The part of one slot on a p1 x p2 grid of slots.

    In real space a slot owns all of x, one of p1 ranges of y and one of p2 ranges of z; in
    frequency space one of p1 ranges of x, one of p2 ranges of y and all of z.
    """

    problem: Problem
    p1: int
    p2: int
    slot: int

    @property
    def row(self) -> Peers:
        """The slots with the same range of z: they exchange x against y."""
        first = self.slot // self.p1 * self.p1
        return Peers(tuple(range(first, first + self.p1)), self.slot - first)

    @property
    def column(self) -> Peers:
        """The slots with the same range of x: they exchange y against z."""
        first = self.slot % self.p1
        slots = tuple(range(first, self.p1 * self.p2, self.p1))
        return Peers(slots, self.slot // self.p1)

    @property
    def real_ranges(self) -> tuple[range, range]:
        """The ranges of z and of y owned in real space."""
        return (
            _share(self.problem.nz, self.p2, self.column.me),
            _share(self.problem.ny, self.p1, self.row.me),
        )

    @property
    def frequency_ranges(self) -> tuple[range, range]:
        """The ranges of x and of y owned in frequency space."""
        return (
            _share(self.problem.nx, self.p1, self.row.me),
            _share(self.problem.ny, self.p2, self.column.me),
        )


def slot_grid(problem: Problem, slots: int) -> tuple[int, int] | None:
    """The most square p1 x p2 whose factors divide the sizes they share out; None if none does."""
    fitting = [
        (p1, slots // p1)
        for p1 in range(1, slots + 1)
        if slots % p1 == 0
        and math.gcd(problem.nx, problem.ny) % p1 == 0
        and math.gcd(problem.ny, problem.nz) % (slots // p1) == 0
    ]
    return min(fitting, key=lambda pair: (abs(pair[0] - pair[1]), pair[0]), default=None)


def usable_slots_near(problem: Problem, slots: int) -> int:
    """The greatest slot count below `slots` that the grid can be shared out over."""
    return next(n for n in range(slots - 1, 0, -1) if slot_grid(problem, n) is not None)


class InitialField:
    """The uniform random initial field of one slot's range of y, for any range of z.

    The generator x <- a x mod 2^46 is jumped to the start of each line of x by powers of a. A
    product modulo 2^64 keeps its low 46 bits exact, so unsigned 64-bit arithmetic that wraps is
    enough, and the conversion to floating point is exact because 46 bits fit a double.
    """

    def __init__(self, problem: Problem, y_range: range) -> None:
        self._ny = problem.ny
        self._line_jump = pow(MULTIPLIER, 2 * problem.nx, 2**MODULUS_BITS)
        self._within_line = powers(MULTIPLIER, 2 * problem.nx) * np.uint64(MULTIPLIER)
        start = SEED * pow(self._line_jump, y_range.start, 2**MODULUS_BITS) % 2**MODULUS_BITS
        self._line_starts = powers(self._line_jump, len(y_range)) * np.uint64(start)

    def fill(self, z_start: int, out: NDArray[np.complex128]) -> None:
        """Write planes z_start, z_start + 1, ... into the contiguous `out`[z, y, x]."""
        for offset, plane in enumerate(out):
            jump = pow(self._line_jump, (z_start + offset) * self._ny, 2**MODULUS_BITS)
            starts = self._line_starts * np.uint64(jump)
            numbers = np.multiply.outer(starts, self._within_line)
            numbers &= _MASK
            # Signed integers convert to floating point faster, and the sign bit is clear here.
            np.multiply(numbers.view(np.int64), _SCALE, out=plane.view(np.float64))


def powers(base: int, count: int) -> NDArray[np.uint64]:
    """base^0 ... base^(count-1), exact in their low 46 bits."""
    table = np.ones(count, dtype=np.uint64)
    done = 1
    while done < count:
        step = min(done, count - done)
        jump = np.uint64(pow(base, done, 2**MODULUS_BITS))
        np.multiply(table[:step], jump, out=table[done : done + step])
        done += step
    return table


def wave_numbers(size: int) -> NDArray[np.int64]:
    """The signed wave number of each index of a transformed axis."""
    index = np.arange(size)
    return (index + size // 2) % size - size // 2


def evolution_factors(
    problem: Problem,
    x_range: range,
    y_range: range,
    out: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """exp(-4 alpha pi^2 |k|^2), the factor of one iteration, for [x, y, all of z], into `out`."""
    if out is None:
        out = np.empty((len(x_range), len(y_range), problem.nz))
    kx, ky, kz = (
        wave_numbers(size).astype(np.float64) for size in (problem.nx, problem.ny, problem.nz)
    )
    plane = (ky[y_range.start : y_range.stop] ** 2)[:, None] + kz**2
    for k, factors in zip(kx[x_range.start : x_range.stop], out, strict=True):
        np.add(plane, k**2, out=factors)
        factors *= -4.0 * ALPHA * math.pi**2
        np.exp(factors, out=factors)
    return out


def checksum_indices(problem: Problem, z_range: range, y_range: range) -> NDArray[np.int64]:
    """The flat positions in a slot's real-space array [z, y, x] of the checksum points it owns."""
    j = np.arange(1, CHECKSUM_POINTS + 1)
    x, y, z = j % problem.nx, 3 * j % problem.ny, 5 * j % problem.nz
    owned = (z_range.start <= z) & (z < z_range.stop) & (y_range.start <= y) & (y < y_range.stop)
    local_z, local_y = z[owned] - z_range.start, y[owned] - y_range.start
    return (local_z * len(y_range) + local_y) * problem.nx + x[owned]


def verify(problem: Problem, sums: Sequence[complex] | NDArray[np.complex128]) -> bool | None:
    """`sums` agree with the published ones; None when they agree but outnumber them."""
    compared = min(len(sums), len(problem.checksums))
    got = np.asarray(sums[:compared], dtype=np.complex128)
    expected = np.array(problem.checksums[:compared])
    # The comparison is written so that a NaN counts as a disagreement.
    if not bool(np.all(np.abs((got - expected) / expected) <= TOLERANCE)):
        return False
    return True if compared == len(sums) else None


def mops(problem: Problem, iterations: int, seconds: float) -> float:
    """Millions of operations a second by NPB's operation count (natural logarithms)."""
    log_points = math.log(problem.points)
    start = 14.8157 + 7.19641 * log_points
    each = 5.23518 + 7.21113 * log_points
    return 1e-6 * problem.points * (start + each * iterations) / seconds


def _share(size: int, parts: int, part: int) -> range:
    return range(size // parts * part, size // parts * (part + 1))


PROBLEMS = {
    "S": Problem(
        64, 64, 64, 6,
        (
            554.6087004964 + 484.5363331978j, 554.6385409189 + 486.5304269511j,
            554.6148406171 + 488.3910722336j, 554.5423607415 + 490.1273169046j,
            554.4255039624 + 491.7475857993j, 554.2683411902 + 493.2597244941j,
        ),
    ),
    "W": Problem(
        128, 128, 32, 6,
        (
            567.3612178944 + 529.3246849175j, 563.1436885271 + 528.2149986629j,
            559.4024089970 + 527.0996558037j, 556.0698047020 + 526.0027904925j,
            553.0898991250 + 524.9400845633j, 550.4159734538 + 523.9212247086j,
        ),
    ),
    "A": Problem(
        256, 256, 128, 6,
        (
            504.6735008193 + 511.4047905510j, 505.9412319734 + 509.8809666433j,
            506.9376896287 + 509.8144042213j, 507.7892868474 + 510.1336130759j,
            508.5233095391 + 510.4914655194j, 509.1487099959 + 510.7917842803j,
        ),
    ),
    "B": Problem(
        512, 256, 256, 20,
        (
            517.7643571579 + 507.7803458597j, 515.4521291263 + 508.8249431599j,
            514.6409228649 + 509.6208912659j, 514.2378756213 + 510.1023387619j,
            513.9626667737 + 510.3976610617j, 513.7423460082 + 510.5948019802j,
            513.5547056878 + 510.7404165783j, 513.3910925466 + 510.8576573661j,
            513.2470705390 + 510.9577278523j, 513.1197729984 + 511.0460304483j,
            513.0070319283 + 511.1252433800j, 512.9070537032 + 511.1968077718j,
            512.8182883502 + 511.2616233064j, 512.7393733383 + 511.3203605551j,
            512.6691062020 + 511.3735928093j, 512.6064276004 + 511.4218460548j,
            512.5504076570 + 511.4656139760j, 512.5002331720 + 511.5053595966j,
            512.4551951846 + 511.5415130407j, 512.4146770029 + 511.5744692211j,
        ),
    ),
}
