"""Tiers of tests: each test has one; CI takes all but the nightly one, which can be continued."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import PLAIN_RUN, TIERS, latest, tiers
from tree import ROOT, TESTS


def test_each_test_has_one_tier(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        found = [mark.name for mark in item.iter_markers() if mark.name in TIERS]
        assert len(found) == 1, (item.nodeid, found)


def test_the_latest_of_several_tiers_counts() -> None:
    assert latest(["quick", "skipif", "nightly", "full"]) == "nightly"
    assert latest(["skipif"]) is None


def test_cases_are_named_as_pytest_prints_them() -> None:
    """Law: each case has the mark of its tier, "plain" too: in `tests/unit` no mark means quick."""
    cases = tiers([("put", 1), pytest.param("get", 2, id="second"), ("get", 3)],
                  plain=["put-1"], full=["second"])
    marks = [[mark.name for mark in case.marks] for case in cases]
    assert marks == [["plain"], ["full"], ["nightly"]]
    assert [case.values for case in cases] == [("put", 1), ("get", 2), ("get", 3)]


@pytest.mark.parametrize(("named", "told"), [
    ({"full": ["3"]}, "no case has the name 3"), ({"plain": ["1"], "full": ["1"]}, "1: in full"),
    ({"slow": ["1"]}, "in slow")])
def test_a_name_of_no_case_is_told(named: dict[str, list[str]], told: str) -> None:
    """Law: a case that is renamed does not change its tier unnoticed."""
    with pytest.raises(ValueError, match=told):
        tiers([1, 2], **named)


def test_ci_takes_all_tiers_but_the_nightly_one() -> None:
    """Law: the README's command takes quick and plain, `.ci/run` the full ones beside it, and
    `.ci/nightly` those that are left."""
    run, nightly = ((ROOT / ".ci" / name).read_text() for name in ("run", "nightly"))
    assert re.findall(r"pytest -m (\w+)", run) == ["full"] and '"${commands[1]}"' in run
    assert {*re.findall(r"pytest -m (\w+)", nightly)} == {"nightly"}
    assert "--passed=" in nightly and "--passed " not in nightly  # see there
    assert PLAIN_RUN == "not full and not nightly"
    assert TIERS == ("quick", "plain", "full", "nightly")


@pytest.mark.plain
def test_a_run_is_continued(tmp_path: Path) -> None:
    """Law: what has passed is not repeated, what has failed or was not reached is; the end counts
    all runs together."""
    (tmp_path / "conftest.py").write_text(
        "from passed import Passed\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(Passed('ended'))\n")
    (tmp_path / "test_it.py").write_text(
        "import os, pytest\n"
        "def test_one(): os.mkdir('one')\n"
        "def test_two(): assert os.path.exists('now')\n"
        "@pytest.mark.skip\ndef test_three(): pass\n"
        "def test_four():\n"
        "    if not os.path.exists('now'): raise KeyboardInterrupt\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    env = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def run() -> tuple[int, str]:
        ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True,
                               timeout=60)
        return ended.returncode, ended.stdout

    status, told = run()
    assert status == 2 and "1 passed, 1 failed, 1 skipped, 1 left" in told, told
    assert "failed: test_it.py::test_two" in told
    assert "os.path.exists('now')" in (tmp_path / "ended.failures").read_text()
    (tmp_path / "now").touch()
    status, told = run()
    assert status == 0 and "3 passed, 1 skipped, 0 left" in told, told
    status, told = run()
    assert status == 0 and "3 passed, 1 skipped, 0 left" in told, told


@pytest.mark.plain
def test_a_failure_tells_all_that_its_jobs_printed(tmp_path: Path) -> None:
    """Law: a failure that cannot be repeated is explained by what is printed of it."""
    (tmp_path / "test_it.py").write_text(
        "from jobs import Result\n"
        "def test_one():\n"
        "    result = Result(1, 'x' * 999, 'y' * 999 + 'why', {'recoveries': 'z' * 999})\n"
        "    assert result.status == 0, result\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider",
               "."]
    env = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True,
                           timeout=60)
    assert ended.returncode == 1, ended.stdout
    told = ended.stdout.partition("job 'result'")[2]
    assert "y" * 999 + "why" in told and "z" * 999 in told, ended.stdout


@pytest.mark.plain
def test_two_runs_meet(tmp_path: Path) -> None:
    """Law: each test runs once, in one of the two, but perhaps the one at which they meet."""
    (tmp_path / "conftest.py").write_text(
        "import os\nfrom passed import Passed\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(Passed('ended', backwards='BACK' in os.environ))\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest, time\n"
        "@pytest.fixture(scope='module')\ndef all_of_it():\n    yield\n    print('taken down')\n"
        "@pytest.mark.parametrize('i', range(40))\n"
        "def test_one(i, all_of_it): time.sleep(0.02); assert i != 30\n")
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "."]
    env = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    runs = [subprocess.Popen(command, cwd=tmp_path, env=env | more, stdout=subprocess.PIPE,
                             text=True) for more in ({}, {"BACK": "1"})]
    told = [run.communicate(timeout=60)[0] for run in runs]
    names = [line.rpartition(" ")[2] for line in (tmp_path / "ended").read_text().splitlines()]
    assert len(set(names)) == 40 and len(names) <= 41, names
    assert all(text.count("taken down") == 1 for text in told), told
    assert sorted(run.returncode for run in runs) == [0, 1], told
    assert any("39 passed, 1 failed, 0 left" in text for text in told), told


@pytest.mark.nightly
def test_properties_hold_for_many_examples() -> None:
    """Law: what a run by day tries with a few examples is tried with many by night."""
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "hypothesis and quick", "-p", "no:cacheprovider",
         str(TESTS / "unit")], cwd=ROOT, env={**os.environ, "FTRMA_EXAMPLES": "1000"},
        capture_output=True, text=True, timeout=1800, check=False)
    assert found.returncode == 0, found.stdout
