"""Distributed hashtable: a key-value store of 8-byte integers, all of it done with MPI-3 atomics.

What: every slot owns a volume, which is a fixed-size array of buckets and an overflow heap, in one
window. Each slot inserts random keys, thinking after each; then each looks up random keys. The last
line on standard output is one JSON object; the exit status is 0 if the content was right.

Why: single atomics, each waited for, are the worst case for a protocol that logs accesses, and no
owner ever takes part in what others do to its volume.

How: an insert compares and swaps the key into its bucket. If that is taken, it fetches and adds the
number of the volume's next free heap cell, puts the key there and prepends the cell to the bucket's
chain: it reads the chain's link, puts it into the cell, and compares and swaps the link. So an
insert is one atomic, after a collision four atomics and two puts, plus a put and an atomic for each
time that another slot came first. In the paper's count, where an atomic is a put and a get, that
is one of each, and 6 puts and 4 gets.

Invariants. A cell is whole before a link leads to it: a flush lies between. No cell changes once it
is linked, except for the link of a bucket. Lookups use plain Gets, which must not meet atomics, so
a barrier parts the inserts from them. Between two safepoints lies one batch of a known size whose
keys follow from its number, so after a rollback a batch is done again exactly: the windows have
lost what it did, and the declared state says that it has not been done.

Same result: which of two colliding keys gets the bucket, and the order of a chain, depend on
timing. What a volume holds does not, nor how many heap cells are in use, nor any lookup's answer.
`--dump` writes these, the keys sorted, and they are the same bits in each run with the same slots
and options.

Thinking computes until the slot has used up a given time of its own on the processor. It does not
sleep: sleeping would leave the cores to the processes that protect the program, hiding their
price, and can be no shorter than about 50 us. Nor does it watch the clock: on a machine with fewer
cores than slots, waiting for a core would count as thinking. `--duty` sets the mean from the cost
of an insert, measured before; to compare variants with the same thinking, take `think_us` from the
output of the first and give it to the others by `--think-us`.

Source: Besta & Hoefler, section 7.2.2. The paper takes a think time f*d*exp(-d*x) at a random x;
here the time itself is distributed exponentially.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import volume
from numpy.typing import NDArray
from volume import COUNTER, PAIR, WORD_BYTES, Shape, Words

import ftrma
from ftrma import MPI
from ftrma.host import outfile

# With 1024 slots, and half as many keys again that are looked up and not there, the numbers of keys
# stay below 2^INDEX_BITS.
MOST = 2**28


def main(arguments: list[str]) -> int:
    """Run the benchmark; the result is the exit status."""
    comm = MPI.COMM_WORLD
    options = parse(arguments, comm)
    store = Store(comm, Shape(comm.Get_size(), options.buckets, options.heap))
    # The clock in the state is wall-clock time: a time with a failure in it contains the recovery.
    state = ftrma.protect(
        "dht", step=0, think_s=None, busy_s=0.0, thought_s=0.0, began=np.zeros(2),
        seconds=np.zeros(2), found=0, wrong=0, cells=None,
    )
    store.open()
    if state.think_s is None:
        state.think_s = warm_up(store, options)
    insert_steps = batches(options.inserts, options.batch)
    steps = insert_steps + batches(options.lookups, options.batch)
    phase(0, range(insert_steps), state, lambda batch: insert_batch(batch, state, store, options))
    if state.cells is None:
        state.cells = check_heap(store)
    phase(
        1, range(insert_steps, steps), state, lambda batch: ask_batch(batch, state, store, options)
    )
    report = verify(state, store, options)
    if store.slot == 0:
        print(json.dumps(report), flush=True)
    status = 0 if report["verified"] else 1
    if options.dump is not None:
        status = dump(options.dump, state, store) or status
    store.close()
    return status


# ---- the program ----------------------------------------------------------------------------


def phase(index: int, steps: range, state: Any, work: Callable[[int], None]) -> None:
    """Do these of the program's steps, as far as they are not done yet, and take their time.

    The last safepoint lies within the time, so that it contains every checkpoint. Afterwards no
    slot is in this phase any more.
    """
    comm = MPI.COMM_WORLD
    if state.seconds[index] == 0:
        state.seconds[index] = -1
        comm.Barrier()
        state.began[index] = time.time()
    while state.step < steps.stop:
        ftrma.safepoint()
        work(state.step - steps.start)
        state.step += 1
    comm.Barrier()
    if state.seconds[index] < 0:
        ftrma.safepoint()
        state.seconds[index] = time.time() - state.began[index]


def insert_batch(batch: int, state: Any, store: Store, options: Namespace) -> None:
    """Insert the keys of one batch, thinking after each."""
    numbers = numbers_of_batch(batch, options.batch, options.inserts, store)
    keys = volume.keys(options.seed, numbers)
    times = volume.thinking(options.seed, numbers, state.think_s)
    began = time.perf_counter()
    state.thought_s += insert_keys(store, keys, times)
    state.busy_s += time.perf_counter() - began


def insert_keys(store: Store, keys: Words, times: NDArray[np.float64]) -> float:
    """Insert keys and think after each for so many seconds; returns the clock time of thinking."""
    thought_s = 0.0
    slots, words = volume.places(store.shape, keys)
    places = zip(slots.tolist(), words.tolist(), times.tolist(), strict=True)
    for i, (slot, word, seconds) in enumerate(places):
        store.insert(keys[i : i + 1], slot, word)
        if seconds:
            thought_s += think(seconds)
    return thought_s


def ask_batch(batch: int, state: Any, store: Store, options: Namespace) -> None:
    """Look up the keys of one batch and compare the answers with what was inserted."""
    numbers = numbers_of_batch(batch, options.batch, options.lookups, store)
    inserted = store.shape.volumes * options.inserts
    keys, there = volume.questions(options.seed, numbers, inserted)
    slots, words = volume.places(store.shape, keys)
    for key, slot, word, answer in zip(
        keys.tolist(), slots.tolist(), words.tolist(), there.tolist(), strict=True
    ):
        found = store.contains(key, slot, word)
        state.found += found
        state.wrong += found != answer


def numbers_of_batch(batch: int, size: int, each: int, store: Store) -> Words:
    """The numbers of this slot's keys or questions in a batch; the last batch may be smaller."""
    begin = batch * size
    return volume.numbers_of(store.slot, begin, min(begin + size, each), each)


