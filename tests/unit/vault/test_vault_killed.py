"""A process is killed in the middle of staging, summing or folding: a whole version is left.

It dies by touching a page that is not there, so the instant is exact; or it is stopped after one
instruction and another, and what it would leave there is taken over.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vaultgroup import Group, content

from ftrma.native import vaults
from ftrma.vault.group import mapped_vault
from ftrma.vault.vault import BLOCK, Vault


def killed_at(address: Any, work: Callable[[], object]) -> None:
    """Do `work` in a process that dies when it touches the page at `address`."""
    pid = os.fork()
    if pid == 0:
        for number in (signal.SIGSEGV, signal.SIGBUS):
            signal.signal(number, signal.SIG_DFL)
        ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(BLOCK))
        work()
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1]), "the process lived"


PTRACE_TRACEME, PTRACE_KILL, PTRACE_SINGLESTEP = 0, 8, 9


def steps_of(work: Callable[[], object], every: int) -> Iterator[int]:
    """Do `work` in a process that stops after `every` instructions, again and again; yields their
    number so far while it stands still."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    pid = os.fork()
    if pid == 0:
        if ptrace(PTRACE_TRACEME, 0, None, None):
            os._exit(1)
        os.kill(os.getpid(), signal.SIGSTOP)
        work()
        os._exit(0)
    count = 0
    try:
        while os.WIFSTOPPED(status := os.waitpid(pid, 0)[1]):
            if count % every == 0:
                yield count
            count += 1
            assert not ptrace(PTRACE_SINGLESTEP, pid, None, None)
        pid = 0
        if os.waitstatus_to_exitcode(status):
            pytest.skip("no process can be traced here")
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def copy_of(vault: Path, path: Path) -> None:
    """Copy what a killed process would leave."""
    path.touch(0o600)
    shutil.copyfile(vault, path)


@pytest.mark.full
@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("in_steps", [False, True])
def test_an_undo_that_is_killed_anywhere_is_finished_by_the_next(
    make: Callable[..., Group], tmp_path: Path, again: bool, in_steps: bool
) -> None:
    """Law: whoever takes over the vault of a process that was killed amid going back comes to the
    committed version, bit for bit and with its checksums, also when he is killed as well, and if
    a block was staged several times."""
    group = make([4 * BLOCK], versions=2)
    vault, path = group.members[0], tmp_path / "taken-over"
    before = vaults.crcs(vault.c, -1, vault.used).copy()
    group.windows[0][[0, BLOCK + 7, 3 * BLOCK]] += 1
    group.stage()
    assert vault.staged_blocks().size == 3
    if in_steps:
        group.windows[0][3 * BLOCK :] += 7
        vaults.stage(vault.c, group.windows[0].ctypes.data, 4 * BLOCK, 1)
        assert vault.staged_blocks().tolist() == [1, 2, 4, 4]
    if again:
        stop = next(n for n in steps_of(group.undo, 1) if vault.staged_blocks().size == 2)
        print(f"killed after {stop} instructions")
    left, stages = set(), 0
    for _ in steps_of(group.undo, 61):
        left.add(vault.staged_blocks().size)
        copy_of(group.view.vault_path(0), path)
        one = Vault(path, group.capacity, group.count, create=False)
        vaults.stage_undo(one.c, 2)
        assert content(one, 4 * BLOCK) == group.history[2][0].tobytes()
        assert (vaults.crcs(one.c, -1, one.used) == before).all()
        one.close()
        stages += 1
    assert stages > 50 and left >= {0, 1, 2}


@pytest.mark.plain
def test_a_fold_that_is_killed_anywhere_is_finished_by_the_next(
    make: Callable[..., Group], tmp_path: Path
) -> None:
    """Law: a parity whose folding was killed comes to the committed version, no block twice."""
    group = make([3 * BLOCK, 3 * BLOCK], versions=1)
    path = tmp_path / "taken-over"
    for window in group.windows:
        window[:] = np.frombuffer(group.random.bytes(window.size), "u1")
    group.stage()
    group.sum()
    group.commit()
    want, states = group.parity_at(2), set()
    for _ in steps_of(group.fold, 61):
        now = content(group.parity, group.room)
        states.add(sum(now[i * BLOCK : (i + 1) * BLOCK] == want[i * BLOCK : (i + 1) * BLOCK]
                       for i in range(3)))
        copy_of(group.view.vault_path(group.count), path)
        one = Vault(path, group.capacity, group.count, create=False)
        vaults.parity_fold(one.c, 2)
        assert content(one, group.room) == want
        crcs = vaults.crcs(one.c, -1, one.used).copy()
        one.close()
    assert states == {0, 1, 2, 3}
    group.holds(2)
    assert (crcs == vaults.crcs(group.parity.c, -1, group.parity.used)).all()
    assert not any(group.scrub_all())


