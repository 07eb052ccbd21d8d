"""Reads a record of failures and fits exponentials to it (section 7.1, Figures 10a and 10b).

The file is CSV with a head line and one line per failure::

    time,level,count
    2012-03-01T04:30,nodes,1
    2012-03-02,psus,2

`time` is an ISO 8601 date, with or without a time of day, or a number of days; `level` the name of
a failure domain; `count` how many of them failed at once.

A exp(-b x) is fitted to the failures per day of x elements at once in two ways: by least squares on
the histogram, as in the paper, which is dominated by x = 1, 2; and by maximum likelihood, which
gives every failure the same weight and keeps the total. `Fit` says how well each agrees, and both
are shown.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..host.tomlfile import read_text
from ..host.values import number, whole
from .distribution import Array, Exponential

HEAD = ["time", "level", "count"]
LEAST_EXPECTED = 5.0  # failures in a bin of the chi-squared test; the customary rule
# Within these bounds rates and their squares can be represented; the calendar has three million
# days.
DAYS = (1e-3, 1e7)
MOST_COUNT = 1_000_000  # the most elements that a level may have
MOST_LEVELS = 64
Counts = Mapping[int, int]  # failures by the number of elements that they hit


@dataclass(frozen=True)
class History:
    """Failures by level and by number of elements hit, observed for `days`."""

    path: Path
    days: float
    levels: dict[str, Counter[int]]

    def counts_of(self, level: str) -> Counter[int]:
        if level not in self.levels:
            raise ValueError(
                f"{self.path}: no failure of level {level!r}; it has {', '.join(self.levels)}"
            )
        return self.levels[level]


@dataclass(frozen=True)
class Fit:
    """An exponential, and how well it agrees with the failures.

    Attributes:
        method: ``least squares`` or ``maximum likelihood``.
        r_squared: share of the histogram's variance that it explains; None for one bar.
        chi_squared: statistic of Pearson's test, over bins of at least 5 expected failures.
        freedom: degrees of freedom of that test; without any there is no p-value.
        p_value: probability of a worse agreement if the exponential is true; small means it is not.
    """

    method: str
    distribution: Exponential
    r_squared: float | None
    chi_squared: float
    freedom: int
    p_value: float | None


def read(path: Path, days: float | None = None) -> History:
    """Return a record of failures.

    Args:
        path: of the CSV file.
        days: how long failures were recorded; by default from the first to the last failure.

    Raises:
        ValueError: it has a mistake; the text is ``FILE:LINE: what, value, remedy``.
    """
    if days is not None and not DAYS[0] <= days <= DAYS[1]:
        raise ValueError(f"--history-days {days:g}: expected {DAYS[0]:g} to {DAYS[1]:g}")
    levels: dict[str, Counter[int]] = {}
    times: list[float] = []
    kinds = set()
    for line, time_text, level, count_text in rows(path):
        where = f"{path}:{line}"
        when, kind = parse_time(time_text, where)
        kinds.add(kind)
        if len(kinds) > 1:
            raise ValueError(f"{where}: time {time_text!r}: dates and day numbers; use one of them")
        if not level:
            raise ValueError(f"{where}: the level is empty; name the failure domain, such as nodes")
        times.append(when)
        count = whole(f"{where}: count", count_text, 1, MOST_COUNT)
        levels.setdefault(level, Counter())[count] += 1
        if len(levels) > MOST_LEVELS:
            raise ValueError(f"{where}: more than {MOST_LEVELS} levels; is level the second field?")
    if not times:
        raise ValueError(f"{path}: no failures; give at least two lines after {','.join(HEAD)}")
    span = max(times) - min(times)
    if days is None and span < DAYS[0]:
        raise ValueError(f"{path}: all failures at one time; say how long was recorded "
                         "(--history-days)")
    if days is not None and span > days:
        raise ValueError(
            f"{path}: failures span {span:g} days and {days:g} were recorded; correct "
            "--history-days"
        )
    return History(path, days or span, levels)


def rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Yield each failure's line number and fields."""
    reader = csv.reader(read_text(path).splitlines(), strict=True)
    try:
        head = [field.strip() for field in next(reader, [])]
        if head != HEAD:
            raise ValueError(
                f"{path}:1: head {','.join(head)!r}: the first line must be {','.join(HEAD)}"
            )
        for fields in reader:
            if not fields:
                continue
            if len(fields) != len(HEAD):
                raise ValueError(
                    f"{path}:{reader.line_num}: {len(fields)} fields; each line needs "
                    f"{','.join(HEAD)}"
                )
            time, level, count = (field.strip() for field in fields)
            yield reader.line_num, time, level, count
    except csv.Error as error:
        raise ValueError(
            f"{path}:{reader.line_num}: not valid CSV: {error}; correct this line"
        ) from None


