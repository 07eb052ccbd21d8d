"""The options of a run, from four sources: command line, environment, files, defaults.

A value on the command line takes precedence over one in the environment, and so on in this order; a
file ``ftrma.toml`` in the current directory takes precedence over the user's own,
``$XDG_CONFIG_HOME/ftrma/ftrma.toml``. ``--config FILE`` (or ``FTRMA_CONFIG``) names one file in
place of both, and ``none`` stands for no file. Files have a table ``[run]``, whose keys are the
options' names without dashes (``slots`` for ``-n``), and a table ``[timeouts]`` with a key for each
entry of ``--timeout``.

A value in a file may be a command: ``mpirun`` names what is started. So a file that is found by
itself, not named by the user, has to belong to this user or to root, and nobody else may be able to
write to it.

Invariant: it is known where each value was given, and errors say so.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..host import timeouts, tomlfile
from ..host.tomlfile import Table
from .options import CONFIG_VARIABLE, OPTIONS, YES, Option, Options

FILE = "ftrma.toml"
NONE = "none"  # stands for no file
RUN, TIMEOUTS = "run", "timeouts"  # tables of a file
OPPOSITES = {"quiet": "verbose", "verbose": "quiet"}  # the one from the stronger source counts
DEFAULT = "default"
COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Given:
    """A value as it was given, as a text.

    Attributes:
        name: the name under which it was given: ``--spares``, ``FTRMA_SPARES``, ``spares``.
        text: text of the value.
        source: where it was given, in words; for a file its name, line and column.
    """

    name: str
    text: str
    source: str


@dataclass
class Configuration:
    """The options of a run, and where their values come from.

    Attributes:
        options: checked one by one, not yet against each other.
        sources: by attribute, for each option that was given; time-outs by their names.
        files: the files that were read, the strongest first.
    """

    options: Options
    sources: dict[str, Given] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the configuration as a file ``ftrma.toml`` that names the source of each value."""
        yield f"# over each other: {', '.join((COMMAND_LINE, 'environment', *self.files, DEFAULT))}"
        yield f"[{RUN}]"
        for option in OPTIONS:
            value = getattr(self.options, option.attribute)
            given = self.sources.get(option.attribute)
            shown = f"{option.key} = {literal(value)}"
            if value is None or value == [] or str(value) == "":
                shown = f"# {option.key} is not given"
            if not option.merged:
                yield f"{shown:<32}  # {given.source if given else DEFAULT}"
        yield ""
        yield f"[{TIMEOUTS}]"
        for row in timeouts.TABLE.values():
            given = self.sources.get(row.name)
            shown = f"{row.name} = {self.options.timeout.get(row.name, row.default_s):g}"
            yield f"{shown:<32}  # {given.source if given else DEFAULT}: {row.meaning}"

    def where(self, problem: str) -> str:
        """Name the sources, other than the command line, of the options that a message mentions."""
        flags = {option.attribute: option.flag for option in OPTIONS}
        flags |= {name: f"--timeout {name}" for name in timeouts.TABLE}
        named = [given for name, given in self.sources.items()
                 if re.search(rf"(?<![\w-]){flags[name]}(?![\w-])", problem)]
        variables = [given.name for given in named if given.name.startswith("FTRMA_")]
        places = [f"{given.name} in {given.source}" for given in named
                  if given.source != COMMAND_LINE and given.name not in variables]
        inside = [f"in the environment: {', '.join(variables)}"] * bool(variables)
        return f" ({'; '.join(inside + places)})" if inside or places else ""


def configure(
    words: Mapping[str, str | list[str] | None], environ: Mapping[str, str] = os.environ,
    config: str | None = None,
) -> Configuration:
    """Return the options of a run.

    Args:
        words: values from the command line, by attribute; None: not given there.
        environ: variables of the environment.
        config: the value of ``--config``.

    Raises:
        ValueError: a value or a file is wrong; the text says where, what and how to put it right.
    """
    found = Configuration(Options())
    tables = []
    for path in chosen_files(config, environ):
        root = tomlfile.read(path)
        root.allow(RUN, TIMEOUTS)
        found.files.append(path)
        tables.append(root)
    # From the weakest to the strongest: values in files are checked even if stronger ones replace
    # them.
    for root in reversed(tables):
        take_file(found, root)
    for option in OPTIONS:
        if text := environ.get(option.variable):
            take(found, option, Given(option.variable, text, f"environment: {option.variable}"))
    for option in OPTIONS:
        word = words.get(option.attribute)
        if word is not None:
            text = " ".join(word) if isinstance(word, list) else word
            take(found, option, Given(option.flag, text, COMMAND_LINE))
    return found


