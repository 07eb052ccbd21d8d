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
import sys
import threading
import traceback
from typing import Any

from ..host.helper import Helper
from ..host.lineoutput import LineOutput

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


def show(kind: Any, error: Any, tb: Any) -> None:
    """Show an error that has ended the program, by its own hook if it has set one."""
    with contextlib.suppress(Exception):
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(kind, error, tb)
        else:
            sys.excepthook(kind, error, tb)


def let_go(main: dict[str, Any]) -> None:
    """Let go of what the program holds, and write what is in buffers.

    Args:
        main: the names of its main module.
    """
    threading.excepthook = _ignore  # in threads that go on without it
    # In the interpreter's order. What nothing else holds is finalized by that.
    for name in sorted(main, key=lambda name: not name.startswith("_")):
        if name != "__builtins__":
            main[name] = None
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

