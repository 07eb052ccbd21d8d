"""Collective calls of a group's places: barrier, broadcast, gather, reduce and the like.

The place with ordinal 0 collects the values of all places, and sends the answer. It reduces from
ordinal 0 upward, in whatever order the values arrive. So results are bit for bit equal in each run,
also after a place was replaced.

If a place of the team is dead, each place that waits, or begins to wait, raises. A death can come
between two answers, so some places may return from a call in which others raise. These places raise
in the next call at the latest, since ordinal 0 waits for all. A place that leaves a team by another
exception says so (`Team.revoke`), and nobody waits for it.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ... import framework
from ...host.errors import FtrmaError
from . import kinds, runtime
from .errors import DeadPlaceException
from .placegroup import PlaceGroup

UP, DOWN = 0, 1  # of a message: toward ordinal 0, from ordinal 0

Fold = Callable[[Any, Any], Any]
FOLDS: dict[str, Fold] = {"sum": operator.add, "prod": operator.mul, "max": np.maximum,
                          "min": np.minimum}
Identity = tuple[int, ...]
_numbers = itertools.count()


class TeamRevoked(FtrmaError):
    """A place of a team has left it by an exception, so nobody can wait for that place.

    MPI: raised in all places of the team, in the call that they are in or in their next one.
    Fault: no death causes it; a death raises `DeadPlaceException`.
    """


class _Post:
    """Messages of teams that have come to this process and are not taken yet.

    Attributes:
        arrived: values, by team, number of the call, direction and sender.
        calls: number of calls that this place has made, by team; all copies of a team count.
        over: the reason why no call can end any more, by team; a number means a dead place.
    """

    def __init__(self) -> None:
        self.arrived: dict[tuple[Identity, int, int, int], tuple[str, Any]] = {}
        self.calls: dict[Identity, int] = {}
        self.over: dict[Identity, str | int] = {}

    def take(self, source: int, message: tuple[Any, ...]) -> None:
        identity, number, way, name, value = message
        if identity in self.over:
            return
        if number < 0:
            self.close(identity, value)
        else:
            self.arrived[identity, number, way, source] = (name, value)

    def close(self, identity: Identity, reason: str | int) -> None:
        """Note why a team is over, and forget its messages."""
        self.over.setdefault(identity, reason)
        self.calls.pop(identity, None)
        for key in [key for key in self.arrived if key[0] == identity]:
            del self.arrived[key]


_posts: WeakKeyDictionary[Any, _Post] = WeakKeyDictionary()  # by attempt


def _post() -> _Post:
    """The messages of this attempt."""
    here = runtime.current()
    post = _posts.get(here)
    if post is None:
        post = _posts[here] = _Post()
        here.mailroom.handle(kinds.TEAM, post.take)
    return post


class Team:
    """Collective calls of a group of places, which all places make in the same order.

    Either one place makes the team and sends it to the others as an argument of their tasks; or
    each place makes the team by itself, with a number that no other team of the group has. One task
    of each place takes part.

    Args:
        group: the places.
        generation: number of the team, if each place makes it by itself; None: a free number.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """

    def __init__(self, group: PlaceGroup, generation: int | None = None) -> None:
        self.group = group
        me = runtime.current().members.me
        label = (me, next(_numbers)) if generation is None else (-1, generation)
        self._identity: Identity = (*label, *group)
        self._looked = -1  # the number of deaths when the places were last looked at

    def __getstate__(self) -> dict[str, Any]:
        return {"group": self.group, "_identity": self._identity, "_looked": -1}

    @property
    def size(self) -> int:
        """The number of places."""
        return len(self.group)

    @property
    def ordinal(self) -> int:
        """This place's ordinal.

        Raises:
            ValueError: this place is not in the team.
        """
        me = runtime.current().members.me
        ordinal = self.group.index_of(me)
        if ordinal < 0:
            raise ValueError(f"place {me} is not in the team of {tuple(self.group)}")
        return ordinal

    def barrier(self) -> None:
        """Wait until all places of the team have called it.

        Raises:
            DeadPlaceException: a place of the team is dead.
            TeamRevoked: a place has left the team.

        MPI: collective over the team.
        Fault: raises in all places, in this call or in the next one.
        """
        self._all("barrier", None, lambda values: None)

    def allgather(self, value: Any) -> list[Any]:
        """Return the values that all places give, in the order of the ordinals.

        Raises:
            DeadPlaceException, TeamRevoked: as in `barrier`.

        MPI: collective over the team.
        Fault: raises in all places, in this call or in the next one.
        """
        return list(self._all("allgather", value, lambda values: values))

    def allreduce(self, value: Any, fold: str | Fold = "sum") -> Any:
        """Return the sum, or another reduction, of the values that all places give.

        Args:
            value: a number or an array; all arrays have the same shape.
            fold: "sum", "prod", "max", "min", or a function of two values.

        Returns:
            The reduction from ordinal 0 upward: ``((v0 + v1) + v2) + v3``, with equal bits in all
            places.

        Raises:
            DeadPlaceException, TeamRevoked: as in `barrier`.

        MPI: collective over the team.
        Fault: raises in all places, in this call or in the next one.
        """
        function = _fold(fold)
        return self._all("allreduce", value, lambda values: _reduced(values, function))

    def gather(self, value: Any, root: int = 0) -> list[Any] | None:
        """Return the values that all places give, in the order of the ordinals, at `root`.

        Args:
            root: ordinal of the place that gets the values.

        Returns:
            The values at the root; None in the other places, which do not wait for the root.

        Raises:
            DeadPlaceException, TeamRevoked: as in `barrier`.

        MPI: collective over the team.
        Fault: raises at the root; in other places in this call or in the next one that waits.
        """
        return self._to(root, "gather", value)

    def reduce(self, value: Any, fold: str | Fold = "sum", root: int = 0) -> Any:
        """Return the reduction of the values that all places give, as `allreduce`, at `root`.

        Args:
            root: ordinal of the place that gets the reduction.

        Returns:
            The reduction at the root; None in the other places, which do not wait for the root.

        Raises:
            DeadPlaceException, TeamRevoked: as in `barrier`.

        MPI: collective over the team.
        Fault: raises at the root; in other places in this call or in the next one that waits.
        """
        function = _fold(fold)
        values = self._to(root, "reduce", value)
        return None if values is None else _reduced(values, function)

    def bcast(self, value: Any = None, root: int = 0) -> Any:
        """Return the value that the place with the ordinal `root` gives.

        Raises:
            DeadPlaceException, TeamRevoked: as in `barrier`.

        MPI: collective over the team; the root does not wait.
        Fault: raises in a place that waits, in this call or in the next one.
        """
        values = [value] * self.size if self.ordinal == root else None
        return self._from(root, "bcast", values)

    def scatter(self, values: Sequence[Any] | None = None, root: int = 0) -> Any:
        """Return this place's value of those that the place with the ordinal `root` gives.

        Raises:
            ValueError: there is not one value for each place.
            DeadPlaceException, TeamRevoked: as in `barrier`.

        MPI: collective over the team; the root does not wait.
        Fault: raises in a place that waits, in this call or in the next one.
        """
        if self.ordinal == root and (values is None or len(values) != self.size):
            raise ValueError(f"scatter: {self.size} places, and values for "
                             f"{'none' if values is None else len(values)}")
        return self._from(root, "scatter", values if self.ordinal == root else None)

    def alltoall(self, values: Sequence[Any]) -> list[Any]:
        """Give each place one value, and return the values given to this place, by ordinals.

        Raises:
            ValueError: there is not one value for each place.
            DeadPlaceException, TeamRevoked: as in `barrier`.

        MPI: collective over the team.
        Fault: raises in a place that waits, in this call or in the next one.
        """
        if len(values) != self.size:
            raise ValueError(f"alltoall: {self.size} places, and values for {len(values)}")
        me, number = self._begin()
        for ordinal, value in enumerate(values):
            if ordinal != me:
                self._send(ordinal, number, UP, "alltoall", value)
        return [values[me] if ordinal == me else self._receive(ordinal, number, UP, "alltoall")
                for ordinal in range(self.size)]

    def revoke(self, reason: str) -> None:
        """Make this and all later calls of the team raise `TeamRevoked` at all places.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        _post().close(self._identity, reason)
        here = runtime.current()
        for place in self.group:
            if place != here.members.me:
                here.mailroom.post(place, kinds.TEAM, (self._identity, -1, UP, "", reason))

    # -- parts of the calls

    def _all(self, name: str, value: Any, function: Callable[[list[Any]], Any]) -> Any:
        """Collect the values at ordinal 0, compute the answer there, and send it to all."""
        me, number = self._begin()
        if me:
            self._send(0, number, UP, name, value)
            return self._receive(0, number, DOWN, name)
        answer = function(self._collect(number, name, me, value))
        for ordinal in range(1, self.size):
            self._send(ordinal, number, DOWN, name, answer)
        return answer

    def _to(self, root: int, name: str, value: Any) -> list[Any] | None:
        me, number = self._begin()
        if me == root:
            return self._collect(number, name, me, value)
        self._send(root, number, UP, name, value)
        return None

    def _from(self, root: int, name: str, values: Sequence[Any] | None) -> Any:
        me, number = self._begin()
        if values is None:
            return self._receive(root, number, DOWN, name)
        for ordinal, value in enumerate(values):
            if ordinal != me:
                self._send(ordinal, number, DOWN, name, value)
        return values[me]

    def _begin(self) -> tuple[int, int]:
        framework.kill_place("apgas.team")
        self._look()
        calls = _post().calls
        number = calls[self._identity] = calls.get(self._identity, 0) + 1
        return self.ordinal, number

    def _collect(self, number: int, name: str, me: int, value: Any) -> list[Any]:
        return [value if ordinal == me else self._receive(ordinal, number, UP, name)
                for ordinal in range(self.size)]

    def _send(self, ordinal: int, number: int, way: int, name: str, value: Any) -> None:
        runtime.current().mailroom.post(self.group[ordinal], kinds.TEAM,
                                        (self._identity, number, way, name, value))

    def _receive(self, ordinal: int, number: int, way: int, name: str) -> Any:
        post = _post()
        key = (self._identity, number, way, self.group[ordinal])

        def arrived() -> bool:
            if key in post.arrived:
                return True
            self._look()
            return False

        if not arrived():
            runtime.current().scheduler.wait(arrived)
        theirs, value = post.arrived.pop(key)
        if theirs != name:
            reason = (f"place {self.group[ordinal]} called {theirs} of the team and place "
                      f"{runtime.current().members.me} {name}")
            self.revoke(reason)
            raise TeamRevoked(reason)
        return value

    def _look(self) -> None:
        """Raise if a place of the team is dead or has left it."""
        here = runtime.current()
        post, members = _post(), here.members
        if members.generation != self._looked:
            self._looked = members.generation
            for place in self.group:
                if not members.alive(place):
                    post.close(self._identity, place)
        reason = post.over.get(self._identity)
        if isinstance(reason, int):
            raise DeadPlaceException(reason)
        if reason is not None:
            raise TeamRevoked(reason)


def _fold(fold: str | Fold) -> Fold:
    if callable(fold):
        return fold
    if fold not in FOLDS:
        raise ValueError(f"fold={fold!r}: give {', '.join(FOLDS)}, or a function of two values")
    return FOLDS[fold]


def _reduced(values: list[Any], function: Fold) -> Any:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result.copy() if isinstance(result, np.ndarray) and len(values) == 1 else result
