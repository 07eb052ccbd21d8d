"""From one launch of a job over several nodes to the next: what is told, who is left, what goes.

The supervisor looks after its own machine itself; here is what concerns the other nodes.
"""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from .. import settings
from ..errors import NotRecoverable
from ..fabric import story
from ..fabric.story import Checkpoint, Failure, Seats
from ..host import private
from ..host.outfile import tell
from ..host.tomlfile import read_text
from ..machine.topology import Layout
from ..protocol import salvage
from ..trace.records import CLOCK_MARK
from .eachhost import sweep
from .job import LAUNCHER_DIED, Cause
from .mpirun import launchers_name, named_hosts, on_hosts
from .reception import Peer
from .switchboard import Switchboard

RETURN_S, LOOK_S = 60.0, 1.0  # how long, and how often, it is looked whether nodes are there again
ANSWER_S = 1.0
SSH_PORT = 22


def past(directory: Path, options: settings.Options) -> dict[str, Any]:
    """What the ranks of a launch are told of the launches before: groups, committed version; and of
    the topology file its text, which they may not be able to read themselves."""
    events = story.read(directory)
    tables = [e.slot_group for e in events if isinstance(e, Seats)]
    versions = [e.version for e in events if isinstance(e, Checkpoint)]
    topology = _text(options.topology) if options.topology else ""
    return {
        "slot_group": tables[-1] if tables else (), "committed": max(versions, default=0),
        "topology": topology,
    }


def trace_file(directory: Path, rank: int, clock: str) -> BinaryIO:
    """A new file for what a rank of a launch traces, with the clock by which it does so."""
    path = directory / f"trace-{rank}{CLOCK_MARK}{clock.replace('/', '_')}"
    private.write(path, b"")
    return path.open("wb", buffering=0)


@functools.cache
def _text(path: str) -> str:
    """A file as it was at the first launch: all launches of a job are about the same machine."""
    return read_text(Path(path))


def cause_of(
    board: Switchboard, directory: Path, options: settings.Options, reason: str,
    fell: Sequence[Peer] = (),
) -> Cause:
    """Put the deaths of a launch into the job's story, and the rules that struck out of force.

    Args:
        fell: processes of the host whose loss has ended the launcher.

    Returns:
        Why the job is launched again.
    """
    noticed_at = time.monotonic()
    deaths = board.ranks.deaths  # those before are in the story
    if fell or reason == LAUNCHER_DIED:  # the others did not die by themselves
        deaths = [peer for peer in deaths if peer.struck or peer in fell]
    known = {(e.host, e.pid) for e in story.read(directory) if isinstance(e, Failure)}
    struck = {peer.struck[0] for peer in board.ranks.links.values() if peer.struck}
    struck |= board.ranks.spent
    for peer in deaths:
        if (peer.host, peer.pid) in known:
            continue  # told by who has tried to repair it
        place = options.kill[peer.struck[0]].place if peer.struck else "unknown"
        story.emit(directory, Failure(
            role=peer.role, index=peer.index, pid=peer.pid, place=place, host=peer.host
        ))
    options.kill = [rule for i, rule in enumerate(options.kill) if i not in struck]
    slots = tuple(sorted(peer.index for peer in deaths if peer.role == "slot"))
    died_at = min([noticed_at, *(peer.heard_at or peer.died_at for peer in board.ranks.deaths),
                   *(p.struck[1] for p in deaths if p.struck)])
    if board.cause and not board.ranks.entered:  # it came to nothing: it is the same failure still
        died_at = min(died_at, board.cause.died_at)
        slots = tuple(sorted({*slots, *board.cause.slots}))
    hosts = {peer.host for peer in board.ranks.links.values()}
    if board.cause:
        hosts |= set(board.cause.hosts)
    return Cause(reason, slots, died_at, noticed_at, tuple(sorted(hosts)),
                 addresses=tuple(addresses(board).items()))


