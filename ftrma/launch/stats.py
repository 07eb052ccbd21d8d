"""The job's story in one JSON object: what ``--stats`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..fabric.story import Agentdeath, Checkpoint, Event, Failure, Note, Recovery, Reseat
from ..machine.topology import Layout


def summary(events: Sequence[Event], layout: Layout, status: int) -> dict[str, Any]:
    """Statistics of a job from its events.

    Args:
        events: in the order in which they were written.
        layout: roles at the start.
        status: exit status of the program.

    Returns:
        ``slots``, ``checksums``, ``spares``, ``group_size``, ``exit``; ``checkpoints``, each with
        version, kind, seconds (the longest hold-up of a slot), bytes and dirty_bytes (all slots);
        of kind "demand" of one ``slot`` alone, with the version committed then;
        ``failures``, each with the role that died and the place, and with the host in a job over
        several nodes; ``agents``, there, those that died and were replaced, each with its host;
        ``recoveries``, each with kind,
        slots, version, seconds, phases in seconds, a reason, began_s, when the death happened
        or was noticed, on the machine's monotonic clock, and demand, the number of the demand
        checkpoint that a replay started from (0: from the version); ``degraded_seconds``, the
        time for which some group lacked redundancy; ``notes``, what a framework has told, each with
        its slot. `supervisor.run` adds ``log``: for each slot
        the budget of its access logs and the most of it that was used, bytes.
    """
    checkpoints = [_checkpoint(e) for e in events if isinstance(e, Checkpoint)]
    failures = [_failure(e) for e in events if isinstance(e, Failure)]
    recoveries = [e for e in events if isinstance(e, Recovery)]
    reseats = [e for e in events if isinstance(e, Reseat)]
    degraded = sum(e.seconds for e in recoveries) + sum(e.seconds for e in reseats)
    return {
        "slots": layout.slots,
        "checksums": layout.checksums,
        "spares": layout.spares,
        "group_size": layout.group_size,
        "exit": status,
        "checkpoints": checkpoints,
        "failures": failures,
        "agents": [{"host": e.host} for e in events if isinstance(e, Agentdeath)],
        "recoveries": [_recovery(e) for e in recoveries],
        "reseats": [{"checksum": e.checksum, "seconds": e.seconds} for e in reseats],
        "degraded_seconds": degraded,
        "notes": [{"slot": e.slot, **e.entries} for e in events if isinstance(e, Note)],
    }


def _checkpoint(event: Checkpoint) -> dict[str, Any]:
    alone = {} if event.slot is None else {"slot": event.slot}
    return {
        "version": event.version, "kind": event.kind, **alone, "seconds": event.seconds,
        "bytes": event.bytes, "dirty_bytes": event.dirty_bytes,
    }


def _failure(event: Failure) -> dict[str, Any]:
    host = {"host": event.host} if event.host else {}
    return {event.role: event.index, "place": event.place, "pid": event.pid, **host}


def _recovery(event: Recovery) -> dict[str, Any]:
    return {
        "kind": event.kind, "slots": list(event.slots), "version": event.version,
        "seconds": event.seconds, "phases": asdict(event.phases), "reason": event.reason,
        "began_s": event.began_s, "demand": event.demand,
    }
