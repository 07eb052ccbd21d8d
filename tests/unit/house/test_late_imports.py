"""Modules that are loaded late, because most jobs never use them."""

from __future__ import annotations

import subprocess
import sys


def test_a_supervisor_begins_without_numpy() -> None:
    """Law: `ftrma run` itself loads no NumPy, which would take half as long as the rest."""
    code = "import sys, ftrma.launch.supervisor; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


SEVERAL_NODES = ("agents", "nodes_mail", "post_office", "remote", "several_nodes")


def test_a_process_of_one_node_loads_nothing_of_several() -> None:
    """Law: each would load a dozen modules more; nor does it load what asks for near words."""
    code = ("import sys, ftrma.program.runner, ftrma.program.session, ftrma.fabric.one_node\n"
            f"late = ['ftrma.fabric.' + name for name in {SEVERAL_NODES}]\n"
            "late += ['ftrma.native.wire', 'difflib', 'subprocess']\n"
            "print(*(name for name in late if name in sys.modules))")
    told = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True,
                          check=True)
    assert told.stdout.split() == []
