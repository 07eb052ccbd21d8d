"""Activity after deaths: reserves in order, then fewer places if that is allowed."""

from __future__ import annotations

import random

import pytest

from ftrma.frameworks.apgas.placemanager import NotEnoughPlaces, change


def living(*dead: int):
    return lambda place: place not in dead


def test_reserves_take_the_ordinals_of_the_dead() -> None:
    assert change((0, 1, 2, 3), living(1, 3), (4, 5, 6), False) == ((0, 4, 2, 5), (1, 3), (4, 5))


def test_dead_reserves_are_passed_over() -> None:
    assert change((0, 1), living(1, 2), (2, 3), False) == ((0, 3), (1,), (3,))


def test_nothing_changes_without_a_death() -> None:
    assert change((0, 1), living(), (2,), False) == ((0, 1), (), ())


def test_too_few_reserves() -> None:
    """Law: the group shrinks by the last of the dead if it may, else the places are named."""
    with pytest.raises(NotEnoughPlaces, match=r"places 1, 2 are dead and 1 reserves.*--spares"):
        change((0, 1, 2, 3), living(1, 2), (4,), False)
    assert change((0, 1, 2, 3), living(1, 2), (4,), True) == ((0, 4, 3), (1, 2), (4,))


def test_nobody_is_left() -> None:
    with pytest.raises(NotEnoughPlaces, match="all active places"):
        change((0, 1), living(0, 1), (), True)


def test_any_changes() -> None:
    """Law: after any deaths all active places live, no place is active twice, survivors keep their
    order, and their ordinals unless the group has shrunk."""
    rng = random.Random(11)
    for _ in range(3000):
        count = rng.randrange(1, 8)
        old = tuple(rng.sample(range(12), count))
        reserves = [place for place in range(12) if place not in old and rng.random() < 0.5]
        dead = {place for place in range(12) if rng.random() < rng.choice((0.1, 0.5))}
        alive = living(*dead)
        try:
            new, removed, added = change(old, alive, reserves, rng.random() < 0.5)
        except NotEnoughPlaces:
            assert sum(map(alive, reserves)) < sum(place in dead for place in old)
            continue
        assert all(map(alive, new)) and len(set(new)) == len(new) and set(added) <= set(reserves)
        assert removed == tuple(place for place in old if place in dead)
        survivors = tuple(place for place in old if place not in dead)
        assert tuple(place for place in new if place not in added) == survivors
        assert len(new) == len(old) - len(removed) + len(added)
        if len(added) == len(removed):
            assert all(new[old.index(place)] == place for place in survivors)
            assert [new[old.index(place)] for place in removed] == list(added)
