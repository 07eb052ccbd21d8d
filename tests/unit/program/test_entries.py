"""A framework's saved arrays: `program.entries` over real vaults and their parity, by property."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vaultgroup import SEAL, Group

from ftrma.host.errors import FtrmaError
from ftrma.native.shared import Version
from ftrma.program.entries import EntryStore
from ftrma.vault.vault import BLOCK, Region, Vault

SIZES = (0, 1, 7, BLOCK // 8, BLOCK // 8 + 1, 5 * BLOCK // 8 + 3)  # elements of 8 bytes
STEPS = st.lists(
    st.sampled_from(["put", "put", "change", "drop", "commit", "undo", "again", "give_up", "enter",
                     "lose", "in_steps", "in_steps"]),
    min_size=10, max_size=40)


class Slot:
    """Member 0 of a group as a framework uses it, beside another one; and what must be there."""

    def __init__(self, directory: Path, random: np.random.Generator) -> None:
        self.group, self.random = Group(directory, [1, 1], seed=1), random
        self.other = np.zeros(9 * BLOCK, "u1")
        self.arrays: dict[str, Any] = {}  # that the next checkpoint is to save
        self.committed: dict[str, Any] = {}
        self.enter()

    @property
    def vault(self) -> Vault:
        return self.group.members[0]

    def enter(self) -> None:
        """The program is entered: nothing is known but what is committed."""
        saved = self.vault.read_record(SEAL)["entries"] if self.group.version else {}
        self.entries = EntryStore(saved, lambda key, n: self.vault.bytes_of(key, n))
        self.arrays = {key: array.copy() for key, array in self.committed.items()}
        self.bound: set[str] = set()
        self.check()

    def some(self) -> str:
        return str(self.random.choice(["value", "static", "append", "append 2"]))

    def put(self) -> None:
        key = self.some()
        kind = key.split()[0]
        array = self.random.integers(0, 1 << 60, int(self.random.choice(SIZES)))
        if kind == "append" and key in self.arrays:
            array = np.append(self.arrays[key], array)
        self.entries.put(key, array, kind)
        self.arrays[key] = array
        self.bound.add(key)

    def change(self) -> None:
        """Those of kind "value" are saved as they are then."""
        for key in sorted(self.bound):
            if key.startswith("value") and self.arrays[key].size:
                self.arrays[key][self.random.integers(self.arrays[key].size)] += 1

    def drop(self) -> None:
        key = self.some()
        self.entries.drop(key)
        self.arrays.pop(key, None)
        self.bound.discard(key)

    def stage(self) -> None:
        version = Version(self.group.version + 1)
        record = {"entries": self.entries.forms()}
        regions = self.entries.regions(Version(self.group.version))
        self.vault.stage(version, regions, record, SEAL)
        self.other[self.random.integers(self.other.size)] += 1
        others = [Region("o", self.other.ctypes.data, self.other.nbytes)]
        self.group.members[1].stage(version, others, {}, SEAL)

    def commit(self) -> None:
        self.stage()
        self.entries.staged(Version(self.group.version + 1))
        self.group.sum()
        self.group.commit()
        self.group.fold()
        self.committed = {key: array.copy() for key, array in self.arrays.items()}
        self.check()
        assert not any(self.group.scrub_all())

    def undo(self) -> None:
        """A checkpoint that a failure undoes, by which the program is entered again."""
        self.stage()
        self.group.sum()
        self.group.drop()
        self.group.undo()
        self.enter()

    def again(self) -> None:
        """One that is undone, after all have staged or before, and taken again by those who go
        on."""
        self.give_up()
        self.change()
        self.commit()

    def give_up(self) -> None:
        """One that is undone, of which this slot was told or not; all go on where they are."""
        self.stage()
        if self.random.integers(2):
            self.entries.staged(Version(self.group.version + 1))
        self.undone()

    def undone(self) -> None:
        self.group.drop()
        self.group.undo()
        self.vault.undone(Version(self.group.version))
        self.entries.undone(Version(self.group.version))
        for key in self.entries.saved.keys() & self.committed.keys():
            assert self.entries.read(key).tolist() == self.committed[key].tolist()

    def in_steps(self) -> None:
        """One whose entries are staged as they are put, while others change; it may be undone at
        any step."""
        before, version = Version(self.group.version), Version(self.group.version + 1)
        forms, steps = self.entries.forms(), int(self.random.integers(5))
        self.vault.begin_stage(version, self.entries.regions(before))
        self.entries.staged(version)
        staged = {key: array.copy() for key, array in self.arrays.items()}
        for step in range(3):
            self.change()
            if self.random.integers(3) == 0:
                self.drop()
            if step == steps:
                break
            self.put()
            if step < 2:  # the last one belongs to the next version
                fresh = self.entries.forms(fresh=True)
                forms.update(fresh)
                self.vault.add_to_stage(self.entries.regions(before, fresh=True))
                self.entries.staged(version, fresh=True)
                staged.update({key: self.arrays[key].copy() for key in fresh})
        if steps >= 3:
            assert all(self.entries.read(key).tolist() == staged[key].tolist()
                       for key in self.entries.saved)
            self.vault.end_stage({"entries": forms}, SEAL)
        if steps < 4:
            self.undone()
            return
        self.other[self.random.integers(self.other.size)] += 1
        others = [Region("o", self.other.ctypes.data, self.other.nbytes)]
        self.group.members[1].stage(version, others, {}, SEAL)
        self.group.sum()
        self.group.commit()
        self.group.fold()
        self.committed = staged
        assert not any(self.group.scrub_all())
        found = EntryStore(self.vault.read_record(SEAL)["entries"],
                           lambda key, n: self.vault.bytes_of(key, n))
        assert {key: found.read(key).tolist() for key in found.saved} == {
            key: array.tolist() for key, array in staged.items()}

    def lose(self) -> None:
        self.group.lose(0)
        self.group.rebuild(0)
        self.enter()

    def check(self) -> None:
        assert self.entries.saved.keys() == self.committed.keys()
        for key, array in self.committed.items():
            found = self.entries.read(key)
            assert found.dtype == array.dtype and found.tolist() == array.tolist(), key


@pytest.mark.plain
@given(STEPS, st.integers(0, 2**32))
def test_what_is_read_is_what_was_committed(steps: list[str], seed: int) -> None:
    """Law: whatever is put, changed, dropped, staged, undone and lost, an entry reads as it was
    when the committed version was taken, and the parity is that of the copies."""
    with TemporaryDirectory(prefix="entries-", dir="/dev/shm") as directory:
        slot = Slot(Path(directory), np.random.default_rng(seed))
        try:
            for step in steps:
                getattr(slot, step)()
        finally:
            slot.group.close()


def looked_at(entries: EntryStore, committed: int) -> dict[str, int]:
    """Bytes of each entry that are compared at a checkpoint."""
    return {region.key[1]: region.size_bytes - region.clean_bytes
            for region in entries.regions(Version(committed))}


def test_what_is_clean_is_not_looked_at() -> None:
    """Law: a static entry is looked at until it is committed, and its array then needed no more; of
    one that grows what is new; the others each time."""
    entries = EntryStore({}, lambda key, n: b"")
    for kind in ("value", "static", "append"):
        entries.put(kind, np.zeros(10), kind)
    assert looked_at(entries, 0) == {"value": 80, "static": 80, "append": 80}
    entries.staged(Version(1))
    assert looked_at(entries, 0) == {"value": 80, "static": 80, "append": 80}
    entries.put("append", np.zeros(12), "append")
    assert looked_at(entries, 1) == {"value": 80, "static": 0, "append": 16}
    assert set(entries.bound) == {"value", "append"}
    entries.put("static", np.zeros(9), "static")
    assert looked_at(entries, 1) == {"value": 80, "static": 72, "append": 16}
    # Nothing else is known of an entry that others have saved.
    after = EntryStore(entries.forms(), lambda key, n: b"")
    assert looked_at(after, 7) == {"value": 0, "static": 0, "append": 0}
    after.put("append", np.zeros(13), "append")
    assert looked_at(after, 7)["append"] == 8


def test_bad_entries_are_told() -> None:
    """Law: what cannot be saved is refused, with its name and what is wrong; nothing is changed."""
    entries = EntryStore({}, lambda key, n: b"")
    entries.put("grows", np.zeros(4), "append")
    with pytest.raises(ValueError, match=r"entry 'x': kind 'often' is none of value, static"):
        entries.put("x", 1, "often")
    with pytest.raises(FtrmaError, match="entry 'x': an array of objects"):
        entries.put("x", [None], "value")
    entries.staged(Version(1))
    with pytest.raises(ValueError, match=r"entry 'grows': 24 bytes are less .* drop it first"):
        entries.put("grows", np.zeros(3), "append")
    with pytest.raises(KeyError):
        entries.read("nothing")
    assert list(entries.forms()) == ["grows"] and entries.bound["grows"].array.nbytes == 32
    entries.drop("grows")
    entries.put("grows", np.zeros(3), "append")


def test_one_that_grows_out_of_its_place_is_written_whole(tmp_path: Path) -> None:
    """Law: also where the checkpoint by which it moves is undone, and taken again."""
    slot = Slot(tmp_path, np.random.default_rng(1))
    try:
        for key, kind in (("append", "append"), ("behind", "value"), ("append", "append")):
            before = slot.arrays.get(key, np.zeros(0, "i8"))
            array = np.append(before, slot.random.integers(0, 1 << 60, 3 * BLOCK // 8))
            slot.entries.put(key, array, kind)
            slot.arrays[key] = array
            first = slot.vault.extents.regions.get(("entry", "append"), (0, 0))[0]
            slot.again()
            slot.commit()
        assert slot.vault.extents.regions["entry", "append"][0] != first > 0
    finally:
        slot.group.close()
