"""A simulated job over several nodes: a control file on each, which agents keep equal.

The view is the shipped one of several nodes, and launches begin by the shipped `starting_nodes`.
Agents have a stand-in (`agent`), so have the links to the supervisor (`links`), and vaults of other
nodes are read as files. Each node has a clock of its own. A launch is followed by the next one as
`nodelaunch` has it; nodes may be lost meanwhile, and the launcher may deal out processes anew.
"""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import greenlet

from ftrma.fabric.absence import stopped
from ftrma.fabric.control_file import make_control
from ftrma.fabric.node_table import NodeTable
from ftrma.fabric.remote import File
from ftrma.fabric.round_changed import RoundChanged
from ftrma.fabric.several_nodes import MirroredWords, SeveralNodesView
from ftrma.host.errors import CATASTROPHE, FtrmaError
from ftrma.machine.placement import Placement
from ftrma.machine.topology import Domains
from ftrma.native import job
from ftrma.native.constants import ROLE_NAMES
from ftrma.native.shared import Proc, Slot
from ftrma.protocol.starting_nodes import join, start_over_nodes

from .agent import Agent
from .library import words
from .links import SimulatedLink, Wires, unwinding
from .nodelaunch import NodesLaunch, NodesMade
from .scenario import Scenario
from .scheduler import Task
from .world import CAPACITY_BLOCKS, LOOK_S, World

AHEAD_NS = 10**15  # nodes count from when they were started, eleven days apart at most


class RemoteFiles:
    """Vaults of other nodes, see `ftrma.fabric.remote.Files`."""

    reading, pieces = False, 0

    def __init__(self, view: NodesView) -> None:
        self.view, self.nodes = view, view.table.nodes
        self.shared = view.launch.shared

    def here(self, proc: Proc) -> bool:
        return self.nodes[proc] == self.view.table.node

    def share_vault(self, proc: int, path: Path) -> None:
        self.shared[self.view.table.node, File.VAULT, proc] = path

    def withdraw(self, kind: File, number: int) -> None:
        self.shared.pop((self.view.table.node, kind, number), None)

    def _path(self, node: int, kind: File, number: int) -> Path:
        """Wait for the file; an alarm ends the wait."""
        view = self.view
        view.world.scheduler.sleep(view.world.scheduler.random.random() * 1e-3)
        asked, lost = (view.begun, job.ENDED), view.world.lost_hosts
        host = view.table.names[node]
        view.world.poll(lambda: ((node, kind, number) in self.shared and host not in lost)
                        or view.requested_round() not in asked)
        if view.requested_round() not in asked:
            raise RoundChanged
        return Path(self.shared[node, kind, number])

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

    def __init__(
        self, world: NodesWorld, link: Any, table: NodeTable, placement: Placement,
        domains: Domains, aware: str, **_: Any,
    ) -> None:
        self.world, self.launch, self.link, self.table = world, world.launch, link, table
        self.proc, self.key, self.critical = table.proc, world.made.key, link.critical
        self.layout = world.layout = placement.layout
        self.domains, self.aware = domains, aware
        self.directory = table.directory
        if table.first_on_node:
            self._make_files(placement)
        self.launch.comm.Barrier()
        if table.first_on_node and self.several_nodes:
            self.launch.agents[table.node].begin()
        self.ctl = self.launch.controls[table.node]
        self.words = MirroredWords(self.ctl, self.proc)
        self.mapped_vaults = {}
        self.begun = 0
        self.agents: Any = None
        self.everyone: Any = self.launch.comm
        if self.several_nodes:
            self.agents = SimpleNamespace(
                hold=lambda slot: None, release=lambda slot, insist=False: None,
                begin_round=self.begin, end_attempt=lambda number: None,
                tell_attempt_ended=lambda number: None, reach_holders=lambda *_: None)
            self.remote_files: Any = RemoteFiles(self)
            scans = self.launch.agents[table.node].scans
            words().sim.sim_set_node(table.node, *(scans + i for i in range(2)))
        self.ctl.proc[self.proc].pid = self.launch.pid_of(self.proc)
        job.join(self.ctl, self.proc, self.directory)
        link.gone, link.lost, link.over = self._gone, self._lost, self._over
        link.stopped = lambda: stopped(self.ctl, table.node)
        job.comm_prepare()
        self.launch.comm.Barrier()
        self.reach_holders()

    def _make_files(self, placement: Placement) -> None:
        launch, node = self.launch, self.table.node
        path = self.directory / "control"
        path.unlink(missing_ok=True)
        make_control(path, self.layout, 1 << 20)
        ctl = launch.controls[node] = job.open_control(path)
        self.world.controls[launch.number * 100 + node] = ctl
        ctl.capacity_blocks = CAPACITY_BLOCKS
        self._fill_control(ctl, placement)
        if self.several_nodes:
            launch.agents[node] = Agent(self.world, launch, node)

    def begin(self) -> int:
        self.begun = self.requested_round()
        return self.begun

    def tell(self, text: str) -> None:
        self.world.told.append(text)

    def share_log(self, slot: Slot) -> None:
        """Logs have a stand-in."""

    def fetch_log(self, slot: Slot) -> None:
        """Logs have a stand-in."""


