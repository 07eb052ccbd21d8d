"""Threads of ftrma's own in a process that runs a program."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Helper(threading.Thread):
    """It belongs to no attempt of the program, and nobody waits for it (`program.threads`)."""

    def __init__(self, target: Callable[..., object], *args: object, name: str = "ftrma") -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
