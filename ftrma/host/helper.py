"""Threads of ftrma's own in a process that runs a program."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Helper(threading.Thread):
    """A thread that belongs to no attempt of the program, and that nobody waits for.

    `program.threads` distinguishes it from the program's own threads by this class.
    """

    def __init__(self, target: Callable[..., object], *args: object, name: str = "ftrma") -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
