"""Where the slots put messages for each other: for each pair a lane of two steps in a window.

A step's lanes are full when all have met after it; those of the next step are others, and for the
one after that nobody begins before all have taken what was here. What lanes have no place for goes
by one exchange after the meeting, in steps where there is any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ... import framework
from .messages import Lane, Records, Sending, no_records
from .parts import Part, Partition
from .pregel_program import VertexProgram
from .pregel_runner import StepReport
from .references import AnyArray, Ints

PIECE = 1 << 30  # bytes that leave a slot at a time
NONE, ALL, SOME = 0, 1, 2  # of a lane: nothing is in it, messages to all, to those that it says


def window(comm: Any, size: int, *, protected: bool = False) -> Any:
    """A window of so many bytes of this slot.

    MPI: collective over all slots.
    """
    from ftrma import MPI

    info = MPI.Info.Create({"ftrma_protect": str(protected).lower()})
    found = MPI.Win.Allocate(size, 1, info=info, comm=comm)
    info.Free()
    return found


def pass_by(comm: Any) -> None:
    """Have a run that has ended before make its window all the same: windows are told by the order
    in which they are made, so those that follow have the numbers that they had.

    MPI: collective over all slots.
    """
    window(comm, 0).Free()


class CheckpointFiles(Protocol):
    """As `spill.Spill`."""

    def write(self) -> None: ...


class WindowTransport:
    """A run's dealings with its job.

    Args:
        comm: of the slots.
        interval_s: seconds after which a checkpoint is due; None: as the job's interval has it.
        tell: what is done with reports.
        files: where checkpoints go, too.
    """

    def __init__(self, comm: Any, interval_s: float | None, tell: Callable[[StepReport], None],
                 files: CheckpointFiles | None = None) -> None:
        self.comm, self.interval_s, self.tell, self.files = comm, interval_s, tell, files
        self.taken_s = time.monotonic()

    def due(self) -> bool:
        """A checkpoint is due by time, as this slot sees it."""
        if self.interval_s is None:
            return framework.due()
        return time.monotonic() - self.taken_s >= self.interval_s

    def checkpoint(self) -> int:
        """Take one; its version, which will be committed or undone; 0: none was.

        MPI: collective over all slots.
        """
        version = int(min(self.comm.allgather(framework.safepoint(take=True))))
        if self.files:
            self.files.write()
        self.taken_s = time.monotonic()
        return version

    def committed(self) -> int:
        """The newest version that is committed."""
        return framework.committed()

    def confirm(self, version: int) -> bool:
        """Wait until a version is committed; False: it was undone."""
        return framework.confirm(version)

    def place(self, name: str) -> None:
        """Be where tests may strike."""
        framework.kill_place(f"graph.{name}")


class PregelWindow(WindowTransport):
    """The slots of a run, as one of them reaches the others.

    Args:
        comm, interval_s, tell, files: see `WindowTransport`.
        partition, part: of the graph.
        program: whose messages these are.
        met: what the lanes of the same run had before: then no slot is asked.
        made: gives the window that holds each slot's halves, which others use too; else one is
            made, and freed.

    Attributes:
        rows: own vertices that each slot sends to, as their local numbers.
        met: the own vertices' ids that the slots send to, one slot's after the other's; how many
            of each; where the lanes to each slot begin there; half of each slot's window, in bytes.

    MPI: collective over all slots.
    """

    def __init__(self, comm: Any, partition: Partition, part: Part, program: VertexProgram,
                 interval_s: float | None, tell: Callable[[StepReport], None],
                 met: tuple[Ints, Ints, Ints, Ints] | None = None,
                 made: Callable[[Ints], Any] | None = None,
                 files: CheckpointFiles | None = None) -> None:
        super().__init__(comm, interval_s, tell, files)
        self.part, self.partition, self.program = part, partition, program
        self.message = np.dtype(program.message)
        self.record = np.dtype([("row", "i8"), ("value", self.message)])
        if met is None:
            found = comm.alltoall([part.targets[part.to(s)] for s in range(comm.size)])
            counts = np.array([len(ids) for ids in found])
            ids = np.concatenate(found)
        else:
            ids, counts = met[:2]
        asked = np.split(ids, np.cumsum(counts)[:-1])
        self.rows = [partition.local(ids) for ids in asked]
        each = 0 if program.combine is None else self.message.itemsize + 1
        sizes = [(len(ids) * each + 7) // 8 * 8 for ids in asked]
        self.at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        if met is None:
            met = (ids, counts, np.array(comm.alltoall([int(at) for at in self.at[:-1]])),
                   np.array(comm.allgather(int(self.at[-1]))))
        self.met = met
        self.there, self.halves = met[2:]
        self.lent = made is not None
        self.window = made(self.halves) if made else window(comm, 2 * int(self.at[-1]))
        memory: Any = self.window.tomemory()
        self.memory = np.frombuffer(memory, "u1") if len(memory) else np.zeros(0, "u1")
        self.sent: list[AnyArray] = []
        # Of the step: form of the lane to each slot, records for each; those received.
        self.forms = np.zeros(comm.size, np.int64)
        self.leaving = [np.zeros(0, self.record)] * comm.size
        self.arrived: tuple[npt.NDArray[np.int64], AnyArray] = self.forms, self.leaving[0]
        self.window.Lock_all()

    def free(self) -> None:
        """The run is over."""
        self.window.Unlock_all()
        del self.memory
        if not self.lent:
            self.window.Free()

    # -- as `pregel_runner.PregelTransport` ---------------------------------------------------

    def gather(self, value: Any) -> list[Any]:
        found: list[Any] = self.comm.allgather(value)
        return found

    def send(self, step: int, sending: Sending, to: Sequence[bool]) -> None:
        self.forms[:] = NONE
        for slot, wanted in enumerate(to):
            at = self.part.to(slot)
            got = sending.got[at]
            if not wanted or not got.any():
                continue
            place = step % 2 * self.halves[slot] + self.there[slot]
            values = sending.values[at]
            self.window.Put(values.view("u1"), slot, int(place))
            self.forms[slot] = ALL if got.all() else SOME
            if self.forms[slot] == SOME:
                self.window.Put(got.view("u1"), slot, int(place) + values.nbytes)
            self.sent += [values, got]  # MPI's until they are flushed
        ids, values = sending.records
        self.leaving = [np.zeros(0, self.record)] * self.comm.size
        if len(ids):
            owner = self.partition.owner(ids)
            order = np.argsort(owner, kind="stable")
            records = np.empty(len(ids), self.record)
            records["row"], records["value"] = self.partition.local(ids)[order], values[order]
            cuts = np.searchsorted(owner[order], np.arange(1, self.comm.size))
            self.leaving = [part if wanted else part[:0] for part, wanted
                            in zip(np.split(records, cuts), to, strict=True)]

    def meet(self, step: int, partial: AnyArray) -> list[AnyArray]:
        self.window.Flush_all()
        self.sent.clear()
        size = self.comm.size
        mine = np.zeros((), [("partial", partial.dtype), ("form", "i8", size),
                             ("records", "i8", size)])
        mine["partial"], mine["form"] = partial, self.forms
        mine["records"] = [len(records) for records in self.leaving]
        everybody = np.empty(size, mine.dtype)
        self.comm.Allgather(np.frombuffer(mine.tobytes(), "u1"), everybody.view("u1"))
        self.window.Sync()
        records = self._exchange(everybody["records"])
        self.arrived = everybody["form"][:, self.comm.rank], records
        return [array.reshape(()) for array in everybody["partial"]]

    def _exchange(self, counts: npt.NDArray[np.int64]) -> AnyArray:
        """The records for this slot, of all in their order; (from, to) has how many there are."""
        rank, size = self.comm.rank, self.comm.size
        each = self.record.itemsize
        at_a_time = max(PIECE // (each * size), 1)
        pieces: list[list[AnyArray]] = [[] for _ in range(size)]
        for first in range(0, int(counts.max()), at_a_time):
            now = (counts - first).clip(0, at_a_time)
            leaving = np.concatenate([part[first : first + at_a_time] for part in self.leaving])
            coming = np.empty(int(now[:, rank].sum()), self.record)
            self.comm.Alltoallv([leaving.view("u1"), now[rank] * each],
                                [coming.view("u1"), now[:, rank] * each])
            for source, piece in enumerate(np.split(coming, np.cumsum(now[:, rank])[:-1])):
                pieces[source].append(piece)
        return np.concatenate([self.leaving[0][:0], *(p for of in pieces for p in of)])

    def incoming(self, step: int) -> tuple[list[Lane | None], Records]:
        forms, records = self.arrived
        half = step % 2 * int(self.at[-1])
        lanes: list[Lane | None] = []
        for slot, rows in enumerate(self.rows):
            lane = self.memory[half + self.at[slot] : half + self.at[slot + 1]]
            cut = len(rows) * self.message.itemsize
            there = lane[cut : cut + len(rows)].view(bool) if forms[slot] == SOME else None
            lanes.append(None if forms[slot] == NONE else (lane[:cut].view(self.message), there))
        if not len(records):
            return lanes, no_records(self.program)
        return lanes, (records["row"].copy(), records["value"].copy())
