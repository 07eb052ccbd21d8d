"""Runs vertex programs over the slots of a job, one after another; and the lanes between slots."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import framework
from ..framework import entries, kept
from . import data, superstep
from . import program as programs
from .data import Graph, Part, Partition
from .program import AnyArray, Sending, VertexProgram
from .superstep import Lane, Slot

WAIT_S = 0.001  # between looks whether a checkpoint is committed
MOST = 10_000  # steps of a program, unless it says otherwise


class Result:
    """What a program has left in its fields.

    Attributes:
        ids: the slot's own vertices, ascending.

    MPI: local, but for `gather`.
    Fault: a program that is entered again comes by its result again.
    """

    def __init__(self, comm: Any, graph: Graph, ids: npt.NDArray[np.int64],
                 fields: Mapping[str, AnyArray]) -> None:
        self._comm, self._graph, self.ids, self._fields = comm, graph, ids, fields

    def __getitem__(self, name: str) -> AnyArray:
        """The own vertices' values of a field, in the order of `ids`."""
        return self._fields[name]

    def gather(self, name: str) -> AnyArray | None:
        """All vertices' values of a field, (n,), at slot 0; None elsewhere.

        MPI: collective over all slots.
        """
        parts = self._comm.gather((self.ids, self._fields[name]), root=0)
        if parts is None:
            return None
        whole = np.zeros(self._graph.n, self._fields[name].dtype)
        for ids, values in parts:
            whole[ids] = values
        return whole


class Engine:
    """Vertex programs in a job, and how they are recovered.

    The first one takes over what is done about failures: all slots enter the program again, and
    come by the runs that have ended at once.

    Args:
        recovery: "hwcp", "lwcp", "hwlog" or "lwlog", see ``ftrma/graph/README.md``.
        checkpoint: steps between two; 0: none but that of a result.
        partition: of the vertices: "hash" or "range".

    Raises:
        ValueError: a value is none of these.

    MPI: collective over all slots.
    Fault: as `ftrma.framework.claim`.
    """

    def __init__(self, recovery: str = "lwlog", checkpoint: int = 10,
                 partition: str = "hash") -> None:
        if recovery not in superstep.RECOVERIES:
            raise ValueError(f"recovery {recovery!r}: give one of "
                             f"{', '.join(superstep.RECOVERIES)}")
        if checkpoint < 0:
            raise ValueError(f"checkpoint {checkpoint}: give steps between two, or 0 for none")
        from ftrma import MPI

        self.comm = MPI.COMM_WORLD
        self.partition = partition
        Partition(partition, 1, self.comm.size)
        self.recovery, self.checkpoint = recovery, checkpoint
        framework.claim("graph")

    def load(self, path: str | os.PathLike[str]) -> Graph:
        """A graph from a file, see `ftrma.graph.data.load`."""
        return data.load(path)

    def rmat(self, scale: int, degree: int = 16, seed: int = 1) -> Graph:
        """A power-law graph, see `ftrma.graph.data.rmat`."""
        return data.rmat(scale, degree, seed)

    def run(self, graph: Graph, program: VertexProgram, *, most: int = MOST) -> Result:
        """Run a program to its end.

        Args:
            most: steps after which it is an error that it has not ended.

        Raises:
            ValueError: the graph has an edge that leads out of it, or a weight that is NaN; the
                program has a name or a combiner that cannot be.
            RuntimeError: the program has not ended after so many steps, does in `emit` what
                belongs into `update`, or is another one than before a failure.

        MPI: collective over all slots; waits for them in each step.
        Fault: unwinds when all go back; by the entry that follows the run goes on where it was, as
            far as the recovery has it.
        """
        programs.check(program)
        run, partition = number(), Partition(self.partition, graph.n, self.comm.size)
        words = (type(program).__name__, *program.fields, graph.n, self.partition, self.recovery)
        what = zlib.crc32(" ".join(map(str, words)).encode())
        try:
            fields = self._fields(graph, partition, program, run, what, most)
        except superstep.NotEnded:
            self._end(run)
            raise
        self._end(run)
        return Result(self.comm, graph, partition.ids(self.comm.rank), fields)

    def _fields(self, graph: Graph, partition: Partition, program: VertexProgram, run: int,
                what: int, most: int) -> dict[str, AnyArray]:
        """This slot's part of the result: one that a checkpoint has, or run for."""
        found = superstep.concluded(program, kept, entries, run, what)
        if found is not None:
            return found
        part = self._part(graph, partition, run)
        lanes = Lanes(self.comm, partition, part, program)
        slot = Slot(program, part, graph.n, lanes.rows, self.recovery, kept, entries, run, what)
        try:
            found = superstep.run(slot, lanes, every=self.checkpoint, most=most)
        except superstep.NotEnded:
            lanes.free()
            raise
        lanes.free()
        return found

    def _end(self, run: int) -> None:
        """The run has a result, or none by its limit; the next checkpoint belongs to the next."""
        superstep.forget(kept, f"part {run} ")
        entries.put("run", run + 1)

    def _part(self, graph: Graph, partition: Partition, run: int) -> Part:
        """What this slot has of the graph: kept, or made again, alone."""
        framework.kill_place("graph.load")
        names = ("ids", "ptr", "target", "weight", "targets", "bounds")
        key = f"part {run} "
        if f"{key}ids" in kept:
            found: dict[str, Any] = {name: kept.get(key + name) for name in names}
            return Part(**found)
        part = graph.part(partition, self.comm.rank)
        for name in reversed(names):  # the first one last: then all are there
            if (array := getattr(part, name)) is not None:
                kept[key + name] = array
        return part


