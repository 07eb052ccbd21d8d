"""`ftrma.program.openfiles`: what Python holds back goes to the kernel, and nothing waits."""

from __future__ import annotations

import gzip
import io
import logging
import logging.handlers
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftrma.program import openfiles
from ftrma.program.openfiles import OpenFiles


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def files(told: list[str]) -> OpenFiles:
    return OpenFiles(told.append)


class Shouting(io.TextIOWrapper):
    """A program's own kind of file."""

    flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        super().flush()


def opened(path: Path) -> Iterator[tuple[Path, io.IOBase, str | bytes]]:
    """A file of each kind that Python holds something back of, and what to write to it."""
    for mode in ("w", "a", "w+", "x"):
        yield path / mode, open(path / mode, mode), f"text in {mode}"  # noqa: SIM115
    for mode in ("wb", "ab", "w+b"):
        yield path / mode, open(path / mode, mode), f"bytes in {mode}".encode()  # noqa: SIM115
    (path / "r+").write_text("")
    yield path / "r+", open(path / "r+", "r+"), "text in r+"  # noqa: SIM115
    bare = os.open(path / "bare", os.O_WRONLY | os.O_CREAT, 0o600)
    yield path / "bare", os.fdopen(bare, "w"), "of a descriptor"
    yield path / "own", Shouting(open(path / "own", "wb")), "of a class of its own"  # noqa: SIM115


@pytest.mark.full
def test_all_that_was_written_is_with_the_kernel(
    files: OpenFiles, tmp_path: Path, told: list[str]
) -> None:
    """Law: of files of all kinds, opened before or between two checkpoints."""
    files.flush()
    kept = []
    for path, file, content in opened(tmp_path):
        kept.append(file)
        for times in (1, 2):
            file.write(content)  # type: ignore[attr-defined]
            assert path.stat().st_size == (times - 1) * len(content)
            files.flush()
            assert path.stat().st_size == times * len(content), path
    assert len(kept) == 10 and not told
    assert kept[-1].flushes == 0, "a program's own method may do anything"  # type: ignore[attr-defined]
    for file in kept:
        file.close()


@pytest.mark.plain
def test_the_collector_is_asked_only_about_what_is_new(
    files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: one look for each file that was opened since, also where it has the descriptor and the
    inode of one that is closed; none for what has no objects."""
    looks = []
    find = openfiles.file_objects
    monkeypatch.setattr(openfiles, "file_objects", lambda: looks.append(1) or find())
    bare = os.open(tmp_path / "bare", os.O_WRONLY | os.O_CREAT, 0o600)
    for mode, buffering in (("a", -1), ("ab", 0), ("a", -1), ("ab", -1)):
        with open(tmp_path / "file", mode, buffering) as file:
            file.write(b"line\n" if "b" in mode else "line\n")
            before = len(looks)
            files.flush()
            assert len(looks) == before + 1
            file.write(b"line\n" if "b" in mode else "line\n")
            files.flush()
            assert len(looks) == before + 1
            assert (tmp_path / "file").stat().st_size % 10 == 0
    os.close(bare)


def test_nothing_waits_and_nothing_changes(files: OpenFiles, tmp_path: Path) -> None:
    """Law: a pipe that nobody reads is left alone, and a compressed file is what it would be."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    pipe = os.fdopen(writer, "w")
    pipe.write("more")
    for name, look in (("alone", False), ("flushed", True)):
        with open(tmp_path / name, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as packed, \
                io.TextIOWrapper(packed) as text:
            for i in range(100):
                text.write(f"line {i}\n")
                if look:
                    files.flush()
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "flushed").read_bytes()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        pipe.close()


def test_handlers_hand_on_what_they_gather(files: OpenFiles, tmp_path: Path) -> None:
    """Law: records of a handler that gathers are in its target's file, unless it may drop them; an
    error of a handler's own is its program's."""
    class Broken(logging.Handler):
        def flush(self) -> None:
            raise RuntimeError("no connection")

    target = logging.FileHandler(tmp_path / "log")
    keeping = logging.handlers.MemoryHandler(100, target=target)
    dropping = logging.handlers.MemoryHandler(100, target=target, flushOnClose=False)
    broken = Broken()
    for handler, text in ((keeping, "kept"), (dropping, "dropped")):
        handler.handle(logging.makeLogRecord({"msg": text, "levelno": logging.INFO}))
    files.flush()
    assert (tmp_path / "log").read_text() == "kept\n"
    for handler in (keeping, dropping, target):
        handler.close()
    assert broken.name is None


def test_a_full_disk_is_told_once(files: OpenFiles, tmp_path: Path, told: list[str]) -> None:
    """Law: a file that cannot be written is named; what it holds back stays, for the program."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open(tmp_path / "full", "w") as file:
        file.write("x" * 100)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        try:
            files.flush()
            files.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert len(told) == 1 and "full cannot be written (File too large)" in told[0]
    assert (tmp_path / "full").stat().st_size == 100
