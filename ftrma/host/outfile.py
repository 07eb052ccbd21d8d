"""Writes ftrma's own output: files that options name, and lines on the terminal.

A name that a user gives for output may be a file, a FIFO, a device, or a link to one of them. Only
a regular file is replaced, completely or not at all, by a temporary file in its directory whose
name nobody can guess. A FIFO or a device is written to.

Links at the end of a name are followed by this module and not by the kernel, so that a link which a
stranger has put into a shared directory has no effect, whatever ``/proc/sys/fs/protected_symlinks``
says. Links of this user and of root are trusted.

Invariant: `check` finds every mistake that can be known before a job. A later error is an OSError
of `write` whose ``strerror`` describes it, and only the file is lost.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import secrets
import select
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import messages, private, timeouts

MOST_LINKS = 40  # the kernel's limit
BLOCK_BYTES = 1 << 20
BUFFER_BYTES = 1 << 16  # collected before they are written
ANOTHER = "name another file"


@dataclass(frozen=True)
class _Target:
    """The target of a name, after all links are followed.

    Attributes:
        path: path at which the links end.
        found: status of what exists there; None if it is to be made.
        descriptor: a descriptor of this process, if the name means one, such as /dev/stdout.
        given: whether it is a link in /proc, which names an open file and not a path.
    """

    path: str
    found: os.stat_result | None = None
    descriptor: int | None = None
    given: bool = False

    @property
    def replaced(self) -> bool:
        regular = self.found is None or stat.S_ISREG(self.found.st_mode)
        return regular and self.descriptor is None and not self.given


def check(option: str, name: str, inputs: Iterable[str] = ()) -> str:
    """Refuse, before a job starts, an output that cannot be written, or that is an input.

    Args:
        inputs: names of files that are read; those that do not exist are ignored.

    Returns:
        The path of the regular file that will exist, for comparison; "" for anything else.

    Raises:
        ValueError: option, value, reason and remedy.
    """
    try:
        target = _find(name)
        if not target.replaced:
            if target.descriptor is None and not _writable(target.path):
                raise _refusal(errno.EACCES, f"no permission to write it; {ANOTHER}")
            return ""
        for other in inputs:
            if target.found and _is_at(target.found, other):
                raise _refusal(errno.EEXIST, f"is read as {other}, which would be lost; {ANOTHER}")
        try:
            with _temporary(target):
                pass
        except OSError:
            if target.found is None:
                raise
        return os.path.realpath(target.path)
    except OSError as error:
        raise ValueError(f"{option} {name}: {error.strerror}") from None


def write(name: str, chunks: Iterable[str | bytes]) -> None:
    """Write what `chunks` yields, in order, to what a name leads to.

    Raises:
        OSError: it cannot be written; then a regular file is unchanged.
    """
    with opened(name) as file:
        for chunk in chunks:
            file.write(chunk if isinstance(chunk, bytes)
                       else chunk.encode(errors="surrogateescape"))


@contextlib.contextmanager
def opened(name: str) -> Iterator[io.BufferedWriter]:
    """Open what a name leads to for writing, from its beginning to its end, during the block.

    A regular file is replaced when the block ends, and stays unchanged if the block fails.

    Raises:
        OSError: it cannot be written; this may also be raised at the end of the block.
    """
    target = _find(name)
    if not target.replaced:
        with _buffered(_open(target)) as into:
            yield into
        return
    with contextlib.ExitStack() as stack:
        try:
            file, temporary = stack.enter_context(_temporary(target))
        except OSError:
            if target.found is None:
                raise
            with _buffered(_open(target)) as into:
                yield into
            return
        with _buffered(file) as into:
            yield into
        try:
            os.replace(temporary, target.path)
        except OSError:  # another user's file in /tmp, or one mounted into a container
            if target.found is None:
                raise
            with open(temporary, "rb") as written, _buffered(_open(target)) as into:
                while block := written.read(BLOCK_BYTES):
                    into.write(block)


def appended(name: str) -> io.FileIO:
    """Open what a name leads to for appending; a missing file is made.

    A FIFO without a reader is refused, and a FIFO whose reader does not read takes no more bytes: a
    write to the opened file never waits.

    Raises:
        OSError: it cannot be written.
    """
    try:
        return _appended(_find(name))
    except FileExistsError:  # another process has just made it; now it is found
        return _appended(_find(name))


def _appended(target: _Target) -> io.FileIO:
    if target.descriptor is not None:
        return io.FileIO(os.dup(target.descriptor), "ab")
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if not target.given:
        flags |= os.O_NOFOLLOW
    if target.found is None:
        flags |= os.O_CREAT | os.O_EXCL
    return io.FileIO(os.open(target.path, flags, 0o666), "ab")


def why(error: OSError) -> str:
    """Say why a file could not be written, and what helps."""
    said = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{said}; free some space, or name a file where there is some"
    return said


def _find(name: str) -> _Target:
    """Follow a name to its end; OSError if nothing can be written there."""
    path = name
    try:
        os.fsencode(path)
        for _ in range(MOST_LINKS):
            found = os.lstat(path)
            if not stat.S_ISLNK(found.st_mode):
                return _accept(_Target(path, found))
            if _in_proc(found):
                return _accept(_given(path))
            if found.st_uid not in (0, os.geteuid()):
                raise _refusal(
                    errno.EACCES,
                    f"{path} is a link of user {found.st_uid}, who may lead it anywhere; name the "
                    "file itself",
                )
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        raise _refusal(errno.ELOOP, f"links without end; {ANOTHER}")
    except FileNotFoundError:
        directory = os.path.dirname(path) or "."
        if not os.path.isdir(directory) or not os.path.basename(path):
            raise _refusal(
                errno.ENOENT, f"there is no directory {directory}; make it first"
            ) from None
        return _Target(path)
    except ValueError:  # a NUL, or a name that no file system can hold
        raise _refusal(errno.EINVAL, f"is no name of a file; {ANOTHER}") from None
    except OSError as error:
        if isinstance(error, _Refusal):
            raise
        raise _refusal(error.errno or 0, f"{error.strerror}; {ANOTHER}") from None


def _is_at(found: os.stat_result, name: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return os.path.samestat(found, os.stat(name))
    return False


def _in_proc(found: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        return found.st_dev == os.lstat("/proc/self/fd").st_dev
    return False


def _given(path: str) -> _Target:
    """Follow a link in /proc to one of our descriptors, or to an open file of another process."""
    ours = rf"/proc/{os.getpid()}(/task/[0-9]+)?/fd"
    if re.fullmatch(ours, os.path.realpath(os.path.dirname(path))):
        descriptor = int(os.path.basename(path))
        return _Target(path, os.fstat(descriptor), descriptor)
    return _Target(path, os.stat(path), given=True)


def _accept(target: _Target) -> _Target:
    assert target.found
    mode = target.found.st_mode
    if stat.S_ISDIR(mode):
        raise _refusal(errno.EISDIR, "is a directory; name a file in it")
    if target.descriptor is not None:
        if fcntl.fcntl(target.descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise _refusal(errno.EBADF, f"is open for reading only; {ANOTHER}")
    elif stat.S_ISSOCK(mode):
        raise _refusal(errno.ENXIO, f"is a socket; {ANOTHER}")
    elif stat.S_ISBLK(mode):
        raise _refusal(errno.EPERM, f"is a disk, and what is on it would be lost; {ANOTHER}")
    elif target.replaced and not _writable(target.path):
        raise _refusal(errno.EACCES, f"no permission to write it; {ANOTHER}")
    return target


def _writable(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=True)


class _Refusal(OSError):
    """An OSError whose text was made here."""


def _refusal(number: int, text: str) -> _Refusal:
    return _Refusal(number, text)


@contextlib.contextmanager
def _temporary(target: _Target) -> Iterator[tuple[io.FileIO, str]]:
    """Make a new file beside the target, with the rights that the target has or would have.

    The file is removed at the end if it was not renamed.
    """
    directory = os.path.dirname(target.path) or "."
    path = os.path.join(directory, f".ftrma-{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # The temporary file is ours until it is renamed; a signal may come at any time.
    old, ours = target.found, True
    try:
        try:
            mode = old.st_mode & 0o777 if old else 0o666
            file = io.FileIO(path, "xb", opener=lambda path, _: os.open(path, flags, mode))
        except OSError as error:
            ours = False
            raise _no_file(directory, error) from None
        with file:
            try:
                if old:
                    mine = os.fstat(file.fileno())
                    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
                        os.fchown(file.fileno(), old.st_uid, old.st_gid)
                    os.fchmod(file.fileno(), mode)
            except OSError as error:
                raise _no_file(directory, error) from None
            yield file, path
    finally:
        if ours:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _no_file(directory: str, error: OSError) -> _Refusal:
    return _refusal(
        error.errno or 0, f"no file can be made in {directory} ({error.strerror}); {ANOTHER}"
    )


def _open(target: _Target) -> io.FileIO:
    """Open an existing target for writing; a regular file is emptied."""
    if target.descriptor is not None:
        return io.FileIO(os.dup(target.descriptor), "wb")
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    flags |= os.O_APPEND if target.given else os.O_NOFOLLOW
    assert target.found
    try:
        file = io.FileIO(os.open(target.path, flags), "wb")
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(target.found.st_mode):
            raise _refusal(
                errno.ENXIO, "nobody reads this FIFO; start a reader first, such as cat"
            ) from None
        raise
    now, then = os.fstat(file.fileno()), target.found
    if (now.st_dev, now.st_ino, stat.S_IFMT(now.st_mode)) != (
        then.st_dev, then.st_ino, stat.S_IFMT(then.st_mode)
    ):
        file.close()
        raise _refusal(errno.ESTALE, f"something else was put in its place; {ANOTHER}")
    os.set_blocking(file.fileno(), True)
    if target.replaced:
        file.truncate(0)
    return file


class _Whole(io.RawIOBase):
    """A file that writes all that it is given, in order."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view, done = memoryview(data).cast("B"), 0
        while done < len(view):
            count = self._file.write(view[done:])
            if count is None:  # the descriptor does not block
                ready = select.poll()
                ready.register(self._file, select.POLLOUT)
                if not ready.poll(timeouts.OUTPUT.s * 1e3):
                    raise _refusal(errno.ETIMEDOUT, "its reader does not read on")
            done += count or 0
        return done

    def close(self) -> None:
        self._file.close()
        super().close()


