"""The N queens problem over places, by global load balancing: `ftrma.apgas.glb`.

A bag has boards whose first rows are filled. Each board is three sets of bits: columns and both
diagonals that are attacked in the next row.

Oracle: the known numbers of solutions, `SOLUTIONS`.
"""

from __future__ import annotations

from typing import Any

SOLUTIONS = {4: 2, 5: 10, 6: 4, 7: 40, 8: 92, 9: 352, 10: 724, 11: 2680, 12: 14200}


class Boards:
    """A bag of boards.

    Attributes:
        result: solutions that were found.
        boards: columns, rising and falling diagonals of each.
    """

    def __init__(self, size: int, boards: list[tuple[int, int, int]] | None = None) -> None:
        self.size, self.result = size, 0
        self.boards = [(0, 0, 0)] if boards is None else boards

    def process(self, count: int) -> bool:
        boards, every = self.boards, (1 << self.size) - 1
        while boards and count:
            count -= 1
            columns, rising, falling = boards.pop()
            if columns == every:
                self.result += 1
                continue
            free = every & ~(columns | rising | falling)
            while free:
                queen = free & -free
                free ^= queen
                boards.append((columns | queen, (rising | queen) << 1, (falling | queen) >> 1))
        return bool(boards)

    def split(self) -> Boards | None:
        """Give away every other board: the first ones have the most work below them."""
        if len(self.boards) < 2:
            return None
        part = type(self)(self.size, self.boards[::2])
        self.boards = self.boards[1::2]
        return part

    def merge(self, part: Any) -> None:
        self.boards = part.boards + self.boards
        self.result += part.result


def sequential(size: int) -> int:
    """Count the solutions in one process."""
    bag = Boards(size)
    while bag.process(100_000):
        pass
    return bag.result
