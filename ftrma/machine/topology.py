"""Groups and failure domains: which slots share checksum ranks, which processes fail together.

A `Layout` says how many processes a job has, in which roles, and which slots form a group with
which checksum ranks. `Domains` says in which elements of the machine each process runs: its node,
and the elements above. `placement` brings the two together.

Invariants: every slot is in exactly one group; all groups have the same number m of checksum ranks;
checksum rank c serves group c // m and holds its parity number c % m. Elements are nested: two
processes that share an element share all those above it.

Source: Besta & Hoefler, section 5 (groups G, failure domain hierarchy H, mapping M).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..native.constants import MAX_PROCS
from ..native.shared import Slot

MAX_PROCESSES = MAX_PROCS  # room of the control file
MAX_MEMBERS = 255  # k + m: the length of a Reed-Solomon code over GF(2^8)
NO_LEVEL = "none"
CHECKSUM_KIND = "checksum"  # kind of a role; for a former layout see `Layout.former`
NODES = "nodes"  # the lowest level: no smaller part of a machine was seen to fail alone


@dataclass(frozen=True)
class Layout:
    """Roles and groups of a job.

    Attributes:
        slots: N.
        checksums: checksum ranks in all, m for each group.
        spares: processes that wait for a role.
        group_size: slots of the largest group.
        slot_group: group of each slot; without a topology groups are runs of neighbours.
        weakened: number of checksum ranks that each group has given up since the job began.
        checksum_kind: kind of a checksum rank's role, which distinguishes ranks of former layouts.
    """

    slots: int
    checksums: int
    spares: int
    group_size: int
    slot_group: tuple[int, ...]
    weakened: int = 0
    checksum_kind: str = CHECKSUM_KIND

    @property
    def groups(self) -> int:
        return -(-self.slots // self.group_size)

    @property
    def strength(self) -> int:
        """Return m, the number of checksum ranks of a group, and of losses that it survives."""
        return self.checksums // self.groups

    @property
    def processes(self) -> int:
        return self.slots + self.checksums + self.spares

    def with_strength(self, strength: int) -> Layout:
        """Return this layout with fewer checksum ranks for each group; slots stay in their
        groups."""
        given_up = self.strength - strength
        return replace(self, checksums=self.groups * strength, weakened=self.weakened + given_up)

    def former(self) -> tuple[Layout, ...]:
        """Return the layouts from before the job gave up checksum ranks, the newest first.

        The codes differ for different m, so a parity of one layout is useless for another, and has
        a different kind and file.
        """
        return tuple(
            replace(self.with_strength(m), checksum_kind=f"{CHECKSUM_KIND}/{m}")
            for m in range(self.strength + 1, self.strength + self.weakened + 1))

    def parity_file(self, checksum: int) -> str:
        """Return the name of the file in which a checksum rank keeps its parity, over several
        nodes."""
        tail = f"-of-{self.strength}" if self.weakened else ""
        return f"{CHECKSUM_KIND}-{checksum}{tail}"

    def group_of(self, slot: int) -> int:
        return self.slot_group[slot]

    def group_of_checksum(self, checksum: int) -> int:
        return checksum // self.strength

    def parity_index(self, checksum: int) -> int:
        """Return the number of the parity that a checksum rank holds in its group: 0 to m - 1."""
        return checksum % self.strength

    def checksums_of(self, group: int) -> range:
        return range(group * self.strength, (group + 1) * self.strength)

    def members(self, group: int) -> tuple[Slot, ...]:
        """Return the slots of a group, in order; one group may be smaller than the others."""
        return self._members[group]

    def index_in_group(self, slot: int) -> int:
        """Return the position of a slot among its group's members: its column of the code."""
        return self._members[self.slot_group[slot]].index(Slot(slot))

    @cached_property
    def _members(self) -> tuple[tuple[Slot, ...], ...]:
        members: list[list[Slot]] = [[] for _ in range(self.groups)]
        for slot, group in enumerate(self.slot_group):
            members[group].append(Slot(slot))
        return tuple(map(tuple, members))


