"""Lines of ftrma's own for people: their form on the terminal, and the copies that a log gets.

By default a line is short: ``ftrma: slot 2 died ...``. ``--verbose`` puts time, job and role before
the text, and shows lines that are only for who asks (`detail`). ``--quiet`` shows warnings, errors
and reasons of an end only. A log (``--log-file``) gets each line of all processes, shown or not,
with time, job and role.

This module makes lines and hands out copies; it writes to no stream. `outfile.tell` writes lines of
a process that owns its stderr, and a job's view those of a process that may not.

Invariant: what a line says is on one line, has no control characters, and ends.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

LONGEST_WORD, LONGEST_LINE = 160, 1200  # a path fits; the beginning and the remedy are kept
NEEDED = ("error:", "warning:")  # lines that begin so are shown to the quiet, too
FTRMA = "ftrma"  # who speaks, if no framework does


@dataclass(frozen=True)
class Message:
    """A line for people.

    Attributes:
        text: on one line, without who speaks.
        who: speaks: ftrma, or a framework.
        role: of the process, such as ``slot 2`` or ``supervisor``.
        time: seconds since 1970.
    """

    text: str
    who: str
    role: str
    time: float


@dataclass
class Voice:
    """The way in which this process speaks.

    Attributes:
        quiet, verbose: as the options.
        job: name of the job; "": there is none yet.
        role: tells the role of this process now.
        record: gets each message, for the log; None: there is no log.
    """

    quiet: bool = False
    verbose: bool = False
    job: str = ""
    role: Callable[[], str] = lambda: ""
    record: Callable[[Message], object] | None = None


voice = Voice()


def use(other: Voice) -> Voice:
    """Have this process speak in another way from here on; returns the way of before."""
    global voice
    before, voice = voice, other
    return before


def line(text: str, *, who: str = FTRMA, needed: bool = False) -> str:
    """Record a message, and return its line for the terminal, with the newline.

    Args:
        text: any text; line breaks and control characters are escaped.
        who: speaks.
        needed: show the line to the quiet, too, though it begins with neither error nor warning.

    Returns:
        The line; "": it is not to be shown.
    """
    message = _recorded(text, who)
    if voice.quiet and not needed and not message.text.startswith(NEEDED):
        return ""
    return _shown(message)


def detail(text: str, at: float = 0.0) -> str:
    """Return a line as `line` does; only the verbose and the log get it.

    Args:
        at: when it happened, seconds since 1970; 0: now.
    """
    message = _recorded(text, FTRMA, at)
    return _shown(message) if voice.verbose else ""


def in_full(message: Message, job: str) -> str:
    """Return a message with time, job and role, without who speaks first and without a newline."""
    moment = time.localtime(message.time)
    zone = time.strftime("%z", moment)
    at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(message.time % 1 * 1000):03d}"
    role = message.role + f" ({message.who})" * (message.who != FTRMA)
    where = " ".join(filter(None, (job, role)))
    return f"{at}{zone[:3]}:{zone[3:]} {where}{': ' * bool(where)}{message.text}"


def _recorded(text: str, who: str, at: float = 0.0) -> Message:
    message = Message(one_line(text), who, voice.role(), at or time.time())
    if voice.record:
        voice.record(message)
    return message


def _shown(message: Message) -> str:
    text = in_full(message, voice.job) if voice.verbose else message.text
    return f"{message.who}: {text}\n"


def one_line(text: str) -> str:
    """Return a text on one line: no control characters, nothing without end."""
    text = "".join(c if c.isprintable() else _escaped(c) for c in text)
    text = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: f"{word[0][:100]}...{word[0][-40:]}",
                  text)
    return text if len(text) <= LONGEST_LINE else f"{text[:800]} ... {text[-300:]}"


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is no text
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
