"""mpi4py's own tests end in a protected job as they do without protection.

They are not part of this project: they come with mpi4py's source distribution of the version that
is installed, which pip fetches once (into pytest's cache), or are in FTRMA_MPI4PY_TESTS, its
``test`` directory. A plain ``pytest`` runs a few quick modules, ``--rest`` some more, ``--sweep 2``
all of them; those on windows, communicators and collective calls over two nodes, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from jobs import Result, run_job, run_plain
from nodes import run_on_nodes

PROGRAM = Path(__file__).parent / "programs" / "mpi4py_module.py"
SLOTS = 3
QUICK = ("comm", "session", "win")
REST = ("attributes", "cco_obj", "comm_inter", "comm_topo", "environ", "errhandler", "exceptions",
        "group", "handle", "info", "p2p_obj", "request", "rma", "status")
OVER_NODES = ("win", "rma", "rma_nb", "comm", "cco_buf", "cco_obj", "cco_vec", "cco_pr_buf",
              "attributes", "errhandler")
# What the library itself does not get through, not twice in the same way.
BROKEN = {
    "spawn": "the library's Spawn fails and hangs under this launcher, without ftrma too",
    "ulfm": "the library crashes or loses a message after some revocations, without ftrma too",
}


def fetch(cache: Path) -> Path | None:
    """The ``test`` directory of mpi4py's sources, or None where they cannot be had."""
    if named := os.environ.get("FTRMA_MPI4PY_TESTS"):
        return Path(named)
    name = f"mpi4py-{version('mpi4py')}"
    if not (cache / name).is_dir():
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "mpi4py",
               name.replace("-", "=="), "-d", str(cache)]
        if subprocess.run(pip, capture_output=True).returncode:
            return None
        with tarfile.open(cache / f"{name}.tar.gz") as archive:
            archive.extractall(cache, filter="data")
    return cache / name / "test"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "module" not in metafunc.fixturenames:
        return
    tests = fetch(metafunc.config.cache.mkdir("mpi4py"))
    found = sorted(tests.glob("test_*.py")) if tests else []
    cases = []
    for path in found:
        name = path.stem.removeprefix("test_")
        marks = [] if name in QUICK else [pytest.mark.rest if name in REST else pytest.mark.long]
        if name in BROKEN:
            marks = [pytest.mark.skip(reason=BROKEN[name])]
        cases.append(pytest.param(path, id=name, marks=marks))
    if "over_nodes" in metafunc.function.__name__:
        cases = [pytest.param(case.values[0], id=case.id, marks=rarely(case.id))
                 for case in cases if case.id in OVER_NODES]
    metafunc.parametrize("module", cases)


def rarely(name: str | None) -> pytest.MarkDecorator:
    """When to run a module over nodes: a quick one with the rest."""
    return pytest.mark.rest if name in QUICK else pytest.mark.long


def outcomes(result: Any) -> list[dict[str, list[str]]]:
    assert result.status == 0, result
    found = result.of_slots("outcomes", SLOTS)
    assert all(found), result
    return found


def compare(module: Path, run: Callable[..., Result], **how: Any) -> None:
    """Run a module raw and protected; each test has to end on each slot as on each rank."""
    args = [str(module.parent), module.stem]
    raw = outcomes(run_plain(PROGRAM, SLOTS, args=args, timeout=150))
    result = run(PROGRAM, SLOTS, "--interval", "never", args=args, timeout=150, **how)
    for rank, (expected, found) in enumerate(zip(raw, outcomes(result), strict=True)):
        assert found == expected, f"rank {rank}\n{result.stderr}"


def test_suite_of_mpi4py(module: Path) -> None:
    """Law: each test passes, fails or is skipped on each slot as it does on each rank."""
    compare(module, run_job)


def test_suite_of_mpi4py_over_nodes(module: Path) -> None:
    """Law: the same of windows, communicators and collective calls on two nodes."""
    compare(module, run_on_nodes)
