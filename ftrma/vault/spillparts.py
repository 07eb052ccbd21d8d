"""Writes a vault's part of a checkpoint into files (`fabric.spillfiles`), and fills a vault from
them.

Law: a file is whole, and on the disk, before another file refers to it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..fabric import spillfiles
from ..fabric.spillfiles import (
    FORMAT,
    MANIFEST,
    Damaged,
    Part,
    Point,
    SavedArray,
    arrays_of,
    tagged,
)
from ..host import private
from ..host import record as records
from ..host.errors import CorruptVault
from ..host.record import Seal
from ..native import vaults
from ..native.shared import Version
from ..native.vaults import BLOCK
from .vault import Region, Vault, blocks

PIECE_BYTES = 4 << 20  # written at a time
SHARE = 0.5  # a file of an earlier checkpoint is reused while so much of it is in use


@dataclass
class DataFile:
    """A file with arrays of one slot.

    Attributes:
        name: its name without suffix.
        places: by key, the offset in bytes of each array in it that is in use.
        size_bytes: size of the file.
    """

    name: str
    places: dict[Any, int] = field(default_factory=dict)
    size_bytes: int = 0


@dataclass
class PartWriter:
    """Writes the parts of one slot, one checkpoint after the other.

    Args:
        directory: directory of the checkpoints.
        slot: number of the slot.
        pace: called with the number of bytes before they are written; it waits so that the rate is
            kept.

    Attributes:
        files: the files of the newest part, to which links can be made.
        written: the version of these files; 0: there are none.
    """

    directory: Path
    slot: int
    pace: Callable[[int], None] = lambda size_bytes: None
    files: list[DataFile] = field(default_factory=list)
    written: tuple[Point, Vault] | None = None

    def write(self, point: Point, vault: Vault, seal: Seal) -> int:
        """Write the part of a checkpoint; return how many bytes were written.

        A part that is already whole stays: another process had the slot, and a manifest may refer
        to the part's files.

        Args:
            vault: the slot's vault, whose copy is at the version and stays so meanwhile.
            seal: the seal of the vault's record.

        Raises:
            OSError: it cannot be written; then nothing of it is left. CorruptVault: the copy is
                damaged. FtrmaError: there is no key, or the directory is not this user's.
        """
        if (self.directory / point.name / self.name).exists():
            return 0
        try:
            return self._write(point, vault, seal)
        except BaseException:  # the incomplete part would keep a full disk full
            _remove_part(self.directory / point.name, self.slot)
            raise

    @property
    def name(self) -> str:
        """Return the name of the file that is written last."""
        return f"slot-{self.slot}.json"

    def _write(self, point: Point, vault: Vault, seal: Seal) -> int:
        record = vault.record_of(seal)
        extents = record.pop("extents")
        del record["end"]
        arrays = arrays_of(record)
        place = self.directory / point.name
        private.make_directory(place)
        _remove_part(place, self.slot)
        kept = self._link(place, vault, arrays)
        fresh = DataFile(f"slot-{self.slot}-{point.name}")
        rest = [array for array in arrays if not any(array.key in file.places for file in kept)]
        if rest:
            self._write_data(place / fresh.name, fresh, rest, extents, vault)
        files = [*kept, *([fresh] if rest else [])]
        text = records.encode(
            {"record": record, "files": [[file.name, list(file.places.items())] for file in files]},
            Seal(spillfiles.key(), f"slot {self.slot}", f"{point.name} in files"))
        private.replace(place / f"slot-{self.slot}.record", text, lasting=True)
        private.replace(place / self.name, tagged(f"{point.name}/{self.name}", {
            "format": FORMAT, "slot": self.slot, "entry": point.entry, "version": point.version,
            "arrays": [{"name": array.name, "dtype": _dtype_text(array.dtype),
                        "shape": array.shape, "file": f"{file.name}.data",
                        "offset": file.places[array.key]}
                       for array in arrays for file in files if array.key in file.places],
            "files": {file.name: _sizes(place / file.name) for file in files},
            "record": {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}}),
            lasting=True)
        self.files, self.written = files, (point, vault)
        return fresh.size_bytes

    def _link(self, place: Path, vault: Vault, arrays: Sequence[SavedArray]) -> list[DataFile]:
        """Link those files of the part before that have unchanged arrays."""
        if not self.written or self.written[1] is not vault:
            return []
        before, since = self.directory / self.written[0].name, self.written[0].version
        same = {array.key: array.size_bytes for array in arrays
                if vault.changed.get(array.key, since + 1) <= since}
        kept = []
        for file in self.files:
            places = {key: at for key, at in file.places.items() if key in same}
            if sum(same[key] for key in places) < SHARE * file.size_bytes or not places:
                continue
            try:
                for suffix in (".crc", ".data"):
                    os.link(before / f"{file.name}{suffix}", place / f"{file.name}{suffix}")
            except OSError:  # links do not work, or it was removed: write it again
                for suffix in (".crc", ".data"):
                    (place / f"{file.name}{suffix}").unlink(missing_ok=True)
                continue
            kept.append(DataFile(file.name, places, file.size_bytes))
        return kept

    def _write_data(self, path: Path, file: DataFile, arrays: Sequence[SavedArray],
                    extents: Mapping[Any, tuple[int, int]], vault: Vault) -> None:
        """Write arrays from the vault's copy, and the checksums of their blocks."""
        crcs = vaults.crcs(vault.c, -1, vault.used)
        sums = []
        with private.make(path.with_suffix(".data")) as data:
            _bypass_cache(data.fileno(), True)
            for array in arrays:
                first, count = extents[array.key][0], blocks_of(array.size_bytes)
                damaged = vaults.check(vault.c, vault.c, -1, first, first + count)
                if damaged >= 0:
                    raise CorruptVault(f"block {damaged} of the vault is damaged")
                file.places[array.key] = file.size_bytes
                file.size_bytes += count * BLOCK
                sums.append(crcs[first:first + count].copy())
                view = memoryview(vault.bytes_at(first, count * BLOCK))
                for at in range(0, len(view), PIECE_BYTES):
                    self.pace(min(PIECE_BYTES, len(view) - at))
                    _write_all(data.fileno(), view[at:at + PIECE_BYTES])
            self.pace(0)  # raises if the copy was overwritten meanwhile
            os.fsync(data.fileno())
        private.replace(path.with_suffix(".crc"), np.concatenate(sums).astype("<u4").tobytes(),
                        lasting=True)


