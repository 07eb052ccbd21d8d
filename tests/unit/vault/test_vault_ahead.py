"""Memory of vaults that is taken while the program computes: as much as is wanted, used by nobody
before it is needed, and no hindrance to who needs it before it is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vaultgroup import SEAL, Apart, Group

from ftrma.native import loading, vaults
from ftrma.native.shared import Version
from ftrma.protocol import preallocation
from ftrma.protocol.server import Server
from ftrma.vault.group import forget_vault
from ftrma.vault.vault import BLOCK, Region, Vault

CAPACITY = 4096
OTHER = 8  # blocks of a vault's lists, at most
LIMIT_S = 20.0


@pytest.fixture(autouse=True)
def library() -> None:
    loading.load()


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    made = Vault(tmp_path / "vault", CAPACITY, 1, create=True)
    yield made
    made.close()


def taken(path: Path) -> int:
    """Blocks of a file that there is memory for."""
    return path.stat().st_blocks * 512 // BLOCK


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_what_is_wanted_is_taken_and_no_more(vault: Vault, tmp_path: Path) -> None:
    """Law: so many blocks of the copy and of the stage; none is in use; later more can be."""
    before, path = threads(), tmp_path / "vault"
    for copy, stage in ((100, 30), (1000, 30), (1000, 999), (10, 10)):
        vault.reserve_ahead(copy, staging=stage)
        most = max(copy, 1000 if stage == 10 else 0) + max(stage, 999 if stage == 10 else 0)
        until(lambda most=most: taken(path) >= most)  # type: ignore[misc]
        until(lambda: threads() == before)
        assert most <= taken(path) <= most + OTHER and vault.used == 0
    vault.reserve_ahead(CAPACITY + 1, staging=0)  # more than there can be; a checkpoint tells
    until(lambda: threads() == before)
    assert taken(path) <= 1999 + OTHER


@pytest.mark.plain
def test_a_checkpoint_may_come_at_any_time(tmp_path: Path) -> None:
    """Law: amid the taking, before it and behind it a checkpoint holds the bytes that it is given,
    and who closes a vault waits for its thread."""
    before = threads()
    window = np.random.default_rng(1).integers(0, 255, 900 * BLOCK, np.uint8)
    for i in range(12):
        path = tmp_path / f"vault-{i}"
        vault = Vault(path, CAPACITY, 1, create=True)
        vault.reserve_ahead(2 + 900, staging=2 + 900)
        until(lambda i=i, path=path: taken(path) >= 150 * i)  # type: ignore[misc]
        vault.stage(Version(1), [Region("w", window.ctypes.data, window.nbytes)], {}, SEAL)
        vault.reserve_ahead(2 + 950, staging=2 + 950)
        assert vault.bytes_of("w", window.nbytes)[:] == window.tobytes()
        assert vaults.check(vault.c, vault.c, -1) < 0
        vault.close()
        assert threads() == before


SHORT = """
import os, sys, time
from pathlib import Path
from ftrma.host.errors import FtrmaError
from ftrma.native import loading
from ftrma.vault.group import forget_vault
from ftrma.vault.vault import BLOCK, Vault
loading.load()
path = Path("/dev/shm/vault")
vault = Vault(path, 4096, 1, create=True)
before = len(os.listdir("/proc/self/task"))
vault.reserve_ahead(4000, staging=4000)
while len(os.listdir("/proc/self/task")) > before:
    time.sleep(0.001)
