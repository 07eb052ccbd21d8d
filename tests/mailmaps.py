"""Unmaps the mails of runs that are over, in a process that makes many of them.

A process of a job has one mail in each attempt and never unmaps it: a thread that tells deaths may
look there at any time. A test that plays thousands of jobs would run out of mappings.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def unmap(mail: Path) -> None:
    """Unmap a file of a mail wherever this process has it; nobody may use it any more."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, _, _, _, _, *path = line.split(maxsplit=5)
        if path and path[0].removesuffix(" (deleted)") == str(mail):
            first, end = (int(address, 16) for address in where.split("-"))
            assert libc.munmap(first, end - first) == 0
