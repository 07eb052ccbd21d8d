"""Finds out what a signal would do to a process, and of which signal a process died."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import struct
import sys
from pathlib import Path
from typing import NoReturn

# ioctl PIDFD_GET_INFO and the one bit of its mask that is asked for, of linux/pidfd.h since 6.15.
GET_INFO, EXIT = 0xC040FF0B, 1 << 3
INFO = struct.Struct("=Q52xi")  # mask; wait status

# These signals ask a process to end. Without a handler it ends at once and leaves its files.
ENDING: tuple[signal.Signals, ...] = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGVTALRM,
    signal.SIGPROF, signal.SIGXCPU, signal.SIGIO, signal.SIGPWR)
if sys.version_info >= (3, 11):  # it knows one more signal
    ENDING += (signal.SIGSTKFLT,)
# Signals that a user may name to ask for an end behind a checkpoint.
ASKABLE = tuple(number.name.removeprefix("SIG") for number in (
    signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, *ENDING[1:]))


# Signals by which batch systems warn, as far as they have come before somebody handles them.
_early: list[int] = []


class Signalled(BaseException):
    """A signal asks this process to end; its one argument is the signal's number."""


def heed_ending() -> None:
    """Let the signals of ENDING raise Signalled in the main thread, unless they are ignored."""
    def ask(number: int, _frame: object) -> NoReturn:
        raise Signalled(number)

    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, ask)


def keep_warnings() -> None:
    """Keep SIGUSR1 and SIGUSR2 for `kept_warnings`, unless they are ignored or handled already.

    A batch system that warns of the end as soon as a job has begun would kill this process before
    it has prepared the job.
    """
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _frame: _early.append(number))


def kept_warnings() -> list[int]:
    """Return the signals that have come since `keep_warnings`, each time they came, and forget
    them."""
    kept = _early[:]
    del _early[:len(kept)]
    return kept


def would_end(pid: int, number: int) -> bool:
    """Say whether a signal ends a process, or would if the process still existed.

    This is so if the signal is neither handled nor ignored, nor blocked by the main thread: a
    program that blocks a signal waits for it in another way (``signal.sigwait``).
    """
    masks = []
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in ("SigBlk", "SigIgn", "SigCgt"):
                masks.append(int(value, 16))
    return not any(mask >> (number - 1) & 1 for mask in masks)


def death_of(pidfd: int) -> int | None:
    """Return the signal of which a process died; 0: of none, None: the kernel does not tell.

    The kernel does not tell before Linux 6.15, nor before somebody has waited for the process.
    """
    with contextlib.suppress(OSError):
        mask, status = INFO.unpack(fcntl.ioctl(pidfd, GET_INFO, INFO.pack(EXIT, 0)))
        if mask & EXIT:
            return int(status) & 0x7F
    return None
