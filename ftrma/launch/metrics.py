"""Writes a job's status for Prometheus: ``--metrics FILE``.

The file is in Prometheus's text format, for the textfile collector of node_exporter. It is replaced
as a whole every `LOOK_EACH_S` seconds, or less often if a look at the job takes long, so that
looking takes at most half a percent of one processor. At the job's end it is written once more and
stays.

`METRICS` is the table of all metrics; ``ftrma/docs/looking.md`` has their names.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..fabric import story
from ..fabric.story import Event
from ..host import outfile
from ..host.errors import FtrmaError
from ..host.helper import Helper
from . import jobstatus
from .jobstatus import JobStatus

LOOK_EACH_S = 5.0  # time between two writes; collectors look every 15 s or so
SHARE = 200  # the pause is at least so many times as long as the look before it
STATES = ("starting", "running", "repairing", "replaying", "halting", "ending", "ended")
ENDED = STATES[-1]  # state of a job of which only the supervisor is left
Samples = Iterable[tuple[Mapping[str, str], float | None]]  # labels and value; None: not known


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: its name without "ftrma_". kind: "gauge" or "counter". help: its meaning.
        samples: takes the status of a job and the time at which it was read, in seconds since 1970.
    """

    name: str
    kind: str
    help: str
    samples: Callable[[JobStatus, float], Samples]


def _one(value: Callable[[JobStatus], float | None]) -> Callable[[JobStatus, float], Samples]:
    return lambda job, _: [({}, value(job))]


def _of_slots(value: Callable[[JobStatus], float | None]) -> Callable[[JobStatus, float], Samples]:
    """Return a value that is known only where the words of the slots are."""
    return lambda job, _: [({}, value(job) if job.each_slot else None)]


def _each(
    label: str, values: Callable[[JobStatus], Mapping[str, float]]
) -> Callable[[JobStatus, float], Samples]:
    return lambda job, _: [({label: key}, value) for key, value in sorted(values(job).items())]


def _spent(job: JobStatus) -> Mapping[str, float]:
    of = job.effective
    return {"useful": of.useful_s, "starting": of.starting_s, "checkpoints": of.checkpoints_s,
            "recoveries": of.recoveries_s, "again": of.again_s}


def _when(age_s: Callable[[JobStatus], float | None]) -> Callable[[JobStatus, float], Samples]:
    def samples(job: JobStatus, now: float) -> Samples:
        age = age_s(job)
        return [({}, None if age is None else now - age)]

    return samples


