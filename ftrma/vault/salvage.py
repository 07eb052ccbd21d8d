"""What a launch finds of the one before it: which version can be had, and who takes which role.

A job over several nodes is launched again after a failure, on vaults that lie where their
processes ran. Each vault tells which versions it can be brought to (see ``ftrma_vault_words`` in
``csrc/ftrma.h``): a slot that has staged a version can keep it or go back, a parity that has summed
one can fold it in or leave it. No vault says what the others have done, and none needs to: a
version can be had if in every group no more than m vaults lack it.

That never goes back behind what was committed, as long as the losses are within the code's
strength. A version is committed when every slot has staged it and every checksum rank has summed
it; from then on until a slot begins to stage the next one each vault has it, and a slot begins only
after the commit. The newest version that can be had is therefore the committed one, or one that was
on the way and is whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..errors import CatastrophicFailure
from ..machine.placement import Placement, choose_spare, level_held, place
from ..machine.topology import Domains, Layout
from ..native.shared import Version

Role = tuple[str, int]  # "slot" or "checksum", and its number


def roles_of(layout: Layout) -> list[Role]:
    """All roles with a vault, slots first."""
    return [("slot", s) for s in range(layout.slots)] + [
        ("checksum", c) for c in range(layout.checksums)
    ]


def elements(layout: Layout, group: int) -> list[Role]:
    """A group's roles, as `erasure` numbers them."""
    members: list[Role] = [("slot", s) for s in layout.members(group)]
    return members + [("checksum", c) for c in layout.checksums_of(group)]


def missing(layout: Layout, present: Collection[Role], group: int) -> list[Role]:
    return [role for role in elements(layout, group) if role not in present]


def newest_version(
    layout: Layout, found: Mapping[Role, Collection[Version]], committed: Version
) -> Version:
    """Return the newest version that can be had; 0 is the start of the program.

    Args:
        layout: with the groups in force.
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
        refuse(layout, {r for r, versions in found.items() if committed in versions}, committed)
    return Version(0)


def refuse(layout: Layout, present: Collection[Role], version: Version) -> None:
    """Raise for the first group that lacks more than m of its vaults, if there is one."""
    lost = {g: [f"{kind} {index}" for kind, index in missing(layout, present, g)]
            for g in range(layout.groups)}
    failure = catastrophe(lost, layout.strength, version)
    if failure:
        raise failure


def catastrophe(
    lost: Mapping[int, Sequence[str]], strength: int, version: Version
) -> CatastrophicFailure | None:
    """The first group that has lost more than its checksum ranks make up for; None if all hold.

    Args:
        lost: names of the lost members of each group.
        strength: m, the checksum ranks of a group.
        version: that cannot be had any more then.

    Source: Besta & Hoefler, section 5: a catastrophic failure.
    """
    for group, names in lost.items():
        if len(names) > strength:
            return CatastrophicFailure(group, tuple(names), version)
    return None


def seats(
    layout: Layout, hosts: Sequence[str], found: Mapping[Role, str], domains: Domains, aware: str
) -> Placement:
    """Seat all roles: those whose vault was found on its node, the others by awareness.

    Args:
        layout: with the groups in force where vaults were found.
        hosts: node of each process.
        found: node of each vault that was found; empty at the first launch.
        domains: elements of each process; aware: the level wished for.
    """
    if not found:
        return place(layout, domains, aware)
    free = {host: [p for p, h in enumerate(hosts) if h == host] for host in dict.fromkeys(hosts)}
    taken: dict[Role, int] = {}
    for role in roles_of(layout):
        if free.get(found.get(role, "")):
            taken[role] = free[found[role]].pop(0)
    spares = sorted(p for left in free.values() for p in left)
    for role in roles_of(layout):
        if role not in taken:
            group = group_of(layout, role)
            others = [taken[r] for r in elements(layout, group) if r in taken]
            chosen = choose_spare(spares[0], others, spares, layout.strength, domains, aware)
            spares.remove(chosen)
            taken[role] = chosen
    slot_proc = tuple(taken["slot", s] for s in range(layout.slots))
    checksum_proc = tuple(taken["checksum", c] for c in range(layout.checksums))
    held = level_held(layout, slot_proc, checksum_proc, domains)
    seated = Placement(layout, slot_proc, checksum_proc, tuple(spares), held)
    if domains.height(held) < domains.height(aware):
        seated = replace(
            seated, shortfall=f"--aware {aware} holds up to {held} only on the nodes that are left"
        )
    return seated


def group_of(layout: Layout, role: Role) -> int:
    kind, index = role
    return layout.group_of(index) if kind == "slot" else layout.group_of_checksum(index)
