"""Every MPI call has its treatment: csrc/calls.py against mpi.h and against the built extension."""

from __future__ import annotations

import collections
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tree import ROOT

from ftrma.native import loading

EXTENSION = loading.EXTENSION
MPICC = shutil.which("mpicc", path=str(Path(sys.executable).parent)) or shutil.which("mpicc")

pytestmark = pytest.mark.skipif(MPICC is None, reason="no mpicc")


@pytest.fixture(scope="module")
def calls() -> ModuleType:
    import importlib.util

    sys.path.insert(0, str(ROOT / "csrc"))  # as in a build: it imports mpicc.py from there
    spec = importlib.util.spec_from_file_location("calls", ROOT / "csrc" / "calls.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["calls"] = module
    spec.loader.exec_module(module)
    sys.path.remove(str(ROOT / "csrc"))
    return module


@pytest.fixture(scope="module")
def header(calls: ModuleType) -> dict:
    return {call.name: call for call in calls.read_header(MPICC)}


@pytest.fixture(scope="module")
def defined() -> set[str]:
    """Functions that the built extension itself defines and exports."""
    listing = subprocess.run(["nm", "-D", "--defined-only", str(EXTENSION)], capture_output=True,
                             text=True, check=True).stdout
    names = [line.split() for line in listing.splitlines()]
    return {n[2] for n in names if len(n) == 3 and n[1] in "TW"}


def test_header_is_read_whole(calls: ModuleType, header: dict) -> None:
    """Law: all functions of the standard's chapter on one-sided communication are found, with
    their parameters."""
    for name in calls.OURS:
        assert name in header, name
    put = header["Put"].parameters
    assert [kind for kind, _ in put] == ["const void *", "int", "MPI_Datatype", "int", "MPI_Aint",
                                         "int", "MPI_Datatype", "MPI_Win"]
    assert len(header) > 300


def test_every_window_call_is_listed(calls: ModuleType, header: dict) -> None:
    """Law: a function of mpi.h with a window among its parameters, or Win in its name, is listed by
    name; large-count and Fortran-handle forms under their plain name."""
    listed = {*calls.OURS, *calls.PASS}
    windows = {
        call.name for call in header.values()
        if call.name.startswith("Win_") or any("MPI_Win" in kind for kind, _ in call.parameters)
    }
    handles = {"Win_c2f", "Win_f2c", "Win_toint", "Win_fromint"}
    create = {"Win_create_keyval"}
    unlisted = {n for n in windows - handles - create if n.removesuffix("_c") not in listed}
    assert len(windows) > 40 and not unlisted, sorted(unlisted)


def test_no_call_is_in_two_lists(calls: ModuleType) -> None:
    """Law: OURS, COLLECTIVES and PASS are disjoint and name nothing twice."""
    counts = collections.Counter([*calls.OURS, *calls.COLLECTIVES, *calls.PASS])
    assert not [name for name, count in counts.items() if count > 1]


def test_listed_calls_are_real(calls: ModuleType, header: dict) -> None:
    """Law: a name in OURS or COLLECTIVES is a function of mpi.h, so that no typing error hides a
    call."""
    assert {*calls.OURS, *calls.COLLECTIVES} <= set(header)


def test_our_calls_are_defined(calls: ModuleType, header: dict, defined: set[str]) -> None:
    """Law: every call of OURS, and its large-count form where the library has one, and every call
    of COLLECTIVES is defined by the extension itself."""
    names = {n for n, call in header.items() if call.kind == "ours"}
    assert names >= {*calls.OURS, *calls.COLLECTIVES}
    assert not {f"MPI_{n}" for n in names} - defined


def test_generated_wrappers_are_defined(header: dict, defined: set[str]) -> None:
    """Law: the extension defines a wrapper for every call that is guarded or translated."""
    names = {f"MPI_{n}" for n, call in header.items() if call.kind in ("guard", "translate")}
    assert len(names) > 100 and not names - defined


def test_passed_calls_are_not_intercepted(header: dict, defined: set[str]) -> None:
    """Law: the extension defines no other MPI function."""
    mine = {f"MPI_{n}" for n, call in header.items() if call.kind != "pass"}
    assert {n for n in defined if n.startswith("MPI_")} == mine


def test_the_list_is_true(defined: set[str]) -> None:
    """Law: ftrma_intercepted, by which tools in front of ftrma are found, names all of them."""
    assert loading.load().intercepted() == sorted(n for n in defined if n.startswith("MPI_"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Put", "ours"), ("Win_free", "ours"), ("Send", "guard"), ("Wait", "guard"),
        ("Comm_split", "ours"), ("Graph_create", "guard"), ("Barrier", "ours"),
        ("Mprobe", "guard"), ("Waitall", "guard"),
        ("Ibarrier", "guard"), ("Allreduce", "ours"), ("Iallreduce", "guard"),
        ("Comm_rank", "ours"), ("Comm_get_name", "translate"), ("Cart_coords", "translate"),
        ("Comm_set_errhandler", "ours"), ("Comm_group", "ours"),
        ("Type_commit", "pass"), ("Win_set_name", "pass"), ("Wtime", None), ("Get_count", "pass"),
        ("Group_incl", "pass"), ("Finalize", None),
    ],
)
def test_kinds_by_example(header: dict, name: str, kind: str | None) -> None:
    """Law: the treatment follows from what a call does; None: not decided here."""
    if kind is not None:
        assert header[name].kind == kind


def test_calls_with_a_communicator_are_never_passed(calls: ModuleType, header: dict) -> None:
    """Law: whatever takes a communicator by value must see the slots' world in place of
    MPI_COMM_WORLD, or is named in PASS as an exception."""
    passed = {
        n
        for n, call in header.items()
        if call.kind == "pass" and any(k == "MPI_Comm" for k, _ in call.parameters)
    }
    assert {n.removesuffix("_c") for n in passed} <= set(calls.PASS), sorted(passed)


def test_new_communicators_are_registered(calls: ModuleType, header: dict) -> None:
    """Law: the wrapper of a call that makes a communicator registers it, so that a failure can
    revoke it."""
    for name in ("Graph_create", "Dist_graph_create", "Intercomm_create", "Comm_create_group"):
        assert f'ftrma_register_foreign(*{header[name].parameters[-1][1]}, "MPI_{name}")' in (
            calls.wrapper(header[name])
        ), name


def test_extension_loads_without_mpi_init() -> None:
    """Law: loading starts nothing; the calls can be reached before MPI is initialized."""
    code = f"""
import ctypes
from ftrma.native import loading
loading.load()
flag = ctypes.c_int(7)
assert ctypes.CDLL({str(EXTENSION)!r}).MPI_Initialized(ctypes.byref(flag)) == 0
assert flag.value == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)  # here MPI may be initialized by now
