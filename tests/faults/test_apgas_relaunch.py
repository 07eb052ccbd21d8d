"""Programs over places are launched again, on one node and several; stores have what they had.

All processes are new then, but shared memory has outlived those before. Law: an executor goes on
from its last checkpoint, wherever and how often the launch before has ended, also if `ftrma run`
itself was killed; the result has the bits of a run in which nobody dies. A store begins empty only
if no node has a file of one of its shelves, which is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from byhand import Job, ftrma
from jobs import Result, run_job
from nodes import remove_fake_ssh, run_on_nodes
from programs import kinds
from tiers import tiers

PLACES, STEPS = 4, 30
PROGRAM = '''
import json, os, sys, time
from pathlib import Path
from ftrma import apgas, framework

directory, nap = sys.argv[1], float(os.environ.get("NAP", "0"))


class Sums(apgas.SPMDIterativeApp):
    def __init__(self):
        self.i, self.x = 0, 1 + apgas.group().index_of(apgas.here())

    def is_finished_local(self):
        return self.i == STEPS

    def step_local(self, team):
        self.x = self.x // 2 + team.allreduce(self.x) % 1009
        self.i += 1
        Path(directory, f"step-{self.i}").touch()
        time.sleep(nap)

    def checkpoint_local(self, first):
        return {"i": self.i, "x": self.x}

    def restore_local(self, saved):
        self.__dict__.update(saved)


def main():
    executor = apgas.SPMDIterativeExecutor(apgas.PlaceManager(), 3)
    app = executor.run(Sums)
    with open(f"{directory}/root.json", "w") as file:
        json.dump([app.x, executor.statistics.steps, framework.attempt()], file)


apgas.run(main)
'''.replace("STEPS", str(STEPS))


def expected() -> int:
    """The value of the first place, computed in one process."""
    values = list(range(1, PLACES + 1))
    for _ in range(STEPS):
        total = sum(values) % 1009
        values = [value // 2 + total for value in values]
    return values[0]


def assert_went_on(result: Result, steps: int, launches: int = 1) -> None:
    """Say that the last attempt has taken no more than so many steps."""
    assert result.status == 0, result
    value, taken, attempt = result.results["root"]
    assert value == expected() and taken <= steps and attempt > 1, result
    assert kinds(result).count("relaunch") == launches, result
    assert "goes on after step" in result.stderr and "begins empty" not in result.stderr, result


def options(spares: int, rules: str) -> list[str]:
    kills = [word for rule in rules.split() for word in ("--kill", rule)]
    return ["--spares", str(spares), "--max-relaunch", "9", *kills]


# Deaths, spares, the steps that are left at most, and how often the job is launched again.
DEATHS = [
    ("0@apgas.step:20", 0, 12, 1),
    ("0@apgas.checkpoint:6", 0, 18, 1), ("0@apgas.half:12", 0, STEPS, 1),
    # With the only spare gone, place zero dies while a shelf has its holder alone.
    ("1@apgas.step:20 0@apgas.rebuild", 1, 12, 1),
    # In the launch behind: amid loading the shelves, and amid making new copies.
    ("0@apgas.step:20 0@apgas.load", 0, 12, 2), ("0@apgas.step:20 2@apgas.load", 1, 12, 1),
    ("0@apgas.step:20 0@apgas.mirror:2", 0, 12, 2),
]


@pytest.mark.parametrize(("rules", "spares", "steps", "launches"), tiers(
    DEATHS, plain=["0@apgas.step:20-0-12-1"],
    full=["1@apgas.step:20 0@apgas.rebuild-1-12-1", "0@apgas.step:20 0@apgas.load-0-12-2"]))
def test_on_one_node(rules: str, spares: int, steps: int, launches: int) -> None:
    """Law: of the module."""
    assert_went_on(run_job(PROGRAM, PLACES, *options(spares, rules)), steps, launches)


@pytest.fixture
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there."""
    yield
    remove_fake_ssh()


@pytest.mark.parametrize(("rules", "spares", "steps", "nodes"), tiers(
    [(rules, spares, steps, nodes) for rules, spares, steps in (
        ("0@apgas.step:20", 0, 12), ("n0@apgas.step:20", 7, 12), ("0@apgas.checkpoint:6", 0, 18))
     for nodes in (1, 2, 3)], full=["0@apgas.step:20-0-12-2"]))
def test_over_nodes(rules: str, spares: int, steps: int, nodes: int, stand_in: None) -> None:
    """Law: also if all processes of place zero's node have died; its memory is still there."""
    assert_went_on(run_on_nodes(PROGRAM, PLACES, *options(spares, rules), in_turn=nodes,
                                timeout=90, tidy=False), steps)


@pytest.mark.full
def test_ftrma_run_itself_is_killed(tmp_path: Path) -> None:
    """Law: `ftrma run --resume JOB` goes on behind the checkpoint, too."""
    killed = Job(tmp_path, "--spares", "0", slots=PLACES, nap="0.1", program=PROGRAM)
    killed.until((tmp_path / "step-14").exists)
    directory = killed.kill()
    resumed = ftrma("run", "--resume", directory.name, env=killed.env)
    assert resumed.returncode == 0, resumed.stderr
    step = re.search(r"goes on after step (\d+)", resumed.stderr)
    assert step and int(step[1]) >= 12, resumed.stderr
    assert f"[{expected()}, {STEPS - int(step[1])}, 2]" == (tmp_path / "root.json").read_text()


@pytest.mark.parametrize("rules", tiers(
    ["0@apgas.step:20", *(f"0@apgas.step:20 0@apgas.empty:{n}" for n in range(1, 2 * PLACES + 1))],
    full=["0@apgas.step:20", "0@apgas.step:20 0@apgas.empty:2", "0@apgas.step:20 0@apgas.empty:7"]))
def test_a_file_that_is_gone(rules: str) -> None:
    """Law: the store begins empty, which is said, and the result is right; also if place zero dies
    while files are removed (1 to 4) or while shelves are emptied (5 to 8), and the job is launched
    again."""
    program = PROGRAM.replace("def main():", '''def main():
    if framework.attempt() == 2:
        import os
        from ftrma.frameworks.apgas.runtime import current
        next(current().members.directory.glob("own-shelf-*-2-*-a")).unlink()''')
    result = run_job(program, PLACES, *options(0, rules))
    assert result.status == 0, result
    launches = len(rules.split())
    assert kinds(result).count("relaunch") == launches, result
    assert result.results["root"] == [expected(), STEPS, 1 + launches], result
    # After the eighth all shelves are empty, and the next launch has nothing to say.
    assert result.stderr.count("begins empty") == (
        launches if not rules.endswith(":8") else 1), result
