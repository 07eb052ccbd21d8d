"""A simulated job on one node: its launches, its supervisor, its faults, and what it must keep.

`Scenario` says everything about a run; the same scenario gives the same run. `World.run` returns
what was wrong, in words: nothing if all is well.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import greenlet
import numpy as np

from ftrma.fabric.control_file import make_control
from ftrma.host import outfile
from ftrma.host.errors import CATASTROPHE, CatastrophicFailure, CorruptVault
from ftrma.launch import onenode
from ftrma.launch.job import SUPERVISOR_DIED, Job
from ftrma.launch.relaunch import relaunch
from ftrma.launch.vaulthandover import finish_handover
from ftrma.machine.topology import make_layout
from ftrma.native import extension, job, loading
from ftrma.native.constants import CHECKSUM, FAILPOINTS, ROLE_NAMES, SLOT
from ftrma.native.shared import Proc
from ftrma.protocol.repair_round import LaunchEnded
from ftrma.protocol.starting import start_on_node
from ftrma.settings.options import Options

from . import library
from .process import KEY, SimulatedProcess, SimulatedView, without_failure
from .scheduler import Hung, Scheduler, Task

MOST_TURNS = 100_000  # the longest of 5000 drawn runs takes a tenth
LOOK_TURNS = 40  # between two looks whether parities are what they must be
AT_PLACES = ("place", "pause")
LOOK_S = 0.01  # between two looks of the supervisor
NOTICE_NS = (50_000, 300_000, 3_000_000)  # until a death is noticed by a process
PLACES = {number: name for name, number in FAILPOINTS.items()}
CAPACITY_BLOCKS = 64
libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Fault:
    """Something that befalls the job.

    Attributes:
        kind: "kill": a process dies; "place": one dies at a place; "launcher", "supervisor": all
            die with it; "freeze": a process gets no turn for a time; "pause": so does one that
            comes by a place; "stumble": the MPI library fails to make communicators in one round;
            "flip": a bit of a vault is not what was written.
        after: turns after the fault before; at a place: visits since then, while the faults behind
            it take their course.
        who: number among the living processes, modulo their count.
        place: where it dies; role: only who has this role then; empty: anybody.
        ms: for which it is frozen.
    """

    kind: str
    after: int = 1
    who: int = 0
    place: str = ""
    role: str = ""
    ms: int = 0


@dataclass(frozen=True)
class Scenario:
    """Everything about a run; over several nodes see `nodes`."""

    seed: int
    nodes: int = 1
    slots: int = 4
    group_size: int = 2
    strength: int = 1
    spares: int = 2
    steps: int = 6
    policy: str = "auto"
    interval: float | str = 0
    fresh: bool = False
    ulfm: bool = True
    max_relaunch: int = 3
    faults: tuple[Fault, ...] = ()


@dataclass
class Outcome:
    """The outcome of a run.

    Attributes:
        status: exit status of the job; None: it hung.
        wrong: what was wrong, in words; empty: nothing.
        turns: that were given. digest: of whose turns they were. points: accesses to shared words
            before which others may come.
        fired: faults that came to pass. deaths: by role and place.
        recoveries: kinds of repairs, and relaunches.
    """

    status: int | None
    wrong: list[str]
    turns: int
    digest: int
    points: int
    fired: int
    deaths: dict[str, int]
    recoveries: dict[str, int]
    told: list[str] = field(repr=False)


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
        self.mpirun = SimpleNamespace(poll=lambda: 1 if self.launcher_died else None, pid=0)
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


class World:
    """A run of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.layout = make_layout(
            scenario.slots, -(-scenario.slots // scenario.group_size) * scenario.strength,
            scenario.group_size, scenario.spares)
        self.scheduler = Scheduler(f"turns {scenario.seed}", self.on_call)
        self.scheduler.before = self.before
        self.time = SimpleNamespace(
            monotonic=lambda: self.scheduler.now_ns / 1e9, sleep=self.scheduler.sleep,
            monotonic_ns=lambda: self.scheduler.now_ns, time=lambda: self.scheduler.now_ns / 1e9,
            time_ns=lambda: self.scheduler.now_ns)
        self.wrong: list[str] = []
        self.told: list[str] = []
        self.status: int | None = None
        self.launches = 0
        self.launch: Any = None
        self.finals: dict[int, bytes] = {}
        self.memory: dict[int, Any] = {}
        self.history: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.puts: dict[int, tuple[int, list[tuple[int, int, int, int]]]] = {}
        self.results: dict[int, dict[int, int]] = {}
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

    def expect(self, holds: bool, words: str) -> None:
        if not holds:
            self.wrong.append(words)

    # -- a run --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        shm = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryDirectory(prefix="ftrma-sim-", dir=shm) as folder:
            self.directory = Path(folder)
            self.library = library.Library(self.in_place_of_mpi())
            try:
                with self.patched():
                    self.begin()
            finally:
                self.close()
        self.judge()
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
        size = loading.load().ffi.sizeof("struct ftrma_ctl")
        for ctl in self.controls.values():
            address = int(loading.load().ffi.cast("uintptr_t", ctl))
            libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))

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
        put(extension, "lib", self.library)
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

        def run() -> None:
            try:
                process.run()
            except greenlet.GreenletExit:
                pass
            except LaunchEnded:
                self.wait_for_end()
            except (CatastrophicFailure, CorruptVault) as error:
                self.told.append(f"error: {error}")
                self.claimed_catastrophe = True
                process.view.abort(CATASTROPHE)
                self.wait_for_end()
            except BaseException:
                self.expect(self.scheduler.over, f"process {proc} raises {traceback.format_exc()}")

        task = self.scheduler.add(Task(f"process {proc}", run, proc, launch.number))
        task.owner = process
        return task

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

    def is_stopped(self, pid: int) -> bool:
        task = self.launch.tasks.get(pid - self.launch.number * 1000)
        return bool(task and task.frozen_ns > self.scheduler.now_ns)

    # -- what befalls it ----------------------------------------------------------------------

    def fault(self) -> Fault | None:
        faults = self.scenario.faults
        return faults[self.next_fault] if self.next_fault < len(faults) else None

    def fired(self) -> None:
        self.happened += 1
        self.armed_at = self.scheduler.turns

    def before(self, turn: int) -> None:
        """Before a turn: do what is to befall the job now."""
        if turn % LOOK_TURNS == 0 and self.launch:
            self.check_parities(self.launch)
        fault = self.fault()
        while fault and fault.kind in AT_PLACES:
            self.awaited.append([fault, fault.after])
            self.next_fault += 1
            fault = self.fault()
        if fault is None or turn - self.armed_at < fault.after:
            return
        launch = self.launch
        if launch is None or launch.launcher_died or launch.ctl.alarm == job.ENDED:
            return
        living = launch.living()
        if not living:
            return
        self.fired()
        self.next_fault += 1
        victim = living[fault.who % len(living)]
        if fault.kind == "kill":
            self.kill(launch, victim, "amid")
        elif fault.kind == "freeze":
            launch.tasks[victim].frozen_ns = self.scheduler.now_ns + fault.ms * 1_000_000
        elif fault.kind == "stumble":
            self.stumbles += 1
        elif fault.kind == "flip":
            self.flip(launch, victim, fault.ms)
        elif fault.kind == "launcher":
            launch.launcher_died = True
            self.kill_all(launch)
        elif fault.kind == "supervisor":
            launch.launcher_died = True
            self.kill_all(launch)
            self.scheduler.kill(self.supervisor)
            self.supervise(resumed=True)

    def flip(self, launch: Any, victim: int, at: int) -> None:
        """Flip a bit of a vault, as a stray store might; it counts as a loss for good."""
        role, index = job.role_of(self.control_of(victim), victim)
        vault = launch.tasks[victim].owner.vault
        if role not in (SLOT, CHECKSUM) or not vault or not vault.used:
            return
        group = (self.layout.group_of(index) if role == SLOT
                 else self.layout.group_of_checksum(index))
        self.flipped[group] = self.flipped.get(group, 0) + 1
        view = vault.bytes_at(at % vault.used, 4096)
        view[at % 4096] = bytes([view[at % 4096][0] ^ 0x10])
        self.deaths["flip"] = self.deaths.get("flip", 0) + 1

    def beyond(self) -> bool:
        """Some group has lost more than its checksum ranks make up for."""
        return any(self.lost_since.get(group, 0) + self.flipped.get(group, 0)
                   > self.scenario.strength for group in range(self.layout.groups))

    def kill_all(self, launch: SimulatedLaunch) -> None:
        for task in list(self.scheduler.tasks):
            if task.launch == launch.number:
                self.scheduler.kill(task)

    def on_call(self, kind: int, value: int, ns: int) -> int:
        process = self.scheduler.current.owner
        if kind == library.VISIT:
            self.visit(process.proc, PLACES[value])
            return 0
        if kind == library.INTERRUPT:
            return process.interrupted()
        self.live(process, differs=bool(value))
        return 0

    def visit(self, proc: int, place: str) -> None:
        role = ROLE_NAMES[job.role_of(self.launch.ctl, proc)[0]]
        for each in [each for each in self.awaited
                     if each[0].place == place and each[0].role in ("", role)]:
            each[1] -= 1
            if each[1] > 0:
                continue
            self.awaited.remove(each)
            self.fired()
            if each[0].kind == "place":
                self.die(place)
            self.scheduler.current.frozen_ns = self.scheduler.now_ns + each[0].ms * 1_000_000
            self.scheduler.hub.switch()
            return

    def die(self, place: str) -> None:
        """The process whose turn it is dies."""
        self.kill(self.launch, self.scheduler.current.process, place)
        self.scheduler.hub.switch()

    def kill(self, launch: SimulatedLaunch, proc: int, place: str) -> None:
        task, ctl = launch.tasks[proc], launch.ctl
        role, index = job.role_of(ctl, proc)
        name = f"{ROLE_NAMES[role]} {place}"
        self.deaths[name] = self.deaths.get(name, 0) + 1
        if role in (SLOT, CHECKSUM):
            group = (self.layout.group_of(index) if role == SLOT
                     else self.layout.group_of_checksum(index))
            if self.is_whole(launch, group):
                self.lost_since[group] = 0
            self.lost_since[group] = self.lost_since.get(group, 0) + 1
        if role == CHECKSUM and index == self.layout.checksums_of(group)[0]:
            for slot in self.layout.members(group):
                self.results[slot] = {}
        self.scheduler.kill(task)
        for other in sorted(launch.watching - {proc}):
            self.notice(launch, other, proc)

    def is_whole(self, launch: SimulatedLaunch, group: int) -> bool:
        ctl, living = launch.ctl, set(launch.living())
        roles = ctl.roles[ctl.roles_seq & 1]
        holders = [roles.slot_proc[s] for s in self.layout.members(group)]
        holders += [roles.checksum_proc[c] for c in self.layout.checksums_of(group)]
        return all(p in living and ctl.proc[p].ready for p in holders)

    def notice(self, launch: SimulatedLaunch, watcher: int, dead: int) -> None:
        """Have a process's watching thread notice a death, a little later."""
        of = launch.tasks.get(watcher)
        if of is None or of.dead:
            return
        random = self.scheduler.random

        def run() -> None:
            try:
                if not of.dead:
                    job.note_death(dead)
            except greenlet.GreenletExit:
                pass

        task = Task(f"watch {watcher}", run, watcher, launch.number)
        self.watch_state(launch, task, watcher)
        task.until_ns = self.scheduler.now_ns + int(random.random() * random.choice(NOTICE_NS)) + 1
        self.scheduler.add(task)

    def watch_state(self, launch: Any, task: Task, watcher: int) -> None:
        """Have a task run in a process, beside it."""
        self.place(task, launch.ctl, watcher, -1)

    def place(self, task: Task, ctl: Any, proc: int, node: int) -> None:
        words = library.words()
        address = int(loading.load().ffi.cast("uintptr_t", ctl))
        words.sim.sim_watch(task.state, words.ffi.cast("void *", address), proc, node)

    # -- in place of the MPI library ------------------------------------------------------------

    def in_place_of_mpi(self) -> dict[str, Any]:
        def nothing(*_: Any) -> int:
            return 0

        names = ("arm", "boards_clear", "comm_defer", "comm_forget", "exclusive_locks",
                 "far_answers", "far_quiet", "partitioned_help", "replay_view", "trace_note",
                 "windows_flush", "windows_settle", "world_open")
        return {
            **dict.fromkeys(names, nothing), "comm_prepare": self.comm_prepare,
            "comm_build": self.comm_build, "watch": self.watch,
            "has_ulfm": lambda: int(self.scenario.ulfm), "unwind_code": lambda: 1000,
            "failpoint_visit_named": nothing,
        }

    def comm_prepare(self) -> int:
        """Wait for all processes of the launch."""
        launch = self.launch
        launch.prepared.add(self.scheduler.current.process)
        self.poll(lambda: len(launch.prepared) == self.layout.processes)
        return 0

    def poll(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, with looks that become rarer."""
        nap_s = 1e-4
        while not condition():
            self.scheduler.sleep(nap_s)
            nap_s = min(2 * nap_s, 0.1)

    def comm_build(self, number: int) -> int:
        """Wait for all the living in this round, as the library does; an alarm ends the wait."""
        launch = self.launch
        came = launch.built.setdefault(number, set())
        came.add(self.scheduler.current.process)
        if self.stumbles and number:
            self.stumbles -= 1
            return 17
        asked = (number, job.ENDED)
        self.poll(lambda: came >= set(launch.living()) or launch.ctl.alarm not in asked)
        return 0 if launch.ctl.alarm in asked else int(job.Wait.ALARM)

    def watch(self) -> int:
        """Begin to watch the others; a death that is found at once is noted."""
        launch, me = self.launch, self.scheduler.current.process
        launch.watching.add(me)
        living = set(launch.living())
        for proc in range(self.layout.processes):
            if proc not in living:
                job.note_death(proc)
        return 0

    # -- logs -----------------------------------------------------------------------------------

    def begin_logs(self, slot: int, step: int) -> None:
        self.puts[slot], self.results[slot] = (step, []), {}

    def log_put(self, slot: int, target: int, step: int, place: int, value: int) -> None:
        if slot in self.puts:
            self.puts[slot][1].append((target, step, place, value))

    def log_get(self, slot: int, step: int, value: int) -> None:
        if slot in self.results:
            self.results[slot][step] = value

    def logged_get(self, slot: int, step: int) -> int:
        found = self.replayed[slot].get(step)
        self.expect(found is not None, f"slot {slot} is replayed without the result of step {step}")
        return found or 0

    def begin_replay(self, ctl: Any, slot: int, step: int) -> None:
        # The replacement has the log open, whatever becomes of who answers for it.
        self.replayed[slot] = dict(self.results[slot])
        for other in range(self.layout.slots):
            if other != slot and ctl.slots[other].entered == ctl.attempt:
                since = self.puts[other][0]
                self.expect(since <= step, f"slot {slot} is replayed from step {step}, and the log "
                                           f"of slot {other} begins at step {since}")

    def apply(self, slot: int, first: int, last: int | None = None) -> None:
        """Apply the others' logged puts of these steps to a slot's part."""
        window = self.memory[slot].window
        for other, (_, puts) in self.puts.items():
            if other != slot:
                for target, step, place, value in puts:
                    if target == slot and first <= step <= (first if last is None else last):
                        window[place] = value

    def live(self, process: SimulatedProcess, *, differs: bool) -> None:
        """A replay is over: what is logged beyond it is applied, and the own log begins anew."""
        slot, step = process.slot, process.memory.step
        self.expect(not differs, f"slot {slot} has replayed other events than it had done")
        self.apply(slot, step, 1 << 62)
        self.puts[slot] = (step + bool(process.passed_over), [])

    # -- what it must keep ------------------------------------------------------------------------

    def control_of(self, proc: int) -> Any:
        """The control file that a process of the newest launch writes to."""
        return self.launch.ctl

    def check_parities(self, launch: Any) -> None:
        """See whether each group's first parity is the XOR of its members' copies.

        Nobody must be amid a checkpoint or a repair, of all this group has to do with.
        """
        holders = self.roles_of(launch.ctl)
        procs = [self.control_of(p).proc[p] for p in range(self.layout.processes)]
        ctls = {id(ctl): ctl for ctl in map(self.control_of, range(self.layout.processes))}
        if len({ctl.commit for ctl in ctls.values()}) > 1 or any(
                ctl.alarm != ctl.repaired or self.roles_of(ctl) != holders
                for ctl in ctls.values()):
            return
        slots, checksums = holders
        version, living = launch.ctl.commit >> 1, set(launch.living())
        for group in range(self.layout.groups) if version else ():
            members = [slots[s] for s in self.layout.members(group)]
            parity = checksums[self.layout.checksums_of(group)[0]]
            if group in self.flipped or not {*members, parity} <= living:
                continue
            if not (procs[parity].ready and procs[parity].folded == version
                    and procs[parity].summed == version):
                continue
            if not all(procs[p].ready and procs[p].staged == version
                       and procs[p].staging <= version for p in members):
                continue
            vaults = [launch.tasks[p].owner.vault for p in (*members, parity)]
            if all(vaults):
                self.compare(group, version, vaults)

    def roles_of(self, ctl: Any) -> tuple[list[int], list[int]]:
        roles, layout = ctl.roles[ctl.roles_seq & 1], self.layout
        return ([roles.slot_proc[s] for s in range(layout.slots)],
                [roles.checksum_proc[c] for c in range(layout.checksums)])

    def compare(self, group: int, version: int, vaults: list[Any]) -> None:
        size_bytes = 4096 * max(vault.used for vault in vaults)
        total = np.zeros(size_bytes, "u1")
        for vault in vaults:
            part = np.frombuffer(vault.bytes_at(0, 4096 * vault.used), "u1")
            total[:len(part)] ^= part
        self.expect(not total.any(),
                    f"the parity of group {group} is not that of version {version}")

    def judge(self) -> None:
        """Judge the end of the job."""
        scenario = self.scenario
        if self.wrong:
            return
        relaunches = self.recoveries.get("relaunch", 0)
        self.expect(relaunches <= self.happened,
                    f"{relaunches} relaunches for {self.happened} faults")
        if self.status == 0:
            right = without_failure(scenario.slots, scenario.steps)
            for slot in range(scenario.slots):
                self.expect(self.finals.get(slot) == right[slot],
                            f"slot {slot} has a wrong result")
            return
        given_up = any("CatastrophicFailure" in line for line in self.told)
        if given_up or self.claimed_catastrophe:
            self.expect(self.beyond(), "the job gives up, and no group has lost more than "
                                f"{scenario.strength}: {self.told[-3:]}")
            return
        exhausted = relaunches >= scenario.max_relaunch
        repeated = any("killed 3 times running" in line for line in self.told)
        self.expect(exhausted or repeated, f"the job ends with status {self.status}: "
                                           f"{self.told[-3:]}")


class Gone:
    """In place of the library when a run is over: whoever calls it unwinds."""

    def __getattr__(self, name: str) -> Any:
        raise greenlet.GreenletExit
