"""Does what Python does at a program's end, in a process that leaves by ``os._exit``.

A process of a job leaves in this way because the interpreter's own end would call MPI_Finalize,
which can wait for dead processes. This module runs functions registered with `atexit`, releases
what the main module holds, and writes everything that is still in buffers, also in those of C. Then
files that nobody has closed are complete, as after Python's own end.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import os
import signal
import sys
import threading
import traceback
import types
import weakref
from typing import Any, NoReturn

from ..host import timeouts
from ..host.errors import Rollback
from ..host.helper import Helper
from ..host.lineoutput import LineOutput
from ..protocol.repair_round import LaunchEnded
from .script import UserProgram

INTERRUPTED = 128 + signal.SIGINT  # status after KeyboardInterrupt; Python ends by the signal


def run_exit_functions() -> None:
    """Run the functions registered with `atexit`, the last one first."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    flush_streams()


def flush_streams() -> None:
    """Write what the program has printed, unless it has closed its streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def exit_status(ending: SystemExit) -> int:
    """Return the status that Python gives for ``sys.exit(code)``."""
    code = ending.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{code}\n")
    return 1


def show(kind: Any, error: Any, tb: Any) -> int:
    """Show an error that has ended the program, by the program's own hook if it has set one.

    Returns:
        The program's status.
    """
    try:
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(kind, error, tb)
        else:
            sys.excepthook(kind, error, tb)
    except (Rollback, LaunchEnded):
        raise
    except SystemExit as ending:
        return exit_status(ending)
    except BaseException as another:
        with contextlib.suppress(Exception):
            its = another.__traceback__ and another.__traceback__.tb_next  # begins in the hook
            chain: BaseException | None = another
            while chain and chain.__context__ is not error:
                chain = chain.__context__
            if chain:
                chain.__context__ = None
            print("Error in sys.excepthook:", file=sys.stderr)
            traceback.print_exception(another.with_traceback(its))
            print("\nOriginal exception was:", file=sys.stderr)
            traceback.print_exception(kind, error, tb)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def end_child(program: UserProgram, error: BaseException | None) -> NoReturn:
    """End a process that the program has forked, at the program's end, as plain Python does.

    The slot goes on, since it belongs to the parent.

    Args:
        error: the error that the program has raised; None: it has come to its end.
    """
    status = 0
    if isinstance(error, SystemExit):
        status = exit_status(error)
    elif error is not None:
        tb, status = error.__traceback__, 1
        while tb and str(tb.tb_frame.f_globals.get("__name__")).split(".")[0] in ("ftrma", "runpy"):
            tb = tb.tb_next
        with contextlib.suppress(Rollback, LaunchEnded):
            status = show(type(error), error, tb)
    run_exit_functions()
    release_program(program)
    if status == INTERRUPTED and isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


class _Alive:
    """Lives in a namespace as long as the namespace does."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names


def release_program(program: UserProgram) -> None:
    """Release what a program's main module holds, and write what is in buffers."""
    threading.excepthook = _ignore  # threads that go on find no module any more
    names, program.names = program.names, {}
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.excepthook = sys.__excepthook__
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            rest = signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, rest)
    names["__alive__"] = alive = _Alive(names)
    there = weakref.ref(alive)
    del names, alive
    gc.collect()  # finalizes the module's objects while its other names are there
    if left := there():  # still held: clear it name by name, as Python does
        for name in sorted(left.names, key=lambda name: not name.startswith("_")):
            if name != "__builtins__":
                left.names[name] = None
        del left
        gc.collect()
    writing = Helper(_write)
    writing.start()
    writing.join(timeouts.WRITE_FILES.s)
    flush_streams()


def _write() -> None:
    """Write the buffers of files; those that write into other files come first."""
    for kind in (io.TextIOBase, io.BufferedIOBase):
        found = gc.get_objects()
        types = {of for of in set(map(type, found)) if issubclass(of, kind)}
        for file in [each for each in found if type(each) in types]:
            with contextlib.suppress(Exception):
                if type(file).__module__ == "_io" or isinstance(file, LineOutput):
                    file.flush()
                else:
                    file.close()  # gzip, for example, writes the file's end only then
    ctypes.CDLL(None).fflush(None)


def _ignore(ending: threading.ExceptHookArgs) -> None:
    """Drop the error of a thread that goes on and finds nothing left."""

