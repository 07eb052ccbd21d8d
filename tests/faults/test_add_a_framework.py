"""The page ``ftrma/docs/add-a-framework.md``: its framework, as it stands there, survives a kill.

Law: a framework is files of its own and nothing else: with those of the page laid beside ftrma's,
its command is there, and its program ends with the numbers of the run without failure.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from jobs import Result, run_command

import ftrma

PACKAGE = Path(ftrma.__file__).resolve().parent
PAGE = PACKAGE / "docs" / "add-a-framework.md"
COMMAND = "from ftrma.command.cli import main; main()"
SLOTS, STEPS = 3, 20


def files_of_the_page() -> dict[str, str]:
    """The files that the page shows, by their path in the package."""
    found = re.findall(r"^`([\w/.]+\.py)`:\n\n```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(found) == 5
    return dict(found)


@pytest.fixture
def overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose `ftrma` is this one with the files of the page beside its own."""
    monkeypatch.chdir(tmp_path)  # a checkout in the working directory would come first
    package = tmp_path / "overlay" / "ftrma"
    (package / "frameworks").mkdir(parents=True)
    for folder in (PACKAGE, PACKAGE / "frameworks"):
        for path in folder.iterdir():
            if path.name not in ("frameworks", "__pycache__"):
                (package / path.relative_to(PACKAGE)).symlink_to(path)
    for name, text in files_of_the_page().items():
        path = package / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return package.parent


def run(overlay: Path, *words: str) -> Result:
    return run_command([sys.executable, "-c", COMMAND, *words],
                       env={**os.environ, "PYTHONPATH": str(overlay)})


def expected() -> list[int]:
    numbers = list(range(SLOTS))
    for _ in range(STEPS):
        numbers = [(31 * numbers[i] + numbers[i - 1]) % 1_000_003 for i in range(SLOTS)]
    return numbers


def test_its_files_are_all_that_a_framework_needs(overlay: Path, tmp_path: Path) -> None:
    """Law: the command is listed, and a killed slot costs nothing of the result."""
    assert re.search(r"^ +ring +numbers that go round", run(overlay, "-h").stdout, re.M)
    out, stats = tmp_path / "numbers", tmp_path / "stats"
    result = run(overlay, "ring", str(STEPS), str(out), "-n", str(SLOTS), "--stats", str(stats),
                 "--kill", "1@ring.send:13")
    assert result.status == 0 and "ring recovers" in result.stderr, result
    assert list(map(int, out.read_text().split())) == expected(), result
    told = json.loads(stats.read_text())
    assert [recovery["kind"] for recovery in told["recoveries"]] == ["reentry"], told


def test_its_mistakes_are_the_users(overlay: Path, tmp_path: Path) -> None:
    """Law: a word that is wrong is told before anything starts, with status 2."""
    result = run(overlay, "ring", "some", str(tmp_path / "numbers"), "-n", "3")
    assert result.status == 2 and "STEPS" in result.stderr, result
