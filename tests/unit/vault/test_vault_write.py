"""A vault that is written over: what is in it is what was there, whatever had been in it before.

Demand checkpoints are written so. The C functions work on files, as in a job; MPI is not started.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from vaultgroup import SEAL

from ftrma.host.errors import FtrmaError
from ftrma.native import loading, vaults
from ftrma.vault.vault import BLOCK, Region, Regions, Vault

CAPACITY = 512
SEED = 141421
SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, 4 * BLOCK + 5, 23 * BLOCK + 17, 0]

Bytes = npt.NDArray[np.uint8]


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    loading.load()
    made = Vault(tmp_path / "vault", CAPACITY, 0, create=True)
    yield made
    made.close()


def regions_of(arrays: list[Bytes]) -> Regions:
    return [Region(i, array.ctypes.data, array.nbytes) for i, array in enumerate(arrays)]


def some(seed: int) -> list[Bytes]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, n, dtype="u1") for n in SIZES]


def assert_holds(vault: Vault, arrays: list[Bytes], path: Path) -> None:
    """Also for one who opens the file anew, and with checksums that match."""
    again = Vault(path, CAPACITY, 0, create=False)
    assert vaults.check(again.c, again.c, -1, 0, again.used) == -1
    assert again.read_record(SEAL)["note"] == "kept"
    for i, array in enumerate(arrays):
        assert bytes(again.bytes_of(i, array.nbytes)) == array.tobytes()
    again.close()


def test_each_write_replaces_the_one_before(vault: Vault, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    for turn in range(3):
        arrays = some(SEED + turn)
        size_bytes, changed = vault.write(regions_of(arrays), {"note": "kept"}, SEAL)
        assert size_bytes >= sum(SIZES) and changed >= 35 * BLOCK
        assert_holds(vault, arrays, tmp_path / "vault")


def test_only_blocks_that_differ_are_counted(vault: Vault, tmp_path: Path) -> None:
    arrays = some(SEED)
    vault.write(regions_of(arrays), {"note": "kept"}, SEAL)
    assert vault.write(regions_of(arrays), {"note": "kept"}, SEAL)[1] == 0
    arrays[6][-1] ^= 1
    arrays[3][0] ^= 1
    assert vault.write(regions_of(arrays), {"note": "kept"}, SEAL)[1] == 2 * BLOCK
    assert_holds(vault, arrays, tmp_path / "vault")


def test_a_damaged_block_is_written_anew(vault: Vault, tmp_path: Path) -> None:
    """Its checksum is that of what should be there."""
    arrays = some(SEED)
    vault.write(regions_of(arrays), {"note": "kept"}, SEAL)
    first = vault.extents.regions[4][0]
    vault.bytes_at(first + 2, BLOCK)[7] = bytes([arrays[4][2 * BLOCK + 7] ^ 1])
    assert vaults.check(vault.c, vault.c, -1, 0, vault.used) == first + 2
    assert vault.write(regions_of(arrays), {"note": "kept"}, SEAL)[1] == BLOCK
    assert_holds(vault, arrays, tmp_path / "vault")


def test_others_may_store_into_a_region_meanwhile(vault: Vault) -> None:
    """A block's checksum is that of what was copied, whenever the bytes came."""
    array, end = np.zeros(200 * BLOCK + 17, "u1"), threading.Event()

    def store() -> None:
        while not end.is_set():
            np.add(array, 1, out=array)

    other = threading.Thread(target=store)
    other.start()
    try:
        for _ in range(60):
            vault.write(regions_of([array]), {"note": "kept"}, SEAL)
            assert vaults.check(vault.c, vault.c, -1, 0, vault.used) == -1
    finally:
        end.set()
        other.join()
    assert np.any(np.frombuffer(vault.bytes_of(0, array.nbytes), "u1"))


def test_more_than_there_is_room_for_is_an_error(vault: Vault) -> None:
    with pytest.raises(FtrmaError, match="taking"):
        vault.write([Region("x", 1, CAPACITY * BLOCK)], {}, SEAL)
