"""Readers of snapshots in other threads: whom they are answered by, and that none waits forever."""

from __future__ import annotations

import threading
import time
from typing import Any

from ftrma.frameworks.aic.execution import NotNow, Peeks


class Run:
    """Stands for `execution.Execution`: gives what its snapshot has, if it is safe."""

    def __init__(self, newest: Any = None, *, safe: bool = True) -> None:
        self.newest, self.safe = newest, safe

    def peek(self) -> Any:
        if not self.safe:
            raise NotNow
        return self.newest


def test_a_snapshot_of_the_run_before_is_none_of_this_run() -> None:
    peeks: Any = Peeks()
    peeks.begin(Run("first"))
    assert peeks.read() == "first"
    peeks.end()
    assert peeks.read() is None
    peeks.begin(Run(safe=False))
    assert peeks.read() is None


def test_nobody_waits_for_a_run_that_has_ended() -> None:
    """Law: whoever asks while a run ends is answered, whichever comes first."""
    for i in range(200):
        peeks: Any = Peeks()
        peeks.begin(Run(safe=False))
        reader = threading.Thread(target=peeks.read, daemon=True)
        reader.start()
        time.sleep(i % 4 * 2e-5)
        peeks.end()
        reader.join(5)
        assert not reader.is_alive(), i
