"""Places that come later: they take tasks, replace the dead, die themselves, and need no MPI."""

from __future__ import annotations

import pytest
from jobs import run_job

PROGRAM = """
import json, os, sys, time
import numpy as np
from ftrma import MPI, apgas
directory, what = sys.argv[1:3]


def square(x):
    return apgas.here(), int((np.arange(x) ** 2).sum())


def rank():
    return MPI.COMM_WORLD.rank


def mistake():
    raise ValueError("mine")


def main():
    found = {"before": list(apgas.reserves())}
    later = apgas.add_places_and_wait(2)
    found["later"], found["reserves"] = list(later), list(apgas.reserves())
    found["squares"] = [apgas.at(p, square, 10) for p in later]
    found["from another"] = list(apgas.at(apgas.places()[1], apgas.add_places, 1))
    try:
        apgas.add_places(5)
    except ValueError as error:
        found["refused"] = str(error)
    if what == "kill":
        try:
            with apgas.finish():
                for p in later:
                    apgas.async_at(p, apgas.sleep, 0.1)
                apgas.async_at(later[0], apgas.kill_here)
        except apgas.MultipleExceptions as error:
            found["dead"] = sorted({e.place for e in error.of_type(apgas.DeadPlaceException)})
        found["after"] = list(apgas.reserves())
    if what == "mistakes":
        for function in (rank, mistake):
            try:
                apgas.at(later[0], function)
            except Exception as error:
                found[function.__name__] = str(error)
    if what == "replenish":
        manager = apgas.PlaceManager(spares=5)
        apgas.uncounted_async_at(manager.reserves()[0], apgas.kill_here)
        apgas.when(lambda: apgas.is_dead(3))
        apgas.when(lambda: len(manager.reserves()) == 5)
        found["kept"] = list(manager.reserves())
    with open(f"{directory}/root.json", "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    apgas.run(main)
"""


@pytest.mark.full
@pytest.mark.parametrize("what", ["kill", "mistakes", "replenish"])
def test_places_come_later(what: str) -> None:
    """Law: a late place is a reserve like the others, without MPI; its death is told."""
    job = run_job(PROGRAM, 2, "--spares", "2", args=[what])
    assert job.status == 0, job
    found = job.results["root"]
    assert found["before"] == [3, 4]
    assert found["later"] == [5, 6] and found["reserves"] == [3, 4, 5, 6]
    assert found["squares"] == [[5, 285], [6, 285]]
    assert found["from another"] == [7]
    assert found["refused"] == ("add_places(5): there is room for 1 more places; start the job "
                                "with more of them (-n, --spares)")
    if what == "kill":
        assert found["dead"] == [5] and found["after"] == [3, 4, 6, 7]
        assert "place 5 died of SIGKILL" in job.stderr
    if what == "mistakes":
        assert found["mistake"] == "mine"
        assert found["rank"].startswith("MPI.COMM_WORLD.rank: ")
    if what == "replenish":
        assert found["kept"] == [4, 5, 6, 7, 8]
