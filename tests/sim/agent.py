"""Stands in for the agents that keep the control files of a simulated job's nodes equal.

An agent looks through the words in the shipped order (`ftrma.native.mirrored`), sends what has
changed to node 0's agent, which orders all changes, and stores what comes in the opposite order;
between any two stretches of words others take turns, and each message takes a time of its own. A
connection to node 0's agent can fail: what is under way then is lost, and a new connection begins
with all words, and with those again that were not taken (``csrc/README.md``, "The mirror").
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

import greenlet
import numpy as np

from ftrma.native import loading, mirrored
from ftrma.native.wire import MirrorKind

from .library import words
from .scheduler import Task

if TYPE_CHECKING:
    from .nodelaunch import NodesLaunch
    from .nodes import NodesWorld

DELAY_NS = (20_000, 200_000, 2_000_000)  # of a message
STRETCH = 97  # words that an agent reads or stores before others may take turns
HELLO = -(1 << 62)  # number of the message with which a connection begins
# Between an agent's looks, without a poke; it grows while they find nothing.
PAUSE_NS, LONGEST_NS = 20_000_000, 640_000_000
RESTART_NS = 50_000_000  # until another agent has followed a dead one


class Agent:
    """The agent of one node."""

    def __init__(self, world: NodesWorld, launch: NodesLaunch, node: int) -> None:
        self.world, self.launch, self.node, self.ctl = world, launch, node, launch.controls[node]
        ffi = loading.load().ffi
        memory = np.frombuffer(ffi.buffer(self.ctl), "u8")
        self.memory = memory
        at: list[int] = []
        kinds: list[int] = []
        for offset, size_bytes, kind in mirrored.regions(self.ctl):
            if kind != MirrorKind.BELL:
                at += range(offset // 8, (offset + size_bytes) // 8)
                kinds += [kind] * (size_bytes // 8)
        self.at, self.kinds = np.array(at), np.array(kinds)
        self.alarm_word = kinds.index(MirrorKind.ALARM)
        self.cold = self.kinds != MirrorKind.HOT
        self.shadow = memory[self.at].copy()
        self.pending = np.zeros(len(at), "u8")
        self.sent = self.acked = self.last = self.scan = 0
        self.scans = words().ffi.new("uint64_t[2]")  # begun, ordered
        self.hot, self.pause_ns = False, PAUSE_NS
        self.inbox: deque[tuple[int, int, int, Any, Any]] = deque()
        self.busy_until: dict[int, int] = {}
        self.poke = words().sim.sim_pokes(node)
        self.taken: dict[int, int] = {}  # at node 0: number of the newest message of each agent
        self.lost = self.joining = False  # its connection
        # Words that have come and are not stored yet, values, and from whom by which number.
        self.journal: tuple[Any, Any, int, int] | None = None
        self.task: Any = None

    # -- messages -----------------------------------------------------------------------------

    def tell(self, to: int, number: int, found: Any, values: Any) -> None:
        """Send words, or with None an acknowledgement; what is sent to one node stays in order."""
        random = self.world.scheduler.random
        delay = int(random.random() * random.choice(DELAY_NS))
        at = max(self.busy_until.get(to, 0), self.world.scheduler.now_ns + delay)
        self.busy_until[to] = at
        self.launch.agents[to].inbox.append((at, self.node, number, found, values))

    def run(self) -> None:
        scheduler = self.world.scheduler
        with contextlib.suppress(greenlet.GreenletExit):
            self.store_journal()
            while True:
                seen = self.poke[0]
                if self.lost:
                    self.join_again()
                self.obey()
                if not self.joining:
                    self.look()
                left = [message[0] for message in self.inbox]
                until = min(left, default=scheduler.now_ns + self.pause_ns)
                self.pause_ns = min(2 * self.pause_ns, LONGEST_NS)
                scheduler.wait_exactly(self.poke, seen, max(1, until - scheduler.now_ns))

    def obey(self) -> None:
        """Take the messages that have come."""
        now = self.world.scheduler.now_ns
        for message in sorted((m for m in self.inbox if m[0] <= now), key=lambda m: m[0]):
            if not any(left is message for left in self.inbox):
                continue  # its connection was lost meanwhile
            self.inbox = deque(left for left in self.inbox if left is not message)
            _, origin, number, found, values = message
            if self.ctl.scanned[origin] == mirrored.LOST:
                continue
            if number == HELLO:
                self.tell(origin, -1 - self.taken.get(origin, 0), *self.all_words())
                continue
            if self.joining and number >= 0:
                continue  # the hub has sent it before it knew that the connection was lost
            if number < 0:
                self.begin_again(-1 - number, found, values)
                continue
            if found is None:
                self.acked = max(self.acked, number)
                self.note_ordered()
                continue
            self.take(found, values, origin, number)
            if self.node == 0:
                for other in range(1, len(self.launch.agents)):
                    if other != origin:
                        self.tell(other, 0, found, values)
                self.tell(origin, number, None, None)

    def all_words(self) -> tuple[Any, Any]:
        """Places of all words, and their values."""
        return np.arange(len(self.at))[::-1], self.memory[self.at][::-1].copy()

    def join_again(self) -> None:
        """Connect to node 0's agent anew; what was under way on the connection before is lost."""
        hub = self.launch.agents[0]
        self.lost, self.joining = False, True
        self.inbox.clear()
        hub.inbox = deque(message for message in hub.inbox if message[1] != self.node)
        self.tell(0, HELLO, None, None)

    def begin_again(self, taken: int, found: Any, values: Any) -> None:
        """Take all words, and send those again that were not taken."""
        self.joining, self.acked = False, taken
        self.take(found, values, 0, 0)
        left = np.flatnonzero(self.pending > taken)[::-1]
        self.sent += 1
        self.pending[left] = self.last = self.sent
        self.tell(0, self.sent, left, self.memory[self.at[left]])
        self.note_ordered()

    def take(self, found: Any, values: Any, origin: int, number: int) -> None:
        """Store words that have come, in their order."""
        self.pause_ns = PAUSE_NS
        self.journal = found, values, origin, number
        self.store_journal()

    def store_journal(self) -> None:
        """Store the words that are left of what has come; the agent before may have died amid that.
        """
        while self.journal and len(self.journal[0]):
            found, values, origin, number = self.journal
            part, new = found[:STRETCH], values[:STRETCH]
            at = self.at[part]
            for i in range(len(part)):
                word = int(part[i])
                if word == self.alarm_word:
                    self.memory[at[i]] = max(self.memory[at[i]], new[i])
                    self.shadow[word] = max(self.shadow[word], new[i])
                elif self.pending[word] <= self.acked:
                    if self.memory[at[i]] == self.shadow[word]:
                        self.memory[at[i]] = new[i]
                    self.shadow[word] = new[i]
            self.journal = found[STRETCH:], values[STRETCH:], origin, number
            self.world.scheduler.hub.switch()
        if self.journal and self.node == 0:
            self.taken[self.journal[2]] = self.journal[3]
        self.journal = None
        for bell in (self.ctl.bell, self.ctl.barrier, self.ctl.live):
            bell.word = (bell.word + 1) & 0xFFFFFFFF

    # -- its death --------------------------------------------------------------------------------

    def begin(self, after_ns: int = 0) -> None:
        """Have this node's agent run, or another one that follows it by the state that it left."""
        scheduler = self.world.scheduler
        self.task = Task(f"agent {self.node}", self.run, -1, self.launch.number)
        self.task.waits.until = scheduler.now_ns + after_ns
        scheduler.add(self.task)

    def die(self) -> None:
        """Die, and with it all connections; another one follows."""
        scheduler, agents = self.world.scheduler, self.launch.agents
        scheduler.kill(self.task)
        self.inbox.clear()
        self.hot = True  # it looks at all words first
        cut = [self] if self.node else [agent for node, agent in agents.items() if node]
        for agent in cut:
            agent.lost = True
            agent.poke[0] = (agent.poke[0] + 1) & 0xFFFFFFFF
        if self.node:
            hub = agents[0]
            hub.inbox = deque(message for message in hub.inbox if message[1] != self.node)
        self.begin(int(scheduler.random.random() * RESTART_NS))

    # -- looks --------------------------------------------------------------------------------

    def alarmed(self) -> bool:
        return bool(self.ctl.alarm != self.ctl.repaired)

    def look(self) -> None:
        """Look for words that were changed on this node, and send them."""
        alarm, hot = self.ctl.alarm, self.alarmed() or self.hot
        scan = self.scans[0] = self.scans[0] + 1
        changed: list[Any] = []
        read: list[Any] = []
        self.hot = self.alarmed()
        for first in range(0, len(self.at), 4 * STRETCH):
            part = slice(first, first + 4 * STRETCH)
            now = self.memory[self.at[part]]
            differs = now != self.shadow[part]
            if not hot:
                differs &= self.cold[part]
            where = np.flatnonzero(differs)
            changed.append(where + first)
            read.append(now[where])
            self.world.scheduler.hub.switch()
        found, values = np.concatenate(changed)[::-1], np.concatenate(read)[::-1]
        keep = (found != self.alarm_word) | (values > self.shadow[self.alarm_word])
        found, values = found[keep], values[keep]
        if len(found):
            self.pause_ns = PAUSE_NS
            self.shadow[found] = values
            if self.node:
                self.sent += 1
                self.pending[found] = self.sent
                self.tell(0, self.sent, found, values)
            else:
                for other in range(1, len(self.launch.agents)):
                    self.tell(other, 0, found, values)
        self.scan, self.last = scan, self.sent
        self.note_ordered()
        if self.alarmed() and self.ctl.scanned[self.node] < alarm:
            self.ctl.scanned[self.node] = alarm
            self.poke[0] = (self.poke[0] + 1) & 0xFFFFFFFF

    def note_ordered(self) -> None:
        if self.scans[1] < self.scan and not (self.node and self.acked < self.last):
            self.scans[1] = self.scan
            self.ctl.bell.word = (self.ctl.bell.word + 1) & 0xFFFFFFFF
