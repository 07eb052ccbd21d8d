"""Several nodes on one machine: the launcher's ssh is replaced by a step into a namespace.

A new UTS namespace lets a daemon of the launcher have a host name of its own, so that it and the
MPI library take it for another node. The names are addresses 127.0.1.x, which need no entry in
/etc/hosts. The environment is not taken along, as ssh takes none. A new mount namespace gives it a
/dev/shm of its own, which stays from one launch to the next as a node's does (`shared_of`).
"""

from __future__ import annotations

import functools
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs import MARK, Result, remove, run_job

NODES = ("127.0.1.1", "127.0.1.2", "127.0.1.3")
PER_NODE = 2
NODES_HOME = "/dev/shm/nodes-"  # then a part of their own for each run of the tests
FAKE_SSH = f"""#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
shared={NODES_HOME}$(basename "$(dirname "$0")")/$host
[[ -d $shared ]] || mkdir -pm 1777 "$shared"
exec setsid env -i PATH="$PATH" HOME="$HOME" {MARK}="${MARK}" \\
    unshare --uts --mount --propagation private \\
    bash -c "hostname $host; mount --bind $shared /dev/shm; $(cat "$0.first" 2>/dev/null) $*"
"""


@functools.cache
def why_not() -> str:
    """Why nodes cannot be emulated here; empty if they can."""
    try:
        outcome = subprocess.run(
            ["unshare", "--uts", "--mount", "hostname", NODES[0]], capture_output=True, text=True,
            timeout=10,
        )
    except FileNotFoundError as error:
        return str(error)
    return outcome.stderr.strip() if outcome.returncode else ""


@functools.cache
def fake_ssh() -> str:
    # Not in /dev/shm, where daemons of the launcher would not find it.
    path = Path(tempfile.mkdtemp(prefix="fake-ssh-")) / "fake-ssh"
    path.write_text(FAKE_SSH)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def before_daemons(command: str) -> None:
    """Have a shell command run on each node before the launcher's daemon; empty: none."""
    path = Path(fake_ssh() + ".first")
    path.write_text(command) if command else path.unlink(missing_ok=True)


def shared_of(node: str) -> Path:
    """What is /dev/shm on a node."""
    return Path(NODES_HOME + Path(fake_ssh()).parent.name) / node


def launcher_options(nodes: Sequence[str] = NODES, per_node: int = PER_NODE) -> str:
    """For ``--mpirun``."""
    named = ",".join(f"{node}:{per_node}" for node in nodes)
    return f"--prtemca plm_ssh_agent {fake_ssh()} --host {named} --map-by ppr:{per_node}:node"


def run_on_nodes(script: str | Path, n: int, *options: str, timeout: float = 30,
                 nodes: Sequence[str] = NODES, args: Sequence[str] = (),
                 tidy: bool = True) -> Result:
    """Run a program protected, on emulated nodes; skips the test where that is not permitted.

    Unless `tidy` is false, nothing may be left on them.
    """
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    result = run_job(script, n, "--mpirun", launcher_options(nodes), *options, args=args,
                     timeout=timeout)
    left = [f"{node}: {p.name}" for node in nodes if shared_of(node).exists()
            for p in shared_of(node).iterdir()]
    remove(shared_of(node) for node in nodes)
    assert not (tidy and left), f"files left on nodes: {left}\n{result}"
    return result


def struck(result: Result) -> list[dict[str, Any]]:
    """The failures that ``--kill`` rules made. One-sided calls of a survivor may crash because of
    them (Open MPI 5.0.11 calls a null pointer then), which makes it one of the dead."""
    return [f for f in result.stats["failures"] if f["place"] != "unknown"]


def remove_fake_ssh() -> None:
    if fake_ssh.cache_info().currsize:
        remove([Path(fake_ssh()).parent, shared_of("any").parent])
        fake_ssh.cache_clear()
