"""Output files: what a name leads to stays what it is; only regular files are replaced, whole."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outputs import bounded as bounded
from outputs import refused, tidy, written

from ftrma.host import outfile
from ftrma.host.messages import one_line
from ftrma.host.outfile import check, write

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only root can make a link of another user's")
STRANGER = 65534


# ---- regular files --------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_a_new_file_has_the_rights_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        written(tmp_path / "f")
    finally:
        os.umask(old)
    assert (tmp_path / "f").read_text() == "new\n" and tidy(tmp_path)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o666])
def test_a_replaced_file_keeps_its_rights(tmp_path: Path, mode: int) -> None:
    """Law: mode and owner stay; whoever has the old file open keeps the old contents."""
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(mode)
    if ROOT:
        os.chown(path, STRANGER, STRANGER)
    before = path.stat()
    with path.open() as reader:
        written(path)
        assert reader.read() == "old"
    now = path.stat()
    assert path.read_text() == "new\n" and tidy(tmp_path) and now.st_ino != before.st_ino
    assert (now.st_mode, now.st_uid, now.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_check_leaves_no_trace(tmp_path: Path) -> None:
    """Law: a check makes no file and changes none."""
    (tmp_path / "old").write_text("old")
    assert check("--stats", str(tmp_path / "new")) == str(tmp_path / "new")
    assert check("--stats", str(tmp_path / "old")) == str(tmp_path / "old")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "old"


@pytest.mark.parametrize("error", [KeyError("time"), OSError(errno.EIO, "no"), KeyboardInterrupt()])
@pytest.mark.parametrize("there", [True, False])
def test_an_error_leaves_the_old_file_and_no_other(
    tmp_path: Path, error: BaseException, there: bool
) -> None:
    """Law: whatever ends the writing, the old file stays and the temporary goes."""
    path = tmp_path / "f"
    if there:
        path.write_text("old")

    def chunks() -> Iterator[str]:
        yield "x" * (outfile.BLOCK_BYTES + 1)
        assert not tidy(tmp_path)
        raise error

    with pytest.raises(type(error)):
        write(str(path), chunks())
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"] * there


def test_a_signal_leaves_no_temporary(tmp_path: Path) -> None:
    """Law: an exception from a signal's handler is as any other."""

    class Asked(BaseException):
        pass

    def handler(*_: object) -> None:
        raise Asked

    def chunks() -> Iterator[str]:
        yield "x" * outfile.BLOCK_BYTES
        signal.raise_signal(signal.SIGUSR1)
        yield "y"

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Asked):
            write(str(tmp_path / "f"), chunks())
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert not list(tmp_path.iterdir())


def test_the_temporary_cannot_be_guessed(tmp_path: Path) -> None:
    """Law: another name each time, made exclusively and without following links."""
    names = set()

    def chunks() -> Iterator[str]:
        names.update(p.name for p in tmp_path.iterdir() if p.name.startswith("."))
        yield "x"

    for _ in range(4):
        write(str(tmp_path / "f"), chunks())
    assert len(names) == 4 and all(re.fullmatch(r"\.ftrma-[0-9a-f]{16}", n) for n in names)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_temporary_that_is_there_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Law: even if a stranger guesses the name, his link is not followed and his file not used."""
    monkeypatch.setattr(outfile.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / "victim").write_text("old")
    (tmp_path / "out").mkdir()
    guessed = tmp_path / "out" / ".ftrma-guessed"
    if kind == "link":
        guessed.symlink_to(tmp_path / "victim")
    else:
        guessed.hardlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="no file can be made"):
        write(str(tmp_path / "out" / "f"), ["new"])
    assert (tmp_path / "victim").read_text() == guessed.read_text() == "old"


def test_large_output_is_written_whole(tmp_path: Path) -> None:
    lines = [f"{i}\n" for i in range(400_000)]
    write(str(tmp_path / "f"), iter(lines))
    assert (tmp_path / "f").read_text() == "".join(lines)


def test_where_renaming_fails_the_file_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a file that cannot be replaced (mounted into a container, somebody else's in /tmp) but
    written is written into."""
    path = tmp_path / "f"
    path.write_text("old, and longer than what comes")
    inode = path.stat().st_ino

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(outfile.os, "replace", busy)
    written(path)
    assert path.read_text() == "new\n" and path.stat().st_ino == inode and tidy(tmp_path)
    with pytest.raises(OSError, match="busy"):
        write(str(tmp_path / "fresh"), ["x"])
    assert not (tmp_path / "fresh").exists()


