"""Several nodes on one machine: the launcher's ssh is replaced by a step into namespaces.

A new UTS namespace lets a daemon of the launcher have a host name of its own, so that it and the
MPI library take it for another node. The names are addresses 127.0.1.x, which need no entry in
/etc/hosts. The environment is not taken along, as ssh takes none, and what the daemon says comes
through a pipe.

New PID, IPC and mount namespaces shut the nodes against each other: a node has processes of its
own, numbered from 1, and its own /proc, /dev/shm and /tmp. The latter two stay from one launch to
the next as a node's do (`shared_of`, `tmp_of`). The root file system is read-only there, but for
the job's directory, which stands for a shared file system (`jobs.FILES`). The network is common,
unless `nodenets` has made others.
Each node's monotonic clock began at another time.
`test_honest_nodes` looks at what processes really reach.

Process 1 is there until the last of its node has ended, whatever becomes of the daemon; if it is
killed from outside, the kernel ends all of the node.
"""

from __future__ import annotations

import atexit
import functools
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs import FILES, MARK, ONE_THREAD, Result, remove, run_job

NODES = ("127.0.1.1", "127.0.1.2", "127.0.1.3")
PER_NODE = 2
START_S = 10.0  # a daemon that was being started when its launcher ended finds that out then
NODES_HOME = "/dev/shm/nodes-"  # then a part of their own for each run of the tests
SPACES = ("--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc",
          "--propagation", "private", "--time")
# Wherever these lie, they are the same on all nodes: this source tree, and what runs it.
INSTALLED = tuple(dict.fromkeys((str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix)))
INIT = """
import os, sys
command, status = os.spawnl(os.P_NOWAIT, "/bin/sh", "sh", "-c", sys.argv[1]), 0
try:
    while True:  # the dead of those, too, whose parents have ended
        pid, ended = os.wait()
        status = ended if pid == command else status
except ChildProcessError:
    os._exit(os.waitstatus_to_exitcode(status) & 255)
"""
FAKE_SSH = r"""
while [[ $1 == -* ]]; do shift; done
host=$1 node=$nodes/$1; shift
if grep -qxF "$host" "$0.refused" 2>/dev/null; then
    echo "ssh: connect to host $host port 22: Connection refused" >&2
    exit 255
fi
skew=$((${host##*.} * 10007)) # seconds
mkdir -pm 1777 "$node/shm" "$node/tmp"

common() { # PATH [OPTION...]: have it on the node, where it may lie in what will be /tmp
    local there=$1
    [[ $1 == /tmp/* ]] && there=$node$1 && mkdir -p "$there"
    mount --rbind "${@:2}" "$1" "$there"
}

become() { # COMMAND: make this the node, and run it there
    set -e
    hostname "$host"
    for path in "${installed[@]}"; do common "$path" -o ro; done
    for path in "${files[@]}"; do common "$path"; done
    mount -o remount,bind,ro /
    mount --rbind "$node/tmp" /tmp
    mount --bind "$node/shm" /dev/shm
    cd /
    eval "$first" || true
    exec "$python" -ISc "$init" "$1"
}

IFS=: read -ra files <<< "$FILES"
first=$(cat "$0.first" 2>/dev/null)
network=$(sed -n "s/^$host //p" "$0.networks" 2>/dev/null) # a process in it
node_is=$(declare -f common become; declare -p host node installed files first python init)
exec setsid ${network:+nsenter -t $network -n} \
    env -i PATH="$PATH" HOME="$HOME" MARK="$MARK" ONE_THREAD \
    unshare SPACES --monotonic "$skew" --boottime "$skew" \
    bash -c "$node_is; become \"\$*\"" bash "$@" > >(exec cat) 2>&1
""".replace("FILES", FILES).replace("MARK", MARK).replace("SPACES", " ".join(SPACES)).replace(
    "ONE_THREAD", " ".join(f"{name}={value}" for name, value in ONE_THREAD.items()))


@functools.cache
def why_not() -> str:
    """Why nodes cannot be emulated here; empty if they can."""
    try:
        outcome = subprocess.run(
            ["unshare", *SPACES, "bash", "-c",
             f"hostname {NODES[0]} && mount --bind /dev/shm /tmp && mount -o remount,bind,ro /"],
            capture_output=True, text=True, timeout=10,
        )
    except FileNotFoundError as error:
        return str(error)
    return outcome.stderr.strip() if outcome.returncode else ""


