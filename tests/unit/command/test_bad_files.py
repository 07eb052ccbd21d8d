"""A file that cannot be read or written, or makes no sense, is one line, and status 2."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from badinput import BASE, LIMIT_S, NAME, SURROGATE, one_line, refused
from badinput import here as here

NO_FILES = ["dir", "fifo", "link", "none", NAME, "/dev/zero", "/dev/full", "none/x", "file/x",
            "a\0b", "a\nb", SURROGATE, "x" * 6000, "/dev/fd/987", "socket"]
FILE_OPTIONS = {
    "script": ["run", "-n", "2", "{}"],
    "--topology": ["run", "-n", "2", "--topology", "{}", "app.py"],
    "check": ["check", "{}"],
    "--machine": ["reliability", "--machine", "{}", "--ranks", "4", "--checksums", "2"],
    "plan --machine": ["plan", "--machine", "{}", "--ranks", "4", "--memory", "1G", "--target-pcf",
                       "1e-3"],
    "--fit": ["reliability", "--fit", "{}"],
}


@pytest.mark.parametrize("option", FILE_OPTIONS)
@pytest.mark.parametrize("name", NO_FILES, ids=[n[:20].replace("\0", "0") for n in NO_FILES])
def test_input_files(capsys: pytest.CaptureFixture[str], option: str, name: str) -> None:
    """Law: what is no regular file is told by its name, without waiting for anything."""
    with socket.socket(socket.AF_UNIX) as there:
        there.bind("socket")
        refused(capsys, [word.format(name) for word in FILE_OPTIONS[option]], name)


@pytest.mark.parametrize("option", list(FILE_OPTIONS)[1:])
def test_files_without_end(capsys: pytest.CaptureFixture[str], option: str) -> None:
    """Law: a file that is too large is not read, nor what only looks like one."""
    refused(capsys, [w.format("/proc/self/mem") for w in FILE_OPTIONS[option]], "/proc/self/mem")
    with open("large", "wb") as file:
        file.truncate(1 << 42)
    refused(capsys, [w.format("large") for w in FILE_OPTIONS[option]], "large", "too large")


@pytest.mark.plain
@pytest.mark.parametrize("option", list(FILE_OPTIONS)[1:])
@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, b"\xff\xfea\0=\0", b"\xfe\xff\0a", b"\xef\xbb\xbf", b"\xff" * 9,
     b"[" * 99999, b"a.b" * 5000 + b"=1", b"x = 0x" + b"f" * 9999, b"x = " + b"9" * 9999,
     b"x" * 5_000_000,     b"{" * 9999, b'"' * 9999, b"\n" * 9999 + b"x", b"a." * 20000 + b"a = 1",
     b"".join(b"k%d = 1\n" % i for i in range(50_000))],
    ids=range(16),
)
def test_contents_of_no_sense(
    capsys: pytest.CaptureFixture[str], option: str, content: bytes
) -> None:
    """Law: the file is told, at once, whatever is in it."""
    Path("odd").write_bytes(content)
    refused(capsys, [w.format("odd") for w in FILE_OPTIONS[option]], "odd")


@pytest.mark.parametrize("flag", ["--stats", "--trace"])
@pytest.mark.parametrize("name", ["dir", "link", "none/x", "file/x", NAME, "a\0b", "x" * 6000, "."])
def test_output_files_of_run(capsys: pytest.CaptureFixture[str], flag: str, name: str) -> None:
    """Law: before the job starts, option, name and reason are told."""
    refused(capsys, ["run", "-n", "2", flag, name, "app.py"], flag, name)


@pytest.mark.parametrize("name", ["dir/.svg", "link.svg", "none/x.svg", "file/x.svg", f"{NAME}.svg",
                                  "a\0b.svg", "x.gif", "x", ".svg", "dir"])
def test_output_files_of_reliability(capsys: pytest.CaptureFixture[str], name: str) -> None:
    words = ["reliability", *(word for pair in BASE.items() for word in pair), "--plot", name]
    refused(capsys, words, "--plot", name)


def test_two_outputs_in_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("alias").symlink_to("out")
    words = ["run", "-n", "2", "--stats", "out", "--trace", "alias", "app.py"]
    refused(capsys, words, "--stats out")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of another user's")
def test_a_strangers_link(capsys: pytest.CaptureFixture[str]) -> None:
    Path("theirs").symlink_to("file")
    os.lchown("theirs", 65534, 65534)
    for flag in ("--stats", "--trace"):
        refused(capsys, ["run", "-n", "2", flag, "theirs", "app.py"], "a link of user 65534")


@pytest.mark.plain
@pytest.mark.skipif(not os.path.exists("/usr/bin/setpriv"), reason="needs setpriv")
@pytest.mark.skipif(os.geteuid() != 0, reason="the user's part is played by a child of root's")
def test_files_without_permission(tmp_path: Path) -> None:
    """Law: what a user may not read or write is told (the interpreter must be readable to all)."""
    for path in [tmp_path, *tmp_path.parents]:
        if not path.stat().st_mode & 1:
            path.chmod(path.stat().st_mode | 0o011)
    Path("secret").write_text("x")
    Path("secret").chmod(0)
    user = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
            str(Path(sys.executable).with_name("ftrma"))]
    probe = subprocess.run([*user, "--version"], capture_output=True, timeout=LIMIT_S)
    if probe.returncode:
        pytest.skip("another user cannot run this Python")
    for words in (["run", "-n", "2", "secret"], ["check", "secret"],
                  ["reliability", "--fit", "secret"],
                  ["run", "-n", "2", "--stats", "secret", "app.py"]):
        done = subprocess.run([*user, *words], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 2
        one_line(done.stderr, "secret", "ermission")