class Done:
    """In place of `threading.Event` in a simulated process."""

    def __init__(self, world: NodesWorld) -> None:
        self.world, self.is_set = world, False

    def set(self) -> None:
        self.is_set = True

    def wait(self, timeout_s: float) -> bool:
        until = self.world.scheduler.now_ns + int(timeout_s * 1e9)
        while not self.is_set and self.world.scheduler.now_ns < until:
            self.world.scheduler.sleep(timeout_s / 4)
        return self.is_set


class SimulatedHelper:
    """In place of `ftrma.host.helper.Helper`: a thread of the process whose turn it is."""

    def __init__(self, world: NodesWorld, target: Callable[..., object], *args: Any) -> None:
        self.world, self.run = world, partial(target, *args)

    def start(self) -> None:
        world = self.world
        world.helper_of(world.launch, world.scheduler.current.process, self.run)


class NodesWorld(World):
    """A run of a scenario over several nodes, to which the processes are dealt out."""

    made: Any

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.all_hosts = [f"node{y}" for y in range(scenario.nodes)]
        self.first_layout = self.layout
        self.ahead = {host: self.scheduler.random.randrange(AHEAD_NS) for host in self.all_hosts}
        self.lost_hosts: set[str] = set()
        self.committed = 0  # the newest version that was committed in a launch before
        self.given_options: Any = SimpleNamespace(
            job="", layout=lambda: self.first_layout, aware="", topology="", bind=None,
            log_budget=None, kill=[])

    def begin_job(self) -> None:
        path = self.directory / "control"
        make_control(path, self.layout, 1 << 20)
        job.make_story(self.directory / "events")
        self.given_options.job = str(self.directory)
        self.made = NodesMade(self)
        self.supervise(resumed=False)

    def replaced(self) -> list[tuple[str, str, Any]]:
        """Modules, names and what stands there instead, see `World.patched`."""
        def comm() -> Any:
            return SimpleNamespace(COMM_WORLD=self.launch.comm)

        def failing_of(directory: Path, words: list[str], hosts: Sequence[str]) -> dict[str, str]:
            return {host: "no answer" for host in hosts if host in self.lost_hosts}

        return [
            ("ftrma.launch.ranklinks", "Connections",
             lambda key, bind, take, gone: Wires(self, take, gone)),
            ("ftrma.launch.eachhost", "failing_of", failing_of),
            ("ftrma.launch.failover", "sweep", lambda *_: None),
            ("ftrma.launch.failover", "answers", self.answers),
            ("ftrma.launch.nexthosts", "answers", self.answers),
            ("ftrma.launch.mpirun", "default_hostfiles", list),
            ("ftrma.native.loading", "import_mpi", comm),
            ("ftrma.fabric.node_table", "socket", SimpleNamespace(
                gethostname=lambda: self.launch.hosts[self.scheduler.current.process])),
            ("ftrma.fabric.node_table", "clock", SimpleNamespace(ahead_ns=lambda ask: 0)),
            ("ftrma.fabric.node_table", "job", SimpleNamespace(set_clock=lambda ahead_ns: None)),
            ("ftrma.protocol.starting_nodes", "SeveralNodesView", partial(NodesView, self)),
            ("ftrma.protocol.starting_nodes", "capacity_blocks", lambda *_: CAPACITY_BLOCKS),
            ("ftrma.fabric.several_nodes", "Helper", partial(SimulatedHelper, self)),
            ("ftrma.fabric.several_nodes", "threading",
             SimpleNamespace(Event=partial(Done, self))),
        ]

    # -- nodes --------------------------------------------------------------------------------

    def ahead_ns(self, node: int) -> int:
        return self.ahead[self.launch.names[node]]

    def node_of(self, proc: int) -> int:
        return int(self.launch.names.index(self.launch.hosts[proc]))

    def answers(self, host: str) -> bool:
        return host not in self.lost_hosts

    def deal_out(self, hosts: list[str]) -> list[str]:
        """The host of each process of a launch.

        The launcher deals them out in turn at first. In later launches it may fill one host after
        another, or give one more than before.
        """
        lost = self.lost_hosts & {*hosts}
        self.expect(not lost, f"a launch is begun on {lost}, lost before")
        count, random = self.layout.processes, self.scheduler.random
        by_turns = [hosts[p % len(hosts)] for p in range(count)]
        how = random.random() if self.launches > 1 else 0
        if how < 0.4:
            return by_turns
        if how < 0.7:
            return sorted(by_turns)
        return [*hosts, *(random.choice(hosts) for _ in range(count - len(hosts)))]

    def control_here(self, launch: NodesLaunch, proc: int) -> Any:
        """The control file of a process's node; None: there is none yet."""
        return launch.controls.get(launch.names.index(launch.hosts[proc]))

    def helper_of(self, launch: NodesLaunch, proc: int, run: Callable[[], object]) -> Task:
        """Have a thread run in a process, beside its main one."""
        def all_of_it() -> None:
            with unwinding():
                run()

        task = Task(f"thread of {proc}", all_of_it, proc, launch.number)
        task.ahead_ns = self.ahead[launch.hosts[proc]]
        if self.control_here(launch, proc) is not None:
            self.watch_state(launch, task, proc)
        return self.scheduler.add(task)

    # -- the supervisor -----------------------------------------------------------------------

    def supervise(self, *, resumed: bool) -> None:
        def run() -> None:
            with unwinding():
                try:
                    self.end(self.launch_again_and_again())
                except greenlet.GreenletExit:
                    raise
                except BaseException:
                    self.expect(self.scheduler.over,
                                f"the supervisor raises {traceback.format_exc()}")

        self.supervisor = self.scheduler.add(Task("supervisor", run, -1, 0))

    def launch_again_and_again(self) -> int:
        while True:
            self.launch = None
            self.launch = launch = NodesLaunch(self)
            control = launch.control
            while (reason := control.check(undecided=False)) is None:
                launch.rank_links.pump(LOOK_S)
            status = control.finish(None) if not reason else control.prepare_next(reason)
            before = 0 if launch.rank_links.ranks.entered else self.committed
            self.committed = max([before, *(c.commit >> 1 for c in launch.controls.values())])
            if status is not None:
                return status
            self.count("relaunch")
            self.made.relaunches += 1

    # -- processes ----------------------------------------------------------------------------

    def view_of(self, proc: int) -> Any:
        launch = self.launch
        view, self.launch.tasks[proc].owner.inventory = join(
            self.given_options, Proc(proc), SimulatedLink(self, launch, proc))
        return view

    def start_launch(self, view: Any) -> Any:
        inventory = self.launch.tasks[view.proc].owner.inventory
        vault = start_over_nodes(view, inventory)
        version = view.words.committed
        self.expect(version >= self.committed or self.beyond() or self.scheduler.over,
                    f"a launch goes on from version {version}, and {self.committed} was committed")
        return vault

    def ended_by(self, process: Any, error: Exception) -> None:
        """End the job by an error of a process, unless a death has caused it."""
        view = getattr(process, "view", None)
        if view and view.claim_error():
            self.told.append(f"error: {error}")
            self.claimed_catastrophe |= type(error) is not FtrmaError
            view.abort(CATASTROPHE)

    def finish(self, process: Any) -> None:
        process.view.leave()

    # -- deaths -------------------------------------------------------------------------------

    def threads_of(self, launch: NodesLaunch, proc: int) -> None:
        """All threads of a dead process end, and its connection."""
        for task in list(self.scheduler.tasks):
            if task.launch == launch.number and task.process == proc:
                self.scheduler.kill(task)
        if proc in launch.links:
            launch.links[proc].end()

    def vanish(self, launch: NodesLaunch, proc: int) -> None:
        """A process ends as the supervisor has told it."""
        self.scheduler.kill(launch.tasks[proc])
        self.threads_of(launch, proc)
        for other in sorted(launch.watching - {proc}):
            self.notice(launch, other, proc)  # type: ignore[arg-type]
        self.scheduler.hub.switch()

    def kill(self, launch: Any, proc: int, place: str) -> None:
        if launch.ctl is None:
            self.deaths["process starts"] = self.deaths.get("process starts", 0) + 1
            self.scheduler.kill(launch.tasks[proc])
        else:
            super().kill(launch, proc, place)
        self.threads_of(launch, proc)

    def kill_all(self, launch: Any) -> None:
        super().kill_all(launch)
        for link in launch.links.values():
            link.end()

    def lose_node(self, which: int) -> None:
        """A node is lost, with its processes and its memory."""
        launch = self.launch
        hosts = sorted({launch.hosts[p] for p in launch.living()})
        if len(hosts) < 2:
            return
        if self.scenario.relayed and which % 8:  # that of process 0 leads to another launch
            hosts = [host for host in hosts if host != launch.hosts[0]] or hosts
        host = hosts[which % len(hosts)]
        self.lost_hosts.add(host)
        here = [p for p in launch.living() if launch.hosts[p] == host and launch.ctl is not None]
        roles = [job.role_of(launch.ctl, p) for p in here]
        held = {f"{ROLE_NAMES[role]}-{index}" for role, index in roles}  # `kill` counts those
        for group in range(self.layout.groups):  # vaults there that are on their way elsewhere
            names = [f"slot-{s}" for s in self.layout.members(group)]
            names += [f"checksum-{c}" for c in self.layout.checksums_of(group)]
            there = [name for name in names if (self.directory / host / name).exists()
                     and name not in held]
            self.lost_since[group] = self.lost_since.get(group, 0) + len(there)
        for proc in [p for p in launch.living() if launch.hosts[p] == host]:
            if proc in launch.links:
                launch.links[proc].node_lost = True
                launch.links[proc].silent = not self.scenario.relayed or bool(which % 2)
            self.kill(launch, proc, "with its node")
        for task in list(self.scheduler.tasks):
            node = launch.names.index(host)
            if task.launch == launch.number and task.name == f"agent {node}":
                self.scheduler.kill(task)
        shutil.rmtree(self.directory / host, ignore_errors=True)

    def notice(self, launch: Any, watcher: int, dead: int) -> None:
        """A process of the same node sees the death; others learn of it by the mirror."""
        if launch.hosts[watcher] == launch.hosts[dead]:
            super().notice(launch, watcher, dead)

    def watch_state(self, launch: Any, task: Task, watcher: int) -> None:
        node = launch.names.index(launch.hosts[watcher])
        self.place(task, launch.controls[node], watcher, node if len(launch.names) > 1 else -1)
        task.ahead_ns = self.ahead[launch.hosts[watcher]]

    def control_of(self, proc: int) -> Any:
        return self.launch.controls[self.node_of(proc)]

    def lose_connection(self, which: int) -> None:
        agents = self.launch.agents
        if len(self.launch.names) == len(agents) > 1:
            agent = agents[1 + which % (len(agents) - 1)]
            agent.lost = True
            agent.poke[0] = (agent.poke[0] + 1) & 0xFFFFFFFF

    def kill_agent(self, which: int) -> None:
        """The agent of a node dies; a process there sees that another one follows."""
        launch = self.launch
        if not len(launch.names) == len(launch.agents) > 1:
            return
        agent = launch.agents[which % len(launch.agents)]
        host = launch.names[agent.node]
        there = [p for p in launch.living() if launch.hosts[p] == host]
        if agent.task is None or host in self.lost_hosts:
            return
        agent.die()
        self.deaths["agent"] = self.deaths.get("agent", 0) + 1
        if there and (view := getattr(launch.tasks[there[0]].owner, "view", None)):
            self.helper_of(launch, there[0], view._agent_followed)

    def controls_in_use(self, launch: Any) -> list[Any]:
        there = len(launch.controls) == len(launch.names)
        return list(launch.controls.values()) if there else []

    def begins_launch(self, launch: Any) -> bool:
        return not launch.rank_links.ranks.entered

    def is_whole(self, launch: Any, group: int) -> bool:
        return not self.begins_launch(launch) and super().is_whole(launch, group)

    def check_parities(self, launch: Any) -> None:
        if self.controls_in_use(launch):
            super().check_parities(launch)

    def is_over(self, launch: Any) -> bool:
        return any(ctl.alarm == job.ENDED for ctl in launch.controls.values())

    def living_in(self, launch: Any, role: str) -> list[int]:
        return super().living_in(launch, role) if launch.ctl is not None or not role else []

    def spoil(self, launch: Any, proc: int) -> None:
        """The next launch looks for vaults of the dead on their nodes."""

    def flip(self, launch: Any, victim: int, at: int) -> None:
        if self.controls_in_use(launch):
            super().flip(launch, victim, at)
