"""Vaults and parity: at every instant of a checkpoint one version can be rebuilt completely.

The C functions work on files, as in a job; MPI is not started. A `vaultgroup.Group` plays the
members and the checksum rank of one group and remembers what each version held.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vaultgroup import CAPACITY, SEAL, SIZES, Group, content, flip

from ftrma.fabric.round_changed import RoundChanged
from ftrma.host.errors import CatastrophicFailure, CorruptVault, FtrmaError
from ftrma.native import job, loading, logs, vaults
from ftrma.native.constants import CHECKSUM
from ftrma.native.shared import Version
from ftrma.protocol.repair_round import RepairRound
from ftrma.protocol.repair_steps import settle_vault
from ftrma.protocol.server import Server
from ftrma.vault.vault import BLOCK, Region, Vault, blocks


@pytest.mark.parametrize("seed", range(6))
def test_every_member_is_rebuilt_bit_exactly(make: Callable[..., Group], seed: int) -> None:
    """Law: after any number of checkpoints, each member's last version comes from the others and
    the parity, for any number of members of any sizes."""
    random = np.random.default_rng(seed)
    sizes = [int(random.integers(1, 30 * BLOCK)) for _ in range(random.integers(1, 6))]
    group = make(sizes, seed)
    for _ in range(4):
        group.checkpoint()
        group.holds(group.version)
        for i in range(group.count):
            group.lose(i)
            group.rebuild(i)
            group.holds(group.version)
            assert group.scrub(i) == 0


@pytest.mark.plain
@pytest.mark.parametrize("strength", [1, 2, 3])
def test_every_pattern_of_losses_is_rebuilt(make: Callable[..., Group], strength: int) -> None:
    """Law: any m or fewer lost elements, members and parities, come back bit-exactly, at odd and
    uneven sizes; one more is refused."""
    group = make([1, 3 * BLOCK + 17, BLOCK, 2 * BLOCK - 1], versions=2, strength=strength)
    elements = range(group.count + strength)
    for e in range(1, strength + 1):
        for lost in itertools.combinations(elements, e):
            for i in lost:
                group.lose(i)
            for i in lost:
                group.rebuild(i)
            group.holds(2)
            assert not any(group.scrub_all())
    for lost in itertools.combinations(elements, strength + 1):
        if lost[0] < group.count:
            for i in lost:
                group.view.words.process(i).ready = 0
            with pytest.raises(CatastrophicFailure) as failure:
                group.rebuild(lost[0])
            assert len(failure.value.members) == strength + 1
            assert failure.value.members[0] == f"slot {lost[0]}"
            for i in lost:
                group.view.words.process(i).ready = 1


def test_who_dies_amid_a_rebuild_is_no_catastrophe(
    make: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a rebuild is planned where enough is left; if less is, somebody has just died, and the
    next round decides."""
    group, raised = make(versions=2), []
    monkeypatch.setattr(job, "raise_alarm", raised.append)
    group.lose(1)
    group.view.ctl.proc[3].state, group.view.words.process(3).ready = job.ProcessState.DEAD, 0
    with pytest.raises(RoundChanged):
        group.rebuild(1)
    assert raised == [group.view.ctl.plan_round]


@pytest.mark.parametrize("strength", [1, 2])
def test_folded_parity_equals_recomputed_parity(make: Callable[..., Group], strength: int) -> None:
    """Law: parity folded over many versions is the parity of the copies, blocks and checksums."""
    group = make(versions=5, strength=strength)
    group.holds(group.version)
    assert not any(group.scrub_all())
    for j in range(strength):
        group.lose(group.count + j)
        group.rebuild(group.count + j)
        assert vaults.parity_version(group.parities[j].c) == group.version
    group.holds(group.version)
    assert not any(group.scrub_all())


def test_only_what_changed_is_staged(make: Callable[..., Group]) -> None:
    """Law: the stage holds one block per changed block, none for an unchanged member."""
    group = make([10 * BLOCK, 4 * BLOCK], versions=1)
    group.windows[0][[0, BLOCK, 7 * BLOCK + 5]] ^= 1
    group.stage()
    assert [vaults.stage_end(m.c) for m in group.members] == [3, 0]


def test_undo_restores_the_version_before(make: Callable[..., Group]) -> None:
    """Law: after staging, undo gives back every bit; the program can stage again afterwards."""
    group = make(versions=2)
    for _ in range(3):
        group.change()
        group.stage()
        group.undo()
        group.drop()
        group.holds(2)
    group.checkpoint()
    group.holds(3)


