"""A machine as a hierarchy of failure domains, read from TOML (section 5 of Besta & Hoefler).

The format, by example; levels go from the smallest domain upward::

    name = "TSUBAME2.0"
    source = "where the numbers come from"

    [[level]]
    name = "nodes"
    count = 1408                     # H_j: elements of this level, never more than below

    [level.failures]                 # one of four forms; a level without never fails by itself
    amplitude_per_day = 0.0030142    # exponential: A exp(-decay * x) failures per day of x at once
    decay = 1.3567
    # per_day = [1e-3, 2e-4]         # table: failures per day of 1, 2, ... at once
    # total_per_day = 1.2            # shares of a total: probabilities of 1, 2, ... at once
    # shares = [0.75, 0.20, 0.05]
    # history = "failures.csv"       # fitted to a record (history.py); path relative to this file
    # history_days = 880.0           # optional; else from the first to the last failure

Invariant: every `Machine` is consistent; mistakes in a file are reported with line and column.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..host import tomlfile
from ..host.tomlfile import Table
from ..machine.topology import NO_LEVEL
from .distribution import Distribution, Exponential, TabledFailures

MOST_COUNT = 1_000_000  # elements of a level; arrays of so many are summed within seconds
MOST_LEVELS = 64
MOST_PER_DAY = 1e9  # a machine with so many failures computes nothing
MOST_ENTRIES = 1000  # most entries of a table; `simulate` draws no more at once
DECAYS = (1e-9, 1000.0)  # below, the decay is slow for any level; above, rates are zero as doubles
PLACES = (Path(__file__).parents[1] / "models", Path(__file__).parents[2] / "models")


@dataclass(frozen=True)
class Level:
    """One level of the hierarchy: `count` elements (H_j), which fail as `failures` says."""

    name: str
    count: int
    failures: Distribution | None

    def total_per_day(self) -> float:
        """Return the failures per day of any number of elements at once."""
        return self.failures.beyond(0, self.count) if self.failures else 0.0


@dataclass(frozen=True)
class Machine:
    """A hierarchy of failure domains; `levels` go from the smallest domain upward."""

    name: str
    source: str
    levels: tuple[Level, ...]

    @property
    def strategies(self) -> list[str]:
        """Return the names of the awareness levels, from ``none`` upward."""
        return [NO_LEVEL, *(level.name for level in self.levels)]

    def awareness(self, name: str) -> int:
        """Return n: members of a group lie apart at levels 1 to n; 0 for ``none``.

        Raises:
            ValueError: the machine has no such level.
        """
        if name not in self.strategies:
            raise ValueError(
                f"--aware {name}: {self.name} has no such level; use {', '.join(self.strategies)} "
                "or all"
            )
        return self.strategies.index(name)


def shipped() -> dict[str, Path]:
    """Return the machines that come with the package: path by name."""
    return {path.stem: path for place in PLACES for path in sorted(place.glob("*.toml"))}


def load(name: str) -> Machine:
    """Return a machine by the name of a shipped description or the path of a file.

    Raises:
        ValueError: there is none, or it has a mistake.
    """
    known = shipped()
    if name in known:
        return read(known[name])
    if not os.path.exists(name):
        raise ValueError(
            f"--machine {name}: no such machine or file; use {', '.join(known)} or the path of a "
            "TOML file"
        )
    return read(Path(name))


def read(path: Path) -> Machine:
    """Return the machine that a TOML file describes."""
    root = tomlfile.read(path)
    root.allow("name", "source", "level")
    levels: list[Level] = []
    for table in root.tables("level"):
        table.allow("name", "count", "failures")
        name, count = table.text("name"), table.integer("count", least=1, most=MOST_COUNT)
        if len(levels) == MOST_LEVELS:
            raise table.error("name", f"more than {MOST_LEVELS} levels; leave some out")
        if name in [NO_LEVEL, "all", *(level.name for level in levels)]:
            raise table.error("name", f"{name!r} is taken; give each level a name of its own")
        if levels and count > levels[-1].count:
            raise table.error(
                "count",
                f"{count} {name} above {levels[-1].count} {levels[-1].name}; list levels from the "
                "smallest domain upward",
            )
        failures = None
        if "failures" in table:
            failures = read_failures(table.table("failures"), path.parent, name, count)
        levels.append(Level(name, count, failures))
    if not levels:
        raise root.error("level", "a machine needs at least one [[level]]")
    return Machine(root.text("name"), root.text("source", ""), tuple(levels))


def read_failures(table: Table, directory: Path, name: str, count: int) -> Distribution:
    """Return the distribution that ``[level.failures]`` of the level `name` with `count` elements
    describes."""
    if "history" in table:
        from . import history

        table.allow("history", "history_days")
        least, most = history.DAYS
        days = None
        if "history_days" in table:
            days = table.number("history_days", least=least, most=most)
        file = directory / table.text("history")
        try:
            found = history.read(file, days)
            most_hit = max(found.counts_of(name))
            if most_hit > count:
                raise ValueError(f"{file}: {most_hit} {name} failed at once, and there are {count} "
                                 "of them; correct the one or the other")
            return history.fit_by_likelihood(found.counts_of(name), found.days).distribution
        except ValueError as error:
            raise table.error("history", str(error)) from None
    if "per_day" in table:
        table.allow("per_day")
        return TabledFailures.of(entries(table, "per_day", MOST_PER_DAY, count))
    if "shares" in table:
        table.allow("shares", "total_per_day")
        shares = entries(table, "shares", 1.0, count)
        total = table.number("total_per_day", most=MOST_PER_DAY)
        if sum(shares) > 1 + 1e-9:
            raise table.error(
                "shares", f"they add up to {sum(shares):.6g}; probabilities add up to at most 1"
            )
        return TabledFailures.of([total * share for share in shares])
    table.allow("amplitude_per_day", "decay")
    amplitude, decay = table.number("amplitude_per_day", most=MOST_PER_DAY), table.number("decay")
    if decay <= 0:
        raise table.error("decay", f"decay = {decay:g}: must be above 0, or the sum is endless")
    return Exponential(amplitude, table.number("decay", least=DECAYS[0], most=DECAYS[1]))


def entries(table: Table, key: str, most: float, count: int) -> list[float]:
    """Return the values of a table of failures, for a level with so many elements."""
    given = len(table.array(key))
    if given > MOST_ENTRIES:
        raise table.error(key, f"{given} values; give at most {MOST_ENTRIES}, or an exponential")
    if given > count:
        raise table.error(
            key, f"{given} values, for 1 to {given} failures at once, and the level has {count} "
            f"element{'s' * (count != 1)}; leave out what is behind that, or correct the count"
        )
    return table.numbers(key, most=most)
