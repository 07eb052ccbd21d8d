"""Several nodes on one machine: the launcher's ssh is replaced by a step into a namespace.

A new UTS namespace lets a daemon of the launcher have a host name of its own, so that it and the
MPI library take it for another node. The names are addresses 127.0.1.x, which need no entry in
/etc/hosts. The environment is not taken along, as ssh takes none.
"""

from __future__ import annotations

import functools
import os
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs import MARK, Result, run_job

NODES = ("127.0.1.1", "127.0.1.2", "127.0.1.3")
PER_NODE = 2
FAKE_SSH = f"""#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
exec setsid env -i PATH="$PATH" HOME="$HOME" {MARK}="${MARK}" \\
    unshare --uts bash -c "hostname $host; $*"
"""


@functools.cache
def why_not() -> str:
    """Why nodes cannot be emulated here; empty if they can."""
    try:
        outcome = subprocess.run(
            ["unshare", "--uts", "hostname", NODES[0]], capture_output=True, text=True, timeout=10
        )
    except FileNotFoundError as error:
        return str(error)
    return outcome.stderr.strip() if outcome.returncode else ""


@functools.cache
def fake_ssh() -> str:
    path = Path(tempfile.mkdtemp(prefix="fake-ssh-")) / "fake-ssh"
    path.write_text(FAKE_SSH)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def launcher_options(nodes: Sequence[str] = NODES, per_node: int = PER_NODE) -> str:
    """For ``--mpirun``."""
    named = ",".join(f"{node}:{per_node}" for node in nodes)
    return f"--prtemca plm_ssh_agent {fake_ssh()} --host {named} --map-by ppr:{per_node}:node"


def run_on_nodes(script: str | Path, n: int, *options: str, timeout: float = 30,
                 nodes: Sequence[str] = NODES, args: Sequence[str] = ()) -> Result:  # fmt: skip
    """Run a program protected, on emulated nodes; skips the test where that is not permitted."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    return run_job(script, n, "--mpirun", launcher_options(nodes), *options, args=args,
                   timeout=timeout)  # fmt: skip


def struck(result: Result) -> list[dict[str, Any]]:
    """The failures that ``--kill`` rules made. One-sided calls of a survivor may crash because of
    them (Open MPI 5.0.11 calls a null pointer then), which makes it one of the dead."""
    return [f for f in result.stats["failures"] if f["place"] != "unknown"]


def remove_fake_ssh() -> None:
    if fake_ssh.cache_info().currsize:
        path = Path(fake_ssh())
        path.unlink(missing_ok=True)
        os.rmdir(path.parent)
        fake_ssh.cache_clear()