def test_undo_leaves_a_committed_version_alone(make: Callable[..., Group]) -> None:
    """Law: undo to the version that was staged changes nothing, however often."""
    group = make(versions=3)
    group.undo()
    group.undo()
    group.holds(3)


@pytest.mark.parametrize("lost", range(len(SIZES)))
@pytest.mark.parametrize("summed", [False, True])
def test_loss_before_the_commit_goes_back(
    make: Callable[..., Group], lost: int, summed: bool
) -> None:
    """Law: a member lost while others have staged, summed or not, is rebuilt at the old version;
    the next checkpoint then works as ever."""
    group = make(versions=2)
    group.change()
    group.stage()
    if summed:
        group.sum()
        group.drop()
    group.undo(*(i for i in range(group.count) if i != lost))
    group.lose(lost)
    group.rebuild(lost)
    group.holds(2)
    group.checkpoint()
    group.holds(3)


@pytest.mark.parametrize("lost", range(len(SIZES)))
def test_loss_after_the_commit_goes_on(make: Callable[..., Group], lost: int) -> None:
    """Law: a member lost between commit and fold is rebuilt at the new version after folding."""
    group = make(versions=2)
    group.change()
    group.stage()
    group.sum()
    group.commit()
    group.undo(*(i for i in range(group.count) if i != lost))
    group.lose(lost)
    group.fold()
    group.rebuild(lost)
    group.holds(3)


def test_dropped_sum_leaves_nothing(make: Callable[..., Group]) -> None:
    """Law: a sum that was not committed has no part in the next one, other blocks or the same."""
    group = make([8 * BLOCK, 8 * BLOCK], versions=1)
    for at in (0, 3 * BLOCK, 0):
        group.windows[0][at] ^= 3
        group.stage()
        group.sum()
        group.drop()
        group.undo()
    group.checkpoint()
    group.holds(2)
    assert not any(group.scrub_all())


@pytest.mark.parametrize("who", [7, 0, 2, 5])
def test_corrupt_byte_is_found_and_repaired(make: Callable[..., Group], who: int) -> None:
    """Law: scrub finds a changed byte in a member's copy or in the parity, rebuilds this block
    and says how many."""
    group = make(versions=3)
    vault = group.element(who)
    for block in (1, 2):
        if block < vaults.used(vault.c):
            flip(vault, block)
    assert group.scrub(who) == (2 if who in (7, 5) else min(2, blocks(SIZES[who])))
    group.holds(3)
    assert group.scrub(who) == 0


def test_two_corrupt_blocks_of_one_column_are_reported(make: Callable[..., Group]) -> None:
    """Law: where more elements are damaged in a block than there are parities, scrub names the
    block and the elements."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    flip(group.members[0], 3)
    flip(group.members[1], 3, at=9)
    with pytest.raises(CorruptVault, match="slot 1 of group 0 is damaged"):
        group.scrub(0)


@pytest.mark.parametrize("where", [5, 7])
@pytest.mark.parametrize("block", [1, 4, 20])
def test_corrupt_byte_and_lost_member_are_reported(
    make: Callable[..., Group], where: int, block: int
) -> None:
    """Law: rebuilding from corrupt input is an error with the block's number, never wrong data."""
    group = make(versions=2)
    flip(group.element(where), block)
    group.lose(4)
    with pytest.raises(CorruptVault, match=f"block {block} of slot 4 cannot be rebuilt"):
        group.rebuild(4)


@pytest.mark.parametrize("where", [5, 7, 8])
def test_corrupt_byte_is_an_erasure_where_the_code_is_strong_enough(
    make: Callable[..., Group], where: int
) -> None:
    """Law: with m = 2 a lost member is rebuilt although another element is damaged; scrubbing
    mends that one too."""
    group = make(versions=2, strength=2)
    for block in (1, 3):
        flip(group.element(where), block)
    group.lose(4)
    group.rebuild(4)
    assert content(group.members[4], SIZES[4]) == group.history[2][4].tobytes()
    assert group.scrub_all() == [2 * (i == where) for i in range(9)]
    group.holds(2)


