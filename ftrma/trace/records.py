"""The trace of a run as files: binary records of the processes, and one timeline for users.

While a job runs, the data plane appends one record of fixed size per event to the file
``trace-<proc>`` of each process (over several nodes the supervisor appends the records that are
sent to it). An event is an access, a synchronization, a checkpoint, or an access applied from a
log. This is cheap on the access path, and a record in the file outlives its process. After the job
`collect` makes one JSON file from all records, in the trace event format that Chrome's and
Perfetto's viewers open: with a row per slot, and a line in it per process that held the slot. Each
event has all fields of its record, so that `read` returns exactly these records, and `check` judges
the run from that file alone.

Conventions of the records:

* ``entry`` is the number of the attempt: a rollback or relaunch begins a new attempt, a causal
  recovery does not. Events of a slot are numbered from 1 in program order, from the beginning of
  the attempt.
* ``seq`` numbers the accesses that change a part, from 1; others have 0. For a checkpoint it is the
  last number that was taken, so the checkpoint contains exactly the accesses with no larger number.
* ``clock`` of an access with a ``seq`` is the target's clock, as read before the ``seq`` was taken.
  For a Checkpoint it is the slot's own clock: the number of events of the attempt that have begun,
  without puts and gets.
* Mode is replay up to the horizon, and prologue before the place of the checkpoint.
* The two values are old and new value of an atomic of at most 8 bytes; when a Put to another node
  was known to be done, and 0; 1 and 0 for Lock if it is exclusive, for Flush and Flush_all if they
  are not local, for Wait if it has found all; source slot and its event for Apply; version and
  horizon for Replay; the version for Checkpoint, Commit and Rollback, and 1 for Checkpoint if the
  slot waited for no other, which then has no windows.
* Collective is one exchange of all members of a communicator: ``at`` is the communicator, 0 for
  ftrma's own barrier of all slots, ``seq`` the number of the exchange there. Its values are 0: all
  learn from all; 1 and a slot: all from that one; 2 and a slot: that one from all.
* Made says that a window was made; its values are 1 and 0 if its part began as zeros.
* Peer names a slot, the target, of the group of the Post or Start with that event. Request says
  that the access with that event has a request, whose completion is not recorded. Message stands
  for all calls between two events that the trace does not follow, such as messages; its first value
  is their number.
* Demand is a checkpoint that a slot takes alone: a record for each of its windows and each other
  slot, the target, or one with neither. Its values are its number, from 1 in an attempt, and the
  last event of that slot that was complete before the copying began; ``seq`` is the number of
  accesses to the window before that; event and clock are the slot's own.
* A put to another node gets its number there; Ack has the number and the clock, with the put's
  event. `collect` puts both into the put's record. A put that was never acknowledged has neither.
* A process that replays a slot writes Replay first, and Recovery when the slot is live. In Replay
  ``at`` is the number of the Demand that it starts from, 0 if it starts from the version.

* Span, Spanned and Mark are a framework's own (`spans`). They are on the timeline, but are no
  records of the run: `read` leaves them out, and nothing is judged by them.

Invariant: `read` returns the records that `document` was given, ordered by their begin.
Section 2.4 of Besta & Hoefler defines what a trace is; eqs. (1) to (3) name what an action carries.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ..host.values import read_bytes
from ..native.constants import FLAGS, MAX_PROCS, WHAT, fields
from ..native.constants import number as constant


class What(IntEnum):
    """Kinds of records; calls are spelled as in MPI."""

    Put = WHAT["PUT"]
    Get = WHAT["GET"]
    Accumulate = WHAT["ACCUMULATE"]
    Get_accumulate = WHAT["GET_ACCUMULATE"]
    Fetch_and_op = WHAT["FETCH_AND_OP"]
    Compare_and_swap = WHAT["COMPARE_AND_SWAP"]
    Fence = WHAT["FENCE"]
    Lock = WHAT["LOCK"]
    Unlock = WHAT["UNLOCK"]
    Lock_all = WHAT["LOCK_ALL"]
    Unlock_all = WHAT["UNLOCK_ALL"]
    Flush = WHAT["FLUSH"]
    Flush_all = WHAT["FLUSH_ALL"]
    Sync = WHAT["SYNC"]
    Post = WHAT["POST"]
    Start = WHAT["START"]
    Complete = WHAT["COMPLETE"]
    Wait = WHAT["WAIT"]
    Probe = WHAT["PROBE"]
    Collective = WHAT["COLLECTIVE"]
    Window = WHAT["WINDOW"]
    Free = WHAT["FREE"]
    Safepoint = WHAT["SAFEPOINT"]
    Checkpoint = WHAT["CHECKPOINT"]
    Commit = WHAT["COMMIT"]
    Apply = WHAT["APPLY"]
    Recovery = WHAT["RECOVERY"]
    Rollback = WHAT["ROLLBACK"]
    End = WHAT["END"]
    Demand = WHAT["DEMAND"]
    Replay = WHAT["REPLAY"]
    Ack = WHAT["ACK"]
    Made = WHAT["MADE"]
    Peer = WHAT["PEER"]
    Request = WHAT["REQUEST"]
    Message = WHAT["MESSAGE"]
    Span = WHAT["SPAN"]
    Spanned = WHAT["SPANNED"]
    Mark = WHAT["MARK"]


def flagged(flag: str) -> tuple[What, ...]:
    """Return the kinds that have a flag of ``csrc/shared.h``."""
    bit = constant(flag)
    return tuple(what for what in What if FLAGS[what.name.upper()] & bit)


ACCESSES = flagged("ACCESS")
OWN_EVENTS = flagged("EVENT")  # the program does these; all others are done for it
TICKING = flagged("TICKS")
ATOMICS = flagged("FETCHES")
ATOMIC_BYTES = 8  # larger atomics have no values in their records
COMBINING = flagged("COMBINES")
WRITING = flagged("WRITES")
INSTANTS = (What.Commit, What.Replay, What.Recovery, What.Rollback, What.End, What.Made, What.Peer,
            What.Request)
TOLD = (What.Span, What.Spanned, What.Mark)  # kinds that a framework writes, see `spans`

MODES = ("live", "replay", "prologue")
LIVE, REPLAY, PROLOGUE = (constant(name.upper()) for name in MODES)

CLOCK_MARK = "@"  # in a file's name, in front of the name of its records' clock
RECORD = np.dtype(fields("ftrma_trace_record"))


class Record(NamedTuple):
    """One record as Python numbers; the fields of `RECORD` in their order."""

    begin_ns: int
    end_ns: int
    what: int
    mode: int
    slot: int
    proc: int
    entry: int
    event: int
    window: int
    target: int
    at: int
    bytes: int
    seq: int
    clock: int
    ec: int
    gc: int
    sc: int
    gnc: int
    value0: int
    value1: int
    spare: int = 0

    @property
    def name(self) -> str:
        return What(self.what).name

    @property
    def done_ns(self) -> int:
        """Return when it was known to be done; a Put to another node may return earlier."""
        return max(self.end_ns, self.value0 if self.what == What.Put else 0)


assert Record._fields == RECORD.names and {what.name.upper() for what in What} == set(WHAT)

Records = npt.NDArray[np.void]

FORMAT, VERSION = "ftrma trace", 3
MAX_SLOTS = MAX_PROCS
STORY_THREAD = MAX_SLOTS  # no process has this number
STORY = "story"  # category of the job's events
FRAMEWORK = "framework"  # category of a framework's own events
# Args of an event that are plain numbers, with their smallest and largest value.
NUMBERS = {name: (0, 2**64 - 1) for name in
           ("entry", "event", "at", "bytes", "seq", "clock", "ec", "gc", "sc", "gnc")}
REMEDY = "write it again with ftrma run --trace"


@dataclass(frozen=True)
class Trace:
    """A run as read from its file.

    Attributes:
        slots: number of slots of the program.
        began_ns: begin of the first record, on the job's clock.
        records: dtype `RECORD`, ordered by begin.
    """

    slots: int
    began_ns: int
    records: Records

    def rows(self, chosen: npt.NDArray[Any] | None = None) -> list[Record]:
        """Return all records, or those of a mask or of indices, as Python numbers."""
        picked = self.records if chosen is None else self.records[chosen]
        return [Record._make(row) for row in picked.tolist()]


# ---- writing --------------------------------------------------------------------------------


def document(
    records: Records, began_ns: int, slots: int, events: list[dict[str, Any]],
    told: Iterable[dict[str, Any]] = (),
) -> Iterator[str]:
    """Yield the text of the file: one event per line, so that other tools can search it.

    Args:
        events: the job's story.
        told: what frameworks have told, as events of the file (`spans.timeline`).
    """
    head = {"format": FORMAT, "version": VERSION, "slots": slots, "began_ns": began_ns}
    yield f'{{"otherData":{json.dumps(head)},"displayTimeUnit":"ns","traceEvents":[\n'
    lines = [*map(json.dumps, metadata(records, slots)),
             *(json.dumps(instant(event, began_ns, slots)) for event in events),
             *map(json.dumps, told)]
    yield ",\n".join(lines)
    for row in records.tolist():
        yield ",\n" + line(Record._make(row), began_ns, slots)
    yield "\n]}\n"


def line(r: Record, began_ns: int, slots: int) -> str:
    """Return one record as an event; formatted by hand, since there may be millions."""
    pid = r.slot if r.slot >= 0 else slots
    ts = microseconds(r.begin_ns - began_ns)
    if r.what in INSTANTS:
        phase = f'"i","s":"p","ts":{ts}'
    else:
        phase = f'"X","ts":{ts},"dur":{microseconds(max(r.end_ns - r.begin_ns, 0))}'
    return (
        f'{{"name":"{r.name}","cat":"{category(r.what)},{MODES[r.mode]}","ph":{phase},'
        f'"pid":{pid},"tid":{r.proc},"args":{{"mode":"{MODES[r.mode]}","entry":{r.entry},'
        f'"event":{r.event},"window":{r.window},"target":{r.target},"at":{r.at},'
        f'"bytes":{r.bytes},"seq":{r.seq},"clock":{r.clock},"ec":{r.ec},"gc":{r.gc},'
        f'"sc":{r.sc},"gnc":{r.gnc},"value":[{r.value0},{r.value1}]}}}}'
    )


def microseconds(ns: int) -> str:
    """Return the time exactly to the nanosecond; also as a double it is exact for the first hundred
    days of a job."""
    return f"{ns // 1000}.{ns % 1000:03}"


def category(what: int) -> str:
    if what in ACCESSES:
        return "access"
    followed = what in OWN_EVENTS or what in (What.Peer, What.Request, What.Message)
    return "synchronization" if followed else "protection"


def metadata(records: Records, slots: int) -> Iterator[dict[str, Any]]:
    """Yield the names of the rows: one for each slot, with the processes that held it, and last the
    job's."""
    for pid in range(slots + 1):
        name = f"slot {pid}" if pid < slots else "job"
        yield {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": name}}
        yield {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0,
               "args": {"sort_index": pid}}
    for slot, proc in np.unique(records[["slot", "proc"]]).tolist():
        yield {"name": "thread_name", "ph": "M", "pid": slot if slot >= 0 else slots, "tid": proc,
               "args": {"name": f"process {proc}"}}
    yield {"name": "thread_name", "ph": "M", "pid": slots, "tid": STORY_THREAD,
           "args": {"name": STORY}}


def instant(event: dict[str, Any], began_ns: int, slots: int) -> dict[str, Any]:
    """Return one event of the job's story, across all rows.

    The story has the time of day. Both clocks are compared now; if the machine's clock was set
    during the job, these times are wrong by that amount. Nothing is judged by them.
    """
    offset_ns = time.time_ns() - time.monotonic_ns()
    ts = (int(event["time"] * 1e9) - offset_ns - began_ns) / 1e3
    what = [str(event[k]) for k in ("event", "role", "index", "kind") if k in event]
    return {"name": " ".join(what), "cat": STORY, "ph": "i", "s": "g", "ts": max(ts, 0.0),
            "pid": slots, "tid": STORY_THREAD, "args": event}


# ---- reading --------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> Trace:
    """Read a file that `convert` has written.

    Raises:
        ValueError: the file is missing, truncated, of another kind or damaged; one line with what,
            where and the remedy.
    """
    content = parse(path)
    head = content.get("otherData") if isinstance(content, dict) else None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f"{path}: no trace of ftrma; {REMEDY}")
    if head.get("version") != VERSION:
        raise ValueError(
            f"{path}: a trace of format {head.get('version')!r}, but this ftrma reads {VERSION}; "
            "use the version of ftrma that wrote it"
        )
    for name, low, high in (("slots", 1, MAX_SLOTS), ("began_ns", 0, 2**63)):
        if not is_number(head.get(name), low, high):
            damaged(path, f"otherData has {name} {head.get(name)!r}")
    events = content.get("traceEvents")
    if not isinstance(events, list):
        damaged(path, "traceEvents is no list")
    rows = list(rows_of(path, events, head["slots"], head["began_ns"]))
    records = np.array(rows, RECORD)
    # A file may have been edited; records that begin at the same time keep the file's order.
    records = records[np.argsort(records["begin_ns"], kind="stable")]
    return Trace(head["slots"], head["began_ns"], records)


