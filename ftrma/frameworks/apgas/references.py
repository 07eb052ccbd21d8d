"""References to objects of other places.

An object lies in the runtime of its place, under a key. Messages carry the key instead of the
object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Generic, TypeVar

from . import control
from .runtime import current

T = TypeVar("T")
_numbers = count(1)


def _key() -> tuple[int, int]:
    return current().members.me, next(_numbers)


class GlobalRef(Generic[T]):
    """A reference to an object of this place; it can be sent to other places and back.

    The object stays at its place until `free` is called, or until the program has ended.

    Args:
        value: the object.

    Attributes:
        home: the place where the object is.

    MPI: local.
    Fault: the object is lost with its place, and also when all places run the program again.
    """

    def __init__(self, value: T) -> None:
        self._key = _key()
        current().objects[self._key] = value

    @property
    def home(self) -> int:
        return self._key[0]

    def __call__(self) -> T:
        """Return the object.

        Raises:
            RuntimeError: called at another place than the home.
            LookupError: the object is no longer there.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        here = current().members.me
        if here != self.home:
            raise RuntimeError(f"a GlobalRef of place {self.home} is followed at place {here}: go "
                               "there by apgas.at(ref.home, ...)")
        return _look_up(self._key, "GlobalRef")  # type: ignore[no-any-return]

    def free(self) -> None:
        """Forget the object; called at its home."""
        self()
        del current().objects[self._key]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalRef) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class PlaceLocal(Generic[T]):
    """An object at each of some places, all reached by one reference that can be sent to them.

    Args:
        places: the places that get an object.
        make: is called at each place with the arguments, and returns the object of that place.

    Raises:
        MultipleExceptions: a place has died, or `make` has raised an exception.

    MPI: waits for all the places.
    Fault: the object of a dead place is lost; a new place gets an object by `add`.
    """

    def __init__(self, places: Iterable[int], make: Callable[..., T], *args: Any) -> None:
        self._key = _key()
        with control.finish():
            for place in places:
                control.async_at(place, _make, self._key, make, args)

    def add(self, place: int, make: Callable[..., T], *args: Any) -> None:
        """Make the object of one more place, or make it anew.

        MPI: waits for that place.
        Fault: raises DeadPlaceException if that place dies.
        """
        control.at(place, _make, self._key, make, args)

    def __call__(self) -> T:
        """Return the object of this place.

        Raises:
            LookupError: this place has none.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        return _look_up(self._key, "PlaceLocal")  # type: ignore[no-any-return]

    def set(self, value: T) -> None:
        """Replace the object of this place by another one."""
        current().objects[self._key] = value

    def free(self) -> None:
        """Forget the object of this place."""
        current().objects.pop(self._key, None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlaceLocal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _make(key: tuple[int, int], make: Callable[..., Any], args: tuple[Any, ...]) -> None:
    current().objects[key] = make(*args)


def _look_up(key: tuple[int, int], what: str) -> Any:
    try:
        return current().objects[key]
    except KeyError:
        raise LookupError(f"place {current().members.me} has no object of this {what}: it was "
                          "freed, never made here, or made in an earlier attempt") from None
