"""`bench apgas --apps`: the tables of applications, their deaths, and a wrong result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tree import ROOT

sys.path.insert(0, str(ROOT))

from bench import apgas, apgas_apps, common
from bench.launching import BenchError

STEPPED = {"seconds": 1.0, "crc": 5, "step_s": 0.01, "first_s": 0.1, "checkpoint_s": 0.002,
           "stood_s": [0.05], "recoveries": [{"runtime_s": 0.02, "data_s": 0.01,
                                              "redone_s": 0.04}]}


def made_up(options: Any, places: int, app: str, arm: str) -> dict[str, Any]:
    """A run whose numbers are made up: the resilient finish costs 1 %, a death 0.5 s."""
    deaths = int(arm) if arm.isdigit() else 0
    seconds = {"none": 1.0, "sequential": 1.9}.get(arm, 1.01) + 0.5 * deaths
    if app == "uts":
        return {"seconds": seconds, "crc": 257_042}
    return {**STEPPED, "seconds": seconds}


def told(monkeypatch: pytest.MonkeyPatch, capsys: Any, *words: str) -> list[str]:
    monkeypatch.setattr(apgas_apps, "measure", made_up)
    assert apgas.main(["--apps", *words, "--rounds", "2"]) == 0
    lines: list[str] = capsys.readouterr().out.splitlines()
    return lines


def test_targets_are_met_or_missed(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Law: the tables have the made-up costs, each beside its target."""
    lines = told(monkeypatch, capsys, "kmeans", "uts")
    row = next(line for line in lines if line.startswith("kmeans "))
    assert row.split()[1] == "1.0" and "<= 2 met" in row and row.endswith("<= 1.8 met"), row
    row = next(line for line in lines if line.startswith("kmeans, 3"))
    assert row.split()[2:3] == ["20"] and row.endswith("<= 100 met"), row
    row = next(line for line in lines if line.startswith("uts, 2 died"))
    assert "0.50 (0.50 .. 0.50) s for each" in row and row.endswith("<= 0.3 missed"), row
    assert "95.0 (95.0 .. 95.0) % of" in next(line for line in lines if "million" in line)


def test_another_result_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(options: Any, places: int, app: str, arm: str) -> dict[str, Any]:
        return {**made_up(options, places, app, arm), "crc": 5 if arm != "2" else 6}

    monkeypatch.setattr(apgas_apps, "measure", wrong)
    with pytest.raises(BenchError, match="logreg: the runs have not come to the same bits"):
        apgas.main(["--apps", "logreg", "--rounds", "1"])


def test_each_replacement_dies_in_its_turn() -> None:
    options = apgas.parse(["--apps", "kmeans", "--steps", "40"])
    assert apgas_apps.kills(options, "kmeans", 3) == [
        "--kill", "1@apgas.step:10", "--kill", "s0@apgas.step:10", "--kill", "s1@apgas.step:10"]
    assert apgas_apps.kills(options, "kmeans", 0) == []


@pytest.mark.plain
def test_a_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    seconds = dict.fromkeys(apgas_apps.ARMS, common.spread([1.0, 2.0]))
    path = tmp_path / "figure.svg"
    apgas_apps.draw({**common.begin("apgas --apps"), "rounds": 2,
                     "apps": {"uts": {"seconds": seconds}}}, path)
    assert "3 deaths" in path.read_text()
