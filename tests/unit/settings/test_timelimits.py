"""Durations and moments that users give: what is read, what is refused and in which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.settings import timelimits
from ftrma.settings.options import Options, from_environment, to_environment
from ftrma.settings.timelimits import TimeLimit, duration, margin_of, span


@pytest.mark.parametrize(("text", "seconds"), [
    ("0", 0), ("90", 90), ("0.5", 0.5), ("90s", 90), ("3h30m", 12600), ("1.5h", 5400),
    ("2d", 172800), ("1d2h3m4s", 93784), ("30:00", 1800), ("03:30:00", 12600), ("1-12", 129600),
    ("1-12:30", 131400), ("1-12:00:01", 129601), ("100:00", 6000),
])
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    """Law: units add up; colons are read as batch systems read them."""
    assert duration("--margin", text) == seconds


@pytest.mark.parametrize("text", [
    "", " ", "x", "-5", "+5", "3h3h", "5x", "h", "1:2", "1:99", "1:99:00", "5-", "-1:00", "nan",
    "inf", "1e3", "1_000", "١٢", "9" * 13, "1:00:00:00", "3h 30m"])
def test_what_is_no_duration_is_named(text: str) -> None:
    """Law: a ValueError has the option, the value, and what may be given."""
    with pytest.raises(ValueError) as error:
        duration("--margin", text)
    assert str(error.value).startswith(f"--margin {text}: expected seconds, or a time such as 90s")


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_the_two_ways_of_writing_agree(d: int, h: int, m: int, s: int) -> None:
    """Law: D-HH:MM:SS and units give the seconds that they say."""
    wanted = ((d * 24 + h) * 60 + m) * 60 + s
    assert duration("t", f"{d}-{h:02}:{m:02}:{s:02}") == wanted
    assert duration("t", f"{d}d{h}h{m}m{s}s") == wanted


def test_a_moment_is_seconds_since_1970() -> None:
    """Law: what is left of a moment depends on the clock, of a duration it does not."""
    assert TimeLimit.parse("--time-limit", "@1000.5").left_s(900) == 100.5
    assert TimeLimit.parse("--time-limit", "3h").left_s(1e9) == 10800
    for text in ("@", "@x", "@-5", "@1e9", "0"):
        with pytest.raises(ValueError, match=f"--time-limit {text}: expected"):
            TimeLimit.parse("--time-limit", text)


def test_a_limit_that_is_over_is_refused() -> None:
    """Law: before anything starts, with the time by which it is too late, and the remedy."""
    limit = TimeLimit.parse("--time-limit", "@1000")
    timelimits.check(limit, None, 990)
    with pytest.raises(ValueError, match="passed 2 h 5 min ago; give one that is to come"):
        timelimits.check(limit, None, 1000 + 7500)


def test_a_margin_as_long_as_the_limit_is_refused() -> None:
    """Law: nothing would be computed before the end is asked for."""
    limit = TimeLimit.parse("--time-limit", "20")
    timelimits.check(limit, 19.9, 0)
    with pytest.raises(ValueError, match=r"--margin 20: longer than .*20 leaves, 20 s.*give less"):
        timelimits.check(limit, 20.0, 0)
    timelimits.check(None, 1e9, 0)


def test_the_margin_fits_the_limit() -> None:
    """Law: what the user says; else 90 s, at most a tenth of the limit."""
    assert margin_of(None, None, 0) == 90
    assert margin_of(TimeLimit.parse("t", "3h"), None, 0) == 90
    assert margin_of(TimeLimit.parse("t", "20"), None, 0) == 2
    assert margin_of(TimeLimit.parse("t", "20"), 7.0, 0) == 7


def test_options_of_ends_reach_all_processes() -> None:
    """Law: the environment that carries them gives the same options; names need no SIG."""
    given = {"FTRMA_SLOTS": "2", "FTRMA_TIME_LIMIT": "@2000000000", "FTRMA_MARGIN": "1m",
             "FTRMA_SIGNAL": "sigusr1", "FTRMA_REQUEUE_STATUS": "99"}
    options = from_environment(given)
    assert (options.signal, options.margin, options.requeue_status) == ("USR1", 60, 99)
    assert from_environment(to_environment(options)) == options
    assert Options().requeue_status == 85


@pytest.mark.parametrize(("name", "value", "says"), [
    ("SIGNAL", "KILL", "expected one of TERM, INT, USR1"), ("SIGNAL", "9", "expected one of"),
    ("REQUEUE_STATUS", "70", "says something else"), ("REQUEUE_STATUS", "2", "says something else"),
    ("REQUEUE_STATUS", "93", "says something else"), ("REQUEUE_STATUS", "0", "1 or more"),
    ("REQUEUE_STATUS", "126", "at most 125"), ("REQUEUE_STATUS", "x", "an exit status"),
])
def test_bad_signals_and_statuses_are_named(name: str, value: str, says: str) -> None:
    """Law: the text has the variable, the value and what may be given."""
    with pytest.raises(ValueError, match=f"FTRMA_{name} {value}: .*{says}"):
        from_environment({f"FTRMA_{name}": value})


@pytest.mark.parametrize(("seconds", "words"), [
    (0.25, "0.25 s"), (90, "90 s"), (120, "2 min"), (7200, "2 h"), (7500, "2 h 5 min"),
    (86400 * 3, "3 d")])
def test_spans_are_said_shortly(seconds: float, words: str) -> None:
    """Law: a reader takes it in at a glance."""
    assert span(seconds) == words
