"""The slots of a run of Pregel over MPI: messages go through lanes of a window, or as records.

A lane has room for one combined message to each target, and says which targets have a message. All
other messages go as records, an id and a value each; in steps that have records, one exchange
follows after the slots have met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .messages import Lane, Records, Sending, no_records
from .parts import Part, Partition
from .pregel_program import VertexProgram
from .references import AnyArray, Ints
from .runner import StepReport
from .transport import WindowTransport, allocate

PIECE = 1 << 30  # most bytes of records that leave a slot at a time
NONE, ALL, SOME = 0, 1, 2  # forms of a lane: no message, one to each target, one to those it marks

Sources = tuple[Ints, Ints, Ints, Ints]  # see `PregelWindow.sources`


class LaneWindows:
    """The windows of lanes that ftrma saves and logs, in one attempt of the program.

    A run uses the newest window again if its lanes have room in it, else it makes a new one. No
    window is freed: a slot that is replayed from a later checkpoint makes all windows again in
    their order, which is impossible for a window that was freed.
    """

    def __init__(self) -> None:
        self.all: list[tuple[Ints, Any]] = []  # half of each slot's part, window

    def take(self, comm: Any, state: Any, halves: Ints) -> Any:
        """Return the window of the run whose state `declared_runner.declare` has made.

        MPI: collective over all slots if a window is made.
        """
        if state.made is None:
            state.made = not self.all or bool((halves > self.all[-1][0]).any())
        if state.made:
            self.all.append((halves, allocate(comm, 2 * int(halves[comm.rank]), protected=True)))
        return self.all[-1][1]


class PregelWindow(WindowTransport):
    """Implements `pregel_runner.PregelTransport`.

    Args:
        comm, interval_s, tell, make: see `WindowTransport`.
        partition, part: the partition of the graph, and the slot's part.
        program: the program that sends the messages.
        sources: the attribute `sources` of an earlier attempt of the run; then no slot is asked.

    Attributes:
        rows: for each slot, the own vertices to which it has edges, as their local numbers.
        sources: four arrays: ids of the own vertices to which the slots have edges, one slot after
            the other; their number for each slot; the place at which this slot's lane begins in the
            window of each slot; the size of half of each slot's window in bytes.

    MPI: collective over all slots.
    """

    def __init__(self, comm: Any, partition: Partition, part: Part, program: VertexProgram,
                 interval_s: float | None, tell: Callable[[StepReport], None],
                 sources: Sources | None = None, make: Callable[[Ints], Any] | None = None
                 ) -> None:
        self.part, self.partition, self.program = part, partition, program
        self.message = np.dtype(program.message)
        self.record = np.dtype([("row", "i8"), ("value", self.message)])
        if sources is None:
            found = comm.alltoall([part.targets[part.to(slot)] for slot in range(comm.size)])
            counts = np.array([len(ids) for ids in found])
            ids = np.concatenate(found)
        else:
            ids, counts = sources[:2]
        asked = np.split(ids, np.cumsum(counts)[:-1])
        self.rows = [partition.local(ids) for ids in asked]
        each = 0 if program.combine is None else self.message.itemsize + 1
        super().__init__(comm, interval_s, tell, [(len(ids) * each + 7) // 8 * 8 for ids in asked],
                         offsets=sources and sources[2:], make=make)
        self.sources: Sources = (ids, counts, self.there, self.halves)
        # In this step: the form of the lane to each slot, records for each slot, records that came.
        self._forms = np.zeros(comm.size, np.int64)
        self._leaving = [np.zeros(0, self.record)] * comm.size
        self._arrived: tuple[npt.NDArray[np.int64], AnyArray] = self._forms, self._leaving[0]

    def gather(self, value: Any) -> list[Any]:
        found: list[Any] = self.comm.allgather(value)
        return found

    def send(self, step: int, sending: Sending, to: Sequence[bool]) -> None:
        self._forms[:] = NONE
        for slot, wanted in enumerate(to):
            at = self.part.to(slot)
            got = sending.got[at]
            if not wanted or not got.any():
                continue
            values = sending.values[at]
            self.put(step, slot, values)
            self._forms[slot] = ALL if got.all() else SOME
            if self._forms[slot] == SOME:
                self.put(step, slot, got, values.nbytes)
        self._leaving = self._split(sending.records, to)

    def _split(self, found: Records, to: Sequence[bool]) -> list[AnyArray]:
        """Return the records for each slot to which messages are sent."""
        ids, values = found
        if not len(ids):
            return [np.zeros(0, self.record)] * self.comm.size
        owner = self.partition.owner(ids)
        order = np.argsort(owner, kind="stable")
        records = np.empty(len(ids), self.record)
        records["row"], records["value"] = self.partition.local(ids)[order], values[order]
        cuts = np.searchsorted(owner[order], np.arange(1, self.comm.size))
        return [part if wanted else part[:0]
                for part, wanted in zip(np.split(records, cuts), to, strict=True)]

    def meet(self, partial: AnyArray) -> list[AnyArray]:
        size = self.comm.size
        mine = np.zeros((), [("partial", partial.dtype), ("form", "i8", size),
                             ("records", "i8", size)])
        mine["partial"], mine["form"] = partial, self._forms
        mine["records"] = [len(records) for records in self._leaving]
        everybody = self.everybody(mine)
        records = self._exchange(everybody["records"])
        self._arrived = everybody["form"][:, self.comm.rank], records
        return [array.reshape(()) for array in everybody["partial"]]

    def _exchange(self, counts: npt.NDArray[np.int64]) -> AnyArray:
        """Exchange records; return those for this slot, of all slots in their order.

        Args:
            counts: numbers of records, (from, to).
        """
        rank, size = self.comm.rank, self.comm.size
        each = self.record.itemsize
        at_a_time = max(PIECE // (each * size), 1)
        pieces: list[list[AnyArray]] = [[] for _ in range(size)]
        for first in range(0, int(counts.max()), at_a_time):
            now = (counts - first).clip(0, at_a_time)
            leaving = np.concatenate([part[first : first + at_a_time] for part in self._leaving])
            coming = np.empty(int(now[:, rank].sum()), self.record)
            self.comm.Alltoallv([leaving.view("u1"), now[rank] * each],
                                [coming.view("u1"), now[:, rank] * each])
            for source, piece in enumerate(np.split(coming, np.cumsum(now[:, rank])[:-1])):
                pieces[source].append(piece)
        return np.concatenate([self._leaving[0][:0], *(p for of in pieces for p in of)])

    def incoming(self, step: int) -> tuple[list[Lane | None], Records]:
        forms, records = self._arrived
        lanes: list[Lane | None] = []
        for slot, rows in enumerate(self.rows):
            lane = self.lane(step, slot)
            cut = len(rows) * self.message.itemsize
            there = lane[cut : cut + len(rows)].view(bool) if forms[slot] == SOME else None
            lanes.append(None if forms[slot] == NONE else (lane[:cut].view(self.message), there))
        if not len(records):
            return lanes, no_records(self.program)
        return lanes, (records["row"].copy(), records["value"].copy())