def take(found: Configuration, option: Option, given: Given) -> None:
    """Replace a weaker value by this one; ValueError if it is wrong."""
    value = option.parse(given.name, given.text)
    other = OPPOSITES.get(option.attribute, "")
    weaker = found.sources.get(other)
    if value is True and weaker and weaker.source.split(":")[0] != given.source.split(":")[0]:
        setattr(found.options, other, False)
        del found.sources[other]
    if option.merged:
        value = {**getattr(found.options, option.attribute), **value}
        found.sources |= dict.fromkeys(option.parse(given.name, given.text), given)
    else:
        found.sources[option.attribute] = given
    setattr(found.options, option.attribute, value)


def take_file(found: Configuration, root: Table) -> None:
    """Replace weaker values by those of a file.

    Raises:
        ValueError: a key is unknown or a value is wrong; the text has its place.
    """
    entries = {option.key: (option, "") for option in OPTIONS if not option.merged}
    merged = next(option for option in OPTIONS if option.merged)
    rows = {name: (merged, f"{name}=") for name in timeouts.TABLE}
    for name, known in ((RUN, entries), (TIMEOUTS, rows)):
        if name not in root:
            continue
        table = root.table(name)
        table.allow(*known)
        for key in table.values:
            option, before = known[key]
            given = Given(key, text_of(table, key), str(table.error(key, "")).rstrip(": "))
            try:
                option.parse(TIMEOUTS if before else key, before + given.text)
                take(found, option, replace(given, text=before + given.text))
            except ValueError as error:
                raise table.error(key, str(error)) from None


# ---- files ----------------------------------------------------------------------------------


def chosen_files(config: str | None, environ: Mapping[str, str]) -> list[str]:
    """Return the files to be read, the strongest first.

    Raises:
        ValueError: a file that is found must not be trusted; the text says why and what helps.
    """
    named = config or environ.get(CONFIG_VARIABLE)
    if named:
        return [] if named == NONE else [named]
    return [path for path in places(environ) if os.path.lexists(path) and trusted(path)]


def places(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths at which files are looked for, the strongest first."""
    yield FILE
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # as the XDG base directory specification demands
        home = environ.get("HOME") or os.path.expanduser("~")
        if not os.path.isabs(home):
            return
        base = os.path.join(home, ".config")
    yield os.path.join(base, "ftrma", FILE)


def trusted(path: str) -> bool:
    """Check that only this user and root can have written a file; a ValueError says who else
    can."""
    shown = path if os.path.dirname(path) else f"./{path}"
    other = f"give --config {NONE}"
    remedy = f"give --config {shown} to take it, or --config {NONE}"
    for look in (os.lstat, os.stat):  # a link, and what it leads to
        try:
            found = look(path)
        except OSError as error:
            raise ValueError(f"{shown}: cannot be read: {error.strerror}; put it right, or {other}"
                             ) from None
        if found.st_uid not in (0, os.geteuid()):
            raise ValueError(f"{shown}: belongs to user {found.st_uid}, who could choose by it "
                             f"what your job starts; {remedy}")
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{shown}: is no regular file; remove it, or {other}")
    if found.st_mode & stat.S_IWOTH:
        raise ValueError(f"{shown}: everybody may write to it, and could choose by it what your "
                         f"job starts; chmod o-w {shown}, or {remedy}")
    return True


def text_of(table: Table, key: str) -> str:
    """Return a file's value as the text that one would give on the command line."""
    value = table.values[key]
    listed = value if isinstance(value, list) else [value]
    if value == "" or value == []:
        raise table.error(key, f"{key}: the value is empty; give one, or leave the line out")
    if isinstance(value, bool):
        return YES if value else "no"
    if any(isinstance(entry, bool) or not isinstance(entry, str | int | float) for entry in listed):
        raise table.error(key, f"{key}: expected a number, true, false or a string in quotes")
    return " ".join(map(str, listed))


def literal(value: Any) -> str:
    """Return a value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(literal(getattr(entry, 'text', entry)) for entry in value)}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