print(path.stat().st_blocks * 512 // BLOCK)
for ahead in (False, True):
    try:
        vault.reserve(4000)
    except FtrmaError as error:
        print(error)
    vault.reserve_ahead(4000, staging=4000)
vault.reserve(900, staging=900)
vault.close()
"""


@pytest.mark.skipif(bool(subprocess.run(["unshare", "--mount", "true"], capture_output=True)
                         .returncode), reason="no mount namespace may be made here")
def test_memory_that_is_short_ends_it() -> None:
    """Law: a part of the shared memory is left to others; the checkpoint that needs more is told,
    and one that needs less finds what it needs."""
    mount = 'mount -t tmpfs -o size=8m tmpfs /dev/shm; exec "$@"'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c",
                           SHORT], capture_output=True, text=True, timeout=60)
    blocks, *told = done.stdout.splitlines()
    assert done.returncode == 0 and len(told) == 2, done
    assert 1700 < int(blocks) <= 2048 - 2048 // 16, done
    assert all("taking 16384000 bytes: shared memory is full" in line for line in told), done


def test_a_vault_that_is_made_anew_is_left_alone(vault: Vault, tmp_path: Path) -> None:
    """Law: nothing more is taken of the file that it was."""
    vault.reserve_ahead(CAPACITY, staging=CAPACITY)
    old = os.open(tmp_path / "vault", os.O_RDONLY)
    vault.renew(tmp_path / "vault")
    vault.release()
    size = os.fstat(old).st_blocks
    time.sleep(0.02)
    assert os.fstat(old).st_blocks == size and taken(tmp_path / "vault") <= OTHER
    os.close(old)


@pytest.mark.parametrize("room", ["enough", "too little"])
def test_a_slot_expects_what_fits(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    """Law: all vaults of the node must fit into what is free, or the slot does nothing and says
    nothing; what it says is what its checkpoint will have, about."""
    view: Any = Apart(tmp_path)
    view.ctl.nprocs, sizes = 4, (1, BLOCK, 100 * BLOCK + 1)
    need = 4 * 2 * (2 + 1 + 1 + 101) * BLOCK
    monkeypatch.setattr(preallocation, "room_bytes", lambda directory: need - (room != "enough"))
    preallocation.preallocate(view, vault, sizes)
    expected = 105 if room == "enough" else 0
    assert view.words.me.blocks == expected
    until(lambda: taken(tmp_path / "vault") >= 2 * expected)
    window = np.ones(101 * BLOCK, np.uint8)
    regions = [Region(i, window.ctypes.data, n) for i, n in enumerate(sizes)]
    vault.stage(Version(1), regions, {}, SEAL)
    assert vault.extents.end == 105


def test_servers_take_what_slots_expect(make: Callable[..., Group]) -> None:
    """Law: a checksum rank the parity and the sum, a spare one such part; each once."""
    group = make([3 * BLOCK, 200 * BLOCK])
    view: Any = group.view
    view.ctl.nprocs, view.proc = 4, 3
    checksum, spare = Server(view, group.parity, None), Server(view, None, None)
    for server, serve in ((checksum, lambda: checksum.prepare(0)), (spare, spare.stand_by)):
        serve()
        assert server.room == 0
    view.words.process(1).blocks = 200
    for server, serve, parts in ((checksum, lambda: checksum.prepare(0), 2),
                                 (spare, spare.stand_by, 1)):
        serve()
        assert server.vault and server.room == 200
        path = view.vault_path(2 if server is checksum else 3)
        until(lambda path=path, parts=parts: taken(path) >= parts * 200)  # type: ignore[misc]
        assert taken(path) <= parts * 200 + OTHER and server.vault.used == 0
    assert view.mapped_vaults == {}
    assert spare.vault
    spare.vault.close()


@pytest.mark.parametrize("state", ["absent", "unfinished"])
def test_a_spare_stands_by_while_a_vault_is_made(make: Callable[..., Group], state: str) -> None:
    """Law: it maps the others; a process that takes a seat removes its vault and makes it anew."""
    group = make([3 * BLOCK, 3 * BLOCK], versions=1)
    view: Any = group.view
    view.ctl.nprocs, view.proc, view.ctl.commit = 4, 3, 1 << 1
    view.words.process(0).blocks = 4
    forget_vault(view, 1)
    path = view.vault_path(1)
    path.unlink()
    if state == "unfinished":
        path.touch(0o600)
    spare = Server(view, None, None)
    spare.stand_by()
    assert set(view.mapped_vaults) == {0, 2} and spare.vault
    spare.vault.close()
