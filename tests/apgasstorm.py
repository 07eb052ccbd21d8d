"""Programs of apgas that a number draws: finishes, asyncs and ats in each other, naps, exceptions.

`draw()` makes a tree; `weather()` runs it at place zero. A tree is the text of a program: a list of
(operation, ordinal of a place, body), where the body is a tree.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import apgasrecorder as api

from ftrma import apgas
from ftrma.apgas import DeadPlaceException, MultipleExceptions

OPERATIONS = ("async", "async", "async", "finish", "finish", "at", "at", "nap", "fail")
MOST = 4  # operations in a body
NAP_S = 0.002

Tree = list[tuple[str, int, Any]]


def draw(number: int, places: int, depth: int = 3) -> Tree:
    """A tree with work at all places; the number decides alone."""
    chance = random.Random(number)

    def body(depth: int) -> Tree:
        return [(chance.choice(OPERATIONS), chance.randrange(places),
                 body(depth - 1) if depth else []) for _ in range(chance.randint(1, MOST))]

    return [("async", place, body(depth)) for place in range(places)]


def weather(tree: Tree) -> list[str]:
    """Run a tree in a finish; the exceptions that have come out, as texts in order."""
    try:
        with api.finish():
            blow(tree)
    except MultipleExceptions as error:
        return sorted(api.text(e) for e in error.leaves())
    return []


def blow(tree: Tree) -> None:
    """One body: what it catches is every second exception of its finishes and ats."""
    for number, (operation, ordinal, body) in enumerate(tree):
        place = api.members().everyone[ordinal]
        api.step()
        if operation == "nap":
            api.sleep(NAP_S)
        elif operation == "fail":
            api.async_(fail, f"{ordinal}")
        elif operation == "async" and place == apgas.here():
            api.async_(blow, body)
        elif operation == "async":
            api.async_at(place, blow, body)
        else:
            try:
                if operation == "at":
                    api.at(place, blow, body)
                else:
                    with api.finish():
                        blow(body)
            except (MultipleExceptions, DeadPlaceException):
                if number % 2:
                    raise


def fail(word: str) -> None:
    raise ValueError(word)


def forecast(tree: Tree) -> list[str]:
    """Value that `weather` returns if nobody dies."""
    pending: list[list[str]] = []
    raised = _forecast(tree, pending)
    return sorted(itertools.chain(*pending, raised))


def _forecast(tree: Tree, pending: list[list[str]]) -> list[str]:
    """Exceptions that leave a body; `pending` gets those of its asyncs in the finish around."""
    for number, (operation, place, body) in enumerate(tree):
        inner = pending if operation != "finish" else []
        if operation == "fail":
            pending.append([f"ValueError: {place}"])
        elif operation != "nap":
            raised = _forecast(body, inner)
            if operation == "async":
                pending.append(raised)
                continue
            if operation == "finish":
                raised = [*itertools.chain(*inner), *raised]
            if raised and number % 2:
                return raised
    return []
