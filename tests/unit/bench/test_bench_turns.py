"""Launches that take turns: one goes on at a time, and only its own time counts."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tree import ROOT

sys.path.insert(0, str(ROOT))

from bench import ft, launching, sides, turns

# A launcher with one rank, which notes the time while it goes on. The launcher itself is never
# stopped; SIGTERM makes it end its rank.
LAUNCHER = """
import signal, subprocess, sys
rank = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: rank.kill())
sys.exit(rank.wait())
"""
NOTES = """
import sys, time
with open(sys.argv[1], "w") as f:
    for _ in range(int(sys.argv[2])):
        print(time.time(), file=f, flush=True)
        time.sleep(0.002)
print("{}")
"""


def noted(path: Path, count: int) -> turns.Launch:
    rank = [sys.executable, "-c", NOTES, str(path), str(count)]
    return lambda started: launching.run([sys.executable, "-c", LAUNCHER, *rank], 60, started)


@pytest.mark.full
def test_one_launch_at_a_time_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(turns, "START_S", 0.3)
    names = ["a", "b", "c"]
    found = turns.take_turns({n: noted(tmp_path / n, 200) for n in names}, 0.05)
    begins = [begun for its in found.values() for begun, _ in its["turns"]]
    for name in names:
        notes = [float(line) for line in (tmp_path / name).read_text().splitlines()]
        mine = found[name]["turns"]
        assert len(notes) == 200 and len(mine) > 3
        # A launch is stopped before the turn of the next one begins.
        stops = [min((begun for begun in begins if begun >= e), default=e) for _, e in mine]
        outside = [t for t in notes if not any(
            b <= t <= stop + 0.01 for (b, _), stop in zip(mine, stops, strict=True))]
        assert len(outside) <= 40, (outside, mine)  # of three at once two thirds lie outside
        assert all(e - b < 2 for b, e in mine)


@pytest.mark.plain
def test_a_launch_that_fails_ends_the_others(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(turns, "START_S", 0.2)
    failing = [sys.executable, "-c", "import time; time.sleep(0.6); exit('no more')"]
    launches = {
        "a": noted(tmp_path / "a", 20000),
        "b": lambda started: launching.run(failing, 60, started),
    }
    with pytest.raises(launching.BenchError, match="no more"):
        turns.take_turns(launches, 0.1)
    before = (tmp_path / "a").read_text()
    time.sleep(0.1)
    assert (tmp_path / "a").read_text() == before and before.count("\n") < 10000


def test_time_in_which_a_launch_was_stopped_does_not_count() -> None:
    taken = [(0.0, 2.0), (5.0, 6.0), (9.0, 10.0)]
    assert turns.active_s(taken, 1.0, 9.5) == 1.0 + 1.0 + 0.5
    assert turns.active_s(taken, 2.5, 4.0) == 0.0


def test_runs_are_compared_turn_by_turn() -> None:
    """The first third of all runs, those across the end of a turn, and turns in which a side has
    none, do not count."""

    def run(pace: float, shift: float) -> dict[str, Any]:
        starts = [0.0, 1.0, 2.5, 10.0, 11.0, 20.0]
        warming_up = [(shift + 0.1 * k, 0.1) for k in range(3)]
        each = warming_up + [(shift + t, pace * (1 + t / 10)) for t in starts]
        taken = [(0, 4), (10, 14), (20, 20.1)]  # in the last one nothing is whole
        return {"each": each, "mops": 1.0, "turns": [(shift + b, shift + e) for b, e in taken]}

    found = {"no-FT": run(1.0, 0.0), "f": run(1.1, 4.0)}
    ft.by_turn(found)
    assert found["no-FT"]["seconds_median"] == pytest.approx([1.1, 2.05])
    assert found["no-FT"]["turns"] == 2
    assert found["f"]["seconds_fastest"] == pytest.approx(1.1)
    overhead, each = sides.overheads([found["f"]], [found["no-FT"]], "seconds_median")
    assert each == pytest.approx([10.0]) and overhead["median"] == pytest.approx(10.0)
