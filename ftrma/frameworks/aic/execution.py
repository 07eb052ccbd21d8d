"""Carries out a run of a workload in a job: channels, snapshots, the way back, the result.

After a failure all slots enter the program again. A run that had ended gives its saved result; the
run that was interrupted loads the newest snapshot, or finds out from what survivors have kept which
messages are missing.
"""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import framework
from ...framework import entries
from ..graph.runs import runs
from .kinds import AnyArray, Floats, Workload
from .modes import SnapshotMode
from .rings import Rings, allocate
from .snapshots import LOG, SnapshotStatistics
from .worker import HELD, Worker

MOST_MOMENTS = 4096  # moments in a history; if there are more, every second one is left out


@dataclass(frozen=True)
class Moment:
    """A moment of a run, as slot 0 sees it.

    Attributes:
        seconds: time since this attempt began the run.
        statuses: the newest status of each slot, (slots, numbers), see `kinds.Workload.status`.
        snapshots: number of snapshots that have begun in this attempt.
    """

    seconds: float
    statuses: Floats
    snapshots: int


@dataclass
class Outcome:
    """The end of a run in one slot.

    Attributes:
        arrays: the result.
        ended_before: the run had ended before a failure; the following attributes are empty then.
        seconds: time that the run took in this attempt.
        records, bytes: numbers of records and bytes of data that this slot has sent.
        messages, updates: their numbers, as the workload counts them.
        computing_s, idle_s: parts of `seconds` in which the slot computed, and had nothing to do.
        snapshots: statistics of the snapshots in which this slot took part.
    """

    arrays: Mapping[str, AnyArray]
    ended_before: bool = False
    seconds: float = 0.0
    records: int = 0
    bytes: int = 0
    messages: int = 0
    updates: int = 0
    computing_s: float = 0.0
    idle_s: float = 0.0
    snapshots: list[SnapshotStatistics] = field(default_factory=list)


