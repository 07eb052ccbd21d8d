"""The form of a text that has a graph, as its first lines show it.

A guess is made where the file alone says too little, and is told in words (`Guess.told`). What the
user says is not guessed. Nothing is guessed of a line that does not fit the others: it is refused
when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .textform import COMMENTS, ID, NUMBER, TextForm, fields

SEPARATORS = ",;\t|"
ROWS = 200  # lines that are looked at

# Names of columns, in lower case, letters and digits alone.
SOURCES = {"source", "src", "from", "fromnode", "fromnodeid", "fromid", "node1", "id1", "u", "i",
           "tail", "row", "start", "sourceid", "srcid", "user", "userid", "sender", "citing",
           "vertex1", "v1", "follower"}
TARGETS = {"target", "dst", "dest", "destination", "to", "tonode", "tonodeid", "toid", "node2",
           "id2", "v", "j", "head", "col", "column", "end", "targetid", "dstid", "item", "itemid",
           "movieid", "receiver", "recipient", "cited", "vertex2", "v2", "followee"}
WEIGHTS = {"weight", "weights", "w", "wt", "value", "val", "cost", "distance", "dist", "length",
           "capacity", "rating", "score", "strength", "similarity", "probability", "count",
           "edgeweight"}
# Times since 1970, from 1979 to 2128: as seconds, and as milliseconds.
TIMES = ((3 * 10**8, 5 * 10**9), (3 * 10**11, 5 * 10**12))


@dataclass(frozen=True)
class Wishes:
    """The user's statements about a file, which are not guessed.

    Attributes:
        columns: columns of source, target and perhaps weight: numbers from 0 on, or names; None:
            they are guessed.
        skip: number of lines at the beginning that are left out; None: it is guessed.
        separator: a character between fields; None: it is guessed.
        weighted: True: there are weights; False: they are ignored; None: it is guessed.
        one_based: the least id is 1.
        labels: ids are words, not numbers; None: it is guessed.
    """

    columns: tuple[int | str, ...] | None = None
    skip: int | None = None
    separator: str | None = None
    weighted: bool | None = None
    one_based: bool = False
    labels: bool | None = None

    def check(self, name: str) -> None:
        """Refuse wishes that are not valid.

        Raises:
            ValueError: a wish is refused; the text has the wish, and the remedy.
        """
        if self.columns is not None and (
                len(self.columns) not in (2, 3) or len(set(self.columns)) != len(self.columns)
                or any(isinstance(c, int) and c < 0 for c in self.columns)):
            raise ValueError(f"{name}: columns {','.join(map(str, self.columns))}; give those of "
                             "source, target and perhaps weight, from 0 on, such as 0,1,2")
        if self.columns is not None and self.weighted and len(self.columns) == 2:
            raise ValueError(f"{name}: weighted, and columns without a weight; give three columns")
        if self.skip is not None and self.skip < 0:
            raise ValueError(f"{name}: skip {self.skip}; give lines, 0 or more")
        if self.separator is not None and (len(self.separator) != 1 or
                                           not self.separator.isascii() or
                                           self.separator in "\r\n\"\0" or
                                           self.separator.isalnum()):
            raise ValueError(f"{name}: separator {self.separator!r}; give one character, such as , "
                             "or ;")
        if self.one_based and self.labels:
            raise ValueError(f"{name}: one_based and labels; ids that are words have no base")


@dataclass(frozen=True)
class Guess:
    """The form of a text.

    Attributes:
        labels: ids are words.
        told: a text that says how the weights are read.
    """

    form: TextForm
    labels: bool
    told: str


def guess(sample: bytes, name: str, wishes: Wishes) -> Guess:
    """Guess the form of an edge list.

    Args:
        sample: the first lines, each of them complete.
        name: name of the file, for errors.

    Raises:
        ValueError: a wish does not fit the text.
    """
    skip = wishes.skip or 0
    lines = [(number, line) for number, line in _lines(sample) if number > skip]
    separator = _separator([line for _, line in lines], wishes.separator)
    rows = [fields(line, separator, f"{name}: line {number}") for number, line in lines]
    header = wishes.skip is None and _is_header(rows)
    names = [_plain(word) for word in rows[0]] if header else []
    if header:
        skip, rows = lines[0][0], rows[1:]
    if wishes.columns is not None:
        columns = [_column(column, names, name) for column in wishes.columns]
    else:
        columns = _ends(names)
    weight, told = _weight(rows, names, columns, wishes)
    # Lines with another number of columns than the first one are refused, unless columns are named.
    width = 0 if wishes.columns is not None else len(names) or (len(rows[0]) if rows else 0)
    form = TextForm(separator, columns[0], columns[1], weight, width,
                    base=int(wishes.one_based), skip=skip)
    labels = wishes.labels
    if labels is None:
        first = rows[0] if rows else []
        ids = [first[column] for column in columns[:2] if column < len(first)]
        labels = any(word and not NUMBER.fullmatch(word) for word in ids) and \
            not wishes.one_based
    return Guess(form, labels, told)


def _lines(sample: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the first lines that are not comments, with their numbers from 1 on."""
    found = 0
    for number, line in enumerate(sample.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if line.strip(b" \t,") and not line.lstrip(b" \t").startswith(COMMENTS):
            yield number, line
            found += 1
            if found == ROWS:
                return


def _separator(lines: Sequence[bytes], given: str | None) -> str:
    """Return the character between fields; "": any number of blanks, tabs and commas."""
    if given is not None:
        return "" if given == " " else given
    bare = [re.sub(rb'"(?:[^"]|"")*"', b"", line) for line in lines]
    for separator in SEPARATORS:
        counts = [line.count(separator.encode()) for line in bare]
        if counts and counts[0] and 2 * counts.count(counts[0]) > len(counts):
            return separator  # a line with another number of fields is refused when it is read
    return ""


def _plain(word: bytes) -> str:
    return re.sub(r"[^a-z0-9]", "", word.decode("utf-8", "replace").lower())


def _is_header(rows: Sequence[Sequence[bytes]]) -> bool:
    """Say whether the first row has names of columns.

    It has no numbers then, and either known names, or numbers below them in the columns of ids.
    """
    if not rows or len(rows[0]) < 2 or any(NUMBER.fullmatch(word) for word in rows[0]):
        return False
    names = {_plain(word) for word in rows[0]}
    if names & SOURCES and names & TARGETS:
        return True
    return len(rows) > 1 and all(ID.fullmatch(word) for word in rows[1][:2])


def _column(column: int | str, names: Sequence[str], name: str) -> int:
    """Return the number of a column that is given by its number or its name."""
    if isinstance(column, int):
        return column
    if _plain(column.encode()) in names:
        return names.index(_plain(column.encode()))
    raise ValueError(f"{name}: no column {column}; " + (
        f"there are {', '.join(names)}" if names else "the file names none: give numbers from 0"))


def _ends(names: Sequence[str]) -> list[int]:
    """Return the columns of source and target: by their names, else the first two."""
    sources = [i for i, word in enumerate(names) if word in SOURCES]
    targets = [i for i, word in enumerate(names) if word in TARGETS]
    return [sources[0], targets[0]] if sources and targets else [0, 1]


def _weight(rows: Sequence[Sequence[bytes]], names: Sequence[str], columns: Sequence[int],
            wishes: Wishes) -> tuple[int | None, str]:
    """Return the column of weights, and a text that says so."""
    width = len(names) or (len(rows[0]) if rows else 0)
    others = [i for i in range(width) if i not in columns[:2]]
    if wishes.weighted is False:
        return None, "weights left out"
    if len(columns) == 3:
        return columns[2], f"weights from column {columns[2] + 1}"
    if wishes.columns is not None and not wishes.weighted:
        return None, "no weights"
    named = [i for i in others if names and names[i] in WEIGHTS]
    if wishes.weighted:
        if not others:
            raise ValueError("weighted: there is no column of weights beside source and target")
        column = (named or others)[0]
        return column, f"weights from column {column + 1}"
    if not others:
        return None, "no weights"
    if names:
        if named:
            return named[0], f"weights from column {named[0] + 1} ({names[named[0]]})"
        return None, (f"no weights: column {others[0] + 1} is {names[others[0]]} (weighted=True or "
                      "--weighted takes it)")
    column = others[0]
    words = [row[column] for row in rows if len(row) > column]
    take = f"column {column + 1} {{}} (weighted=True or --weighted takes it)"
    if not all(NUMBER.fullmatch(word) for word in words):
        return None, f"no weights: {take.format('has no numbers')}"
    if any(all(word.isdigit() and least <= int(word) <= most for word in words)
           for least, most in TIMES):
        return None, f"no weights: {take.format('looks like times')}"
    return column, f"weights from column {column + 1}"


def columns_of(names: Sequence[str], name: str,
               wishes: Wishes) -> tuple[int, int, int | None, str]:
    """Return the columns of source, target and weight in a table whose columns have names.

    Returns:
        Their numbers, and a text that says how the weights are read.

    Raises:
        ValueError: a wish does not fit the table.
    """
    plain = [_plain(word.encode()) for word in names]
    if wishes.columns is not None:
        columns = [_column(column, plain, name) for column in wishes.columns]
    else:
        columns = _ends(plain)
    weight, told = _weight([], plain, columns, wishes)
    return columns[0], columns[1], weight, told
