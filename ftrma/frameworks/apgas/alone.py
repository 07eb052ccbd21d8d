"""The only place of a program outside of ``ftrma run``: mail and words in this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np

WORDS = 1 << 18
SLEEP_S = 0.01  # nobody rings here but a thread of the program's own, by what it changes


class Sent(IntEnum):
    """Ends of `AloneMail.append`."""

    OK, FULL, DEAD = range(3)


class AloneWords:
    """Words that nobody shares."""

    count = WORDS

    def __init__(self) -> None:
        self._words = np.zeros(WORDS, np.uint64)

    def load(self, i: int) -> int:
        return int(self._words[i])

    def store(self, i: int, value: int) -> None:
        self._words[i] = value

    def add(self, i: int, n: int = 1) -> int:
        self._words[i] += np.uint64(n)
        return int(self._words[i])

    def read(self, first: int, count: int) -> Any:
        return self._words[first:first + count].copy()


class AloneMail:
    """A queue from this place to itself."""

    OK, FULL, DEAD = Sent.OK, Sent.FULL, Sent.DEAD
    limit_bytes = 1 << 62

    def __init__(self) -> None:
        self.bell = 0
        self.words = AloneWords()
        self._queue: deque[tuple[int, bytes]] = deque()

    def append(self, to: int, kind: int, data: Any) -> Sent:
        self._queue.append((kind, bytes(data)))
        self.bell += 1
        return Sent.OK

    def take(self) -> tuple[int, int, Any] | None:
        if not self._queue:
            return None
        kind, data = self._queue.popleft()
        return 0, kind, memoryview(data)

    def release(self) -> None:
        pass

    def holds(self, source: int) -> bool:
        return bool(self._queue)

    def ring(self, to: int) -> None:
        self.bell += 1

    def wait(self, seen: int, timeout_s: float) -> None:
        if self.bell == seen:
            time.sleep(min(timeout_s, SLEEP_S))


class AloneMembers:
    """One place, which does not die."""

    me = root = generation = 0
    everyone = (0,)
    slots = attempt = 1

    def __init__(self) -> None:
        self.mail = AloneMail()

    def deaths(self, since: int = 0) -> tuple[int, ...]:
        return ()

    def alive(self, place: int) -> bool:
        return place == 0

    def on_failure(self, callback: Callable[[int], Any]) -> None:
        pass

    def poll(self) -> None:
        pass

    def check(self) -> None:
        pass
