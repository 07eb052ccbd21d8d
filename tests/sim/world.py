"""A simulated job on one node: its launches, its supervisor and its processes.

`Scenario` says everything about a run; the same scenario gives the same run. `World.run` returns
what was wrong, in words: nothing if all is well.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import greenlet

from ftrma.fabric.control_file import make_control
from ftrma.host import outfile
from ftrma.host.errors import CATASTROPHE, CatastrophicFailure, CorruptVault, FtrmaError
from ftrma.launch import onenode
from ftrma.launch.job import SUPERVISOR_DIED, Job
from ftrma.launch.relaunch import relaunch
from ftrma.launch.vaulthandover import finish_handover
from ftrma.machine.topology import make_layout
from ftrma.native import extension, job
from ftrma.native.shared import Proc
from ftrma.protocol.repair_round import LaunchEnded
from ftrma.protocol.starting import start_on_node
from ftrma.settings.options import Options

from . import library
from .faults import Faults
from .judge import Judge
from .process import KEY, SimulatedProcess, SimulatedView
from .scenario import Outcome, Scenario
from .scheduler import Hung, Scheduler, Task
from .standins import StandIns

MOST_TURNS = 100_000  # the longest of 5000 drawn runs takes a tenth
LOOK_S = 0.01  # between two looks of the supervisor
CAPACITY_BLOCKS = 64
KILLED = -9  # status of a launcher that was killed


class SimulatedMade(Job):
    """The data that all launches share, without a terminal."""

    def __init__(self, world: World) -> None:
        self.world, self.directory, self.key = world, world.directory, KEY
        self.layout, self.relaunches, self.cause = world.layout, 0, None
        self.options = Options(max_relaunch=world.scenario.max_relaunch, max_no_progress=0)
        self.words, self.begin_from_older = [], lambda why: False

    @property
    def ctl(self) -> Any:
        return self.world.control()


class SimulatedLaunch:
    """One launch: all its processes begin. It has what `onenode.OneNode` asks of a `Launch`."""

    def __init__(self, world: World) -> None:
        self.world, self.made, self.layout = world, world.made, world.layout
        self.directory, self.ctl = world.directory, world.control()
        self.came_up = world.time.monotonic()
        self.mpirun = SimpleNamespace(poll=lambda: KILLED if self.launcher_died else None, pid=0)
        self.launcher_died = self.supervisor_died = False
        self.number = world.launches = world.launches + 1
        self.ranks = {self.pid_of(p): p for p in range(self.layout.processes)}
        self.tasks: dict[int, Task] = {}
        self.watching: set[int] = set()
        self.prepared: set[int] = set()
        self.built: dict[int, set[int]] = {}
        self.ctl.supervisor = self.ctl.launcher = 1
        for proc in range(self.layout.processes):
            self.tasks[proc] = world.start(self, proc)

    def pid_of(self, proc: int) -> int:
        return self.number * 1000 + proc

    def living(self) -> list[int]:
        return [p for p, task in self.tasks.items() if not task.dead and not task.fiber.dead]

    def dead(self) -> list[int]:
        living = set(self.living())
        return [pid for pid, proc in self.ranks.items() if proc not in living]

    def procs(self) -> list[Any]:
        return [self.ctl.proc[p] for p in range(self.ctl.nprocs)]

    def refused(self) -> str:
        return ""

    def says_why(self) -> bool:
        return False

    def end(self, patience_s: float = 0.0) -> None:
        if patience_s:
            self.world.scheduler.sleep(patience_s)
        for task in list(self.world.scheduler.tasks):
            if task.launch == self.number:
                self.world.scheduler.kill(task)


class World(Faults, StandIns, Judge):
    """A run of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.layout = make_layout(
            scenario.slots, -(-scenario.slots // scenario.group_size) * scenario.strength,
            scenario.group_size, scenario.spares)
        self.scheduler = Scheduler(f"turns {scenario.seed}", self.on_call)
        self.scheduler.before, self.scheduler.doom = self.before, self.doom
        self.time = SimpleNamespace(
            monotonic=lambda: self.scheduler.clock_ns() / 1e9, sleep=self.scheduler.sleep,
            monotonic_ns=self.scheduler.clock_ns, time=lambda: self.scheduler.clock_ns() / 1e9,
            time_ns=self.scheduler.clock_ns)
        self.wrong: list[str] = []
        self.told: list[str] = []
        self.status: int | None = None
        self.launches = 0
        self.launch: Any = None
        self.ending: set[int] = set()  # slots that wait for the others' end
        self.finals: dict[int, bytes] = {}
        self.memory: dict[int, Any] = {}
        self.history: dict[tuple[int, int], tuple[int, int, bool, bytes]] = {}
        self.newest: dict[int, tuple[int, int]] = {}  # alarm and committed version that were seen
        self.compared: dict[int, tuple[int, ...]] = {}  # groups whose parities were looked at
        self.begun: dict[int, int] = {}  # newest attempt that each slot has begun
        self.puts: dict[int, tuple[int, list[tuple[int, int, int, int]]]] = {}
        self.results: dict[int, dict[int, int]] = {}
        self.viewed: dict[tuple[int, int], set[int]] = {}  # logs that a process's replay reads
        self.replayed: dict[int, dict[int, int]] = {}
        self.controls: dict[int, Any] = {}
        self.next_fault, self.armed_at, self.happened = 0, 0, 0
        self.awaited: list[list[Any]] = []  # faults at places, and visits until they come
        self.stumbles = 0
        self.deaths: dict[str, int] = {}
        self.recoveries: dict[str, int] = {}
        self.lost_since: dict[int, int] = {}
        self.flipped: dict[int, int] = {}
        self.claimed_catastrophe = False
        # Told programs, by launch and attempt: members; deaths in their order; by sender and
        # receiver the number of messages, and whether the sender knows that it is right.
        self.told_members: dict[tuple[int, int], tuple[int, ...]] = {}
        self.told_deaths: dict[tuple[int, int], list[int]] = {}
        self.told_sent: dict[tuple[int, int, int, int], tuple[int, bool]] = {}

    def expect(self, holds: bool, words: str) -> None:
        if not holds:
            self.wrong.append(words)

    # -- a run --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        shm = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryDirectory(prefix="ftrma-sim-", dir=shm) as folder:
            self.directory = Path(folder)
            self.library = library.Library(self.in_place_of_mpi(), self.scheduler.point)
            try:
                with self.patched():
                    self.begin()
                self.judge()
            finally:
                self.close()
        points = int(library.words().sim.sim_points())
        return Outcome(self.status, self.wrong, self.scheduler.turns, self.scheduler.digest, points,
                       self.happened, self.deaths, self.recoveries, self.told)

    def begin(self) -> None:
        self.begin_job()
        try:
            self.scheduler.run(MOST_TURNS, lambda: self.status is not None or bool(self.wrong))
        except Hung as hung:
            self.wrong.append(f"the job hangs: {hung}")
        for ctl in self.controls.values():
            ctl.alarm = 1 << 60  # all waits in C end
        extension.lib = Gone()
        self.scheduler.end()
        self.wrong += map(repr, self.scheduler.errors)

    def begin_job(self) -> None:
        """Make what is there when the supervisor begins, and let it begin."""
        make_control(self.directory / "control", self.layout, 1 << 20)
        ctl = self.control()
        for slot, group in enumerate(self.layout.slot_group):
            ctl.roles[0].slot_group[slot] = group
        ctl.capacity_blocks = CAPACITY_BLOCKS
        self.made = SimulatedMade(self)
        self.supervise(resumed=False)

    def close(self) -> None:
        self.library.close()

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Have the shipped modules use the simulated clock, library and terminal meanwhile."""
        saved: list[tuple[Any, str, Any]] = []

        def put(owner: Any, name: str, value: Any) -> None:
            saved.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

        def tell(text: str, **_: Any) -> None:
            self.told.append(text)

        killer = SimpleNamespace(kill=lambda pid, number: self.die("gives up its place"),
                                 getpid=lambda: 0)
        for name, module in list(sys.modules.items()):
            if name.startswith("ftrma."):
                if getattr(module, "time", None) is time:
                    put(module, "time", self.time)
                if getattr(module, "tell", None) is outfile.tell and module is not outfile:
                    put(module, "tell", tell)
        put(sys.modules["ftrma.protocol.staging"], "os", killer)
        for name in ("ftrma.fabric.absence", "ftrma.launch.onenode"):
            put(sys.modules[name], "is_stopped", self.is_stopped)
        for name, value in (("WORDS", 512), ("MOST_RING_BYTES", 4096), ("LEAST_RING_BYTES", 4096)):
            put(sys.modules["ftrma.native.mail"], name, value)
        put(extension, "lib", self.library)
        for name, attribute, value in self.replaced():
            put(sys.modules[name], attribute, value)
        rename, unlink = Path.rename, Path.unlink

        def renamed(path: Path, target: Any) -> Path:
            self.scheduler.point()
            return rename(path, target)

        def unlinked(path: Path, missing_ok: bool = False) -> None:
            self.scheduler.point()
            unlink(path, missing_ok)

        put(Path, "rename", renamed)
        put(Path, "unlink", unlinked)
        try:
            yield
        finally:
            for owner, name, value in reversed(saved):
                setattr(owner, name, value)

    def replaced(self) -> list[tuple[str, str, Any]]:
        """Further modules, names in them, and what stands there instead."""
        return []

    def control(self) -> Any:
        """The control file of the newest launch, mapped once."""
        path = self.directory / "control"
        inode = os.stat(path).st_ino
        if inode not in self.controls:
            self.controls[inode] = job.open_control(path)
        return self.controls[inode]

    # -- the supervisor -----------------------------------------------------------------------

    def supervise(self, *, resumed: bool) -> None:
        def run() -> None:
            try:
                if resumed:
                    finish_handover(self.made)
                    ctl = self.made.ctl
                    died = {p for p in range(ctl.nprocs)
                            if ctl.proc[p].state == job.ProcessState.DEAD}
                    if not relaunch(self.made, SUPERVISOR_DIED, died, self.scheduler.now_ns):
                        self.end(CATASTROPHE)
                        return
                    self.count("resumed")
                while True:
                    self.launch = SimulatedLaunch(self)
                    control = onenode.OneNode(self.launch)
                    while (reason := control.check(undecided=False)) is None:
                        self.scheduler.sleep(LOOK_S)
                    status = (control.prepare_next(reason) if reason else control.finish(None))
                    if status is not None:
                        self.end(status)
                        return
                    self.count("relaunch")
                    self.made.relaunches += 1
            except greenlet.GreenletExit:
                pass
            except BaseException:
                self.expect(self.scheduler.over,
                            f"the supervisor raises {traceback.format_exc()}")

        self.supervisor = self.scheduler.add(Task("supervisor", run, -1, 0))

    def end(self, status: int) -> None:
        self.status = status

    def count(self, kind: str) -> None:
        self.recoveries[kind] = self.recoveries.get(kind, 0) + 1

    # -- processes ----------------------------------------------------------------------------

    def start(self, launch: SimulatedLaunch, proc: int) -> Task:
        process = SimulatedProcess(self, proc)

        def live() -> None:
            try:
                process.run()
                self.finish(process)
            except LaunchEnded:
                self.wait_for_end()
            except FtrmaError as error:
                self.ended_by(process, error)
                self.wait_for_end()

        def run() -> None:
            try:
                live()
            except greenlet.GreenletExit:
                pass
            except BaseException:
                self.expect(self.scheduler.over, f"process {proc} raises {traceback.format_exc()}")

        task = self.scheduler.add(Task(f"process {proc}", run, proc, launch.number))
        task.owner = process
        return task

    def ended_by(self, process: SimulatedProcess, error: Exception) -> None:
        """End the job by an error of a process."""
        if not isinstance(error, CatastrophicFailure | CorruptVault):
            raise error
        self.told.append(f"error: {error}")
        self.claimed_catastrophe = True
        process.view.abort(CATASTROPHE)

    def finish(self, process: SimulatedProcess) -> None:
        """Have a process leave that has come to its end."""

    def view_of(self, proc: int) -> Any:
        """The job as a process sees it, which joins."""
        return SimulatedView(self, self.directory, self.launch.ctl, Proc(proc))

    def start_launch(self, view: Any) -> Any:
        """Begin the launch; the vault of the process's role."""
        return start_on_node(view)

    def wait_for_end(self) -> None:
        try:
            while True:
                self.scheduler.sleep(1000.0)
        except greenlet.GreenletExit:
            pass

    def repaired(self, process: SimulatedProcess) -> None:
        if process.repaired.leader:
            self.count(process.repaired.kind if not process.repaired.silent else "silent")
            if process.repaired.died or not process.view.is_ending():
                self.concluded(process.view)

    def is_stopped(self, pid: int) -> bool:
        task = self.launch.tasks.get(pid - self.launch.number * 1000)
        return bool(task and task.waits.frozen > self.scheduler.now_ns)


class Gone:
    """In place of the library when a run is over: whoever calls it unwinds."""

    def __getattr__(self, name: str) -> Any:
        raise greenlet.GreenletExit
