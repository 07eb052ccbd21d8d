"""Stands in for the MPI library and for logs in a simulated job.

A log knows from which step on it has a slot's puts, and results go when their checksum rank dies:
so a replay that the logs do not cover is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ftrma.native import job

if TYPE_CHECKING:
    from .process import SimulatedProcess


class StandIns:
    """The part of a `world.World` that takes the place of the MPI library and of logs."""

    scenario: Any
    scheduler: Any
    layout: Any
    launch: Any
    expect: Any

    def in_place_of_mpi(self) -> dict[str, Any]:
        def nothing(*_: Any) -> int:
            return 0

        names = ("arm", "boards_clear", "comm_defer", "comm_forget", "exclusive_locks",
                 "far_answers", "far_quiet", "partitioned_help", "trace_note", "windows_flush",
                 "windows_settle", "world_open")
        return {
            **dict.fromkeys(names, nothing), "comm_prepare": self.comm_prepare,
            "comm_build": self.comm_build, "watch": self.watch, "replay_view": self.replay_view,
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
        """Wait for all the living in this round, as the library does.

        Nothing else ends the wait: nobody can be called back from the library's shrink. Over
        several nodes an alarm ends it here; there the supervisor ends the launch.
        """
        launch = self.launch
        came = launch.built.setdefault(number, set())
        came.add(self.scheduler.current.process)
        if self.stumbles and number:
            self.stumbles -= 1
            return 17
        asked = (number, job.ENDED)
        several = self.scenario.nodes > 1
        self.poll(lambda: came >= set(launch.living())
                  or (several and launch.ctl.alarm not in asked))
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

    def replay_view(self, slot: int, wanted: int) -> int:
        """Have the replay in this process read a slot's log, or not."""
        of = self.viewed.setdefault((self.launch.number, self.scheduler.current.process), set())
        (of.add if wanted else of.discard)(slot)
        return 0

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
        viewed = self.viewed.get((self.launch.number, self.scheduler.current.process), set())
        for other, (_, puts) in self.puts.items():
            if other in viewed:
                for target, step, place, value in puts:
                    if target == slot and first <= step <= (first if last is None else last):
                        window[place] = value

    def live(self, process: SimulatedProcess, *, differs: bool) -> None:
        """A replay is over: what is logged beyond it is applied, and the own log begins anew."""
        slot, step = process.slot, process.memory.step
        self.expect(not differs, f"slot {slot} has replayed other events than it had done")
        self.apply(slot, step - self.scenario.late, 1 << 62)
        self.puts[slot] = (step + bool(process.passed_over), [])


class Comm:
    """Exchanges of all processes at the start, see `mpi4py.MPI.Comm`."""

    def __init__(self, world: Any, hosts: Sequence[str]) -> None:
        self.world, self.hosts, self.given = world, hosts, dict[tuple[int, int], Any]()
        self.turns: dict[int, int] = {}

    def allgather(self, value: Any) -> list[Any]:
        me, count = self.world.scheduler.current.process, len(self.hosts)
        turn = self.turns[me] = self.turns.get(me, 0) + 1
        self.given[turn, me] = value
        self.world.poll(lambda: all((turn, p) in self.given for p in range(count)))
        return [self.given[turn, p] for p in range(count)]

    def Barrier(self) -> None:
        self.allgather(None)
