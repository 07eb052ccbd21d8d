"""Flushes the program's files before a checkpoint.

A process that is killed loses its buffers. A program that goes back to a checkpoint writes again
what it wrote after the checkpoint, but not what it wrote before it. So the latter must have left
the process when the checkpoint is taken.

Files are found by their descriptors. A descriptor of a regular file that is open for writing
belongs to file objects of Python, to a C library, or to nothing. The garbage collector knows all
file objects, but asking it takes milliseconds. So it is asked only if there is a descriptor whose
file objects are not known yet, or are gone. (An audit hook would see each file being opened, but
would make each call of ``id()`` seven times as slow.)

The program has to flush some data itself: data that C libraries and compressors hold back; pipes
and sockets, where a flush may wait for a reader; and files whose Python object is made only after a
checkpoint has seen the bare descriptor.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import os
import stat
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

DESCRIPTORS = "/proc/self/fd"
BUFFERS = (io.BufferedWriter, io.BufferedRandom)
BUFFERED: tuple[type[Any], ...] = (io.TextIOWrapper, *BUFFERS)
Name = tuple[int, int]  # device and inode


class OpenFiles:
    """The files of this process.

    Args:
        tell: tells the user a line.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.tell, self.told = tell, False
        self.known: dict[int, tuple[Name, list[weakref.ref[Any]]]] = {}  # by descriptor

    def flush(self) -> None:
        """Flush Python's files and logging handlers."""
        flush_handlers()
        try:
            found = dict(written())
        except OSError as error:
            self._warn(f"{DESCRIPTORS} cannot be read ({error.strerror}): what it has written to "
                       "files is not flushed before a checkpoint, and may be missing after a "
                       "failure; call flush() before safepoint()")
            return
        if not all(self._knows(fd, name) for fd, name in found.items()):
            objects = file_objects()
            self.known = {fd: (name, objects.get(fd, [])) for fd, name in found.items()}
        for fd in found:
            for reference in self.known[fd][1]:
                self._flush(reference())

    def _knows(self, fd: int, name: Name) -> bool:
        """Say whether the file objects of a descriptor are known, and still there."""
        before, objects = self.known.get(fd, (None, []))
        return before == name and (not objects or any(_is_at(ref(), fd) for ref in objects))

    def _flush(self, file: Any) -> None:
        kind = next((kind for kind in BUFFERED if isinstance(file, kind)), None)
        try:
            with contextlib.suppress(ValueError):  # another thread has closed it meanwhile
                if kind:
                    kind.flush(file)
        except OSError as error:  # the program will get this error, too
            self._warn(f"{getattr(file, 'name', 'a file')} cannot be written ({error.strerror}); "
                       "after a failure some of it may be missing")

    def _warn(self, text: str) -> None:
        if not self.told:
            self.tell(f"warning: {text}")
        self.told = True


def written() -> Iterator[tuple[int, Name]]:
    """Yield descriptors above 2 that are open for writing to a regular file."""
    for text in os.listdir(DESCRIPTORS):
        fd = int(text)
        with contextlib.suppress(OSError):  # the directory's own descriptor is closed by now
            status = os.fstat(fd)
            if (fd > 2 and stat.S_ISREG(status.st_mode)
                    and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY):
                yield fd, (status.st_dev, status.st_ino)


def file_objects() -> dict[int, list[weakref.ref[Any]]]:
    """Return Python's file objects by descriptor; text files come before the buffers below them."""
    kinds = set(_with_subclasses(io.FileIO, *BUFFERED))
    files = [each for each in gc.get_objects() if type(each) in kinds]
    found: dict[int, list[weakref.ref[Any]]] = {}
    for file in sorted(files, key=lambda file: not isinstance(file, io.TextIOWrapper)):
        with contextlib.suppress(Exception):  # closed or detached
            # A text file over a compressor has a descriptor, too, and is left out.
            if not isinstance(file, io.TextIOWrapper) or isinstance(file.buffer, BUFFERS):
                found.setdefault(file.fileno(), []).append(weakref.ref(file))
    return found


def _with_subclasses(*kinds: type) -> Iterator[type]:
    for kind in kinds:
        yield kind
        yield from _with_subclasses(*kind.__subclasses__())


def _is_at(file: Any, fd: int) -> bool:
    with contextlib.suppress(Exception):
        return file is not None and bool(file.fileno() == fd)
    return False


def flush_handlers() -> None:
    """Flush logging handlers that gather records, except those that opt out of flushing at the end.

    Handlers of plain streams write each record at once.
    """
    logging: Any = sys.modules.get("logging")  # else the program has no handlers
    for reference in list(getattr(logging, "_handlerList", ())):
        handler = reference()
        if handler is None or type(handler).flush is logging.StreamHandler.flush:
            continue
        if not getattr(handler, "flushOnClose", True):
            continue
        with contextlib.suppress(Exception):  # it is the program's own; Rollback passes
            handler.flush()