@dataclass
class Runs:
    """Runs of an attempt of the program, in their order, whichever engine makes them.

    Attributes:
        attempt: that they are counted in; made: how many.
        moved: state that the program had declared was put back, and with it the number.
    """

    attempt: int = -1
    made: int = 0
    moved: bool = False


runs = Runs()


def number() -> int:
    """Of the run that begins now, from 1: the same when it is gone on with."""
    if runs.attempt != framework.attempt():
        runs.attempt, runs.made, runs.moved = framework.attempt(), 0, False
    if framework.restored() and not runs.moved:
        runs.moved = True
        if "run" in entries:  # during which the checkpoint was taken, or before which
            runs.made = int(entries.read("run")) - 1
    runs.made += 1
    entries.put("run", runs.made)
    return runs.made


class Lanes:
    """Where the slots put messages for each other: for each pair a lane of two steps in a window.

    A step's lanes are full when all have met after it; those of the next step are others, and for
    the one after that nobody begins before all have taken what was here.

    Args:
        comm: of the slots.
        partition, part: of the graph.
        program: whose messages these are.

    Attributes:
        rows: own vertices that each slot sends to, as their local numbers.

    MPI: collective over all slots.
    """

    def __init__(self, comm: Any, partition: Partition, part: Part, program: VertexProgram) -> None:
        from ftrma import MPI

        self.comm, self.part, self.message = comm, part, np.dtype(program.message)
        asked = comm.alltoall([part.targets[part.to(s)] for s in range(comm.size)])
        self.rows = [partition.local(ids) for ids in asked]
        lane_bytes = [len(ids) * (self.message.itemsize + 1) for ids in asked]
        self.at = np.concatenate([[0], np.cumsum(lane_bytes)]).astype(np.int64)
        self.there = comm.alltoall([int(at) for at in self.at[:-1]])
        self.halves = comm.allgather(int(self.at[-1]))
        info = MPI.Info.Create({"ftrma_protect": "false"})
        self.window = MPI.Win.Allocate(2 * int(self.at[-1]), 1, info=info, comm=comm)
        info.Free()
        memory: Any = self.window.tomemory()
        self.memory = np.frombuffer(memory, "u1")
        self.sent: list[AnyArray] = []
        self.window.Lock_all()

    def free(self) -> None:
        """The run is over."""
        self.window.Unlock_all()
        del self.memory
        self.window.Free()

    # -- as `superstep.Way` -------------------------------------------------------------------

    def gather(self, value: Any) -> list[Any]:
        found: list[Any] = self.comm.allgather(value)
        return found

    def send(self, step: int, sending: Sending, to: Sequence[bool]) -> None:
        for slot, wanted in enumerate(to):
            at = self.part.to(slot)
            if wanted and at.stop > at.start:
                lane = np.concatenate([sending.values[at].view("u1"), sending.got[at].view("u1")])
                place = step % 2 * self.halves[slot] + self.there[slot]
                self.window.Put(lane, slot, place)
                self.sent.append(lane)  # MPI's until it is flushed

    def meet(self, step: int, partial: AnyArray) -> list[AnyArray]:
        self.window.Flush_all()
        self.sent.clear()
        mine = np.frombuffer(partial.tobytes(), "u1")
        all_of_it = np.empty(self.comm.size * mine.size, "u1")
        self.comm.Allgather(mine, all_of_it)
        self.window.Sync()
        return [array.reshape(()) for array in all_of_it.view(partial.dtype)]

    def incoming(self, step: int) -> list[Lane]:
        half = step % 2 * int(self.at[-1])
        found = []
        for slot, rows in enumerate(self.rows):
            lane = self.memory[half + self.at[slot] : half + self.at[slot + 1]]
            cut = len(rows) * self.message.itemsize
            found.append((lane[:cut].copy().view(self.message), lane[cut:].copy().view(bool)))
        return found

    def checkpoint(self) -> int:
        return int(min(self.gather(framework.safepoint(take=True))))

    def committed(self) -> int:
        return framework.committed()

    def pause(self) -> None:
        time.sleep(WAIT_S)

    def place(self, name: str) -> None:
        framework.kill_place(f"graph.{name}")
