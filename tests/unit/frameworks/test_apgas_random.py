"""Random programs of finishes, asyncs and ats over real processes that are killed.

Each process notes in shared memory when a task begins and ends and when a finish or `at` has ended;
so the notes of the dead are there, too. The laws are those of the model of the finish:

* F1: no task notes anything after a finish or `at` around it has ended;
* F2: a finish has a DeadPlaceException if a task that was started in it has not ended;
* all ends, with deaths as the only exceptions.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from placeprocesses import Ended, run_places

from ftrma import apgas, framework
from ftrma.frameworks.apgas.runtime import run_at

pytestmark = pytest.mark.plain
PLACES = 4
ROOM = 1 << 16  # bytes of notes of a place
NOTE = struct.Struct("<qqq")  # when, what, number of the node
BEGUN, ENDED, STARTED, DONE, DONE_WITH_DEATH = range(1, 6)
SEED = int(os.environ.get("FTRMA_MODEL_SEED", "0"))


@dataclass
class Node:
    """A part of a program: a task, a finish or an `at`, and what it does.

    Attributes:
        around: numbers of the finishes and ats around it.
        finish: number of the innermost finish around it.
    """

    number: int
    kind: str
    place: int
    around: tuple[int, ...]
    finish: int
    body: list[Node] = field(default_factory=list)


class Program:
    """A random program, and its notes."""

    def __init__(self, seed: int, depth: int = 3) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[Node] = []
        self.top = self._node("finish", 0, (), -1)
        self.top.finish = 0
        self._fill(self.top, depth, (0,), 0)
        kills = self.rng.sample(range(1, PLACES), self.rng.randint(0, PLACES - 1))
        self.kills = {place: self.rng.randint(1, 20) for place in kills}
        self.notes = mmap.mmap(-1, PLACES * ROOM)

    def _node(self, kind: str, place: int, around: tuple[int, ...], finish: int) -> Node:
        node = Node(len(self.nodes), kind, place, around, finish)
        self.nodes.append(node)
        return node

    def _fill(self, above: Node, depth: int, around: tuple[int, ...], finish: int) -> None:
        """Add parts: `around` and `finish` are those of what the node's body does itself."""
        for _ in range(self.rng.randint(1 if above is self.top else 0, 3)):
            kind = self.rng.choice(["async", "async", "finish", "at"])
            place = self.rng.randrange(PLACES)
            # An async of an at's body belongs to the finish around the at alone.
            mine = around[:around.index(finish) + 1] if kind == "async" else around
            node = self._node(kind, place, mine, finish)
            above.body.append(node)
            if depth:
                inner = mine if kind == "async" else (*around, node.number)
                self._fill(node, depth - 1, inner, node.number if kind == "finish" else finish)

    # -- in the processes ---------------------------------------------------------------------

    def play(self, members: Any, finish: str = "place0") -> Any:
        global program
        program = self
        self.me, self.at = members.me, 0
        self.chance = random.Random(members.me)
        left = self.kills.get(members.me, 0)

        def visit(name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        framework.kill_place = visit
        return run_at(members, lambda: do(0), finish=finish)

    def note(self, what: int, number: int) -> None:
        NOTE.pack_into(self.notes, self.me * ROOM + self.at, time.monotonic_ns(), what, number)
        self.at += NOTE.size

    # -- afterwards ---------------------------------------------------------------------------

    def noted(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Time and place of each note, by what and number."""
        found = {}
        for place in range(PLACES):
            for at in range(place * ROOM, (place + 1) * ROOM - NOTE.size, NOTE.size):
                when, what, number = NOTE.unpack_from(self.notes, at)
                if not when:
                    break
                found[what, number] = when, place
        return found

    def judge(self, results: list[Any]) -> None:
        noted = self.noted()
        died = {place for place in range(PLACES) if isinstance(results[place], Ended)}
        assert died <= set(self.kills)
        assert results[0] == "well"
        for node in self.nodes:
            begun, ended = noted.get((BEGUN, node.number)), noted.get((ENDED, node.number))
            assert not begun or ended or begun[1] in died, f"{node} never ended"
            for around in node.around:
                done = noted.get((DONE, around)) or noted.get((DONE_WITH_DEATH, around))
                for moment in (begun, ended):
                    assert not (done and moment and moment[0] > done[0]), \
                        f"F1: {node} after the end of {around}"
            if (STARTED, node.number) in noted and not ended:
                assert (DONE, node.finish) not in noted, f"F2: {node} is lost, nobody is told"


program: Program


def do(number: int) -> str:
    """Play a node at its place: the body of a task, of an `at`, or of a finish."""
    node = program.nodes[number]
    if node.kind == "finish":
        deaths: list[Any] = []
        try:
            with apgas.finish():
                do_body(node)
        except apgas.MultipleExceptions as errors:
            assert errors.only(apgas.DeadPlaceException), errors
            deaths = errors.of_type(apgas.DeadPlaceException)
        assert all(apgas.is_dead(e.place) for e in deaths)
        program.note(DONE_WITH_DEATH if deaths else DONE, number)
        return "well"
    program.note(BEGUN, number)
    try:
        do_body(node)
    finally:
        program.note(ENDED, number)
    return "well"


def do_body(node: Node) -> None:
    for part in node.body:
        if program.chance.random() < 0.3:
            apgas.sleep(program.chance.random() * 0.002)
        if part.kind == "async":
            apgas.async_at(part.place, do, part.number)
            program.note(STARTED, part.number)
        elif part.kind == "finish":
            do(part.number)
        else:
            try:
                value = apgas.at(part.place, do, part.number)
            except apgas.DeadPlaceException as error:
                assert apgas.is_dead(error.place)
                program.note(DONE_WITH_DEATH, part.number)
                raise
            program.note(DONE, part.number)
            assert value == "well"


def sweep(first: int, count: int) -> None:
    for seed in range(first, first + count):
        case = Program(seed)
        try:
            case.judge(run_places(PLACES, case.play, timeout_s=10))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_random_programs() -> None:
    """Law: see above."""
    sweep(SEED, 25)


@pytest.mark.nightly
def test_more_random_programs() -> None:
    """Law: see above."""
    sweep(SEED + 1000, 250)


@pytest.mark.nightly
def test_many_random_programs() -> None:
    """Law: see above. A process of its own forks sooner than one that has collected all tests."""
    found = subprocess.run(
        [sys.executable, "-c", f"import test_apgas_random as t; t.sweep({SEED + 10_000}, 10_000)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])},
        capture_output=True, text=True, timeout=3600, check=False)
    assert found.returncode == 0, found.stderr


def test_random_programs_without_deaths() -> None:
    """Law: without deaths nothing is lost, also with the finish that is not resilient."""
    for finish in ("place0", "none"):
        for seed in range(SEED + 500, SEED + 506):
            case = Program(seed)
            case.kills = {}
            case.judge(run_places(PLACES, lambda m, c=case, f=finish: c.play(m, f)))
            noted = case.noted()
            assert not any(what == DONE_WITH_DEATH for what, _ in noted)
            assert all((ENDED, node.number) in noted or (DONE, node.number) in noted
                       for node in case.nodes)
