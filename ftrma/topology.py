"""Placement: how many processes there are, which roles they start with, and the groups.

A layout is pure arithmetic: N slots in groups of at most K neighbours, m checksum ranks per group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_PROCESSES = 1024  # room of the control file


@dataclass(frozen=True)
class Layout:
    """Roles at the start: slots are processes 0..N-1, then checksum ranks, then spares."""

    slots: int
    checksums: int
    spares: int
    group_size: int

    @property
    def groups(self) -> int:
        return -(-self.slots // self.group_size)

    @property
    def processes(self) -> int:
        return self.slots + self.checksums + self.spares

    def group_of(self, slot: int) -> int:
        return slot // self.group_size

    def members(self, group: int) -> range:
        """Slots of a group; the last group may be smaller."""
        first = group * self.group_size
        return range(first, min(first + self.group_size, self.slots))


def roles(domains: Sequence[str], layout: Layout) -> tuple[list[int], list[int]]:
    """Place the roles of a job over several nodes.

    Args:
        domains: the failure domain (node) of each process.
        layout: what is to be placed.

    Returns:
        The process of each slot, and of each group's checksum rank; the others are spares. Slots
        come first, then checksum ranks, in the order of the processes, wherever these run.
    """
    order = range(len(domains))
    return list(order[: layout.slots]), list(order[layout.slots :][: layout.checksums])


def make_layout(
    slots: int, checksums: int | None = None, group_size: int | None = None, spares: int = 1
) -> Layout:
    """Fill in what the user left open, and refuse what cannot be served.

    Args:
        slots: N >= 1.
        checksums: checksum ranks in all; by default one per group.
        group_size: slots per group; by default N / checksums, rounded up.
        spares: processes that wait to replace a dead one, >= 0.

    Raises:
        ValueError: with the value and the remedy.
    """
    if slots < 1:
        raise ValueError(f"-n {slots}: a program needs at least 1 slot")
    if spares < 0:
        raise ValueError(f"--spares {spares}: must be 0 or more")
    if checksums is not None and checksums < 1:
        raise ValueError(f"--checksums {checksums}: must be 1 or more; parity needs a place")
    if group_size is not None and group_size < 1:
        raise ValueError(f"--group-size {group_size}: must be 1 or more")
    if group_size is None:
        group_size = -(-slots // (checksums or 1))
    group_size = min(group_size, slots)
    groups = -(-slots // group_size)
    if checksums is None:
        checksums = groups
    if checksums != groups:
        raise ValueError(
            f"--checksums {checksums} with --group-size {group_size}: {slots} slots make {groups} "
            f"group{'s' * (groups > 1)}, and each takes one checksum rank; use --checksums "
            f"{groups} or another --group-size"
        )
    if group_size > 255:
        raise ValueError(f"--group-size {group_size}: at most 255; use more checksum ranks")
    layout = Layout(slots, checksums, spares, group_size)
    if layout.processes > MAX_PROCESSES:
        raise ValueError(
            f"-n {slots}: {layout.processes} processes in all; at most {MAX_PROCESSES} are served"
        )
    return layout
