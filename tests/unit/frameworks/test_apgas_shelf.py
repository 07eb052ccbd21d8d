"""Shelves: a file holds what was published, cut where it may be; values come back as they were."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftrma.frameworks.apgas import shelf as shelves
from ftrma.frameworks.apgas.shelf import BrokenShelf, Change, ShelfFile, State
from ftrma.frameworks.apgas.values import check_key, decode, encode
from ftrma.host.errors import NoRoom

VALUES: list[Any] = [
    None, 7, "text", "x" * 10_000, b"a" * 4095, b"", {"a": [1, (2, 3)]}, np.float32(2.5),
    np.arange(12).reshape(3, 4), np.asfortranarray(np.random.default_rng(1).random((40, 50))),
    np.arange(10)[::2], np.zeros((0, 3)), np.zeros(()), np.zeros(1000, bool), np.array(["a", "bb"]),
    np.array([], "S"), np.zeros(3, "M8[s]"), np.zeros(3, "f4,i4"), np.arange(5, dtype=">i4"),
    np.zeros((700, 3), "c16"),
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return (type(one) is type(other) and one.dtype == other.dtype
                and one.shape == other.shape and np.array_equal(one, other))
    return type(one) is type(other) and bool(one == other)


def as_bytes(state: State) -> bytes:
    """All of a state, to compare."""
    return pickle.dumps((sorted((k, encode_again(v)) for k, v in state.values.items()),
                         sorted((n, i[:3], encode_again(i[3])) for n, i in state.intents.items()),
                         sorted(state.applied.items()), state.number))


def encode_again(value: Any) -> Any:
    if value is None or isinstance(value, bytes):
        return value
    return value.dtype.str, value.tobytes()


def changes() -> Iterator[Change]:
    """Commits of all shapes, small and large."""
    for i in range(6):
        yield Change({("", f"k{i % 3}"): encode(i)}, number=i)
        yield Change({("m", "array"): np.arange(600 + i)}, {i + 1: (2, "m", "k", encode("v" * i))},
                     number=i + 1)
        yield Change({("", "k1"): None, ("m", "text"): encode("x" * 5000)}, drops=(i,),
                     applied={3: i}, number=i + 1)


def write(path: Path) -> tuple[State, list[bytes]]:
    """Write commits; the state, and what it was behind each."""
    state, seen = State(), []
    file = ShelfFile(path, state)
    for change in changes():
        file.append(change, state)
        state.make(change)
        seen.append(as_bytes(state))
        assert as_bytes(shelves.read(path)) == seen[-1]
    return state, seen


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(value: Any, tmp_path: Path) -> None:
    """Law: a value comes back as it was, from the dictionary and from the file, and shares nothing
    with either."""
    state = State()
    file = ShelfFile(tmp_path / "shelf", state)
    change = Change({("m", "k"): encode(value)})
    file.append(change, state)
    state.make(change)
    for found in (state, shelves.read(tmp_path / "shelf")):
        kept = found.values["m", "k"]
        assert same(decode(kept), value)
        assert not isinstance(kept, np.ndarray) or not np.shares_memory(kept, value)
        assert not isinstance(kept, np.ndarray) or not np.shares_memory(kept, decode(kept))


def test_arrays_are_not_pickled() -> None:
    """Law: an array of numbers stays an array, also if it has holes or Fortran's order."""
    for value in VALUES:
        if type(value) is np.ndarray and not value.dtype.names:
            assert isinstance(encode(value), np.ndarray)


@pytest.mark.parametrize("key", [1, ("loot", 1), None, b"x", 2.5])
def test_keys_are_strings(key: Any) -> None:
    """Law: another key is refused, with a string that would do."""
    with pytest.raises(TypeError, match="keys are strings: use"):
        check_key(key)


def test_what_cannot_be_pickled_is_refused() -> None:
    """Law: the error names the type."""
    with pytest.raises(TypeError, match="function"):
        encode(lambda: 0)


def test_a_half_that_is_cut_is_refused(tmp_path: Path) -> None:
    """Law: a half cut at a byte that counts is refused, and never read as another state."""
    state, seen = write(tmp_path / "shelf")
    assert not (tmp_path / "shelfb").exists(), "one half only"
    whole = (tmp_path / "shelfa").read_bytes()
    end = (int.from_bytes(whole[8:16], "little") & (1 << shelves.UNIT_BITS) - 1) << 3
    for size in [*range(1, 700), *range(700, end, 61), *range(end - 100, end)]:
        os.truncate(tmp_path / "shelfa", size)
        with pytest.raises(BrokenShelf):
            shelves.read(tmp_path / "shelf")
        with open(tmp_path / "shelfa", "r+b") as file:
            file.write(whole[:end])
    with open(tmp_path / "shelfa", "r+b") as file:
        file.write(whole[:end])
    assert as_bytes(shelves.read(tmp_path / "shelf")) == seen[-1] == as_bytes(state)


