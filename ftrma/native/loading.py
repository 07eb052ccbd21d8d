"""Loads the interposer before mpi4py, and turns its error code into `Rollback`.

The C extension defines ``MPI_Put`` and the other calls. For the dynamic linker to bind mpi4py to
them, the extension must be in the global scope before ``mpi4py.MPI`` is loaded. If it were loaded
later, it would silently have no effect, so that is an error here.

The interposer reports a pending failure by a special error code. mpi4py turns error codes into
``MPI.Exception``. All of them pass through the constructor of that class, so the code becomes
`Rollback` there: no callback from C is needed, and no mpi4py object is left half made.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..host.errors import FtrmaError, Rollback
from . import extension, job, library

EXTENSION = Path(__file__).parents[1] / "_native.so"
VERSION_BYTES = 8192  # MPICH's MPI_MAX_LIBRARY_VERSION_STRING; Open MPI's is 256

_native: Native | None = None
_mpi4py: Any = None


def _preload_libmpi() -> None:
    """Load libmpi by its soname into a local scope, so that the interposer comes first."""
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        path = Path(prefix) / "lib" / "libmpi.so.40"
        if path.exists():
            ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
            return


class Native:
    """The C extension: a plain shared library, so that building it needs no headers of Python.

    ftrma calls it by `job`, `logs` and `vaults`; tests and benchmarks also call it directly.

    Attributes:
        ffi: cffi's object with the declarations of ``csrc/shared.h`` and ``csrc/ftrma.h``.
        lib: cffi's object with the functions and constants.
    """

    def __init__(self) -> None:
        self.ffi: Any = import_module("ftrma._declarations").ffi
        self.lib: Any = self.ffi.dlopen(str(EXTENSION), os.RTLD_GLOBAL | os.RTLD_NOW)

    def intercepted(self) -> list[str]:
        """Return the names of all calls of MPI that the extension defines, sorted."""
        names = map(self.lib.ftrma_intercepted, itertools.count())
        return [self.ffi.string(name).decode()
                for name in itertools.takewhile(lambda name: name != self.ffi.NULL, names)]


class _Symbol(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def version_of(name: str) -> tuple[str, str]:
    """Ask the MPI library behind a shared object for its version, before MPI is initialized.

    Args:
        name: name of the MPI library, or of an object that is linked to it.

    Returns:
        The library's version string, and its file.

    Raises:
        OSError: the object cannot be loaded. AttributeError: there is no MPI in it.
    """
    # Bind lazily, since the library may lack functions that the extension calls.
    function = ctypes.CDLL(name, mode=os.RTLD_LOCAL | os.RTLD_LAZY).MPI_Get_library_version
    text, length = ctypes.create_string_buffer(VERSION_BYTES), ctypes.c_int()
    function(text, ctypes.byref(length))
    return text.value.decode(errors="replace"), _file_of(function)


def _file_of(function: Any) -> str:
    """Return the file that a loaded function is in."""
    found = _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(found))
    return os.path.normpath(os.fsdecode(found.file or b"?"))


def _where(file: str) -> str:
    """Name the file, and say whether it was found by LD_LIBRARY_PATH."""
    paths = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    found = os.path.dirname(file) in {os.path.normpath(path) for path in paths if path}
    return f"{file} (found by LD_LIBRARY_PATH)" if found else file


def _unloadable(error: Exception) -> str:
    """Say why the extension cannot be loaded; in most cases another MPI library is found for it."""
    # With eager binding (-z now) the extension fails here, too; then libmpi itself is asked.
    for name in (str(EXTENSION), "libmpi.so.40"):
        try:
            text, file = version_of(name)
        except (OSError, AttributeError):
            continue
        why = library.refusal(text, _where(file))
        if not why and "MPIX_" in str(error):
            why = (
                f"{_where(file)} is {library.judge(text).words} without ULFM, and ftrma was built "
                f"with one that has it; {library.NEEDED}"
            )
        if why:
            return why
    return f"the MPI library cannot be loaded ({error}); {library.NEEDED}"


def _check_mpi4py() -> None:
    """Refuse an mpi4py that would bring a second MPI library into the process.

    Call this after the extension is loaded: mpi4py's wheels take the ABI that is loaded then.
    """
    try:
        spec = find_spec("mpi4py.MPI")
    except ModuleNotFoundError:
        spec = None
    where = spec.origin if spec and spec.origin else ""
    binary = Path(where).read_bytes() if where else b""
    why = library.mpi4py_refusal(binary, where, os.environ.get("MPI4PY_MPIABI"))
    if why:
        raise FtrmaError(why)


def _check_scope(native: Native) -> None:
    """Refuse tools that define calls of MPI in front of the extension, by ``LD_PRELOAD``.

    mpi4py binds each call to the first definition in the global scope. A tool's calls go on to
    ``PMPI_``, which belongs to the library, so they would silently bypass ftrma.
    """
    scope, own = ctypes.CDLL(None), ctypes.CDLL(str(EXTENSION))
    bypass: dict[str, list[str]] = {}
    for name in native.intercepted():
        found, mine = (ctypes.cast(getattr(of, name), ctypes.c_void_p) for of in (scope, own))
        if found.value != mine.value:
            bypass.setdefault(_file_of(found), []).append(name)
    if bypass:
        raise FtrmaError(in_front(bypass, os.environ.get("LD_PRELOAD", "")))


def in_front(bypass: Mapping[str, Sequence[str]], preload: str) -> str:
    """Say which files define calls of MPI in front of the extension, and the remedy.

    Args:
        bypass: the calls that each file defines.
        preload: the value of the variable LD_PRELOAD.
    """
    others = ", ".join(
        f"{file} ({names[0]}{f' and {len(names) - 1} more' * bool(names[1:])})"
        for file, names in bypass.items())
    remedy = f"unset LD_PRELOAD (it is {preload!r})" if preload else "do not load it before ftrma"
    return (
        f"calls of MPI would go to a tool in front of ftrma and bypass ftrma: {others}; {remedy}. "
        "What a program calls is recorded by 'ftrma run --trace FILE', too"
    )


def load() -> Native:
    """Return the C extension, loaded so that it interposes.

    Raises:
        FtrmaError: mpi4py.MPI was imported first; or no MPI library was found, or ftrma does not
            work with it; or mpi4py is made for another one; or a tool is in front of the extension.
    """
    global _native
    if _native is not None:
        return _native
    if "mpi4py.MPI" in sys.modules:
        raise FtrmaError(too_late())
    try:
        _preload_libmpi()
        native = Native()
    except (ImportError, OSError) as error:
        raise FtrmaError(_unloadable(error)) from error
    text, file = version_of(str(EXTENSION))
    why = library.refusal(text, _where(file))
    if why:
        raise FtrmaError(why)
    _check_scope(native)
    _check_mpi4py()
    extension.attach(native.lib, native.ffi)
    _native = native
    return _native


def loaded() -> bool:
    return _native is not None


def too_late() -> str:
    return (
        "mpi4py.MPI was imported before ftrma, so its calls do not pass through ftrma. "
        "Import ftrma first (from ftrma import MPI), or start the program with 'ftrma run'"
    )


UNHEEDED = ("MPI4PY_RC_INITIALIZE", "MPI4PY_RC_THREADS", "MPI4PY_RC_THREAD_LEVEL")


def import_mpi() -> Any:
    """Import mpi4py.MPI (this initializes MPI) and let unwinding pass through it."""
    global _mpi4py
    if _mpi4py is not None:
        return _mpi4py
    load()
    import mpi4py

    # Reductions of objects by messages between pairs of ranks would be faster, but only collective
    # calls survive a failure of a rank.
    mpi4py.rc.fast_reduce = False
    # A program that initializes MPI itself finds it already initialized, with support for threads.
    wanted = {name: os.environ.pop(name) for name in UNHEEDED if name in os.environ}
    from mpi4py import MPI

    os.environ.update(wanted)
    original = MPI.Exception.__init__

    def init(self: Any, ierr: int = 0, /) -> None:
        error = extension.take_error()
        if error is not None:
            raise error
        if ierr and ierr == job.unwind_code():
            raise Rollback("a process failed")
        original(self, ierr)

    MPI.Exception.__init__ = init  # type: ignore[method-assign]
    _mpi4py = MPI
    return MPI