def _buffered(file: io.FileIO) -> io.BufferedWriter:
    return io.BufferedWriter(_Whole(file), BUFFER_BYTES)


# ---- the terminal ---------------------------------------------------------------------------

def tell(text: str, before: str = "", *, who: str = messages.FTRMA, needed: bool = False) -> None:
    """Write a line to stderr, after the text `before`; without stderr, do nothing.

    Args:
        who, needed: see `messages.line`.
    """
    _to_stderr(before, messages.line(text, who=who, needed=needed))


def tell_first(text: str, *, who: str, unasked: bool) -> None:
    """Write a line that several slots of a job may want to write, once on each node.

    Args:
        who: see `messages.line`.
        unasked: write it if there is no job, whose directory otherwise says who is first.
    """
    job = os.environ.get("FTRMA_JOB")
    if job:
        unasked = True
        with contextlib.suppress(OSError):  # on another node the job's directory has another name
            name = f"told-{zlib.crc32(text.encode(errors='replace')):08x}"
            try:
                private.make(Path(job, name)).close()
            except FileExistsError:
                unasked = False
    if unasked:
        tell(text, who=who)


def tell_details(text: str, at: float = 0.0) -> None:
    """Write a line that appears only with --verbose and in the log; see `messages.detail`."""
    _to_stderr("", messages.detail(text, at))


def _to_stderr(before: str, line: str) -> None:
    if before or line:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"{before}{line}")
            sys.stderr.flush()


def say(text: str) -> None:
    """Print a result at once.

    Raises:
        BrokenPipeError: the reader has closed the pipe. OSError: it cannot be written.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard(1)  # the text is still in Python's buffer: a later flush would be told again
        raise _refusal(error.errno or 0, f"cannot write the output: {error.strerror}") from None


def open_terminal() -> None:
    """Open /dev/null in place of a closed stdin, stdout or stderr, before a file gets its number.

    Characters that the terminal cannot show are escaped from now on.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            os.set_inheritable(fd, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def close_terminal(status: int) -> int:
    """Flush stdout and stderr, so that Python has nothing to complain about at its end.

    Returns:
        The exit status: 1 instead of 0 if the output could not be written.
    """
    for fd, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            if fd == 1 and not isinstance(error, BrokenPipeError):
                tell(f"error: cannot write the output: {getattr(error, 'strerror', error)}")
                status = status or 1
            _discard(fd)
    return status


def _discard(fd: int) -> None:
    """Send to /dev/null whatever is still written to a descriptor."""
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), fd)
