"""Reads times that users give: how long something lasts, and when a job must have ended. Pure.

A duration is written in the usual ways of people and batch systems: ``90``, ``90s``, ``3h30m``,
``1d``, ``03:30:00`` (hours, minutes, seconds) or ``1-12:00:00`` (a day and 12 hours). A number
alone is seconds. A point in time is written as ``@`` and seconds since 1970, in which batch systems
give the end of an allocation (``@$SLURM_JOB_END_TIME``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MOST_S = 1e9  # 31 years: longer than any allocation
MARGIN_S = 90.0  # chosen: how early examples of batch systems warn (`--signal=B:USR1@90`)
MARGIN_SHARE = 10  # part of a short time limit, so that most of it is left for computing
EXPECTED = "expected seconds, or a time such as 90s, 3h30m, 03:30:00 or 1-12:00:00"


def duration(name: str, text: str, least: float = 0.0) -> float:
    """Return the seconds of a duration.

    Args:
        name: name of the option or the variable, for the error.
        text: see the docstring of this module.
        least: least number of seconds that is allowed.

    Raises:
        ValueError: it is no duration, or out of bounds; the text has name, value and remedy.
    """
    seconds = _clock(text) if ":" in text or "-" in text[1:] else _with_units(text)
    if seconds is None or not least <= seconds <= MOST_S:
        bounds = f", {least:g} s or more, at most {MOST_S:g} s"
        raise ValueError(f"{name} {text}: {EXPECTED}{bounds}")
    return seconds


def _with_units(text: str) -> float | None:
    """Return the seconds of a text like ``3h30m``; None if it is no such text."""
    value = r"[0-9]{1,12}(?:\.[0-9]{0,9})?"
    if not re.fullmatch(f"(?:{value}[smhd])+|{value}", text):
        return None
    parts = re.findall(r"([0-9.]+)([smhd]?)", text)
    units = [unit for _, unit in parts]
    if len({*units}) < len(units):  # 3h3h is a mistake
        return None
    return sum(float(value) * UNITS_S[unit] for value, unit in parts)


def _clock(text: str) -> float | None:
    """Return the seconds of ``1-12:00:00``, ``03:30:00`` or ``30:00``; None if it is no such
    text."""
    match = re.fullmatch(
        r"(?:([0-9]{1,6})-)?([0-9]{1,6})(?::([0-9][0-9]))?(?::([0-9][0-9]))?", text)
    if not match:
        return None
    days, first, *rest = match.groups()
    if days is None and rest[1] is None:  # minutes and seconds
        hours, minutes, seconds = "0", first, rest[0]
    else:
        hours, minutes, seconds = first, rest[0] or "0", rest[1] or "0"
    if int(seconds) >= 60 or (hours != "0" and int(minutes) >= 60):
        return None
    return int(days or 0) * 86400.0 + int(hours) * 3600.0 + int(minutes) * 60.0 + int(seconds)


@dataclass(frozen=True)
class TimeLimit:
    """The time when a job must have ended.

    Attributes:
        text: as it was given.
        seconds: time after the start of ``ftrma run``; None: it is a point in time.
        moment: point in time, in seconds since 1970; None: it is a duration.
    """

    text: str
    seconds: float | None = None
    moment: float | None = None

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, name: str, text: str) -> TimeLimit:
        """Read a duration or a point in time; ValueError if it is neither."""
        if not text.startswith("@"):
            return cls(text, seconds=duration(name, text, 1.0))
        if not re.fullmatch(r"@[0-9]{1,11}(?:\.[0-9]{1,9})?", text):
            raise ValueError(f"{name} {text}: expected @ and seconds since 1970, such as "
                             "@$SLURM_JOB_END_TIME, or a duration such as 3h30m")
        return cls(text, moment=float(text[1:]))

    def left_s(self, now: float) -> float:
        """Return the seconds that are left.

        Args:
            now: the time, in seconds since 1970; for a duration, the time of the start.
        """
        return self.seconds if self.seconds is not None else (self.moment or 0.0) - now


def margin_of(limit: TimeLimit | None, margin_s: float | None, now: float) -> float:
    """Return the seconds before a job's end in which its last checkpoint is taken and written.

    Args:
        limit: the job's time limit; None if it has none.
        margin_s: the user's choice; None: 90 s, or a tenth of the time limit if that is less.
        now: seconds since 1970.
    """
    if margin_s is not None:
        return margin_s
    return MARGIN_S if limit is None else min(MARGIN_S, limit.left_s(now) / MARGIN_SHARE)


def check(limit: TimeLimit | None, margin_s: float | None, now: float) -> None:
    """Refuse a time limit that is over, or of which the margin leaves nothing.

    Raises:
        ValueError: with the option, its value and the remedy.
    """
    if limit is None:
        return
    left_s = limit.left_s(now)
    if left_s <= 0:
        raise ValueError(f"--time-limit {limit}: this moment passed {span(-left_s)} ago; give one "
                         "that is to come, or leave it out")
    if margin_s is not None and margin_s >= left_s:
        raise ValueError(f"--margin {margin_s:g}: longer than the time that --time-limit {limit} "
                         f"leaves, {span(left_s)}, so nothing would be computed; give less")


def span(seconds: float) -> str:
    """Return a duration in a few letters: "1.5 s", "90 s", "3 h 30 min"."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + f" {minutes} min" * bool(minutes) if hours < 48 else f"{hours // 24} d"
