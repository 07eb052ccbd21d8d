"""Looks from outside at where a process is: its state, its call of the MPI library, its stack.

Nothing here needs the process's help, its GIL, or a signal, since a process that hangs does not
react. The stack is read by py-spy (extra ``stacks``), which reads the process's memory; without it
there is only what the kernel knows about the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..host import timeouts

PACKAGE = str(Path(__file__).parents[1]) + os.sep
NAME_BYTES = 64  # for the name of a call; the longest of MPI has 38
MOST_FRAMES = 6  # most frames of a stack, the innermost ones
# Frames of C that only lead from Python to the call that hangs.
LEADING = ("ffi_call", "_call_function_pointer", "_ctypes", "PyCFuncPtr", "_PyEval", "PyObject_")
STATES = {"R": "computes", "S": "sleeps", "D": "waits for a device, which no signal ends",
          "T": "is stopped", "t": "is stopped by a debugger", "Z": "has ended"}


class _Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def read_memory(pid: int, address: int, size_bytes: int) -> bytes:
    """Read memory of another process of this user; empty if that is not allowed or not possible."""
    buffer = ctypes.create_string_buffer(size_bytes)
    mine = _Vector(ctypes.cast(buffer, ctypes.c_void_p), size_bytes)
    theirs = _Vector(address, size_bytes)
    read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    read.restype = ctypes.c_ssize_t
    got = read(pid, ctypes.byref(mine), ctypes.c_ulong(1), ctypes.byref(theirs), ctypes.c_ulong(1),
               ctypes.c_ulong(0))
    return buffer.raw[:got] if got > 0 else b""


def call_name(pid: int, address: int) -> str:
    """Return the name of the call that a process has entered last, given the address of the name.

    Returns:
        "a call of the MPI library" if the name cannot be read.
    """
    unknown = "a call of the MPI library"
    if not address:
        return unknown
    # The page after the name may not exist.
    name = read_memory(pid, address, NAME_BYTES) or read_memory(
        pid, address, min(NAME_BYTES, 4096 - address % 4096))
    text = name.partition(b"\0")[0].decode("ascii", "replace")
    return text if text.startswith("MPI") else unknown


def state_of(pid: int) -> str:
    """Return the kernel's state of a process's main thread: R, S, D, T, t; empty if it is gone."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    return ""


def state_in_words(pid: int) -> str:
    """Say what the kernel knows of a process: that it computes, sleeps, is stopped, and where."""
    state = STATES.get(state_of(pid), "is gone")
    place = ""
    with contextlib.suppress(OSError):
        place = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    return f"{state} ({place} in the kernel)" if place and state == STATES["S"] else state


def py_spy() -> str:
    """Return the path of py-spy, beside this Python or on the PATH; empty if it is not
    installed."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy") or ""


def stack(pid: int) -> list[str]:
    """Read the stack of a process's main thread.

    Returns:
        Frames as "function (file.py:12)", the innermost first; empty if it cannot be read.
    """
    tool = py_spy()
    if not tool:
        return []
    # To read frames of C the process is paused for a moment. If that is not allowed, its memory may
    # be readable nevertheless.
    for more, patience_s in ((["--native"], timeouts.NATIVE_STACK.s),
                             (["--nonblocking"], timeouts.PYTHON_STACK.s)):
        with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
            dump = subprocess.run([tool, "dump", "--json", "--pid", str(pid), *more],
                                  capture_output=True, timeout=patience_s, check=True,
                                  stdin=subprocess.DEVNULL)
            if frames := main_frames(json.loads(dump.stdout), pid):
                return in_words(frames)
    return []


def main_frames(threads: Sequence[dict[str, Any]], pid: int) -> list[dict[str, Any]]:
    """Return the frames of the main thread from py-spy's output."""
    main = [t for t in threads if t.get("os_thread_id") == pid] or [
        t for t in threads if t.get("thread_name") == "MainThread"]
    return list(main[0]["frames"]) if main else []


def in_words(frames: Sequence[dict[str, Any]]) -> list[str]:
    """Name the frames that are useful for a reader, the innermost first.

    Left out are ftrma's own frames that lead to the program, and frames of C below the first one of
    Python, except the innermost one of each kind.
    """
    theirs = [frame for frame in frames if not is_ours(frame)]
    first = next((i for i, frame in enumerate(theirs) if is_python(frame)), len(theirs))
    native = [frame for frame in theirs[:first] if not str(frame["name"]).startswith(LEADING)
              and not str(frame["name"]).startswith("0x")]
    python = [frame for frame in theirs[first:] if is_python(frame)]
    return [name_of(frame) for frame in [*native[:2], *python][:MOST_FRAMES]]


def is_python(frame: dict[str, Any]) -> bool:
    return str(frame.get("filename", "")).endswith(".py") or str(frame["name"]).startswith("<")


def is_ours(frame: dict[str, Any]) -> bool:
    """Say whether a frame belongs to the way from a rank's start to its program."""
    file = str(frame.get("filename") or "")
    return file.startswith((PACKAGE, "<frozen runpy")) or file in ("<string>", "runpy.py")


def name_of(frame: dict[str, Any]) -> str:
    file = os.path.basename(str(frame.get("filename") or "?"))
    line = f":{frame['line']}" if frame.get("line") else ""
    return f"{frame['name']} ({file}{line})"


def located(pid: int) -> str:
    """Say where a process is, in one line."""
    frames = stack(pid)
    if frames:
        return " < ".join(frames)
    return state_in_words(pid)