def make_layout(
    slots: int, checksums: int | None = None, group_size: int | None = None, spares: int = 1
) -> Layout:
    """Fill in the numbers that the user left open, and refuse those that are not possible.

    Args:
        slots: N >= 1.
        checksums: checksum ranks in all, a multiple of the number of groups; by default one per
            group.
        group_size: slots per group; by default N / checksums, rounded up, so that each group has
            one checksum rank.
        spares: processes that wait to replace a dead one, >= 0.

    Raises:
        ValueError: with the value and the remedy.
    """
    check_counts(slots, checksums, group_size, spares)
    size = min(group_size or -(-slots // (checksums or 1)), slots)
    groups = -(-slots // size)
    if checksums is None:
        checksums = groups
    elif group_size is None and checksums != groups:
        raise ValueError(
            f"--checksums {checksums}: {slots} slots do not make {checksums} groups of equal size; "
            f"use --checksums {groups}, or give --group-size and a multiple of its groups"
        )
    elif checksums % groups:
        below = checksums // groups * groups
        ways = f"{below} or {below + groups}" if below else f"{groups}"
        raise ValueError(
            f"--checksums {checksums} with --group-size {size}: {slots} slots make {groups} "
            f"groups, and each takes equally many checksum ranks; use --checksums {ways} or "
            "another --group-size"
        )
    slot_group = tuple(slot // size for slot in range(slots))
    layout = Layout(slots, checksums, spares, size, slot_group)
    check_limits(layout)
    return layout


def check_counts(slots: int, checksums: int | None, group_size: int | None, spares: int) -> None:
    """Refuse a number that is too small by itself.

    Raises:
        ValueError: with the value.
    """
    if slots < 1:
        raise ValueError(f"-n {slots}: a program needs at least 1 slot")
    if spares < 0:
        raise ValueError(f"--spares {spares}: must be 0 or more")
    if checksums is not None and checksums < 1:
        raise ValueError(f"--checksums {checksums}: must be 1 or more; parity needs a place")
    if group_size is not None and group_size < 1:
        raise ValueError(f"--group-size {group_size}: must be 1 or more")


def check_limits(layout: Layout) -> None:
    """Refuse more members of a group, or processes, than are possible.

    Raises:
        ValueError: with the value and the remedy.
    """
    size, strength = layout.group_size, layout.strength
    if size + strength > MAX_MEMBERS:
        raise ValueError(
            f"--group-size {size} with {strength} checksum rank{'s' * (strength > 1)} per group: "
            f"a group has at most {MAX_MEMBERS} members in all; use a smaller --group-size"
            f"{' or fewer --checksums' * (strength > 1)}"
        )
    if layout.processes > MAX_PROCESSES:
        raise ValueError(
            f"-n {layout.slots}: {layout.processes} processes in all; at most {MAX_PROCESSES} are "
            "served"
        )


@dataclass(frozen=True)
class Domains:
    """The elements of the machine that each process runs in: the mapping M of section 5.

    Attributes:
        levels: names from the bottom up; the first is "nodes".
        paths: for each process the names of its elements, one per level.
    """

    levels: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        assert self.levels and all(len(path) == len(self.levels) for path in self.paths)
        for level in range(len(self.levels) - 1):
            pairs = {path[level : level + 2] for path in self.paths}
            assert len(pairs) == len({pair[0] for pair in pairs}), "elements are not nested"

    def height(self, aware: str) -> int:
        """Count the levels, from the bottom, that a level of awareness covers; "none" covers 0.

        Raises:
            ValueError: there is no such level.
        """
        known = (NO_LEVEL, *self.levels)
        if aware not in known:
            raise ValueError(
                f"--aware {aware}: levels here are {', '.join(known)}; others are described in a "
                "file that --topology names"
            )
        return known.index(aware)

    def level(self, height: int) -> str:
        """Return the name of the highest level of a height."""
        return (NO_LEVEL, *self.levels)[height]


def domains_of_nodes(hosts: Sequence[str]) -> Domains:
    """Return the hierarchy without a topology file: nodes, as MPI names them for each process."""
    return Domains((NODES,), tuple((host,) for host in hosts))


def listed(names: Sequence[str]) -> str:
    """Join names in words; a long list is shortened."""
    shown = list(names) if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
