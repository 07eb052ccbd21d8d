"""Decides which version a launch can have from the vaults of the launch before it. Pure.

A job over several nodes is launched again after a failure, and its vaults lie where their processes
ran. Each vault tells to which versions it can be brought (see ``ftrma_vault_words`` in
``csrc/ftrma.h``): a slot that has staged a version can keep it or go back, and a parity that has
summed a version can fold it in or drop it. No vault tells what the others have done, and none needs
to: a version can be had if in every group no more than m vaults lack it.

The version that can be had is never older than the committed one, as long as no group has lost more
than m vaults. A version is committed when every slot has staged it and every checksum rank has
summed it. From then on each vault has it, until its slot begins to stage the next version, which is
after the commit. So the newest version that can be had is the committed one, or one that was not
yet committed but is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..host.errors import CatastrophicFailure
from ..machine.topology import Layout
from ..native.shared import Version

Role = tuple[str, int]  # "slot" or "checksum" (see `Layout.checksum_kind`), and its number


def roles_of(layout: Layout) -> list[Role]:
    """Return all roles that have a vault, slots first."""
    return [("slot", s) for s in range(layout.slots)] + [
        (layout.checksum_kind, c) for c in range(layout.checksums)
    ]


def elements(layout: Layout, group: int) -> list[Role]:
    """Return a group's roles in the order in which `erasure` numbers them."""
    members: list[Role] = [("slot", s) for s in layout.members(group)]
    return members + [(layout.checksum_kind, c) for c in layout.checksums_of(group)]


def name_of(role: Role) -> str:
    """Return a role's name as users read it."""
    return f"{kind_of(role)} {role[1]}"


def kind_of(role: Role) -> str:
    """Return "slot" or "checksum", the latter for a checksum rank of any layout."""
    return role[0].partition("/")[0]


def missing(layout: Layout, present: Collection[Role], group: int) -> list[Role]:
    """Return the roles of a group that are not present."""
    return [role for role in elements(layout, group) if role not in present]


def newest_version(
    layout: Layout, found: Mapping[Role, Collection[Version]], committed: Version
) -> Version:
    """Return the newest version that can be had; 0 is the start of the program.

    Args:
        layout: the layout with the groups in force.
        found: for each role whose vault was found, the versions that it can be brought to.
        committed: the newest version that is known to have been committed.

    Raises:
        CatastrophicFailure: a group has lost too many vaults to have the committed version.
    """
    for version in sorted({v for versions in found.values() for v in versions if v}, reverse=True):
        having = {role for role, versions in found.items() if version in versions}
        lost = {g: [kind for kind, _ in missing(layout, having, g)] for g in range(layout.groups)}
        if not catastrophe(lost, layout.strength, version):
            return version
    if committed:
        having = {role for role, versions in found.items() if committed in versions}
        raise_if_lost(layout, having, committed)
    return Version(0)


def newest_of(
    layouts: Sequence[Layout], found: Mapping[Role, Collection[Version]], committed: Version
) -> tuple[Version, Layout]:
    """Return the newest version that can be had with the parities of one of several layouts.

    Args:
        layouts: the layout in force, and those from before checksum ranks were given up. If two
            give the same version, the earlier one in this list is taken.
        found, committed: see `newest_version`.

    Returns:
        The version, and the layout whose parities give it.

    Raises:
        CatastrophicFailure: no layout has the committed version; the error is that of the layout
            that lacks the fewest vaults.
    """
    can: list[tuple[Version, Layout]] = []
    failures: list[CatastrophicFailure] = []
    for layout in layouts:
        try:
            can.append((newest_version(layout, found, committed), layout))
        except CatastrophicFailure as failure:
            failures.append(failure)
    if not can:
        raise min(failures, key=lambda failure: len(failure.members))
    return max(can, key=lambda each: each[0])


def raise_if_lost(layout: Layout, present: Collection[Role], version: Version) -> None:
    """Raise for the first group that lacks more than m of its vaults, if there is one."""
    lost = {g: [name_of(role) for role in missing(layout, present, g)]
            for g in range(layout.groups)}
    failure = catastrophe(lost, layout.strength, version)
    if failure:
        raise failure


def catastrophe(
    lost: Mapping[int, Sequence[str]], strength: int, version: Version
) -> CatastrophicFailure | None:
    """Say which group has lost more than its checksum ranks make up for; None if none has.

    Args:
        lost: names of the lost members of each group.
        strength: m, the checksum ranks of a group.
        version: the version that is then lost.

    Source: Besta & Hoefler, section 5: a catastrophic failure.
    """
    for group, names in lost.items():
        if len(names) > strength:
            return CatastrophicFailure(group, tuple(names), version)
    return None


def group_of(layout: Layout, role: Role) -> int:
    """Return the group of a role."""
    kind, index = role
    return layout.group_of(index) if kind == "slot" else layout.group_of_checksum(index)
