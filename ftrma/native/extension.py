"""Holds the loaded C extension for the modules beside this one, and its errors.

A process has one extension, so module variables hold it.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Any

from ..host.errors import NO_ROOM, FtrmaError, NoRoom

lib: Any = None
ffi: Any = None
_pending_error: BaseException | None = None  # the MPI call that is returning an error raises it


def attach(library: Any, declarations: Any) -> None:
    """Direct all calls to the loaded extension."""
    global lib, ffi
    lib, ffi = library, declarations


def check(result: int, doing: str) -> int:
    """Turn a negative errno into an error in words.

    Raises:
        NoRoom: no shared memory is left. FtrmaError: anything else.
    """
    if result >= 0:
        return int(result)
    if -result == errno.ENOSPC:
        raise NoRoom(f"{doing}: {NO_ROOM}")
    text = os.strerror(-result)
    if -result == errno.ENOMEM:
        text = (
            "no memory, or no addresses for it: a vault is mapped for as much memory as the "
            f"machine has{_address_limit()}"
        )
    raise FtrmaError(f"{doing}: {text}")


def _address_limit() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"; 'ulimit -v' allows {limit >> 20} MiB: set it to unlimited"


def keep_error(_kind: object, error: BaseException, _traceback: object) -> None:
    """Keep an error of a callback from C, so that the MPI call that led to the callback raises
    it."""
    global _pending_error
    _pending_error = error


def take_error() -> BaseException | None:
    """Take the error that the returning MPI call is to raise."""
    global _pending_error
    error, _pending_error = _pending_error, None
    return error
