"""Snapshots of a running computation, taken by its slots without waiting for each other.

A snapshot is *open* at a slot from the moment in which the slot hears of it until the slot knows
that all have staged their parts. It has a number e, which slot 0 counts, and a *generation* r: so
many repairs in which nobody went back were before it. All records are names (e, r) of snapshots:

1. Slot 0 begins (e, r). It *enters*: it appends CLEAR(e, r) to all channels, and no data from then
   on. Others enter at the first CLEAR(e, r), whoever has sent it.
2. When CLEAR(e, r) has come from all slots, all channels to this slot are empty and stay so. The
   slot takes its *cut*: it stages its state, in which each message is that this slot has been sent
   or has to send.
3. It appends STAGED(e, r) to all channels. When STAGED(e, r) has come from all slots, or another
   snapshot's CLEAR proves that, the snapshot is closed here, and data is appended again.

A slot that is *late* by the mode's patience is not waited for: the cut is taken at once, and
records from channels without CLEAR are logged until CLEAR comes; the log is a part of the snapshot.
RESUME says that the sender appends data again, before all have staged: who takes it has to take the
cut before the next record. Chandy and Lamport's snapshot is that without any patience: the cut is
taken at the entry, before any more records are taken, so RESUME is not needed.

The law: in a snapshot that all have staged each message is exactly once, in the sender's state, in
the receiver's, or in the receiver's log. (V1) From CLEAR to the sender's cut a channel has no data,
and from there to RESUME or STAGED of all neither. (V2) Data that is taken before the cut is in the
state, and after it in the log if it comes before CLEAR. (V3) Who loads a snapshot loads one that
all have staged.

A repair that undoes what is staged makes all open snapshots of smaller generations *void*: their
records are ignored, and a slot that is amid one returns to normal when its own generation has
changed. All slots meet in a repair, so nobody hears of a generation that it has not come to.
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
        number: of the snapshot.
        begun_s: when the slot heard of it, by the worker's clock.
        flushing_s: from there to the cut.
        staging_s: in the store.
        silent_s: from the begin until data was appended again.
        open_s: from the begin until all had staged.
        idle_s: in which the slot had nothing to do, while it was open.
        size_bytes: of the state and the log.
        entries: messages in them: places that hold one, and those of records that were logged or
            kept back.
        logged: records in the log.
        updates: that this slot has made while it was open.
        void: a repair has undone it.
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
        statistics: are kept.
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
        channels: of the slot.
        store: for its parts.
        mode: of all snapshots.
        arrays: gives the slot's state.
        entries: counts the messages in the state, or, given records, in these.
        clock: seconds.
        visit: is called with names of places where a process may be killed.
        number: of the newest snapshot before.

    Attributes:
        epoch: the snapshot that is open; None: none is.
        history: statistics of all snapshots, the open one too.
    """

    def __init__(self, channels: Channels, store: Store, mode: SnapshotMode,
                 arrays: Callable[[], Mapping[str, AnyArray]],
                 entries: Callable[[Iterable[Bytes] | None], int], *,
                 clock: Callable[[], float], visit: Callable[[str], None],
                 number: int = 0) -> None:
        self._channels, self._store, self._mode = channels, store, mode
        self._arrays, self._entries, self._clock, self._visit = arrays, entries, clock, visit
        self._number = number  # of the newest snapshot that this slot has heard of
        self.epoch: Epoch | None = None
        self.history: list[SnapshotStatistics] = []

    # For the worker
    def appending(self) -> bool:
        """Say that data may be appended."""
        epoch = self.epoch
        return epoch is None or (epoch.cut and epoch.resumed)

    def computing(self) -> bool:
        """Say that the slot may compute."""
        return self.epoch is None or not self._mode.stops

    def frozen(self) -> bool:
        """Say that no record may be taken."""
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
        """Log a data record that is taken, if it belongs to the snapshot."""
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
        """Do what is to be done about the open snapshot."""
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
        """Say that slots need time without a snapshot: as long as the newest one was open.

        Where snapshots follow each other closer, a slot may have no chance to append data.
        """
        newest = self.history[-1] if self.history else None
        return newest is not None and self._clock() < newest.begun_s + 2 * newest.open_s

    def _void(self, generation: int) -> bool:
        """Say that a repair has undone the snapshots of a generation."""
        assert generation <= self._store.generation, "a generation that this slot has not come to"
        return generation < self._store.generation

    def _complete(self, slots: set[int]) -> bool:
        return len(slots) == self._channels.size

    def _late(self, epoch: Epoch) -> bool:
        """Say that this slot has been waiting for too long, or another one has."""
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
    """Make one array of slots and records; it is never empty."""
    parts = [_ENTRY.pack(len(records), 0)]
    for slot, data in records:
        parts += [_ENTRY.pack(slot, len(data)), data]
    return np.frombuffer(b"".join(parts), np.uint8)


def unpack(array: AnyArray) -> Iterator[tuple[int, memoryview]]:
    """List slots and records that `pack` was given; records are aligned as those of a channel."""
    data = np.ascontiguousarray(array, np.uint8).data
    count, at = _ENTRY.unpack_from(data)[0], _ENTRY.size
    for _ in range(count):
        slot, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        yield slot, memoryview(bytes(data[at:at + length]))
        at += length