def parse_time(text: str, where: str) -> tuple[float, str]:
    """Return a time in days from some origin, and whether it was a date or a number."""
    with contextlib.suppress(ValueError):
        return number("", text, -DAYS[1], DAYS[1]), "number"
    try:
        # Python 3.10 does not know the Z; times without a zone are all taken to be in one zone.
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(
            f"{where}: time {text!r}: expected a date such as 2012-03-01T04:30 or a number of days "
            f"from {-DAYS[1]:g} to {DAYS[1]:g}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp() / 86400, "date"


# ---- fitting --------------------------------------------------------------------------------


def histogram(counts: Counts, days: float) -> tuple[Array, Array]:
    """Return x = 1 .. the largest number hit, and the failures per day of each."""
    x = np.arange(1, max(counts) + 1, dtype=np.float64)
    return x, np.array([counts.get(int(value), 0) for value in x]) / days


def fit_by_least_squares(counts: Counts, days: float) -> Fit:
    """Fit A exp(-b x) to the histogram.

    Raises:
        ValueError: all failures hit the same number of elements, or the search does not converge,
            so no exponential is determined.
    """
    from scipy.optimize import OptimizeWarning, curve_fit

    check(counts)
    first = fit_by_likelihood(counts, days).distribution
    x, per_day = histogram(counts, days)
    scale = per_day.max()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizeWarning)  # of the covariance, unused
            (amplitude, decay), _ = curve_fit(
                lambda x, a, b: a * np.exp(-b * (x - 1)), x, per_day / scale,
                p0=[1.0, first.decay], bounds=([0, 1e-9], [np.inf, 50.0]),
            )
    except RuntimeError:
        amplitude, decay = 0.0, 1.0
    if not amplitude > 0:
        raise ValueError(
            "no exponential comes near; describe this level by a table (per_day = [...])"
        )
    found = Exponential(float(amplitude * np.exp(decay) * scale), float(decay))
    return judge("least squares", found, counts, days)


def fit_by_likelihood(counts: Counts, days: float) -> Fit:
    """Fit A exp(-b x) so that the observed failures are as likely as possible.

    Given that there is a failure, it hits x with probability proportional to exp(-b x): a geometric
    distribution, whose best b follows from the mean. A follows from the number of failures per day.

    Raises:
        ValueError: all failures hit one element; the decay would be infinite.
    """
    check(counts)
    failures = sum(counts.values())
    mean = sum(x * n for x, n in counts.items()) / failures
    ratio = 1 - 1 / mean
    amplitude = failures / days * (1 - ratio) / ratio
    return judge("maximum likelihood", Exponential(amplitude, -math.log(ratio)), counts, days)


def check(counts: Counts) -> None:
    used = [x for x, n in counts.items() if n]
    if len(used) < 2:
        raise ValueError(
            f"all failures hit {used[0] if used else 'no'} element at once; an exponential needs "
            "different numbers; describe this level by a table (per_day = [...])"
        )


def judge(method: str, found: Exponential, counts: Counts, days: float) -> Fit:
    """Return the fit with measures of its quality."""
    from scipy.stats import chi2

    x, per_day = histogram(counts, days)
    spread = float(((per_day - per_day.mean()) ** 2).sum())
    residual = float(((per_day - found.per_day(x)) ** 2).sum())
    r_squared = 1 - residual / spread if spread > 0 else None
    observed, expected = bins(found, counts, days)
    chi_squared = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = max(0, len(observed) - 2)  # A and b are taken from the data
    p_value = float(chi2.sf(chi_squared, freedom)) if freedom else None
    return Fit(method, found, r_squared, chi_squared, freedom, p_value)


def bins(found: Exponential, counts: Counts, days: float) -> tuple[list[float], list[float]]:
    """Return observed and expected failures for x = 1, 2, ..., and in one bin for all larger x."""
    observed: list[float] = []
    expected: list[float] = []
    x = 1
    while True:
        here = float(found.per_day(np.array([x]))[0]) * days
        rest = found.beyond(x, 10**9) * days
        if here < LEAST_EXPECTED or rest < LEAST_EXPECTED:
            break
        observed.append(counts.get(x, 0))
        expected.append(here)
        x += 1
    observed.append(sum(n for value, n in counts.items() if value >= x))
    expected.append(here + rest)
    return observed, expected