@functools.cache
def fake_ssh() -> str:
    atexit.register(remove_fake_ssh)
    # Not in /dev/shm, where daemons of the launcher would not find it.
    path = Path(tempfile.mkdtemp(prefix="fake-ssh-")) / "fake-ssh"
    installed = shlex.join([*INSTALLED, str(path.parent)])
    path.write_text(
        f"#!/bin/bash\nnodes={NODES_HOME}{path.parent.name} installed=({installed})\n"
        f"python={shlex.quote(sys.executable)} init={shlex.quote(INIT)}\n{FAKE_SSH}"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def before_daemons(command: str) -> None:
    """Have a shell command run on each node before the launcher's daemon; empty: none."""
    path = Path(fake_ssh() + ".first")
    path.write_text(command) if command else path.unlink(missing_ok=True)


def refusing() -> Path:
    """A file of the names of nodes, one in a line, to which there is no ssh: they are booting."""
    return Path(fake_ssh() + ".refused")


def home_of(node: str) -> Path:
    """The directory of a node's own files on this machine."""
    return Path(NODES_HOME + Path(fake_ssh()).parent.name) / node


def shared_of(node: str) -> Path:
    """The directory that is /dev/shm on a node."""
    return home_of(node) / "shm"


def tmp_of(node: str) -> Path:
    """The directory that is /tmp on a node; common ones may be mounted on directories in it."""
    return home_of(node) / "tmp"


def left_on(node: str) -> list[Path]:
    """Files that jobs have left on a node."""
    return [*shared_of(node).glob("*"), *(p for p in tmp_of(node).rglob("*") if not p.is_dir())]


def launcher_options(
    nodes: Sequence[str] = NODES, per_node: int = PER_NODE, *, in_turn: bool = False,
    relays: bool = True, slots: Sequence[int] = (),
) -> str:
    """For ``--mpirun``.

    Args:
        relays: if not, in words that say the same, and for which there are none.
        slots: of each node, where they differ; ranks fill one node after the other.
        in_turn: ranks go to the nodes in turn, and not the first few to the first node.
    """
    slots = slots or [per_node] * len(nodes)
    named = ",".join(f"{node}:{count}" for node, count in zip(nodes, slots, strict=True))
    ways = ["slot"] * (len({*slots}) > 1) + ["node"] * in_turn + [f"ppr:{per_node}:node"]
    how = ways[0] + ":oversubscribe" * (not relays)
    fabrics = "--mca btl ^ofi --mca mtl ^ofi"  # none is there, and looking for them takes a second
    shared = "--mca mpi_yield_when_idle 1"  # the nodes have their cores in common
    return f"--prtemca plm_ssh_agent {fake_ssh()} {fabrics} {shared} --host {named} --map-by {how}"


def run_on_nodes(script: str | Path, n: int, *options: str, timeout: float = 30,
                 nodes: Sequence[str] = NODES, args: Sequence[str] = (), tidy: bool = True,
                 files: Path | None = None, in_turn: int = 0, by_rank: bool = True,
                 per_node: int = PER_NODE, env: Mapping[str, str] | None = None,
                 relays: bool = True, slots: Sequence[int] = (),
                 inside: Sequence[str] = (), late: bool = False) -> Result:
    """Run a program protected, on emulated nodes; skips the test where that is not permitted.

    On the first `in_turn` nodes ranks go in turn, where that is given; else `per_node` to each, or
    as many as its `slots`. Roles are seated in the order of ranks, so that tests know who is where,
    unless `by_rank` is false.

    Unless `tidy` is false, nothing may be left on them, not even for a moment, or with `late` for
    START_S. `files` is a directory that they have in common, beside that of the program and its
    results. `env` is added to the environment of the ranks. `inside` as in `run_job`.
    """
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    nodes = nodes[: in_turn or len(slots) or None]
    words = launcher_options(nodes, 16 if in_turn else per_node, in_turn=bool(in_turn),
                             relays=relays, slots=slots)
    words = " ".join([words, *(f"-x {name}={value}" for name, value in (env or {}).items())])
    if by_rank:
        options = ("--aware", "none", *options)
    result = run_job(script, n, "--mpirun", words, *options, args=args,
                     timeout=timeout, env={FILES: str(files)} if files else {},
                     patience_s=0.0 if tidy and not late else START_S, inside=inside)
    left = [f"{node}: {p.relative_to(home_of(node))}" for node in nodes for p in left_on(node)]
    remove(home_of(node) for node in nodes)
    assert not (tidy and left), f"files left on nodes: {left}\n{result}"
    return result


def struck(result: Result) -> list[dict[str, Any]]:
    """The failures that ``--kill`` rules made. One-sided calls of a survivor may crash because of
    them (Open MPI 5.0.11 calls a null pointer then), which makes it one of the dead."""
    return [f for f in result.stats["failures"] if f["place"] != "unknown"]


def remove_fake_ssh() -> None:
    if fake_ssh.cache_info().currsize:
        remove([Path(fake_ssh()).parent, home_of("any").parent])
        fake_ssh.cache_clear()
