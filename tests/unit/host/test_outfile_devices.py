"""Output into FIFOs, devices and open files: they stay what they are, and nobody waits for ever."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from outputs import bounded as bounded
from outputs import refused, tidy, written

from ftrma.host import outfile, timeouts
from ftrma.host.outfile import check, write


@pytest.mark.parametrize("linked", [False, True])
def test_a_fifo_is_written_into(tmp_path: Path, linked: bool) -> None:
    """Law: a reader gets all, more than the FIFO holds; the FIFO stays one."""
    os.mkfifo(tmp_path / "p")
    name = tmp_path / "p"
    if linked:
        name = tmp_path / "link"
        name.symlink_to("p")
    end = os.open(tmp_path / "p", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(end, True)
    writer = os.open(tmp_path / "p", os.O_WRONLY)  # without one, the reader is at the end
    got: list[bytes] = []

    def read() -> None:
        with open(end, "rb") as reader:
            got.append(reader.read())

    thread = threading.Thread(target=read)
    thread.start()
    written(name, "y" * 300_000)
    os.close(writer)
    thread.join(10)
    assert got == [b"y" * 300_000] and stat.S_ISFIFO((tmp_path / "p").lstat().st_mode)


def test_a_fifo_without_reader_is_told(tmp_path: Path) -> None:
    """Law: before a job it is no mistake, since a reader may come; after it there is no waiting."""
    os.mkfifo(tmp_path / "p")
    assert check("--stats", str(tmp_path / "p")) == ""
    with pytest.raises(OSError, match="nobody reads this FIFO; start a reader first"):
        write(str(tmp_path / "p"), ["x"])
    assert stat.S_ISFIFO((tmp_path / "p").lstat().st_mode)


def test_a_reader_that_leaves_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    reader = os.open(tmp_path / "p", os.O_RDONLY | os.O_NONBLOCK)

    def chunks() -> Iterator[str]:
        yield "x" * outfile.BLOCK_BYTES
        pytest.fail("went on")

    threading.Timer(0.2, os.close, [reader]).start()
    with pytest.raises(BrokenPipeError):
        write(str(tmp_path / "p"), chunks())


@pytest.mark.parametrize("name", ["/dev/full", "link"])
def test_a_full_device_is_told_and_stays(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: /dev/full is a device afterwards; nothing is made beside it."""
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("/dev/full")
    before = os.stat("/dev/full")
    assert check("--stats", name) == ""
    with pytest.raises(OSError) as error:
        write(name, ["x"])
    assert error.value.errno == errno.ENOSPC
    after = os.stat("/dev/full")
    assert (after.st_ino, after.st_rdev, after.st_mode) == (
        before.st_ino, before.st_rdev, before.st_mode,
    )
    assert Path("link").is_symlink()
    written("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "/proc/thread-self/fd/{}"])
def test_open_files_are_written_on(tmp_path: Path, name: str) -> None:
    """Law: a descriptor is written where it stands, and what is there already stays."""
    with (tmp_path / "f").open("w+b", buffering=0) as file:
        file.write(b"before ")
        written(name.format(file.fileno()))
        file.write(b"after")
    assert (tmp_path / "f").read_bytes() == b"before new\nafter" and tidy(tmp_path)


def test_stdout_is_written_to(capfd: pytest.CaptureFixture[str]) -> None:
    """Law: root's link leads into /proc and is trusted; stdout may be a file or a pipe."""
    print("before", flush=True)
    written("/dev/stdout", "out\n")
    written("/dev/stderr", "err\n")
    assert capfd.readouterr() == ("before\nout\n", "err\n")


def test_a_socket_as_descriptor_and_a_slow_reader() -> None:
    """Law: what cannot be opened anew is written to by its number, whether it blocks or not."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    got = bytearray()

    def read() -> None:
        while part := ours.recv(1 << 16):
            got.extend(part)

    thread = threading.Thread(target=read)
    thread.start()
    written(f"/dev/fd/{theirs.fileno()}", "z" * 3_000_000)
    theirs.close()
    thread.join(10)
    ours.close()
    assert len(got) == 3_000_000


def test_a_reader_that_stops_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(timeouts.chosen, "output", 0.05)
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs, pytest.raises(OSError, match="does not read on"):
        write(f"/dev/fd/{theirs.fileno()}", ["z" * 9_000_000])


def test_a_descriptor_for_reading_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with (tmp_path / "f").open() as file:
        refused(f"/dev/fd/{file.fileno()}", "open for reading only")


def test_what_is_put_in_its_place_meanwhile_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: between looking and opening, a FIFO that becomes a file or a link is left alone."""
    os.mkfifo(tmp_path / "p")
    target = outfile._find(str(tmp_path / "p"))
    (tmp_path / "p").unlink()
    (tmp_path / "p").write_text("other")
    with pytest.raises(OSError, match="something else was put in its place"):
        outfile._open(target)
    (tmp_path / "p").rename(tmp_path / "victim")
    (tmp_path / "p").symlink_to("victim")
    with pytest.raises(OSError):
        outfile._open(target)
    assert (tmp_path / "victim").read_text() == "other"