def blocks_of(size_bytes: int) -> int:
    """Return how many blocks an array takes in a file, as in the vault; an empty array takes
    one."""
    return max(1, blocks(size_bytes))


def _bypass_cache(fd: int, bypass: bool) -> bool:
    """Make writes go from the vault to the disk without a copy, or not any more; False: not
    possible.

    A copy in the page cache would cost the program CPU time and memory, and nobody reads it soon.
    """
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    wanted = flags | os.O_DIRECT if bypass else flags & ~os.O_DIRECT
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, wanted)
    except OSError:  # this file system has no such writes
        return False
    return wanted != flags


def _write_all(fd: int, data: memoryview) -> None:
    """Write all bytes to a file, in several calls if necessary."""
    while data:
        try:
            data = data[os.write(fd, data):]
        except OSError as error:
            # Writes past the cache need whole sectors, at offsets that are multiples of a sector.
            if error.errno != errno.EINVAL or not _bypass_cache(fd, False):
                raise


def _sizes(path: Path) -> dict[str, Any]:
    sums = path.with_suffix(".crc").read_bytes()
    return {"bytes": BLOCK * len(sums) // 4, "crc_sha256": hashlib.sha256(sums).hexdigest()}


def _dtype_text(dtype: np.dtype[Any]) -> Any:
    return dtype.str if dtype.names is None else dtype.descr


def _remove_part(place: Path, slot: int) -> None:
    """Remove what an earlier process has left of a part that it did not finish."""
    for path in place.glob(f"slot-{slot}[-.]*"):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


# ---- a checkpoint of all slots --------------------------------------------------------------


def complete(directory: Path, point: Point, slots: int, facts: Mapping[str, Any]) -> str:
    """Write the manifest, when all slots have written their parts.

    Args:
        facts: facts about the job, which `read_manifest` returns again.

    Returns:
        "", or why the checkpoint is not whole: some slot's part is missing.
    """
    place, parts = directory / point.name, {}
    for slot in range(slots):
        name = f"slot-{slot}.json"
        try:
            parts[name] = hashlib.sha256(private.read(place / name)).hexdigest()
        except FileNotFoundError:
            return f"slot {slot} has written no files of it"
    content = {"format": FORMAT, "entry": point.entry, "version": point.version, "slots": slots,
               "written": time.time(), "parts": parts, **facts}
    private.replace(place / MANIFEST, tagged(f"{point.name}/{MANIFEST}", content), lasting=True)
    for path in (place, directory):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    return ""


# ---- and back -------------------------------------------------------------------------------


def fill(part: Part, vault: Vault, version: Version, seal: Seal) -> None:
    """Fill an empty vault with a part; it is then at this version.

    Args:
        seal: the seal of the vault's record.

    Raises:
        Damaged: something is not what was written. NoRoom: there is not enough memory.
    """
    found = part.record()
    with contextlib.ExitStack() as stack:
        regions, expected = [], {}
        record = found["record"]
        sizes = {array.key: array.size_bytes for array in arrays_of(record)}
        for name, places in found["files"]:
            data, sums = stack.enter_context(part.data(name)), part.sums(name)
            base = vaults.address_of(data)
            for key, at in places:
                # These are whole blocks: the rest of an array's last block is part of its checksum.
                count = blocks_of(sizes[key])
                regions.append(Region(key, base + at, count * BLOCK))
                expected[key] = sums[at // BLOCK:at // BLOCK + count]
        vault.write(regions, record, seal)
        crcs = vaults.crcs(vault.c, -1, vault.used)
        for region in regions:
            first, wanted = vault.extents.regions[region.key][0], expected[region.key]
            if not np.array_equal(crcs[first:first + len(wanted)], wanted):
                raise Damaged(f"{part.point.name}: data of slot {part.slot} are damaged "
                              f"({' '.join(map(str, region.key))})")
    vault.words.version = version
