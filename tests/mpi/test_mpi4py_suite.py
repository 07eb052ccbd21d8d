"""mpi4py's own tests pass in a protected job.

They are not part of this project: set FTRMA_MPI4PY_TESTS to the ``test`` directory of mpi4py's
source distribution (of the version that is installed) to run them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from jobs import FTRMA, run_command

TESTS = os.environ.get("FTRMA_MPI4PY_TESTS", "")
SLOTS = 3

pytestmark = pytest.mark.skipif(not TESTS, reason="FTRMA_MPI4PY_TESTS names no directory")


@pytest.mark.parametrize(
    "name",
    ["win", "rma", "rma_nb", "p2p_buf", "cco_buf", "comm", "attributes", "environ", "group",
     "errhandler", "exceptions", "request", "status", "handle", "comm_topo", "cco_nb_buf"],
)  # fmt: skip
def test_suite_of_mpi4py(name: str) -> None:
    """Law: every slot reports OK, none a failure. (mpi4py's runner hides the exit status.)"""
    script = Path(TESTS) / f"test_{name}.py"
    assert script.is_file(), f"FTRMA_MPI4PY_TESTS={TESTS}: no {script.name} there"
    command = [FTRMA, "run", "-n", str(SLOTS), "--interval", "never", str(script)]
    result = run_command(command, timeout=60)
    assert result.status == 0, str(result)
    assert len(re.findall(r"Ran \d+ tests? in", result.stderr)) == SLOTS, str(result)
    assert "FAILED" not in result.stderr and result.stderr.count("OK") == SLOTS, str(result)
