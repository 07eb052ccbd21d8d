"""Global load balancing, in real processes: each node is counted once, whoever dies and when."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from placeprograms import Kill, run_program
from tree import ROOT

from ftrma import apgas
from ftrma.frameworks.apgas import glb, stealing
from ftrma.frameworks.apgas.placegroup import PlaceGroup

sys.path.insert(0, str(ROOT / "bench" / "apps"))
import queens
import uts

pytestmark = pytest.mark.plain
DEPTH = 7
SIZE = uts.sequential(DEPTH)
COMMIT_S = 0.002


def count(commit_s: float | None = COMMIT_S, shrink: bool = False) -> Any:
    return glb.run(uts.Nodes.root(DEPTH), apgas.PlaceManager(allow_shrinking=shrink),
                   commit_s=commit_s)


def test_the_known_size() -> None:
    assert uts.sequential(8) == uts.SIZES[8]


def test_a_bag_is_divided() -> None:
    """Law: parts of a bag, processed in any order, count what the bag counts."""
    bag, parts = uts.Nodes.root(6), []
    while bag.process(40):
        part = bag.split()
        if part:
            parts.append(part)
            if len(parts) % 3 == 0:
                bag.merge(parts.pop(0))
    for part in parts:
        while part.process(1000):
            pass
        bag.merge(part)
    assert bag.result == uts.sequential(6)


def test_known_numbers_of_solutions() -> None:
    for size in (4, 5, 6, 7, 8):
        assert queens.sequential(size) == queens.SOLUTIONS[size]


@pytest.mark.parametrize("kills", ((), ((1, "apgas.deal", 1), (2, "apgas.commit", 3))))
def test_queens(kills: tuple[Kill, ...]) -> None:
    """Law: another bag than the tree's counts each solution once, too."""
    found, _ = run_program(3, lambda: glb.run(queens.Boards(8), commit_s=COMMIT_S), spares=2,
                           kills=kills, surely=False)
    assert found == queens.SOLUTIONS[8]


@pytest.mark.parametrize("size", range(1, 12))
def test_lifelines_connect_all(size: int) -> None:
    group = PlaceGroup(range(5, 5 + size))
    reached, todo = {5}, [5]
    while todo:
        for place in stealing.lifelines(group, todo.pop()):
            if place not in reached:
                reached.add(place)
                todo.append(place)
    assert reached == set(group)


@pytest.mark.parametrize("places", (1, 2, 4))
@pytest.mark.parametrize("commit_s", (None, COMMIT_S))
def test_all_is_counted(places: int, commit_s: float | None) -> None:
    total, tallies = run_program(places, lambda: count(commit_s))
    assert total == SIZE and len(tallies) == places
    assert bool(sum(tally.given for tally in tallies)) == (places > 1)


KILLS: list[list[Kill]] = [
    [(1, "apgas.deal", 1)], [(2, "apgas.deal", 2)], [(3, "apgas.commit", 1)],
    [(1, "apgas.commit", 2)], [(2, "apgas.commit", 5)],
    [(1, "apgas.deal", 1), (4, "apgas.commit", 1)],
    [(1, "apgas.commit", 2), (3, "apgas.deal", 2), (4, "apgas.deal", 1)],
]


@pytest.mark.plain
@pytest.mark.parametrize("kills", KILLS, ids=lambda kills: "+".join(
    f"{place}@{name}:{nth}" for place, name, nth in kills))
def test_deaths(kills: list[Kill]) -> None:
    assert run_program(4, count, spares=3, kills=kills, surely=False)[0] == SIZE


@pytest.mark.plain
@pytest.mark.parametrize("kills", KILLS[:5], ids=str)
def test_fewer_places(kills: list[Kill]) -> None:
    """Law: without reserves, a lost place's bag goes to the one that kept its copy, once."""
    total, tallies = run_program(4, lambda: count(shrink=True), kills=kills, surely=False)
    assert total == SIZE and len(tallies) in (3, 4)


class Deadly(uts.Nodes):
    """Kills the place that has got a part."""

    def process(self, count: int) -> bool:
        if apgas.here() == 1:
            apgas.kill_here()
        return super().process(count)


def test_a_death_where_nothing_is_committed() -> None:
    def main() -> None:
        with pytest.raises(apgas.MultipleExceptions) as raised:
            glb.run(Deadly.root(DEPTH), commit_s=None)
        assert raised.value.only(apgas.DeadPlaceException)

    run_program(3, main, spares=1, kills=[(1, "never", 1)])


class Broken(uts.Nodes):
    """Raises at some node."""

    def process(self, count: int) -> bool:
        if self.result > 1000:
            raise ValueError("enough")
        return super().process(count)


def test_an_error_of_a_bag() -> None:
    def main() -> list[str]:
        with pytest.raises(apgas.MultipleExceptions) as raised:
            glb.run(Broken.root(DEPTH), commit_s=COMMIT_S)
        return [str(error) for error in raised.value.leaves()]

    assert set(run_program(3, main)) == {"enough"}
