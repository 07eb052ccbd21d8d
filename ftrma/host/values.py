"""Reads values that users write: numbers, whole numbers, sizes, and small files.

Values come from the command line, the environment and tables; every error has the name, the value
and what is expected.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 8 << 20  # most bytes of a file that users write; it is read within seconds
MTBF_S = (1e-3, 1e12)  # nothing fails a thousand times a second or lasts 30 000 years


def number(name: str, text: str, least: float, most: float, what: str = "a number") -> float:
    """Return a number from a text.

    Args:
        name: name of the option, the variable or the field, for the error.
        least, most: the bounds.
        what: the words for what is expected.

    Raises:
        ValueError: it is no number, or out of bounds; the text has name, value and bounds.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise ValueError(f"{name} {text}: expected {what}, {least:g} or more, at most {most:g}")
    return value


def whole(name: str, text: str, least: int, most: int, what: str = "a whole number") -> int:
    """Return a whole number of at most 18 digits; arguments and errors: see `number`."""
    digits = re.fullmatch(r" *[+-]?([0-9]+) *", text)
    value = int(text) if digits and len(digits[1]) <= 18 else least - 1
    if not least <= value <= most:
        raise ValueError(f"{name} {text}: expected {what}, {least} or more, at most {most}")
    return value


def size(name: str, text: str, most: float, units: Mapping[str, float]) -> float:
    """Return a number of bytes from a text such as 64M; see `number`.

    Args:
        units: bytes by the unit's name in lower case; "" stands for no unit.
    """
    match = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]{0,30})?(?:e[+]?[0-9]{1,2})?) *([A-Za-z]*)", text)
    value = float(match[1]) * units.get(match[2].lower(), -1.0) if match else -1.0
    if not 0 <= value <= most:
        raise ValueError(
            f"{name} {text}: expected bytes, such as 65536, 512K, 64MiB or 1G, at most {most:.3g}"
        )
    return value


def read_bytes(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file, without waiting and without using up all memory.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than `most` bytes; `strerror`
            says why.
    """
    with open_file(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        content = b"" if size_bytes > most else file.read(most + 1) or b""
        if size_bytes > most or len(content) > most:
            raise OSError(errno.EFBIG, f"it is too large, at most {most} bytes are read")
        return content


def open_file(path: Path | str) -> BinaryIO:
    """Open a regular file for reading; OSError if it is none."""
    try:
        mode = os.stat(path).st_mode  # before it is opened, since opening can affect a device
    except ValueError:  # a NUL, or what no file system can hold
        raise OSError(errno.EINVAL, "no file can have such a name") from None
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a FIFO, a device or a socket and no file")
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
