"""Other MPI libraries than Open MPI 5 are told and refused: by version strings
(ftrma/native/library.py), and through the real preprocessor (csrc/mpicc.py) with headers that hold
nothing but the macros."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tree import ROOT

from ftrma.command import doctor
from ftrma.host.errors import FtrmaError
from ftrma.native import library, loading

CC = shutil.which("cc") or shutil.which("gcc")

OPEN_MPI_5 = (
    "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11, repo rev: "
    "v5.0.11rc1, Sep 16, 2026"
)
OPEN_MPI_4 = (
    "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022"
)
MPICH_5 = (
    "MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25 20:45:26 UTC 2026\n"
    "MPICH ABI:          18:2:6\nMPICH Device:       ch4:ucx ofi\n"
)
# Versions as the libraries tell them; those that are not from this machine are from public logs.
STRINGS = [
    (OPEN_MPI_5, "Open MPI 5.0.11", True),
    ("Open MPI v5.0.0rc12, package: Open MPI root@builder Distribution, ident: 5.0.0rc12, repo "
     "rev: v5.0.0rc12, Unreleased developer copy", "Open MPI 5.0.0rc12", True),
    ("Open MPI v6.1.0a1, package: Open MPI user@host Distribution, ident: 6.1.0a1, repo rev: "
     "v2.x-dev-12117-g16b36ea, Unreleased developer copy", "Open MPI 6.1.0a1", True),
    (OPEN_MPI_4, "Open MPI 4.1.4", False),
    ("Open MPI v3.1.3, package: Open MPI root@c897a83f6f92 Distribution, ident: 3.1.3, repo rev: "
     "v3.1.3, Oct 29, 2018\0", "Open MPI 3.1.3", False),
    ("Open MPI v3.1.0, package: IBM Spectrum MPI, ident: 10.03.01.00rtm0, repo rev: "
     "IBM_SPECTRUM_MPI_10.03.01.00_2019.04.02, Apr 02, 2019\n", "Open MPI 3.1.0", False),
    (MPICH_5, "MPICH 5.0.2", False),
    ("MPICH Version:\t4.1a1\nMPICH Release date:\tunreleased development copy\n", "MPICH 4.1a1",
     False),
    ("MPICH Version:\t3.3.2\nMPICH Release date:\tTue Nov 12 21:23:16 CST 2019\n", "MPICH 3.3.2",
     False),
    ("Intel(R) MPI Library 2021.6 for Linux* OS\n\0", "Intel MPI 2021.6", False),
    ("Intel(R) MPI Library 2019 Update 6 for Linux* OS\n", "Intel MPI 2019 Update 6", False),
    ("MVAPICH2 Version      :\t2.3.5\nMVAPICH2 Release date :\tMon November 30 22:00:00 EST 2020\n",
     "MVAPICH 2.3.5", False),
    ("MPI VERSION    : CRAY MPICH version 8.1.28.2 (ANL base 3.4a2)\n"
     "MPI BUILD INFO : Wed Nov 15 21:59 2023 (git hash 1cde46f)\n", "Cray MPICH 8.1.28.2", False),
    ("Microsoft MPI 10.1", "an unknown MPI library ('Microsoft MPI 10.1')", False),
    ("", "an unknown MPI library ('')", False),
    # Launchers.
    ("mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n",
     "Open MPI 5.0.11", True),
    ("mpirun (Open MPI) 4.1.4\n", "Open MPI 4.1.4", False),
    ("orterun (OpenRTE) 4.1.4\n", "Open MPI 4.1.4", False),
    ("HYDRA build details:\n    Version:                                 5.0.2\n", "MPICH 5.0.2",
     False),
    ("Intel(R) MPI Library for Linux* OS, Version 2021.6 Build 20220227 (id: 28877f3f32)\n",
     "Intel MPI 2021.6", False),
]


@pytest.mark.parametrize(("text", "words", "fits"), STRINGS)
def test_libraries_are_told_by_their_words(text: str, words: str, fits: bool) -> None:
    """Law: name and version are read from what a library or launcher says; an Open MPI from 5 on
    fits, all else does not."""
    found = library.judge(text)
    assert (found.words, found.fits) == (words, fits)


@pytest.mark.parametrize(("text", "words", "fits"), STRINGS)
def test_a_refusal_says_what_where_and_what_helps(text: str, words: str, fits: bool) -> None:
    """Law: one line with what was found, where, what is needed and the remedy; none if it fits."""
    why = library.refusal(text, "/opt/lib/libmpi.so")
    assert bool(why) == (not fits)
    if why:
        needed = ("/opt/lib/libmpi.so", words, "Open MPI 5 with ULFM", "ftrma[openmpi]", "MPICC=")
        assert all(word in why for word in needed) and "\n" not in why


def test_only_what_is_newer_is_untried() -> None:
    """Law: Open MPI 6 goes on, and is told."""
    assert library.judge("Open MPI v6.0.0, package: x").untried
    assert not library.judge(OPEN_MPI_5).untried and not library.judge(OPEN_MPI_4).untried


def test_mpi4py_must_be_compiled_for_open_mpi() -> None:
    """Law: mpi4py's module refers to Open MPI's symbols, or is refused with what helps."""
    assert library.mpi4py_refusal(b"\0ompi_mpi_comm_world\0", "MPI.so", None) == ""
    assert "--force-reinstall" in library.mpi4py_refusal(b"\0MPI_Put\0", "MPI.so", None)
    assert "unset MPI4PY_MPIABI" in library.mpi4py_refusal(b"\0MPI_Put\0", "MPI.so", "mpich")
    assert "has no module" in library.mpi4py_refusal(b"", "", "abi")


# ---- the loaded library ---------------------------------------------------------------------


def test_the_loaded_library_is_asked() -> None:
    """Law: the library that the extension is linked to tells its version and its file without
    MPI_Init, and is the one that the tests run with."""
    loading.load()
    text, file = loading.version_of(str(loading.EXTENSION))
    assert library.judge(text).fits and "libmpi" in Path(file).name and Path(file).exists()


@pytest.mark.parametrize("text", [MPICH_5, OPEN_MPI_4])
def test_loading_refuses_others(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Law: `load` raises what `refusal` says and leaves nothing loaded; asked again, it raises
    again."""
    monkeypatch.setattr(loading, "_native", None)
    monkeypatch.setattr(loading, "version_of", lambda name: (text, "/opt/libmpi.so"))
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    for _ in range(2):
        with pytest.raises(FtrmaError) as raised:
            loading.load()
        assert str(raised.value) == library.refusal(text, "/opt/libmpi.so")


