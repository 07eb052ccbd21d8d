"""Makes the JSON object of ``--stats`` from a job's story."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from ..fabric.story import (
    Agentdeath,
    Checkpoint,
    Degraded,
    Entered,
    Event,
    Failure,
    Halt,
    Note,
    Recovery,
    Refusal,
    Reseat,
    Stall,
)
from ..machine.topology import Layout
from .effectivetime import began, effective_time
from .stepcount import StepCount

EventT = TypeVar("EventT", bound=Event)


def summary(
    events: Sequence[Event], layout: Layout, status: int, ended: float | None = None
) -> dict[str, Any]:
    """Return the statistics of a job, computed from its events.

    Args:
        events: in the order in which they were written.
        layout: roles at the start.
        status: exit status of the program.
        ended: when the job ended, seconds since 1970; None: now.

    Returns:
        A dictionary with these keys. Each event has ``at_s``: when it was reported, or was over, in
        seconds since the job began.

        * ``slots``, ``checksums``, ``spares``, ``group_size``, ``exit``.
        * ``began``: when the job began, seconds since 1970; ``began_monotonic_s``: on the machine's
          monotonic clock, which traces use.
        * ``effective``: the account of its time, see `effectivetime.EffectiveTime`.
        * ``entered``: when the slots of each launch entered the program, and from which version.
        * ``checkpoints``: version, kind, seconds (the longest hold-up of a slot), bytes and
          dirty_bytes (of all slots), and step, the safepoints passed until then. A checkpoint of
          kind "demand" is of one ``slot`` alone; its version is the one committed then.
        * ``failures``: the role that died, the place, and the host in a job over several nodes.
        * ``agents``: in such a job, the hosts of agents that died and were replaced.
        * ``recoveries``: kind, slots, version, seconds, phases in seconds, reason; began_s, when
          the death happened or was noticed, on the machine's monotonic clock; demand, the number
          of the demand checkpoint that a replay started from (0: from the version).
        * ``reseats``: the checksum ranks that were replaced, with seconds.
        * ``degraded``: launches with fewer checksum ranks or spares, as hosts were lost: checksums
          and spares, checksums_before and spares_before.
        * ``degraded_seconds``: the time for which some group lacked redundancy.
        * ``halt``, if the job was ended because somebody had asked for it: reason, the version that
          is left, whole (the job ended behind that version), seconds from the request to the end.
        * ``notes``: notes of a framework, each with its slot.
        * ``stalls``: with ``--stall``: kind, slots, seconds, places (in words) and action.
        * ``refusals``: with ``--validate``: safepoints of which no checkpoint was taken, and the
          slots whose state was wrong.

        `supervisor.run` adds ``job`` and ``program``; ``log``: for each slot the budget of its
        access logs and the largest part of it that was used, in bytes; and ``pace`` and ``slow``,
        see `pace.summary`.
    """
    recoveries, reseats = _of_kind(events, Recovery), _of_kind(events, Reseat)
    degraded = sum(e.seconds for e in recoveries) + sum(e.seconds for e in reseats)
    ended = time.time() if ended is None else ended
    since, steps = began(events, ended), StepCount(events).at

    def timed(event: Event, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "at_s": max(0.0, event.time - since)}

    return {
        "slots": layout.slots,
        "checksums": layout.checksums,
        "spares": layout.spares,
        "group_size": layout.group_size,
        "exit": status,
        "began": since,
        "began_monotonic_s": time.monotonic() - (time.time() - since),
        "effective": effective_time(events, layout.slots, ended).plain(),
        "entered": [timed(e, {"version": e.version}) for e in _of_kind(events, Entered)],
        "checkpoints": [timed(e, _checkpoint(e, steps)) for e in _of_kind(events, Checkpoint)],
        "failures": [timed(e, _failure(e)) for e in _of_kind(events, Failure)],
        "agents": [timed(e, {"host": e.host}) for e in _of_kind(events, Agentdeath)],
        "recoveries": [timed(e, _recovery(e)) for e in recoveries],
        "reseats": [timed(e, {"checksum": e.checksum, "seconds": e.seconds}) for e in reseats],
        "degraded": [timed(e, _degraded(e)) for e in _of_kind(events, Degraded)],
        "degraded_seconds": degraded,
        **_halt(events),
        "notes": [{"slot": e.slot, **e.entries} for e in _of_kind(events, Note)],
        "stalls": [timed(e, _stall(e)) for e in _of_kind(events, Stall)],
        "refusals": [timed(e, {"step": e.step, "slots": list(e.slots)})
                     for e in _of_kind(events, Refusal)],
    }


def _of_kind(events: Sequence[Event], kind: type[EventT]) -> list[EventT]:
    return [event for event in events if isinstance(event, kind)]


def _halt(events: Sequence[Event]) -> dict[str, Any]:
    for e in reversed(_of_kind(events, Halt)):
        return {"halt": {"reason": e.reason, "version": e.version, "whole": e.whole,
                         "seconds": e.seconds}}
    return {}


def _checkpoint(event: Checkpoint, steps: Mapping[int, int]) -> dict[str, Any]:
    alone = {} if event.slot is None else {"slot": event.slot}
    return {
        "version": event.version, "kind": event.kind, **alone, "seconds": event.seconds,
        "bytes": event.bytes, "dirty_bytes": event.dirty_bytes,
        "step": steps.get(event.version, 0),
    }


def _failure(event: Failure) -> dict[str, Any]:
    host = {"host": event.host} if event.host else {}
    return {event.role: event.index, "place": event.place, "pid": event.pid, **host}


def _stall(event: Stall) -> dict[str, Any]:
    return {"kind": event.kind, "slots": list(event.slots), "seconds": event.seconds,
            "places": list(event.places), "action": event.action}


def _degraded(event: Degraded) -> dict[str, Any]:
    return {"checksums": event.checksums, "spares": event.spares,
            "checksums_before": event.checksums_before, "spares_before": event.spares_before}


def _recovery(event: Recovery) -> dict[str, Any]:
    return {
        "kind": event.kind, "slots": list(event.slots), "version": event.version,
        "seconds": event.seconds, "phases": asdict(event.phases), "reason": event.reason,
        "began_s": event.began_s, "demand": event.demand,
    }
