"""Kinds of events (``enum ftrma_what``): their flags, in C and in Python; their order is free."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from csource import SOURCES, code_of

from ftrma.native import loading
from ftrma.native.constants import FLAGS, WHAT, number
from ftrma.trace.records import ACCESSES, ATOMICS, COMBINING, OWN_EVENTS, TICKING, WRITING, What

ROOT = Path(__file__).resolve().parents[3]


def test_all_kinds_are_known_everywhere() -> None:
    """Law: C's enum, its flags and Python's `What` have the same kinds, numbered without a gap."""
    assert list(WHAT) == list(dict.fromkeys(WHAT)) and {*WHAT.values()} == {*range(len(What))}
    assert {*WHAT} == {*FLAGS} == {what.name.upper() for what in What}


@pytest.mark.parametrize("what", What, ids=lambda what: what.name)
def test_c_and_python_agree(what: What) -> None:
    """Law: the table that C looks into has the flags that Python reads."""
    assert loading.load().lib.ftrma_flags_of(int(what)) == FLAGS[what.name.upper()]


def test_no_other_kind_has_flags() -> None:
    """Law: a number of no kind is refused."""
    flags_of = loading.load().lib.ftrma_flags_of
    assert flags_of(-1) == flags_of(len(What)) == -1


def test_the_flags_make_sense() -> None:
    """Law: fetching is combining, combining is writing, writing is an access; all of these are
    events, and all but puts and gets advance the clock."""
    assert {*ATOMICS} < {*COMBINING} < {*WRITING} < {*ACCESSES} < {*OWN_EVENTS}
    assert {*OWN_EVENTS} - {*TICKING} == {What.Put, What.Get}
    assert {*TICKING} - {*OWN_EVENTS} == {What.End}  # it has no number: the program is over
    passive = {what for what in What if FLAGS[what.name.upper()] & number("PASSIVE")}
    assert {What.Lock, What.Flush, What.Sync} < passive < {*TICKING} - {*ACCESSES}


def test_order_means_nothing() -> None:
    """Law: nowhere are kinds compared by their numbers, so that a new one at the end is right."""
    compared = r"(?:<=?|>=?)\s*(?:FTRMA_WHAT_|What\.)|(?:FTRMA_WHAT_|What\.)\w+\s*(?:<=?|>=?)[^<>]"
    texts = {name: code_of(path) for name, path in SOURCES.items()}
    texts |= {path.name: path.read_text() for path in (ROOT / "ftrma").rglob("*.py")
              if not path.name.startswith("_")}
    assert not {name for name, text in texts.items() if re.search(compared, text)}
