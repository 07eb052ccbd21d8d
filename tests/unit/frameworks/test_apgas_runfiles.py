"""An executor's checkpoints in a file: they outlive the job, and a run goes on from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from placeprograms import run_program
from unit.frameworks.test_apgas_executors import EVERY, PLACES, STEPS, Small, local_result, oracle

from ftrma import apgas
from ftrma.frameworks.apgas import runfiles
from ftrma.frameworks.apgas.localrun import runs
from ftrma.frameworks.apgas.runfiles import SavedRun

STOP = 14  # the step in which a run is broken off
VALUES = {
    "array": np.arange(6.0).reshape(2, 3), "by columns": np.asfortranarray(np.ones((2, 3))),
    "number": np.float64(2.5), "none of an array": np.zeros(0), "step": 7, "words": ["a", {"b": 1}],
    "rows": np.zeros(2, [("x", "i4"), ("y", "f8")]), "objects": np.array([None, 1], object),
    "a/b": np.array(3), "file": np.array([True]),
}


class Stopped(Exception):
    """The end of a run that is broken off."""


class Breaks(Small):
    """`Small`, which can be broken off, and counts the steps of this process."""

    stop = 0
    taken = 0

    def step_local(self, team: Any) -> None:
        if self.i + 1 == Breaks.stop:
            raise Stopped
        super().step_local(team)
        Breaks.taken += 1


class Other(Small):
    """Another application."""


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray | np.generic):
        return bool(a.dtype == b.dtype and a.shape == b.shape
                    and (a.tolist() == b.tolist() if a.dtype.hasobject
                         else a.tobytes("A") == b.tobytes("A")))
    return bool(a == b and type(a) is type(b))


# ---- the file ---------------------------------------------------------------------------------


def test_a_run_comes_back(tmp_path: Path) -> None:
    """Law: all fields of all places come back, arrays with type, shape and bits; NumPy reads the
    arrays and what is said of the run without any pickle."""
    run = SavedRun("App", 12, [VALUES, {}, {"step": 8}])
    name = str(tmp_path / "run.npz")
    assert runfiles.read(name) is None
    runfiles.write(name, run)
    found = runfiles.read(name)
    assert found and (found.application, found.steps) == ("App", 12)
    assert [set(place) for place in found.places] == [set(place) for place in run.places]
    assert all(alike(VALUES[key], found.places[0][key]) for key in VALUES)
    with np.load(name, allow_pickle=False) as members:
        assert json.loads(str(members["about"]))["steps"] == 12
        assert members["0/array"].tobytes() == VALUES["array"].tobytes()
        assert "0/a/b" in members.files


@pytest.mark.parametrize("damage", ["nothing", "text", "cut", "half", "another", "bit", "later"])
def test_a_damaged_file_is_a_line(tmp_path: Path, damage: str) -> None:
    """Law: what is no whole file of a run is refused, with its name and the remedy."""
    path = tmp_path / "run.npz"
    runfiles.write(str(path), SavedRun("App", 1, [VALUES]))
    whole = path.read_bytes()
    with open(path, "wb") as file:
        if damage == "another":
            np.savez(file, x=np.ones(3))
        elif damage == "later":
            np.savez(file, about=np.array(json.dumps({"format": runfiles.FORMAT, "version": 9})))
        else:
            bit = bytearray(whole)
            bit[whole.index(VALUES["array"].tobytes()) + 9] ^= 16
            file.write({"nothing": b"", "text": b"hello\n" * 99, "cut": whole[:-1],
                        "half": whole[: len(whole) // 2], "bit": bytes(bit)}[damage])
    with pytest.raises(ValueError, match=r"run\.npz: no checkpoint of a run .* or remove it$"):
        runfiles.read(str(path))


# ---- executors --------------------------------------------------------------------------------


def run_with(file: Path, stop: int = 0, make: Any = Breaks, places: int = PLACES,
             kills: Any = (), **options: Any) -> Any:
    """Run the application with a file; the results of all places, and the steps of the first."""
    def main() -> Any:
        executor = apgas.SPMDIterativeExecutor(
            apgas.PlaceManager(), EVERY, file=file, **{"file_s": 0.0, **options})
        executor.run(make)
        results = [apgas.at(place, local_result) for place in apgas.group()]
        return results, Breaks.taken, executor.statistics.resumed

    Breaks.stop = stop
    return run_program(places, main, spares=1 if kills else 0, kills=kills)


def break_off(file: Path) -> None:
    with pytest.raises(Exception, match="Stopped"):
        run_with(file, STOP)


@pytest.mark.plain
def test_a_run_goes_on_from_the_file(tmp_path: Path) -> None:
    """Law: a job that has ended amid a run leaves the newest checkpoint; the next one takes the
    steps behind it alone, and has the bits of a run that was never broken off. A run that had
    ended takes none."""
    file = tmp_path / "run.npz"
    break_off(file)
    saved = runfiles.read(str(file))
    assert saved and saved.steps == (STOP - 1) // EVERY * EVERY
    assert run_with(file) == (oracle(), STEPS - saved.steps, True)
    ended = runfiles.read(str(file))
    assert ended and ended.steps == STEPS
    inode = file.stat().st_ino
    assert run_with(file) == (oracle(), 0, True) and file.stat().st_ino == inode


@pytest.mark.plain
@pytest.mark.parametrize("kill", [(2, "apgas.step", 3), (1, "apgas.checkpoint", 2)])
def test_a_death_behind_a_file(tmp_path: Path, kill: Any) -> None:
    """Law: a run that has gone on from a file survives a death as any other, and writes on."""
    file = tmp_path / "run.npz"
    break_off(file)
    results, _, resumed = run_with(file, kills=[kill])
    assert results == oracle() and resumed
    ended = runfiles.read(str(file))
    assert ended and ended.steps == STEPS and len(ended.places) == PLACES


@pytest.mark.plain
def test_files_come_at_their_times(tmp_path: Path) -> None:
    """Law: checkpoints in between go to the file only after `file_s`; the end does always. Without
    a file nothing is written, and no checkpoint is taken at the end."""
    def main() -> Any:
        written: list[int] = []
        true = runfiles.write

        def write(file: str, run: SavedRun) -> None:
            written.append(run.steps)
            true(file, run)

        runfiles.write = write
        for seconds in (0.0, 1e9):
            executor = apgas.SPMDIterativeExecutor(
                apgas.PlaceManager(), 10, file=tmp_path / f"{seconds}.npz", file_s=seconds)
            executor.run(Small)
        plain = apgas.SPMDIterativeExecutor(apgas.PlaceManager(), 10)
        plain.run(Small)
        return written, plain.statistics.checkpoints

    assert run_program(2, main) == ([10, 20, STEPS, STEPS], 2)


@pytest.mark.plain
@pytest.mark.parametrize(("places", "make", "said"), [
    (PLACES - 1, Breaks, rf"over {PLACES} places, and {PLACES - 1} are active.* -n {PLACES}"),
    (PLACES, Other, "a run of Breaks, and this is one of Other"),
])
def test_another_run_is_refused(tmp_path: Path, places: int, make: Any, said: str) -> None:
    """Law: a file of another application, or of more places, is told and left as it is."""
    file = tmp_path / "run.npz"
    break_off(file)
    before = file.read_bytes()
    with pytest.raises(Exception, match=said):
        run_with(file, make=make, places=places)
    assert file.read_bytes() == before


@pytest.mark.plain
def test_a_file_that_cannot_be_written(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Law: a place that takes no file is refused before a run; a full disk is told, and costs the
    file alone."""
    def main() -> Any:
        with pytest.raises(ValueError, match="there is no directory"):
            apgas.SPMDIterativeExecutor(apgas.PlaceManager(), file=tmp_path / "no" / "run.npz")
        apgas.SPMDIterativeExecutor(apgas.PlaceManager(), file="/dev/full", file_s=0.0).run(Small)
        return local_result()

    assert run_program(1, main)[2] == sum(range(STEPS + 1))
    lines = capfd.readouterr().err.splitlines()[1:]  # the first one is about the store
    assert lines and all(line.startswith("apgas: warning: cannot write /dev/full: No space left")
                         and line.endswith("the run goes on without it") for line in lines)


@pytest.mark.plain
def test_save_on_demand(tmp_path: Path) -> None:
    """Law: `save` writes the newest checkpoint of the newest run, and refuses if there is none."""
    def main() -> Any:
        executor = apgas.IterativeExecutor(apgas.PlaceManager(), EVERY)
        with pytest.raises(ValueError, match="no run of this executor has a checkpoint"):
            executor.save(tmp_path / "run.npz")
        executor.run(Count, 6)
        executor.save(tmp_path / "run.npz")
        assert runs().ended == 1

    run_program(2, main)
    saved = runfiles.read(str(tmp_path / "run.npz"))
    assert saved == SavedRun("Count", EVERY, [{"i": EVERY}, {"i": 0}])


class Count(apgas.IterativeApp):
    """Counts steps at the place that takes them."""

    def __init__(self, last: int) -> None:
        self.i, self.last = 0, last

    def is_finished(self) -> bool:
        return self.i == self.last

    def step(self) -> None:
        self.i += 1

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        return {"i": self.i}

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
