"""mpi4py's own tests end in a protected job as they do without protection.

They are not part of this project: they come with mpi4py's source distribution of the version that
is installed, which pip fetches once (into ``build/``), or are in FTRMA_MPI4PY_TESTS, its ``test``
directory. The modules on windows, communicators and collective calls run over two nodes, too.
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
from tiers import tiers
from tree import ROOT

pytestmark = pytest.mark.full

PROGRAM = Path(__file__).parent / "programs" / "mpi4py_module.py"
SLOTS = 3
FULL = ("comm", "win", "cco_obj", "errhandler", "exceptions", "request")
FULL_OVER_NODES = ("comm",)
OVER_NODES = ("win", "rma", "rma_nb", "comm", "cco_buf", "cco_obj", "cco_vec", "cco_pr_buf",
              "attributes", "errhandler")
# The library itself does not get through these, not twice in the same way.
BROKEN = {
    "spawn": "the library's Spawn fails and hangs under this launcher, without ftrma too",
    "ulfm": "the library crashes or loses a message after some revocations, without ftrma too",
}


def fetch() -> Path | None:
    """The ``test`` directory of mpi4py's sources, or None where they cannot be had."""
    cache = ROOT / "build" / "mpi4py"
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
    over_nodes = "over_nodes" in metafunc.function.__name__
    tests = fetch()
    cases = []
    for path in sorted(tests.glob("test_*.py")) if tests else ():
        name = path.stem.removeprefix("test_")
        marks = [pytest.mark.skip(reason=BROKEN[name])] if name in BROKEN else []
        if not over_nodes or name in OVER_NODES:
            cases.append(pytest.param(path, id=name, marks=marks))
    there = {case.id for case in cases}
    metafunc.parametrize("module", tiers(
        cases, full=there.intersection(FULL_OVER_NODES if over_nodes else FULL)))


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
