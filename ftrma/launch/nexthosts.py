"""Chooses the hosts of the next launch of a job over several nodes, and waits for lost ones."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from ..fabric.story import Checkpoint, Seats
from ..host import timeouts
from ..host.errors import NotRecoverable
from ..host.outfile import tell
from ..machine.topology import Layout
from ..protocol import salvage
from .fewerhosts import UNKNOWN, Room
from .mpirun import launchers_name, named_hosts
from .ranklinks import RankLinks

LOOK_S = 1.0  # how often lost nodes are looked for
SSH_PORT = 22


class Next(NamedTuple):
    """The next launch.

    Attributes:
        words: the launcher's options.
        layout: roles that it has.
    """

    words: list[str]
    layout: Layout


def next_hosts(
    links: RankLinks, words: list[str], layout: Layout,
    ended: Callable[[], bool] = lambda: False, failed: Mapping[str, str] = MappingProxyType({}),
    fails: Callable[[str], bool] = lambda host: False, without: Set[str] = frozenset(),
    room: Room = UNKNOWN,
) -> Next:
    """Find the launcher's options for the next launch, without the nodes that did not answer.

    A network that stands still for some seconds makes nodes look lost. If the job cannot go on
    without these nodes, they get a minute to answer again, since their memory may still be there.

    Args:
        layout: layout of the launch that has ended.
        ended: says whether the user has asked for the job's end meanwhile.
        failed: why nothing could be started on a host, by the launcher's name of the host.
        fails: says whether this is still so for one of these hosts.
        without: hosts that answer but are left out nevertheless (`side_to_leave`).
        room: room on the hosts.

    Raises:
        NotRecoverable: no node is left, or there is too little room on the remaining ones.
    """
    named, address = named_hosts(words), addresses(links)
    names = {host: launchers_name(host, ip, named) for host, ip in address.items()}

    def name_of(host: str) -> str:
        return names.get(host, host)

    def is_back(host: str) -> bool:
        name = name_of(host)
        return answers(address.get(host, host)) and not (name in failed and fails(name))

    silent = {host for host in links.ranks.lost if not answers(address.get(host, host))}
    silent = (links.lost | silent) - {"", socket.gethostname()}
    lost = silent | {host for host, name in names.items() if name in failed} | without
    # Hosts of earlier launches that these words do not name were lost then, or left out.
    now = {peer.host for peer in links.ranks.links.values()}
    there = [name for host, name in names.items() if host in now or not named]

    def gone_with(lost: Set[str]) -> set[str]:
        # A host on which no rank has come up yet holds nothing that is needed.
        back = {name for host, name in names.items() if host not in lost}
        return {name_of(host) for host in lost} | ({*failed} - back)

    def left_without(lost: Set[str]) -> list[str]:
        gone = gone_with(lost)
        return [name for name in dict.fromkeys((*named, *there)) if name not in gone]

    others = bool({*named} - {*names.values(), *failed})
    together = links.ranks.one_node

    def needs(some: set[str]) -> bool:
        lacks_room = bool(some) and room.fitted(layout, left_without(some), together) is None
        return lacks_room or are_needed(links, some, layout, others)

    if not without:
        lost = wait_for(lost, needs, is_back, ended)
    gone, left = gone_with(lost), left_without(lost)
    if not gone:
        return Next(words, layout)
    quiet = " and ".join(sorted(gone))
    if not left:
        raise NotRecoverable(f"no node is left: no answer from {quiet}")
    chosen = gone <= {name_of(host) for host in without}
    fitted = room.layout_on(layout, left, together)
    tell(f"{'' if chosen else f'no answer from {quiet}; '}going on with {', '.join(left)}")
    if told := room.told(layout, fitted, left, together):
        tell(told)
    return Next(room.words_on(words, fitted.processes, left, together), fitted)


def wait_for(
    lost: set[str], are_needed: Callable[[set[str]], bool], is_back: Callable[[str], bool],
    ended: Callable[[], bool],
) -> set[str]:
    """Wait for hosts that the job needs; return those that are still lost afterwards."""
    if not are_needed(lost):
        return lost
    tell(f"no answer from {' and '.join(sorted(lost))}, without which the job cannot go on; "
         f"waiting up to {timeouts.RETURN.s:.0f} s for it")
    deadline = time.monotonic() + timeouts.RETURN.s
    while are_needed(lost) and time.monotonic() < deadline and not ended():
        time.sleep(LOOK_S)
        lost = {host for host in lost if not is_back(host)}
    return lost


def side_to_leave(links: RankLinks, pair: Set[str], layout: Layout) -> str:
    """Choose which of two hosts that do not reach each other the job leaves.

    It leaves the host that reaches fewer other hosts. If both reach equally many, it leaves a host
    that it can do without, then the one with fewer processes, then the one without slot 0.
    """
    cut_off = Counter(host for both in links.ranks.splits for host in both)
    most = max(cut_off[host] for host in pair)
    pair = {host for host in pair if cut_off[host] == most}
    free = [host for host in pair if not are_needed(links, {host}, layout)]
    ranks = [peer.host for peer in links.ranks.links.values()]
    first = links.ranks.homes.get(("slot", 0))
    return min(free or pair, key=lambda host: (ranks.count(host), host == first, host))


def addresses(links: RankLinks) -> dict[str, str]:
    """Return the addresses of hosts on which the job has run: by rank, then those of earlier
    launches."""
    found = {peer.host: peer.address for _, peer in sorted(links.ranks.links.items())}
    before = dict(links.cause.addresses) if links.cause else {}
    return {**found, **{host: ip for host, ip in before.items() if host not in found}}


def can_do_without(failed: Mapping[str, str], words: list[str], layout: Layout) -> bool:
    """Say whether a first launch can be tried without these hosts.

    This is so if their share of the processes is no larger than the number of spares, so that no
    other host gets more processes than planned.
    """
    hosts = len(named_hosts(words))
    share = -(-layout.processes * len(failed) // max(1, hosts))
    return 0 < len(failed) < hosts and share <= layout.spares


def first_without(
    failed: Mapping[str, str], words: list[str], layout: Layout, room: Room
) -> Next:
    """Find the launcher's options for a first launch without these hosts.

    Raises:
        NotRecoverable: there is no room on the others.
    """
    left = [host for host in named_hosts(words) if host not in failed]
    fitted = room.layout_on(layout, left)
    if told := room.told(layout, fitted, left):
        tell(told)
    return Next(room.words_on(words, fitted.processes, left), fitted)


def tell_failed(failed: Mapping[str, str]) -> str:
    """Say on which hosts nothing can be started, and why."""
    return "; ".join(f"nothing can be started on {host} ({why})" for host, why in failed.items())


def are_needed(
    links: RankLinks, lost: Set[str], layout: Layout, others: bool = False
) -> bool:
    """Say whether without these hosts nobody is left, or a group lacks more than it survives.

    Args:
        others: whether the launcher's words name hosts on which no rank has been.
    """
    if not {*addresses(links)} - lost and not others:
        return bool(lost)
    events = links.read_story()
    if not any(isinstance(event, Checkpoint) for event in events):
        return False  # without a checkpoint the job begins anew
    tables = [event.slot_group for event in events if isinstance(event, Seats)]
    layout = replace(layout, slot_group=tuple(tables[-1])) if tables else layout
    # The launch has not made its own parities yet if those of a former layout are still known.
    kinds = {kind for kind, _ in links.ranks.homes}
    former = [one for one in layout.former() if one.checksum_kind in kinds]
    layout = former[-1] if former and not links.ranks.entered else layout
    gone = {role for role, host in links.ranks.homes.items() if host in lost}
    return any(len(gone & set(salvage.elements(layout, group))) > layout.strength
               for group in range(layout.groups))


def answers(host: str) -> bool:
    """Say whether a host answers; a host that refuses the connection also answers."""
    try:
        socket.create_connection((host, SSH_PORT), timeouts.HOST.s).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
