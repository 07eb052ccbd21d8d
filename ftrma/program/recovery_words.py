"""Describes a recovery in one line for users. Pure."""

from __future__ import annotations

from dataclasses import asdict

from ..fabric.story import Recovery


def recovery_line(recovery: Recovery, *, spares: int, claimant: str, died: bool) -> str:
    """Return one line about a recovery.

    Args:
        spares: number of spares that are left.
        claimant: the framework that recovers; empty if there is none.
        died: some process had died; if not, communicators had to be made again.
    """
    phases = ", ".join(f"{n} {s * 1e3:.0f}" for n, s in asdict(recovery.phases).items() if s)
    how = way_of(recovery, claimant)
    why = f" ({recovery.reason})" if recovery.reason and recovery.reason not in how else ""
    return (
        f"{cause_of(recovery, died=died)}; {how} in {recovery.seconds * 1e3:.0f} ms ({phases})"
        f"{why}; {spares} spare{'s' * (spares != 1)} left"
    )


def cause_of(recovery: Recovery, *, died: bool) -> str:
    """Say who died, or what else was repaired."""
    if not died and not recovery.slots:
        return "communicators are made again"
    return f"{' and '.join(f'slot {s}' for s in recovery.slots) or 'a server'} died"


def way_of(recovery: Recovery, claimant: str) -> str:
    """Say how the job goes on, and from where."""
    to = f"checkpoint {recovery.version}" if recovery.version else "the start"
    if recovery.demand:
        to = f"its demand checkpoint {recovery.demand}"
    if recovery.kind == "reentry":
        end = f"from {to}" if recovery.version else "without a checkpoint"
        return f"{claimant} recovers {end}"
    if recovery.kind != "causal":
        return f"back at {to}"
    if recovery.phases.replay:
        return f"replayed from {to}"
    return "replaced before it had begun" if recovery.slots else "replaced"