def test_a_library_that_lacks_functions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: when the linker fails, the library that it found is named, not the symbol alone."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    missing = OSError("undefined symbol: MPIX_Comm_revoke")
    monkeypatch.setattr(loading, "version_of", lambda name: (OPEN_MPI_4, "/usr/lib/libmpi.so.40"))
    assert "/usr/lib/libmpi.so.40 is Open MPI 4.1.4;" in loading._unloadable(missing)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/x:/usr/lib/")
    assert "libmpi.so.40 (found by LD_LIBRARY_PATH) is Open" in loading._unloadable(missing)
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setattr(loading, "version_of", lambda name: (OPEN_MPI_5, "/usr/lib/libmpi.so.40"))
    assert "is Open MPI 5.0.11 without ULFM" in loading._unloadable(missing)

    def nothing(name: str) -> tuple[str, str]:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(loading, "version_of", nothing)
    why = loading._unloadable(OSError("libmpi.so.40: cannot open shared object file"))
    assert "libmpi.so.40: cannot open" in why and library.WHEEL in why


@pytest.mark.parametrize(
    ("revoke", "built", "told", "verdict", "words"),
    [
        (True, True, "yes", "ok", "FT MPI: yes"),
        (True, True, "", "ok", "can revoke"),
        (True, True, "no", "FAIL", "Open MPI 5.0.11 was built without it"),
        (False, False, "no", "FAIL", "Open MPI 5.0.11 was built without it"),
        (True, False, "yes", "FAIL", "ftrma was built with an Open MPI 5.0.11 without it"),
    ],
)
def test_doctor_on_ulfm(revoke: bool, built: bool, told: str, verdict: str, words: str) -> None:
    """Law: recovery in place needs ULFM in the library and in the header of the build; without it
    the line says what still works and what helps."""
    found, text = doctor.judge_ulfm("Open MPI 5.0.11", revoke, built, told)
    assert found == verdict and words in text
    assert verdict == "ok" or ("launches again" in text and library.WHEEL in text)


