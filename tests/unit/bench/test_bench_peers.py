"""`bench apgas --peers`: one program in the words of each system, and the table of its times."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tree import ROOT

sys.path.insert(0, str(ROOT))

from bench import apgas, apgas_peers, common

OPTIONS = apgas.parse(["--peers", "--timeout", "60"])


def report() -> dict[str, Any]:
    """A report whose numbers are made up; one system survives nothing."""
    def of(value: float) -> dict[str, Any]:
        return {"value": common.spread([value]), "by apgas": common.spread([value])}

    whats = dict.fromkeys(apgas_peers.WHATS, of(1.0))
    ends = {what: of(2.0) for what in whats if what != "kill"}
    return {**common.begin("apgas --peers"), "workers": 4, "cores": 2, "rounds": 1,
            "found": {"apgas": whats, "futures": whats, "charm": ends}}


def test_what_a_system_does_not_survive_is_told() -> None:
    lines = apgas_peers.text(report()).splitlines()
    kills = lines[next(i for i, line in enumerate(lines) if line.startswith("SIGKILL")):]
    assert kills[1].split()[-1] == "-" and "1000.0" in kills[1], lines
    assert kills[3].split() == ["charm4py", "the", "job", "ends", "-"], lines


def test_a_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "figure.svg"
    apgas_peers.draw(report(), path)
    assert "concurrent.futures" in path.read_text()


@pytest.mark.plain
@pytest.mark.parametrize("system", [pytest.param("apgas", marks=pytest.mark.full), "futures"])
def test_a_killed_worker_is_answered_for(system: str) -> None:
    """Law: the program measures what it says: the victim is dead, and another process answers."""
    with apgas_peers.paths():
        found = apgas_peers.measure(OPTIONS, system, "calls", 2)
    assert 0 < found["fan-out"] < found["kill"] < 30


@pytest.mark.full
def test_programs_have_the_results_of_their_oracles() -> None:
    """Law: a wrong sum or a lost node of the tree ends the measurement."""
    with apgas_peers.paths():
        found = apgas_peers.measure(OPTIONS, "futures", "programs", 2)
    assert found["kmeans"] > 0 and found["uts"] > 1000
