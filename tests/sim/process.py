"""A process of a simulated job: the shipped protocol, and a stand-in for `program` around it.

`SimulatedView` is the shipped view of a job on one node, without a terminal. `SimulatedProcess`
takes the part of `ftrma.program.runner` and `ftrma.program.session`: it runs the program as a slot,
serves as a checksum rank or spare, and repairs. The program is that of `program`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftrma.fabric.control_words import ControlWords
from ftrma.fabric.one_node import OneNodeView
from ftrma.host.errors import Rollback
from ftrma.host.key import Key
from ftrma.native import job, logs
from ftrma.native.constants import SLOT, WHAT
from ftrma.native.shared import Control, Proc, Slot, Version
from ftrma.protocol import coordinated, staging
from ftrma.protocol.checkpoint_policy import CheckpointPolicy
from ftrma.protocol.repair import repair
from ftrma.protocol.restoring import check_own_vault
from ftrma.protocol.server import Served, Server
from ftrma.vault.vault import Region

from .library import words
from .program import STATE, WINDOW, Memory, compute, place_of_get, puts_of
from .told import ToldProgram

if TYPE_CHECKING:
    from .world import World

KEY = Key(bytes(range(32)))
ALONE_LOOK_S = 2e-4  # between the first two looks of a slot that stages alone


class SimulatedView(OneNodeView):
    """The shipped view of a job on one node."""

    def __init__(self, world: World, directory: Path, ctl: Control, proc: Proc) -> None:
        self.world, self.directory, self.key, self.proc, self.ctl = world, directory, KEY, proc, ctl
        self.words = ControlWords(ctl, proc)
        self.mapped_vaults = {}
        ctl.proc[proc].pid = world.launch.pid_of(proc)
        job.join(ctl, proc, directory)

    def tell(self, text: str) -> None:
        self.world.told.append(text)


class SimulatedProcess:
    """A process from its start to its end.

    Args:
        world: that it lives in.
        proc: its number in its launch.
    """

    def __init__(self, world: World, proc: int) -> None:
        self.world, self.scenario = world, world.scenario
        self.proc = Proc(proc)
        self.vault: Any = None
        self.inventory: Any = None  # over several nodes, the vaults that its launch found
        self.repaired: Any = None
        self.unwound = False
        self.ending: BaseException | None = None
        self.slot = Slot(-1)
        self.memory = Memory()
        self.ordinal = self.steps_before = 0
        self.repairs = self.repairs_seen = 0  # it has taken part in; before the last safepoint
        self.attempt_as_place = 0  # in which it has run a told program as a spare
        self.passed_over = 0  # puts of this step that a replay has not done again
        self.policy = CheckpointPolicy(self.scenario.interval, 10.0)

    def run(self) -> None:
        """Live to the end of the launch, as `ProgramRunner.run` does."""
        world = self.world
        self.view = view = world.view_of(self.proc)
        view.set_policy(self.scenario.policy, fresh=self.scenario.fresh)
        self.vault = world.start_launch(view)
        while True:
            try:
                if view.role()[0] == SLOT:
                    if view.alarmed():
                        raise Rollback("a process failed")
                    self.run_program()
                    return
                server = Server(view, self.vault, lambda: None)
                served = server.serve(place=self.attempt_as_place != view.words.attempt)
                self.vault = server.vault
                if served is Served.ENDED:
                    return
                if served is Served.CLAIMED:
                    self.attempt_as_place = view.words.attempt
                    ToldProgram(self).run_spare()
                    continue
            except Rollback:
                if self.ending:
                    raise self.ending from None
                if self.unwound:
                    self.unwound = False
                    continue
            self.interrupt()
            self.unwound = False

    def interrupt(self) -> bool:
        """Repair what is pending, as `Session.interrupt` does."""
        self.vault, self.repaired = repair(self.view, self.vault)
        self.repairs += 1
        self.world.repaired(self)
        self.unwound = self.repaired.kind != "causal"
        if self.vault and not self.unwound:
            self.vault.undone(Version(self.view.words.me.staged))
        return not self.unwound

    def interrupted(self) -> int:
        """Do that for C: 0: the call goes on; 1: it unwinds."""
        if self.ending:
            return 1
        try:
            return int(not self.interrupt())
        except Exception as error:
            self.ending = error
        except BaseException as error:
            if type(error).__name__ == "GreenletExit":
                raise
            self.ending = error
        return 1

    # -- the program --------------------------------------------------------------------------

    def run_program(self) -> None:
        view, world = self.view, self.world
        replay = bool(view.words.slot(Slot(view.role()[1])).replaying)
        self.begin_attempt(replay)
        begun = view.words.attempt == 1 and not view.words.resumed and not replay
        view.visit("start" if begun else "reentry")
        if not self.anchored:
            different = view.slot_that_differs(1234)
            world.expect(different is None, f"slot {self.slot}: slot {different} differs")
        if self.scenario.told:
            ToldProgram(self).run_slot(self.slot)
        else:
            self.run_steps()
        view.unwind_if_alarmed()
        view.visit("end")
        view.words.me.finished = view.words.attempt
        world.ending.add(self.slot)
        view.end_program()
        world.finals[self.slot] = self.memory.bytes()

    def run_steps(self) -> None:
        self.pass_safepoints()
        while self.memory.step < self.scenario.steps:
            self.run_step()

    def begin_attempt(self, replay: bool) -> None:
        view, world = self.view, self.world
        job.attempt_begin()
        self.slot = slot = Slot(view.role()[1])
        self.ordinal = self.steps_before = self.passed_over = 0
        self.memory = Memory()
        self.memory.passed = self.scenario.safepoints
        world.begins(view, slot, replay=replay)
        committed = view.words.committed
        self.anchored = False
        if self.vault:
            self.vault.release()
        if committed:
            if not replay:
                check_own_vault(view, slot)
            self.restore(committed)
        world.memory[slot] = self.memory
        self.policy.last = world.time.monotonic()
        if replay:
            world.begin_replay(view.ctl, slot, self.memory.step)
            words().sim.sim_replay(slot, committed)
            mark = view.words.slot(slot).marks[committed & 1]
            self.anchored = bool(committed) and not mark.start
            if self.anchored:
                words().sim.sim_set_barriers(self.record["barriers"])
                self.ordinal = self.record["ordinal"]
                self.steps_before = self.record["step"] - self.ordinal
        elif view.logs_accesses(trace=False):
            world.begin_logs(slot, self.memory.step)
            logs.log_start(committed)
        world.begun[slot] = view.words.attempt

    def restore(self, version: Version) -> None:
        vault, memory, world = self.vault, self.memory, self.world
        self.record = record = vault.read_record(self.view.seal(version))
        for key, array in (("window", memory.window), ("state", memory.state)):
            vault.copy_out(key, array.ctypes.data, array.nbytes)
        memory.step, memory.passed = int(record["done"]), int(record["passed"])
        memory.amid = bool(record["amid"])
        self.steps_before = max(0, int(record["step"]) - 1)
        saved = world.history.get((version, self.slot))
        world.expect(saved == memory.at(),
                     f"slot {self.slot} has other bytes of version {version} than it staged")

    def run_step(self) -> None:
        slot, memory, slots = self.slot, self.memory, self.scenario.slots
        step, late = memory.step, self.scenario.late
        if not memory.amid:
            if not late:
                self.put_all(step)
            self.view.barrier()
            if logs.mode() is not logs.Mode.LIVE:
                self.world.apply(slot, step - late)
            source, place = place_of_get(slot, slots, step)
            got = self.get(source, place)
            compute(memory, got, slot, step)
            if self.scenario.alone and step % 2:
                self.stage_alone()
        memory.amid = False
        self.view.barrier()
        if late:
            self.put_all(step)
        memory.step, memory.passed, self.passed_over = step + 1, 0, 0
        self.pass_safepoints()

    def pass_safepoints(self) -> None:
        """Come to the safepoints between two steps that are left."""
        while self.memory.passed < self.scenario.safepoints:
            self.memory.passed += 1
            self.safepoint()

    def put_all(self, step: int) -> None:
        """Put what this slot puts in a step."""
        for target, place, value in puts_of(
                self.slot, self.scenario.slots, step, self.memory.state):
            self.put(target, place, value)

    def begin_event(self, what: str) -> int:
        result = logs.event_begin(WHAT[what])
        if result > 1:
            raise Rollback("a process failed")
        return result

    def put(self, target: int, place: int, value: int) -> None:
        world = self.world
        if not self.begin_event("PUT"):
            self.await_live(target)
            self.view.visit("put")
            world.log_put(self.slot, target, self.memory.step, place, value)
            world.scheduler.point()
            world.memory[target].window[place] = value
            self.view.visit("put-landed")
        else:
            self.passed_over += 1
        logs.event_finish()

    def get(self, source: int, place: int) -> int:
        world, step = self.world, self.memory.step
        if self.begin_event("GET"):
            value = world.logged_get(self.slot, step)
        else:
            self.await_live(source)
            value = int(world.memory[source].window[place])
            world.log_get(self.slot, step, value)
        logs.event_finish()
        return value

    def await_live(self, slot: int) -> None:
        if words().sim.sim_await_live(slot):
            raise Rollback("a process failed")

    def safepoint(self) -> None:
        """Come to a safepoint, see `Session.safepoint`."""
        view = self.view
        view.visit("safepoint")
        view.unwind_if_alarmed()
        self.ordinal += 1
        view.words.me.step = self.steps_before + self.ordinal
        done, taken = self.begin_event("SAFEPOINT"), Version(0)
        if not done and coordinated.arrive_if_due(
                view, self.policy, self.slot, self.ordinal, lambda: 8 * (WINDOW + STATE),
                settle=self.settle):
            taken = self.checkpoint()
        logs.event_finish()
        if logs.mode() is logs.Mode.LIVE and not done:
            self.repairs_seen = self.repairs
        if taken:
            coordinated.await_end(view, self.slot, self.ordinal)

    def checkpoint(self) -> Version:
        regions, record = self.protected()
        taken, held_s = coordinated.take_checkpoint(
            self.view, self.vault, regions, record, self.begin_version)
        # Beside a repair all may give it up: one slot had gone on, or this one is a replacement.
        self.world.expect(taken or self.repairs > self.repairs_seen,
                          f"slot {self.slot} takes no checkpoint at safepoint {self.ordinal}")
        self.policy.delta_s = held_s
        return taken

    def begin_version(self, version: Version) -> None:
        self.world.history[version, self.slot] = self.memory.at()

    def protected(self) -> tuple[list[Region], dict[str, Any]]:
        """All that a checkpoint holds, and its record."""
        memory = self.memory
        regions = [Region(key, array.ctypes.data, array.nbytes)
                   for key, array in (("window", memory.window), ("state", memory.state))]
        return regions, {
            "ordinal": self.ordinal, "step": self.steps_before + self.ordinal,
            "done": memory.step, "passed": memory.passed, "amid": memory.amid,
            "barriers": int(words().sim.sim_barriers())}

    def stage_alone(self) -> None:
        """Stage a version in steps, as frameworks do; nobody puts before all have met behind it."""
        view, vault, memory = self.view, self.vault, self.memory
        version = Version(view.words.me.staged + 1)
        nap_s = ALONE_LOOK_S
        while not view.admit(version, wait=False):
            self.world.time.sleep(nap_s)
            nap_s = min(2 * nap_s, 0.1)
            view.unwind_if_alarmed()
        memory.amid = True
        self.begin_version(version)
        view.visit("checkpoint")
        regions, record = self.protected()
        opened = staging.begin(view, vault, version, regions[:1], record)
        self.world.scheduler.point()
        view.unwind_if_alarmed()
        staging.add(view, vault, opened, regions[1:])
        self.world.scheduler.point()
        view.unwind_if_alarmed()
        staging.end(view, vault, opened)

    def settle(self, ordinal: int) -> None:
        """Wait until what was staged alone is committed, before all meet for a checkpoint."""
        view, nap_s = self.view, ALONE_LOOK_S
        while self.scenario.alone and view.words.me.staged > view.words.committed:
            self.world.time.sleep(nap_s)
            nap_s = min(2 * nap_s, 0.1)
            view.unwind_if_alarmed()
