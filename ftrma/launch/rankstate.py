"""The state of the ranks of a job over several nodes, as the supervisor knows it.

`ranklinks` and `rankmessages` write it; `severalnodes` and `failover` base their decisions on it.
Nothing in this module sends or waits.

Invariant: a rank is dead exactly if its link ended before it said goodbye and before all were told
to end. The other ranks notice a death by themselves and repair it; the death is open until they say
that they have done so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..fabric.saved import Saved
from ..host import timeouts
from .connections import Peer

SETTLE_S = 0.1  # deaths with one cause are reported within milliseconds of each other


@dataclass
class Arrivals:
    """The arrivals of the ranks on one host, which the launcher starts all at once.

    Attributes:
        expected: number of these ranks; 0 if it is not known.
        came: number of ranks that have come. newest_at: when the newest one came, by
            time.monotonic().
    """

    expected: int
    came: int = 0
    newest_at: float = 0.0

    def note(self) -> None:
        """Note that one more rank has come."""
        self.came, self.newest_at = self.came + 1, time.monotonic()

    @property
    def lacking(self) -> bool:
        """Say whether some ranks have not come, although the newest one came long ago."""
        return self.came < self.expected and time.monotonic() - self.newest_at > timeouts.SIBLINGS.s


@dataclass
class Split:
    """Two nodes that do not reach each other, as one of them reports repeatedly.

    Attributes:
        since, newest: when this was reported first and last, by time.monotonic().
        told: whether the user was told.
    """

    since: float
    newest: float
    told: bool = False


@dataclass
class RankState:
    """Everything that the links of ranks have told so far."""

    links: dict[int, Peer] = field(default_factory=dict)  # by rank
    deaths: list[Peer] = field(default_factory=list)  # not repaired
    repairing: float = 0.0  # since when a repair is under way; 0: there is none
    working: float = 0.0  # when a rank last said that it moves bytes, or computes
    late: set[int] = field(default_factory=set)  # ranks that computed for long in this repair
    wish: str = ""  # why the ranks ask for a relaunch
    aborted: int | None = None  # exit status
    why_aborted: str = ""  # in words; empty if the rank that aborted has said it
    owner: int | None = None  # rank that reports the error
    entered: bool = False  # the program has begun
    attempt: int = 1  # the newest one, counted through all launches
    log_peaks: dict[int, int] = field(default_factory=dict)  # bytes, by slot
    # Hosts of the roles that have vaults, as of the last time when no death was open.
    homes: dict[tuple[str, int], str] = field(default_factory=dict)
    spared: set[int] = field(default_factory=set)  # dead ranks without which the others go on
    tells: bool = False  # a framework is told of deaths; only slot 0's is repaired
    told: list[Peer] = field(default_factory=list)  # ranks whose deaths were told in this attempt
    one_node: bool = False  # a framework was told of deaths, and all processes were on one node
    spent: set[int] = field(default_factory=set)  # --kill rules that have struck agents
    arrivals: dict[str, Arrivals] = field(default_factory=dict)  # by host
    splits: dict[frozenset[str], Split] = field(default_factory=dict)  # by their hosts
    unborn: set[int] = field(default_factory=set)  # died between their output and their link
    lost: set[str] = field(default_factory=set)  # hosts without which the others go on
    there: set[int] = field(default_factory=set)  # dead ranks whose node is still there
    relayed: bool = False  # the launch does not end with a node, see `relays`
    unheeded: list[tuple[int, int]] = field(default_factory=list)  # signals, and slots
    saved: Saved | None = None  # as slot 0's process has last told
    killed: tuple[int, int] | None = None  # a slot that died of a signal handed on to it

    # -- what changes -------------------------------------------------------------------------

    def note_death(self, peer: Peer) -> None:
        """Note that a rank has died: its death is open, unless the others go on without the
        rank."""
        if self.tells and not self.repairing and (peer.role, peer.index) != ("slot", 0):
            self.told.append(peer)
            self.spared.add(peer.rank)
        if peer.rank not in self.spared:
            self.deaths.append(peer)

    def note_tells(self, tells: bool) -> None:
        """Note whether a framework is told of deaths from now on."""
        self.tells = tells
        self.one_node |= tells and len({peer.host for peer in self.links.values()}) == 1
        noticed, self.deaths = self.deaths, []
        for peer in noticed:
            self.note_death(peer)
        self.find_homes()

    def note_repaired(self, dead: set[int]) -> None:
        """Note that the deaths of these ranks are repaired."""
        self.deaths = [peer for peer in self.deaths if peer.rank not in dead]
        self.find_homes()

    def find_homes(self) -> None:
        """Note where the roles are, unless a death is open, since its repair may still move
        them."""
        if not self.deaths:
            self.homes |= {
                (peer.role, peer.index): peer.host for peer in self.links.values()
                if peer.open and peer.role in ("slot", "checksum")}

    def note_split(self, hosts: frozenset[str]) -> None:
        """Note that one of these two hosts has said that it does not reach the other."""
        now = time.monotonic()
        self.splits.setdefault(hosts, Split(now, now)).newest = now

    # -- what is known ------------------------------------------------------------------------

    def living(self) -> list[Peer]:
        """Return the links that are open."""
        return [peer for peer in self.links.values() if peer.open]

    def hosts_alive(self) -> set[str]:
        """Return the hosts on which some rank is reached."""
        return {peer.host for peer in self.living()}

    def over(self, processes: int) -> bool:
        """Say whether the job is over: a rank aborted it, or all its processes have said
        goodbye."""
        if self.aborted is not None:
            return True
        everybody = self.links.values()
        return (len(everybody) == processes and any(peer.goodbye for peer in everybody)
                and all(peer.goodbye or not peer.open for peer in everybody))

    def failures(self) -> list[Peer]:
        """List the open deaths; if no rank is left, list all ranks."""
        everybody = list(self.links.values())
        if self.deaths and not any(peer.open or peer.goodbye for peer in everybody):
            return everybody
        return self.deaths

    def failure(self) -> str:
        """Say who died, once all deaths with one cause are known; empty if nobody did."""
        if not self.deaths or time.monotonic() - self.deaths[0].died_at < SETTLE_S:
            return ""
        dead = [(peer.name, peer.host) for peer in self.failures()]
        return describe(dead, [peer.host for peer in self.links.values()])

    def is_alone(self, peer: Peer) -> bool:
        """Say whether a rank is the only one of its host, and this is not the host of rank 0, whose
        agent is the hub of the mirror."""
        hosts = [p.host for p in self.links.values()]
        first = self.links.get(0)
        return hosts.count(peer.host) == 1 and first is not None and peer.host != first.host

    def is_first_host(self, host: str) -> bool:
        """Say whether a host is that of rank 0, whose agent is the hub of the mirror."""
        first = self.links.get(0)
        return first is None or host == first.host

    def is_lost(self, host: str) -> bool:
        """Say whether no rank of a host is left and the others can go on without the host."""
        there = [peer for peer in self.links.values() if peer.host == host]
        return self.can_lose(host) and not any(peer.open or peer.goodbye for peer in there)

    def can_lose(self, host: str) -> bool:
        """Say whether the launch can go on if a host is lost."""
        return self.relayed and self.entered and not self.is_first_host(host)

    def nodes_gone(self) -> bool:
        """Say whether a host with open deaths has no rank left: it is lost, or as good as lost.

        If the dead rank was the only one of its host, the host does not count as lost as long as
        its agent answers, nor if the rank was a spare.
        """
        living = {p.host for p in self.links.values() if p.open or p.goodbye}
        return any(peer.host not in living and not self._may_be_there(peer)
                   for peer in self.deaths)

    def _may_be_there(self, peer: Peer) -> bool:
        if self.relayed and not self.is_first_host(peer.host):
            return True
        soon = time.monotonic() - peer.died_at < timeouts.ALONE.s
        there = peer.role == "spare" or peer.rank in self.there
        return self.is_alone(peer) and (there or soon)


def describe(dead: list[tuple[str, str]], hosts: list[str]) -> str:
    """Say who died where: "slot 3 on node2, all processes on node3 died". Pure.

    Args:
        dead: name and host of each dead process.
        hosts: the host of each process of the job.
    """
    if len(dead) == len(hosts):
        return "all processes died"
    by_host: dict[str, list[str]] = {}
    for name, host in dead:
        by_host.setdefault(host, []).append(name)
    parts = [
        f"{'all processes' if 1 < len(n) == hosts.count(h) else ' and '.join(n)} on {h}"
        for h, n in by_host.items()
    ]
    return ", ".join(parts) + " died"
