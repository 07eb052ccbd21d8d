"""What Python does for a program at its end, in a process that ends in another way.

A process of a job leaves by ``os._exit``: the interpreter's own end would come to MPI_Finalize,
which can wait for the dead. What a program relies on then happens here: functions registered with
`atexit` run, what its module holds is let go of, and what is still in buffers is written, those of
C too. Files that nobody has closed are whole then, as at Python's own end.
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

from ..errors import Rollback
from ..host.helper import Helper
from ..host.lineoutput import LineOutput
from ..protocol.rounds import Ended
from .script import Program

INTERRUPTED = 128 + signal.SIGINT  # Python ends by the signal then
WRITE_S = 60.0  # a thread that goes on may hold a file's lock, waiting for a reader


def run_exit_functions() -> None:
    """Run what was registered with `atexit`, the last first."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    flush_streams()


def flush_streams() -> None:
    """Write what the program has printed; it may have closed or replaced its streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def exit_status(ending: SystemExit) -> int:
    """The status that Python gives for ``sys.exit(code)``."""
    code = ending.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{code}\n")
    return 1


def show(kind: Any, error: Any, tb: Any) -> int:
    """Show an error that has ended the program, by its own hook if it has set one.

    Returns:
        The program's status.
    """
    try:
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(kind, error, tb)
        else:
            sys.excepthook(kind, error, tb)
    except (Rollback, Ended):
        raise
    except SystemExit as ending:
        return exit_status(ending)
    except BaseException as another:
        with contextlib.suppress(Exception):
            its = another.__traceback__ and another.__traceback__.tb_next  # from the hook on
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


def end_child(program: Program, error: BaseException | None) -> NoReturn:
    """A process that the program has forked has come to the program's end: it ends as in plain
    Python, and the slot is none of its business."""
    status = 0
    if isinstance(error, SystemExit):
        status = exit_status(error)
    elif error is not None:
        tb, status = error.__traceback__, 1
        while tb and str(tb.tb_frame.f_globals.get("__name__")).split(".")[0] in ("ftrma", "runpy"):
            tb = tb.tb_next
        with contextlib.suppress(Rollback, Ended):
            status = show(type(error), error, tb)
    run_exit_functions()
    let_go(program)
    if status == INTERRUPTED and isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


class _Alive:
    """Is in a namespace as long as that is there."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names


def let_go(program: Program) -> None:
    """Let go of what a program's main module holds, and write what is in buffers."""
    threading.excepthook = _ignore  # in threads that go on without it
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
    gc.collect()  # by which its objects are finalized that find the module's other names
    if left := there():  # somebody holds one of its functions: name by name, as the interpreter
        for name in sorted(left.names, key=lambda name: not name.startswith("_")):
            if name != "__builtins__":
                left.names[name] = None
        del left
        gc.collect()
    writing = Helper(_write)
    writing.start()
    writing.join(WRITE_S)
    flush_streams()


def _write() -> None:
    """Write what is in the buffers of files; of those that write into others first."""
    for kind in (io.TextIOBase, io.BufferedIOBase):
        found = gc.get_objects()
        types = {of for of in set(map(type, found)) if issubclass(of, kind)}
        for file in [each for each in found if type(each) in types]:
            with contextlib.suppress(Exception):
                if type(file).__module__ == "_io" or isinstance(file, LineOutput):
                    file.flush()
                else:
                    file.close()  # by which, as for gzip, the end of the file is written
    ctypes.CDLL(None).fflush(None)


def _ignore(ending: threading.ExceptHookArgs) -> None:
    """A thread that goes on finds nothing left."""