METRICS = (
    Metric("info", "gauge", "The job; always 1.",
           lambda job, _: [({"program": " ".join(job.program)[:200]}, 1)]),
    Metric("state", "gauge", "1 for the state that the job is in, 0 for the others.",
           lambda job, _: [({"state": state}, int(state == job.state)) for state in STATES]),
    Metric("start_time_seconds", "gauge", "When the job began, since 1970.",
           _one(lambda job: job.began)),
    Metric("update_time_seconds", "gauge", "When this was written, since 1970.",
           lambda _, now: [({}, now)]),
    Metric("slots", "gauge", "Slots by what they do.",
           _each("doing", lambda job: Counter(slot.state for slot in job.each_slot))),
    Metric("spares_left", "gauge", "Living processes without a role.",
           _of_slots(lambda job: job.spares_left)),
    Metric("degraded_groups", "gauge", "Groups that lack redundancy.",
           _of_slots(lambda job: len(job.degraded))),
    Metric("given_up", "gauge", "Checksum ranks and spares given up, as hosts were lost.",
           _each("role", lambda job: {"checksum": job.checksums_given_up,
                                      "spare": job.spares_given_up})),
    Metric("step", "gauge", "Safepoints that all slots have passed.",
           _of_slots(lambda job: job.step)),
    Metric("steps_per_second", "gauge", "Rate since the last checkpoint or recovery.",
           _one(lambda job: job.steps_per_s)),
    Metric("checkpoint_version", "gauge", "Newest checkpoint; 0: the program's start.",
           _one(lambda job: job.version)),
    Metric("checkpoint_time_seconds", "gauge", "When that was taken, since 1970.",
           _when(lambda job: job.checkpoint_age_s)),
    Metric("files_version", "gauge", "Newest checkpoint in files; 0: none.",
           _one(lambda job: job.spilled)),
    Metric("files_time_seconds", "gauge", "When that was taken, since 1970.",
           _when(lambda job: job.spill_age_s)),
    Metric("protected_bytes", "gauge", "Bytes that the newest checkpoint protects.",
           _one(lambda job: job.protected_bytes)),
    Metric("checkpoints_total", "counter", "Checkpoints by kind.",
           _each("kind", lambda job: job.checkpoints)),
    Metric("deaths_total", "counter", "Processes that died, by role.",
           _each("role", lambda job: job.deaths)),
    Metric("recoveries_total", "counter", "Recoveries by kind.",
           _each("kind", lambda job: job.recoveries)),
    Metric("stalls_total", "counter", "Times that slots hung, with --stall.",
           _one(lambda job: job.stalls)),
    Metric("launches_total", "counter", "Launches whose slots entered the program.",
           _one(lambda job: job.launches)),
    Metric("time_seconds", "gauge", "Time of the job by what it went to; the sum is its age.",
           _each("kind", _spent)),
    Metric("effective_ratio", "gauge", "Effective time: useful over total.",
           _one(lambda job: job.effective.share)),
    Metric("log_used_bytes", "gauge", "Memory of access logs, the most of any slot.",
           _of_slots(lambda job: max((slot.log_bytes or 0 for slot in job.each_slot), default=0))),
    Metric("log_budget_bytes", "gauge", "Memory that each slot's access logs may use.",
           _one(lambda job: job.log_budget_bytes)),
)


@contextlib.contextmanager
def written(directory: Path, name: str) -> Iterator[None]:
    """Write the metrics of a job again and again during the block, and once at its end.

    Args:
        directory: of the job.
        name: name of the file; if empty, nothing is written.
    """
    if not name:
        yield
        return
    over = threading.Event()
    writer = Helper(_write, directory, name, over)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def _write(directory: Path, name: str, over: threading.Event) -> None:
    events: list[Event] = []
    read_bytes, pause_s, last, told = 0, 0.0, False, False
    while not last:
        last = over.wait(pause_s)
        began = time.monotonic()
        more, read_bytes = story.read_on(directory, read_bytes)
        events += more
        now = time.time()
        try:
            status = jobstatus.look(directory, events, now)
            outfile.write(name, text(replace(status, state=ENDED) if last else status, now))
        except (FtrmaError, FileNotFoundError):  # between two launches
            pass
        except OSError as error:
            if not told:
                outfile.tell(f"warning: cannot write --metrics {name}: {outfile.why(error)}")
            told = True
        pause_s = max(LOOK_EACH_S, SHARE * (time.monotonic() - began))


def text(job: JobStatus, now: float) -> Iterator[str]:
    """Yield the lines of the file.

    Args:
        now: when the status was read, seconds since 1970.
    """
    for metric in METRICS:
        lines = [f"ftrma_{metric.name}{labelled({'job': job.job, **labels})} {value!r}\n"
                 for labels, value in metric.samples(job, now) if value is not None]
        if lines:
            yield f"# HELP ftrma_{metric.name} {metric.help}\n"
            yield f"# TYPE ftrma_{metric.name} {metric.kind}\n"
            yield from lines


def labelled(labels: Mapping[str, str]) -> str:
    """Return labels in Prometheus's format; backslash, quote and newline are escaped."""
    inside = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def escaped(value: str) -> str:
    value = value.encode(errors="replace").decode()  # a file name may have bytes that are no text
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
