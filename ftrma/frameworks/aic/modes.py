"""The modes of snapshots, of which users choose one, and when the next snapshot is due.

| mode | a slot's state is taken | meanwhile |
|---|---|---|
| `VirtualSnapshot` | when all channels to the slot are empty | it computes, and appends nothing |
| `ChandyLamport` | at once; records that are under way are logged | it computes and appends |
| `Synchronous` | when all channels to all slots are empty | it stops |
| `Hybrid` | as `VirtualSnapshot`; if a slot is late, as `ChandyLamport` | as with that mode |
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

DALY = "daly"


@dataclass(frozen=True)
class SnapshotMode:
    """A mode of snapshots, which says how often they are taken; its subclasses say how.

    Args:
        seconds: time from the beginning of a snapshot to that of the next one, > 0; "daly": as
            ``--interval`` says, by default Daly's interval from the cost of snapshots and
            ``--mtbf``. However short the interval is, no snapshot is open in half of a run.
        updates: instead, the number of updates of all slots together, > 0, after which the next
            snapshot begins.

    Raises:
        ValueError: neither or both are given, or one is out of range.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """

    seconds: float | str | None = None
    updates: int | None = field(default=None, kw_only=True)
    name: ClassVar[str] = ""
    aggregate: ClassVar[bool] = True  # messages are combined while the slot appends none
    stops: ClassVar[bool] = False  # the slot does not compute while a snapshot is open
    patience_s: ClassVar[float] = math.inf  # after this time channels that are not empty are logged

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if (self.seconds is None) == (self.updates is None):
            raise ValueError(f"{kind}: give seconds=, or updates=, or \"daly\"")
        if isinstance(self.seconds, str):
            if self.seconds != DALY:
                raise ValueError(f"{kind}({self.seconds!r}): give seconds, or \"daly\"")
        elif self.seconds is not None and not (
                isinstance(self.seconds, numbers.Real) and 0 < self.seconds < math.inf):
            raise ValueError(f"{kind}(seconds={self.seconds!r}): give a finite number above 0")
        if self.updates is not None and not (
                isinstance(self.updates, numbers.Integral) and self.updates > 0):
            raise ValueError(f"{kind}(updates={self.updates!r}): give a whole number above 0")


@dataclass(frozen=True)
class VirtualSnapshot(SnapshotMode):
    """Take each slot's state at a moment of its own, so that no message is between the states.

    Args:
        seconds: see `SnapshotMode`.
        updates: see `SnapshotMode`.
        aggregate: combine the messages that a slot makes while it may not append them; False: keep
            them one by one (the paper's FAIC-D).

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    Source: section 3 of the paper.
    """

    aggregate: bool = field(default=True, kw_only=True)  # type: ignore[misc]
    name: ClassVar[str] = "virtual"


@dataclass(frozen=True)
class ChandyLamport(SnapshotMode):
    """Take each slot's state at once, and log the messages that are under way.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    Source: K. M. Chandy, L. Lamport, "Distributed Snapshots", ACM TOCS 1985.
    """

    name: ClassVar[str] = "chandy-lamport"
    patience_s: ClassVar[float] = -1.0


@dataclass(frozen=True)
class Synchronous(SnapshotMode):
    """Stop all slots, let their messages arrive, and take their states.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """

    name: ClassVar[str] = "synchronous"
    stops: ClassVar[bool] = True


@dataclass(frozen=True)
class Hybrid(SnapshotMode):
    """Begin as `VirtualSnapshot`; log the channels from slots that are late, and go on.

    Args:
        seconds: see `SnapshotMode`.
        updates: see `SnapshotMode`.
        aggregate: see `VirtualSnapshot`.
        patience_s: seconds for which a slot waits for late slots without appending messages.

    Raises:
        ValueError: as `SnapshotMode`, and if `patience_s` is negative or infinite.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """

    aggregate: bool = field(default=True, kw_only=True)  # type: ignore[misc]
    patience_s: float = field(default=0.1, kw_only=True)  # type: ignore[misc]
    name: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.patience_s < math.inf:
            raise ValueError(f"Hybrid(patience_s={self.patience_s!r}): give seconds, 0 or more")


MODES: dict[str, type[SnapshotMode]] = {
    mode.name: mode for mode in (VirtualSnapshot, ChandyLamport, Synchronous, Hybrid)}
SEPARATE = "faic-d"  # the paper's name of VirtualSnapshot(aggregate=False)


def make(text: str) -> SnapshotMode | None:
    """Read a mode as it is written on a command line.

    Args:
        text: a name of `MODES` or "faic-d", a colon, and seconds, "daly", or updates and a "u":
            "virtual:2", "hybrid:daly", "faic-d:20000u"; or "none".

    Raises:
        ValueError: there is no such mode, or its number cannot be read.
    """
    name, _, value = text.partition(":")
    if text == "none":
        return None
    if name not in (*MODES, SEPARATE) or not value:
        raise ValueError(f"{text!r}: give none, or one of {', '.join(MODES)}, {SEPARATE} with "
                         "seconds, such as virtual:2, or virtual:daly, or updates: virtual:20000u")
    try:
        options: dict[str, Any] = (
            {"seconds": DALY} if value == DALY else
            {"updates": int(value[:-1])} if value.endswith("u") else {"seconds": float(value)})
        if name == SEPARATE:
            return VirtualSnapshot(**options, aggregate=False)
        return MODES[name](**options)
    except ValueError:
        raise ValueError(f"{text!r}: {value!r} is neither seconds above 0, nor \"daly\", nor "
                         "updates such as 20000u") from None


class Schedule:
    """A clock that tells slot 0 when a snapshot is due.

    Args:
        mode: says how often snapshots are due.
        now_s: the time now, by the clock of `due`.
        by_interval: says whether a snapshot is due by ``--interval``, for "daly".
    """

    def __init__(self, mode: SnapshotMode, now_s: float, by_interval: Callable[[], bool]) -> None:
        self._mode, self._by_interval = mode, by_interval
        self._began_s, self._began_updates = now_s, 0.0

    def due(self, now_s: float, updates: float) -> bool:
        """Say whether a snapshot is due, after a number of updates of all slots."""
        if self._mode.updates is not None:
            return updates - self._began_updates >= self._mode.updates
        if self._mode.seconds == DALY:
            return self._by_interval()
        return now_s - self._began_s >= float(self._mode.seconds or 0.0)

    def begun(self, now_s: float, updates: float) -> None:
        """Note that a snapshot has begun."""
        self._began_s, self._began_updates = now_s, updates
