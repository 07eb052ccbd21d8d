"""What a program has written to files and Python still holds back goes out before a checkpoint.

A process that is killed takes its buffers along. What was written behind the checkpoint is written
again by who goes back there; what was written before it is not, so it must have left the process.

A file is looked for by its descriptor: whatever is a regular file and open for writing belongs to
some of Python's file objects, or to a C library, or to nobody. Which it is says the garbage
collector, that knows them all but takes milliseconds to ask; so it is asked only where there is a
descriptor whose objects are not known yet, or no longer there. (An audit hook would see each file
being opened, and make each call of ``id()`` seven times as slow.)

Left to the program are what C libraries and compressors hold back, pipes and sockets, where a flush
may wait for a reader, and what becomes a Python object after a checkpoint has seen the bare
descriptor.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import logging
import os
import stat
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
        tell: what users are to know.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.tell, self.told = tell, False
        self.known: dict[int, tuple[Name, list[weakref.ref[Any]]]] = {}  # by descriptor

    def flush(self) -> None:
        """Have the kernel get whatever Python's files and logging handlers hold back."""
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
        """Whether the file objects of a descriptor are those of the last time, or still none."""
        before, objects = self.known.get(fd, (None, []))
        return before == name and (not objects or any(_is_at(ref(), fd) for ref in objects))

    def _flush(self, file: Any) -> None:
        kind = next((kind for kind in BUFFERED if isinstance(file, kind)), None)
        try:
            with contextlib.suppress(ValueError):  # closed meanwhile, by another thread
                if kind:
                    kind.flush(file)
        except OSError as error:  # the program will meet it, too
            self._warn(f"{getattr(file, 'name', 'a file')} cannot be written ({error.strerror}); "
                       "after a failure some of it may be missing")

    def _warn(self, text: str) -> None:
        if not self.told:
            self.tell(f"warning: {text}")
        self.told = True


def written() -> Iterator[tuple[int, Name]]:
    """Descriptors behind stderr that are open for writing to a regular file."""
    for text in os.listdir(DESCRIPTORS):
        fd = int(text)
        with contextlib.suppress(OSError):  # it was that of the directory itself
            status = os.fstat(fd)
            if (fd > 2 and stat.S_ISREG(status.st_mode)
                    and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY):
                yield fd, (status.st_dev, status.st_ino)


def file_objects() -> dict[int, list[weakref.ref[Any]]]:
    """Python's file objects by descriptor; what encodes text comes before what it writes to."""
    kinds = set(_with_subclasses(io.FileIO, *BUFFERED))
    files = [each for each in gc.get_objects() if type(each) in kinds]
    found: dict[int, list[weakref.ref[Any]]] = {}
    for file in sorted(files, key=lambda file: not isinstance(file, io.TextIOWrapper)):
        with contextlib.suppress(Exception):  # closed or detached
            # Text that is compressed on its way has a descriptor, too.
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
    """Have handlers that gather records hand them on, unless they may end without having done so;
    those of plain streams write each record at once."""
    for reference in list(getattr(logging, "_handlerList", ())):
        handler = reference()
        if handler is None or type(handler).flush is logging.StreamHandler.flush:
            continue
        if not getattr(handler, "flushOnClose", True):
            continue
        with contextlib.suppress(Exception):  # the program's own handler; Rollback passes
            handler.flush()
