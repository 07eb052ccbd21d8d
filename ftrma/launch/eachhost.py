"""Starts a process on each host of a job, by a separate launcher for each host.

If a launch does not come up, the launcher at best says that some daemon did not. So each host is
tried alone, in the same way in which ranks are started there: by ssh or the batch system, in the
directory of a launch, with Python and ftrma. A bad host does not disturb the others, and is known
by name. A job's files on its nodes are removed in the same way.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..host import timeouts
from .guardian import end_launcher
from .mpirun import (
    alone_on,
    launcher_environment,
    make_session,
    mpirun_command,
    named_hosts,
    once_per_node,
    words_for_nodes,
)

AT_ONCE = 16  # each launcher is a process of some MB on this host
LOOK_S = 0.05  # time between looks at a launcher
OURS = "ftrma: error: "  # errors of `host.nodedirectory` begin so
# Lines of the launcher, and of srun, that begin so do not say why it fails.
NO_REASONS = ("-", "[", "srun: cluster configuration lacks")
PROBE = (sys.executable, "-c", "import ftrma")
# Removes the whole directory, unless the supervisor still reads the job's story from it.
REMOVE = ("sh", "-c", 'rm -rf "$0/$(uname -n)"; [ -e "$0/control" ] || rm -rf "$0"')


def failing(directory: Path, words: list[str]) -> dict[str, str]:
    """Find on which hosts of a launch over several hosts nothing can be started, and why.

    Args:
        directory: of the job, the same on all nodes.
        words: the launcher's options.
    """
    hosts = named_hosts(words)
    return failing_of(directory, words, hosts) if len(hosts) > 1 else {}


def failing_of(directory: Path, words: list[str], hosts: Sequence[str]) -> dict[str, str]:
    """Find on which of these hosts nothing can be started, and why; arguments: see `failing`."""
    said = start_on_each(directory, words, hosts, PROBE)
    return {host: why for host, why in said.items() if why}


def sweep(directory: Path, words: list[str], hosts: Sequence[str] = ()) -> None:
    """Remove a job's files on these hosts, or on all that the launcher's options name.

    This takes a bounded time; files on hosts that cannot be reached stay. Arguments: see `failing`.
    """
    command = [*REMOVE, str(directory)]
    if hosts or (hosts := named_hosts(words)):
        start_on_each(directory, words, hosts, command)
    else:  # a batch system knows them
        deadline = time.monotonic() + timeouts.EACH_HOST.s
        Started(directory, once_per_node(words), command).end(deadline)


def start_on_each(
    directory: Path, words: list[str], hosts: Sequence[str], command: Sequence[str]
) -> dict[str, str]:
    """Run a command on each host and wait for it; return by host why it failed, or "".

    Arguments: see `failing`.
    """
    found: dict[str, str] = {}
    for first in range(0, len(hosts), AT_ONCE):
        some = {host: Started(directory, alone_on(words, host), command)
                for host in hosts[first : first + AT_ONCE]}
        deadline = time.monotonic() + timeouts.EACH_HOST.s
        found |= {host: started.end(deadline) for host, started in some.items()}
    return found


class Started:
    """A launcher that starts a command somewhere.

    Args:
        directory: of the job, the same on all nodes.
        words: the launcher's options.
        environment: further variables.
    """

    def __init__(self, directory: Path, words: list[str], command: Sequence[str],
                 environment: Mapping[str, str] | None = None) -> None:
        session = make_session(directory)
        self.log = session / "said"
        with self.log.open("wb") as said:
            self.launcher = subprocess.Popen(
                [*mpirun_command(None, session, [*words_for_nodes(session), *words]), *command],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                env={**os.environ, **launcher_environment(), **(environment or {})},
                start_new_session=True,
            )

    def over(self) -> bool:
        """Say whether nothing more will come from it."""
        return self.launcher.poll() is not None or self.refused()

    def refused(self) -> bool:
        with contextlib.suppress(OSError):
            return OURS.encode() in self.log.read_bytes()
        return False

    def end(self, deadline: float) -> str:
        """Wait for the end, up to a time on the monotonic clock; return why it failed, or "".

        The launcher goes on waiting for a daemon that ftrma's own code on a host has refused. So
        the wait also ends with a message of that code.
        """
        while not self.over() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        end_launcher(self.launcher)
        if not self.launcher.returncode:
            return ""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        # The first line says most.
        lines = [line.strip() for line in text.splitlines()]
        told = [line.removeprefix(OURS) for line in lines if line.startswith(OURS)]
        told += [line for line in lines if line and not line.startswith(NO_REASONS)]
        late = f"no answer within {timeouts.EACH_HOST.s:.0f} s"
        return told[0] if told else late if self.launcher.returncode < 0 else (
            f"the launcher ends with status {self.launcher.returncode}")