@pytest.mark.parametrize("staged", [(0,), (1, 3), (5, 6, 2), tuple(range(len(SIZES)))])
def test_parity_of_the_old_version_from_new_copies(
    make: Callable[..., Group], staged: tuple[int, ...]
) -> None:
    """Law: a parity that is rebuilt while some members have staged holds, after unstaging these,
    the old version; a member lost next is rebuilt, and so is the commit that follows."""
    group = make(versions=2, strength=2)
    group.change()
    group.stage(*staged)
    for j in range(2):
        group.lose(group.count + j)
        group.rebuild(group.count + j)
        for i in staged:
            group.unstage(i, j)
        assert content(group.parities[j], group.room) == group.parity_at(2, j)
    rest = [i for i in range(group.count) if i not in staged]
    if rest:
        group.stage(*rest)
    group.sum()
    group.commit()
    group.fold()
    group.holds(3)
    assert not any(group.scrub_all())
    group.lose(2)
    group.rebuild(2)
    group.holds(3)


@pytest.mark.parametrize("failed", [False, True])
def test_parity_that_missed_a_commit(
    make: Callable[..., Group], failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a spare that took a seat while others committed without it is a version behind. It takes
    in what the members have staged; if a slot dies first, its parity counts as lost and is not
    brought to the new version by folding nothing."""
    group = make(versions=2)
    group.change()
    group.stage()
    group.lose(group.count)
    group.rebuild(group.count)
    for i in range(group.count):
        group.unstage(i)
    group.commit()
    view: Any = group.view
    view.proc, view.ctl.commit, view.ctl.nchecksums = group.count, group.version << 1, 1
    view.words.me.summed = view.words.me.folded = group.version - 1
    for i in range(group.count):
        view.words.process(i).staged = group.version
    monkeypatch.setattr(job, "ring", lambda: None)  # the bell belongs to a job
    view.visit, view.role = (lambda place: None), (lambda: (CHECKSUM, 0))
    if failed:
        settle_vault(RepairRound(view, 1, group.parity))
        assert not view.words.me.ready
        return
    server = Server(view, group.parity, None)
    assert [server.step(0), server.step(0)] == [False, True]
    assert view.words.me.summed == view.words.me.folded == group.version
    group.holds(3)
    assert not any(group.scrub_all())


def test_corrupt_copy_is_noticed_before_it_spoils_the_parity(make: Callable[..., Group]) -> None:
    """Law: staging over corrupt blocks of the copy says how many, so that no delta from them is
    folded; rebuilding a parity from a corrupt copy says at which block."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    flip(group.members[0], 3)
    for _ in range(2):
        assert group.remake(group.parity) == 3
    flip(group.members[0], 5)
    group.windows[0][2 * BLOCK] ^= 1  # block 3 of the vault
    group.windows[0][0] ^= 1
    vault, window = group.members[0], group.windows[0]
    vaults.stage_begin(vault.c, 2)
    assert vaults.stage(vault.c, window.ctypes.data, window.size, 1) >= 1


def test_undo_hides_no_damage(make: Callable[..., Group]) -> None:
    """Law: a damaged block that was staged over does not match its checksum, before and after the
    stage is undone, by the vault's own list alone."""
    group = make([6 * BLOCK + 9], versions=1)
    vault = group.members[0]
    for block in (3, 7):
        flip(vault, block, at=5)
    group.windows[0][:] += 1
    group.stage()
    check = vaults.check
    assert [check(vault.c, vault.c, -1, b, b + 1) for b in (2, 3, 7)] == [-1, 3, 7]
    group.undo()
    assert [check(vault.c, vault.c, -1, b, b + 1) for b in (2, 3, 7)] == [-1, 3, 7]


def flip_staged(vault: Vault, place: int) -> None:
    """Change a bit of what is staged, in the block at this place of the stage."""
    np.frombuffer(vaults.stage_view(vault.c, place, 1), "u1")[7] ^= 4


def test_a_bit_that_changes_in_a_stage_comes_back_as_damage(make: Callable[..., Group]) -> None:
    """Law: a stage that is taken back after a bit of it has changed leaves a block that does not
    match its checksum, and the parity mends it."""
    group = make([6 * BLOCK] * 3, versions=1)
    group.windows[0][:] += 1
    group.stage()
    flip_staged(group.members[0], 2)
    group.undo()
    assert group.scrub(0) == 1
    group.holds(1)


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("summed", [False, True])
def test_a_bit_that_changes_before_the_parity_has_it_is_no_answer(
    make: Callable[..., Group], lost: int, summed: bool
) -> None:
    """Law: the parity is wrong then, and what is computed from it does not match the checksum of
    the lost member: the block is named."""
    group = make([6 * BLOCK] * 3, versions=1)
    for window in group.windows:
        window[:] += 1
    group.stage()
    if not summed:
        flip_staged(group.members[0], 2)  # block 3 of the vault
    group.sum()
    if summed:
        flip_staged(group.parity, 3)
    group.commit()
    group.fold()
    group.lose(lost)
    with pytest.raises(CorruptVault, match=f"block 3 of slot {lost} cannot be rebuilt"):
        group.rebuild(lost)


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("spoilt", [0, 1])
def test_another_parity_makes_up_for_one_that_was_spoilt_before_its_sum(
    make: Callable[..., Group], spoilt: int, lost: int
) -> None:
    """Law: with two parities a bit that changes in one of their sums costs nothing."""
    group = make([6 * BLOCK] * 3, versions=1, strength=2)
    group.checkpoint()
    for window in group.windows:
        window[:] += 1
    group.stage()
    group.sum()
    flip_staged(group.parities[spoilt], 3)
    group.commit()
    group.fold()
    group.lose(lost)
    group.rebuild(lost)
    for i, vault in enumerate(group.members):
        assert content(vault, group.windows[i].size) == group.history[3][i].tobytes()


def test_vault_that_grows_takes_the_parity_along(make: Callable[..., Group]) -> None:
    """Law: a member may protect more in a later version than in an earlier one."""
    group = make([3 * BLOCK, 100], versions=2)
    group.windows[1] = np.frombuffer(group.random.bytes(9 * BLOCK + 3), "u1").copy()
    group.checkpoint()
    group.holds(3)
    for i in (0, 1):
        group.lose(i)
        group.rebuild(i)
        group.holds(3)


# ---- files and records ----------------------------------------------------------------------


def test_a_version_in_steps(make: Callable[..., Group]) -> None:
    """Law: a version that is staged in steps is that of one step, whatever is staged again, moves
    and grows; each step can be undone, with all before it."""
    group = make([1, 1])
    vault, other = group.members
    arrays = {name: np.zeros(n, "u1") for name, n in (("a", 9000), ("b", 100), ("c", 3 * BLOCK))}
    record = {"n": 0}

    def regions(*names: str) -> list[Region]:
        return [Region(name, arrays[name].ctypes.data, arrays[name].nbytes) for name in names]

    def change(*names: str, grow: int = 0) -> None:
        for name in names:
            arrays[name] = np.frombuffer(group.random.bytes(arrays[name].nbytes + grow), "u1")

    def holds(expected: dict[str, bytes]) -> None:
        for name, array in expected.items():
            assert bytes(vault.bytes_of(name, len(array))) == array, name

    vault.stage(1, regions("a", "b", "c"), record, SEAL)
    other.stage(1, [], record, SEAL)
    group.sum(), group.commit(), group.fold()
    before = {name: array.tobytes() for name, array in arrays.items()}
    for steps in (1, 2, 3, 4, 5):
        change("a")
        begun = arrays["b"].tobytes()
        vault.begin_stage(2, regions("a", "b"))  # c is gone
        if steps > 1:
            change("a", "c", grow=BLOCK)
            vault.add_to_stage(regions("c", "a"))  # a is staged again, at another place
        if steps > 2:
            change("b", "c")
            vault.add_to_stage(regions("c"))
            vault.add_to_stage(regions("c"))  # which has not changed
        staged = {name: arrays[name].tobytes() for name in ("a", "c")}
        if steps < 5:
            if steps > 3:
                vault.end_stage(record, SEAL)
            group.undo(0)
            vault.undone(Version(1))
            assert vault.read_record(SEAL)["n"] == 0
            holds(before)
    size_bytes, dirty_bytes = vault.end_stage({"n": 2}, SEAL)
    assert sum(map(len, staged.values())) + 100 < size_bytes < dirty_bytes
    other.stage(2, [], record, SEAL)
    group.sum(), group.commit(), group.fold()
    assert not any(group.scrub_all())
    group.lose(0)
    group.rebuild(0)
    vault = group.members[0]
    assert vault.read_record(SEAL)["n"] == 2
    holds({**staged, "b": begun})


def test_record_explains_a_rebuilt_vault(make: Callable[..., Group], tmp_path: Path) -> None:
    """Law: a vault that was rebuilt from parity tells by its record where everything is; what is
    copied out is what was staged, and only what differs is written."""
    group = make([1, 1])
    arrays = [np.frombuffer(group.random.bytes(n), "u1").copy() for n in (5000, 3 * BLOCK, 1)]
    other = np.frombuffer(group.random.bytes(7 * BLOCK), "u1").copy()
    regions = [Region(("window", i), a.ctypes.data, a.nbytes) for i, a in enumerate(arrays)]
    for version in (1, 2, 3):
        arrays[1][::1000] += 1
        if version == 3:
            arrays[0] = np.frombuffer(group.random.bytes(9 * BLOCK), "u1").copy()
            regions[0] = Region(("window", 0), arrays[0].ctypes.data, arrays[0].nbytes)
        record = {"states": {"main": b"x" * 900 * version}, "ordinal": version}
        protected, dirty = group.members[0].stage(version, regions, record, SEAL)
        assert protected > sum(a.nbytes for a in arrays) and 0 < dirty <= 30 * BLOCK
        regions_of_other = [Region("o", other.ctypes.data, other.nbytes)]
        group.members[1].stage(version, regions_of_other, {"n": version}, SEAL)
        group.sum()
        group.commit()
        group.fold()
    group.lose(0)
    group.rebuild(0)
    found = group.members[0].read_record(SEAL)
    assert found["ordinal"] == 3 and found["states"] == {"main": b"x" * 2700}
    for key, array in zip((("window", i) for i in range(3)), arrays, strict=True):
        to = np.zeros_like(array)
        assert group.members[0].copy_out(key, to.ctypes.data, to.nbytes) == to.nbytes
        assert to.tobytes() == array.tobytes()
        assert group.members[0].copy_out(key, to.ctypes.data, to.nbytes) == 0
    # The map went along: the next checkpoint leaves everything where it is.
    before = dict(group.members[0].extents.regions)
    group.members[0].stage(4, regions, record, SEAL)
    assert {k: v for k, v in group.members[0].extents.regions.items() if k != "record"} == {
        k: v for k, v in before.items() if k != "record"
    }


def test_damaged_head_is_an_error(make: Callable[..., Group]) -> None:
    """Law: an empty or overwritten first block is CorruptVault, not nonsense."""
    group = make([1])
    with pytest.raises(CorruptVault, match="first block is damaged"):
        group.members[0].read_record(SEAL)


def test_full_vault_is_an_error_in_words(make: Callable[..., Group]) -> None:
    """Law: more blocks than the capacity is an FtrmaError with the remedy."""
    group = make([1])
    with pytest.raises(FtrmaError, match="shared memory is full; free space"):
        group.members[0].reserve(CAPACITY + 1)
    group.members[0].reserve(CAPACITY)


def test_foreign_file_is_refused(make: Callable[..., Group], tmp_path: Path) -> None:
    """Law: a file that is no vault or not a whole one, or missing is an FtrmaError; one that is
    there has its own capacity."""
    group = make([1])
    (tmp_path / "other").write_bytes(bytes(64 * BLOCK))
    os.truncate(tmp_path / "other", group.view.vault_path(1).stat().st_size)
    (tmp_path / "begun").touch()  # its process was killed while it made it
    whole = group.view.vault_path(1)
    (tmp_path / "short").write_bytes(whole.read_bytes()[: 4 * BLOCK])
    for name in ("other", "missing", "begun", "short"):
        with pytest.raises(FtrmaError, match="opening"):
            Vault(tmp_path / name, CAPACITY, 1, create=False)
    again = Vault(whole, CAPACITY // 2, group.count, create=False)
    again.reserve(CAPACITY)
    with pytest.raises(FtrmaError):
        again.reserve(CAPACITY + 1)
    again.close()


def test_clear_and_copy_touch_only_what_differs() -> None:
    """Law: clearing zeros writes nothing, a changed byte costs one block."""
    loading.load()
    memory = np.zeros(5 * BLOCK + 3, "u1")
    address = memory.ctypes.data
    assert logs.clear(address, memory.nbytes) == 0
    memory[BLOCK] = memory[-1] = 1
    assert logs.clear(address, memory.nbytes) == BLOCK + 3 and not memory.any()


def test_a_stage_can_be_undone_while_others_write(make: Callable[..., Group]) -> None:
    """Law: undoing gives back the copy of before, also where memory changed under the staging, in
    whole blocks and in the last one that is not."""
    group = make([2])
    vault, size_bytes = group.members[0], BLOCK + 4000
    vault.reserve(2, staging=2)
    memory = np.zeros(size_bytes, np.uint8)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            memory[:] += 1

    def stage(version: int) -> None:
        vaults.stage_begin(vault.c, version)
        vaults.stage(vault.c, memory.ctypes.data, size_bytes, 0)

    stage(1)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        before = bytes(vault.bytes_at(0, 2 * BLOCK))
        for _ in range(1500):
            stage(2)
            vaults.stage_undo(vault.c, 1)
            assert bytes(vault.bytes_at(0, 2 * BLOCK)) == before
            assert vaults.check(vault.c, vault.c, -1, 0, 2) == -1
    finally:
        stop.set()
        writer.join()
