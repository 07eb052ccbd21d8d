"""Snapshots of a running computation, taken by its slots without waiting for each other.

A snapshot is *open* at a slot from the moment at which the slot hears of it until the slot knows
that all slots have staged their parts. It has a number e, which slot 0 counts, and a *generation*
r: the number of repairs before it in which no slot went back. The records of a snapshot carry its
name (e, r):

1. Slot 0 begins (e, r). It *enters*: it appends CLEAR(e, r) to all channels, and no data from then
   on. Another slot enters when it takes the first CLEAR(e, r), whichever slot has sent it.
2. When CLEAR(e, r) has come from all slots, all channels to this slot are empty and stay so. The
   slot takes its *cut*: it stages its state, which contains each message that was sent to this slot
   or that this slot has to send.
3. It appends STAGED(e, r) to all channels. When STAGED(e, r) has come from all slots, or the CLEAR
   of a later snapshot proves that all have staged, the snapshot is closed here, and the slot
   appends data again.

If a slot is *late* by the mode's patience, others do not wait for it. They take the cut at once,
and log the records from channels without CLEAR until CLEAR comes; the log is a part of the
snapshot. RESUME says that the sender appends data again before all have staged; a slot that takes
RESUME has to take its cut before it takes the next record. The snapshot of Chandy and Lamport is
this one without any patience: the cut is taken at the entry, before any more records are taken, so
RESUME is not needed.

The law: in a snapshot that all slots have staged, each message is there exactly once: in the
sender's state, in the receiver's state, or in the receiver's log. (V1) A channel has no data
between CLEAR and the sender's cut, and none from there until RESUME, or STAGED of all slots. (V2)
Data that is taken before the cut is in the state; data that is taken after the cut but before CLEAR
is in the log. (V3) A snapshot is loaded only if all slots have staged it.

A repair that undoes what was staged makes all open snapshots of smaller generations *void*. Their
records are ignored, and a slot with such a snapshot open returns to normal when its own generation
has changed. All slots meet in a repair, so no slot hears of a generation that it has not reached.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .kinds import AnyArray, Bytes, Channels, Kind, Store
from .modes import SnapshotMode

LOG = "log"  # name of the array with records that were logged
NAME = struct.Struct("=qq")  # e, r
_ENTRY = struct.Struct("=qq")  # a slot, bytes of a record


@dataclass
class SnapshotStatistics:
    """The cost of one snapshot to a slot.

    Attributes:
        number: number of the snapshot.
        begun_s: the time when the slot heard of it, by the worker's clock.
        flushing_s: time from there to the cut.
        staging_s: time spent in the store.
        silent_s: time from the beginning until data was appended again.
        open_s: time from the beginning until all slots had staged.
        idle_s: time in which the slot had nothing to do while the snapshot was open.
        size_bytes: size of the state and the log.
        entries: number of messages in them: places that hold a message, and messages of records
            that were logged or kept back.
        logged: number of records in the log.
        updates: number of updates that this slot has made while the snapshot was open.
        void: a repair has undone the snapshot.
    """

    number: int
    begun_s: float
    flushing_s: float = 0.0
    staging_s: float = 0.0
    silent_s: float = 0.0
    open_s: float = 0.0
    idle_s: float = 0.0
    size_bytes: int = 0
    entries: int = 0
    logged: int = 0
    updates: int = 0
    void: bool = False


@dataclass
class Epoch:
    """A snapshot that is open at this slot.

    Attributes:
        number: e.
        generation: r.
        statistics: its statistics, which are kept.
        clear: slots whose CLEAR has come.
        ready: slots whose READY has come.
        staged: slots whose STAGED has come.
        forced: the cut has to be taken before another record is.
        posted: READY has been appended.
        cut: the state is staged.
        whole: STAGED has been appended.
        resumed: RESUME has been appended.
        log: senders and records.
    """

    number: int
    generation: int
    statistics: SnapshotStatistics
    clear: set[int] = field(default_factory=set)
    ready: set[int] = field(default_factory=set)
    staged: set[int] = field(default_factory=set)
    forced: bool = False
    posted: bool = False
    cut: bool = False
    whole: bool = False
    resumed: bool = False
    log: list[tuple[int, bytes]] = field(default_factory=list)


class Snapshots:
    """A slot's part in all snapshots of a run.

    Args:
        channels: the channels of the slot.
        store: stores the slot's parts.
        mode: the mode of all snapshots.
        arrays: returns the slot's state.
        entries: counts the messages in the state, or in records that are given to it.
        clock: returns the time in seconds.
        visit: is called with names of places where a process may be killed.
        number: number of the newest earlier snapshot.

    Attributes:
        epoch: the snapshot that is open; None: no snapshot is open.
        history: statistics of all snapshots, including the open one.
    """

    def __init__(self, channels: Channels, store: Store, mode: SnapshotMode,
                 arrays: Callable[[], Mapping[str, AnyArray]],
                 entries: Callable[[Iterable[Bytes] | None], int], *,
                 clock: Callable[[], float], visit: Callable[[str], None],
                 number: int = 0) -> None:
        self._channels, self._store, self._mode = channels, store, mode
        self._arrays, self._entries, self._clock, self._visit = arrays, entries, clock, visit
        self._number = number  # number of the newest snapshot of which this slot has heard
        self.epoch: Epoch | None = None
        self.history: list[SnapshotStatistics] = []

    # For the worker
    def appending(self) -> bool:
        """Say whether data may be appended."""
        epoch = self.epoch
        return epoch is None or (epoch.cut and epoch.resumed)

    def computing(self) -> bool:
        """Say whether the slot may compute."""
        return self.epoch is None or not self._mode.stops

    def frozen(self) -> bool:
        """Say whether no record may be taken."""
        return self.epoch is not None and self.epoch.forced and not self.epoch.cut

    def begin(self) -> bool:
        """Begin a snapshot, as slot 0; False: this is not possible now."""
        self._leave_void()
        if self.epoch or self._too_soon() or not self._store.ready():
            return False
        generation = self._store.generation
        self._enter(self._number + 1, generation)
        self.step()
        return True

    def data(self, source: int, data: memoryview) -> None:
        """Log a data record that was taken, if it belongs to the snapshot."""
        epoch = self.epoch
        if epoch and epoch.cut and source not in epoch.clear:
            epoch.log.append((source, bytes(data)))

    def receive(self, source: int, kind: int, data: memoryview) -> None:
        """Take a record of the kinds CLEAR, READY, RESUME and STAGED."""
        number, generation = NAME.unpack(data)
        self._leave_void()
        if self._void(generation):
            return
        if kind == Kind.CLEAR and number > self._number:
            if self.epoch:
                assert self.epoch.whole, f"CLEAR({number}) amid snapshot {self.epoch.number}"
                self._close(self.epoch)
            self._enter(number, generation)
        epoch = self.epoch
        if epoch and epoch.number == number:
            if kind == Kind.CLEAR:
                epoch.clear.add(source)
            elif kind == Kind.READY:
                epoch.ready.add(source)
            elif kind == Kind.STAGED:
                epoch.staged.add(source)
            else:
                epoch.forced = True
            self.step()

    def step(self) -> None:
        """Take the next steps of the open snapshot, as far as they are possible."""
        self._leave_void()
        epoch = self.epoch
        if not epoch:
            return
        if not epoch.cut and self._may_cut(epoch):
            self._cut(epoch)
        if epoch.cut and not epoch.whole and self._complete(epoch.clear):
            self._stage(epoch)
        if epoch.whole and self._complete(epoch.staged):
            self._close(epoch)
        elif self.epoch is epoch and epoch.cut and not epoch.resumed and self._late(epoch):
            epoch.resumed = True
            epoch.statistics.silent_s = self._since(epoch)
            self._tell(Kind.RESUME, epoch)

    # Rules
    def _too_soon(self) -> bool:
        """Say whether slots still need time without a snapshot: as long as the newest was open.

        If snapshots followed each other faster, a slot might get no chance to append data.
        """
        newest = self.history[-1] if self.history else None
        return newest is not None and self._clock() < newest.begun_s + 2 * newest.open_s

    def _void(self, generation: int) -> bool:
        """Say whether a repair has undone the snapshots of a generation."""
        assert generation <= self._store.generation, "a generation that this slot has not come to"
        return generation < self._store.generation

    def _complete(self, slots: set[int]) -> bool:
        return len(slots) == self._channels.size

    def _late(self, epoch: Epoch) -> bool:
        """Say whether this slot, or another one, has been waiting for too long."""
        return epoch.forced or self._since(epoch) > self._mode.patience_s

    def _may_cut(self, epoch: Epoch) -> bool:
        if self._mode.stops and self._complete(epoch.clear):
            if not epoch.posted:
                epoch.posted = True
                self._tell(Kind.READY, epoch)
            return self._complete(epoch.ready)
        return self._complete(epoch.clear) or self._late(epoch)

    # Steps
    def _enter(self, number: int, generation: int) -> None:
        """Take part in a snapshot that begins."""
        self._visit("aic.begin")
        now = self._clock()
        at_once = self._mode.patience_s < 0
        self._number = number
        self.epoch = Epoch(number, generation, SnapshotStatistics(number, now),
                           forced=at_once, resumed=at_once)
        self.history.append(self.epoch.statistics)
        self._visit("aic.clear")
        self._tell(Kind.CLEAR, self.epoch)

    def _cut(self, epoch: Epoch) -> None:
        """Stage the state, if the store can."""
        began, statistics = self._clock(), epoch.statistics
        arrays = self._arrays()
        epoch.cut = self._store.begin(arrays, epoch.generation)
        if epoch.cut:
            statistics.flushing_s = began - statistics.begun_s
            statistics.size_bytes = sum(array.nbytes for array in arrays.values())
            statistics.entries = self._entries(None)
            if epoch.resumed:
                statistics.silent_s = statistics.flushing_s
            self._visit("aic.half")
        statistics.staging_s += self._clock() - began

    def _stage(self, epoch: Epoch) -> None:
        """Complete this slot's part."""
        began, statistics = self._clock(), epoch.statistics
        if self._mode.patience_s < np.inf:
            log = pack(epoch.log)
            statistics.logged, statistics.size_bytes = (
                len(epoch.log), statistics.size_bytes + log.nbytes)
            statistics.entries += self._entries(data for _, data in epoch.log)
            self._store.add({LOG: log})
        epoch.log = []
        note = {"number": epoch.number, "generation": epoch.generation}
        epoch.whole = self._store.end(note)
        statistics.staging_s += self._clock() - began
        if epoch.whole:
            self._visit("aic.staged")
            self._tell(Kind.STAGED, epoch)
        else:
            self._close(epoch, void=True)

    def _close(self, epoch: Epoch, void: bool = False) -> None:
        statistics = epoch.statistics
        statistics.void, statistics.open_s = void, self._since(epoch)
        if not epoch.resumed:
            statistics.silent_s = statistics.open_s
        self.epoch = None
        self._visit("aic.forward")

    def _leave_void(self) -> None:
        """Return to normal if a repair has undone the open snapshot."""
        if self.epoch and self._void(self.epoch.generation):
            self._close(self.epoch, void=True)

    def _since(self, epoch: Epoch) -> float:
        return self._clock() - epoch.statistics.begun_s

    def _tell(self, kind: Kind, epoch: Epoch) -> None:
        name = NAME.pack(epoch.number, epoch.generation)
        for to in range(self._channels.size):
            self._channels.append(to, kind, name)


def pack(records: Sequence[tuple[int, bytes]]) -> AnyArray:
    """Pack slots and records into one array, which is never empty."""
    parts = [_ENTRY.pack(len(records), 0)]
    for slot, data in records:
        parts += [_ENTRY.pack(slot, len(data)), data]
    return np.frombuffer(b"".join(parts), np.uint8)


def unpack(array: AnyArray) -> Iterator[tuple[int, memoryview]]:
    """Yield the slots and records that were packed; records are aligned as those of a channel."""
    data = np.ascontiguousarray(array, np.uint8).data
    count, at = _ENTRY.unpack_from(data)[0], _ENTRY.size
    for _ in range(count):
        slot, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        yield slot, memoryview(bytes(data[at:at + length]))
        at += length