def next_hosts(
    board: Switchboard, words: list[str], layout: Layout,
    ended: Callable[[], bool] = lambda: False, failed: Mapping[str, str] = MappingProxyType({}),
    fails: Callable[[str], bool] = lambda host: False, without: Set[str] = frozenset(),
) -> list[str]:
    """The launcher's options for the next launch: without the nodes that did not answer.

    A network that stands still is taken for lost nodes after some seconds. Where the job cannot go
    on without them they get a minute to answer again: what they have in memory is still there then.

    Args:
        ended: whether the user has asked for the job's end meanwhile.
        failed: why nothing could be started on some hosts, by the names that the launcher has.
        fails: whether that is still so on one of them.
        without: hosts that answer, and are left nevertheless (`side_to_leave`).

    Raises:
        NotRecoverable: no node is left.
    """
    named, address = named_hosts(words), addresses(board)
    names = {host: launchers_name(host, ip, named) for host, ip in address.items()}
    silent = board.lost - {"", socket.gethostname()}
    lost = silent | {host for host, name in names.items() if name in failed} | without

    def is_back(host: str) -> bool:
        name = names.get(host, host)
        return answers(address.get(host, host)) and not (name in failed and fails(name))

    deadline = time.monotonic() + RETURN_S
    if needed := not without and are_needed(board, lost, layout):
        tell(f"no answer from {' and '.join(sorted(lost))}, without which the job cannot go on; "
             f"waiting up to {RETURN_S:.0f} s for it")
    while needed and time.monotonic() < deadline and not ended():
        time.sleep(LOOK_S)
        lost = {host for host in lost if not is_back(host)}
        needed = are_needed(board, lost, layout)
    # Who has no rank yet was not there to be needed.
    back = {name for host, name in names.items() if host not in lost}
    gone = {names.get(host, host) for host in lost} | {name for name in failed if name not in back}
    if not gone:
        return words
    known = named if named else list(names.values())
    left = [name for name in dict.fromkeys((*known, *names.values())) if name not in gone]
    quiet = " and ".join(sorted(gone))
    if not left:
        raise NotRecoverable(f"no node is left: no answer from {quiet}")
    why = "going on" if gone <= {names.get(host, host) for host in without} else (
        f"no answer from {quiet}; going on")
    tell(f"{why} with {', '.join(left)}")
    return on_hosts(words, left, layout.processes)


def side_to_leave(board: Switchboard, pair: Set[str], layout: Layout) -> str:
    """Which of two hosts that do not reach each other the job goes on without: one that it can do
    without, of those the one with fewer processes, of those the one without slot 0."""
    free = [host for host in pair if not are_needed(board, {host}, layout)]
    ranks = [peer.host for peer in board.ranks.links.values()]
    first = board.ranks.homes.get(("slot", 0))
    return min(free or pair, key=lambda host: (ranks.count(host), host == first, host))


def addresses(board: Switchboard) -> dict[str, str]:
    """Of each host that the job has run on, in the order of ranks, then of launches before."""
    links = board.ranks.links
    found = {links[rank].host: links[rank].address for rank in sorted(links)}
    before = dict(board.cause.addresses) if board.cause else {}
    return {**found, **{host: ip for host, ip in before.items() if host not in found}}


def can_do_without(failed: Mapping[str, str], words: list[str], layout: Layout) -> bool:
    """Whether a first launch can be tried without these hosts: what they would have had of its
    processes is no more than its spares, so that none need be where another one was to be."""
    hosts = len(named_hosts(words))
    share = -(-layout.processes * len(failed) // max(1, hosts))
    return 0 < len(failed) < hosts and share <= layout.spares


def tell_failed(failed: Mapping[str, str]) -> str:
    """Say on which hosts nothing can be started, and why."""
    return "; ".join(f"nothing can be started on {host} ({why})" for host, why in failed.items())


def are_needed(board: Switchboard, lost: Set[str], layout: Layout) -> bool:
    """Whether without these hosts nobody is left, or a group lacks more than it survives."""
    if not {*addresses(board)} - lost:
        return bool(lost)
    events = board.read_story()
    if not any(isinstance(event, Checkpoint) for event in events):
        return False  # it begins anew
    tables = [event.slot_group for event in events if isinstance(event, Seats)]
    layout = replace(layout, slot_group=tuple(tables[-1])) if tables else layout
    gone = {role for role, host in board.ranks.homes.items() if host in lost}
    return any(len(gone & set(salvage.elements(layout, group))) > layout.strength
               for group in range(layout.groups))


def answers(host: str) -> bool:
    """Whether there is somebody; who refuses is, too."""
    try:
        socket.create_connection((host, SSH_PORT), ANSWER_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def clean_up(board: Switchboard, directory: Path, words: list[str]) -> None:
    """Remove what the job has on nodes where no process was left to do it, each by itself.

    Args:
        board: of the job's last launch.
        directory: of the job, the same on all nodes.
        words: the launcher's options.

    See `eachhost.sweep` for what it cannot do.
    """
    before = board.cause
    here = {peer.host for peer in board.ranks.links.values()}
    unclean = board.unclean | (set(before.hosts) - here if before else set())
    address, named = addresses(board), named_hosts(words)
    unclean -= {socket.gethostname()}
    unclean -= {host for host in board.lost if not answers(address.get(host, host))}
    if unclean:
        hosts = [launchers_name(host, address.get(host, ""), named) for host in sorted(unclean)]
        sweep(directory, words, hosts)
