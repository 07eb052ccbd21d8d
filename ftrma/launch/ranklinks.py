"""The links of the ranks of a job over several nodes, at the supervisor (see `fabric.link`).

Each rank has one link for messages and further connections for its output, input and trace, which
`connections` serves. This module decides who may connect, what the end of a connection means, what
ranks are asked, and when they are told to end. `rankmessages` handles what they say.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from ..fabric import link
from ..fabric.absence import StoppedProcess
from ..fabric.story import Event
from ..host import timeouts
from ..host.key import Key
from ..host.listening import Bind
from ..host.outfile import tell
from ..native.shared import Control, Proc
from ..protocol.job_end import OwnExit
from .connections import Connections, Peer
from .errorclaims import ErrorClaims
from .farlooks import FarLooks
from .job import Cause
from .rankmessages import RankMessages
from .rankstate import Arrivals, RankState

KINDS = ("link", "out", "err", "in", "trace", "split", "watch")  # kinds of connections
ASK_S = 0.5  # now and then a process computes this long and does not wait
SAVED_S = 0.2  # an end that was asked for need not come faster


class RankLinks:
    """Lets ranks in, asks them, and tells them to end.

    Args:
        processes: number of processes of the job.
        key: of the job.
        bind: where to listen; None: the job is on one node, and nobody connects.
        story: appends an event to the job's story.
        read_story: reads the whole story.
        cause: cause of this launch, if it is not the first.
        past: further facts for the ranks (see `failover.past`).
        keep_trace: makes a file for the trace of a rank, given the rank and its clock.
        give_stdin: serves the program's stdin to a connection, and closes it.
        seen: control file for what nodes send about their processes; None if there is none.

    Attributes:
        ranks: everything that ranks have told.
        far: looks at the processes of the nodes.
        spread: whether a rank has connected, so that the job runs over several nodes.
        unclean: hosts on which no process could clean up.
    """

    def __init__(
        self, processes: int, key: Key, bind: Bind | None, story: Callable[[Event], None],
        read_story: Callable[[], list[Event]], cause: Cause | None, past: dict[str, Any],
        keep_trace: Callable[[str, str], BinaryIO], give_stdin: Callable[[socket.socket], None],
        seen: Control | None = None,
    ) -> None:
        self.processes = processes
        self.read_story = read_story
        self.cause, self.past = cause, past
        self.keep_trace, self.give_stdin = keep_trace, give_stdin
        self.files = past.get("files")
        begun = self.files["attempt"] if self.files else 1
        self.first_attempt = cause.attempt if cause else begun  # of this launch
        self.ranks = RankState(attempt=self.first_attempt)
        if cause:
            self.ranks.one_node = cause.one_node
            self.ranks.homes = {(kind, index): host for kind, index, host in cause.homes}
        self.connections = Connections(key, bind, self._take, self._gone)
        self.claims = ErrorClaims(self.ranks, self.connections.send)
        self.far = FarLooks(seen, self.connections.send, self._pump_until)
        self.messages = RankMessages(
            self.ranks, self.claims, self.connections.send, story, read_story, cause)
        self.ending = False
        self.asked_at = 0.0  # when ranks were last asked who waits, or is stopped
        self.asked_since = 0.0  # since when they are asked who is stopped; 0: not asked
        self.saved_asked_at, self.halt = 0.0, False
        self.spread = False
        self.unclean: set[str] = set()

    @property
    def address(self) -> link.Address | None:
        """Return the supervisor's address for ranks; None if nobody connects."""
        return self.connections.address

    def environment(self) -> dict[str, str]:
        """Return the environment by which ranks reach the supervisor."""
        told = {link.VARIABLE: self.address.text()} if self.address else {}
        if self.cause is not None or self.past.get("files"):
            told[link.SPREAD] = "1"  # even if only one node is left, or one has all processes
        return told

    @property
    def lost(self) -> set[str]:
        """Return the hosts that did not answer."""
        return self.connections.lost

    def fileno(self) -> int:
        return self.connections.fileno()

    def pump(self, timeout_s: float = 0.0) -> None:
        """Serve all peers that are ready; if none is, wait for one."""
        self.connections.pump(timeout_s)
        self.claims.grant()

    # -- who comes and goes -------------------------------------------------------------------

    def _take(self, peer: Peer, text: bytes) -> None:
        try:
            message = json.loads(text)
            event = message.pop("event")
        except (ValueError, KeyError, AttributeError, TypeError):
            self.connections.cut(peer)
            return
        if peer.kind == "new":
            self._greet(peer, event, message)
        elif peer.kind == "watch":
            self.far.take(peer, str(event), message)
        else:
            self.messages.handle(peer, str(event), message)

    def _greet(self, peer: Peer, event: str, hello: dict[str, Any]) -> None:
        """Take the hello of a connection, and serve it by its kind."""
        kind = hello.get("kind")
        if event != "hello" or kind not in KINDS or self.ending:
            self.connections.cut(peer)
            return
        peer.rank = peer.index = int(hello["rank"])
        peer.host, peer.kind = str(hello["host"]), kind
        if kind == "split":
            self.ranks.note_split(frozenset((peer.host, str(hello["other"]))))
            self.connections.send(peer, "hello")
            return
        if kind == "watch":
            self.far.greet(peer)
            return
        self.spread = True
        if kind == "link":
            self._greet_link(peer, int(hello["pid"]))
            return
        if kind == "trace":
            attempt = int(hello.get("attempt", 0))
            of = f"{peer.rank}-{attempt}" if attempt else f"{peer.rank}"
            self.connections.keep(peer, lambda: self.keep_trace(
                of, f"{peer.host} {self.first_attempt}"))
        if kind == "out":
            expected = int(hello.get("siblings", 0))
            self.ranks.arrivals.setdefault(peer.host, Arrivals(expected)).note()
        self.connections.send(peer, "hello")
        if kind == "in" and peer.open:
            self.give_stdin(self.connections.let_go(peer))

    def _greet_link(self, peer: Peer, pid: int) -> None:
        peer.pid = pid
        self.ranks.links[peer.rank] = peer
        self.connections.bound_by_silence(peer)
        homes = self.cause.homes if self.cause else ()
        again = self.cause is not None or self.files is not None
        self.connections.send(peer, "hello", resume=again,
                              entry=self.ranks.attempt, homes=homes, watched=self.far.watched,
                              **self.past)

    def _gone(self, peer: Peer) -> None:
        """Handle the end of a connection; the end of a link is a death, unless its rank was to
        end."""
        if peer.kind in ("out", "err") and peer.rank not in self.ranks.links:
            self.ranks.unborn.add(peer.rank)
        if peer.kind == "watch":
            self.far.gone(peer)
        if peer.kind != "link" or peer.goodbye or self.ending:
            return
        peer.died_at = time.monotonic()
        if peer.handed and not peer.leaving and peer.died_at - peer.handed[1] < timeouts.SUSPECT.s:
            self.ranks.killed = peer.index, peer.handed[0]
        self.claims.release(peer)
        self.ranks.note_death(peer)
        if self.ranks.is_lost(peer.host):
            self.ranks.lost.add(peer.host)
            tell(f"all processes on {peer.host} died; it counts as lost")
            struck = [p.struck[0] for p in self.ranks.deaths if p.host == peer.host and p.struck]
            for other in self.ranks.living():
                self.connections.send(other, "lost", host=peer.host, struck=struck)
        elif self.ranks.is_alone(peer):  # no other process on its node could see the death
            for other in self.ranks.living():
                self.connections.send(other, "gone", rank=peer.rank, leaving=peer.leaving)

    # -- what ranks are asked -----------------------------------------------------------------

    def ended_slots(self) -> tuple[dict[int, OwnExit], bool, bool]:
        """Return how slots' processes have ended themselves, whether others have died, and others
        wait.

        If a rank waits in the library, the library tells it that some process is dead, and the rank
        asks to report this; the other ranks are asked whether they wait. Nobody waits for a slot if
        a framework is told of its death.
        """
        deaths, now = self.ranks.deaths, time.monotonic()
        alive = bool(self.ranks.living())
        told = [p for p in self.ranks.told if p.left and not (p.left.well and alive)]
        failing = any(p.role != "slot" or not p.left for p in deaths)
        left = {p.index: p.left for p in (*deaths, *told) if p.role == "slot" and p.left}
        others = [peer for peer in self.ranks.living() if peer.role == "slot"]
        if left and now - self.asked_at > ASK_S:
            self._ask(others, "waiting")
        waiting = bool(self.claims.waiting) or all(peer.waits for peer in others)
        return left, failing, waiting

    def stopped(self) -> list[StoppedProcess]:
        """Return stopped processes that keep a repair waiting, as the processes of each node see
        it.

        Ranks are asked now and then while a death is open. If no process of a node answers or says
        that it computes, all of its processes count as stopped.
        """
        now = time.monotonic()
        if not (self.ranks.deaths or self.ranks.repairing) or not self.ranks.entered:
            self.asked_since = 0.0
            return []
        there = [peer for peer in self.ranks.living() if not peer.goodbye]
        self.asked_since = self.asked_since or now
        if now - self.asked_at > ASK_S:
            self._ask(there, "stopped")
        fresh = [peer for peer in there if now - peer.answered_at < timeouts.SILENT.s]
        found = {one.proc: one for peer in fresh for one in peer.stopped}
        if now - self.asked_since > timeouts.SILENT.s:
            found |= silent(there, {peer.host for peer in fresh})
        return list(found.values())

    def _ask(self, peers: list[Peer], what: str) -> None:
        self.asked_at = time.monotonic()
        for peer in peers:
            self.connections.send(peer, what)

    def forward_signal(self, number: int) -> None:
        """Send this signal to all slots."""
        for peer in self.ranks.living():
            if peer.role == "slot":
                self.connections.send(peer, "signal", number=number)

    def ask_what_is_saved(self, *, halt: bool) -> None:
        """Ask slot 0's process how much is saved, and let it store whether the job is to end."""
        now = time.monotonic()
        first = [p for p in self.ranks.living() if (p.role, p.index) == ("slot", 0)]
        if first and (now - self.saved_asked_at > SAVED_S or halt != self.halt):
            self.saved_asked_at, self.halt = now, halt
            self.connections.send(first[0], "saved", halt=halt)

    def give_up(self, host: str) -> None:
        """Make all ranks of a host die, so that the host is lost.

        They are not told of the job's end, since their agent would tell this to the others.
        """
        for peer in self.ranks.living():
            if peer.host == host:
                self.connections.send(peer, "surrender")

    # -- the end ------------------------------------------------------------------------------

    def end(self, *, final: bool) -> None:
        """Tell all ranks to end, and give them a moment for it.

        Args:
            final: the job is over, so the nodes' directories are removed, too.
        """
        self.ending = True
        links = self.ranks.links.values()
        told = self.ranks.living()
        clean = {peer.host for peer in links if peer.goodbye} | {peer.host for peer in told}
        for peer in told:
            self.connections.send(peer, "end", final=final)
        self._wait_for_links()
        late = {peer.host for peer in told if peer.open}
        self.unclean = ({peer.host for peer in links} - clean) | late

    def close(self) -> None:
        """Read what is still under way after everybody was killed, and note hosts that do not
        answer."""
        self._wait_for_links()
        self.lost.update(peer.host for peer in self.ranks.living())
        self._pump_until(lambda: not self.connections.passing(), timeouts.DRAIN.s)
        self.connections.close()

    def _wait_for_links(self) -> None:
        self._pump_until(lambda: not self.ranks.living(), timeouts.END.s)

    def _pump_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            self.pump(0.05)


def silent(peers: list[Peer], heard: set[str]) -> dict[Proc, StoppedProcess]:
    """Return the processes of hosts that are not among the hosts that were heard. Pure."""
    return {Proc(peer.rank): StoppedProcess(Proc(peer.rank), f"{peer.name} on {peer.host}")
            for peer in peers if peer.host not in heard}
