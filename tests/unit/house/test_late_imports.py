"""Modules that are loaded late, because most jobs never use them."""

from __future__ import annotations

import subprocess
import sys


def test_a_supervisor_begins_without_numpy() -> None:
    """Law: `ftrma run` itself loads no NumPy, which would take half as long as the rest."""
    code = "import sys, ftrma.launch.supervisor; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
