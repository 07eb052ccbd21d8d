"""What the ranks of a job over several nodes say, at the supervisor (see `link`).

It knows every rank by its link: who has come, who died, who reports the error that ends the job,
with which status it ends. Connections are the business of its `reception`.

Invariant: a rank is dead exactly if its link ended before it said goodbye and before everybody was
told to end. The others notice a death by themselves and repair it; until they say that they have,
it is open. Deaths that follow each other at once (a node that goes down takes all its ranks along)
belong to one failure; so do errors that living ranks see because of it, hence nobody may report an
error before SETTLE_S have passed without an open death.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ..fabric import link
from ..fabric.absence import Stopped
from ..fabric.listening import Bind
from ..fabric.story import Event, Phases, Recovery, parse, plain
from ..host.key import Key
from ..host.outfile import tell
from ..native import job
from ..native.shared import Proc
from ..protocol.job_end import SUSPECT_S, OwnExit, why_aborted
from .job import ABSENT, LATE, Cause
from .reception import Peer, Reception

SIBLINGS_S = 10.0  # processes of a node begin within milliseconds, and read the same files
KINDS = ("link", "out", "err", "in", "trace", "split")  # of connections
SETTLE_S = 0.1  # deaths with one cause are told within milliseconds of each other
LATE_S = 5.0  # a repair that waits so long for a process that computes: that is told
ASK_S = 0.5  # a process computes for longer now and then, and does not wait
SILENT_S = 2.0  # who is executed answers within milliseconds
ALONE_S = 1.5  # the agent of the node of who died answers within milliseconds, if it is there
END_S = 2.0  # ranks that were told to end do so within milliseconds; a node that does not is lost
DRAIN_S = 0.5  # a child that a rank has left behind may hold its output open for ever


@dataclass
class Arrivals:
    """Who has come of the ranks that the launcher starts on one host, all at once.

    Attributes:
        expected: so many; 0: that is not known.
        came: so many have. newest_at: when the newest did, time.monotonic().
    """

    expected: int
    came: int = 0
    newest_at: float = 0.0

    def note(self) -> None:
        """One more has come."""
        self.came, self.newest_at = self.came + 1, time.monotonic()

    @property
    def lacking(self) -> bool:
        """The others have come long ago."""
        return self.came < self.expected and time.monotonic() - self.newest_at > SIBLINGS_S


@dataclass
class Split:
    """Two nodes that do not reach each other, as one of them says again and again.

    Attributes:
        since, newest: when it was said first, and last, time.monotonic().
        told: the user knows.
    """

    since: float
    newest: float
    told: bool = False


@dataclass
class Ranks:
    """What the links have told so far."""

    links: dict[int, Peer] = field(default_factory=dict)  # by rank
    deaths: list[Peer] = field(default_factory=list)  # not repaired
    repaired: list[Peer] = field(default_factory=list)
    repairing: float = 0.0  # since when a round of repair is under way; 0: none is
    working: float = 0.0  # when it was last told that one is bringing bytes, or a slot computes
    late: set[int] = field(default_factory=set)  # ranks that computed for long in this repair
    wish: str = ""  # why the ranks want to be launched again
    aborted: int | None = None  # exit status
    why_aborted: str = ""  # in words; empty where who has aborted the job has said it itself
    owner: int | None = None  # rank that reports the error
    entered: bool = False  # the program has begun
    entry: int = 1  # the newest one, counted through all launches
    log_peaks: dict[int, int] = field(default_factory=dict)  # bytes, by slot
    # Hosts of the roles that have vaults, when no death was open.
    homes: dict[tuple[str, int], str] = field(default_factory=dict)
    spared: set[int] = field(default_factory=set)  # dead ranks without whom the others go on
    spent: set[int] = field(default_factory=set)  # --kill rules that have struck agents
    arrivals: dict[str, Arrivals] = field(default_factory=dict)  # by host
    splits: dict[frozenset[str], Split] = field(default_factory=dict)  # by their hosts
    unborn: set[int] = field(default_factory=set)  # died between their output and their link
    there: set[int] = field(default_factory=set)  # dead ranks whose node is still there
    unheeded: list[tuple[int, int]] = field(default_factory=list)  # signals, and slots
    killed: tuple[int, int] | None = None  # a slot that died of a signal handed on to it


class Switchboard:
    """Takes down what ranks say, and answers.

    Args:
        processes: of the job.
        key: of the job.
        bind: where to listen; None: the job is on one node, nobody connects.
        story: appends an event to the job's story.
        read_story: reads all of it.
        cause: of this launch, if it is not the first.
        past: further facts for the ranks (see `failover.past`).
        keep_trace: makes a file for what a rank traces, by which clock.
        give_stdin: serves the program's stdin to a connection, and closes it.
    """

    def __init__(
        self, processes: int, key: Key, bind: Bind | None, story: Callable[[Event], None],
        read_story: Callable[[], list[Event]], cause: Cause | None, past: dict[str, Any],
        keep_trace: Callable[[int, str], BinaryIO], give_stdin: Callable[[socket.socket], None],
    ) -> None:
        self.processes = processes
        self.story, self.read_story = story, read_story
        self.cause, self.past = cause, past
        self.keep_trace, self.give_stdin = keep_trace, give_stdin
        self.first_entry = cause.entry if cause else 1  # of this launch
        self.ranks = Ranks(entry=self.first_entry)
        if cause:
            self.ranks.homes = {(kind, index): host for kind, index, host in cause.homes}
        self.reception = Reception(key, bind, self._take, self._gone)
        self.claims: list[tuple[float, Peer, int]] = []  # since when; the program's entry
        self.ending = False
        self.asked_at = 0.0  # when it was asked last who waits, or is stopped
        self.asked_since = 0.0  # since when it is asked who is stopped; 0: it is not
        self.spread = False  # a rank has come: the job runs over several nodes
        self.unclean: set[str] = set()  # hosts on which nobody could clean up

    @property
    def address(self) -> link.Address | None:
        """How ranks reach the supervisor; None where nobody connects."""
        return self.reception.address

    def environment(self) -> dict[str, str]:
        """What ranks are told of how to reach the supervisor."""
        told = {link.VARIABLE: self.address.text()} if self.address else {}
        if self.cause is not None:
            told[link.SPREAD] = "1"  # even if one node is left
        return told

    @property
    def lost(self) -> set[str]:
        """Hosts that did not answer."""
        return self.reception.lost

    def fileno(self) -> int:
        return self.reception.fileno()

    def pump(self, timeout_s: float = 0.0) -> None:
        """Serve all that is ready; wait for something if nothing is."""
        self.reception.pump(timeout_s)
        self._grant()

    def _gone(self, peer: Peer) -> None:
        if peer.kind in ("out", "err") and peer.rank not in self.ranks.links:
            self.ranks.unborn.add(peer.rank)
        if peer.kind == "link" and not peer.goodbye and not self.ending:
            peer.died_at = time.monotonic()
            if peer.handed and not peer.leaving and peer.died_at - peer.handed[1] < SUSPECT_S:
                self.ranks.killed = peer.index, peer.handed[0]
            self._release(peer)
            if peer.rank not in self.ranks.spared:
                self.ranks.deaths.append(peer)
            if self._alone(peer):  # on its node there is nobody to see it
                for other in self.ranks.links.values():
                    if other.open:
                        self.reception.send(other, "gone", rank=peer.rank, leaving=peer.leaving)

    # -- messages -----------------------------------------------------------------------------

    def _take(self, peer: Peer, text: bytes) -> None:
        try:
            message = json.loads(text)
            event = message.pop("event")
        except (ValueError, KeyError, AttributeError, TypeError):
            self.reception.cut(peer)
            return
        if peer.kind == "new":
            self._greet(peer, event, message)
        elif event == "role":
            peer.role, peer.index = message["role"], message["index"]
            self._find_homes()
        elif event == "clock":
            self.reception.send(peer, "clock", ns=time.monotonic_ns())
        elif event == "entry":
            self._enter(int(message["number"]))
        elif event == "entered":
            self._entered(message)
        elif event == "claim":
            entry = int(message.get("entry", 0))
            if not 0 < entry < self.ranks.entry:
                self.claims.append((time.monotonic(), peer, entry))
        elif event == "release":
            self._release(peer)
        elif event == "abort":
            # MPI_Abort of the program ends all, whosever error is about to.
            may = "program" in message or self.ranks.owner in (None, peer.rank)
            if self.ranks.aborted is None and may:
                self.ranks.aborted = status = int(message["status"]) & 0xFF
                mine = why_aborted(peer.name, status) if "program" in message else ""
                self.ranks.why_aborted = mine or str(message.get("why", ""))
        elif event == "repairing":
            self.ranks.repairing = time.monotonic()
        elif event == "working":
            self.ranks.working = time.monotonic()
        elif event == "awaited":
            self._awaited(peer, computes=bool(message["computes"]))
        elif event == "repaired":
            self.ranks.repairing = 0.0
            self.ranks.late.clear()
            self._repaired(set(message["dead"]))
        elif event == "spared":
            self.ranks.spared.add(int(message["rank"]))
            self._repaired(self.ranks.spared)
        elif event == "there":
            self.ranks.there.add(int(message["rank"]))
        elif event == "relaunch":
            self.ranks.wish = self.ranks.wish or str(message["reason"])
        elif event == "events":
            self.reception.send(peer, "events", events=[plain(e) for e in self.read_story()])
        elif event == "stopped":
            peer.answered_at = time.monotonic()
            peer.stopped = [Stopped(Proc(proc), f"{name} on {peer.host}")
                            for proc, name in message["found"]]
        elif event == "waiting":
            peer.waits = bool(message["waits"])
        elif event == "strike":
            peer.struck = int(message["rule"]), time.monotonic()
        elif event == "spent":
            self.ranks.spent.add(int(message["rule"]))
        elif event == "leaving":
            how, value = int(message["how"]), int(message["value"])
            peer.leaving = how | value
            if how == job.Left.BY_SIGNAL:
                peer.left = OwnExit(by_signal=value)
            elif how in (job.Left.BY_STATUS, job.Left.BY_EXIT):
                peer.left = OwnExit(status=value, sure=how == job.Left.BY_STATUS)
        elif event == "handed":
            peer.handed = int(message["number"]), time.monotonic()
        elif event == "unheeded":
            self.ranks.unheeded.append((int(message["number"]), peer.index))
        elif event == "goodbye":
            peer.goodbye = True
            if peer.role == "slot":
                self.ranks.log_peaks[peer.index] = int(message.get("peak_bytes", 0))
        elif happened := parse({"event": event, **message}):
            self.story(happened)

    def _awaited(self, peer: Peer, *, computes: bool) -> None:
        """A process does not come to a repair: it computes, or waits for something."""
        ranks, now = self.ranks, time.monotonic()
        peer.answered_at = now
        if not computes:
            ranks.wish = ranks.wish or f"{peer.name} {ABSENT}"
            return
        ranks.working = now
        if ranks.deaths and now - ranks.deaths[0].died_at > LATE_S and peer.rank not in ranks.late:
            ranks.late.add(peer.rank)
            tell(f"{peer.name} {LATE}")

    def _greet(self, peer: Peer, event: str, hello: dict[str, Any]) -> None:
        kind = hello.get("kind")
        if event != "hello" or kind not in KINDS or self.ending:
            self.reception.cut(peer)
            return
        peer.rank = peer.index = int(hello["rank"])
        peer.host, peer.kind = str(hello["host"]), kind
        if kind == "split":
            self._split(frozenset((peer.host, str(hello["other"]))))
            self.reception.send(peer, "hello")
            return
        self.spread = True
        if kind == "trace":
            self.reception.keep(peer, lambda: self.keep_trace(
                peer.rank, f"{peer.host} {self.first_entry}"))
        if kind == "out":
            expected = int(hello.get("siblings", 0))
            self.ranks.arrivals.setdefault(peer.host, Arrivals(expected)).note()
        if kind != "link":
            self.reception.send(peer, "hello")
            if kind == "in" and peer.open:
                self.give_stdin(self.reception.let_go(peer))
            return
        peer.pid = int(hello["pid"])
        self.ranks.links[peer.rank] = peer
        homes = self.cause.homes if self.cause else ()
        self.reception.send(peer, "hello", resume=self.cause is not None, entry=self.ranks.entry,
                            homes=homes, **self.past)

    def _split(self, hosts: frozenset[str]) -> None:
        now = time.monotonic()
        self.ranks.splits.setdefault(hosts, Split(now, now)).newest = now

    def hosts_alive(self) -> set[str]:
        """Hosts of which a rank is reached."""
        return {peer.host for peer in self.ranks.links.values() if peer.open}

    def _grant(self) -> None:
        """Answer who asks to report an error, once it is clear that no death caused it."""
        now = time.monotonic()
        while self.claims and now - self.claims[0][0] > SETTLE_S and not self.ranks.deaths:
            _, peer, entry = self.claims.pop(0)
            if self.ranks.owner is None:
                self.ranks.owner = peer.rank
            granted = self.ranks.owner == peer.rank
            self.reception.send(peer, "claim", entry=entry, granted=granted)

    def _release(self, peer: Peer) -> None:
        """This rank's error is not the job's, or not any more."""
        if self.ranks.owner == peer.rank:
            self.ranks.owner = None
        self.claims = [claim for claim in self.claims if claim[1] is not peer]

    def _enter(self, number: int) -> None:
        """All have gone back: no error of an earlier entry is the job's."""
        if number > self.ranks.entry:
            self.ranks.entry, self.ranks.owner = number, None
            self.claims = [claim for claim in self.claims if claim[2] >= number]

    def _repaired(self, dead: set[int]) -> None:
        ranks = self.ranks
        ranks.repaired += [peer for peer in ranks.deaths if peer.rank in dead]
        ranks.deaths = [peer for peer in ranks.deaths if peer.rank not in dead]
        self._find_homes()

    def _find_homes(self) -> None:
        """Note where the roles are. While a death is open a repair may not have come to them."""
        if not self.ranks.deaths:
            self.ranks.homes |= {
                (peer.role, peer.index): peer.host for peer in self.ranks.links.values()
                if peer.open and peer.role in ("slot", "checksum")}

    def _entered(self, message: dict[str, Any]) -> None:
        """The program runs (again): the story of a relaunch is complete."""
        self.ranks.entered = True
        if self.cause is None:
            return
        cause, version = self.cause, int(message["version"])
        seconds = time.monotonic() - cause.died_at
        detect, restore = cause.noticed_at - cause.died_at, float(message["restore_s"])
        phases = Phases(detect=detect, repair=seconds - detect - restore, restore=restore)
        self.story(Recovery(
            kind="relaunch", slots=cause.slots, version=version, seconds=seconds, phases=phases,
            reason=cause.reason, began_s=cause.died_at,
        ))
        to = f"checkpoint {version}" if version else "the start"
        tell(f"the job goes on from {to}, {seconds:.1f} s after the failure")

    # -- what is going on ---------------------------------------------------------------------

    def done(self) -> bool:
        """The job is over: a rank aborted it, or all have said goodbye."""
        links = self.ranks.links
        return self.ranks.aborted is not None or (
            len(links) == self.processes
            and all(p.goodbye or not p.open for p in links.values())
            and any(p.goodbye for p in links.values())
        )

    def left(self) -> tuple[dict[int, OwnExit], bool, bool]:
        """Slots whose processes have ended themselves; others have died; others wait for them.

        Who waits in the library is told by it that somebody is dead, and asks to report that;
        others are asked whether they wait.
        """
        deaths, now = self.ranks.deaths, time.monotonic()
        left = {p.index: p.left for p in deaths if p.role == "slot" and p.left}
        others = [p for p in self.ranks.links.values() if p.open and p.role == "slot"]
        if left and now - self.asked_at > ASK_S:
            self.asked_at = now
            for peer in others:
                self.reception.send(peer, "waiting")
        waiting = bool(self.claims) or all(peer.waits for peer in others)
        return left, len(left) < len(deaths), waiting

    def stopped(self) -> list[Stopped]:
        """Who is stopped and keeps a repair waiting, as processes of each node see it.

        They are asked now and then while a death is open. Where nobody of a node answers, nor says
        that it computes, none of them is executed.
        """
        now = time.monotonic()
        if not (self.ranks.deaths or self.ranks.repairing) or not self.ranks.entered:
            self.asked_since = 0.0
            return []
        there = [peer for peer in self.ranks.links.values() if peer.open and not peer.goodbye]
        self.asked_since = self.asked_since or now
        if now - self.asked_at > ASK_S:
            self.asked_at = now
            for peer in there:
                self.reception.send(peer, "stopped")
        fresh = [peer for peer in there if now - peer.answered_at < SILENT_S]
        found = {one.proc: one for peer in fresh for one in peer.stopped}
        heard = {peer.host for peer in fresh}
        if now - self.asked_since > SILENT_S:
            found |= {Proc(peer.rank): Stopped(Proc(peer.rank), f"{peer.name} on {peer.host}")
                      for peer in there if peer.host not in heard}
        return list(found.values())

    def nodes_gone(self) -> bool:
        """Of some host with open deaths no rank is left: it is lost, or as good as lost.

        Where there was one only, its node may be there, if its agent answers. Without a spare's
        node all go on.
        """
        living = {p.host for p in self.ranks.links.values() if p.open or p.goodbye}
        return any(peer.host not in living and not self._may_be_there(peer)
                   for peer in self.ranks.deaths)

    def _alone(self, peer: Peer) -> bool:
        """There was one rank on its host, which is not that of rank 0, whose agent is the hub."""
        hosts = [p.host for p in self.ranks.links.values()]
        first = self.ranks.links.get(0)
        return hosts.count(peer.host) == 1 and first is not None and peer.host != first.host

    def _may_be_there(self, peer: Peer) -> bool:
        soon = time.monotonic() - peer.died_at < ALONE_S
        there = peer.role == "spare" or peer.rank in self.ranks.there
        return self._alone(peer) and (there or soon)

    def failure(self) -> str:
        """Who died, in words, once all with one cause are known; empty if nobody did."""
        deaths = self.ranks.deaths
        if not deaths or time.monotonic() - deaths[0].died_at < SETTLE_S:
            return ""
        dead = [(peer.name, peer.host) for peer in deaths]
        return describe(dead, [peer.host for peer in self.ranks.links.values()])

    def hand_on(self, number: int) -> None:
        """Send this signal to all slots."""
        for peer in self.ranks.links.values():
            if peer.open and peer.role == "slot":
                self.reception.send(peer, "signal", number=number)

    # -- the end ------------------------------------------------------------------------------

    def end(self, *, final: bool) -> None:
        """Tell all ranks to end, and give them a moment for it.

        Args:
            final: the job is over, so that the nodes' directories go too.
        """
        self.ending = True
        links = self.ranks.links.values()
        told = [peer for peer in links if peer.open]
        clean = {peer.host for peer in links if peer.goodbye} | {peer.host for peer in told}
        for peer in told:
            self.reception.send(peer, "end", final=final)
        self._wait_for_links()
        late = {peer.host for peer in told if peer.open}
        self.unclean = ({peer.host for peer in links} - clean) | late

    def close(self) -> None:
        """Everybody was killed: take what is under way, and note who does not answer even now."""
        self._wait_for_links()
        self.lost.update(peer.host for peer in self.ranks.links.values() if peer.open)
        self._pump_until(lambda: not self.reception.passing(), DRAIN_S)
        self.reception.close()

    def _wait_for_links(self) -> None:
        self._pump_until(lambda: not any(p.open for p in self.ranks.links.values()), END_S)

    def _pump_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            self.pump(0.05)


def describe(dead: list[tuple[str, str]], hosts: list[str]) -> str:
    """Say who died where: "slot 3 on node2, all processes on node3 died". Pure.

    Args:
        dead: name and host of each.
        hosts: host of each process of the job.
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
