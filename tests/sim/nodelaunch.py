"""A launch of a simulated job over several nodes, as the shipped supervisor sees it.

`ftrma.launch.severalnodes` decides, by what `ftrma.launch.ranklinks` and `rankmessages` take from
the ranks' links, and `failover` and `nexthosts` carry the job on to the next launch; the
connections have stand-ins (`links`).
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ftrma.fabric import story
from ftrma.launch import failover, severalnodes
from ftrma.launch.fewerhosts import UNKNOWN
from ftrma.launch.mpirun import named_hosts
from ftrma.launch.ranklinks import RankLinks
from ftrma.launch.rankstate import Arrivals
from ftrma.settings.options import Options

from .agent import Agent
from .links import SimulatedLink, Wires
from .process import KEY
from .scheduler import Task
from .standins import Comm
from .world import KILLED, SimulatedMade

if TYPE_CHECKING:
    from .nodes import NodesWorld


class NodesMade(SimulatedMade):
    """The data that all launches share."""

    def __init__(self, world: NodesWorld) -> None:
        super().__init__(world)
        self.options = Options(max_relaunch=world.scenario.max_relaunch, max_no_progress=0)
        self.words, self.room = ["--host", ",".join(world.all_hosts)], UNKNOWN
        self.ended = lambda: False

    @property
    def first_words(self) -> list[str]:
        return ["--host", ",".join(self.world.all_hosts)]


class NodesLaunch:
    """One launch: it has what `severalnodes.SeveralNodes` asks of a `Launch`.

    Attributes:
        hosts: of each process. names: of the nodes, by their numbers in this launch.
        controls, agents: of the nodes, once their first processes have made them.
    """

    def __init__(self, world: NodesWorld) -> None:
        self.world, self.made, self.layout = world, world.made, world.layout
        self.directory = world.directory
        self.came_up = world.time.monotonic()
        self.launcher_died = False
        self.launcher_status = KILLED
        self.mpirun = SimpleNamespace(
            poll=lambda: self.launcher_status if self.launcher_died else None, pid=0)
        self.number = world.launches = world.launches + 1
        self.arrivals, self.log = Arrivals(0), world.directory / "launcher.log"
        self.log.touch()
        self.hosts = world.deal_out(named_hosts(self.made.words))
        self.names = list(dict.fromkeys(self.hosts))
        self.tasks: dict[int, Task] = {}
        self.watching: set[int] = set()
        self.prepared: set[int] = set()
        self.built: dict[int, set[int]] = {}
        self.controls: dict[int, Any] = {}
        self.agents: dict[int, Agent] = {}
        self.links: dict[int, SimulatedLink] = {}
        self.shared: dict[tuple[int, int, int], Any] = {}
        self.comm = Comm(world, self.hosts)
        made, directory = self.made, self.directory
        self.rank_links = RankLinks(
            self.layout.processes, KEY, None, partial(story.emit, directory),
            partial(story.read, directory), made.cause, failover.past(directory, made.options),
            lambda *_: None, lambda *_: None)  # type: ignore[arg-type, return-value]
        self.rank_links.ranks.relayed = world.scenario.relayed
        self.wires: Wires = self.rank_links.connections  # type: ignore[assignment]
        self.control = severalnodes.SeveralNodes(self)  # type: ignore[arg-type]
        for proc in range(self.layout.processes):
            task = self.tasks[proc] = world.start(self, proc)
            task.ahead_ns = world.ahead[self.hosts[proc]]

    @property
    def ctl(self) -> Any:
        """The control file of the first node; None: there is none yet."""
        return self.controls.get(0)

    def pid_of(self, proc: int) -> int:
        return self.number * 1000 + proc

    def living(self) -> list[int]:
        return [p for p, task in self.tasks.items() if not task.dead and not task.fiber.dead]

    def frozen_until(self, proc: int) -> int:
        return int(self.tasks[proc].waits.frozen) if proc in self.tasks else 0

    def dead(self) -> list[int]:
        """Processes on the supervisor's node: there are none."""
        return []

    def refused(self) -> str:
        return ""

    def says_why(self) -> bool:
        return False

    def end(self, patience_s: float = 0.0) -> None:
        for task in list(self.world.scheduler.tasks):
            if task.launch == self.number:
                self.world.scheduler.kill(task)
        for link in self.links.values():
            link.end()
        self.rank_links.close()
