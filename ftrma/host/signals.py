"""What a signal would do to a process, and whether a process has died of one."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import struct
from pathlib import Path
from typing import NoReturn

# ioctl PIDFD_GET_INFO and the one bit of its mask that is asked for, of linux/pidfd.h since 6.15.
GET_INFO, EXIT = 0xC040FF0B, 1 << 3
INFO = struct.Struct("=Q52xi")  # mask; wait status

# By which a process is asked to end; without a handler it ends at once and leaves what it has made.
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGVTALRM,
          signal.SIGPROF, signal.SIGXCPU, signal.SIGIO, signal.SIGPWR, signal.SIGSTKFLT)
SET_S = 2.0  # programs that handle signals say so at their top, behind what they import


class Signalled(BaseException):
    """A signal asks this process to end; its one argument is the signal's number."""


def heed_ending() -> None:
    """Have them raise Signalled in the main thread, where they are not ignored."""
    def ask(number: int, _frame: object) -> NoReturn:
        raise Signalled(number)

    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, ask)


def would_end(pid: int, number: int) -> bool:
    """Whether a signal ends this process, or would if it were still there: it is neither handled
    nor ignored, nor blocked by the main thread, as who blocks a signal waits for it in another way
    (``signal.sigwait``)."""
    masks = []
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in ("SigBlk", "SigIgn", "SigCgt"):
                masks.append(int(value, 16))
    return not any(mask >> (number - 1) & 1 for mask in masks)


def death_of(pidfd: int) -> int | None:
    """Signal of which a process died, 0 if of none; None where the kernel does not tell: before
    Linux 6.15, and as long as nobody has waited for the process."""
    with contextlib.suppress(OSError):
        mask, status = INFO.unpack(fcntl.ioctl(pidfd, GET_INFO, INFO.pack(EXIT, 0)))
        if mask & EXIT:
            return int(status) & 0x7F
    return None
