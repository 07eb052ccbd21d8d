"""The timeline of a program of places: its tasks, finishes, steps, checkpoints and recoveries."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from placeprocesses import Ended, run_places
from placeprograms import KILLED, strike_at

from ftrma import apgas, framework
from ftrma.framework import Members
from ftrma.frameworks.apgas import runtime
from ftrma.native import logs
from ftrma.program.timeline import Timeline
from ftrma.trace.collect import convert
from ftrma.trace.spans import LINES

pytestmark = pytest.mark.plain
PLACES, SPARE, VICTIM = 3, 3, 2
PAUSE_S = 0.01


class Counter(apgas.SPMDIterativeApp):
    """Counts steps."""

    def __init__(self) -> None:
        self.i = 0

    def is_finished_local(self) -> bool:
        return self.i == 6

    def step_local(self, team: Any) -> None:
        self.i += 1
        time.sleep(PAUSE_S)

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        return {"i": self.i}

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)


class Items:
    """A bag of items that take their time."""

    def __init__(self, left: int) -> None:
        self.left, self.result = left, 0

    def process(self, count: int) -> bool:
        if self.left:
            self.left, self.result = self.left - 1, self.result + 1
            time.sleep(PAUSE_S / 2)
        return self.left > 0

    def split(self) -> Items | None:
        given = self.left // 2
        self.left -= given
        return Items(given) if given else None

    def merge(self, part: Items) -> None:
        self.left, self.result = self.left + part.left, self.result + part.result


def leaf() -> None:
    time.sleep(PAUSE_S)


def branch() -> None:
    apgas.async_at(2, leaf)


def broken() -> None:
    raise ValueError("broken")


def program() -> int:
    with apgas.finish():
        apgas.async_at(1, branch)
    apgas.at(1, leaf)
    with pytest.raises(apgas.MultipleExceptions), apgas.finish():
        apgas.async_(broken)
    app = apgas.SPMDIterativeExecutor(apgas.PlaceManager(), checkpoint=2).run(Counter)
    return int(app.i)


def traced(directory: Path, main: Any, places: int = PLACES, **options: Any
           ) -> tuple[list[Any], list[dict[str, Any]]]:
    """Run a program with a timeline; what each place returned, and the events."""
    def be_place(members: Members) -> Any:
        me = members.me
        strike_at(me, [(VICTIM, "apgas.step", 4)])
        logs.trace_open(directory / f"trace-{me}")
        framework.timeline = lambda name: Timeline(name, me if me < places else -1, me, 1)
        return runtime.run_at(members, main)

    ends = run_places(places, be_place, **options)
    convert(directory, directory / "trace.json", places, [])
    return ends, [e for e in json.loads((directory / "trace.json").read_text())["traceEvents"]
                  if e.get("cat") == "framework,apgas"]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The program, of which a place dies in its fourth step."""
    ends, found = traced(tmp_path_factory.mktemp("job"), program, spares=1)
    assert ends[0] == 6 and ends[VICTIM] == KILLED and not isinstance(ends[SPARE], Ended)
    return found


def named(events: list[dict[str, Any]], name: str, place: int) -> list[dict[str, Any]]:
    return [e for e in events if e["name"] == name and e["tid"] % LINES == place]


def test_tasks_are_there_with_where_they_come_from(events: list[dict[str, Any]]) -> None:
    """Law: a task is a span at its place, by its function's name, as long as it ran; it tells who
    has started it, and what it raised."""
    [of_branch], of_leaf = named(events, "branch", 1), named(events, "leaf", 2)
    assert (of_branch["args"]["kind"], of_branch["args"]["from_place"]) == ("task", 0)
    assert [(e["args"]["kind"], e["args"]["from_place"]) for e in of_leaf] == [("task", 1)]
    [by_at] = named(events, "leaf", 1)
    assert (by_at["args"]["kind"], by_at["args"]["from_place"]) == ("at", 0)
    [at] = named(events, "at leaf", 0)
    assert at["args"]["to_place"] == 1
    assert at["ts"] <= by_at["ts"] and by_at["ts"] + by_at["dur"] <= at["ts"] + at["dur"]
    for e in (*of_leaf, by_at):
        assert PAUSE_S * 1e6 <= e["dur"] < 5e6
    [raised] = named(events, "broken", 0)
    assert raised["args"]["raised"] == "ValueError"
    [main] = named(events, "program", 0)
    assert main["args"]["kind"] == "main" and all(e["ts"] >= main["ts"] for e in events
                                                  if e["pid"] == 0)


