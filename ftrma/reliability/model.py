"""Computes P_cf, the rate at which a group loses more members than it survives (section 5.2).

At the levels 1 to n where members of a group lie apart, a failure of x elements is catastrophic
with a probability that follows from combinatorics; at the levels above, any failure is taken to be
catastrophic, as the paper does. Three models give that probability: `eq8` as printed, `aligned` and
`scattered` exactly. The package's docstring says how they differ.

No model forms differences of large numbers: probabilities of 1e-20 keep their digits, and nothing
overflows at 10^6 elements. Failures of so many elements at once that they no longer matter are
counted as catastrophic, so the result is never too small.

Invariant: where groups are equal, eq8 >= aligned; every exact probability grows with x and lies
within 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ..machine.topology import MAX_MEMBERS
from .distribution import Array, Distribution
from .machine import Level, Machine

FIRST_X = 64  # with the exponents of real machines larger x do not matter
# The largest number of concurrent failures that is considered; with the scaling of `aligned`,
# larger ones would leave the range of a double.
LAST_X = 1200
NEGLIGIBLE = 1e-9  # share of the result that failures of more elements may still add
MODELS = ("eq9", "aligned", "scattered")


@dataclass(frozen=True)
class Groups:
    """`ranks` computing ranks in `count` groups of sizes as equal as possible, with m checksum
    ranks each."""

    ranks: int
    count: int
    m: int

    @property
    def checksums(self) -> int:
        return self.count * self.m

    @property
    def size(self) -> int:
        """Return the number of computing ranks of the largest group."""
        return -(-self.ranks // self.count)

    @property
    def members(self) -> int:
        """Return |G|, the number of computing and checksum ranks of the largest group."""
        return self.size + self.m

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Return the sizes of groups, each with the number of groups of that size."""
        large = self.ranks - self.count * (self.ranks // self.count)
        small = (self.ranks // self.count + self.m, self.count - large)
        return [small, (self.members, large)] if large else [small]


def make_groups(ranks: int, checksums: int, m: int) -> Groups:
    """Return the groups, or refuse numbers for which there are none.

    Args:
        ranks: N computing ranks, >= 1.
        checksums: |CH| checksum ranks in all groups together, a multiple of m.
        m: losses that each group survives, >= 1.

    Raises:
        ValueError: with the value and the remedy.
    """
    for name, value in (("--ranks", ranks), ("--checksums", checksums), ("--m", m)):
        if value < 1:
            raise ValueError(f"{name} {value}: must be 1 or more")
    if checksums % m:
        raise ValueError(
            f"--checksums {checksums}: {m} per group do not divide them; use "
            f"{max(m, checksums - checksums % m)} or {checksums - checksums % m + m}"
        )
    groups = Groups(ranks, checksums // m, m)
    if groups.count > ranks:
        raise ValueError(
            f"--checksums {checksums}: {groups.count} groups for {ranks} ranks; use at most "
            f"{ranks * m}"
        )
    if groups.members > MAX_MEMBERS:
        least = -(-ranks // (MAX_MEMBERS - m)) * m
        raise ValueError(
            f"--checksums {checksums}: groups of {groups.size} + {m} members; at most "
            f"{MAX_MEMBERS}; use {least} checksum ranks or more"
        )
    return groups


def check_placement(machine: Machine, groups: Groups, aware: int) -> None:
    """Refuse groups whose members cannot lie apart at levels 1 to `aware`."""
    for level in machine.levels[:aware]:
        if groups.members > level.count:
            most = level.count - groups.m
            remedy = (
                f"use {-(-groups.ranks // most) * groups.m} checksum ranks or more, or a lower "
                "level" if most > 0 else "use a lower level"
            )
            raise ValueError(
                f"--aware {machine.levels[aware - 1].name}: a group has {groups.members} members "
                f"and {machine.name} {level.count} {level.name}; {remedy}"
            )


def p_cf_per_day(
    machine: Machine, groups: Groups, aware: int, model: str = "eq9"
) -> dict[str, float]:
    """Return each level's part of P_cf, in catastrophic failures per day.

    Args:
        machine: failure domains and rates.
        groups: from `make_groups`.
        aware: n, the highest level (from 1) at which members of a group lie apart; 0 for none.
        model: ``eq9`` (as printed; generalized if m > 1), ``aligned`` or ``scattered``.

    Returns:
        The parts by the name of the level; their `total` is P_cf.

    Raises:
        ValueError: a group has more members than such a level has elements.

    Source: eq. (7) to (9).
    """
    check_placement(machine, groups, aware)
    return {
        level.name: at_level(level, groups, model) if j < aware else level.total_per_day()
        for j, level in enumerate(machine.levels)
    }


def total(by_level: dict[str, float]) -> float:
    """Return P_cf per day from the levels' parts; a probability, so at most 1."""
    return min(1.0, sum(by_level.values()))


def at_level(level: Level, groups: Groups, model: str) -> float:
    """Return the part of one level where members lie apart, in failures per day."""
    if level.failures is None:
        return 0.0
    if model == "eq9":
        return as_printed(level.failures, level.count, groups)
    count = level.count
    if model == "aligned":
        return weigh(level.failures, count, lambda last: aligned(last, count, groups))
    return weigh(level.failures, count, lambda last: scattered(np.arange(last + 1), count, groups))


def weigh(failures: Distribution, count: int, conditional: Callable[[int], Array]) -> float:
    """Return the sum over x of P_j(x) times the probability that x failures are catastrophic.

    Args:
        failures: P_j.
        count: H_j.
        conditional: returns the probabilities for x = 0 .. its argument.
    """
    last = min(FIRST_X, count)
    while True:
        x = np.arange(last + 1)
        found = float(np.dot(failures.per_day(x[1:]), conditional(last)[1:]))
        rest = failures.beyond(last, count)
        if rest <= NEGLIGIBLE * found or last == min(LAST_X, count):
            return found + rest
        last = min(4 * last, LAST_X, count)


# ---- eq. (8) and its sum in eq. (9), as printed ---------------------------------------------


def eq8(x: Array, count: int, groups: Groups) -> Array:
    """Return eq. (8) for x elements failed of `count`; as printed, so it may exceed 1.

    C(H - s, x - s) / C(H, x) with s = m + 1 is x (x-1) ... / (H (H-1) ...), s factors each, and
    zero for x < s.
    """
    members = groups.ranks / groups.count + groups.m  # as printed, not rounded
    found = np.full(x.shape, float(math.ceil(count / members)))
    for i in range(groups.m + 1):
        found *= (members - i) / (i + 1) * np.maximum(x - i, 0) / (count - i)
    return found


def as_printed(failures: Distribution, count: int, groups: Groups) -> float:
    """Return the first sum of eq. (9) at one level, over all x from 1 to H_j."""
    x = np.arange(1.0, count + 1)
    weights = failures.per_day(x)
    used = weights > 0  # for large x the exponential is zero as a double
    return float(np.dot(weights[used], eq8(x[used], count, groups)))


# ---- exact: groups that share an element share all ------------------------------------------


def aligned(last: int, count: int, groups: Groups) -> Array:
    """Return the exact probabilities for x = 0 .. last if groups lie in disjoint blocks.

    The number of sets of x elements is the coefficient of z^x in a product of one polynomial per
    block. Sets with more than m elements in some block are counted apart from the others, in a
    second series, so that nothing is ever subtracted. Both are scaled by a power of z that keeps
    the coefficients of all x within the range of a double.
    """
    size = groups.members
    blocks = min(groups.count, count // size)
    scale = max(1.0, last / 2) / count
    whole = binomials(size, last, scale)
    keep = np.arange(len(whole)) <= groups.m
    block = (np.where(keep, whole, 0.0), np.where(keep, 0.0, whole))
    idle = binomials(count - blocks * size, last, scale)
    safe, lost = product((idle, np.zeros_like(idle)), power(block, blocks, last), last)
    found = np.zeros(last + 1)
    found[: len(safe)] = lost / (safe + lost)
    return found


Series = tuple[Array, Array]  # series of the safe sets, and of the others


def product(a: Series, b: Series, last: int) -> Series:
    """Multiply, up to z^last: a set is safe if both of its parts are."""
    safe = np.convolve(a[0], b[0])[: last + 1]
    lost = np.convolve(a[1], b[0] + b[1])[: last + 1] + np.convolve(a[0], b[1])[: last + 1]
    return safe, lost


def power(base: Series, exponent: int, last: int) -> Series:
    """Multiply a series `exponent` times with itself, by repeated squaring."""
    found = (np.ones(1), np.zeros(1))
    while exponent:
        if exponent & 1:
            found = product(found, base, last)
        exponent >>= 1
        if exponent:
            base = product(base, base, last)
    return found


def binomials(n: int, last: int, scale: float) -> Array:
    """Return C(n, i) scale^i for i = 0 .. min(n, last)."""
    i = np.arange(1, min(n, last) + 1)
    return np.concatenate([[1.0], np.cumprod((n - i + 1) / i * scale)])


# ---- exact: every group lies on elements of its own choice ----------------------------------


def scattered(x: np.ndarray, count: int, groups: Groups) -> Array:
    """Return the exact probabilities for x elements failed if groups lie independently.

    The failed elements are fixed. Each group lies on more than m of them with the probability of a
    hypergeometric tail, independently of the other groups.
    """
    log_safe = np.zeros(x.shape)
    for members, many in groups.sizes:
        lost = hypergeometric_tail(x, count, members, groups.m)
        with np.errstate(divide="ignore"):  # log(0) if a group is certainly lost
            log_safe += many * np.log1p(-np.minimum(lost, 1.0))
    return np.asarray(-np.expm1(log_safe))


def hypergeometric_tail(x: np.ndarray, count: int, members: int, m: int) -> Array:
    """Return the probability that more than m of `members` elements are among x of `count`."""
    log_factorial = log_factorials(count)

    def log_choose(n: int, k: np.ndarray) -> Array:
        valid = (k >= 0) & (k <= n)
        k = np.where(valid, k, 0)
        found = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
        return np.where(valid, found, -np.inf)

    last = int(x.max(initial=0))
    hit = np.arange(m + 1, min(members, last) + 1)[:, None]
    logs = log_choose(members, hit) + log_choose(count - members, x - hit) - log_choose(count, x)
    return np.asarray(np.exp(logs).sum(axis=0))


@cache
def log_factorials(n: int) -> Array:
    """Return log(i!) for i = 0 .. n."""
    from scipy.special import gammaln

    return np.asarray(gammaln(np.arange(n + 1) + 1.0), dtype=np.float64)
