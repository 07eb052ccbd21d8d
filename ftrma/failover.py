"""From one launch of a job over several nodes to the next: what is told, who is left, what goes.

The supervisor's own machine is looked after by `launch`; here is what concerns the other nodes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import hosts, settings
from .errors import FtrmaError
from .switchboard import Cause, Switchboard
from .topology import Layout
from .world import emit, read_events

CLEAN_UP_S = 10.0  # starting one process per node takes a second or two


def past(directory: Path, options: settings.Options) -> dict[str, Any]:
    """What the ranks of a launch are told of the launches before: groups, committed version; and
    the topology file's text, which they may not be able to read themselves."""
    story = read_events(directory)
    tables = [e["slot_group"] for e in story if e["event"] == "seats"]
    versions = [e["version"] for e in story if e["event"] == "checkpoint"]
    topology = Path(options.topology).read_text() if options.topology else ""
    return {
        "slot_group": tables[0] if tables else [], "committed": max(versions, default=0),
        "topology": topology,
    }  # fmt: skip


def cause_of(board: Switchboard, directory: Path, options: settings.Options, reason: str) -> Cause:
    """Put the deaths of a launch into the job's story, and the rules that struck out of force.

    Returns:
        Why the job is launched again.
    """
    noticed_at = time.monotonic()
    deaths = board.ranks.deaths
    struck = {peer.struck[0] for peer in board.ranks.links.values() if peer.struck}
    for peer in deaths:
        place = options.kill[peer.struck[0]].place if peer.struck else "unknown"
        emit(
            directory, "failure", role=peer.role, index=peer.index, pid=peer.pid, host=peer.host,
            place=place,
        )  # fmt: skip
    options.kill = [rule for i, rule in enumerate(options.kill) if i not in struck]
    slots = tuple(sorted(peer.index for peer in deaths if peer.role == "slot"))
    if deaths:
        noticed_at = deaths[0].died_at
    died_at = min([noticed_at, *(p.struck[1] for p in deaths if p.struck)])
    stale = board.cause.stale if board.cause else ()
    return Cause(reason, slots, died_at, noticed_at, (*stale, *sorted(board.ranks.files)))


def next_hosts(board: Switchboard, words: list[str], layout: Layout) -> list[str]:
    """The launcher's options for the next launch: without the nodes that did not answer.

    Raises:
        FtrmaError: no node is left.
    """
    lost = board.lost - {"", socket.gethostname()}
    if not lost:
        return words
    known = [board.ranks.links[rank].host for rank in sorted(board.ranks.links)]
    left = [host for host in dict.fromkeys(known) if host not in lost]
    names = " and ".join(sorted(lost))
    if not left:
        raise FtrmaError(f"no node is left: no answer from {names}")
    sys.stderr.write(f"ftrma: no answer from {names}; going on with {', '.join(left)}\n")
    return hosts.on_hosts(words, left, layout.processes)


def clean_up(command: list[str], directory: Path, stale: set[str]) -> None:
    """Remove the job's directory and the library's files on each node, by the launcher.

    Args:
        command: the launcher, with options that start one process per node.
        stale: beginnings of the names of the library's files.

    Bounded in time; what cannot be reached stays.
    """
    script = 'rm -rf "$0"; for f in "$@"; do rm -f "/dev/shm/$f"*; done'
    with subprocess.Popen(
        [*command, "sh", "-c", script, str(directory), *sorted(stale)], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as launcher:  # fmt: skip
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(CLEAN_UP_S)
        finally:
            with contextlib.suppress(OSError):
                os.killpg(launcher.pid, signal.SIGKILL)
