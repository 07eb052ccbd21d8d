"""Lines of ftrma's own: short by default, in full if asked for, and all of them in a log."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ftrma.host import messages, outfile
from ftrma.host.messages import Message, Voice

IN_FULL = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d "


@pytest.fixture
def said() -> Iterator[list[Message]]:
    """Messages that were recorded; the voice of before comes back."""
    recorded: list[Message] = []
    before = messages.use(Voice(job="ftrma-0-ab", role=lambda: "slot 2", record=recorded.append))
    yield recorded
    messages.use(before)


def test_a_line_is_short_by_default(said: list[Message]) -> None:
    """Law: nothing but who speaks comes before the text."""
    assert messages.line("slot 2 died") == "ftrma: slot 2 died\n"
    assert messages.line("goes on", who="graph") == "graph: goes on\n"
    assert messages.detail("checkpoint") == ""


def test_a_verbose_line_has_time_job_and_role(said: list[Message]) -> None:
    messages.voice.verbose = True
    for line in (messages.line("a"), messages.detail("a")):
        assert re.fullmatch(rf"ftrma: {IN_FULL}ftrma-0-ab slot 2: a\n", line)


def test_before_a_job_there_is_only_the_time(said: list[Message]) -> None:
    messages.voice.verbose, messages.voice.job = True, ""
    messages.voice.role = lambda: ""
    assert re.fullmatch(rf"ftrma: {IN_FULL}a\n", messages.line("a"))


@pytest.mark.parametrize(("text", "needed", "shown"), [
    ("error: a", False, True), ("warning: a", False, True), ("slot 2 died", False, False),
    ("slot 2 ended the job", True, True), ("no error: a", False, False),
])
def test_the_quiet_see_what_is_needed(
    said: list[Message], text: str, needed: bool, shown: bool
) -> None:
    """Law: errors, warnings and reasons of an end are never hidden, and the log gets all."""
    messages.voice.quiet = True
    assert bool(messages.line(text, needed=needed)) == shown
    assert [message.text for message in said] == [text]


def test_a_log_gets_who_speaks_and_when(said: list[Message]) -> None:
    messages.line("a\nb", who="graph")
    messages.detail("c", 1.25)
    first, second = (messages.in_full(message, "job") for message in said)
    assert re.fullmatch(rf"{IN_FULL}job slot 2 \(graph\): a\\nb", first)
    assert re.fullmatch(r"19(69|70)-.*\.250.* job slot 2: c", second)


def test_hidden_lines_write_nothing(
    said: list[Message], capsys: pytest.CaptureFixture[str]
) -> None:
    messages.voice.quiet = True
    outfile.tell("slot 2 died")
    outfile.tell_details("checkpoint")
    assert capsys.readouterr().err == "" and len(said) == 2
