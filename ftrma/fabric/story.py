"""The job's story: what has happened, one event a line, in a file that outlives its processes.

It is there for statistics, for the timeline of ``--trace`` and for who looks back over launches
(`protocol.job_end.killed_repeatedly`, `launch.failover.past`). What is to be done after a failure
stands in the control file (`plans`).

An event is a line of JSON: ``event``, the name of its class in small letters, ``time`` and its
fields; those that have their default are left out. A line is written by one call, so that writers
cannot mix.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time as clock
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that has happened in a job.

    Attributes:
        time: of the day when it was told, seconds since 1970.
    """

    time: float = field(default_factory=clock.time, kw_only=True, compare=False)


@dataclass(frozen=True)
class Failure(Event):
    """A process died.

    Attributes:
        role: that it had: "slot", "checksum" or "spare"; index: its number in that.
        pid: of the process.
        place: the --kill rule's place that struck it, or "unknown".
        host: its host's name, in a job over several nodes.
        at: of a slot, how far it had come: the committed version and the events behind that (-1:
            it is not known; less: synchronizations); None if nobody could tell.
        waited: of a slot, that it waited for others.
    """

    role: str
    index: int
    pid: int
    place: str
    host: str = ""
    at: tuple[int, int] | None = None
    waited: bool = False


@dataclass(frozen=True)
class Checkpoint(Event):
    """A checkpoint is there.

    Attributes:
        version: committed by it; of a demand checkpoint: committed at that time.
        kind: "coordinated" or "demand".
        seconds: for which it held up the program, of all slots the longest.
        bytes: that are protected, of all slots in it; dirty_bytes: those that had changed.
        slot: that took a demand checkpoint; None: all took it together.
    """

    version: int
    kind: str
    seconds: float
    bytes: int
    dirty_bytes: int
    slot: int | None = None


@dataclass(frozen=True)
class Phases:
    """The time from a death to the end of the recovery, by what it went into; seconds each.

    Attributes:
        detect: until all processes knew; repair: until all were in touch again, without the next.
        restore: computing what was lost; replay: executing a lost slot again.
    """

    detect: float
    repair: float
    restore: float
    replay: float = 0.0


@dataclass(frozen=True)
class Recovery(Event):
    """The job goes on after a failure.

    Attributes:
        kind: "causal", "rollback", "reentry" or "relaunch".
        slots: that were lost.
        version: of the checkpoint gone back to; 0 is the start of the program.
        seconds: from the death to the end of the recovery; phases: what they went into.
        reason: why it was not "causal", in words.
        began_s: when the death happened or was noticed, on the machine's monotonic clock.
        demand: number of the demand checkpoint that a replay started from; 0: from the version.
    """

    kind: str
    slots: tuple[int, ...]
    version: int
    seconds: float
    phases: Phases
    reason: str
    began_s: float
    demand: int = 0


@dataclass(frozen=True)
class Reseat(Event):
    """A spare took a dead checksum rank's seat while the slots went on.

    Attributes:
        checksum: the seat.
        seconds: that it took to have its parity again.
        spares_left: without a role from then on.
    """

    checksum: int
    seconds: float
    spares_left: int


@dataclass(frozen=True)
class Relaunch(Event):
    """The supervisor launches the job again.

    Attributes:
        reason: in words.
        slots: on one node those whose vaults are lost, over several those that died.
        version: on one node, of the checkpoint that it goes on from.
        noticed_ns: on one node, when it was noticed, on the machine's monotonic clock.
    """

    reason: str
    slots: tuple[int, ...]
    version: int = 0
    noticed_ns: int = 0


@dataclass(frozen=True)
class Seats(Event):
    """A launch over several nodes has given out its roles.

    Attributes:
        slot_group: group of each slot.
    """

    slot_group: tuple[int, ...]


@dataclass(frozen=True)
class Scrub(Event):
    """Damaged blocks were found in a vault and computed anew.

    Attributes:
        role: "slot" or "checksum", whose vault it is; index: its number in that.
        blocks: how many.
    """

    role: str
    index: int
    blocks: int


@dataclass(frozen=True)
class Restored(Event):
    """A role's vault was filled from others after a relaunch over several nodes.

    Attributes:
        role: "slot" or "checksum"; index: its number in that.
        seconds: that it took.
    """

    role: str
    index: int
    seconds: float


@dataclass(frozen=True)
class Agentdeath(Event):
    """The agent of a node died, and another one has taken its place.

    Attributes:
        host: the node's name.
    """

    host: str


@dataclass(frozen=True)
class Note(Event):
    """Something that a framework tells of itself.

    Attributes:
        slot: that tells it.
        entries: name and value of each, as JSON has them.
    """

    slot: int
    entries: dict[str, Any]


KINDS: dict[str, type[Event]] = {
    kind.__name__.lower(): kind
    for kind in (Failure, Checkpoint, Recovery, Reseat, Relaunch, Seats, Scrub, Restored,
                 Agentdeath, Note)
}


def emit(directory: Path, event: Event) -> None:
    """Append an event to the story of the job in this directory.

    Where there is no memory for it, it is lost.
    """
    # The first newline ends a line that was cut off where memory was full.
    line = "\n" + json.dumps(plain(event)) + "\n"
    fd = os.open(directory / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            os.write(fd, line.encode())
    finally:
        os.close(fd)


def read(directory: Path) -> list[Event]:
    """All events so far, in their order, but for what was cut off or is of an unknown kind."""
    try:
        lines = (directory / "events").read_text().splitlines()
    except FileNotFoundError:
        return []
    story = []
    for line in lines:
        with contextlib.suppress(ValueError):  # cut off where memory was full
            event = parse(json.loads(line))
            story += [event] if event else []
    return story


def plain(event: Event) -> dict[str, Any]:
    """An event as JSON has it: ``event``, ``time``, and what is not at its default."""
    values = dataclasses.asdict(event)
    told = {f.name: values[f.name] for f in dataclasses.fields(event)
            if f.name == "time" or values[f.name] != f.default}
    return {"event": type(event).__name__.lower(), **told}


def parse(line: Any) -> Event | None:
    """The opposite of `plain`; None of what is no event of a known kind with all its fields."""
    kind = KINDS.get(str(line.get("event"))) if isinstance(line, Mapping) else None
    if kind is None:
        return None
    names = {f.name for f in dataclasses.fields(kind)}
    try:
        return kind(**{name: _shaped(name, value) for name, value in line.items() if name in names})
    except TypeError:
        return None


def _shaped(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return Phases(**value) if name == "phases" else value
