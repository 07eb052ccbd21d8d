"""Undoes what the program has changed in its process, before the program is run again there.

Run again in the same process, a program would find what it left in the attempt before: handlers
that it is about to register a second time, or a directory that it has changed to. So a
`ProcessSnapshot` is taken before the first attempt and restored before each later one. Not
everything can be restored: libraries keep the state in their modules, and a program that cannot
cope with that needs fresh processes (`runner`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from .script import is_installed

Function = TypeVar("Function", bound=Callable[..., Any])

# Objects that the program may have replaced.
PLACES = (
    (sys, "stdin"), (sys, "stdout"), (sys, "stderr"), (sys, "excepthook"), (sys, "unraisablehook"),
    (sys, "displayhook"), (threading, "excepthook"), (warnings, "showwarning"),
    (warnings, "formatwarning"), (logging, "_warnings_showwarning"),
)
# Objects of modules that the program may import, with their initial values. A context manager of
# mpi4py 4.1 leaves this one set if it could not free its communicators.
LATER = (("mpi4py.futures._core", "SharedPool", None),)
LISTS = ((sys, "path"), (sys, "argv"), (sys, "warnoptions"), (warnings, "filters"))
# The handlers of these signals are in C, and Python does not know them (csrc/job/leave.c).
CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS}
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class ProcessSnapshot:
    """The state of a process at the moment when it is made.

    Args:
        owns: says whether a file of Python code is the program's own.
    """

    def __init__(self, owns: Callable[[str | None], bool]) -> None:
        self.places = [(module, name, getattr(module, name)) for module, name in PLACES]
        self.lists = [(module, name, list(getattr(module, name))) for module, name in LISTS]
        self.cwd = ""  # somebody has removed it
        with contextlib.suppress(OSError):
            self.cwd = os.getcwd()
        self.environ, self.c_environ = dict(os.environb), _c_environ()
        self.handlers = {n: signal.getsignal(n) for n in signal.valid_signals() - CRASHES}
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self.disabled = logging.root.manager.disable
        self.loggers = {name: _state(logger) for name, logger in _loggers().items()}
        self.exits = Exits(owns)

    def imports_alike(self, file: str) -> bool:
        """Say whether a spare would import the same module, as far as that is known.

        The program may have added directories to `sys.path`, but installed packages are the same.
        """
        known = next(content for module, name, content in self.lists if name == "path")
        same = sys.path == known or (is_installed(file) and all(
            isinstance(entry, str) and os.path.isabs(entry)
            for entry in sys.path if entry not in known))
        return same and dict(os.environb) == self.environ

    def restore(self) -> None:
        """Restore the state."""
        self.exits.forget()
        self._restore_signals()
        self._restore_logging()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        for module, name, value in self.places:
            setattr(module, name, value)
        for library, name, value in LATER:
            if library in sys.modules:
                setattr(sys.modules[library], name, value)
        for module, name, content in self.lists:
            values = getattr(module, name)
            if values != content:
                values[:] = content
        getattr(warnings, "_filters_mutated", lambda: None)()
        with contextlib.suppress(OSError):  # the directory was removed: the program will report it
            os.chdir(self.cwd or ".")
        self._restore_environ()

    def _restore_environ(self) -> None:
        for name in set(os.environb) - set(self.environ):
            del os.environb[name]
        for name, value in self.environ.items():
            if os.environb.get(name) != value:
                os.environb[name] = value
        # Remove variables that were put into the environment past os.environ.
        now = _c_environ()
        for name in set(now) - set(self.c_environ):
            os.unsetenv(name)
        for name, value in self.c_environ.items():
            if now.get(name) != value:
                os.putenv(name, value)

    def _restore_signals(self) -> None:
        for timer in TIMERS:  # first, since a timer's signal may end a process without a handler
            signal.setitimer(timer, 0)
        for number, handler in self.handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def _restore_logging(self) -> None:
        logging.root.manager.disable = self.disabled
        for name, logger in _loggers().items():
            level, propagate, disabled, handlers, filters = self.loggers.get(name, NEW_LOGGER)
            for handler in list(logger.handlers):
                # A library adds a NullHandler when it is imported, and it stays imported.
                if handler in handlers or isinstance(handler, logging.NullHandler):
                    continue
                logger.removeHandler(handler)
                with contextlib.suppress(Exception):
                    handler.close()
            for handler in handlers:
                logger.addHandler(handler)
            logger.setLevel(level)
            logger.propagate, logger.disabled = propagate, disabled
            logger.filters[:] = filters


LoggerState = tuple[int, bool, bool, list[logging.Handler], list[Any]]
NEW_LOGGER: LoggerState = (logging.NOTSET, True, False, [], [])


def _loggers() -> dict[str, logging.Logger]:
    known = logging.root.manager.loggerDict
    named = {name: logger for name, logger in list(known.items())
             if isinstance(logger, logging.Logger)}
    return {"": logging.root, **named}


def _state(logger: logging.Logger) -> LoggerState:
    return (logger.level, logger.propagate, logger.disabled, list(logger.handlers),
            list(logger.filters))


def _c_environ() -> dict[bytes, bytes]:
    """Return the environment of C, which ``os.putenv`` changes unseen by ``os.environ``."""
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    found = {}
    i = 0
    while entries and (entry := entries[i]):
        name, _, value = entry.partition(b"=")
        found[name] = value
        i += 1
    return found


class Exits:
    """Functions that the program has registered with `atexit`; each attempt registers them anew.

    A library stays imported, so functions that it registers while it is imported stay, too.

    Args:
        owns: says whether a file of Python code is the program's own.
    """

    def __init__(self, owns: Callable[[str | None], bool]) -> None:
        self.owns = owns
        self.register_for_good, self.unregister_for_good = atexit.register, atexit.unregister
        self.registered: list[functools.partial[Any]] = []
        atexit.register, atexit.unregister = self.register, self.unregister

    def register(self, function: Function, /, *args: Any, **more: Any) -> Function:
        """Stand in for `atexit.register`."""
        if not callable(function) or self._importing():
            self.register_for_good(function, *args, **more)
            return function
        call = functools.partial(function, *args, **more)
        self.registered.append(call)
        self.register_for_good(call)
        return function

    def unregister(self, function: Callable[..., Any], /) -> None:
        """Stand in for `atexit.unregister`."""
        for call in [c for c in self.registered if c.func == function]:
            self.registered.remove(call)
            self.unregister_for_good(call)
        self.unregister_for_good(function)

    def forget(self) -> None:
        """Unregister the functions of the attempt that is over."""
        for call in self.registered:
            self.unregister_for_good(call)
        self.registered.clear()

    def _importing(self) -> bool:
        """Say whether a library's module is being imported, somewhere on the stack."""
        frame = sys._getframe(2)
        while frame.f_code.co_filename != ENTRY and frame.f_back:
            code = frame.f_code
            if code.co_name == "<module>" and not self.owns(code.co_filename):
                return frame.f_globals.get("__name__") != "__main__"
            frame = frame.f_back
        return False


# Frames of the stack above this file's frame are not the program's.
ENTRY = os.path.join(os.path.dirname(__file__), "script.py")
