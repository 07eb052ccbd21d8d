"""Checkpoints of vertex programs in files: jobs that lose more than parity has, or everything.

Law: the same command goes on from what all slots have in files, and comes to the same bits; it
never takes what is of something else, cut or damaged.
"""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from jobs import FTRMA, Result, run_command, run_job, run_plain
from programs import final_memory, kinds
from tiers import tiers

GRAPHS = Path(__file__).parent / "graphs.py"
PHOENIXES = Path(__file__).parent / "phoenixes.py"
SLOTS = 4
LOST = ("1@graph.compute:12", "2@graph.compute:12")  # of one group, which stands one loss
RECOVERIES = ("hwcp", "lwcp", "hwlog", "lwlog")
STRANGER = 20002  # uid


def kill(*rules: str) -> list[str]:
    return ["--spares", "3", *(word for rule in rules for word in ("--kill", rule))]


def launch(spill: Path | None, recovery: str, names: tuple[str, ...], *options: str,
           script: Path = GRAPHS, slots: int = SLOTS) -> Result:
    env = {"SPILL": str(spill)} if spill else {}
    return run_job(script, slots, *options, args=[recovery, *names], env=env)


@functools.cache
def expected(script: Path, recovery: str, names: tuple[str, ...]) -> dict[int, Any]:
    result = launch(None, recovery, names, script=script)
    assert result.status == 0, result
    return final_memory(result)


def assert_same(result: Result, recovery: str, names: tuple[str, ...],
                script: Path = GRAPHS) -> None:
    assert result.status == 0, result
    for slot, arrays in expected(script, recovery, names).items():
        for name, array in arrays.items():
            assert final_memory(result)[slot][name].tobytes() == array.tobytes(), (name, result)


def left(spill: Path) -> set[tuple[str, ...]]:
    """Run, slot and step of all files that are there."""
    words = [path.name.removesuffix(".npz").split("-") for path in spill.iterdir()]
    return {(run, slot, step) for *_, run, _, slot, step in words}


@pytest.mark.parametrize("recovery", tiers(RECOVERIES, full=["lwlog"]))
def test_a_lost_job_goes_on(tmp_path: Path, recovery: str) -> None:
    """Law: from the step of the newest checkpoint; once it has ended it is not run again."""
    names = ("pagerank", "kcore")
    result = launch(tmp_path, recovery, names, *kill(*LOST))
    assert result.status == 70, result
    assert left(tmp_path) == {("1", str(slot), "10") for slot in range(SLOTS)}
    result = launch(tmp_path, recovery, names)
    assert_same(result, recovery, names)
    assert "run 1 goes on from there: 10 steps are done" in result.stderr, result
    taken = result.results["steps"]
    assert taken["pagerank"][0] in (10, 11) and taken["kcore"][0] == 1, taken
    files = {(run, str(slot), "end") for run in "12" for slot in range(SLOTS)}
    assert left(tmp_path) == files
    result = launch(tmp_path, recovery, names)
    assert_same(result, recovery, names)
    assert result.results["steps"] == {"pagerank": [], "kcore": []}
    assert left(tmp_path) == files and "run 2 goes on from there: it has ended" in result.stderr


@pytest.mark.parametrize(("name", "recovery", "step"), tiers(
    itertools.product(("sv", "triangles", "matching", "kcore", "doubling"), RECOVERIES, (6, 8)),
    full=["sv-lwlog-8"]))
def test_full_programs_go_on(tmp_path: Path, name: str, recovery: str, step: int) -> None:
    """Law: with edges that have come and gone, lists of messages and masked steps, too."""
    rules = [f"{slot}@graph.exchange:{step}" for slot in (1, 2)]
    result = launch(tmp_path, recovery, ("pagerank", name), *kill(
        *(f"{slot}@graph.exchange:{17 + step}" for slot in (1, 2))))
    assert result.status == 70, (rules, result)
    assert ("1", "0", "end") in left(tmp_path)
    assert_same(launch(tmp_path, recovery, ("pagerank", name)), recovery, ("pagerank", name))


AGAIN = ("2@graph.recover", "1@checkpoint", "0@stage", "3@staged", "c0@fold", "2@graph.load",
         "0@graph.compute:1", "1@graph.emit:2", "2@graph.compute:5", "0@graph.end")


@pytest.mark.parametrize(("rule", "recovery"), [
    pytest.param(rule, recovery, marks=pytest.mark.full if (rule, recovery) == ("3@staged", "lwlog")
                 else pytest.mark.nightly) for rule in AGAIN for recovery in RECOVERIES])
def test_it_is_struck_again(tmp_path: Path, rule: str, recovery: str) -> None:
    """Law: also while it takes over what files have, and after that."""
    names = ("pagerank",)
    assert launch(tmp_path, recovery, names, *kill(*LOST)).status == 70
    result = launch(tmp_path, recovery, names, *kill(rule))
    assert_same(result, recovery, names)
    assert kinds(result) or result.results["steps"]["pagerank"][0] in (10, 11), result
    assert "10 steps are done" in result.stderr, result


@pytest.mark.parametrize(("name", "recovery"), [
    pytest.param("sssp", "phoenix", marks=pytest.mark.full),
    *(pytest.param(name, recovery, marks=pytest.mark.nightly)
      for name, recovery in (("sssp", "cr"), ("kcore", "cr"), ("bfs", "phoenix"), ("cc", "phoenix"),
                             ("kcore", "phoenix")))])
