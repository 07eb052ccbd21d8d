"""The checker of histories (`tests/apgaschecker.py`) finds nothing in sound ones, and each mistake.

A history here is a text, an event a line, one millisecond after the other. A planted mistake is an
edit of a sound one: a line moved, taken out or changed, after which the law of that name must fail.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
from apgaschecker import Event, check

# Place 0 waits in F for A at 1 and its child B at 2, and calls C at 1 in between.
SOUND = """
0 begin main
0 open F kind=finish task=main
0 spawn A scope=F to=1 chain=F
0 spawned A
0 open T kind=at task=main
0 spawn C scope=T to=1 chain=F,T
0 spawned C
0 wait T
0 pause main
1 begin A
1 spawn B scope=F to=2 chain=F
1 spawned B
2 begin B
1 pause A
1 begin C
1 end C error=''
1 resume A
1 step A
1 end A error='ValueError: a'
0 resume main
0 close T dpes= errors= value=True
0 wait F
0 pause main
2 step B
2 end B error=''
0 resume main
0 close F dpes= errors='ValueError: a'
0 end main error=''
"""
# Place 1 waits in G for D at 2, and dies; 0 adopts G, and waits for D. An at of place 3 is lost.
DEATHS = """
0 begin main
0 open F kind=finish task=main
0 spawn A scope=F to=1 chain=F
0 spawned A
0 spawn B scope=F to=2 chain=F
0 spawned B
0 wait F
0 pause main
1 begin A
1 open G kind=finish task=A
1 spawn D scope=G to=2 chain=F,G
1 spawned D
1 wait G
1 pause A
2 begin B
2 open T kind=at task=B
2 spawn E scope=T to=3 chain=F,T
2 spawned E
2 wait T
2 pause B
2 begin D
2 step D
0 told 1
2 told 1
2 pause D
0 told 3
2 told 3
2 resume B
2 close T dpes=3 errors= value=False
2 end B error='DPE 3'
2 resume D
2 end D error=''
0 resume main
0 close F dpes=1,3 errors=
0 end main error=''
"""
DEAD = (1, 3)
# Place 1 dies in the body of an at, in a finish that waits for D at 2: the at waits for D, too.
IN_AT = """
0 begin main
0 open F kind=finish task=main
0 open T kind=at task=main
0 spawn A scope=T to=1 chain=F,T
0 spawned A
0 wait T
0 pause main
1 begin A
1 open G kind=finish task=A
1 spawn D scope=G to=2 chain=F,T,G
1 spawned D
2 begin D
0 told 1
2 told 1
2 end D error=''
0 resume main
0 close T dpes=1 errors=
0 wait F
0 close F dpes= errors=
0 end main error=''
"""
READ: dict[str, Callable[[str], Any]] = {
    "to": int, "chain": lambda text: text.split(","),
    "dpes": lambda text: [int(p) for p in text.split(",") if p],
    "errors": lambda text: text.split(";") if text else [], "value": lambda text: text == "True"}


def events(text: str, late: str = "", late_s: float = 0.0) -> list[Event]:
    """The events of a text; all from the line `late` on come `late_s` later."""
    found, now = [], 0
    for line in text.strip().splitlines():
        place, kind, subject, *words = shlex.split(line)
        now += 1_000_000 + int(1e9 * late_s) * (line == late)
        more = {key: READ.get(key, str)(value)
                for key, value in (word.split("=", 1) for word in words)}
        found.append(Event(int(place), now, kind, subject, more))
    return found


def moved(text: str, line: str, after: str) -> str:
    """The text with a line moved behind another one."""
    lines = text.strip().splitlines()
    lines.remove(line)
    lines.insert(lines.index(after) + 1, line)
    return "\n".join(lines)


def edited(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def without(text: str, *lines: str) -> str:
    """The text without these lines, each of which it has once."""
    for line in lines:
        text = edited(text, f"\n{line}\n", "\n")
    return text


CLOSED = "0 close F dpes= errors='ValueError: a'"
ADOPTED = "0 close F dpes=1,3 errors="

# A planted mistake: the law that must fail, a word of its sentence, the history.
PLANTED = {
    "an orphan goes on after the finish that has adopted it": (
        "nothing_goes_on", "task D goes on (end) at place 2 after F", DEAD,
        moved(DEATHS, "2 end D error=''", ADOPTED)),
    "an orphan begins after that": (
        "nothing_goes_on", "task D begins at place 2 after F", DEAD,
        moved(moved(moved(without(DEATHS, "2 step D", "2 pause D", "2 resume D"),
                          "2 begin D", "2 end B error='DPE 3'"),
                    ADOPTED, "2 end B error='DPE 3'"), "0 resume main", "2 told 1")),
    "an at returns while an orphan of a finish in its body runs": (
        "nothing_goes_on", "task D goes on (end) at place 2 after T", (1,),
        moved(IN_AT, "2 end D error=''", "0 close T dpes=1 errors=")),
    "a finish ends while a task of it runs": (
        "all_have_ended", "F ends while task B", (),
        moved(SOUND, "2 end B error=''", CLOSED)),
    "a task that was sent never begins": (
        "all_have_ended", "B of it has not begun", (),
        without(SOUND, "2 begin B", "2 step B", "2 end B error=''")),
    "an async is lost without DPE": (
        "losses_are_told", "task A is lost with place 1", DEAD,
        edited(DEATHS, "dpes=1,3 errors=", "dpes=3 errors=")),
    "an at is lost without DPE": (
        "losses_are_told", "task E is lost with place 3", DEAD,
        edited(DEATHS, "close T dpes=3", "close T dpes=")),
    "an async in a ring is lost with its sender": (
        "losses_are_told", "task D is lost with place 1", DEAD,
        without(edited(edited(DEATHS, "D scope=G to=2 chain=F,G", "D scope=F to=2 chain=F"),
                       "dpes=1,3 errors=", "dpes=3 errors="), "2 begin D", "2 step D", "2 pause D",
                "2 resume D", "2 end D error=''", "1 pause A").replace(
                    "1 wait G", "1 end A error=''")),
    "a DPE of a place that lives": (
        "only_the_dead_are_told", "DPE of place 2", DEAD,
        edited(DEATHS, "dpes=1,3", "dpes=1,2,3")),
    "an exception is lost": (
        "exceptions_arrive", "'ValueError: a' of a task does not come", (),
        edited(SOUND, "errors='ValueError: a'", "errors=")),
    "an exception comes out of nothing": (
        "exceptions_arrive", "nothing in it has raised", (),
        edited(SOUND, "error='ValueError: a'", "error=''")),
    "an at returns before its body has ended": (
        "at_comes_back", "T returns a value", (),
        edited(SOUND, "1 end C error=''", "1 end C error='KeyError: c'")),
    "a finish is open for ever": (
        "scopes_close", "F was opened at place 0", (), without(SOUND, CLOSED)),
    "a task runs twice": (
        "begins_once", "A begins 2 times", (),
        edited(SOUND, "0 wait F", "0 wait F\n1 begin A\n1 pause A")),
    "a task runs where it was not sent": (
        "begins_once", "B for place 2 begins at 3", (),
        edited(SOUND, "2 begin B", "3 begin B")),
    "a task runs that nobody sent": (
        "begins_once", "nobody has spawned it", (),
        without(SOUND, "1 spawn B scope=F to=2 chain=F")),
    "a dead place goes on": (
        "dead_are_silent", "step of A at place 1", DEAD,
        edited(DEATHS, "2 told 3", "2 told 3\n1 step A")),
    "two places are told of deaths in two orders": (
        "one_order", "another one", DEAD,
        moved(DEATHS, "2 told 1", "2 told 3")),
    "a living place is told dead": (
        "one_order", "which lives", (1,), DEATHS),
    "two tasks of a place run at once": (
        "one_at_a_time", "C runs at place 1 while A", (), without(SOUND, "1 pause A")),
}


@pytest.mark.parametrize(("text", "dead"), [(SOUND, ()), (DEATHS, DEAD), (IN_AT, (1,))],
                         ids=["sound", "deaths", "in at"])
def test_a_sound_history_has_no_violation(text: str, dead: tuple[int, ...]) -> None:
    assert check(events(text), dead) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_violation_is_found(planted: str) -> None:
    law, words, dead, text = PLANTED[planted]
    found = check(events(text), dead)
    assert any(v.startswith(f"{law}: ") and words in v for v in found), found


def test_a_busy_place_that_delays_a_finish_is_named() -> None:
    text = edited(SOUND, "0 wait F", "0 spawn X scope=O to=3 chain=O\n3 begin X\n0 wait F")
    [found] = check(events(text, CLOSED, late_s=2.0))
    assert found == "nobody_delays: F ends 2.002 s late; places [3] were busy"
    assert check(events(text, CLOSED, late_s=0.5)) == []
