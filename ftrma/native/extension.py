"""The loaded C extension, for the modules beside this one that call it, and its errors.

It is in a process once, and so is what stands here.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Any

from ..errors import NO_ROOM, FtrmaError, NoRoom

lib: Any = None
ffi: Any = None
_pending_error: BaseException | None = None  # to be raised by the MPI call that returns an error


def attach(library: Any, declarations: Any) -> None:
    """Have all calls go to the extension that was loaded."""
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
    """An error in a call up from C: the MPI call that led there raises it."""
    global _pending_error
    _pending_error = error


def take_error() -> BaseException | None:
    """The error that the returning MPI call is to raise."""
    global _pending_error
    error, _pending_error = _pending_error, None
    return error
