"""Forms of edge lists as text, and the reading of a line, plain enough to be read.

`edgekernels.parse` reads whole texts in C; tests compare both bit by bit. `edge` also says in words
what is wrong with a line that C refuses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...host.messages import one_line
from .references import MOST_ID, EdgeArrays

SHOWN = 40  # characters of a word that is wrong
NUMBER = re.compile(rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)",
                    re.IGNORECASE)
ID = re.compile(rb"-?[0-9]+")
COMMENTS = (b"#", b"%", b"//")


@dataclass(frozen=True)
class TextForm:
    """The form of lines with an edge each. Columns are counted from 0.

    Attributes:
        separator: a character between fields; "": any number of blanks, tabs and commas.
        source, target, weight: the columns of these; None: there are no weights.
        columns: number of columns of each line; 0: any number that includes the columns to read.
        mark: only lines that begin with this character have an edge; "": all lines have an edge.
        base: the id that is read as 0.
        skip: number of lines at the beginning that are left out, such as a line of names.
    """

    separator: str = ""
    source: int = 0
    target: int = 1
    weight: int | None = None
    columns: int = 2
    mark: str = ""
    base: int = 0
    skip: int = 0


PAIRS, WEIGHTED = TextForm(), TextForm(weight=2, columns=3)


def parse(text: bytes, what: str, line0: int, form: TextForm = PAIRS) -> EdgeArrays:
    """See `edgekernels.parse`."""
    found = [one for number, line in enumerate(text.split(b"\n"), line0 + 1)
             if (one := edge(line, f"{what}: line {number}", form)) is not None]
    source, target, weight = zip(*found, strict=True) if found else ((), (), ())
    return (np.array(source, np.int64), np.array(target, np.int64),
            None if form.weight is None else np.array(weight, np.float64))


def is_left_out(line: bytes, form: TextForm) -> bool:
    """Say whether a line has no edge: it is empty, or a comment, or does not have the mark."""
    line = line.lstrip(_blanks(form.separator))
    return (not line or line.startswith(COMMENTS)
            or not line.startswith(form.mark.encode()))


def _blanks(separator: str) -> bytes:
    """Return the characters around fields that mean nothing."""
    return {"": b" \t,", "\t": b" "}.get(separator, b" \t")


def fields(line: bytes, separator: str, where: str) -> list[bytes]:
    """Return the fields of a line, without blanks and quotes around them.

    Raises:
        ValueError: a quote is not closed, or other characters follow it.
    """
    found, blanks, last = [], _blanks(separator), len(line)
    end = re.compile(re.escape(separator.encode()) if separator else b"[ \t,]")
    at = last - len(line.lstrip(blanks))
    while True:
        if line[at:at + 1] == b'"':
            word = re.compile(rb'"((?:[^"]|"")*)"').match(line, at)
            if word is None:
                raise ValueError(f"{where}: {_shown(line[at:])} has no quote at its end")
            found.append(word[1])
            at = word.end()
        else:
            stop = end.search(line, at)
            begin, at = at, stop.start() if stop else last
            found.append(line[begin:at].rstrip(blanks))
        behind = at
        at = last - len(line[at:].lstrip(blanks))
        if at == last:
            return found
        if separator and line[at:at + 1] == separator.encode():
            at += 1
            at = last - len(line[at:].lstrip(blanks))
        elif separator or at == behind:
            raise ValueError(f"{where}: {_shown(line[at:])} behind a quote")


def edge(line: bytes, where: str, form: TextForm) -> tuple[int, int, float | None] | None:
    """Return the edge in a line of text; None: the line has no edge.

    Args:
        where: place of the line, for errors.

    Raises:
        ValueError: the line is no edge of this form.
    """
    line = line.removesuffix(b"\r")
    if is_left_out(line, form):
        return None
    words = fields(line, form.separator, where)
    check_width(words, form, where)
    source = _id(words[form.source], where, form.base)
    target = _id(words[form.target], where, form.base)
    weight = None if form.weight is None else weight_of(words[form.weight], where)
    return source, target, weight


def check_width(words: Sequence[bytes], form: TextForm, where: str) -> None:
    """Refuse a line that has more or fewer columns than its form.

    Raises:
        ValueError: the line is refused; the text has its place, and the remedy.
    """
    if form.columns and len(words) != form.columns:
        lacks = f"{_shown(words[0])} has no target; " if len(words) == 1 else ""
        raise ValueError(f"{where}: {lacks}{len(words)} columns, and {form.columns} are expected; "
                         "say which to read (columns=(0, 1); --columns 0,1), or mend the line")
    for name, column in (("source", form.source), ("target", form.target),
                         ("weight", form.weight)):
        if column is not None and column >= len(words):
            raise ValueError(f"{where}: has {len(words)} columns, and the {name} is column "
                             f"{column + 1}; a line has source, target and perhaps a weight")


def weight_of(word: bytes, where: str) -> float:
    """Return the weight that a word stands for.

    Raises:
        ValueError: the word is no number, or an integer that a float does not hold.
    """
    if not NUMBER.fullmatch(word):
        raise ValueError(f"{where}: weight {_shown(word)} is no number")
    weight = float(word)
    if weight != weight:
        raise ValueError(f"{where}: the weight is NaN")
    digits = word.lstrip(b"+-").lstrip(b"0")
    if digits.isdigit() and (len(digits) > 309 or int(digits) != abs(weight)):
        raise ValueError(f"{where}: weight {_shown(word)} is no number that a float holds exactly; "
                         "leave the column out (columns=(0, 1); --columns 0,1), or write it with a "
                         "point to have it rounded")
    return weight


def _id(word: bytes, where: str, base: int) -> int:
    if not ID.fullmatch(word):
        raise ValueError(f"{where}: {_shown(word)} is no id of a vertex; ids are whole numbers "
                         "(labels=True or --labels takes names), and comments begin with #")
    digits = word.lstrip(b"-0")
    if word.startswith(b"-") or len(digits) > 19 or int(digits or b"0") > MOST_ID:
        raise ValueError(f"{where}: id {_shown(word, quote='')} is out of range; ids are 0 to "
                         f"{MOST_ID}; labels=True or --labels takes any words")
    if int(digits or b"0") < base:
        raise ValueError(f"{where}: id {_shown(word, quote='')}, and ids begin at {base}")
    return int(digits or b"0") - base


def _shown(word: bytes, quote: str = "'") -> str:
    text = one_line(word[:SHOWN].decode("ascii", "backslashreplace"))
    return f"{quote}{text}{quote}{'...' if len(word) > SHOWN else ''}"