# ---- the build ------------------------------------------------------------------------------

OMPI = """
#define OMPI_MAJOR_VERSION {}
#define OMPI_MINOR_VERSION {}
#define OMPI_RELEASE_VERSION {}
"""
MPICH = "#define MPICH 1\n#define MPICH_NAME 4\n"
Make = Callable[..., str]


@pytest.fixture(scope="module")
def mpicc() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mpicc", ROOT / "csrc" / "mpicc.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wrapper(tmp_path: Path) -> Make:
    """Makes a compiler wrapper for a library whose headers are these; `body` replaces it."""

    def make(header: str = "", ext: str | None = None, body: str = "", name: str = "mpicc") -> str:
        include = tmp_path / f"include-{name}"
        include.mkdir()
        (include / "mpi.h").write_text(header)
        if ext is not None:
            (include / "mpi-ext.h").write_text(ext)
        command = f"{CC} -I{include}"
        show = f'[ "$1" = -show ] && {{ echo "{command}"; exit 0; }}\n'
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" + (body or f'{show}exec {command} "$@"\n'))
        path.chmod(0o755)
        return str(path)

    return make


needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler")


@needs_cc
@pytest.mark.parametrize(
    ("header", "words"),
    [
        (MPICH + '#define MPICH_VERSION "5.0.2"\n', "MPICH 5.0.2"),
        (OMPI.format(4, 1, 4), "Open MPI 4.1.4"),
        (OMPI.format(3, 1, 6), "Open MPI 3.1.6"),
        (MPICH + '#define MPICH_VERSION "3.4"\n#define I_MPI_VERSION "2021.6.0"\n',
         "Intel MPI 2021.6.0"),
        (MPICH + '#define MPICH_VERSION "3.2"\n#define MVAPICH2_VERSION "2.3.7"\n',
         "MVAPICH 2.3.7"),
        (MPICH + '#define MPICH_VERSION "3.4"\n#define MVAPICH_VERSION "3.0"\n', "MVAPICH 3.0"),
        (MPICH + '#define MPICH_VERSION "3.4a2"\n#define CRAY_MPICH_VERSION 8.1.28\n',
         "Cray MPICH 8.1.28"),
        ("#define MPI_VERSION 5\n#define MPI_SUBVERSION 0\n", "unknown MPI library"),
    ],
)
def test_build_refuses_others(mpicc: ModuleType, wrapper: Make, monkeypatch: pytest.MonkeyPatch,
                              header: str, words: str) -> None:
    """Law: a compiler wrapper of another library ends the build with one line: its path, name and
    version, and what helps."""
    path = wrapper(header)
    monkeypatch.setenv("MPICC", path)
    with pytest.raises(SystemExit) as raised:
        mpicc.find()
    text = str(raised.value)
    assert text.startswith("ftrma: ") and "\n" not in text
    assert path in text and words in text and library.WHEEL in text


