"""A process is looked at from outside: in which line it is, and in which call."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ftrma.host import timeouts
from ftrma.launch import stacks

PROGRAM = """
import ctypes, sys
def innermost():
    if sys.argv[1] == "spin":
        print("there", flush=True)
        while True:
            pass
    print("there", flush=True)
    ctypes.PyDLL(None).sleep(100)  # with the lock of Python held
def outer():
    innermost()
outer()
"""
Start = Callable[[str], int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program that hangs; gives its pid."""
    (tmp_path / "hangs.py").write_text(PROGRAM)
    started: list[subprocess.Popen[bytes]] = []

    def begin(how: str) -> int:
        process = subprocess.Popen([sys.executable, str(tmp_path / "hangs.py"), how],
                                   stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout and process.stdout.readline() == b"there\n"
        return process.pid

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


needs_py_spy = pytest.mark.skipif(not stacks.py_spy(), reason="py-spy is not installed")


@needs_py_spy
@pytest.mark.parametrize("how", ["spin", "sleep in C", "stopped"])
def test_the_line_is_named(start: Start, how: str) -> None:
    """Law: whatever the process does, the innermost function of Python and those around it are
    named; a stopped process stays stopped."""
    pid = start("spin" if how == "stopped" else how)
    if how == "stopped":
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while stacks.state_of(pid) != "T" and time.monotonic() < deadline:
            time.sleep(0.001)
    told = stacks.located(pid)
    assert "innermost (hangs.py:" in told and "outer (hangs.py:11) < <module>" in told, told
    if how == "sleep in C":
        assert told.startswith("clock_nanosleep"), told
    if how == "stopped":
        assert stacks.state_of(pid) == "T"


def test_the_kernel_says_what_is_known_without_py_spy(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: that a process computes, sleeps, is stopped or gone."""
    monkeypatch.setattr(stacks, "py_spy", lambda: "")
    pid = start("spin")
    assert stacks.located(pid) == "computes"
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while stacks.state_of(pid) != "T" and time.monotonic() < deadline:
        time.sleep(0.001)
    assert stacks.located(pid) == "is stopped"
    assert stacks.located(2**22 + 1) == "is gone"


def test_a_tool_that_fails_or_hangs_is_done_without(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: no error and no endless wait comes of it."""
    pid = start("spin")
    tool = tmp_path / "tool"
    monkeypatch.setattr(stacks, "py_spy", lambda: str(tool))
    monkeypatch.setitem(timeouts.chosen, "native-stack", 0.1)
    monkeypatch.setitem(timeouts.chosen, "python-stack", 0.1)
    for text in ("#!/bin/sh\nexit 1\n", "#!/bin/sh\nexec sleep 60\n", "#!/bin/sh\necho nonsense\n",
                 "#!/bin/sh\necho []\n"):
        tool.write_text(text)
        tool.chmod(0o755)
        assert stacks.stack(pid) == []
    tool.unlink()
    assert stacks.located(pid) == "computes"


def test_frames_that_lead_to_the_program_are_left_out() -> None:
    """Law: a reader sees the program's own frames, and the call of C that they are in."""
    def frame(name: str, file: str, line: int = 0) -> dict[str, object]:
        return {"name": name, "filename": file, "line": line}

    frames = [frame("clock_nanosleep", "libc.so.6"), frame("ffi_call_unix64", "libffi.so.8"),
              frame("solve", "/home/me/app.py", 7), frame("0x7f00", "libpython3.11.so"),
              frame("<module>", "/home/me/app.py", 9),
              frame("run", f"{stacks.PACKAGE}program/script.py", 40),
              frame("<module>", "<string>", 1)]
    assert stacks.in_words(frames) == [
        "clock_nanosleep (libc.so.6)", "solve (app.py:7)", "<module> (app.py:9)"]


def test_the_name_of_a_call_is_read_from_memory() -> None:
    """Law: a name at an address that cannot be read, or that is none, is not made up."""
    name = ctypes.create_string_buffer(b"MPI_Recv")
    assert stacks.call_name(os.getpid(), ctypes.addressof(name)) == "MPI_Recv"
    unknown = "a call of the MPI library"
    other = ctypes.create_string_buffer(b"\xff\xfe")
    assert stacks.call_name(os.getpid(), ctypes.addressof(other)) == unknown
    assert stacks.call_name(os.getpid(), 0) == stacks.call_name(os.getpid(), 8) == unknown
