"""The program's threads: which attempt each belongs to, and waiting for them to be gone.

An attempt is one entry of the program in this process, between rollbacks (``csrc/job/attempt.c``).
A thread that Python starts gets its creator's attempt at birth, whenever its first call of MPI
comes.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import Rollback
from ..host.helper import Helper
from ..native import job


@dataclass(eq=False)
class Birth:
    """A thread from the moment of its creation to its end.

    Attributes:
        attempt: that it belongs to.
        thread: None if it was started without a `threading.Thread`.
    """

    attempt: int
    thread: threading.Thread | None

    @property
    def name(self) -> str:
        return repr(self.thread.name) if self.thread else "without a name"


class Threads:
    """All threads that were begun since this watches over their births."""

    def __init__(self) -> None:
        self.births: set[Birth] = set()
        self.start_new_thread = _thread.start_new_thread
        self.start_joinable_thread = getattr(_thread, "start_joinable_thread", None)

    def watch_births(self) -> None:
        """From now on every thread that Python starts is known."""
        for module, name in ((_thread, "start_new_thread"), (_thread, "start_new"),
                             (threading, "_start_new_thread")):
            if hasattr(module, name):
                setattr(module, name, self._start_new_thread)
        if self.start_joinable_thread:  # Python 3.13
            for module, name in ((_thread, "start_joinable_thread"),
                                 (threading, "_start_joinable_thread")):
                setattr(module, name, self._start_joinable_thread)

    def _start_new_thread(self, function: Any, args: Any, kwargs: Any = None, /) -> int:
        given = (args,) if kwargs is None else (args, kwargs)
        if not callable(function) or not isinstance(args, tuple):
            return self.start_new_thread(function, *given)  # which says what is wrong
        born = self._bear(function, self.start_new_thread)
        return int(born(functools.partial(function, **(kwargs or {})), args))

    def _start_joinable_thread(self, function: Any, *args: Any, **more: Any) -> Any:
        assert self.start_joinable_thread
        return self._bear(function, self.start_joinable_thread)(function, *args, **more)

    def _bear(self, function: Any, start: Callable[..., Any]) -> Callable[..., Any]:
        """How to start a thread that is to run `function`, so that it is known."""
        thread = getattr(function, "__self__", None)
        if isinstance(thread, Helper):
            return start
        known = thread if isinstance(thread, threading.Thread) else None
        birth = Birth(job.attempt_of_thread(), known)

        def begin(function: Any, *args: Any, **more: Any) -> Any:
            self.births.add(birth)
            try:
                return start(functools.partial(self._live, birth, function), *args, **more)
            except BaseException:
                self.births.discard(birth)
                raise

        return begin

    def _live(self, birth: Birth, function: Callable[..., object], *args: Any) -> None:
        try:
            job.set_attempt_of_thread(birth.attempt)
            function(*args)
        except Rollback:
            pass  # it ends without a word: it is begun again
        finally:
            self.births.discard(birth)

    # -- waiting ------------------------------------------------------------------------------

    def left(self) -> list[Birth]:
        """Those that have not ended."""
        return list(self.births)

    def awaited(self) -> list[Birth]:
        """Those of this thread's attempt that Python waits for before it ends."""
        mine = job.attempt_of_thread()
        return [b for b in self.left()
                if b.attempt == mine and b.thread is not None and not b.thread.daemon]

    def cancel_queued_work(self) -> None:
        """What executors still have to do, and have not begun, is not done any more."""
        known = {birth.thread for birth in self.left()}
        module = sys.modules.get("concurrent.futures.thread")
        for thread, work in list(getattr(module, "_threads_queues", {}).items()):
            while thread in known:
                try:
                    item = work.get_nowait()
                except queue.Empty:
                    break
                if item is not None:
                    item.future.cancel()


@contextlib.contextmanager
def executors_closing() -> Iterator[None]:
    """Let idle workers of executors end, which would wait for more work, as Python's end does."""
    pool: Any = sys.modules.get("concurrent.futures.thread")
    processes: Any = sys.modules.get("concurrent.futures.process")
    try:
        if pool:
            with pool._global_shutdown_lock:
                pool._shutdown = True
            for work in list(pool._threads_queues.values()):
                work.put(None)
        if processes:
            processes._global_shutdown = True
            for wakeup in list(processes._threads_wakeups.values()):
                with contextlib.suppress(OSError):  # it has just ended
                    wakeup.wakeup()
        yield
    finally:
        if pool:
            pool._shutdown = False
        if processes:
            processes._global_shutdown = False