@needs_cc
@pytest.mark.parametrize(
    ("version", "ext", "told"),
    [
        ((5, 0, 11), "#define OMPI_HAVE_MPI_EXT_FTMPI 1\n", ""),
        ((5, 0, 11), "", "Open MPI 5.0.11 was built without ULFM"),
        ((6, 0, 0), "#define OMPI_HAVE_MPI_EXT_FTMPI 1\n", "newer than what ftrma"),
    ],
)
def test_build_takes_open_mpi_5(
    mpicc: ModuleType, wrapper: Make, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], version: tuple[int, ...], ext: str, told: str,
) -> None:
    """Law: an Open MPI from 5 on is taken; that ULFM is missing, or that it is newer, is told."""
    path = wrapper(OMPI.format(*version), ext)
    monkeypatch.setenv("MPICC", path)
    assert mpicc.find() == path
    errors = capsys.readouterr().err
    assert told in errors and bool(errors) == bool(told)


@needs_cc
def test_build_passes_over_others_that_nobody_named(
    mpicc: ModuleType, wrapper: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: without MPICC the first wrapper with a suitable library is taken; if there is none, the
    first refusal is told."""
    monkeypatch.delenv("MPICC", raising=False)
    other = wrapper(MPICH + '#define MPICH_VERSION "5.0.2"\n', name="other")
    good = wrapper(OMPI.format(5, 0, 8), "#define OMPI_HAVE_MPI_EXT_FTMPI 1\n", name="good")
    monkeypatch.setattr(mpicc, "candidates", lambda: [other, good])
    assert mpicc.find() == good
    monkeypatch.setattr(mpicc, "candidates", lambda: [other])
    with pytest.raises(SystemExit, match=r"MPICH 5\.0\.2"):
        mpicc.find()
    monkeypatch.setattr(mpicc, "candidates", list)
    with pytest.raises(SystemExit, match="no mpicc found"):
        mpicc.find()


@needs_cc
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("exit 3", "status 3"),
        ("echo 'licence server not reachable' >&2; exit 1", "licence server not reachable"),
        ('[ "$1" = -show ] && { echo no-such-compiler -I/x; exit 0; }\nexit 127',
         "finds no C compiler (no-such-compiler); install one"),
        (f'exec {CC} "$@"  # without a path to its header', "mpi.h: No such file"),
    ],
)
def test_build_says_what_fails(mpicc: ModuleType, wrapper: Make, monkeypatch: pytest.MonkeyPatch,
                               body: str, words: str) -> None:
    """Law: a wrapper that fails ends the build with one line that holds its own words."""
    path = wrapper(body=body + "\n")
    monkeypatch.setenv("MPICC", path)
    with pytest.raises(SystemExit) as raised:
        mpicc.find()
    assert path in str(raised.value) and words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["/no/such/mpicc", "no-such-mpicc", os.devnull])
def test_build_says_that_mpicc_is_none(
    mpicc: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Law: MPICC that names no executable is told with its value."""
    monkeypatch.setenv("MPICC", name)
    with pytest.raises(SystemExit, match=f"MPICC={re.escape(name)} is not an executable"):
        mpicc.find()


def test_build_says_that_pythons_compiler_is_missing(
    mpicc: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: the compiler that setuptools calls is looked for before it is called."""
    monkeypatch.setenv("CC", "/no/such/cc -O2")
    with pytest.raises(SystemExit, match="no C compiler /no/such/cc"):
        mpicc.check_compiler()
    if CC:
        monkeypatch.setenv("CC", f"{CC} -O2")
        mpicc.check_compiler()


def test_a_tool_in_front_is_named() -> None:
    """Law: each file that would get calls in front of ftrma is named, with the remedy."""
    bypass = {"/x/count.so": ["MPI_Put"], "/y/libmpi.so.40": ["MPI_Get", "MPI_Init", "MPI_Rput"]}
    told = loading.in_front(bypass, "/x/count.so")
    assert "/x/count.so (MPI_Put), /y/libmpi.so.40 (MPI_Get and 2 more);" in told
    assert "unset LD_PRELOAD (it is '/x/count.so')" in told
    assert "do not load it before ftrma" in loading.in_front(bypass, "")