class JobStore:
    """Snapshots of a run as entries of the job's checkpoints; implements `kinds.Store`.

    Args:
        prefix: the beginning of the names of the entries.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix, self._before = prefix, framework.committed()
        self._open: int | None = None  # generation of the snapshot that is being staged
        self._version = self._generation = 0  # of the newest snapshot that is staged

    @property
    def generation(self) -> int:
        return framework.staging.generation

    def ready(self) -> bool:
        return framework.staging.ready()

    def begin(self, arrays: Mapping[str, AnyArray], generation: int) -> bool:
        entries.drop(self.prefix + LOG)  # the log of the previous snapshot
        self.put(arrays)
        begun = framework.staging.begin(generation)
        self._open = generation if begun else None
        return begun

    def add(self, arrays: Mapping[str, AnyArray]) -> None:
        self.put(arrays)
        framework.staging.add()

    def end(self, note: Mapping[str, int]) -> bool:
        self.put({"note": np.array(list(note.values()), np.int64)})
        framework.staging.add()
        self._generation = self.generation
        self._open, self._version = None, framework.staging.end()
        return self._version > 0 or framework.attempt() == 0

    def committed(self) -> int:
        return framework.committed() - self._before

    def settled(self) -> bool:
        """Say whether the entries that can be read are those of the newest snapshot that is safe.
        """
        if self._generation != self.generation and framework.committed() < self._version:
            self._version = 0  # a repair has undone it
        return self._open != self.generation and framework.committed() >= self._version

    def put(self, arrays: Mapping[str, AnyArray]) -> None:
        """Put these arrays into the next checkpoint."""
        for name, array in arrays.items():
            entries.put(self.prefix + name, array)

    def newest(self, names: Iterable[str]) -> dict[str, AnyArray] | None:
        """Read the newest snapshot; None: there is none.

        Args:
            names: names of the workload's arrays.
        """
        if self.prefix + "note" not in entries:
            return None
        return {name: entries.read(self.prefix + name) for name in (*names, "note", LOG, HELD)
                if self.prefix + name in entries}

    def forget(self, names: Iterable[str]) -> None:
        """Leave the snapshot out of the next checkpoint."""
        for name in (*names, LOG, HELD, "note"):
            entries.drop(self.prefix + name)


class Execution:
    """A run of a workload.

    Args:
        comm: the communicator of all slots.
        words: tell this run from other runs; they have to be the same after a failure.
        mode: the mode of snapshots; None: there are no snapshots.
        pace_s: least number of seconds for an update, reached by sleeping.
        tell: is called at slot 0 with a moment of the run, some times a second.

    Attributes:
        tell: see above.
        run: number of the run in the job, from 1.
        store: keeps the snapshots of the run.
        view: turns a `Peek` into the object that users get.

    MPI: collective over all slots; claims the job's failures.
    Fault: raises `Rollback` when all slots go back.
    """

    def __init__(self, comm: Any, words: Sequence[object], mode: SnapshotMode | None, *,
                 pace_s: float = 0.0, tell: Callable[[Moment], None] | None = None) -> None:
        framework.claim("aic")
        self.comm, self.mode, self.pace_s, self.tell = comm, mode, pace_s, tell
        self.run = runs.next()
        self._identity = zlib.crc32(" ".join(map(str, words)).encode())
        self.prefix = f"aic {self.run} "
        self.store = JobStore(self.prefix)
        self._worker: Worker | None = None
        self._names: list[str] = []
        self.view: Callable[[Peek], Any] = lambda peek: peek

    def saved(self) -> Outcome | None:
        """Return the result of this run if it had ended before a failure, else None.

        Raises:
            RuntimeError: the run of this number was another one before the failure.

        MPI: collective over all slots.
        """
        if self.prefix + "ended" not in entries:
            return None
        identity, count = entries.read(self.prefix + "ended")
        if int(identity) != self._identity:
            raise RuntimeError(f"run {self.run} of the job was of another program or graph before a"
                               " failure: a program makes the same runs, in the same order, each "
                               "time it is entered")
        names = [bytes(entries.read(f"{self.prefix}name {i}")).decode() for i in range(int(count))]
        allocate(self.comm, 0).Free()  # windows are known by their order
        return Outcome({name: entries.read(f"{self.prefix}result {name}").copy()
                        for name in names}, ended_before=True)

    def carry_out(self, make: Callable[[Rings], Workload],
                  begin: Callable[[Workload, Worker, Mapping[str, AnyArray] | None], None],
                  result: Callable[[Workload], Mapping[str, AnyArray]]) -> Outcome:
        """Run a workload to its end, and save its result.

        Args:
            make: makes the workload for given channels.
            begin: sets the state with which it begins, from the newest snapshot if there is one.
            result: returns the arrays that are the result of a workload that has ended.

        MPI: collective over all slots.
        """
        rings = Rings(self.comm)
        workload = make(rings)
        names = self._names = list(workload.arrays())
        found = self.store.newest(names)
        worker = self._worker = Worker(
            rings, workload, self.store, self.mode, pace_s=self.pace_s,
            number=int(found["note"][0]) if found else 0,
            on_statuses=self._hear if self.comm.rank == 0 else None)
        begin(workload, worker, found and {n: a for n, a in found.items() if n != "note"})
        began = time.monotonic()
        peeks.begin(self)
        try:
            while worker.turn():
                peeks.serve()
        finally:
            peeks.end()
        seconds = time.monotonic() - began
        arrays = dict(result(workload))
        self.store.forget(names)
        self._save(arrays)
        snapshots = worker.snapshots.history if worker.snapshots else []
        messages = int(getattr(workload, "messages", rings.sent_records))
        outcome = Outcome(arrays, False, seconds, rings.sent_records, rings.sent_bytes, messages,
                          worker.updates, worker.computing_s, worker.idle_s, snapshots)
        rings.free()
        return outcome

    def _save(self, arrays: Mapping[str, AnyArray]) -> None:
        """Save the result; repeat that until it is committed."""
        for i, (name, array) in enumerate(arrays.items()):
            entries.put(f"{self.prefix}name {i}", np.frombuffer(name.encode(), "u1"), "static")
            entries.put(f"{self.prefix}result {name}", array, "static")
        entries.put(self.prefix + "ended", np.array([self._identity, len(arrays)]), "static")
        framework.kill_place("aic.end")
        confirm()

    def _hear(self, statuses: Floats) -> None:
        assert self._worker
        snapshots = self._worker.snapshots
        if self.tell is None:
            return
        moment = Moment(time.monotonic() - self._worker.begun_s, statuses.copy(),
                        len(snapshots.history) if snapshots else 0)
        self.tell(moment)

    def peek(self) -> Any:
        """Copy this slot's part of the newest snapshot that is safe; None: there is none.

        Raises:
            NotNow: the newest one is not safe yet.
        """
        assert self._worker
        if not self.store.settled():
            raise NotNow
        found = self.store.newest(self._names)
        if found is None:
            return None
        number = int(entries.read(self.prefix + "note")[0])
        return self.view(Peek(number, {name: array.copy() for name, array in found.items()}))


def confirm() -> None:
    """Save all entries; repeat that until a checkpoint that has them is safe.

    MPI: collective over all slots.
    """
    while not framework.confirm(framework.safepoint(take=True)):
        pass  # the checkpoint was given up or undone, while other slots were replaced


@dataclass(frozen=True)
class Peek:
    """A slot's part of a snapshot.

    Attributes:
        number: number of the snapshot, from 1 in each attempt.
        arrays: copies of the workload's arrays.
    """

    number: int
    arrays: Mapping[str, AnyArray]


class NotNow(Exception):
    """No snapshot can be read at this moment."""


class Peeks:
    """Readers of snapshots: other threads are answered between two turns of the worker."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._execution: Execution | None = None
        self._thread = 0
        self._asked = 0  # number of requests that are not answered yet
        self._answers = 0  # number of answers so far
        self._newest: Any = None  # the newest answer, as `Execution.view` makes it

    def begin(self, execution: Execution) -> None:
        """Serve readers from now on, in this thread."""
        with self._changed:
            self._execution, self._thread = execution, threading.get_ident()
            self._newest = None  # the old answer is of another run, or of another attempt

    def serve(self) -> None:
        """Answer the threads that wait, if a snapshot can be read now."""
        if self._asked and self._execution:
            with contextlib.suppress(NotNow):
                self._answer(self._execution.peek())

    def end(self) -> None:
        """Stop serving; threads that wait get the newest answer."""
        with self._changed:
            self._execution = None  # before all are awakened, so that none begins to wait later
            self._answer(self._newest)

    def _answer(self, newest: Any) -> None:
        with self._changed:
            self._newest, self._asked, self._answers = newest, 0, self._answers + 1
            self._changed.notify_all()

    def read(self) -> Any:
        """See `engine.peek`."""
        if self._execution is None:
            return None
        if threading.get_ident() == self._thread:
            with contextlib.suppress(NotNow):
                self._newest = self._execution.peek()
            return self._newest
        with self._changed:
            self._asked += 1
            seen = self._answers
            self._changed.wait_for(lambda: self._answers > seen or self._execution is None)
            return self._newest


peeks = Peeks()
