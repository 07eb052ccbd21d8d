"""Collective calls of teams, in real processes: values, deaths, places that leave, mistakes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from placeprograms import run_program

from ftrma import apgas
from ftrma.frameworks.apgas.executors import everywhere
from ftrma.frameworks.apgas.team import Team, TeamRevoked

SIZES = (1, 2, 3, 5)


def on_team(task: Callable[..., Any], *arguments: Any) -> list[Any]:
    group = apgas.places()
    return everywhere(group, task, Team(group), *arguments)


def values(team: Team) -> dict[str, Any]:
    i = team.ordinal
    x = np.full(3, 0.1) * 3.0**i
    found = {
        "barrier": team.barrier(), "allgather": team.allgather(i * i),
        "sum": team.allreduce(x), "max": team.allreduce(i, "max"),
        "list": team.allreduce([i], operator.add), "gather": team.gather(i, team.size - 1),
        "reduce": team.reduce(x), "bcast": team.bcast(i, team.size - 1),
        "scatter": team.scatter([10 + j for j in range(team.size)] if i == 0 else None),
        "alltoall": team.alltoall([(i, j) for j in range(team.size)])}
    team.barrier()
    return found


@pytest.mark.parametrize("size", SIZES)
def test_values(size: int) -> None:
    """Law: sums are taken from ordinal 0 upward, with the bits of a loop in one process."""
    found = run_program(size, lambda: on_team(values))
    total = np.full(3, 0.1)
    for i in range(1, size):
        total = total + np.full(3, 0.1) * 3.0**i
    for i, one in enumerate(found):
        assert one["allgather"] == [j * j for j in range(size)]
        assert one["sum"].tobytes() == total.tobytes()
        assert one["max"] == size - 1 == one["bcast"]
        assert one["list"] == list(range(size))
        assert one["gather"] == (list(range(size)) if i == size - 1 else None)
        assert (one["reduce"].tobytes() == total.tobytes()) if i == 0 else one["reduce"] is None
        assert one["scatter"] == 10 + i
        assert one["alltoall"] == [(j, i) for j in range(size)]


def large(team: Team) -> bytes:
    return team.allreduce(np.arange(500_000.0) + team.ordinal).tobytes()


def test_large_values() -> None:
    """Law: values may be larger than a ring of the mail."""
    total = np.arange(500_000.0) * 3 + 3
    assert run_program(3, lambda: on_team(large)) == [total.tobytes()] * 3


def many(team: Team, count: int) -> int:
    return sum(team.allreduce(1) for _ in range(count))


def again(team: Team) -> list[int]:
    """A team whose object was sent twice goes on counting its calls."""
    return [team.bcast(team.ordinal), many(team, 3)]


def test_a_team_is_used_by_several_tasks() -> None:
    def main() -> Any:
        group = apgas.places()
        team = Team(group)
        return [everywhere(group, again, team) for _ in range(3)]

    assert run_program(3, main) == [[[0, 9]] * 3] * 3


def by_number(number: int) -> int:
    return many(Team(apgas.places(), number), 5)


def test_each_place_makes_the_team() -> None:
    """Law: a team with a number need not be sent."""
    def main() -> Any:
        return [everywhere(apgas.places(), by_number, number) for number in (7, 8)]

    assert run_program(3, main) == [[15] * 3] * 2


def two_barriers(team: Team, victim: int) -> list[str]:
    """Each place says in which barrier it was told."""
    told = []
    if team.ordinal == victim:
        apgas.kill_here()
    for _ in range(2):
        try:
            team.barrier()
            told.append("")
        except apgas.DeadPlaceException as error:
            told.append(str(error.place))
    return told


@pytest.mark.parametrize("victim", (1, 2, 3))
def test_two_barriers_tell_all_of_a_death(victim: int) -> None:
    def main() -> Any:
        group = apgas.places()
        team, told = Team(group), {}

        def call(place: int) -> None:
            told[place] = apgas.at(place, two_barriers, team, victim)

        with pytest.raises(apgas.MultipleExceptions) as raised, apgas.finish():
            for place in group:
                apgas.async_(call, place)
        assert [e.place for e in raised.value.of_type(apgas.DeadPlaceException)] == [victim]
        return told

    told = run_program(4, main, kills=[(victim, "never", 1)])
    assert set(told) == set(range(4)) - {victim}
    assert all(two[1] == str(victim) for two in told.values()), told


CALLS = ("allgather", "allreduce", "bcast", "gather", "reduce")


def until_told(team: Team, call: str) -> int:
    """Make calls until one raises; returns how many have not."""
    for done in range(1000):
        try:
            getattr(team, call)(team.ordinal)
        except apgas.DeadPlaceException:
            return done
    return -1


@pytest.mark.plain
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("victim", (1, 2))
def test_a_death_in_a_call(call: str, victim: int) -> None:
    """Law: the others are told in the call in which it happens or soon after, and none hangs."""
    def main() -> Any:
        with pytest.raises(apgas.MultipleExceptions) as raised:
            on_team(until_told, call)
        assert raised.value.only(apgas.DeadPlaceException)
        return True

    assert run_program(3, main, kills=[(victim, "apgas.team", 4)])


def leave(team: Team) -> None:
    if team.ordinal == 1:
        team.revoke("no more")
    else:
        team.barrier()


def test_a_place_leaves() -> None:
    """Law: nobody waits for a place that has left a team, and the reason is told."""
    def main() -> Any:
        with pytest.raises(apgas.MultipleExceptions) as raised:
            on_team(leave)
        return [str(error) for error in raised.value.of_type(TeamRevoked)]

    assert run_program(3, main) == ["no more"] * 2


def different(team: Team) -> None:
    if team.ordinal == 2:
        team.allreduce(1)
    else:
        team.barrier()


def test_different_calls() -> None:
    """Law: calls that do not fit are told, with both names, instead of waited for."""
    def main() -> Any:
        with pytest.raises(apgas.MultipleExceptions) as raised:
            on_team(different)
        return {str(error) for error in raised.value.of_type(TeamRevoked)}

    (told,) = run_program(3, main)
    assert "allreduce" in told and "barrier" in told


def test_arguments() -> None:
    def main() -> None:
        team = Team(apgas.places())
        with pytest.raises(ValueError, match="fold='mean'"):
            team.allreduce(1, "mean")
        with pytest.raises(ValueError, match="1 places, and values for 2"):
            team.scatter([1, 2])
        with pytest.raises(ValueError, match="1 places, and values for 0"):
            team.alltoall([])

    run_program(1, main)


def test_a_result_is_no_argument() -> None:
    """Law: a reduction of one value is a copy of it."""
    def main() -> None:
        x = np.zeros(3)
        assert Team(apgas.places()).allreduce(x) is not x

    run_program(1, main)
