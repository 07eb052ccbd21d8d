"""Stands in for the connections between a simulated supervisor and the ranks of several nodes.

`Wires` takes the place of `ftrma.launch.connections.Connections`, and `SimulatedLink` that of a
rank's `ftrma.fabric.link.Link`. Lines take a time of their own, and those of one connection stay in
order. A connection ends when its rank dies; if its node is lost, the supervisor learns of that when
probes have found no answer.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import greenlet

from ftrma.fabric.link import leave_node as remove_files_of_node
from ftrma.fabric.link import line
from ftrma.launch.connections import Peer

if TYPE_CHECKING:
    from .nodelaunch import NodesLaunch
    from .nodes import NodesWorld

DELAY_NS = (20_000, 200_000, 2_000_000)  # of a line
LOOK_S = 1e-3  # between two looks of one that waits for an answer
PROBES_NS = 10_000_000_000  # until a node is known to be lost


class Wires:
    """The supervisor's connections."""

    def __init__(self, world: NodesWorld, take: Callable[[Peer, bytes], None],
                 gone: Callable[[Peer], None]) -> None:
        self.world, self.take, self.gone = world, take, gone
        self.lost: set[str] = set()
        self.address = None
        self.links: dict[Peer, SimulatedLink] = {}
        self.came: list[tuple[int, int, Peer, bytes | None]] = []
        self.number = 0

    def fileno(self) -> int:
        return -1

    def pump(self, timeout_s: float = 0.0) -> None:
        """Take all lines that have come; wait if none has."""
        if not self._deliver() and timeout_s:
            self.world.scheduler.sleep(timeout_s)
            self._deliver()

    def _deliver(self) -> bool:
        now = self.world.scheduler.now_ns
        due = sorted(one for one in self.came if one[0] <= now)
        self.came = [one for one in self.came if one[0] > now]
        for _, _, peer, text in due:
            if not peer.open:
                continue
            if text is None:
                self.end(peer)
            else:
                self.take(peer, text)
        return bool(due)

    def end(self, peer: Peer) -> None:
        """The connection of a rank has ended."""
        link, peer.open = self.links[peer], False
        if link.node_lost:
            self.lost.add(peer.host)
            peer.heard_at = self.world.time.monotonic() - PROBES_NS * link.silent / 1e9
        self.gone(peer)

    def comes(self, peer: Peer, at: int, text: bytes | None) -> None:
        """A line is under way to the supervisor; None: the end of a connection."""
        self.number += 1
        self.came.append((at, self.number, peer, text))

    def send(self, peer: Peer, event: str, **data: object) -> None:
        if peer.open:
            self.links[peer].comes(json.loads(line(event, **data)))

    def bound_by_silence(self, peer: Peer) -> None:
        """Lines that are not acknowledged end no connection before its probes do."""

    def cut(self, peer: Peer) -> None:
        peer.open = False
        self.gone(peer)
        self.links[peer].comes({"event": "end", "final": False})

    def passing(self) -> list[Peer]:
        return []

    def close(self) -> None:
        for peer in self.links:
            if peer.open:
                self.cut(peer)


class Critical:
    """The lock that a rank holds while it writes what must not be left half written."""

    def __init__(self) -> None:
        self.held = False

    def __enter__(self) -> None:
        self.held = True

    def __exit__(self, *_: object) -> None:
        self.held = False