def test_finishes_are_there(events: list[dict[str, Any]]) -> None:
    """Law: a finish is a span around its tasks, its wait one inside; errors are counted."""
    first, second = named(events, "finish", 0)[:2]
    [leaf_] = named(events, "leaf", 2)
    assert first["ts"] < leaf_["ts"] and leaf_["ts"] + leaf_["dur"] <= first["ts"] + first["dur"]
    assert (first["args"]["errors"], second["args"]["errors"]) == (0, 1)
    wait = named(events, "wait", 0)[0]
    assert first["ts"] <= wait["ts"] and wait["dur"] <= first["dur"]


def test_an_executor_is_there(events: list[dict[str, Any]]) -> None:
    """Law: steps at each place, checkpoints and recoveries are spans, in their order; the place
    that was killed has a task that has not ended, and all others are told of the death."""
    mine = [e for e in events if e["tid"] == LINES]
    loop = [(e["name"], e["args"].get("step", e["args"].get("first"))) for e in mine
            if e["name"] in ("make", "checkpoint", "steps", "recovery", "restore")]
    assert loop == [
        ("make", None), ("checkpoint", 0), ("steps", 1), ("checkpoint", 2), ("steps", 3),
        ("recovery", None), ("restore", 2), ("steps", 3), ("checkpoint", 4), ("steps", 5)]
    [recovery] = named(events, "recovery", 0)
    assert recovery["args"]["dead_places"] == str(VICTIM)
    inside = [e["name"] for e in mine if e["ts"] >= recovery["ts"]
              and e["ts"] + e["dur"] <= recovery["ts"] + recovery["dur"]]
    assert [name for name in inside if name not in ("finish", "wait")] == [
        "recovery", "rebuild", "recover store runs", "remake", "restore"]
    steps = {place: [e["name"] for e in events if e["name"].startswith("step ")
                     and e["tid"] % LINES == place] for place in range(PLACES + 1)}
    assert steps[VICTIM] == [f"step {i}" for i in (1, 2, 3)]
    assert steps[SPARE] == [f"step {i}" for i in (3, 4, 5, 6)]
    assert steps[0][-4:] == steps[SPARE]
    assert {e["name"] for e in events if "unfinished" in e["args"]} == {"take_steps"}
    told = {e["tid"] % LINES for e in events if e["ph"] == "i"}
    assert told == {0, 1, SPARE}


def test_spans_of_a_line_nest(events: list[dict[str, Any]]) -> None:
    """Law: on each line a span lies inside of another one or beside it, or viewers drop it."""
    lines = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            lines[e["pid"], e["tid"]].append((e["ts"], -e["dur"], e["name"]))
    assert len({pid for pid, _ in lines}) == PLACES + 1
    for spans in lines.values():
        open_: list[float] = []
        for begin, minus, name in sorted(spans):
            while open_ and open_[-1] <= begin:
                open_.pop()
            assert not open_ or begin - minus <= open_[-1] + 0.001, name
            open_.append(begin - minus)


def test_work_that_is_divided_is_there(tmp_path: Path) -> None:
    """Law: what a place processes, gives and commits are spans in the wave's span; who gets a part
    has found it."""
    def main() -> int:
        total, tallies = apgas.glb.run(Items(80), commit_s=0.002)
        assert sum(tally.given for tally in tallies)
        return int(total)

    ends, found = traced(tmp_path, main, places=2)
    assert ends == [80, None]
    [wave] = named(found, "glb run 0", 0)
    inside = [e for e in found if e["name"] in ("process", "give", "commit", "steal")]
    assert {(e["name"], e["tid"] % LINES) for e in inside} >= {
        (name, place) for name in ("process", "commit", "steal") for place in range(2)}
    assert all(wave["ts"] <= e["ts"] and e["ts"] + e["dur"] <= wave["ts"] + wave["dur"] + 1e3
               for e in inside)
    gifts = [e["args"]["to_place"] for e in inside if e["name"] == "give"]
    assert gifts and set(gifts) <= {0, 1}


def test_without_a_trace_nothing_is_told() -> None:
    """Law: a program without a timeline makes no span."""
    def main() -> bool:
        with apgas.finish():
            apgas.async_(leaf)
        return runtime.current().scheduler.timeline is None

    assert run_places(1, lambda members: runtime.run_at(members, main)) == [True]