def test_what_is_not_published_does_not_count(tmp_path: Path) -> None:
    """Law: behind what counts there may be any part of a record, or anything else."""
    _, seen = write(tmp_path / "shelf")
    whole = bytearray((tmp_path / "shelfa").read_bytes())
    end = (int.from_bytes(whole[8:16], "little") & (1 << shelves.UNIT_BITS) - 1) << 3
    record = b"".join(shelves.Record(Change({("", "new"): encode(1)})).buffers())
    for cut in range(len(record) + 1):
        whole[end:end + len(record)] = record[:cut] + b"\xff" * (len(record) - cut)
        (tmp_path / "shelfa").write_bytes(whole)
        assert as_bytes(shelves.read(tmp_path / "shelf")) == seen[-1]


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    """Law: no single byte of a record can change unseen, but those that pad it."""
    change = Change({("", "k"): encode(1), ("m", "a"): np.arange(600.0)}, {4: (1, "", "z", b"v")})
    record = bytearray(b"".join(shelves.Record(change).buffers()))
    record += bytes(-len(record) % 8)
    size = len(shelves.Record(change).buffers()[0])
    for at in [*range(size), *range(size + 7 & ~7, len(record), 97)]:
        record[at] ^= 0x41
        with pytest.raises(BrokenShelf):
            shelves.unpack(memoryview(bytes(bytearray(64) + record)), 64)
        record[at] ^= 0x41


@pytest.mark.parametrize("where", ["half", "flip"])
def test_a_writer_may_die_at_any_record(where: str, tmp_path: Path,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a death before a record is published leaves the state before it, also where the half
    is changed; the other half may be in any state."""
    class Dead(BaseException):
        pass

    left = [0]

    def visit(name: str) -> None:
        if name == f"apgas.{where}":
            left[0] -= 1
            if not left[0]:
                raise Dead

    monkeypatch.setattr(shelves, "kill_place", visit)
    for dies_at in range(1, 12):
        left[0] = 0
        path, state = tmp_path / f"shelf{dies_at}", State()
        file = ShelfFile(path, state)
        left[0], before = dies_at, as_bytes(state)
        with pytest.raises(Dead):
            for i in range(10_000):
                before = as_bytes(state)
                change = Change({("", f"k{i % 5}"): np.full(20_000, i)}, number=i)
                file.append(change, state)
                state.make(change)
        assert as_bytes(shelves.read(path)) == before


def test_halves_grow_and_give_memory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a state of any size finds room; a large half that is left gives its memory back."""
    monkeypatch.setattr(shelves, "SPARE_BYTES", 1 << 18)
    path, state = tmp_path / "shelf", State()
    file = ShelfFile(path, state)
    for i in range(40):
        change = Change({("", f"k{i % 7}"): np.full(1000 * (i + 1), i)}, number=i)
        file.append(change, state)
        state.make(change)
        assert as_bytes(shelves.read(path)) == as_bytes(state)
    sizes = sorted((tmp_path / f"shelf{half}").stat().st_size for half in "ab")
    assert sizes[0] == 0 and sizes[1] < 3 * sum(v.nbytes for v in state.values.values())


def test_room_behind_a_state_grows_with_its_commits(tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a new file is little more than its state; many small commits write it seldom again."""
    state = State()
    state.make(Change({("", "large"): np.arange(1 << 19)}))
    whole, write = [0], ShelfFile._write_whole

    def counted(*arguments: Any) -> None:
        whole[0] += 1
        write(*arguments)

    monkeypatch.setattr(ShelfFile, "_write_whole", counted)
    path = tmp_path / "shelf"
    file = ShelfFile(path, state)
    assert (tmp_path / "shelfa").stat().st_blocks * 512 < 1.2 * (1 << 22)
    for i in range(300):
        change = Change({("", "small"): np.full(1 << 13, i)})
        file.append(change, state)
        state.make(change)
    assert whole[0] <= 9 and as_bytes(shelves.read(path)) == as_bytes(state)


def test_full_memory_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: where memory is full, the error says so, and the file is as it was."""
    path, state = tmp_path / "shelf", State()
    file = ShelfFile(path, state)

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shelves.os, "posix_fallocate", full)
    with pytest.raises(NoRoom, match="shared memory is full"):
        file.append(Change({("", "k"): np.zeros(1 << 20)}), state)
    assert as_bytes(shelves.read(path)) == as_bytes(State())
    monkeypatch.undo()
    change = Change({("", "k"): np.zeros(1 << 20)})
    file.append(change, state)
    state.make(change)
    assert as_bytes(shelves.read(path)) == as_bytes(state)


def test_no_file_is_no_state(tmp_path: Path) -> None:
    """Law: a file that was removed is told as such; one that is in use stays usable."""
    state = State()
    file = ShelfFile(tmp_path / "shelf", state)
    shelves.remove(tmp_path / "shelf")
    file.append(Change({("", "k"): b"v"}), state)
    with pytest.raises(FileNotFoundError):
        shelves.read(tmp_path / "shelf")
    assert not list(tmp_path.iterdir())