@pytest.mark.skipif(not ROOT, reason="the other user's part is played by a child of root's")
@pytest.mark.parametrize(
    ("directory_mode", "file_mode", "expected"),
    [(0o755, 0o666, "new"), (0o755, 0o644, "no permission to write it"),
     (0o755, None, "no file can be made in"), (0o1777, 0o666, "new"), (0o700, 0o666, "denied")],
)
def test_rights_of_another_user(
    tmp_path: Path, directory_mode: int, file_mode: int | None, expected: str
) -> None:
    """Law: where no file can be made, a file that can be written is written into; else it is
    refused, and nothing has happened."""
    directory = tmp_path / "d"
    directory.mkdir()
    path = directory / "f"
    if file_mode is not None:
        path.write_text("old, and longer")
        path.chmod(file_mode)
    directory.chmod(directory_mode)
    for above in [tmp_path, *tmp_path.parents]:
        if above.stat().st_mode & 0o001 == 0:
            above.chmod(above.stat().st_mode | 0o011)

    def act() -> str:
        try:
            check("--stats", str(path))
            write(str(path), ["new"])
        except (ValueError, OSError) as error:
            return str(error)
        return "new"

    said = as_stranger(act)
    assert expected in said, said
    if expected == "new":
        assert path.read_text() == "new" and tidy(directory)
    elif file_mode is not None:
        assert path.read_text() == "old, and longer"


def as_stranger(act: Any) -> str:
    """Return what `act` returns in a child with another user's rights."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(STRANGER, STRANGER, STRANGER)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            os.write(theirs, act().encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours) as reader:
        said = reader.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("name", ["f", "link", "pipe"])
def test_a_file_is_given_to_who_writes_by_himself(tmp_path: Path, name: str) -> None:
    """Law: NumPy and the like write into it as into any file, whatever is there; a regular one is
    as it was if they do not come to their end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("target")
    end = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    values = np.arange(3000)
    with outfile.opened(str(tmp_path / name)) as file:
        np.savez(file, values=values)
    content = os.read(end, 1 << 20) if name == "pipe" else (tmp_path / name).read_bytes()
    os.close(end)
    assert (np.load(io.BytesIO(content))["values"] == values).all()
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo()
    if name != "pipe":
        with pytest.raises(ZeroDivisionError), outfile.opened(str(tmp_path / name)) as file:
            file.write(bytes(1 << 20))
            raise ZeroDivisionError
        assert (tmp_path / name).read_bytes() == content and tidy(tmp_path)


def test_a_full_disk_has_a_remedy(tmp_path: Path) -> None:
    """Law: it is told by its name and what helps; nothing is left beside the file."""
    def full() -> Iterator[str]:
        yield "x"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError) as error:
        write(str(tmp_path / "f"), full())
    assert outfile.why(error.value) == ("No space left on device; free some space, or name a file "
                                        "where there is some")
    assert outfile.why(OSError(errno.EIO, "bad disk")) == "bad disk"
    assert list(tmp_path.iterdir()) == []


# ---- what is refused ------------------------------------------------------------------------


def test_what_is_read_is_not_written(tmp_path: Path) -> None:
    """Law: by whatever name; what is not there, or no file, is in nobody's way."""
    (tmp_path / "in").write_text("precious")
    (tmp_path / "soft").symlink_to("in")
    (tmp_path / "hard").hardlink_to(tmp_path / "in")
    (tmp_path / "other").touch()
    named = [str(tmp_path / name) for name in ("none", "other", "in")]
    for name in ("in", "soft", "hard", "../" + tmp_path.name + "/in"):
        with pytest.raises(ValueError, match=r"is read as .*/in, which would be lost; name ano"):
            check("--out", str(tmp_path / name), named)
    for name in ("free", "none"):
        assert check("--out", str(tmp_path / name), named) == str(tmp_path / name)
    assert check("--out", "/dev/null", ["/dev/null", "a\0b"]) == ""
    assert (tmp_path / "in").read_text() == "precious" and tidy(tmp_path)


def test_what_cannot_be_written_is_refused_in_words(tmp_path: Path) -> None:
    refused(tmp_path, "is a directory; name a file in it")
    refused(tmp_path / "none" / "f", f"there is no directory {tmp_path}/none; make it first")
    refused(f"{tmp_path}/none/", "there is no directory")
    refused(tmp_path / ("x" * 300), "File name too long")
    refused("x" * 5000, "File name too long")
    (tmp_path / "file").touch()
    refused(tmp_path / "file" / "f", "Not a directory")
    refused(f"{tmp_path}/a\0b", "no name of a file")
    refused(f"{tmp_path}/\ud800", "no name of a file")
    refused("/proc/none", "no file can be made in /proc")
    refused("/dev/fd/987", "no file can be made")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as there:
        monkeypatch.chdir(tmp_path)  # a socket's path is short
        there.bind("s")
        refused("s", "is a socket; name another file")
    assert stat.S_ISSOCK((tmp_path / "s").lstat().st_mode)


@pytest.mark.skipif(not ROOT, reason="only root can make a device")
def test_a_disk_is_refused(tmp_path: Path) -> None:
    """Law: what is on a disk is not written over (no driver has this number)."""
    try:
        os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o600, os.makedev(240, 77))
    except OSError:
        pytest.skip("no devices can be made here")
    refused(tmp_path / "disk", "is a disk")


# ---- links ----------------------------------------------------------------------------------


