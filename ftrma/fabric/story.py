"""The job's story: its events, one a line, in a file that outlives the job's processes.

Statistics and the timeline of ``--trace`` are made from it, and two functions look back in it over
earlier launches (`protocol.job_end.killed_repeatedly`, `launch.failover.past`). It does not say
what is to be done after a failure: that is in the plan (`plans`).

An event is a line of JSON: ``event`` (the name of the event's class in small letters), ``time``,
and those fields of the event that differ from their defaults. Each line is written by one call, so
that the lines of several writers do not mix.

The classes are not frozen: each process of a job makes them as it starts, and Python takes twice as
long to make a frozen one (0.48 ms instead of 0.25).
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


@dataclass
class Event:
    """Something that has happened in a job.

    Attributes:
        time: when the event was written, in seconds since 1970.
    """

    time: float = field(default_factory=clock.time, kw_only=True, compare=False)


@dataclass
class Began(Event):
    """``ftrma run`` has begun, or has gone on with a job whose supervisor was killed."""


@dataclass
class Entered(Event):
    """The processes of a launch have come up, and the slots enter the program.

    Attributes:
        version: the checkpoint that the launch goes on from; 0: the program's start.
    """

    version: int = 0


@dataclass
class Failure(Event):
    """A process died.

    Attributes:
        role: role of the process: "slot", "checksum" or "spare"; index: number in that role.
        pid: number of the process on its host.
        place: place at which a rule of ``--kill`` struck, or "unknown".
        host: name of the process's host, in a job over several nodes.
        at: how far a slot had come: the committed version, and the number of events after it (-1:
            unknown; below -1: the negative of the number of synchronizations); None if it is not
            known.
        waited: the slot was waiting for others.
        step: how far the job had come, see `protocol.job_end.step_of`; None if it is not known.
        repair: the newest round of repair that had ended by then, in this launch.
    """

    role: str
    index: int
    pid: int
    place: str
    host: str = ""
    at: tuple[int, int] | None = None
    waited: bool = False
    step: int | None = None
    repair: int = 0


@dataclass
class Checkpoint(Event):
    """A checkpoint was taken.

    Attributes:
        version: the version that it committed; for a demand checkpoint, the version committed
            before.
        kind: "coordinated" or "demand".
        seconds: how long it held the program up, the longest time of all slots.
        bytes: protected bytes of all slots; dirty_bytes: those that had changed.
        slot: the slot that took a demand checkpoint; None: all slots took it together.
        step: safepoints that each slot had passed by then in this attempt; 0: not known.
    """

    version: int
    kind: str
    seconds: float
    bytes: int
    dirty_bytes: int
    slot: int | None = None
    step: int = 0


@dataclass
class Phases:
    """Parts of the time from a death to the end of the recovery, each in seconds.

    Attributes:
        detect: until all processes knew of the death.
        repair: until all were connected again, without `restore`.
        restore: for computing lost vaults.
        replay: for replaying a lost slot.
    """

    detect: float
    repair: float
    restore: float
    replay: float = 0.0


@dataclass
class Recovery(Event):
    """The job goes on after a failure.

    Attributes:
        kind: "causal", "rollback", "reentry" or "relaunch".
        slots: the slots that were lost.
        version: the checkpoint that the job goes on from; 0 is the start of the program.
        seconds: time from the death to the end of the recovery; phases: its parts.
        reason: why the recovery was not "causal", in words.
        began_s: when the death happened or was noticed, on the machine's monotonic clock.
        demand: number of the demand checkpoint that a replay started from; 0: it started from
            `version`.
    """

    kind: str
    slots: tuple[int, ...]
    version: int
    seconds: float
    phases: Phases
    reason: str
    began_s: float
    demand: int = 0


@dataclass
class Reseat(Event):
    """A spare took a dead checksum rank's seat while the slots went on.

    Attributes:
        checksum: number of the checksum rank.
        seconds: time until the spare had the parity.
        spares_left: number of living processes without a role after that.
    """

    checksum: int
    seconds: float
    spares_left: int


@dataclass
class Relaunch(Event):
    """The supervisor launches the job again.

    Attributes:
        reason: in words.
        slots: slots whose vaults are lost (on one node), or whose processes died (over several).
        version: on one node, the checkpoint that the job goes on from.
        noticed_ns: on one node, when the failure was noticed, on the machine's monotonic clock.
        step, repair: on one node, as in `Failure`.
    """

    reason: str
    slots: tuple[int, ...]
    version: int = 0
    noticed_ns: int = 0
    step: int | None = None
    repair: int = 0


@dataclass
class Degraded(Event):
    """The next launch has fewer checksum ranks or spares because hosts were lost.

    Attributes:
        checksums, spares: how many it has.
        checksums_before, spares_before: how many the launch before had.
        weakened: checksum ranks that each group has given up since the job began.
    """

    checksums: int
    spares: int
    checksums_before: int
    spares_before: int
    weakened: int


@dataclass
class Seats(Event):
    """A launch over several nodes has seated its roles.

    Attributes:
        slot_group: group of each slot.
    """

    slot_group: tuple[int, ...]


@dataclass
class Scrub(Event):
    """Damaged blocks were found in a vault and computed anew.

    Attributes:
        role: role of the vault, "slot" or "checksum"; index: number in that role.
        blocks: number of damaged blocks.
    """

    role: str
    index: int
    blocks: int


@dataclass
class Restored(Event):
    """A role's vault was filled from others after a relaunch over several nodes.

    Attributes:
        role: "slot" or "checksum"; index: number in that role.
        seconds: time until the vault was filled.
    """

    role: str
    index: int
    seconds: float


@dataclass
class Stall(Event):
    """The supervisor has noticed that slots hang.

    Attributes:
        kind: "stall": these slots stood still, and waited for nobody; "deadlock": they waited for
            each other; "circle": they made calls, and came to no safepoint; "checksum": these
            checksum ranks were stopped while slots waited for a checkpoint.
        slots: their numbers.
        seconds: how long they had stood still.
        places: lines that say where each slot was, and who waited for whom.
        action: "tell", "replace" or "halt".
        pids: of the processes that are to be replaced.
    """

    kind: str
    slots: tuple[int, ...]
    seconds: float
    places: tuple[str, ...] = ()
    action: str = "tell"
    pids: tuple[int, ...] = ()


@dataclass
class Refusal(Event):
    """The program has said that its state is wrong, so no checkpoint of it was taken.

    Attributes:
        step: safepoint, counted since the program's start.
        slots: the slots that have said so.
    """

    step: int
    slots: tuple[int, ...]


@dataclass
class Agentdeath(Event):
    """The agent of a node died, and another one has taken its place.

    Attributes:
        host: the node's name.
    """

    host: str


@dataclass
class Line(Event):
    """A process has printed a line for users, in a job with a log.

    Attributes:
        text: the line, without the speaker's name. who: the speaker, ftrma or a framework. role:
            the role of the process.
    """

    text: str
    who: str
    role: str


@dataclass
class Halt(Event):
    """The job was ended because somebody had asked for it.

    Attributes:
        reason: in words.
        version: the newest version from which the job can go on; 0: there is none.
        whole: the job ended behind that version, so that nothing is computed twice.
        seconds: time from the request to the end.
    """

    reason: str
    version: int
    whole: bool
    seconds: float


@dataclass
class Note(Event):
    """A framework's own event.

    Attributes:
        slot: the slot that noted the event.
        entries: their names and values, as JSON has them.
    """

    slot: int
    entries: dict[str, Any]


KINDS: dict[str, type[Event]] = {
    kind.__name__.lower(): kind
    for kind in (Began, Entered, Failure, Checkpoint, Recovery, Reseat, Relaunch, Degraded, Seats,
                 Scrub, Restored, Agentdeath, Halt, Line, Note, Stall, Refusal)
}

FIELDS = {kind: {f.name for f in dataclasses.fields(kind)} for kind in KINDS.values()}


def emit(directory: Path, event: Event) -> None:
    """Append an event to the story of the job in this directory.

    The event is lost if there is no memory for it.
    """
    # The first newline ends a line that was cut off because memory was full.
    line = "\n" + json.dumps(plain(event)) + "\n"
    fd = os.open(directory / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            os.write(fd, line.encode())
    finally:
        os.close(fd)


def read(directory: Path) -> list[Event]:
    """Read all events so far, in order, without lines that are cut off or of an unknown kind."""
    return read_on(directory, 0)[0]


def read_on(directory: Path, begin: int) -> tuple[list[Event], int]:
    """Read the events from a given place in the story on; see `read`.

    Args:
        begin: number of bytes of the story that have been read before.

    Returns:
        The events, and the number of bytes read so far. A line that has no end yet is left.
    """
    try:
        with (directory / "events").open("rb") as file:
            file.seek(begin)
            text = file.read()
    except FileNotFoundError:
        return [], begin
    text = text[: text.rfind(b"\n") + 1]
    story = []
    for line in filter(None, text.splitlines()):
        with contextlib.suppress(ValueError):  # the line was cut off because memory was full
            event = parse(json.loads(line))
            story += [event] if event else []
    return story, begin + len(text)


def size_bytes(directory: Path) -> int:
    """Return the size of the story so far."""
    with contextlib.suppress(FileNotFoundError):
        return (directory / "events").stat().st_size
    return 0


def plain(event: Event) -> dict[str, Any]:
    """Make an event a dictionary for JSON; the docstring of this module describes the format."""
    values = dataclasses.asdict(event)
    told = {f.name: values[f.name] for f in dataclasses.fields(event)
            if f.name == "time" or values[f.name] != f.default}
    return {"event": type(event).__name__.lower(), **told}


def parse(line: Any) -> Event | None:
    """Make an event from a dictionary of `plain`; None if its kind is unknown or a field is
    missing."""
    kind = KINDS.get(str(line.get("event"))) if isinstance(line, Mapping) else None
    if kind is None:
        return None
    try:
        return kind(**{name: _shaped(name, value) for name, value in line.items()
                       if name in FIELDS[kind]})
    except TypeError:
        return None


def _shaped(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return Phases(**value) if name == "phases" else value
