"""A simulated job over several nodes: a control file on each, which agents keep equal.

The view is the shipped one of several nodes. Agents have a stand-in (`agent`), and vaults of other
nodes are read as files. Each node has a clock of its own.
No launch follows another one here: a job that asks for that has come to its end.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import greenlet

from ftrma.fabric.control_file import make_control
from ftrma.fabric.remote import File
from ftrma.fabric.round_changed import RoundChanged
from ftrma.fabric.several_nodes import MirroredWords, SeveralNodesView
from ftrma.fabric.story import parse
from ftrma.machine.topology import NODES, domains_of_nodes
from ftrma.native import job
from ftrma.native.shared import Proc, Slot
from ftrma.protocol import seating
from ftrma.protocol.starting_nodes import start_over_nodes
from ftrma.protocol.vault_inventory import VaultInventory

from .agent import Agent
from .library import words
from .process import KEY
from .scenario import Scenario
from .scheduler import Task
from .standins import Comm
from .world import CAPACITY_BLOCKS, World

AHEAD_NS = 10**15  # nodes count from when they were started, eleven days apart at most
ON_OTHER_NODE = -1
START_S = 3.0  # for which a launch goes on that has lost a process before all were there
LOST_AT_START = "a process died before the launch had come up"
NOBODY_LEFT = "all processes of the launch have died"


class RemoteFiles:
    """Vaults of other nodes, see `ftrma.fabric.remote.Files`."""

    reading, pieces = False, 0

    def __init__(self, view: NodesView) -> None:
        self.view, self.nodes = view, view.table.nodes

    def here(self, proc: Proc) -> bool:
        return self.nodes[proc] == self.view.table.node

    def share_vault(self, proc: int, path: Path) -> None:
        self.view.world.shared[self.view.table.node, File.VAULT, proc] = path

    def withdraw(self, kind: File, number: int) -> None:
        self.view.world.shared.pop((self.view.table.node, kind, number), None)

    def _path(self, node: int, kind: File, number: int) -> Path:
        """Wait for the file; an alarm ends the wait."""
        view = self.view
        view.world.scheduler.sleep(view.world.scheduler.random.random() * 1e-3)
        asked = (view.begun, job.ENDED)
        view.world.poll(lambda: (node, kind, number) in view.world.shared
                        or view.requested_round() not in asked)
        if view.requested_round() not in asked:
            raise RoundChanged
        return view.world.shared[node, kind, number]

    def read(self, node: int, kind: File, number: int, offset: int, room: Any) -> None:
        with open(self._path(node, kind, number), "rb") as file:
            file.seek(offset)
            file.readinto(room)

    def write(self, node: int, kind: File, number: int, offset: int, data: Any) -> None:
        with open(self._path(node, kind, number), "r+b") as file:
            file.seek(offset)
            file.write(data)


class NodesView(SeveralNodesView):
    """The shipped view of a job over several nodes, without agents in C and without MPI."""

    def __init__(self, world: NodesWorld, proc: int) -> None:
        node = world.node_of(proc)
        self.world, self.proc, self.key = world, Proc(proc), KEY
        self.table: Any = SimpleNamespace(
            hosts=world.hosts, host=world.hosts[proc], names=world.names, node=node,
            nodes=[world.node_of(p) for p in range(len(world.hosts))], node_of=world.node_of,
            first_on_node=world.hosts.index(world.hosts[proc]) == proc,
            directory=world.directory / world.hosts[proc],
            proc=Proc(proc), processes_here=world.hosts.count(world.hosts[proc]))
        self.link: Any = SimpleNamespace(send=world.told_by, request=world.asked_by)
        self.critical = contextlib.nullcontext()
        self.layout, self.domains, self.aware = world.layout, world.domains, NODES
        self.directory, self.ctl = self.table.directory, world.controls[node]
        self.words = MirroredWords(self.ctl, self.proc)
        self.mapped_vaults = {}
        self.begun = 0
        self.agents: Any = SimpleNamespace(
            hold=lambda slot: None, release=lambda slot, insist=False: None,
            begin_round=self.begin, end_attempt=lambda number: None,
            tell_attempt_ended=lambda number: None, reach_holders=lambda *_: None)
        self.everyone: Any = world.comm
        self.remote_files: Any = RemoteFiles(self)
        self.ctl.proc[proc].pid = world.launch.pid_of(proc)
        job.join(self.ctl, self.proc, self.directory)
        words().sim.sim_set_node(node, *(world.agents[node].scans + i for i in range(2)))

    def begin(self) -> int:
        self.begun = self.requested_round()
        return self.begun

    def tell(self, text: str) -> None:
        self.world.told.append(text)

    def share_log(self, slot: Slot) -> None:
        """Logs have a stand-in."""

    def fetch_log(self, slot: Slot) -> None:
        """Logs have a stand-in."""


class NodesLaunch:
    """The one launch, see `world.SimulatedLaunch`."""

    def __init__(self, world: NodesWorld) -> None:
        self.world, self.layout, self.number = world, world.layout, 1
        self.ctl = world.controls[0]
        self.launcher_died = False
        self.tasks: dict[int, Task] = {}
        self.watching: set[int] = set()
        self.built: dict[int, set[int]] = {}

    def pid_of(self, proc: int) -> int:
        return 1000 + proc

    def living(self) -> list[int]:
        return [p for p, task in self.tasks.items() if not task.dead and not task.fiber.dead]


class NodesWorld(World):
    """A run of a scenario over several nodes, to which the processes are dealt out."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.names = [f"node{y}" for y in range(scenario.nodes)]
        count = self.layout.processes
        self.hosts = [self.names[p % scenario.nodes] for p in range(count)]
        self.domains = domains_of_nodes(self.hosts)
        self.comm = Comm(self)
        self.story: list[dict[str, Any]] = []
        self.shared: dict[tuple[int, int, int], Path] = {}
        self.agents: list[Agent] = []
        self.asked, self.entered = "", False
        self.ahead = [self.scheduler.random.randrange(AHEAD_NS) for _ in self.names]

    def ahead_ns(self, node: int) -> int:
        return self.ahead[node]

    def node_of(self, proc: int) -> int:
        return self.names.index(self.hosts[proc])

    def begin_job(self) -> None:
        placement = seating.seat_launch(self.layout, self.hosts, {}, self.domains, NODES)
        self.layout = placement.layout
        for node, name in enumerate(self.names):
            (self.directory / name).mkdir()
            path = self.directory / name / "control"
            make_control(path, self.layout, 1 << 20)
            ctl = self.controls[node] = job.open_control(path)
            ctl.capacity_blocks, ctl.nodes = CAPACITY_BLOCKS, len(self.names)
            ctl.supervisor = ON_OTHER_NODE
            roles = ctl.roles[0]
            for slot, proc in enumerate(placement.slot_proc):
                roles.slot_proc[slot], roles.slot_group[slot] = proc, self.layout.slot_group[slot]
            for checksum, proc in enumerate(placement.checksum_proc):
                roles.checksum_proc[checksum] = proc
            for number, spare in enumerate(placement.spares):
                ctl.proc[spare].spare = number
            for proc in range(self.layout.processes):
                ctl.proc[proc].node = self.node_of(proc)
                ctl.proc[proc].state = job.ProcessState.ALIVE
        self.agents = [Agent(self, node) for node in range(len(self.names))]
        self.launch = NodesLaunch(self)
        for agent in self.agents:
            self.scheduler.add(Task(f"agent {agent.node}", agent.run, -1, 0))
        for proc in range(self.layout.processes):
            task = self.launch.tasks[proc] = self.start(self.launch, proc)
            task.ahead_ns = self.ahead[self.node_of(proc)]
        self.scheduler.add(Task("supervisor", self.look_after, -1, 0))

    def look_after(self) -> None:
        """End the run when the processes have ended or ask for the end."""
        with contextlib.suppress(greenlet.GreenletExit):
            while True:
                self.scheduler.sleep(0.01)
                if any(ctl.alarm == job.ENDED for ctl in self.controls.values()):
                    self.poll(lambda: all(
                        self.launch.tasks[p].fiber.dead or self.launch.tasks[p].dead
                        for p in self.launch.tasks))
                    self.end(0)
                elif self.asked:
                    self.end(70)
                elif not self.launch.living():
                    self.asked = NOBODY_LEFT
                elif self.deaths and not self.entered:
                    self.scheduler.sleep(START_S)
                    if not self.entered:
                        self.asked = LOST_AT_START

    def view_of(self, proc: int) -> Any:
        return NodesView(self, proc)

    def start_launch(self, view: Any) -> Any:
        inventory = VaultInventory(view.directory, view.table.host, self.layout, CAPACITY_BLOCKS)
        inventory.exchange(self.comm, [], looking=False)
        return start_over_nodes(view, inventory)

    # -- the link to the supervisor -----------------------------------------------------------

    def told_by(self, event: str, **data: Any) -> None:
        if event == "entered":
            self.entered = True
        elif event in ("relaunch", "abort"):
            self.asked = self.asked or str(data.get("reason") or data.get("why") or event)
            self.told.append(self.asked)
        elif parse({"event": event, **data}):
            self.story.append({"event": event, **data})

    def asked_by(self, event: str, **_: Any) -> dict[str, Any]:
        return {"events": list(self.story), "granted": True}

    # -- deaths -------------------------------------------------------------------------------

    def notice(self, launch: Any, watcher: int, dead: int) -> None:
        """A process of the same node sees the death; the others are told of it, some time later."""
        super().notice(launch, watcher, dead)
        if self.node_of(watcher) != self.node_of(dead):
            self.scheduler.tasks[-1].waits.until += int(self.scheduler.random.random() * 5_000_000)

    def watch_state(self, launch: Any, task: Task, watcher: int) -> None:
        node = self.node_of(watcher)
        self.place(task, self.controls[node], watcher, node)

    def control_of(self, proc: int) -> Any:
        return self.controls[self.node_of(proc)]

    def lose_connection(self, which: int) -> None:
        agent = self.agents[1 + which % (len(self.agents) - 1)]
        agent.lost = True
        agent.poke[0] = (agent.poke[0] + 1) & 0xFFFFFFFF

    def controls_in_use(self, launch: Any) -> list[Any]:
        return list(self.controls.values())

    def is_over(self, launch: Any) -> bool:
        return any(ctl.alarm == job.ENDED for ctl in self.controls.values())

    def spoil(self, launch: Any, proc: int) -> None:
        """The next launch looks for vaults of the dead on their nodes."""

    def judge(self) -> None:
        self.judge_words_told()
        scenario = self.scenario
        if self.wrong or self.status == 0 or self.claimed_catastrophe:
            super().judge()
            return
        spares_gone = sum(self.deaths.values()) > scenario.spares
        beyond = self.beyond()
        causes = {"no spare is left": spares_gone, "too many to go on in place": beyond,
                  "CatastrophicFailure": beyond, "killed 3 times running": True,
                  "cannot make a communicator": True, LOST_AT_START: True,
                  NOBODY_LEFT: not self.launch.living()}
        fine = any(holds and cause in self.asked for cause, holds in causes.items())
        self.expect(fine or scenario.fresh or not scenario.ulfm,
                    f"the job asks for its end: {self.asked}")
