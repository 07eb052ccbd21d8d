"""Laws: an agent's process is nobody's child, and has no descriptors but those that it is given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ftrma.native import wire

# Another thread waits for children all the time; the process has none that wait() may find.
WAITING = """
import os, subprocess, sys, threading
from ftrma.native import wire
found, over = [], False

def wait():
    while not over:
        try:
            found.append(os.wait())
        except ChildProcessError:
            pass

signal = []
import signal as signals
signals.signal(signals.SIGCHLD, lambda number, frame: signal.append(number))
thread = threading.Thread(target=wait)
thread.start()
for _ in range(100):
    low, high = os.pipe()
    wire.agent_start(["/bin/sh", "-c", "echo up >&3"], {}, "/", 0, high)
    os.close(high)
    assert os.read(low, 9) == b"up\\n"
    os.close(low)
over = True
thread.join()
print(found, signal)
"""


def test_no_wait_finds_it() -> None:
    result = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True,
                            timeout=60)
    assert result.stdout == "[] []\n", result


def told(tmp_path: Path, program: str) -> str:
    """Start Python with a descriptor; returns what its program has written to it."""
    low, high = os.pipe()
    given = os.open(tmp_path / "given", os.O_RDWR | os.O_CREAT)
    os.write(given, b"this is read")
    os.lseek(given, 0, os.SEEK_SET)
    try:
        wire.agent_start([sys.executable, "-c", textwrap.dedent(program)], {"A": "b"},
                         str(tmp_path), given, high)
    finally:
        os.close(high)
        os.close(given)
    with open(low) as file:
        return file.read()


def test_it_has_what_it_is_given_and_no_more(tmp_path: Path) -> None:
    low, high = os.pipe()
    os.set_inheritable(high, True)
    try:
        found = told(tmp_path, """
            import os
            open_ = [fd for fd in range(3, 100) if os.path.exists(f"/proc/self/fd/{fd}")]
            said = [open_, os.getcwd(), os.environ["A"], len(os.environ), os.read(0, 99),
                    os.getsid(0) == os.getpid()]
            os.write(3, repr(said).encode())
            """)
    finally:
        os.close(low)
        os.close(high)
    seen = eval(found)
    assert seen[0] == [wire.KEPT] and seen[1:3] == [str(tmp_path), "b"], found
    assert seen[3] <= 2 and seen[4:] == [b"this is read", True], found  # Python may set LC_CTYPE


def test_signals_that_are_blocked_stay_blocked(tmp_path: Path) -> None:
    """Law: the caller's mask is the process's, and the caller's own is as before."""
    asked = """
        import os, signal
        os.write(3, repr(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))).encode())
        """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        assert eval(told(tmp_path, asked)) == sorted({*map(int, before), int(signal.SIGUSR2)})
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == {*before, signal.SIGUSR2}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_what_cannot_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        wire.agent_start(["/nowhere/python"], {}, "/", 0, 1)
    with pytest.raises(FileNotFoundError):
        wire.agent_start([sys.executable], {}, str(tmp_path / "none"), 0, 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        wire.agent_start([sys.executable], {}, "/", 0, 9999)
