"""Demonstrations tell what was measured, and end with 0 only if all came true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import FTRMA, run_command

from ftrma.command import apps, cli, demo, demos


class Runs:
    """Stands for the runs of a demonstration: writes what a run would write."""

    def __init__(self, **found: Any) -> None:
        self.found = {"components": 3, "nodes": 7, "parts": 2, "equal": True} | found
        self.words: list[list[str]] = []
        self.labels = [np.arange(4)] * 3
        self.spared: set[str] = set()  # slots that do not die, though they should

    def __call__(self, words: list[str], directory: Path, verbose: bool) -> demo.Outcome:
        kills = [words[i + 1].partition("@")[0] for i, word in enumerate(words) if word == "--kill"]
        stats = {"failures": [{"slot": int(s)} for s in kills if s not in self.spared],
                 "notes": [{"rounds": 5 + len(kills)}]}
        Path(words[words.index("--stats") + 1]).write_text(json.dumps(stats))
        if "--out" in words:
            np.save(words[words.index("--out") + 1], self.labels[len(self.words)])
        self.words.append(words)
        return demo.Outcome(0, f"noise\n{json.dumps(self.found)}\n", "", 1.0)


def tried(name: str, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(demo, "run_verbosely", runs)
    return demos.demonstrate(name, False)


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: the list names each demonstration that there is, and runs none."""
    assert {*apps.DEMOS} == {*demos.DEMOS}
    with pytest.raises(SystemExit) as end:
        cli.main(["demo", "--list"])
    assert end.value.code == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*apps.DEMOS]


@pytest.mark.parametrize("name", ["graph", "search"])
def test_what_came_true_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: none, one and half of the slots are lost, each has a row, and the status is 0."""
    runs = Runs()
    assert tried(name, runs, monkeypatch) == 0
    assert [words.count("--kill") for words in runs.words] == [0, 1, 2]
    rows = [line for line in capsys.readouterr().out.splitlines() if "#" in line]
    assert [row.partition("  ")[0] for row in rows] == ["none", "1", "1 and 3"]


def test_what_did_not_come_true_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: other values, a wrong count and deaths that did not happen make the status 1."""
    runs = Runs()
    runs.labels = [np.arange(4), np.arange(4), np.zeros(4, int)]
    assert tried("graph", runs, monkeypatch) == 1
    assert "other labels after the loss of 1 and 3" in capsys.readouterr().out
    assert tried("search", Runs(equal=False), monkeypatch) == 1
    assert "7 nodes are not those of the tree" in capsys.readouterr().out
    runs = Runs()
    runs.spared = {"3"}
    assert tried("search", runs, monkeypatch) == 1
    assert "1 and 3 were to die, and 1 did" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["graph", "search"])
def test_real_ones(name: str) -> None:
    result = run_command([FTRMA, "demo", name], timeout=60)
    assert result.status == 0, result
    assert result.stdout.splitlines()[-1].startswith("result") and "not as" not in result.stdout
