"""Lines that ftrma prints for users: their form on the terminal, and the copies for a log.

By default a line is short: ``ftrma: slot 2 died ...``. ``--verbose`` puts time, job and role before
the text, and also shows details (`detail`). ``--quiet`` shows only warnings, errors and reasons for
an end. A log (``--log-file``) gets each line of all processes, shown or not, with time, job and
role.

This module makes lines and hands out copies; it does not write them. `outfile.tell` writes the
lines of a process that owns its stderr; a job's view writes those of other processes.

Invariant: a message is on one line, has no control characters, and has a limited length.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

LONGEST_WORD, LONGEST_LINE = 160, 1200  # a path fits; the beginning and the remedy are kept
NEEDED = ("error:", "warning:")  # lines that begin like this are shown with --quiet, too
FTRMA = "ftrma"  # the speaker, if it is not a framework


@dataclass(frozen=True)
class Message:
    """A line for users.

    Attributes:
        text: the text on one line, without the speaker's name.
        who: the speaker: ftrma, or a framework.
        role: role of the process, such as ``slot 2`` or ``supervisor``.
        time: seconds since 1970.
    """

    text: str
    who: str
    role: str
    time: float


@dataclass
class Voice:
    """The way in which this process prints its lines.

    Attributes:
        quiet, verbose: values of the options.
        job: name of the job; "" if there is none yet.
        role: returns the current role of this process.
        record: called with each message, for the log; None: there is no log.
    """

    quiet: bool = False
    verbose: bool = False
    job: str = ""
    role: Callable[[], str] = lambda: ""
    record: Callable[[Message], object] | None = None


voice = Voice()


def use(other: Voice) -> Voice:
    """Make this process print in another way from here on; return the former way."""
    global voice
    before, voice = voice, other
    return before


def line(text: str, *, who: str = FTRMA, needed: bool = False) -> str:
    """Record a message, and return its line for the terminal, with the newline.

    Args:
        text: any text; line breaks and control characters are escaped.
        who: the speaker.
        needed: show the line with --quiet, too, even if it begins with neither error nor warning.

    Returns:
        The line; "" if it is not to be shown.
    """
    message = _recorded(text, who)
    if voice.quiet and not needed and not message.text.startswith(NEEDED):
        return ""
    return _shown(message)


def detail(text: str, at: float = 0.0) -> str:
    """Return a line as `line` does, which is shown only with --verbose and in the log.

    Args:
        at: when it happened, seconds since 1970; 0: now.
    """
    message = _recorded(text, FTRMA, at)
    return _shown(message) if voice.verbose else ""


def in_full(message: Message, job: str) -> str:
    """Return a message with time, job and role, without the leading speaker's name and a
    newline."""
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
    """Return a text on one line, without control characters and with a limited length."""
    text = "".join(c if c.isprintable() else _escaped(c) for c in text)
    text = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: f"{word[0][:100]}...{word[0][-40:]}",
                  text)
    return text if len(text) <= LONGEST_LINE else f"{text[:800]} ... {text[-300:]}"


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is no valid text
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
