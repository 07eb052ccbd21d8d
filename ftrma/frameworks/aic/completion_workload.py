"""Matrix completion by NOMAD on one slot: the slot's rows stay, columns come and go.

A matrix is approximated by H W, which have `rank` factors for each row and for each column. A slot
has the factors of a block of rows, during the whole run. The factors of a column are a *token*,
which is at exactly one place at any time: queued at a slot, packed there for another slot, or on
the way. A visit of a column at a slot is a step of stochastic gradient descent for each entry of
the column in the slot's rows. Nothing else reads or writes these factors meanwhile, so there are no
locks.

A token has the number of its visits so far. The slot of the next visit follows from the column and
that number alone, so the state of a slot is the tokens, the rows' factors and the errors. After
`epochs` visits for each slot a column stays where it is; when all columns stay, the run is over.

Source: Yun et al., "NOMAD: Non-locking, stochastic multi-machine algorithm for asynchronous and
decentralized matrix completion" (2014); the step length is that of its section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..graph import kernels
from ..graph.references import Columns, Ints
from .kinds import AnyArray, Append, Bytes, Floats

HEAD = 2  # numbers in front of a token's factors: the column, and its visits so far
WORK = 50_000  # entries in one piece of work: about 1 ms (measured: 17 ns each at rank 20)
MOST_TOKENS = 1_000  # tokens in one piece of work
BLOCK = 4096  # rows whose first factors are drawn together, whichever slots have these rows
FIRST = 0.1  # standard deviation of the first factors (chosen: of 0.05 to 0.3 the fewest epochs)
BLOWN_UP = 1e3  # greatest mean square of the errors (1 for the values): more means too long steps


@dataclass(frozen=True)
class Rules:
    """The checked parameters of a model, see `completion.MatrixCompletion`.

    Attributes:
        rank, regularization, step, decay, seed, owner: as there.
        epochs: number of visits of each column, for each slot.
        rmse: the root of the mean square of the errors at which the run ends; 0: no such end.
    """

    rank: int
    regularization: float
    step: float
    decay: float
    epochs: int
    rmse: float
    seed: int
    owner: str

    def steps(self, rounds: Floats) -> Floats:
        """Return the length of the steps of columns, by their numbers of visits for each slot."""
        lengths: Floats = 1.5 * self.step / (1 + self.decay * rounds**1.5)
        return lengths

    def first_rows(self, first: int, last: int) -> Floats:
        """Return the first factors of rows first to last - 1, which do not depend on the slot."""
        blocks = range(first // BLOCK, -(-last // BLOCK))
        drawn = [self._draw(1, block, BLOCK) for block in blocks]
        rows = np.concatenate([*drawn, np.empty((0, self.rank))])
        return np.ascontiguousarray(rows[first - first // BLOCK * BLOCK:][:last - first])

    def first_columns(self, columns: int) -> Floats:
        """Return the first factors of the columns."""
        return self._draw(2, 0, columns)

    def _draw(self, what: int, block: int, count: int) -> Floats:
        return np.random.default_rng([self.seed, what, block]).normal(
            0, FIRST, (count, self.rank))

    def places(self, column: Ints, visits: Ints, size: int) -> Ints:
        """Return the slot at which each of these columns has its next visit."""
        if self.owner == "ring":
            return (column + visits) % size
        with np.errstate(over="ignore"):  # the finalizer of SplitMix64 (Steele et al. 2014)
            x = (column.astype(np.uint64) << np.uint64(32)) + visits.astype(np.uint64)
            x += np.uint64(self.seed) * np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
        return (x % np.uint64(size)).astype(np.int64)


@dataclass(frozen=True)
class Share:
    """A slot's entries, and facts about the entries of all slots.

    Attributes:
        entries: the slot's entries by column; rows are counted from `first`, and the weights are
            the values, which have mean 0 and mean square 1 over all slots.
        first, last: the slot has the rows first to last - 1.
        wanted: the columns that have an entry on any slot, ascending.
        total: number of entries of all slots.
    """

    entries: Columns
    first: int
    last: int
    wanted: Ints
    total: int


class Tokens:
    """A queue of tokens in one array, of which records and snapshots are stretches."""

    def __init__(self, width: int) -> None:
        self._array = np.empty((16, width))
        self._begin = self._end = 0

    @property
    def rows(self) -> Floats:
        """Return all tokens, the oldest one first: a view, valid until the next call of `add`."""
        return self._array[self._begin:self._end]

    def __len__(self) -> int:
        return self._end - self._begin

    def add(self, tokens: Floats) -> None:
        """Queue copies of tokens; these must not be views of this queue."""
        if self._end + len(tokens) > len(self._array):
            old = self.rows
            if 2 * (len(old) + len(tokens)) > len(self._array):
                self._array = np.empty((4 * (len(old) + len(tokens)), old.shape[1]))
            self._array[:len(old)] = old
            self._begin, self._end = 0, len(old)
        self._array[self._end:self._end + len(tokens)] = tokens
        self._end += len(tokens)

    def drop(self, count: int) -> None:
        """Remove the oldest tokens."""
        self._begin += count
        if self._begin == self._end:
            self._begin = self._end = 0


class CompletionWorkload:
    """A slot's part of a matrix completion, for the worker.

    Args:
        rules: the parameters, the same on all slots.
        share: this slot's share of the entries.
        me, size: the number of this slot, and how many slots there are.
        limit_bytes: greatest size of a record that `send` appends.
        work: entries in one piece of work, unless one column has more.

    Attributes:
        row_factors: factors of the slot's rows, (rows, rank).
        queue: columns that are waiting for their visit here.
        finished: columns that have had all their visits.
        errors: for each column the sum of the squares of the errors of the slot's entries, each
            before its last step.
        updates, visits: number of steps on entries that were taken here, and of visits of columns.
        diverged: errors have grown beyond all bounds, since the steps were too long.
    """

    def __init__(self, rules: Rules, share: Share, me: int, size: int,
                 limit_bytes: int = 65536, work: int = WORK) -> None:
        self.rules, self.share, self.me, self.size = rules, share, me, size
        self._work = work
        self.width = HEAD + rules.rank
        if limit_bytes < 8 * self.width:
            raise ValueError(f"rank={rules.rank}: a column takes {8 * self.width} bytes, and a "
                             f"record has {limit_bytes} at most; give a smaller rank")
        self._most = limit_bytes // (8 * self.width)
        self.row_factors = rules.first_rows(share.first, share.last)
        self.queue, self.finished = Tokens(self.width), Tokens(self.width)
        self._packed = [Tokens(self.width) for _ in range(size)]
        ptr = share.entries.ptr
        self._length = np.diff(ptr)
        values = share.entries.edge_weight
        assert values is not None
        self.errors = np.diff(np.concatenate([[0.0], np.cumsum(values**2)])[ptr])
        self.updates = self.visits = 0
        self.diverged = False
        self.queue.add(self._first_tokens())

    def _first_tokens(self) -> Floats:
        wanted = self.share.wanted
        here = wanted[self.rules.places(wanted, np.zeros_like(wanted), self.size) == self.me]
        tokens = np.zeros((len(here), self.width))
        tokens[:, 0] = here
        tokens[:, HEAD:] = self.rules.first_columns(len(self._length))[here]
        return tokens

    # ---- the worker's calls -----------------------------------------------------------------

    def compute(self) -> bool:
        """Have some of the queued columns visit this slot."""
        if not len(self.queue) or self.diverged:
            return False
        column = self.queue.rows[:MOST_TOKENS, 0].astype(np.int64)
        entries = self._length[column].cumsum()
        count = max(1, int(np.searchsorted(entries, self._work, "right")))
        tokens, column = self.queue.rows[:count].copy(), column[:count]
        self.queue.drop(count)
        squares = np.empty(count)
        kernels.visit(self.share.entries, self.row_factors, tokens[:, HEAD:], column,
                      self.rules.steps(tokens[:, 1] / self.size), self.rules.regularization,
                      squares)
        self.errors[column] = squares
        self.diverged = not squares.sum() < BLOWN_UP * self.share.total
        tokens[:, 1] += 1
        self.updates += int(entries[count - 1])
        self.visits += count
        self._sort(tokens)
        return True

    def receive(self, source: int, data: memoryview) -> None:
        """Queue the columns of a record."""
        self.queue.add(np.frombuffer(data, np.float64).reshape(-1, self.width))

    def send(self, append: Append, *, all: bool = False) -> None:
        """Hand on all columns that are packed."""
        for to, tokens in enumerate(self._packed):
            while len(tokens):
                some = tokens.rows[:self._most]
                if not append(to, some):
                    break
                tokens.drop(len(some))

    def passive(self) -> bool:
        """Say whether no column here has visits left, here or elsewhere."""
        return not len(self.queue) and not any(map(len, self._packed))

    def arrays(self) -> dict[str, AnyArray]:
        """Return the state; those of all slots and the records under way have each column once."""
        return {"row_factors": self.row_factors, "queue": self.queue.rows,
                "packed": np.concatenate([tokens.rows for tokens in self._packed]),
                "finished": self.finished.rows, "errors": self.errors,
                "numbers": np.array([self.updates, self.visits], np.int64)}

    def load(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the state of a snapshot."""
        self.row_factors[:] = arrays["row_factors"]
        self.errors[:] = arrays["errors"]
        self.updates, self.visits = map(int, arrays["numbers"])
        self.queue, self.finished = Tokens(self.width), Tokens(self.width)
        self._packed = [Tokens(self.width) for _ in range(self.size)]
        self.queue.add(arrays["queue"])
        self.finished.add(arrays["finished"])
        self._sort(arrays["packed"])

    def status(self) -> Floats:
        """Return the squares of the errors, and the entries, updates and visits of this slot."""
        return np.array([self.errors.sum(), self.share.entries.ptr[-1], self.updates, self.visits])

    def ended(self, statuses: Floats) -> bool:
        """Say whether the error has come down to `rmse`, or has grown beyond all bounds."""
        squares, entries = statuses[:, 0].sum(), statuses[:, 1].sum()
        if not entries >= self.share.total:
            return False  # NaN: a slot has not reported its part yet
        return not squares < BLOWN_UP * self.share.total or bool(
            squares <= self.rules.rmse**2 * entries)

    # ---- more -------------------------------------------------------------------------------

    def columns(self) -> Floats:
        """Return all tokens that are here: the column, its visits, its factors."""
        return np.concatenate([self.queue.rows, self.finished.rows,
                               *(tokens.rows for tokens in self._packed)])

    def entries(self) -> int:
        """Count the columns here that are messages: queued, or packed for another slot."""
        return len(self.queue) + sum(map(len, self._packed))

    def entries_of(self, data: Bytes) -> int:
        """Count the columns in a record."""
        return len(np.frombuffer(data, np.float64)) // self.width

    def _sort(self, tokens: Floats) -> None:
        """Bring tokens to the place of their next visit, or to the end."""
        visits = tokens[:, 1].astype(np.int64)
        to = self.rules.places(tokens[:, 0].astype(np.int64), visits, self.size)
        to[visits >= self.rules.epochs * self.size] = -1
        for place in np.unique(to):
            where = (self.finished if place < 0 else
                     self.queue if place == self.me else self._packed[place])
            where.add(tokens[to == place])
