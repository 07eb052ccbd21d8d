"""Threads of the program: the attempt to which each belongs, and whether it has ended.

An attempt is one run of the program in this process, up to a rollback (``csrc/job/attempt.c``). A
thread that Python starts belongs to its creator's attempt from its creation on, whenever its first
call of MPI comes.
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

from ..host.errors import Rollback
from ..host.helper import Helper
from ..native import job


@dataclass(eq=False)
class ProgramThread:
    """A thread of the program, from its creation to its end.

    Attributes:
        attempt: the attempt to which the thread belongs.
        thread: None if it was started without a `threading.Thread`.
    """

    attempt: int
    thread: threading.Thread | None

    @property
    def name(self) -> str:
        return repr(self.thread.name) if self.thread else "without a name"


class Threads:
    """All threads that Python has started since `watch` was called."""

    def __init__(self) -> None:
        self.running: set[ProgramThread] = set()
        self.start_new_thread = _thread.start_new_thread
        self.start_joinable_thread = getattr(_thread, "start_joinable_thread", None)

    def watch(self) -> None:
        """Register every thread that Python starts from now on."""
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
            return self.start_new_thread(function, *given)  # this call reports what is wrong
        born = self._starter(function, self.start_new_thread)
        return int(born(functools.partial(function, **(kwargs or {})), args))

    def _start_joinable_thread(self, function: Any, *args: Any, **more: Any) -> Any:
        assert self.start_joinable_thread
        return self._starter(function, self.start_joinable_thread)(function, *args, **more)

    def _starter(self, function: Any, start: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that starts a thread to run `function`, and registers it."""
        thread = getattr(function, "__self__", None)
        if isinstance(thread, Helper):
            return start
        known = thread if isinstance(thread, threading.Thread) else None
        mine = ProgramThread(job.attempt_of_thread(), known)

        def begin(function: Any, *args: Any, **more: Any) -> Any:
            self.running.add(mine)
            try:
                return start(functools.partial(self._run, mine, function), *args, **more)
            except BaseException:
                self.running.discard(mine)
                raise

        return begin

    def _run(self, mine: ProgramThread, function: Callable[..., object], *args: Any) -> None:
        try:
            job.set_attempt_of_thread(mine.attempt)
            function(*args)
        except Rollback:
            pass  # the thread ends silently, since the program is run again
        finally:
            self.running.discard(mine)

    # -- waiting ------------------------------------------------------------------------------

    def unfinished(self) -> list[ProgramThread]:
        """Return the threads that have not ended."""
        return list(self.running)

    def awaited(self) -> list[ProgramThread]:
        """Return those threads of this thread's attempt for which Python waits before it ends."""
        mine = job.attempt_of_thread()
        return [b for b in self.unfinished()
                if b.attempt == mine and b.thread is not None and not b.thread.daemon]

    def cancel_queued_work(self) -> None:
        """Cancel work that executors have not begun yet."""
        for work in self._queues():
            while True:
                try:
                    item = work.get_nowait()
                except queue.Empty:
                    break
                if item is not None:
                    item.future.cancel()

    def _queues(self) -> list[Any]:
        """Return the queues from which executors' workers that have not ended take their work.

        Python's own list lacks a worker whose executor was left while it began the thread.
        """
        pool: Any = sys.modules.get("concurrent.futures.thread")
        if not pool:
            return []
        known = {mine.thread for mine in self.unfinished()}
        listed = [work for thread, work in list(pool._threads_queues.items()) if thread in known]
        workers = [thread for thread in known if getattr(thread, "_target", None) is pool._worker]
        return listed + [argument for worker in workers for argument in getattr(worker, "_args", ())
                         if isinstance(argument, queue.SimpleQueue)]

    @contextlib.contextmanager
    def executors_closing(self) -> Iterator[None]:
        """Make idle workers of executors end, as Python does at its end; they would wait for more
        work."""
        pool: Any = sys.modules.get("concurrent.futures.thread")
        processes: Any = sys.modules.get("concurrent.futures.process")
        try:
            if pool:
                with pool._global_shutdown_lock:
                    pool._shutdown = True
                for work in self._queues():
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
