"""The memory that graphs take, and the memory that the machine has left."""

from __future__ import annotations

from ...host.cgroup import available_bytes

LOOK_BYTES = 1 << 26  # bytes taken between two looks at the memory that is left


class DoesNotFit(ValueError):
    """A graph is larger than the memory that the machine has left."""


class MemoryWatch:
    """Counts memory that is taken in small amounts, for data whose size is not known for sure.

    Attributes:
        taken: number of bytes taken so far.
    """

    def __init__(self, what: str) -> None:
        self.what, self.taken, self._looked = what, 0, 0

    def took(self, size_bytes: int, more: int) -> None:
        """Count memory that was taken.

        Args:
            more: number of bytes that are still to be taken.

        Raises:
            DoesNotFit: the machine does not have so much memory left.
        """
        self.taken += size_bytes
        if self.taken - self._looked >= LOOK_BYTES:
            self._looked = self.taken
            check_room(self.what, self.taken, more)


def check_room(what: str, taken: int, more: int) -> None:
    """Refuse a graph that is larger than the memory that is left.

    Raises:
        DoesNotFit: it is larger; the text has the graph, the memory that it takes, and the remedy.
    """
    free = available_bytes()
    if more > free:
        raise DoesNotFit(f"{what}: does not fit: {gib(taken)} are here, {gib(more)} more are "
                         f"needed, and the machine has {gib(free)} free; use machines with more, "
                         "or a smaller graph (of text each slot keeps its own edges, of arrays "
                         "all)")


def gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