def parse(path: str | os.PathLike[str]) -> Any:
    try:
        text = read_bytes(os.fspath(path), most_bytes()).decode("utf-8")
    except FileNotFoundError:
        raise ValueError(f"no trace {path}; ftrma run --trace writes one") from None
    except OSError as error:
        raise ValueError(f"cannot read the trace {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is no text; {REMEDY}") from None
    except MemoryError:
        raise ValueError(f"{path}: the trace is too large for this machine's memory") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        unfinished = not text.rstrip().endswith("]}") or not text[error.pos :].strip()
        if unfinished or error.msg.startswith("Unterminated"):
            raise ValueError(f"{path}: truncated in line {error.lineno}; {REMEDY}") from None
        raise ValueError(
            f"{path}:{error.lineno}:{error.colno}: no JSON ({error.msg}); {REMEDY}"
        ) from None
    except MemoryError:
        raise ValueError(f"{path}: the trace is too large for this machine's memory") from None
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        raise ValueError(f"{path}: no trace of ftrma; {REMEDY}") from None


def most_bytes() -> int:
    """Return the size of the largest trace that is read: as objects it takes about ten times the
    memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10


def damaged(path: str | os.PathLike[str], problem: str) -> NoReturn:
    raise ValueError(f"{path}: {problem}; the file is damaged: {REMEDY}")


def is_number(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def rows_of(
    path: str | os.PathLike[str], events: Iterable[Any], slots: int, began_ns: int
) -> Iterator[Record]:
    for number, event in enumerate(events):
        try:
            row = row_of(event, slots, began_ns)
        except KeyError as error:
            damaged(path, f"event {number} of traceEvents lacks {error.args[0]}")
        except (TypeError, AttributeError):
            damaged(path, f"event {number} of traceEvents is nothing that ftrma writes")
        except ValueError as error:
            damaged(path, f"event {number} of traceEvents: {error}")
        if row is not None:
            yield row


def row_of(event: dict[str, Any], slots: int, began_ns: int) -> Record | None:
    """Return the record of one event; None if it is a name, or belongs to the story or a
    framework."""
    if event["ph"] == "M" or event["cat"].partition(",")[0] in (STORY, FRAMEWORK):
        return None
    args = event["args"]
    for name, (low, high) in NUMBERS.items():
        if not is_number(args[name], low, high):
            raise ValueError(f"{name} {args[name]!r} is no whole number from {low} to {high}")
    for name, value, high in (
        ("pid", event["pid"], slots), ("tid", event["tid"], MAX_SLOTS - 1),
        ("window", args["window"], 2**31 - 1), ("target", args["target"], slots - 1),
    ):
        if not is_number(value, 0 if name in ("pid", "tid") else -1, high):
            raise ValueError(f"{name} {value!r} in a trace of {slots} slots")
    values = args["value"]
    if len(values) != 2 or not all(is_number(v, 0, 2**64 - 1) for v in values):
        raise ValueError(f"value {values!r} is no pair of whole numbers")
    if event["name"] not in What.__members__ or args["mode"] not in MODES:
        raise ValueError(f"no event is called {event['name']!r} with mode {args['mode']!r}")
    begin_ns = began_ns + nanoseconds(event["ts"])
    return Record(
        begin_ns, begin_ns + nanoseconds(event.get("dur", 0)), What[event["name"]],
        MODES.index(args["mode"]), event["pid"] if event["pid"] < slots else -1, event["tid"],
        args["entry"], args["event"], args["window"], args["target"], args["at"], args["bytes"],
        *(args[name] for name in ("seq", "clock", "ec", "gc", "sc", "gnc")), *values,
    )


def nanoseconds(ts: float) -> int:
    if type(ts) not in (int, float) or not math.isfinite(ts) or not 0 <= ts < 2**53:
        raise ValueError(f"time {ts!r} is no number of microseconds from 0")
    return round(ts * 1000)
