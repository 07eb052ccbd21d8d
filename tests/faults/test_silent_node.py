"""A node vanishes from the network, without a word: power, a cable, a switch.

Law: it is noticed after the time that the user has chosen. The others go on in place, with the same
bits. When the network is back, what is left on the node ends, and nothing of it is taken.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from byhand import Job, same
from jobs import kill_marked, marked, remove
from lossy import ALONE, losing, why_no_network
from nodes import NODES, home_of, launcher_options, remove_fake_ssh, why_not

OPTIONS = ("--spares", "3", "--group-size", "2", "--interval", "0.05", "--timeout",
           "node-silent=2")
LOST = f"all processes on {NODES[2]} died; it counts as lost"
COMES_BACK_S = 6.0  # behind the end of the node's connections on both sides


def processes_of(job: Job, node: str) -> list[int]:
    """Processes of the job on a node, its daemon and its agent too."""
    found = []
    for pid in marked(job.mark):
        with contextlib.suppress(OSError):
            said = subprocess.run(["nsenter", "-t", str(pid), "-u", "hostname"], text=True,
                                  capture_output=True, timeout=10)
            if said.stdout.strip() == node:
                found.append(pid)
    return found


def sockets_of(pids: list[int]) -> set[str]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            names = [path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir()]
            found |= {str(name)[8:-1] for name in names if str(name).startswith("socket:")}
    return found


def ports_of(job: Job, pids: list[int]) -> set[tuple[int, int]]:
    """Local and remote ports of the TCP connections of some processes of a job."""
    inodes, found = sockets_of(pids), set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{job.process.pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in inodes:
                local, remote = (int(end.rpartition(":")[2], 16) for end in words[1:3])
                found.add((local, remote))
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def ways_of(job: Job, node: str) -> set[str]:
    """The ways of all packets between this node and the others, or the supervisor."""
    ports = ports_of(job, processes_of(job, node))
    ways = {f"sport {a} dport {b}" for one, other in ports if other
            for a, b in ((one, other), (other, one))}
    return ways | {f"dport {local}" for local, remote in ports if not remote}


@pytest.mark.nightly
@pytest.mark.parametrize("frozen", [False, True])
def test_a_node_vanishes_and_comes_back(tmp_path: Path, frozen: bool) -> None:
    """A frozen node does not run meanwhile, as a virtual machine that is moved; so it does not find
    out that it was given up before it runs on."""
    if why := why_not() or why_no_network():
        pytest.skip(f"a node cannot be cut off here: {why}")
    (undisturbed := tmp_path / "undisturbed").mkdir()
    (disturbed := tmp_path / "disturbed").mkdir()
    job = Job(undisturbed, *OPTIONS, slots=4, nap="0")
    assert job.process.wait(60) == 0
    expected = job.results()
    words = f"{launcher_options(NODES, 3)} -x NAP=0.3"
    job = Job(disturbed, "--mpirun", words, *OPTIONS, slots=4,
              inside=ALONE)
    try:
        job.until((disturbed / "step-9").exists)
        began = time.monotonic()
        pids = processes_of(job, NODES[2])
        with losing(job, ways_of(job, NODES[2])):
            signal_all(pids if frozen else [], signal.SIGSTOP)
            said = job.read_until(LOST, 30)
            noticed_s = time.monotonic() - began
            time.sleep(COMES_BACK_S)
        signal_all(pids if frozen else [], signal.SIGCONT)
        job.until(lambda: not [pid for pid in processes_of(job, NODES[2])
                               if b"ftrma.program" in Path(f"/proc/{pid}/cmdline").read_bytes()])
        said += job.process.communicate(timeout=60)[0]
        assert job.process.returncode == 0, said
        assert same(job.results(), expected), said
        assert "launching the job again" not in said and noticed_s < 6, (noticed_s, said)
    finally:
        kill_marked(job.mark)
        remove([home_of(node) for node in NODES])
        remove_fake_ssh()
