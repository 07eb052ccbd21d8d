"""A vault's part of a checkpoint in files, and back: whole or refused, whatever happens to a file.

MPI is not started; vaults are files of a test's own directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftrma.fabric import spillfiles
from ftrma.fabric.spillfiles import Damaged, Part, Point
from ftrma.host.errors import FtrmaError
from ftrma.host.key import Key
from ftrma.host.record import Seal
from ftrma.native import loading
from ftrma.native.shared import Version
from ftrma.vault import spillparts
from ftrma.vault.spillparts import PartWriter
from ftrma.vault.vault import BLOCK, Region, Vault

KEY = Key(bytes(32))
FACTS = {"program": ["app.py"], "cwd": "/", "hash_seed": "1", "attempt": 1, "ftrma": "0"}


def seal(version: int) -> Seal:
    return Seal(KEY, "slot 0", str(version))


class Slot:
    """A slot with a window, two arrays of declared state and an entry, and its vault."""

    def __init__(self, home: Path) -> None:
        loading.load()
        self.home, self.version = home, 0
        self.vault = Vault(home / "vault", 64, 2, create=True)
        random = np.random.default_rng(1)
        self.arrays: dict[Any, np.ndarray[Any, Any]] = {
            ("window", 0): random.integers(0, 255, 5000, dtype="u1"),
            ("state", "s", "x"): random.random((7, 100)),
            ("state", "s", "still"): random.integers(0, 9, 9000),
            ("entry", "e"): np.ones(3, dtype=[("a", "i4"), ("b", "f8")]),
            ("entry", "none"): np.zeros((0, 3)),
        }
        self.writer = PartWriter(home / "files", 0)
        (home / "files").mkdir(mode=0o700)

    def stage(self) -> None:
        """Take the next version of all arrays."""
        self.version += 1
        state = {key[2]: (a.dtype, a.shape) for key, a in self.arrays.items() if key[0] == "state"}
        record = {"windows": {0: (5000, (1, 2))}, "states": {"s": {"arrays": state, "rest": b"r"}},
                  "entries": {key[1]: ("value", a.dtype, a.shape)
                              for key, a in self.arrays.items() if key[0] == "entry"},
                  "ordinal": self.version}
        regions = [Region(key, a.ctypes.data, a.nbytes) for key, a in self.arrays.items()]
        self.vault.stage(Version(self.version), regions, record, seal(self.version))

    def write(self) -> Point:
        """Write the version that was staged, and the manifest."""
        point = Point(1, Version(self.version))
        self.writer.write(point, self.vault, seal(self.version))
        assert spillparts.complete(self.home / "files", point, 1, FACTS) == ""
        return point

    def read(self, point: Point) -> dict[Any, bytes]:
        """Fill another vault, and give the bytes of all arrays."""
        files = self.home / "files"
        part = Part(files, point, 0, spillfiles.read_manifest(files, point))
        again = Vault(self.home / "again", 64, 5, create=True)
        try:
            spillparts.fill(part, again, point.version, seal(point.version))
            record = again.read_record(seal(point.version))
            assert record["ordinal"] == point.version
            assert again.words.version == point.version
            return {key: again.bytes_of(key, a.nbytes)[:] for key, a in self.arrays.items()}
        finally:
            again.close()
            (self.home / "again").unlink()

    def contents(self) -> dict[Any, bytes]:
        return {key: a.tobytes() for key, a in self.arrays.items()}


@pytest.fixture
def slot(tmp_path: Path) -> Any:
    made = Slot(tmp_path)
    yield made
    made.vault.close()


def test_a_part_comes_back(slot: Slot) -> None:
    """Law: a vault that is filled from files has the bytes that were staged, of each version that
    is kept, in groups of any size."""
    expected = {}
    for _ in range(4):
        slot.arrays["window", 0][7 * slot.version] += 1
        slot.arrays["state", "s", "x"][:] += 1
        slot.stage()
        expected[slot.write()] = slot.contents()
    assert {point: slot.read(point) for point in expected} == expected
    spillfiles.keep_newest(slot.home / "files", 2, point := max(expected))
    assert spillfiles.points(slot.home / "files") == sorted(expected)[-2:]
    assert slot.read(point) == expected[point]


def test_what_has_not_changed_is_linked(slot: Slot) -> None:
    """Law: an array is written again only if it has changed since, also between two versions that
    are written, and in one that a repair has undone."""
    slot.stage()
    first = slot.write()
    slot.arrays["window", 0][0] += 1
    slot.stage()  # is not written
    slot.stage()
    second = slot.write()
    names = {path.name: path.stat() for path in (slot.home / "files" / second.name).iterdir()}
    linked = names[f"slot-0-{first.name}.data"]
    assert linked.st_nlink == 2 and names[f"slot-0-{second.name}.data"].st_size == 2 * BLOCK
    expected = slot.contents()
    spillfiles.remove(slot.home / "files", first)
    assert slot.read(second) == expected


def test_a_part_that_is_whole_stays(slot: Slot) -> None:
    """Law: a process that takes the slot over writes no part again that a manifest may speak of;
    a part that was not written to its end it does write."""
    slot.stage()
    point = slot.write()
    slot.writer = PartWriter(slot.home / "files", 0)
    place = slot.home / "files" / point.name
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    assert slot.writer.write(point, slot.vault, seal(slot.version)) == 0
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    (place / "slot-0.json").unlink()
    assert slot.writer.write(point, slot.vault, seal(slot.version)) > 0
    assert slot.read(point) == slot.contents()


def test_a_file_system_without_links_does(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    slot.stage()
    slot.write()

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    slot.arrays["window", 0][0] += 1
    slot.stage()
    assert slot.read(slot.write()) == slot.contents()


@pytest.mark.parametrize("takes", ["all", "whole sectors", "no writes past the cache"])
def test_writes_pass_the_page_cache_where_they_can(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, takes: str
) -> None:
    """Law: data go to the disk without a copy in memory, or with one where the file system wants
    that; the bytes are the same."""
    write, control, past = os.write, fcntl.fcntl, []

    def write_some(fd: int, data: memoryview) -> int:
        past.append(bool(control(fd, fcntl.F_GETFL) & os.O_DIRECT))
        if takes == "whole sectors" and past[-1]:
            if len(past) > 1:
                raise OSError(errno.EINVAL, "Invalid argument")
            return write(fd, data[:4096])
        return write(fd, data)

    def control_some(fd: int, command: int, *words: int) -> int:
        if takes == "no writes past the cache" and command == fcntl.F_SETFL:
            raise OSError(errno.EINVAL, "Invalid argument")
        return control(fd, command, *words)

    monkeypatch.setattr(os, "write", write_some)
    monkeypatch.setattr(fcntl, "fcntl", control_some)
    slot.stage()
    assert slot.read(slot.write()) == slot.contents()
    if takes == "all":
        assert all(past) or not any(past), "a file system takes them or not"
    elif takes == "no writes past the cache":
        assert not any(past)
    else:
        assert past[:2] in ([True, True], [False, False]) and not any(past[2:])


def test_numpy_alone_reads_it(slot: Slot) -> None:
    """Law: the lines that the page shows read each array."""
    page = (Path(__file__).parents[3] / "ftrma/docs/files.md").read_text()
    lines = page.split("NumPy alone reads the arrays:\n\n")[1].split("\n\n")[0]
    slot.stage()
    point = slot.write()
    names: dict[str, Any] = {}
    exec("\n".join(line[4:] for line in lines.splitlines()), names)
    found = names["read"](slot.home / "files" / point.name, 0)
    assert found["window 0"].tobytes() == slot.arrays["window", 0].tobytes()
    for name in ("x", "still"):
        array = slot.arrays["state", "s", name]
        assert np.array_equal(found[f"s.{name}"], array) and found[f"s.{name}"].dtype == array.dtype
    assert np.array_equal(found["entry e"], slot.arrays["entry", "e"])


@pytest.fixture
def written(slot: Slot) -> tuple[Slot, Point]:
    slot.stage()
    slot.write()
    slot.arrays["window", 0][0] += 1
    slot.stage()
    return slot, slot.write()


def verified(slot: Slot, point: Point) -> None:
    """Read all of a checkpoint, as `ftrma spill verify` does."""
    files = slot.home / "files"
    spillfiles.check_whole(files, point, spillfiles.read_manifest(files, point))


def looked_through(slot: Slot, point: Point) -> None:
    """Read all of a checkpoint, as that command and then a resumed job do."""
    verified(slot, point)
    slot.read(point)


@pytest.mark.parametrize("look", [verified, Slot.read])
def test_each_flipped_byte_is_found(
    written: tuple[Slot, Point], look: Callable[[Slot, Point], object]
) -> None:
    """Law: each byte of the manifest, and sampled ones of the others, cannot change unnoticed."""
    slot, point = written
    for path in sorted((slot.home / "files" / point.name).iterdir()):
        data = path.read_bytes()
        step = 1 if path.name == "manifest.json" else max(1, len(data) // 20)
        for at in range(0, len(data), step):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:])
            try:
                found = look(slot, point)
            except Damaged:
                continue
            # A byte of what has been written again since is not used, and only verified.
            assert point.name not in path.name and found == slot.contents()
        path.write_bytes(data)
    look(slot, point)


@pytest.mark.parametrize("harm", ["cut", "grown", "missing", "swapped", "a link", "open to others"])
def test_each_harmed_file_is_found(written: tuple[Slot, Point], harm: str) -> None:
    slot, point = written
    place = slot.home / "files" / point.name
    other = next(p for p in spillfiles.points(slot.home / "files") if p != point)
    for path in sorted(place.iterdir()):
        data, kept = path.read_bytes(), path.with_name("kept")
        same = slot.home / "files" / other.name / path.name
        if harm == "swapped" and not (same.exists() and same.read_bytes() != data):
            continue
        path.rename(kept)
        if harm == "cut":
            path.write_bytes(data[:-1])
        elif harm == "grown":
            path.write_bytes(data + b"\0")
        elif harm == "swapped":
            shutil.copy(same, path)
        elif harm == "a link":
            path.symlink_to(kept)
        elif harm == "open to others":
            path.write_bytes(data)
        if path.exists() and harm != "a link":
            path.chmod(0o644 if harm == "open to others" else 0o600)
        with pytest.raises(Damaged, match=point.name):
            looked_through(slot, point)
        path.unlink(missing_ok=True)
        kept.rename(path)
    looked_through(slot, point)


def test_another_key_is_told(written: tuple[Slot, Point], monkeypatch: pytest.MonkeyPatch,
                             tmp_path: Path) -> None:
    slot, point = written
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(Damaged, match="another one than when it was written"):
        looked_through(slot, point)


def test_a_newer_format_is_told(written: tuple[Slot, Point], monkeypatch: pytest.MonkeyPatch
                                ) -> None:
    slot, point = written
    monkeypatch.setattr(spillfiles, "FORMAT", 0)
    with pytest.raises(FtrmaError, match="has format 1, and this ftrma reads 0"):
        looked_through(slot, point)


def test_a_part_is_missing(slot: Slot) -> None:
    """Law: without all parts there is no manifest, so the checkpoint is not whole."""
    slot.stage()
    point = Point(1, Version(1))
    slot.writer.write(point, slot.vault, seal(1))
    assert "slot 1 has written no files" in spillparts.complete(slot.home / "files", point, 2,
                                                                FACTS)
    assert not spillfiles.points(slot.home / "files")


@pytest.mark.parametrize("step", range(1, 9))
def test_a_disk_that_fails_leaves_the_older_one(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Law: whichever write fails, or is short before, the older checkpoint stays and is sound; and
    the same version is written later."""
    slot.stage()
    first, before = slot.write(), slot.contents()
    slot.arrays["window", 0][0] += 1
    slot.stage()
    calls = []

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def call_or_fail(*words: Any) -> Any:
            calls.append(call)
            if len(calls) == step:
                raise OSError(28, "No space left on device")
            if call is write and len(words[1]) > 1:
                return write(words[0], words[1][: len(words[1]) // 2])
            return call(*words)

        return call_or_fail

    write = os.write
    with monkeypatch.context() as patch:
        for name in ("write", "fsync", "replace"):
            patch.setattr(os, name, failing(getattr(os, name)))
        try:
            second = slot.write()
        except OSError:
            assert spillfiles.points(slot.home / "files") == [first]
            left = {path.name for path in (slot.home / "files" / "0001-000002").iterdir()}
            assert not {name for name in left if ".data" in name} or "slot-0.json" in left, left
        else:
            pytest.skip(f"there are only {len(calls)} calls")
    assert slot.read(first) == before
    second = slot.write()
    assert slot.read(second) == slot.contents()
    looked_through(slot, second)
