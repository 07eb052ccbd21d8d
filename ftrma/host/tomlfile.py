"""Reads TOML files and reports mistakes with their place: ``FILE:LINE:COLUMN: what; remedy``.

The standard parser tells where a syntax error is, but returns plain dictionaries, so the place of a
value that is well-formed but wrong (a negative rate) is lost. Therefore a second pass over the
text, which is known to be valid by then, notes where each key and each array element is. It runs
only when there is something to report.

A reader asks a ``Table`` for its values by type and range, and never touches the dictionaries::

    root = tomlfile.read(Path("machine.toml"))
    root.allow("name", "level")
    name = root.text("name")
    for level in root.tables("level"):
        count = level.integer("count", least=1)
        if count % 4:
            raise level.error("count", f"{count} is not a multiple of 4; give 4, 8, ...")

Invariant: every error is a ``TomlError`` of one line that begins with the file's name.

Other text files that users write are read here, too (`read_text`).
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from difflib import get_close_matches
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from .values import read_bytes

Keys = tuple[str | int, ...]
Position = tuple[int, int]

MOST = 1e300  # bound for numbers without their own: sums of such numbers stay finite
MOST_DEPTH = 100  # of dotted keys: time and memory to read them grow with the square of the depth
BYTE_ORDERS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class TomlError(ValueError):
    """A mistake in a TOML file; the text says where, what and how to put it right."""


def read(path: Path | str, text: str | None = None) -> Table:
    """Read a file and return its root table.

    Args:
        path: path of the file.
        text: its content, if the caller has it already.

    Raises:
        TomlError: it cannot be read or is not TOML.
    """
    if text is None:
        text = read_text(Path(path))
    # Offsets are counted in the text that the parser sees, which folds line ends in the same way.
    text = text.replace("\r\n", "\n")
    deep = DEEP.search(text)
    if deep:
        line, column = position(text, deep.start())
        raise TomlError(f"{path}:{line}:{column}: nested too deeply; use fewer dots in a key")
    try:
        return Table(str(path), text, (), tomllib.loads(text))
    except RecursionError:
        raise TomlError(f"{path}:1:1: nested too deeply; use fewer levels of brackets") from None
    except ValueError as error:  # TOMLDecodeError, and Python's own on huge integers
        message = re.sub(r" \(at (line \d+, column \d+|end of document)\)$", "", str(error))
        found = re.search(r"\(at line (\d+), column (\d+)\)$", str(error))
        line, column = (int(found[1]), int(found[2])) if found else position(text, len(text))
        raise TomlError(
            f"{path}:{line}:{column}: not valid TOML: {message.rstrip('.')}; correct this line "
            "(or the one before it)"
        ) from None


def read_text(path: Path) -> str:
    """Return a UTF-8 file's text, without a signature; a TomlError says why it cannot be read."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise TomlError(
            f"{path}: cannot be read: {error.strerror}; give the path of a readable file"
        ) from None
    if content[:2] in BYTE_ORDERS:
        raise TomlError(
            f"{path}:1:1: the text is {BYTE_ORDERS[content[:2]]}; save the file as UTF-8"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = position(content[: error.start].decode(), error.start)
        raise TomlError(
            f"{path}:{line}:{column}: byte {content[error.start]:#04x} is not UTF-8; save the file "
            "as UTF-8"
        ) from None


class Table:
    """One table of a file, with checked access to its values.

    Every getter takes a key, which must exist unless ``default`` is given.
    """

    def __init__(self, path: str, source: str, keys: Keys, values: dict[str, Any]) -> None:
        self.path, self.source, self.keys, self.values = path, source, keys, values

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, key: str | int | Keys | None, message: str) -> TomlError:
        """Return the error at a key of this table, to be raised.

        Args:
            key: a key, or several that lead downward (integers index arrays), or None for the table
                itself. If there is no such key, the error is reported at the nearest table above.
            message: what is wrong, the value, and the remedy.
        """
        below = key if isinstance(key, tuple) else () if key is None else (key,)
        places = positions(self.source)
        keys = self.keys + below
        while keys and keys not in places:
            keys = keys[:-1]
        line, column = places.get(keys, (1, 1))
        return TomlError(f"{self.path}:{line}:{column}: {message}")

    def allow(self, *keys: str) -> None:
        """Refuse keys other than these; most of them are misspelt."""
        for key in self.values:
            if key not in keys:
                near = get_close_matches(key, keys, 1)
                hint = f"did you mean {near[0]}?" if near else f"use {', '.join(keys)}"
                raise self.error(key, f"unknown key {key!r}; {hint}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string that is not empty."""
        found = self._get(key, default, "a string")
        if not isinstance(found, str) or (not found and default != ""):
            raise self._wrong(key, found, 'a string in quotes, such as "nodes"')
        return found

    def integer(
        self, key: str, default: int | None = None, *, least: int = 0, most: int | None = None
    ) -> int:
        """Return a whole number, `least` <= it <= `most`."""
        found = self._get(key, default, "a whole number")
        valid = isinstance(found, int) and not isinstance(found, bool)
        if not valid or found < least or (most is not None and found > most):
            limit = f"{least} or more" if most is None else f"{least} to {most}"
            raise self._wrong(key, found, f"a whole number, {limit}")
        return int(found)

    def number(
        self, key: str, default: float | None = None, *, least: float = 0.0, most: float = MOST
    ) -> float:
        """Return a finite number, `least` <= it <= `most`."""
        found = self._get(key, default, "a number")
        return self._number(key, found, least, most)

    def numbers(self, key: str, *, least: float = 0.0, most: float = MOST) -> list[float]:
        """Return an array of finite numbers, each `least` <= it <= `most`."""
        return [self._number((key, i), v, least, most) for i, v in enumerate(self.array(key))]

    def array(self, key: str) -> list[Any]:
        """Return an array's values as they are; check each one and report with ``error``."""
        found = self._get(key, None, "an array")
        if not isinstance(found, list):
            raise self._wrong(key, found, "an array in brackets")
        return found

    def table(self, key: str) -> Table:
        """Return a table: ``[key]`` or ``key = { ... }``."""
        found = self._get(key, None, "a table")
        if not isinstance(found, dict):
            raise self._wrong(key, found, f"a table: [{key}] on a line of its own")
        return Table(self.path, self.source, (*self.keys, key), found)

    def tables(self, key: str) -> list[Table]:
        """Return an array of tables: ``[[key]]``, once for each."""
        found = self._get(key, None, f"a table [[{key}]]")
        if not isinstance(found, list) or not all(isinstance(value, dict) for value in found):
            raise self._wrong(key, found, f"tables: [[{key}]] on a line of its own, for each")
        return [Table(self.path, self.source, (*self.keys, key, i), value)
                for i, value in enumerate(found)]

    def _get(self, key: str, default: Any, what: str) -> Any:
        if key in self.values:
            return self.values[key]
        if default is None:
            raise self.error(None, f"{key} is missing; it must be {what}")
        return default

    def _number(self, key: str | Keys, found: Any, least: float, most: float) -> float:
        valid = isinstance(found, int | float) and not isinstance(found, bool)
        if not valid or not least <= found <= most:
            limit = f"{least:g} or more" if most == MOST else f"between {least:g} and {most:g}"
            raise self._wrong(key, found, f"a number, {limit}")
        return float(found)

    def _wrong(self, key: str | Keys, found: Any, expected: str) -> TomlError:
        name = key if isinstance(key, str) else "".join(
            f"[{k}]" if isinstance(k, int) else k for k in key)
        try:
            shown = str(found).lower() if isinstance(found, bool) else repr(found)
        except (RecursionError, ValueError):  # deep brackets, a number of thousands of digits
            shown = f"{type(found).__name__}..."
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return self.error(key, f"{name} = {shown}: expected {expected}")


# ---- where each key stands ------------------------------------------------------------------

BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
KEY = re.compile(r"""[ \t]*([A-Za-z0-9_-]+|"(?:\\.|[^"\\])*"|'[^']*')[ \t]*""")
STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")|' r"'''.*?'{3,5}(?!')|" r""""(?:\\.|[^"\\])*"|'[^']*'""", re.S
)
PLAIN = re.compile(r"[^,\]}#\n]*")
DEEP = re.compile(  # begins at a word's beginning, so that a long word is looked at once
    r"""(?<![A-Za-z0-9_"'-])(?:[A-Za-z0-9_"'-]+[ \t]*\.[ \t]*){""" f"{MOST_DEPTH}}}"
)


def position(text: str, offset: int) -> Position:
    """Return line and column, both counted from 1, the column in characters."""
    line_start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, min(offset, len(text)) - line_start + 1


def positions(text: str) -> dict[Keys, Position]:
    """Return where each key, array element and table header of a valid TOML text is."""
    return _Scanner(text).places


class _Scanner:
    """One pass over a text that the parser has accepted, so it need not check anything."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.starts = [0, *(found.end() for found in re.finditer("\n", text))]  # of the lines
        self.places: dict[Keys, Position] = {}
        self.lengths: dict[Keys, int] = {}
        table: Keys = ()
        self.skip()
        while self.at < len(text):
            if text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)
            self.skip()

    def skip(self) -> None:
        found = BLANK.match(self.text, self.at)
        assert found
        self.at = found.end()

    def note(self, keys: Keys, offset: int) -> None:
        line = bisect_right(self.starts, offset)
        self.places.setdefault(keys, (line, offset - self.starts[line - 1] + 1))

    def key(self) -> list[tuple[str, int]]:
        """Read a dotted key; return its parts, each with its offset."""
        parts = []
        while True:
            found = KEY.match(self.text, self.at)
            assert found
            name, self.at = found[1], found.end()
            if name[0] in "\"'":
                name = str(tomllib.loads(f"key = {name}")["key"])
            parts.append((name, found.start(1)))
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def header(self) -> Keys:
        """Read ``[a.b]`` or ``[[a.b]]``; a part that is an array of tables means its last
        element."""
        start, many = self.at, self.text.startswith("[[", self.at)
        self.at += 1 + many
        keys: Keys = ()
        parts = self.key()
        for i, (name, _) in enumerate(parts):
            keys = (*keys, name)
            self.note(keys, start)
            if many and i == len(parts) - 1:
                self.lengths[keys] = self.lengths.get(keys, 0) + 1
            if keys in self.lengths:
                keys = (*keys, self.lengths[keys] - 1)
        self.note(keys, start)
        self.at += 1 + many
        return keys

    def pair(self, table: Keys) -> None:
        for name, offset in self.key():
            table = (*table, name)
            self.note(table, offset)
        self.at += 1  # the equals sign
        self.value(table)

    def value(self, keys: Keys) -> None:
        self.skip()
        opening = self.text[self.at]
        if opening in "[{":
            self.at += 1
            self.skip()
            index = 0
            while self.text[self.at] not in "]}":
                if opening == "{":
                    self.pair(keys)
                else:
                    self.note((*keys, index), self.at)
                    self.value((*keys, index))
                index += 1
                self.skip()
                if self.text[self.at] == ",":
                    self.at += 1
                    self.skip()
            self.at += 1
        else:
            found = (STRING if opening in "\"'" else PLAIN).match(self.text, self.at)
            assert found
            self.at = found.end()