class SimulatedLink:
    """A rank's connection to the supervisor.

    Attributes:
        greeting: the supervisor's answer to hello.
        node_lost: its node is; silent: and nothing tells so but missing answers.
    """

    def __init__(self, world: NodesWorld, launch: NodesLaunch, proc: int) -> None:
        self.world, self.launch, self.proc = world, launch, proc
        self.scheduler = world.scheduler
        self.critical = Critical()
        self.directory: Any = None
        self.gone: Callable[[int, int], object] = lambda rank, leaving: None
        self.lost: Callable[[str, list[int]], object] = lambda host, struck: None
        self.over: Callable[[], object] = lambda: None
        self.waits: Callable[[], bool] = lambda: False
        self.stopped: Callable[[], list[Any]] = list
        self.saved: Callable[[bool], dict[str, Any]] = lambda halt: {}
        self.ending = self.node_lost = self.silent = self.ended = self.reading = False
        self.answers: list[dict[str, Any]] = []
        self.inbox: deque[tuple[int, dict[str, Any]]] = deque()
        self.busy = [0, 0]  # until when the lines before take, to the supervisor and from there
        self.wires: Wires = launch.wires
        host = launch.hosts[proc]
        self.peer = Peer(None, "new", address=host)  # type: ignore[arg-type]
        self.wires.links[self.peer] = launch.links[proc] = self
        self.send("hello", kind="link", rank=proc, pid=launch.pid_of(proc), host=host)
        self.greeting = self._answer("hello", lambda answer: True, None)

    def _at(self, way: int) -> int:
        """When a line comes that is sent now."""
        random = self.scheduler.random
        delay = int(random.random() * random.choice(DELAY_NS))
        self.busy[way] = max(self.busy[way], self.scheduler.now_ns + delay)
        return self.busy[way]

    # -- as `Link` has it ---------------------------------------------------------------------

    def send(self, event: str, **data: Any) -> None:
        if not self.ended:
            self.wires.comes(self.peer, self._at(0), line(event, **data))

    def request(self, event: str, *, entry: int = 0, meanwhile: Any = None) -> dict[str, Any]:
        self.send(event, entry=entry)
        return self._answer(event, lambda answer: answer.get("entry", entry) == entry, meanwhile)

    def _answer(self, event: str, fits: Callable[[dict[str, Any]], bool],
                meanwhile: Any) -> dict[str, Any]:
        while True:
            for i, answer in enumerate(self.answers):
                if answer["event"] == event and fits(answer):
                    return self.answers.pop(i)
            self.scheduler.sleep(LOOK_S)
            if meanwhile:
                meanwhile()

    def goodbye(self, **data: Any) -> None:
        self.ending = True
        self.send("goodbye", **data)

    # -- what comes ---------------------------------------------------------------------------

    def comes(self, message: dict[str, Any]) -> None:
        """A line is under way to the rank, whose reading thread takes one after another."""
        self.inbox.append((self._at(1), message))
        if not self.reading:
            self._read_on()

    def _read_on(self) -> None:
        self.reading = True
        placed = self.world.control_here(self.launch, self.proc) is not None
        task = self.world.helper_of(self.launch, self.proc, lambda: self._read(placed))
        task.waits.until = max(self.inbox[0][0], self.launch.frozen_until(self.proc))

    def _read(self, placed: bool) -> None:
        """Take the next line.

        Args:
            placed: this thread knows the control file.
        """
        process = self.launch.tasks[self.proc]
        late = not placed and self.world.control_here(self.launch, self.proc) is not None
        frozen = self.launch.frozen_until(self.proc) > self.scheduler.now_ns
        if process.dead or late or frozen:
            self.reading = not process.dead
            if self.reading:
                self._read_on()
            return
        self._obey(self.inbox.popleft()[1])
        self.reading = bool(self.inbox)
        if self.reading and not process.dead:
            self._read_on()

    def _obey(self, message: dict[str, Any]) -> None:
        event = message["event"]
        if event == "end":
            self._die(final=message["final"])
        elif event == "gone":
            self.gone(message["rank"], message["leaving"])
        elif event == "lost":
            self.lost(message["host"], message["struck"])
        elif event == "stopped":
            self.send("stopped", found=[astuple(each) for each in self.stopped()])
        elif event == "waiting":
            self.send("waiting", waits=self.waits())
        else:
            self.answers.append(message)

    def _die(self, *, final: bool) -> None:
        self.over()
        while self.critical.held:
            self.scheduler.sleep(LOOK_S)
        process = self.launch.tasks[self.proc]
        if process.dead:
            return
        if final and self.directory:
            remove_files_of_node(self.directory)
        self.world.vanish(self.launch, self.proc)

    def end(self) -> None:
        """The rank is dead, and the kernel closes its connection."""
        if not self.ended:
            self.wires.comes(self.peer, self._at(0) + PROBES_NS * self.silent, None)
            self.ended = True


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """End a task quietly when the run is over."""
    with contextlib.suppress(greenlet.GreenletExit):
        yield