def stage_page(group: Group, vault: Vault, index: int) -> int:
    return int(group.ffi.cast("uintptr_t", group.ffi.from_buffer(vault.stage_bytes(index, 1))))


def test_undo_after_death_in_the_middle_of_staging(make: Callable[..., Group]) -> None:
    """Law: a vault whose process was killed while staging (all were, with the launcher) goes back
    to the version before: what was staged so far can be told and undone."""
    group = make([8 * BLOCK, 2 * BLOCK], versions=1)
    memory = np.frombuffer(mmap.mmap(-1, 8 * BLOCK), "u1")
    memory[:] = np.frombuffer(group.random.bytes(memory.size), "u1")
    group.windows[0] = memory
    killed_at(memory.ctypes.data + 4 * BLOCK, lambda: group.stage(0))
    assert content(group.members[0], BLOCK) != group.history[1][0][:BLOCK].tobytes()
    group.undo()
    group.holds(1)


@pytest.mark.parametrize("written", [0, 8, 1000, 2048, BLOCK - 8, BLOCK])
def test_undo_of_a_block_that_was_being_staged(make: Callable[..., Group], written: int) -> None:
    """Law: a block whose front is new already, when the process is killed, is taken back too."""
    group = make([8 * BLOCK], versions=2)
    vault = group.members[0]
    group.windows[0][: 2 * BLOCK] += 1
    group.stage()
    assert vault.staged_blocks().tolist() == [1, 2]
    old, new = vault.bytes_at(5, BLOCK)[:], group.random.bytes(BLOCK)
    delta = bytes(a ^ b for a, b in zip(old, new, strict=True))
    numbers = vault.staged_blocks()
    group.ffi.cast("uint32_t *", numbers.ctypes.data)[numbers.size] = 5
    vault.stage_bytes(2, 1)[:] = delta[: written + 8].ljust(BLOCK, b"?")[:BLOCK]
    vault.bytes_at(5, BLOCK)[:written] = new[:written]
    group.undo()
    group.holds(2)
    assert not any(group.scrub_all())


def test_undo_of_a_block_that_lacks_its_checksum(make: Callable[..., Group]) -> None:
    """Law: a block that is staged and counted, its checksum not yet written, is taken back."""
    group = make([8 * BLOCK], versions=2)
    vault = group.members[0]
    before = vaults.crcs(vault.c, -1, vault.used)[:9].copy()
    group.windows[0][[0, 5 * BLOCK]] += 1
    group.stage()
    assert vault.staged_blocks().tolist() == [1, 6]
    vaults.crcs(vault.c, -1, vault.used)[6] = before[6]
    group.undo()
    group.holds(2)
    assert (vaults.crcs(vault.c, -1, vault.used)[:9] == before).all()
    assert not any(group.scrub_all())


def test_drop_after_death_in_the_middle_of_summing(make: Callable[..., Group]) -> None:
    """Law: a checksum rank killed while summing leaves nothing that the next sum takes up."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    for window in group.windows:
        window += 1
    group.stage()
    killed_at(stage_page(group, mapped_vault(group.view, 1), 2), group.sum)
    group.drop()
    group.undo()
    group.holds(1)
    group.windows[0][5 * BLOCK] ^= 1
    group.stage()
    group.sum()
    group.commit()
    group.fold()
    group.holds(2)


def test_fold_after_death_in_the_middle_of_folding(make: Callable[..., Group]) -> None:
    """Law: folding that was cut short is finished by folding again; no block counts twice."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    for window in group.windows:
        window += 1
    group.stage()
    group.sum()
    group.commit()
    killed_at(stage_page(group, group.parity, 4), group.fold)
    assert vaults.parity_version(group.parity.c) == 1
    group.fold()
    group.holds(2)
    assert not any(group.scrub_all())
