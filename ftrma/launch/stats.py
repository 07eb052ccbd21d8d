"""The job's story in one JSON object: what ``--stats`` writes."""

from __future__ import annotations

from typing import Any

from ..machine.topology import Layout


def summary(events: list[dict[str, Any]], layout: Layout, status: int) -> dict[str, Any]:
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
        several nodes; ``recoveries``, each with kind,
        slots, version, seconds, phases in seconds, a reason, began_s, when the death happened
        or was noticed, on the machine's monotonic clock, and demand, the number of the demand
        checkpoint that a replay started from (0: from the version); ``degraded_seconds``, the
        time for which some group lacked redundancy. `supervisor.run` adds ``log``: for each slot
        the budget of its access logs and the most of it that was used, bytes.
    """
    checkpoints = [
        {k: e[k] for k in ("version", "kind", "slot", "seconds", "bytes", "dirty_bytes") if k in e}
        for e in events
        if e["event"] == "checkpoint"
    ]
    failures = [
        {
            e["role"]: e["index"],
            "place": e["place"],
            "pid": e["pid"],
            **({"host": e["host"]} if "host" in e else {}),
        }
        for e in events
        if e["event"] == "failure"
    ]
    recoveries = [
        {k: e[k] for k in ("kind", "slots", "version", "seconds", "phases", "reason", "began_s")}
        | {"demand": e.get("demand", 0)}
        for e in events
        if e["event"] == "recovery"
    ]
    degraded = sum(r["seconds"] for r in recoveries)
    degraded += sum(e["seconds"] for e in events if e["event"] == "reseat")
    return {
        "slots": layout.slots,
        "checksums": layout.checksums,
        "spares": layout.spares,
        "group_size": layout.group_size,
        "exit": status,
        "checkpoints": checkpoints,
        "failures": failures,
        "recoveries": recoveries,
        "reseats": [
            {k: e[k] for k in ("checksum", "seconds")} for e in events if e["event"] == "reseat"
        ],
        "degraded_seconds": degraded,
    }
