"""Checkpoints in files: their format, their parts by slot, and what makes a checkpoint whole.

A directory holds the checkpoints of one job. Each checkpoint has a directory of its own, named by
the entry (how often the job was begun from files, counted from 1) and the version:

    0001-000012/
      slot-0.json              what slot 0 had: its arrays, and in which file each lies
      slot-0.record            for ftrma alone: counters, and fields that are no arrays
      slot-0-0001-000012.data  bytes of arrays, each from a multiple of 4096 bytes on
      slot-0-0001-000012.crc   CRC-32C (initial value and final XOR 0) of each 4096 bytes of it,
                               little-endian uint32
      ...
      manifest.json            written last: the checkpoint is whole

An array that has not changed since an earlier checkpoint is not written again: its file is a hard
link to the earlier one. The JSON files and the record have a tag over their name and content, made
with the user's own key (`ftrma.host.userkey`). Nothing is parsed before its tag was checked, and no
bytes are used that do not match their checksums.

Law: a checkpoint with a manifest was whole when the manifest was written, and everything that is
read from it is what was written then. Otherwise it is refused, and the file and the reason are
told.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..host import outfile, private, userkey
from ..host import record as records
from ..host.errors import CorruptVault, FtrmaError
from ..host.key import TAG_BYTES, Key
from ..host.record import Seal
from ..native import vaults
from ..native.shared import Version
from ..native.vaults import BLOCK

if TYPE_CHECKING:  # NumPy takes 0.06 s of CPU to load, and most jobs have no such files
    import numpy as np

FORMAT = 1
PURPOSE = b"checkpoint in files"
MANIFEST = "manifest.json"
NAME = re.compile(r"(\d{4,})-(\d{6,})")
_HEAD = b'{"tag": "'


_given: Key | None = None  # set on a node that is not the supervisor's


def key() -> Key:
    """Return the key for files of checkpoints, which is derived from the user's own key.

    Raises:
        FtrmaError: the user's key cannot be read or made.
    """
    return _given or Key(userkey.read().tag(PURPOSE))


def use_key(given: Key) -> None:
    """Use this key in this process: on other nodes the user's own key may be a different one."""
    global _given
    _given = given


class Damaged(FtrmaError):
    """Files of a checkpoint are not what was written."""


class Point(NamedTuple):
    """A checkpoint in files. Points compare in the order of their age."""

    entry: int
    version: Version

    @property
    def name(self) -> str:
        """Return the name of its directory."""
        return f"{self.entry:04}-{self.version:06}"


class SavedArray(NamedTuple):
    """An array in a checkpoint, or the bytes of a window.

    Attributes:
        key: key of its region in the vault.
        name: its name as users read it.
    """

    key: Any
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def arrays_of(record: Mapping[str, Any]) -> list[SavedArray]:
    """List the arrays that are in a checkpoint, according to its record.

    `program.checkpoint_contents` makes the records.
    """
    import numpy as np

    found = [SavedArray(("window", number), f"window {number}", np.dtype("u1"), (size_bytes,))
             for number, (size_bytes, _) in record["windows"].items() if size_bytes]
    for name, state in record["states"].items():
        found += [SavedArray(("state", name, field), f"{name}.{field}", dtype, tuple(shape))
                  for field, (dtype, shape) in state["arrays"].items()]
    return found + [SavedArray(("entry", key), f"entry {key}", dtype, tuple(shape))
                    for key, (_, dtype, shape) in record["entries"].items()]


# ---- text with a tag ------------------------------------------------------------------------


def tagged(name: str, content: Mapping[str, Any]) -> bytes:
    """Write a JSON object whose first member is a tag over its name and all the rest."""
    body = json.dumps(content, indent=1).encode()[1:] + b"\n"
    return _HEAD + key().tag(PURPOSE, name.encode(), body).hex().encode() + b'",' + body


def untagged(name: str, data: bytes) -> dict[str, Any]:
    """Read a JSON object that `tagged` has written.

    Raises:
        Damaged: the tag does not match.
    """
    end = len(_HEAD) + 2 * TAG_BYTES
    tag, body = data[len(_HEAD):end], data[end + 2:]
    framed = data.startswith(_HEAD) and data[end:end + 2] == b'",'
    if not framed or tag != key().tag(PURPOSE, name.encode(), body).hex().encode():
        raise Damaged(f"{name} was damaged or changed, or the key {userkey.path()} is another one "
                      "than when it was written")
    found: dict[str, Any] = json.loads(b"{" + body)
    return found


# ---- a directory of checkpoints ---------------------------------------------------------------


def points(directory: Path, *, whole: bool = True) -> list[Point]:
    """List the checkpoints of a directory, oldest first.

    Args:
        whole: list only those that have a manifest.
    """
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            match = NAME.fullmatch(entry.name)
            if match and entry.is_dir(follow_symlinks=False) and (
                    not whole or os.path.lexists(directory / entry.name / MANIFEST)):
                found.append(Point(int(match[1]), Version(int(match[2]))))
    return sorted(found)


def keep_newest(directory: Path, count: int, newest: Point) -> None:
    """Remove checkpoints older than `newest`, except so many of the newest ones that are whole."""
    whole = [point for point in points(directory) if point <= newest][-count:]
    for point in points(directory, whole=False):
        if point < newest and point not in whole:
            remove(directory, point)


