"""Carries a job over several nodes from one launch to the next: facts, deaths, cleaning up.

The supervisor looks after its own machine; this module looks after the other nodes.
"""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..fabric import spillfiles, story
from ..fabric.story import Checkpoint, Degraded, Failure, Seats
from ..host import private
from ..host.tomlfile import read_text
from ..settings import options as settings
from .connections import Peer
from .eachhost import sweep
from .job import LAUNCHER_DIED, Cause
from .mpirun import launchers_name, named_hosts
from .nexthosts import addresses, answers
from .ranklinks import RankLinks
from .rankstate import RankState


def past(
    directory: Path, options: settings.Options, begun_from: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the facts for the ranks of a launch: groups and committed version of the launches
    before.

    They include the text of the topology file, since some nodes may not have the file, and the key
    for files of checkpoints, since the user may have a different key there.

    Args:
        begun_from: see `Job.begun_from`.
    """
    events = story.read(directory)
    tables = [e.slot_group for e in events if isinstance(e, Seats)]
    versions = [e.version for e in events if isinstance(e, Checkpoint)]
    weakened = [e.weakened for e in events if isinstance(e, Degraded)]
    topology = _text(options.topology) if options.topology else ""
    if begun_from:
        versions.append(begun_from["version"])
    keyed = begun_from or options.spill
    return {
        "slot_group": tables[-1] if tables else (), "committed": max(versions, default=0),
        "topology": topology, "files": begun_from, "weakened": max(weakened, default=0),
        "files_key": spillfiles.key().text() if keyed else "",
    }


def trace_file(directory: Path, of: str, clock: str) -> BinaryIO:
    """Make a file for the trace of a rank; its name contains the clock of the trace.

    Args:
        of: the rank; for a process that came later also its attempt, since numbers are used again.
    """
    from ..trace.records import CLOCK_MARK  # it needs NumPy, which most supervisors do not load

    path = directory / f"trace-{of}{CLOCK_MARK}{clock.replace('/', '_')}"
    private.write(path, b"")
    return path.open("wb", buffering=0)


@functools.cache
def _text(path: str) -> str:
    """Return the text of a file as it was at the first launch: the machine stays the same."""
    return read_text(Path(path))


def cause_of(
    links: RankLinks, directory: Path, options: settings.Options, reason: str,
    lost: Sequence[Peer] = (),
) -> Cause:
    """Put the deaths of a launch into the job's story, and drop the rules that have struck.

    Args:
        lost: processes of the host whose loss has ended the launcher.

    Returns:
        Why the job is launched again.
    """
    noticed_at = time.monotonic()
    deaths = own_deaths(links.ranks, reason, lost)
    tell_deaths(directory, options, deaths)
    disarm(options, links.ranks)
    slots = {peer.index for peer in deaths if peer.role == "slot"}
    died_at = first_death(links.ranks, deaths, noticed_at)
    hosts = {peer.host for peer in links.ranks.links.values()}
    before = links.cause
    # A launch that did not come up belongs to the failure before it.
    if before and not links.ranks.entered:
        died_at = min(died_at, before.died_at)
        slots |= {*before.slots}
    if before:
        hosts |= {*before.hosts}
    return Cause(reason, tuple(sorted(slots)), died_at, noticed_at, tuple(sorted(hosts)),
                 addresses=tuple(addresses(links).items()), one_node=links.ranks.one_node)


def own_deaths(ranks: RankState, reason: str, lost: Sequence[Peer]) -> list[Peer]:
    """Return the open deaths that are failures; a launcher that has ended took all other ranks with
    it."""
    if not lost and reason != LAUNCHER_DIED:
        return ranks.failures()
    return [peer for peer in ranks.deaths if peer.struck or peer in lost]


def tell_deaths(directory: Path, options: settings.Options, deaths: Sequence[Peer]) -> None:
    """Put deaths into the story, except those that a repair has put there."""
    known = {(e.host, e.pid) for e in story.read(directory) if isinstance(e, Failure)}
    for peer in deaths:
        if (peer.host, peer.pid) not in known:
            place = options.kill[peer.struck[0]].place if peer.struck else "unknown"
            story.emit(directory, Failure(
                role=peer.role, index=peer.index, pid=peer.pid, place=place, host=peer.host
            ))


def disarm(options: settings.Options, ranks: RankState) -> None:
    """Drop the rules of ``--kill`` that have struck, so that the next launch is spared."""
    struck = {peer.struck[0] for peer in ranks.links.values() if peer.struck} | ranks.spent
    options.kill = [rule for i, rule in enumerate(options.kill) if i not in struck]


def first_death(ranks: RankState, deaths: Sequence[Peer], noticed_at: float) -> float:
    """Return when the first sign of a failure was noticed, by time.monotonic()."""
    return min([noticed_at, *(peer.heard_at or peer.died_at for peer in ranks.deaths),
                *(peer.struck[1] for peer in deaths if peer.struck)])


def clean_up(links: RankLinks, directory: Path, words: list[str]) -> None:
    """Remove the job's files on nodes where no process was left to do so.

    Args:
        links: links of the job's last launch.
        directory: of the job, the same on all nodes.
        words: the launcher's options.

    See `eachhost.sweep` for its limits.
    """
    before = links.cause
    here = {peer.host for peer in links.ranks.links.values()}
    unclean = links.unclean | (set(before.hosts) - here if before else set())
    address, named = addresses(links), named_hosts(words)
    unclean -= {socket.gethostname()}
    unclean -= {host for host in links.lost if not answers(address.get(host, host))}
    if unclean:
        hosts = [launchers_name(host, address.get(host, ""), named) for host in sorted(unclean)]
        sweep(directory, words, hosts)