def test_own_links_are_followed_to_their_end(tmp_path: Path) -> None:
    """Law: the links stay, what they lead to is replaced, relative to where each link lies."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "one").symlink_to("a/two")
    (tmp_path / "a" / "two").symlink_to("b/three")
    (tmp_path / "a" / "b" / "three").symlink_to(tmp_path / "file")
    for before in (None, "old"):
        if before:
            (tmp_path / "file").write_text(before)
        written(tmp_path / "one")
        assert not (tmp_path / "file").is_symlink()
        assert (tmp_path / "file").read_text() == "new\n"
    assert all((tmp_path / n).is_symlink() for n in ("one", "a/two", "a/b/three"))
    assert tidy(tmp_path) and tidy(tmp_path / "a") and tidy(tmp_path / "a" / "b")


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    refused(tmp_path / "x", "links without end")
    (tmp_path / "gone").symlink_to("none/file")
    refused(tmp_path / "gone", "there is no directory .*none")
    (tmp_path / "dir").symlink_to(".")
    refused(tmp_path / "dir", "is a directory")


@as_root
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("target", ["victim", "none", "/dev/null", "."])
def test_a_strangers_link_is_not_followed(tmp_path: Path, depth: int, target: str) -> None:
    """Law: wherever it stands in the chain and wherever it leads; the message says whose it is."""
    (tmp_path / "victim").write_text("old")
    (tmp_path / "link").symlink_to(target)
    os.lchown(tmp_path / "link", STRANGER, STRANGER)
    name = tmp_path / "link"
    if depth:
        (tmp_path / "mine").symlink_to("link")
        name = tmp_path / "mine"
    assert "name the file itself" in refused(name, f"is a link of user {STRANGER}")
    assert (tmp_path / "victim").read_text() == "old" and not (tmp_path / "none").exists()


@as_root
def test_root_is_trusted_and_others_are_not_by_a_user(tmp_path: Path) -> None:
    """Law: a user follows links of his own and of root, but of nobody else."""
    tmp_path.chmod(0o777)
    for above in tmp_path.parents:
        if above.stat().st_mode & 0o001 == 0:
            above.chmod(above.stat().st_mode | 0o011)
    (tmp_path / "theirs").symlink_to("file")
    os.lchown(tmp_path / "theirs", 1, 1)
    (tmp_path / "roots").symlink_to("file")

    def act() -> str:
        said = []
        for name in ("theirs", "roots"):
            try:
                check("--stats", str(tmp_path / name))
                said.append("followed")
            except ValueError as error:
                said.append(str(error))
        return "\n".join(said)

    theirs, roots = as_stranger(act).split("\n")
    assert "is a link of user 1" in theirs and roots == "followed"


# ---- lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb", "a\\nb"), ("a\0b\x1b[1m", "a\\x00b\\x1b[1m"), ("caf\udce9", "caf\\xe9"),
     ("ü ∞", "ü ∞"), ("x" * 400, "x" * 100 + "..." + "x" * 40), ("\u2028", "\\u2028")],
)
def test_any_text_is_one_line(text: str, line: str) -> None:
    assert one_line(text) == line


def test_a_long_line_keeps_both_ends() -> None:
    line = one_line("begin " + "word " * 1000 + "end")
    assert line.startswith("begin ") and line.endswith("end") and len(line) < 1200


def test_telling_needs_no_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Law: what nobody can be told is told nowhere else, and is no error."""
    monkeypatch.setattr(sys, "stderr", None)
    outfile.tell("warning: x")
    closed = open(os.devnull, "w")  # noqa: SIM115
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    outfile.tell("warning: x")
    assert capfd.readouterr() == ("", "")


def test_the_first_of_several_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: of processes that have the same to say in a job one says it; without a job, or where its
    directory is not, nobody is silent who would be alone with it."""
    monkeypatch.setenv("FTRMA_JOB", str(tmp_path))
    for text in ("a", "b", "a"):
        outfile.tell_first(text, who="graph", unasked=False)
    assert capsys.readouterr().err == "graph: a\ngraph: b\n"
    monkeypatch.setenv("FTRMA_JOB", str(tmp_path / "elsewhere"))
    outfile.tell_first("a", who="graph", unasked=False)
    assert capsys.readouterr().err == "graph: a\n"
    monkeypatch.delenv("FTRMA_JOB")
    for unasked in (False, True):
        outfile.tell_first("a", who="graph", unasked=unasked)
    assert capsys.readouterr().err == "graph: a\n"


def test_a_file_that_two_make_at_once_has_the_lines_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: who finds that another process has made it meanwhile adds to it, too."""
    path, find = tmp_path / "log", outfile._find

    def late(name: str) -> Any:
        found = find(name)
        if not path.exists():
            path.write_bytes(b"theirs\n")
        return found

    monkeypatch.setattr(outfile, "_find", late)
    with outfile.appended(str(path)) as file:
        file.write(b"mine\n")
    assert path.read_bytes() == b"theirs\nmine\n"