def remove(directory: Path, point: Point) -> None:
    """Remove a checkpoint, its manifest first, so that a rest of it does not count as whole."""
    place = directory / point.name
    with contextlib.suppress(OSError):
        (place / MANIFEST).unlink(missing_ok=True)
        for path in place.iterdir():
            path.unlink(missing_ok=True)
        place.rmdir()


def set_aside(directory: Path, point: Point) -> str:
    """Give a damaged checkpoint another name, so that nobody tries it again; returns the name."""
    name = f"damaged-{point.name}"
    while (directory / name).exists():
        name += "+"
    with contextlib.suppress(OSError):
        (directory / point.name).rename(directory / name)
    return name


# ---- reading --------------------------------------------------------------------------------


def read_manifest(directory: Path, point: Point) -> dict[str, Any]:
    """Read the manifest of a checkpoint.

    Raises:
        Damaged: it is not what was written. FtrmaError: it has a newer format.
    """
    found = _read_tagged(directory, point, MANIFEST)
    if found["format"] > FORMAT:
        raise FtrmaError(f"{directory / point.name} has format {found['format']}, and this ftrma "
                         f"reads {FORMAT}: use the ftrma that has written it, or a newer one")
    return found


def _read_tagged(directory: Path, point: Point, name: str) -> dict[str, Any]:
    return untagged(f"{point.name}/{name}", _bytes_of(directory, point, name))


def _bytes_of(directory: Path, point: Point, name: str) -> bytes:
    try:
        return private.read(directory / point.name / name)
    except FileNotFoundError:
        raise Damaged(f"{point.name}/{name} is missing") from None
    except OSError as error:
        raise Damaged(f"{point.name}/{name} cannot be read: {outfile.why(error)}") from None
    except FtrmaError as error:
        raise Damaged(str(error)) from None


class Part:
    """One slot's part of a checkpoint, for reading.

    Args:
        manifest: the checkpoint's manifest.

    Raises:
        Damaged: a file is not what was written. The data themselves are compared by `check` and
            `fill`.
    """

    def __init__(self, directory: Path, point: Point, slot: int,
                 manifest: Mapping[str, Any]) -> None:
        self.directory, self.point, self.slot = directory, point, slot
        name = f"slot-{slot}.json"
        text = _bytes_of(directory, point, name)
        if hashlib.sha256(text).hexdigest() != manifest["parts"].get(name):
            raise Damaged(f"{point.name}/{name} was damaged, or belongs to another checkpoint")
        self.content = untagged(f"{point.name}/{name}", text)

    @property
    def size_bytes(self) -> int:
        """Return the size of all arrays, in whole blocks."""
        return sum(file["bytes"] for file in self.content["files"].values())

    def sums(self, name: str) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Return the checksums of the blocks of a file."""
        import numpy as np

        sums = _bytes_of(self.directory, self.point, f"{name}.crc")
        if hashlib.sha256(sums).hexdigest() != self.content["files"][name]["crc_sha256"]:
            raise Damaged(f"{self.point.name}/{name}.crc was damaged")
        return np.frombuffer(sums, "<u4")

    @contextlib.contextmanager
    def data(self, name: str) -> Iterator[mmap.mmap]:
        """Map a file of arrays."""
        path, size_bytes = f"{name}.data", self.content["files"][name]["bytes"]
        try:
            with private.opened(self.directory / self.point.name / path) as file:
                found = os.fstat(file.fileno()).st_size
                if found != size_bytes:
                    raise Damaged(f"{self.point.name}/{path} has {found} bytes and had "
                                  f"{size_bytes}")
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
                    yield view
        except FileNotFoundError:
            raise Damaged(f"{self.point.name}/{path} is missing") from None
        except OSError as error:
            raise Damaged(f"{self.point.name}/{path} cannot be read: "
                          f"{outfile.why(error)}") from None
        except FtrmaError as error:
            raise error if isinstance(error, Damaged) else Damaged(str(error)) from None

    def check(self) -> int:
        """Compare all bytes with their checksums; return the number of bytes.

        Raises:
            Damaged: they differ.
        """
        for name in self.content["files"]:
            sums = self.sums(name)
            with self.data(name) as data:
                if len(sums) * BLOCK != len(data):
                    raise Damaged(f"{self.point.name}/{name}.crc has a wrong size")
                bad = vaults.first_damaged(data, sums)
            if bad >= 0:
                raise Damaged(f"{self.point.name}/{name}.data is damaged at byte {bad * BLOCK}")
        self.record()
        return self.size_bytes

    def record(self) -> dict[str, Any]:
        """Read the record: its `record` is the vault's record; its `files` says by key where arrays
        lie."""
        text = _bytes_of(self.directory, self.point, f"slot-{self.slot}.record")
        if hashlib.sha256(text).hexdigest() != self.content["record"]["sha256"]:
            raise Damaged(f"{self.point.name}/slot-{self.slot}.record was damaged")
        seal = Seal(key(), f"slot {self.slot}", f"{self.point.name} in files")
        try:
            return records.decode(text, seal)
        except CorruptVault as error:
            raise Damaged(str(error)) from None


def check_whole(directory: Path, point: Point, manifest: Mapping[str, Any]) -> int:
    """Check all parts of a checkpoint; return its number of bytes.

    Raises:
        Damaged: a part is not what was written.
    """
    return sum(Part(directory, point, slot, manifest).check() for slot in range(manifest["slots"]))
