"""One table has all time-outs; each can be chosen, and the page of time-outs says what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tree import ROOT

from ftrma.host import timeouts

PAGE = ROOT / "ftrma/docs/timeouts.md"
# Named constants in seconds that are no time-outs: intervals between looks, and delays.
INTERVALS = re.compile(
    r"(LOOK|AGAIN|ASK|REPORT|WORKING|PROGRESS|SETTLE|PROMPT|BACKGROUND|FIRST_TRY|EACH|MEASURED|"
    r"PIECE|IDLE|AWAIT|SLOW|GAP|LEAST|MOST|BYTES_PER|MTBF|STALL|SAVED|UNITS|MARGIN|SAME)_")


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    timeouts.choose({})
    yield
    timeouts.choose({})


def test_a_time_out_is_chosen() -> None:
    assert timeouts.STUCK.s == timeouts.STUCK.default_s == 5.0
    timeouts.choose(timeouts.parse("--timeout", "stuck=2.5 late=1"))
    assert (timeouts.STUCK.s, timeouts.LATE.s, timeouts.STOPPED.s) == (2.5, 1.0, 5.0)
    timeouts.choose({"late": 3.0})
    assert (timeouts.STUCK.s, timeouts.LATE.s) == (5.0, 3.0)


@pytest.mark.parametrize(("text", "told"), [
    ("stuck", "--timeout stuck: expected NAME=SECONDS"),
    ("stack=3", "there is no time-out stack; did you mean stuck?"),
    ("=3", "there is no time-out "), ("stuck=", "--timeout stuck : expected seconds"),
    ("stuck=0", "--timeout stuck 0: expected seconds, 0.001 or more"),
    ("stuck=-1", "--timeout stuck -1"), ("stuck=nan", "--timeout stuck nan"),
    ("stuck=inf", "--timeout stuck inf"), ("late=1 stuck=5s", "--timeout stuck 5s"),
])
def test_a_wrong_choice_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError) as error:
        timeouts.parse("--timeout", text)
    assert told in str(error.value)


@pytest.mark.parametrize(("longer", "shorter"), timeouts.LONGER)
def test_what_contains_another_wait_is_longer(
    longer: timeouts.Timeout, shorter: timeouts.Timeout
) -> None:
    """Law: the defaults agree, and a choice that does not is refused with both names."""
    timeouts.check({})
    timeouts.check({longer.name: 500.0, shorter.name: 500.0})
    for those in ({longer.name: shorter.default_s / 2}, {shorter.name: longer.default_s * 2}):
        with pytest.raises(ValueError, match=rf"--timeout {longer.name}=.*{shorter.name}"):
            timeouts.check(those)


def test_the_page_has_the_table() -> None:
    """Law: page and table have the same rows in the same order."""
    rows = re.findall(r"(?m)^\| `([\w-]+)` \| ([\d.]+) \| (.*) \|$", PAGE.read_text())
    assert rows == [(row.name, f"{row.default_s:g}", row.meaning)
                    for row in timeouts.TABLE.values()]


def test_each_row_is_used() -> None:
    """Law: a time-out that nobody waits for is no time-out."""
    texts = "".join(path.read_text() for path in (ROOT / "ftrma").rglob("*.py"))
    names = {name for name, row in vars(timeouts).items() if isinstance(row, timeouts.Timeout)}
    assert {name for name in names if f"timeouts.{name}.s" not in texts} == set()
    assert len(names) == len(timeouts.TABLE)


def test_there_is_no_other_table() -> None:
    """Law: a constant in seconds elsewhere is an interval, by its name."""
    found = {(str(path.relative_to(ROOT)), name) for path in (ROOT / "ftrma").rglob("*.py")
             for name in re.findall(r"(?m)^([A-Z_]+_S)(?:, [A-Z_]+)* = ", path.read_text())}
    assert {pair for pair in found if not INTERVALS.search(f"{pair[1]}_")} == set()


def test_a_process_without_the_program_has_patience_too() -> None:
    """Law: C gives checksum ranks and spares, which never call `job.wake_by`, the default time."""
    text = (ROOT / "csrc/job/wake.c").read_text()
    (given,) = re.findall(r"^static uint64_t absent_ns = (\d+)u;", text, re.MULTILINE)
    assert int(given) == timeouts.ABSENT.default_s * 1e9
