"""Reads the input of a report: the statistics of a run, checked field by field, and its account.

The statistics are those of ``ftrma run --stats``. A missing field, or one of another kind, means
that the user has given another file; it leads to one message, with the field and the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..host.values import read_bytes

MOST_BYTES = 1 << 30  # most bytes of statistics: some million checkpoints have so many
REMEDY = "give the file that 'ftrma run --stats FILE' of this version has written"
LOSSES = ("starting", "checkpoints", "recoveries", "again")
PHASES = ("detect", "repair", "restore", "replay")
GOES_BACK = ("rollback", "relaunch")

T = TypeVar("T")


@dataclass(frozen=True)
class Taken:
    """A checkpoint. Times are seconds; `at_s` since the job began."""

    at_s: float
    version: int
    kind: str
    seconds: float
    bytes: int
    dirty_bytes: int
    step: int


@dataclass(frozen=True)
class Recovered:
    """A recovery that was over at `at_s` and had taken `seconds` since the death."""

    at_s: float
    kind: str
    slots: Sequence[int]
    version: int
    seconds: float
    phases: Mapping[str, float]
    reason: str

    @property
    def died_at_s(self) -> float:
        return max(0.0, self.at_s - self.seconds)


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        job, program: as ``ftrma run`` knew them; they may be empty.
        status: exit status.
        began: seconds since 1970. began_monotonic_s: on the machine's monotonic clock, as traces
            have it; None if it is not known.
        total_s, useful_s, share, lost_s: the account of its time; `lost_s` by `LOSSES`.
        entered: when the slots of each launch entered the program, and at which version.
        deaths: time of each death, and who died.
        spans: stretches without progress: kind, begin, end.
        given_up: numbers of checksum ranks and of spares that were given up when hosts were lost.
        more: the statistics themselves.
    """

    job: str
    program: str
    status: int
    began: float
    began_monotonic_s: float | None
    slots: int
    checksums: int
    spares: int
    group_size: int
    total_s: float
    useful_s: float
    share: float
    lost_s: Mapping[str, float]
    entered: Sequence[tuple[float, int]]
    checkpoints: Sequence[Taken]
    deaths: Sequence[tuple[float, str]]
    recoveries: Sequence[Recovered]
    reseats: Sequence[tuple[float, float, int]]
    given_up: Sequence[tuple[float, int, int]]
    degraded_s: float
    more: Mapping[str, Any]

    @property
    def coordinated(self) -> Sequence[Taken]:
        return [taken for taken in self.checkpoints if taken.kind == "coordinated"]

    @property
    def groups(self) -> int:
        return max(1, -(-self.slots // self.group_size))

    @property
    def strength(self) -> int:
        return self.checksums // self.groups

    @property
    def spans(self) -> Sequence[tuple[str, float, float]]:
        found = [("recoveries", r.died_at_s, r.at_s) for r in self.recoveries]
        for r in self.recoveries:
            if r.kind in GOES_BACK and (since := self.taken_at(r)) is not None:
                found.append(("again", since, r.died_at_s))
        if self.entered:
            found.append(("starting", 0.0, self.entered[0][0]))
        return [span for span in found if span[1] < span[2]]

    def taken_at(self, recovery: Recovered) -> float | None:
        """Return when the checkpoint was taken to which a recovery went back; None if it is not
        known."""
        at = [taken.at_s for taken in self.coordinated
              if taken.version == recovery.version and taken.at_s <= recovery.at_s]
        if at:
            return at[-1]
        return next((at_s for at_s, version in self.entered if version == recovery.version), None)


def read(name: str) -> Run:
    """Read the statistics of a run.

    Raises:
        ValueError: the file is missing or is something else.
    """
    try:
        content = json.loads(read_bytes(name, MOST_BYTES))
    except FileNotFoundError:
        raise ValueError(f"no statistics {name}; {REMEDY}") from None
    except OSError as error:
        raise ValueError(f"cannot read the statistics {name}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{name}: no JSON; {REMEDY}") from None
    try:
        return run_of(content)
    except KeyError as error:
        raise ValueError(f"{name}: these are no statistics of a run: {error.args[0]} lacks; "
                         f"{REMEDY}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: these are no statistics of a run: {error}; {REMEDY}") from None


def run_of(stats: Any) -> Run:
    """Make a run from statistics; KeyError, TypeError or ValueError if they are invalid."""
    if not isinstance(stats, dict):
        raise TypeError("they are no object")
    account = field(stats, "effective", dict)
    clock = stats.get("began_monotonic_s")
    return Run(
        job=str(stats.get("job", "")), program=" ".join(map(str, stats.get("program", ()))),
        status=field(stats, "exit", int), began=number(stats, "began"),
        began_monotonic_s=None if clock is None else number(stats, "began_monotonic_s"),
        slots=count(stats, "slots"), checksums=count(stats, "checksums"),
        spares=field(stats, "spares", int), group_size=count(stats, "group_size"),
        total_s=number(account, "total_s"), useful_s=number(account, "useful_s"),
        share=number(account, "share"),
        lost_s={kind: number(account, f"{kind}_s") for kind in LOSSES},
        entered=[(number(each, "at_s"), field(each, "version", int))
                 for each in entries(stats, "entered")],
        checkpoints=[Taken(
            number(each, "at_s"), field(each, "version", int), field(each, "kind", str),
            number(each, "seconds"), field(each, "bytes", int), field(each, "dirty_bytes", int),
            field(each, "step", int)) for each in entries(stats, "checkpoints")],
        deaths=[(number(each, "at_s"), who(each)) for each in entries(stats, "failures")],
        recoveries=[Recovered(
            number(each, "at_s"), field(each, "kind", str), field(each, "slots", list),
            field(each, "version", int), number(each, "seconds"),
            {phase: number(field(each, "phases", dict), phase) for phase in PHASES},
            field(each, "reason", str)) for each in entries(stats, "recoveries")],
        reseats=[(number(each, "at_s"), number(each, "seconds"), field(each, "checksum", int))
                 for each in entries(stats, "reseats")],
        given_up=[(number(each, "at_s"), lacking(each, "checksums"), lacking(each, "spares"))
                  for each in (entries(stats, "degraded") if "degraded" in stats else ())],
        degraded_s=number(stats, "degraded_seconds"), more=stats,
    )


def lacking(fewer: dict[str, Any], what: str) -> int:
    """Return how many processes of a role a launch has less than the one before."""
    return int(field(fewer, f"{what}_before", int) - field(fewer, what, int))


def who(death: dict[str, Any]) -> str:
    """Name the process that died."""
    role = next((role for role in ("slot", "checksum", "spare") if role in death), "process")
    host = f" on {death['host']}" if "host" in death else ""
    at = "" if death.get("place", "unknown") == "unknown" else f", at {death['place']}"
    return f"{role} {death.get(role, '')}{host}{at}"


def field(of: dict[str, Any], name: str, kind: type[T]) -> T:
    """Return a field of a kind; KeyError if it is missing, TypeError if it is of another kind."""
    value = of[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} is {str(value)[:40]!r}")
    return value


def number(of: dict[str, Any], name: str) -> float:
    value = of[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise TypeError(f"{name} is {str(value)[:40]!r}")
    return float(value)


def count(of: dict[str, Any], name: str) -> int:
    value = field(of, name, int)
    if value < 1:
        raise ValueError(f"{name} is {value}")
    return value


def entries(of: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = field(of, name, list)
    if not all(isinstance(each, dict) for each in found):
        raise TypeError(f"{name} is no list of objects")
    return found
