"""Slurm itself on one machine: a controller and three nodes, each in namespaces of its own.

Nodes are named by addresses as in `nodes`, and have a host name, a /dev/shm and processes of their
own; all else is common. Needs root, and Debian's slurmctld, slurmd, slurm-client and munge, or the
same of another system.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from jobs import MARK, kill_marked
from nodes import NODES

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "salloc", "scancel", "sinfo",
            "squeue", "unshare")
PATIENCE_S = 30.0
SLOTS = 3
KILL_WAIT_S = 5
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.sock
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait={kill_wait}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = """
hostname {node}
mount --bind {home}/shm-{node} /dev/shm
exec slurmd -D -N {node}
"""


@functools.cache
def why_not() -> str:
    """Why there is no Slurm here; empty if there is."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=search_path())]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return "" if os.geteuid() == 0 else "nodes of Slurm need root here"


def search_path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment."""
    held = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def wait_until(
    condition: Callable[[], bool], what: str, about: Callable[[], str] = str
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {PATIENCE_S} s; {about()}"
        time.sleep(0.05)


class Cluster:
    """A cluster as long as the context lasts.

    Args:
        home: an empty directory with a short path.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.mark = home, f"slurm-{home.name}"
        self.environment = {**os.environ, "PATH": search_path(), MARK: self.mark,
                            "SLURM_CONF": f"{home}/slurm.conf"}
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Cluster:
        port, *ports = free_ports(1 + len(NODES))
        text = CONFIGURATION.format(host=socket.gethostname(), port=port, home=self.home,
                                    kill_wait=KILL_WAIT_S)
        for node, its in zip(NODES, ports, strict=True):
            text += f"NodeName={node} NodeAddr={node} Port={its} CPUs=8 State=UNKNOWN\n"
            (self.home / f"spool-{node}").mkdir()
        (self.home / "slurm.conf").write_text(text)
        (self.home / "state").mkdir()
        (self.home / "key").write_bytes(os.urandom(1024))
        (self.home / "key").chmod(0o600)
        munge = [f"--{name}={self.home}/munge.{name}" for name in
                 ("socket", "pid-file", "log-file", "seed-file")]
        munge[0] = f"--socket={self.home}/munge.sock"
        self.run("munged", "--force", f"--key-file={self.home}/key", *munge)
        self.run("slurmctld", "-i", "-c")
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        for node in self.nodes.values():
            node.kill()
            node.wait()
        kill_marked(self.mark)

    def start(self) -> None:
        """Power on the nodes that are off, and wait until none has work."""
        for node in NODES:
            if node not in self.nodes:
                self.nodes[node] = self._boot(node)
        wait_until(lambda: self.idle() == len(NODES), "all nodes are idle")

    def _boot(self, node: str) -> subprocess.Popen[bytes]:
        (self.home / f"shm-{node}").mkdir()
        spaces = ("--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc",
                  "--propagation", "private")
        return subprocess.Popen(
            ["unshare", *spaces, "bash", "-c", NODE.format(node=node, home=self.home)],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)

    def kill(self, node: str) -> None:
        """Power a node off: all its processes end at once, and its memory is lost."""
        self.nodes[node].send_signal(signal.SIGKILL)
        self.nodes.pop(node).wait()
        shutil.rmtree(self.home / f"shm-{node}")

    def idle(self) -> int:
        """The number of nodes that wait for work."""
        return self.run("sinfo", "-h", "-N", "-o", "%t", check=False).split().count("idle")

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of Slurm and return its output."""
        done = subprocess.run(command, env=self.environment, timeout=PATIENCE_S, check=False,
                              capture_output=True, text=True)
        assert not check or done.returncode == 0, done
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script and return the job's number; the output goes to ``said``."""
        path = self.home / "script.sh"
        path.write_text(f"#!/bin/bash\nexport PATH={shlex.quote(search_path())}\n{script}\n")
        (self.home / "said").write_text("")
        return self.run("sbatch", "--parsable", f"--nodes={len(NODES)}",
                        f"--ntasks-per-node={SLOTS}", f"--output={self.home}/said", *options,
                        str(path)).strip()

    def from_outside(self, command: str) -> subprocess.Popen[str]:
        """Run a command of a shell in an allocation, on a host that is not one of its nodes; the
        output goes to ``said``."""
        with (self.home / "said").open("w") as said:
            return subprocess.Popen(
                ["salloc", f"--nodes={len(NODES)}", f"--ntasks-per-node={SLOTS}", "bash", "-c",
                 command], env=self.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                text=True, start_new_session=True)

    def said(self) -> str:
        return (self.home / "said").read_text(errors="replace")

    def left(self) -> list[str]:
        """Files that are in the shared memory of nodes that have not been powered off."""
        return [str(path) for node in self.nodes for path in
                (self.home / f"shm-{node}").rglob("*") if path.is_file()]
