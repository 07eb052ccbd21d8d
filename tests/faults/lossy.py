"""A network of a job's own, in which packets can be lost between chosen ports."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from byhand import Job

# Its interface is one that the launcher takes for one to other machines.
MAKE = """set -e
ip link add one type veth peer two
for name in lo one two; do ip link set $name up; done
ip addr add 10.77.0.1/24 dev one
exec "$@"
"""
ALONE = ("unshare", "--net", "sh", "-c", MAKE, "sh")  # for `byhand.Job`


def why_no_network() -> str:
    """Why packets cannot be lost here; empty if they can."""
    if not shutil.which("ip"):
        return "there is no ip"
    lose = ["ip", "rule", "add", "ipproto", "tcp", "sport", "1", "blackhole"]
    done = subprocess.run([*ALONE, *lose], capture_output=True, text=True, timeout=10)
    return done.stderr.strip() if done.returncode else ""


def route(job: Job, *changes: str) -> None:
    """Change the routing of the job's network, in one go."""
    for version in ("-4", "-6"):
        command = ["nsenter", "-t", str(job.process.pid), "-n", "ip", version, "-batch", "-"]
        subprocess.run(command, input="\n".join(changes) + "\n", text=True, check=True, timeout=10)


@contextmanager
def losing(job: Job, ways: set[str]) -> Iterator[None]:
    """Lose all packets of TCP that go these ways, such as ``sport 5000 dport 6000``."""
    rules = [f"pref 10 ipproto tcp {way} blackhole" for way in sorted(ways)]
    # The rules stand in front of the one for addresses of this machine.
    route(job, "rule add pref 20 lookup local", "rule del pref 0",
          *(f"rule add {rule}" for rule in rules))
    yield
    route(job, *(f"rule del {rule}" for rule in rules), "rule add pref 0 lookup local",
          "rule del pref 20")