def test_rounds_go_on(tmp_path: Path, name: str, recovery: str) -> None:
    """Law: Phoenix's programs go on from the fields of a checkpoint, if there are any."""
    lost = [f"{slot}@graph.compute:13" for slot in range(SLOTS)]
    result = launch(tmp_path, recovery, (name,), *kill(*lost), "--max-relaunch", "0",
                    script=PHOENIXES)
    assert result.status, result
    assert left(tmp_path) == {("1", str(slot), "10") for slot in range(SLOTS)}
    result = launch(tmp_path, recovery, (name,), script=PHOENIXES)
    assert_same(result, recovery, (name,), PHOENIXES)
    assert "run 1 goes on from there: 10 steps are done" in result.stderr, result


@pytest.mark.full
def test_without_ftrma(tmp_path: Path) -> None:
    """Law: under plain mpiexec as well, where a job ends before the run does."""
    env = {"SPILL": str(tmp_path)}
    result = run_plain(GRAPHS, SLOTS, args=["lwcp", "pagerank"], env={**env, "MOST": "12"})
    assert result.stderr.count("has not ended after 12 steps") == SLOTS, result
    result = run_plain(GRAPHS, SLOTS, args=["lwcp", "pagerank"], env=env)
    assert_same(result, "lwlog", ("pagerank",))
    assert result.results["steps"]["pagerank"][0] == 10, result.results["steps"]


@pytest.mark.nightly
def test_what_does_not_serve_is_told(tmp_path: Path) -> None:
    """Law: a damaged file, one that others can write to, one that is missing, a lost key, other
    arguments, more slots: it begins anew, and says why."""
    state = str(tmp_path / "state")
    env, names = {"SPILL": str(tmp_path / "spill"), "XDG_STATE_HOME": state}, ("pagerank",)
    anew = "run 1 begins anew: "
    others = f"{anew}what is there is of another program"
    tmp_path = tmp_path / "spill"
    tmp_path.mkdir()

    def fill() -> list[Path]:
        for path in tmp_path.iterdir():
            path.unlink()
        result = run_plain(GRAPHS, SLOTS, args=["lwlog", *names], env={**env, "MOST": "12"})
        assert result.status == 0 and len(os.listdir(tmp_path)) == SLOTS, result
        return sorted(tmp_path.iterdir())

    def again(told: str, *names: str, slots: int = SLOTS) -> None:
        result = run_job(GRAPHS, slots, args=["lwlog", *names], env=env)
        assert result.status == 0 and told in result.stderr, result
        if slots == SLOTS:
            assert_same(result, "lwlog", names)
            assert result.results["steps"]["pagerank"][0] == 1, result

    path = fill()[2]
    path.write_bytes(path.read_bytes()[:-3])
    again(f"{anew}{path} was damaged or changed, or the key", *names)
    path = fill()[1]
    path.chmod(0o666)
    again(f"{anew}{path} is not a file of this user's alone: it is open to others", *names)
    path = fill()[3]
    path.unlink()
    os.mkfifo(path)
    again(f"{anew}{path} is not a file of this user's alone: it is no regular file", *names)
    fill()
    (Path(state) / "ftrma" / "key").unlink()
    again(f"or the key {state}/ftrma/key is another one than when it was written", *names)
    fill()[1].unlink()
    again(others, *names)
    assert len(left(tmp_path)) == SLOTS
    fill()
    again(others, *names, "component")
    fill()
    again(others, *names, slots=3)


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="another user is played by files of his")
def test_files_of_another_user_change_nothing(tmp_path: Path) -> None:
    """Law: in a directory that all can write to, under the names that a job will look for, files,
    FIFOs and links of somebody else are neither believed nor waited for nor followed; the result
    is that of a job without any."""
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    victim.write_text("precious")
    words = [FTRMA, "graph", "pagerank", "rmat:8", "-n", "2", "--checkpoint", "3"]
    files = ["--cache", str(shared), "--spill", str(shared), "--out", str(tmp_path / "out.npy")]

    def run(*more: str) -> tuple[bytes, str]:
        result = run_command([*words, *more])
        assert result.status == 0, result
        return (tmp_path / "out.npy").read_bytes(), result.stderr

    plain = run("--out", str(tmp_path / "out.npy"))
    theirs = run(*files)
    names = sorted(path for path in shared.iterdir())
    assert theirs == plain and len(names) == 4, names  # a part and a result of each slot
    shared.chmod(0o777)
    for chosen in (("fifo", "link", "file", "fifo"), ("file", "fifo", "link", "link")):
        for path, kind in zip(names, chosen, strict=True):
            whole = path.read_bytes()
            path.unlink()
            if kind == "file":
                path.write_bytes(whole)
                path.chmod(0o666)
            elif kind == "fifo":
                os.mkfifo(path, 0o666)
            else:
                path.symlink_to(victim)
            os.lchown(path, STRANGER, STRANGER)
        found, told = run(*files)
        assert found == plain[0] and "run 1 begins anew: " in told, told
        assert told.count("makes its part of rmat again: ") == 2, told
        assert victim.read_text() == "precious" and victim.stat().st_uid == 0
        assert all(path.is_file() and path.stat().st_uid == 0 for path in names)
