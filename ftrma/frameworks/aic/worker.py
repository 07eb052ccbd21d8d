"""The loop of a slot: take records, compute, append records, take part in snapshots and the end.

A `Worker` knows nothing about the computation, rings or checkpoints: it is given channels, a
workload and a store (`kinds`), and a clock. Tests run the same worker with the channels, stores and
failures of a simulator.

In a turn it never waits for another slot, but it sleeps a little if it has done nothing. A restored
worker first loads the workload's state, then the records that were logged on their way to this
slot, then the records that it had kept back.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from ... import framework
from .ending import Counts, Ending, Reason
from .kinds import AnyArray, Bytes, Channels, Floats, Kind, Store, Workload
from .modes import Schedule, SnapshotMode
from .snapshots import LOG, Snapshots, pack, unpack

HELD = "held"  # name of the array with records that are kept back one by one
RECORDS = 64  # most records taken in a turn; chosen so that a flood of them lets computing go on
IDLE_S = 0.005  # time between two looks at the timers if nothing happens


class Worker:
    """A slot's part of an asynchronous run.

    Args:
        channels: the channels to and from all slots.
        workload: the computation.
        store: keeps the snapshots.
        mode: the mode of snapshots; None: there are no snapshots.
        clock: returns the time in seconds, for timers and statistics.
        sleep: sleeps for a number of seconds, for `pace_s`.
        visit: is called with names of places where a process may be killed.
        due: says whether a snapshot is due by ``--interval``, for the mode's "daly".
        pace_s: least number of seconds for an update, reached by sleeping; 0: no sleeping.
        number: number of the newest earlier snapshot, whose state is restored; 0: there is none.
        on_statuses: is called at slot 0 with the statuses of all slots, several times a second.

    Attributes:
        snapshots: this slot's part in the snapshots, with statistics; None: there are no snapshots.
        ending: this slot's part in the end of the run.
        updates: number of pieces of work that were done, or the workload's own count (`updates`).
        sent: number of data records that were appended.
        received: number of data records that were taken.
        begun_s: the time when the first turn began, by the clock.
        computing_s: time in which the slot has computed.
        idle_s: time in which the slot had nothing to do.
    """

    def __init__(self, channels: Channels, workload: Workload, store: Store,
                 mode: SnapshotMode | None = None, *,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep,
                 visit: Callable[[str], None] = framework.kill_place,
                 due: Callable[[], bool] = framework.due, pace_s: float = 0.0, number: int = 0,
                 on_statuses: Callable[[Floats], None] | None = None) -> None:
        self._channels, self._workload, self._mode = channels, workload, mode
        self._clock, self._sleep, self._visit = clock, sleep, visit
        self._pace_s, self._on_statuses = pace_s, on_statuses
        self.ending = Ending(channels, clock, workload.ended)
        self.snapshots = Snapshots(channels, store, mode, self._arrays, self._entries, clock=clock,
                                   visit=visit, number=number) if mode else None
        self._schedule = Schedule(mode, clock(), due) if mode else None
        self._held: deque[tuple[int, bytes]] = deque()
        self._pieces = self.sent = self.received = self._told = 0
        self.begun_s, self.computing_s, self.idle_s = clock(), 0.0, 0.0

    @property
    def updates(self) -> int:
        return int(getattr(self._workload, "updates", self._pieces))

    @property
    def reason(self) -> Reason | None:
        """The reason why the run has ended; None: it has not ended."""
        return self.ending.reason

    def restore(self, arrays: Mapping[str, AnyArray]) -> None:
        """Go on from the arrays of a snapshot."""
        self._workload.load({name: array for name, array in arrays.items()
                             if name not in (LOG, HELD)})
        for source, data in unpack(arrays[LOG]) if LOG in arrays else ():
            self._workload.receive(source, data)
        for to, data in unpack(arrays[HELD]) if HELD in arrays else ():
            self._held.append((to, bytes(data)))

    def run(self) -> Reason:
        """Take turns until the run ends.

        Fault: raises `Rollback` when all slots go back.
        """
        while self.turn():
            pass
        assert self.reason
        return self.reason

    def turn(self) -> bool:
        """Take a turn; False: the run has ended, and this slot has left it."""
        self._channels.check()
        busy = self._take()
        if self.snapshots:
            self.snapshots.step()
        if self._channels.me == 0:
            self._lead()
        self._channels.check()  # other slots see CLEAR and STAGED now, not after a piece of work
        if self.ending.reason:
            if self._leave():
                return False
        else:
            busy |= self._work()
        if not busy:
            self._rest()
        return True

    # Parts of a turn
    def _take(self) -> bool:
        """Take records; False: nothing has come."""
        for taken in range(RECORDS):
            if self.snapshots and self.snapshots.frozen():
                return taken > 0
            record = self._channels.take()
            if record is None:
                return taken > 0
            try:
                self._receive(*record)
            finally:
                self._channels.release()
        return True

    def _receive(self, source: int, kind: int, data: memoryview) -> None:
        if kind == Kind.DATA:
            self.received += 1
            if self.snapshots:
                self.snapshots.data(source, data)
            self._workload.receive(source, data)
            self._visit("aic.drain")
        elif kind in (Kind.ASK, Kind.REPORT, Kind.END):
            self.ending.receive(source, kind, data, self._counts, self._workload.status)
        else:
            assert self.snapshots, "all slots have the same mode"
            self.snapshots.receive(source, kind, data)

    def _counts(self) -> Counts:
        passive = self._workload.passive() and not self._held
        return Counts(passive, self.sent, self.received, self.updates)

    def _work(self) -> bool:
        """Compute and hand on messages; False: there was nothing to do."""
        computed = False
        before = self._clock(), self.updates
        if not self.snapshots or self.snapshots.computing():
            computed = self._workload.compute()
        if computed:
            self._pieces += 1
            if self._pace_s:
                made = self.updates - before[1]
                self._sleep(max(0.0, made * self._pace_s - (self._clock() - before[0])))
            self.computing_s += self._clock() - before[0]
            if self.snapshots and self.snapshots.epoch:
                self.snapshots.epoch.statistics.updates += self.updates - before[1]
        sent = self.sent
        holds = self._mode is not None and not self._mode.aggregate
        if self._hand_held() if self._appending() else holds:
            self._workload.send(self._append, all=not computed)
        return computed or self.sent > sent

    def _appending(self) -> bool:
        return self.snapshots is None or self.snapshots.appending()

    def _hand_held(self) -> bool:
        """Append the records that were kept back; False: some are left, or may not be appended."""
        while self._held and self._appending() and self._append_now(*self._held[0]):
            self._held.popleft()
        return not self._held and self._appending()

    def _append(self, to: int, data: Bytes) -> bool:
        """Append messages of the workload; if they are not combined, keep them back if necessary.
        """
        if self._appending():
            return not self._held and self._append_now(to, data)
        if self._mode and not self._mode.aggregate:
            self._held.append((to, bytes(data)))
            return True
        return False

    def _append_now(self, to: int, data: Bytes) -> bool:
        self._visit("aic.append")
        if not self._channels.append(to, Kind.DATA, data):
            return False
        self.sent += 1
        return True

    def _arrays(self) -> Mapping[str, AnyArray]:
        """Return the state for a snapshot."""
        arrays = dict(self._workload.arrays())
        if self._mode and not self._mode.aggregate:
            arrays[HELD] = pack(self._held)
        return arrays

    def _entries(self, records: Iterable[Bytes] | None = None) -> int:
        """Count the messages in the state, or in records, if the workload can."""
        count_one = getattr(self._workload, "entries_of", lambda _: 1)
        if records is not None:
            return sum(int(count_one(data)) for data in records)
        of_state = int(getattr(self._workload, "entries", int)())
        return of_state + sum(int(count_one(data)) for _, data in self._held)

    def _lead(self) -> None:
        """Begin a snapshot or a wave, or end the run, as slot 0."""
        snapshots, schedule, now = self.snapshots, self._schedule, self._clock()
        if self.ending.told > self._told:
            self._told = self.ending.told
            if self._on_statuses:
                self._on_statuses(self.ending.statuses)
        self.ending.step()
        if snapshots and schedule and not self.ending.reason:
            updates = max(self.ending.updates, self.updates)
            due = framework.ending() or schedule.due(now, updates)
            if not snapshots.epoch and due and snapshots.begin():
                schedule.begun(now, updates)

    def _leave(self) -> bool:
        """Leave the run, if all slots do and nothing is under way; False: not yet."""
        if self.snapshots and self.snapshots.epoch:
            return False
        if not self._hand_held():
            return False
        self._visit("aic.quiet")
        return self.ending.leave()

    def _rest(self) -> None:
        began = self._clock()
        self._channels.wait(IDLE_S)
        idle = self._clock() - began
        self.idle_s += idle
        if self.snapshots and self.snapshots.epoch:
            self.snapshots.epoch.statistics.idle_s += idle
