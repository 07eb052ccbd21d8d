"""The committed version is never lost while losses are within the code's strength.

`Machine` plays the protocol of checkpoints on the words alone that vaults keep, in any order in
which processes can come to their steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ftrma.host.errors import CatastrophicFailure
from ftrma.machine.topology import Layout, make_layout
from ftrma.protocol.salvage import Role, elements, group_of, newest_version, roles_of


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    slots, size = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    groups = -(-slots // min(size, slots))
    layout = make_layout(slots, groups * draw(st.integers(1, 2)), size, draw(st.integers(0, 3)))
    return replace(layout, slot_group=tuple(draw(st.permutations(layout.slot_group))))


@dataclass
class Words:
    version: int = 0
    complete: int = 0
    folding: int = 0
    staging: int = 0

    def versions(self, role: Role) -> set[int]:
        if role[0] == "checksum" and self.folding > self.version:
            return {self.folding}
        return {self.version, max(self.version, self.complete)}


@dataclass
class Machine:
    """All processes of a job, between two steps; each knows what it has heard."""

    layout: Layout
    vaults: dict[Role, Words] = field(default_factory=dict)
    heard: dict[Role, int] = field(default_factory=dict)  # newest commit
    committed: int = 0

    def __post_init__(self) -> None:
        for role in roles_of(self.layout):
            self.vaults[role], self.heard[role] = Words(), 0

    def steps(self) -> list[tuple[str, Role]]:
        """Steps that some process can do next."""
        found: list[tuple[str, Role]] = []
        slots = [r for r in self.vaults if r[0] == "slot"]
        staged = {r: self.vaults[r].complete for r in slots}
        for role, v in self.vaults.items():
            if self.heard[role] < self.committed:
                found.append(("hear", role))
            elif role[0] == "slot" and v.staging == v.complete == self.heard[role]:
                found.append(("stage", role))
            elif role[0] == "slot" and v.staging > v.complete:
                found.append(("staged", role))
            elif role[0] == "checksum" and v.version < self.heard[role]:
                found.append(("folded" if v.folding > v.version else "fold", role))
            elif role[0] == "checksum" and v.complete == self.heard[role]:
                members = elements(self.layout, self.layout.group_of_checksum(role[1]))
                if all(staged.get(r, v.complete + 1) == v.complete + 1 for r in members):
                    found.append(("sum", role))
        if all(v.complete == self.committed + 1 for v in self.vaults.values()):
            found.append(("commit", ("checksum", 0)))
        return found

    def do(self, step: str, role: Role) -> None:
        v = self.vaults[role]
        if step == "hear":
            self.heard[role] = self.committed
        elif step == "stage":
            v.version, v.staging = self.heard[role], self.heard[role] + 1
        elif step == "staged":
            v.complete = v.staging
        elif step == "sum":
            v.complete += 1
        elif step == "commit":
            self.committed += 1
        elif step == "fold":
            v.folding = self.heard[role]
        else:
            v.version = v.folding


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    machine = Machine(draw(layouts()))
    for _ in range(draw(st.integers(0, 120))):
        steps = machine.steps()
        machine.do(*steps[draw(st.integers(0, len(steps) - 1))])
    return machine


@given(machines(), st.data())
def test_nothing_committed_is_lost(machine: Machine, data: st.DataObject) -> None:
    """Law: whatever m vaults of each group are lost at whatever moment, the committed version or a
    newer one can be had, and then no group lacks more than m of its vaults."""
    layout = machine.layout
    lost: set[Role] = set()
    for group in range(layout.groups):
        roles = elements(layout, group)
        lost |= set(data.draw(st.lists(st.sampled_from(roles), max_size=layout.strength)))
    found = {r: v.versions(r) for r, v in machine.vaults.items() if r not in lost}
    version = newest_version(layout, found, machine.committed)
    assert machine.committed <= version <= machine.committed + 1
    for group in range(layout.groups):
        have = [r for r in elements(layout, group) if version in found.get(r, ())]
        assert version == 0 or len(have) >= len(layout.members(group))


@given(machines(), st.data())
def test_too_many_losses_are_told(machine: Machine, data: st.DataObject) -> None:
    """Law: where a group has lost more than m vaults and something was committed, the failure names
    the group and what it lacks."""
    layout = machine.layout
    assume(machine.committed > 0)
    roles = elements(layout, data.draw(st.integers(0, layout.groups - 1)))
    lost = data.draw(st.lists(st.sampled_from(roles), min_size=layout.strength + 1, unique=True))
    found = {r: v.versions(r) for r, v in machine.vaults.items() if r not in lost}
    with pytest.raises(CatastrophicFailure) as failure:
        newest_version(layout, found, machine.committed)
    assert failure.value.group == group_of(layout, lost[0])
    assert set(failure.value.members) >= {f"{kind} {index}" for kind, index in lost}
    assert failure.value.version == machine.committed


def test_without_a_commit_everything_begins_again() -> None:
    """Law: nothing found and nothing committed is the start, not a failure."""
    assert newest_version(make_layout(4), {}, 0) == 0