def batches(count: int, size: int) -> int:
    """Number of batches of at most `size` that make `count`."""
    return -(-count // size)


def think(seconds: float) -> float:
    """Use the processor for so long; returns how much time has passed on the clock."""
    end = time.thread_time() + seconds
    began = time.perf_counter()
    while time.thread_time() < end:
        pass
    return time.perf_counter() - began


def warm_up(store: Store, options: Namespace) -> float:
    """Insert all keys and take them out again; returns the mean time to think, in seconds.

    No fewer, because an insert costs the more the more keys are there.

    MPI: collective over all slots.
    """
    numbers = volume.numbers_of(store.slot, 0, options.inserts, options.inserts)
    keys = volume.keys(options.seed, numbers)
    began = time.thread_time()
    insert_keys(store, keys, np.zeros(len(keys)))
    cost = (time.thread_time() - began) / len(keys)
    store.clear()
    if options.think_us is not None:
        return float(options.think_us) * 1e-6
    mean: float = store.comm.allreduce(cost) / store.shape.volumes
    return mean * (1 - options.duty) / options.duty


def check_heap(store: Store) -> int:
    """Cells that the fullest heap needs; ends the program if there are not so many."""
    needed: int = store.comm.allreduce(store.cells_asked(), op=MPI.MAX)
    if needed > store.shape.cells:
        store.close()
        fail(
            f"--heap {store.shape.cells} cells in each volume are too few for these keys; give "
            f"--heap {needed}, or more --buckets than {store.shape.buckets}",
            store.slot,
        )
    return needed


def verify(state: Any, store: Store, options: Namespace) -> dict[str, Any]:
    """Check every volume and every answer; returns the report.

    MPI: collective over all slots.
    """
    shape = store.shape
    expected = volume.expected_content(options.seed, shape, store.slot, options.inserts)
    right = (
        np.array_equal(store.content(), expected)
        and store.cells_asked() == volume.overflow(shape, expected)
        and state.wrong == 0
    )
    own = np.array([not right, store.cells_asked(), state.found, state.busy_s, state.thought_s])
    wrong, collisions, found, busy_s, thought_s = store.comm.allreduce(own).tolist()
    inserts, lookups = shape.volumes * options.inserts, shape.volumes * options.lookups
    seconds, lookup_seconds = state.seconds.tolist()
    return {
        "benchmark": "dht",
        "slots": shape.volumes,
        "verified": wrong == 0,
        "began": float(state.began[0]),
        "seconds": seconds,
        "inserts": inserts,
        "inserts_per_second": inserts / seconds,
        "collisions": int(collisions),
        "think_us": state.think_s * 1e6,
        "duty": 1 - thought_s / busy_s,
        "lookup_seconds": lookup_seconds,
        "lookups": lookups,
        "lookups_per_second": lookups / lookup_seconds if lookups else 0.0,
        "found": int(found),
        "buckets": shape.buckets,
        "heap": shape.cells,
        "batch": options.batch,
        "seed": options.seed,
    }


class Store:
    """The volumes of all slots, reached through one window.

    Between `open` and `close` every volume is open to every slot (passive target, shared). Each
    access is waited for by a flush before its result is used or its buffer changes.
    """

    def __init__(self, comm: Any, shape: Shape) -> None:
        self.comm = comm
        self.shape = shape
        self.slot = comm.Get_rank()
        self.window = MPI.Win.Allocate(shape.words * WORD_BYTES, WORD_BYTES, comm=comm)
        self.memory: Words = np.frombuffer(self.window.tomemory(), dtype=np.int64)
        self.memory[:] = 0
        self._zero, self._one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
        self._old, self._head, self._cell = (np.zeros(1, dtype=np.int64) for _ in range(3))
        self._pair = np.zeros(PAIR, dtype=np.int64)

    def open(self) -> None:
        """Begin the accesses; every slot must call it."""
        self.window.Lock_all()
        # A shared lock waits for nobody: an early insert would be lost when its target initializes.
        self._synchronize()

    def close(self) -> None:
        """End the accesses and free the window; every slot must call it."""
        self.window.Unlock_all()
        del self.memory
        self.window.Free()

    def insert(self, key: Words, slot: int, word: int) -> None:
        """Insert a key, given as an array of one, in the bucket at this word of a slot's volume.

        A key that finds the heap full is left out; the volume's counter tells.
        """
        window, old = self.window, self._old
        window.Compare_and_swap(key, self._zero, old, slot, word)
        window.Flush(slot)
        if old[0] == 0:
            return
        # Keys of a run are all different; otherwise the chain had to be searched for the key first.
        window.Fetch_and_op(self._one, old, slot, COUNTER)
        window.Flush(slot)
        if old[0] >= self.shape.cells:
            return
        self._cell[0] = self.shape.heap + PAIR * old[0]
        window.Put(key, slot, int(self._cell[0]))
        self._prepend(slot, word + 1)

    def _prepend(self, slot: int, link: int) -> None:
        """Link the new cell into the chain that begins at this word."""
        window, old, head, cell = self.window, self._old, self._head, self._cell
        window.Fetch_and_op(self._zero, head, slot, link, op=MPI.NO_OP)
        window.Flush(slot)
        while True:
            window.Put(head, slot, int(cell[0]) + 1)
            window.Flush(slot)
            window.Compare_and_swap(cell, head, old, slot, link)
            window.Flush(slot)
            if old[0] == head[0]:
                return
            head[0] = old[0]

    def contains(self, key: int, slot: int, word: int) -> bool:
        """The key is in the bucket at this word of a slot's volume, or in its chain."""
        pair = self._pair
        while word:
            self.window.Get(pair, slot, word)
            self.window.Flush(slot)
            element, word = pair.tolist()
            if element == key:
                return True
        return False

    def clear(self) -> None:
        """Empty all volumes; every slot must call it."""
        self._synchronize()
        self.memory[:] = 0
        self._synchronize()

    def content(self) -> Words:
        """The keys in the own volume, sorted; every slot must have ended its inserts."""
        self.window.Sync()
        return volume.content(self.memory, self.shape, self.slot)

    def cells_asked(self) -> int:
        """Number of heap cells of the own volume that were asked for, see `content`."""
        self.window.Sync()
        return int(self.memory[COUNTER])

    def _synchronize(self) -> None:
        # Sync orders plain loads and stores of the own volume with the accesses of others.
        self.window.Sync()
        self.comm.Barrier()
        self.window.Sync()


# ---- command line and files -----------------------------------------------------------------


def dump(directory: str, state: Any, store: Store) -> int:
    """Write what does not depend on timing, for comparison; the result is the exit status."""
    try:
        os.makedirs(directory, exist_ok=True)
        with outfile.opened(os.path.join(directory, f"slot-{store.slot}.npz")) as file:
            np.savez(
                file,
                step=state.step,
                keys=store.content(),
                cells_used=store.cells_asked(),
                found=state.found,
                wrong=state.wrong,
            )
    except OSError as error:
        outfile.tell(
            f"--dump {directory}: cannot write the file of slot {store.slot}: "
            f"{outfile.why(error)}; or name another directory", who="dht",
        )
        return 1
    return 0


def parse(arguments: list[str], comm: Any) -> Namespace:
    """Read the command line."""
    parser = Parser(comm.Get_rank())
    whole: dict[str, Any] = {"type": int, "metavar": "N"}
    parser.add_argument("--inserts", default=10000, help="per slot (default 10000)", **whole)
    parser.add_argument("--lookups", help="per slot (default: as many as inserts)", **whole)
    parser.add_argument("--buckets", help="per slot (default: as many as inserts)", **whole)
    parser.add_argument(
        "--heap", help="overflow cells per slot (default: as many as inserts)", **whole
    )
    parser.add_argument(
        "--batch", default=1000, help="operations between safepoints (default 1000)", **whole
    )
    parser.add_argument("--seed", default=0, help="of all random numbers (default 0)", **whole)
    pause = parser.add_mutually_exclusive_group()
    pause.add_argument(
        "--duty", type=float, default=0.1, metavar="SHARE",
        help="share of the time that inserts take; 1: no thinking (default 0.1)",
    )
    pause.add_argument(
        "--think-us", type=float, metavar="US", help="mean time to think, instead of --duty"
    )
    parser.add_argument("--dump", metavar="DIR", help="write the final data to DIR/slot-<slot>.npz")
    options = parser.parse_args(arguments)
    for name in ("lookups", "buckets", "heap"):
        if getattr(options, name) is None:
            setattr(options, name, options.inserts)
    check(options, parser)
    return options


def check(options: Namespace, parser: Parser) -> None:
    """Refuse values that make no sense."""
    bounds = {"inserts": (1, MOST), "lookups": (0, MOST), "buckets": (1, MOST), "heap": (0, MOST),
              "batch": (1, MOST), "seed": (0, 2**volume.SEED_BITS - 1)}
    for name, (least, most) in bounds.items():
        value = getattr(options, name)
        if not least <= value <= most:
            parser.error(
                f"--{name} {value} is out of range; give a whole number from {least} to {most}"
            )
    if not 0 < options.duty <= 1:
        parser.error(f"--duty {options.duty} is no share; give a number above 0, at most 1")
    if options.think_us is not None and not 0 <= options.think_us < math.inf:
        parser.error(f"--think-us {options.think_us} is no time; give a number from 0 up")


class Parser(argparse.ArgumentParser):
    """An argument parser that speaks on slot 0 only: every slot reads the same command line."""

    def __init__(self, slot: int) -> None:
        super().__init__(prog="dht", description="Distributed hashtable with MPI-3 atomics")
        self._slot = slot

    def _print_message(self, message: str, file: Any = None) -> None:
        if self._slot == 0:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """End with one line instead of the usage."""
        fail(message, self._slot)


def fail(message: str, slot: int) -> NoReturn:
    """End every slot with status 2; slot 0 says why. All slots must come here together."""
    if slot == 0:
        print(f"dht: {message}", file=sys.stderr, flush=True)
    # Some launchers end the job as soon as one slot has left, even before slot 0 has spoken.
    MPI.COMM_WORLD.Barrier()
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
