"""The state of a delta-accumulative program in one slot, and its updates.

The array *pending* has the deltas of the slot's own k vertices (the paper's I). Behind them it has
a place for each vertex of another slot to which an edge leads; there messages are accumulated until
they are sent (O). The program's zero means that there is no message. So one pass over the edges of
the updated vertices serves both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..graph import kernels
from ..graph.parts import Part
from ..graph.references import Ints, Mask
from .delta_program import Block, DeltaProgram, WrongProgram
from .kinds import AnyArray, Append, Floats

SAMPLE = 1000  # priorities from which the most urgent portion is estimated
MOST_EDGES = 1 << 20  # edges in a piece of work, which takes some milliseconds
PIECE_S = 0.003  # time of a piece of work that is paced
COUNT = np.dtype("u8")
STATUS = ("pending", "updates", "values", "messages")  # see DeltaWorkload.status


class Diverged(RuntimeError):
    """The deltas of a program do not shrink, or are no numbers any more."""


class DeltaWorkload:
    """One slot's part of a program's run; implements `kinds.Workload`.

    Args:
        program: the program.
        part: the slot's part of the graph.
        n: number of vertices of the graph.
        rows: for each slot, the own vertices to which it has edges, by their local numbers, in the
            order of that slot's targets.
        me: this slot.
        limit_bytes: greatest size of a record.
        eps: an update waits while the priority is not above this.
        portion: portion of the vertices that are chosen at a time, the most urgent ones; 1: all in
            turn. They are updated in pieces.
        send_portion: messages to a slot are due when this portion of its vertices have one,
        send_seconds: or when so many seconds have passed since the last ones were sent.
        most_updates: number of updates of this slot's vertices after which the run is given up.
        pace_s: seconds that each update takes; the worker sleeps, and pieces of work are small.

    Attributes:
        value, pending: see the module.
        updates: number of updates of vertices so far in this attempt.
        messages: number of messages that were sent to other slots.
    """

    def __init__(self, program: DeltaProgram, part: Part, n: int, rows: Sequence[Ints], me: int,
                 limit_bytes: int, *, eps: float, portion: float = 0.2,
                 send_portion: float = 0.01, send_seconds: float = 0.5,
                 most_updates: float = np.inf, seed: int = 1, pace_s: float = 0.0,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.program, self.part, self.n, self.rows, self.me = program, part, n, rows, me
        self.eps, self.portion, self.clock = eps, portion, clock
        self.send_portion, self.send_seconds = send_portion, send_seconds
        self.most_updates = most_updates
        self._name = type(program).__name__
        self.accumulate, self.dtype = type(program).accumulate, np.dtype(program.dtype)
        self.zero: Any = np.array(program.zero).astype(self.dtype)[()]
        self.k = k = len(part.ids)
        self._receives = type(program).receive is not DeltaProgram.receive
        self._places, self._to = _places(part, me, k, apart=self._receives)
        size = self._to[-1].stop
        self.pending = np.full(size + k * self._receives, self.zero, self.dtype)
        self.value = np.full(k, self.zero, self.dtype)
        self.got: Mask = np.zeros(len(self.pending), bool)
        self._random = np.random.default_rng([seed, me])
        self._most = max(1, k * MOST_EDGES // max(1, len(part.target)))
        if pace_s > 0:
            self._most = max(1, min(self._most, int(PIECE_S / pace_s)))
        self._chosen: Ints = np.zeros(0, np.int64)  # rows whose updates are left of a portion
        self._idle = False
        self._sent_at = [clock()] * len(rows)
        self._piece = (limit_bytes - 32) // (4 + self.dtype.itemsize)
        self.updates = self.messages = 0
        self.begin()

    # -- the begin ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Set values and deltas as the program's `init` does."""
        self.value[:], self.pending[:], self.got[:] = self.zero, self.zero, False
        self._chosen = self._chosen[:0]
        v = self._block(None)
        self.program.init(v)
        if v.value is not self.value or np.isnan(v.value).any() or np.isnan(v.delta).any():
            raise WrongProgram(f"{self._name}.init: write numbers into v.value and v.delta, as in "
                               "v.value[:] = 0")
        self._idle = False

    def begin_from(self, value: AnyArray) -> None:
        """Go on from any values: compute the deltas that are missing in them.

        All slots do this. The delta of a vertex is what it began with and all that was sent to it,
        minus what its value has taken in.
        """
        self.begin()
        first = self.value.copy()
        self.value[:] = value
        had = self.value - first if self.accumulate is np.add else self.value
        if self.accumulate is np.add:
            self.pending[:self.k] -= had
        rows = np.flatnonzero(had != self.zero)
        self._send_along(rows, had[rows])
        self.got[self.k:] = self.pending[self.k:] != self.zero

    def _block(self, rows: Ints | None) -> Block:
        return Block(self.part, rows, self.value, self.pending[:self.k], self.n)

    # -- updates ------------------------------------------------------------------------------

    def compute(self) -> bool:
        """Update some of the most urgent vertices."""
        if self._idle:
            return False
        if not len(self._chosen):
            self._chosen = self._choose()
        rows, self._chosen = self._chosen[:self._most], self._chosen[self._most:]
        if not len(rows):
            self._idle = True
            return False
        self.updates += len(rows)
        if self.updates > self.most_updates:
            left = self.amount(self.pending)
            raise Diverged(f"{self._name}: slot {self.me} has made {self.updates} updates, and "
                           f"deltas of {left:.3g} are left: they do not shrink; check send(), or "
                           "raise most_updates or eps")
        delta = self.pending[rows]
        self.pending[rows] = self.zero
        before = self.value[rows]
        after = self.accumulate(before, delta)
        self.value[rows] = after
        changed = np.flatnonzero(after != before)
        if len(changed) < len(rows):
            rows, delta = rows[changed], delta[changed]
        self._send_along(rows, delta)
        return True

    def _choose(self) -> Ints:
        """Return the rows whose updates are due, ascending."""
        priority = self.program.priority(self._block(None))
        bound = self.eps
        if self.portion < 1 and self.k > SAMPLE:
            sample = priority[self._random.integers(0, self.k, SAMPLE)]
            place = int((1 - self.portion) * (SAMPLE - 1))
            bound = max(bound, float(np.partition(sample, place)[place]))
            # All rows as urgent as the bound are taken, even if they are more than the portion.
            rows = np.flatnonzero((priority >= bound) & (priority > self.eps))
        else:
            rows = np.flatnonzero(priority > bound)
        return rows

    def _send_along(self, rows: Ints, delta: AnyArray) -> None:
        """Accumulate a message of each of these rows along all of its edges."""
        if not len(rows):
            return
        message = np.asarray(self.program.send(self._block(rows), delta))
        if message.shape != rows.shape or message.dtype.kind not in "biuf":
            raise WrongProgram(f"{self._name}.send: {message.shape} of "
                               f"{message.dtype} for {len(rows)} vertices; give a number for each")
        if message.dtype.kind == "f" and np.isnan(message).any():
            raise Diverged(f"{self._name}.send: the message of vertex "
                           f"{self.part.ids[rows[np.isnan(message)]][0]} is NaN; check that deltas "
                           "shrink, and divisions by 0")
        kernels.scatter(self.accumulate, self.pending, self.got, self.part.ptr, self._places,
                        self.part.weight if self.program.weight else None, self.program.weight,
                        rows, message.astype(self.dtype, copy=False))
        if self._receives:
            inbox = slice(len(self.pending) - self.k, len(self.pending))
            mine = np.flatnonzero(self.got[inbox])
            self._take_in(mine, self.pending[inbox][mine])
            self.pending[inbox], self.got[inbox] = self.zero, False

    def _take_in(self, rows: Ints, messages: AnyArray) -> None:
        """Accumulate messages that have come to these rows."""
        if self._receives:
            messages = np.asarray(self.program.receive(self._block(rows), messages), self.dtype)
        kernels.fold(self.accumulate, self.pending[:self.k], None, rows, messages, None)

    # -- messages -----------------------------------------------------------------------------

    def receive(self, source: int, data: memoryview) -> None:
        """See `kinds.Workload.receive`."""
        count = int(np.frombuffer(data[:8], COUNT)[0])
        at = 8 + -(-count // 2) * 8
        places = np.frombuffer(data[8:8 + 4 * count], "u4")
        messages = np.frombuffer(data[at:at + count * self.dtype.itemsize], self.dtype)
        self._take_in(self.rows[source][places], messages)
        self._idle = False

    def send(self, append: Append, *, all: bool = False) -> None:
        """See `kinds.Workload.send`; all messages are due when nothing is left to compute."""
        now = self.clock()
        for slot, place in enumerate(self._to):
            got = self.got[place]
            count = int(np.count_nonzero(got))
            if slot == self.me or not count:
                continue
            due = count > self.send_portion * len(got) or now - self._sent_at[slot] >= (
                self.send_seconds)
            if (all or self._idle or due) and self._send_to(append, slot, place):
                self._sent_at[slot] = now

    def _send_to(self, append: Append, slot: int, place: slice) -> bool:
        """Hand on the messages to a slot; False: there was no room for all of them."""
        values, got = self.pending[place], self.got[place]
        there = np.flatnonzero(got)
        for first in range(0, len(there), self._piece):
            piece = there[first:first + self._piece]
            count = len(piece)
            record = np.zeros(8 + -(-count // 2) * 8 + count * self.dtype.itemsize, "u1")
            record[:8].view(COUNT)[0] = count
            record[8:8 + 4 * count].view("u4")[:] = piece
            record[8 + -(-count // 2) * 8:].view(self.dtype)[:] = values[piece]
            if not append(slot, record):
                return False
            values[piece], got[piece] = self.zero, False
            self.messages += count
        return True

    def passive(self) -> bool:
        """See `kinds.Workload.passive`."""
        return self._idle and not self.got[self.k:].any()

    # -- state --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, AnyArray]:
        """Return the values and what is pending."""
        return {"value": self.value, "pending": self.pending[:self._to[-1].stop]}

    def load(self, arrays: Mapping[str, AnyArray]) -> None:
        """See `kinds.Workload.load`."""
        self.value[:] = arrays["value"]
        self.pending[:self._to[-1].stop] = arrays["pending"]
        self.got[self.k:] = self.pending[self.k:] != self.zero
        self._chosen, self._idle = self._chosen[:0], False

    def entries(self) -> int:
        """Count the deltas and messages that wait here."""
        return int(np.count_nonzero(self.pending != self.zero))

    def entries_of(self, data: memoryview) -> int:
        """Count the messages in a record."""
        return int(np.frombuffer(data[:8], COUNT)[0])

    def amount(self, pending: AnyArray) -> float:
        """Return the sum of the absolute values of the finite deltas and messages."""
        if self.zero == 0:
            return finite_sum(np.abs(pending))
        return finite_sum(np.abs(pending[pending != self.zero].astype(np.float64)))

    def status(self) -> Floats:
        """Return the amount pending, updates so far, sum of finite values, and messages sent."""
        return np.array([self.amount(self.pending), self.updates, finite_sum(self.value),
                         self.messages])

    def ended(self, statuses: Floats) -> bool:
        """See `kinds.Workload.ended`: this workload ends when all are passive."""
        return False


def finite_sum(values: AnyArray) -> float:
    """Return the sum of the finite values; if all are finite, as usual, it takes one pass."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(values.sum(dtype=np.float64))
    return total if np.isfinite(total) else float(values[np.isfinite(values)].sum())


def _places(part: Part, me: int, k: int, *, apart: bool) -> tuple[AnyArray, list[slice]]:
    """Return the place in `pending` of each edge's target, and each slot's stretch of places.

    Args:
        apart: messages to own vertices have places of their own, behind all others.
    """
    place = np.empty(len(part.targets), np.uint32)
    stretches, at = [], k
    for slot in range(len(part.bounds) - 1):
        targets = part.to(slot)
        size = 0 if slot == me else targets.stop - targets.start
        place[targets] = np.arange(at, at + targets.stop - targets.start)
        stretches.append(slice(at, at + size))
        at += size
    own = part.targets[part.to(me)]
    place[part.to(me)] = np.searchsorted(part.ids, own) + (at if apart else 0)
    return place[part.target], stretches
