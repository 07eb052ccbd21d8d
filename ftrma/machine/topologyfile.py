"""Topology files: which nodes share a power supply, a switch, a rack.

MPI tells the node of a process and nothing above it, so the levels above are read from a TOML file.
It names the levels from the bottom up, and for each level its elements with their parts: nodes at
the first level, elements of the level below at the others::

    levels = ["switches", "racks"]

    [switches]
    "s[1-4]" = "node[01-64]"    # 16 nodes each, in order
    s5 = ["login1", "login2"]

    [racks]
    west = "s[1-2]"
    east = "s[3-5]"

A range stands for its names, also in a key. Several elements on one line share the line's parts
equally and in order. So three lines describe a machine of thousands of nodes.

Invariant: an accepted file describes a hierarchy (section 5 of Besta & Hoefler): each node and each
element below the top level belongs to exactly one element of the next level.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from ..host.tomlfile import Table, read
from .topology import NO_LEVEL, NODES, Domains, listed

MAX_NAMES = 1_000_000  # chosen: more than any machine's nodes, and still read within seconds
MAX_LENGTH = 255  # longest name; a host's has at most 253 characters
MAX_LEVELS = 64  # chosen: machines have five or six
NAME = re.compile(r"[A-Za-z0-9_.:-]+")
RESERVED = (NO_LEVEL, NODES, "levels", "all")


@dataclass(frozen=True)
class Topology:
    """A machine's hierarchy.

    Attributes:
        levels: names from the bottom up, the first is "nodes".
        paths: for each node its elements, one per level, starting with the node itself.
    """

    levels: tuple[str, ...]
    paths: dict[str, tuple[str, ...]]
    _table: Table = field(compare=False, repr=False)

    def domains(self, hosts: Sequence[str]) -> Domains:
        """Return the elements of processes on these hosts, one host per process.

        A host that the file does not contain by its full name is looked up by the part before the
        first dot: MPI tells the host name, which has a domain on some nodes and none on others.

        Raises:
            TomlError: the file does not contain a host.
        """
        found = [self.paths.get(h) or self.paths.get(h.split(".")[0]) for h in hosts]
        missing = sorted({h for h, path in zip(hosts, found, strict=True) if path is None})
        if missing:
            first = self.levels[1]
            raise self._table.error(
                first,
                f"processes run on {listed(missing)}, not in any of the {first}; add what is "
                "missing to one of them",
            )
        return Domains(self.levels, tuple(path for path in found if path))


def read_topology(path: Path | str, text: str | None = None) -> Topology:
    """Read a topology file.

    Args:
        path: of the file.
        text: its content, if the caller has it already.

    Raises:
        TomlError: it cannot be read or is wrong; the text begins with FILE:LINE:COLUMN and ends
            with the remedy.
    """
    root = read(path, text)
    levels = _levels(root)
    root.allow("levels", *levels)
    read_levels: list[_Level] = []
    for name in levels:
        if name not in root:
            raise root.error("levels", f"no table [{name}]; add it, or remove it from levels")
        read_levels.append(_Level(root.table(name), read_levels[-1] if read_levels else None))
    paths = {}
    for node in read_levels[0].parent:
        elements = [node]
        for level in read_levels:
            elements.append(level.parent[elements[-1]])
        paths[node] = tuple(elements)
    return Topology((NODES, *levels), paths, root)


def _levels(root: Table) -> list[str]:
    """Return the names of the levels above the nodes."""
    names = root.array("levels")
    if not names:
        raise root.error(
            "levels",
            'levels is empty; name at least one level above the nodes, such as ["racks"], or leave '
            "out --topology",
        )
    if len(names) > MAX_LEVELS:
        raise root.error("levels", f"{len(names)} levels; use at most {MAX_LEVELS}")
    for i, name in enumerate(names):
        at = ("levels", i)
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
            raise root.error(at, f'level {name!r}: expected a word in quotes, such as "racks"')
        if name in RESERVED:
            raise root.error(
                at,
                f"level {name!r}: this name has a meaning of its own; levels begins with the first "
                'level above the nodes, such as "switches"',
            )
        if name in names[:i]:
            raise root.error(at, f"level {name!r} is named twice; remove one")
    return list(names)


class _Level:
    """A level while it is being read.

    Attributes:
        key_of: for each element the key under which it was found.
        parent: for each node or element of the level below, its element here.
    """

    def __init__(self, table: Table, below: _Level | None) -> None:
        self.table, self.level = table, str(table.keys[-1])
        self.below = below.level if below else NODES
        # Nodes have no table of their own, since the first level names them.
        self.known = below.key_of if below else None
        self.key_of: dict[str, str] = {}
        self.parent: dict[str, str] = {}
        if not table.values:
            raise table.error(
                None, f'[{self.level}] is empty; add elements, such as r1 = "node[1-16]"'
            )
        for key in table.values:
            self.element(key)
        if below:
            below.check_parents(self)

    def check_parents(self, above: _Level) -> None:
        """Refuse an element of this level that belongs to no element of the level above."""
        for name, key in self.key_of.items():
            if name not in above.parent:
                raise self.table.error(
                    key, f"{name} is in none of the {above.level}; add it to one in [{above.level}]"
                )

    def element(self, key: str) -> None:
        """Read one line: one element or several, and their parts."""
        names = self.names(key, key)
        for name in names:
            if name in self.key_of:
                raise self.table.error(key, f"{name} stands in [{self.level}] twice; remove one")
            self.key_of[name] = key
        parts = self.parts(key)
        share, rest = divmod(len(parts), len(names))
        if not parts:
            raise self.table.error(key, f"{key} is empty; name its {self.below} or remove it")
        if rest or not share:
            raise self.table.error(
                key,
                f"{len(names)} {self.level} cannot share {len(parts)} {self.below} equally; give "
                "each as many, or write a line for each",
            )
        if len(self.parent) + len(parts) > MAX_NAMES:
            raise self.table.error(
                key, f"more than {MAX_NAMES} {self.below} in [{self.level}]; use fewer"
            )
        for i, (part, place) in enumerate(parts):
            if part in self.parent:
                raise self.table.error(
                    place,
                    f"{part} is in {self.parent[part]} already, and belongs to one of the "
                    f"{self.level} only; remove it here or there",
                )
            self.parent[part] = names[i // share]

    def parts(self, key: str) -> list[tuple[str, str | tuple[str | int, ...]]]:
        """Return the parts of an element, each with its place in the file."""
        value = self.table.values[key]
        entries = value if isinstance(value, list) else [value]
        found: list[tuple[str, str | tuple[str | int, ...]]] = []
        for i, entry in enumerate(entries):
            place = (key, i) if isinstance(value, list) else key
            if not isinstance(entry, str):
                raise self.table.error(
                    place,
                    f"{key} = {entry!r}: expected names of {self.below} in quotes, such as "
                    '"node[1-16]", or an array of such',
                )
            for name in self.names(place, entry):
                if self.known is not None and name not in self.known:
                    raise self.table.error(
                        place,
                        f"{name} is not one of the {self.below}; add it to [{self.below}], or "
                        "correct the name",
                    )
                found.append((name, place))
            if len(found) > MAX_NAMES:
                raise self.table.error(
                    place, f"{key} stands for more than {MAX_NAMES} {self.below}; use fewer"
                )
        return found

    def names(self, place: str | tuple[str | int, ...], text: str) -> list[str]:
        try:
            return expand(text)
        except ValueError as error:
            raise self.table.error(place, str(error)) from None


def expand(text: str) -> list[str]:
    """Return the names that a range stands for, in order.

    ``node[01-03,7]`` stands for node01, node02, node03 and node7; several brackets count like
    digits, the last one fastest. Leading zeros are kept.

    Raises:
        ValueError: it is not a range, with the remedy.
    """
    if not text:
        raise ValueError("a name is empty; give it, or remove the entry")
    pieces = re.split(r"\[([^\[\]]*)\]", text)
    if sum(map(len, pieces[::2])) > MAX_LENGTH:
        raise ValueError(f"{text[:40]!r}... is longer than {MAX_LENGTH} characters; shorten it")
    choices: list[list[str]] = []
    total = 1
    for i, piece in enumerate(pieces):
        if i % 2:
            choices.append(_numbers(text, piece))
            total *= len(choices[-1])
        elif piece and not NAME.fullmatch(piece):
            raise ValueError(
                f"{text!r} is not a name; use letters, digits and -_.: with ranges in brackets, "
                "such as node[01-16], and an array for several"
            )
        else:
            choices.append([piece])
        if total > MAX_NAMES:
            raise ValueError(f"{text!r} stands for more than {MAX_NAMES} names; use a shorter one")
    return ["".join(parts) for parts in product(*choices)]


def _numbers(text: str, inside: str) -> list[str]:
    """Return the numbers in one pair of brackets, as they are written."""
    found: list[str] = []
    for part in inside.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,18})(?:-([0-9]{1,18}))?\s*", part)
        if not ends:
            raise ValueError(
                f"{text!r}: {part!r} is not a range of numbers; write such as [01-16] or [1-4,7]"
            )
        first, last = ends[1], ends[2] or ends[1]
        padded = any(len(end) > 1 and end[0] == "0" for end in (first, last))
        if padded and len(first) != len(last):
            raise ValueError(
                f"{text!r}: {first} and {last} differ in digits; write {first.zfill(len(last))}-"
                f"{last.zfill(len(first))}"
            )
        if int(last) < int(first):
            raise ValueError(f"{text!r}: {first}-{last} runs backwards; write {last}-{first}")
        if int(last) - int(first) + len(found) >= MAX_NAMES:
            raise ValueError(f"{text!r} stands for more than {MAX_NAMES} names; use a shorter one")
        width = len(first) if padded else 0
        found += [f"{n:0{width}d}" for n in range(int(first), int(last) + 1)]
    return found
