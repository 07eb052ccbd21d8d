"""The program that `bench checkpoint` runs under ``ftrma run --interval 0``: timed safepoints.

Every slot holds one window of random bytes. A timed action starts at a barrier of all slots and its
time is that of the slowest. Before each one the program waits, untimed, until the checksum ranks
are done with the checkpoint before, because a checkpoint that comes too early waits for them; the
cost of that is measured by itself. The last line of output is one JSON object.

The references act on the same bytes in the same process. `memcpy` copies the window, just
rewritten like before a checkpoint, to private memory (page-aligned, touched before), `memcpy
shared` to shared memory, where checkpoints lie; `memcmp` and `memcmp shared` compare the window
with those copies; the files are overwritten in place, so no reference pays for fresh memory either.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ftrma
from ftrma import MPI

PAGE_BYTES = 4096
CATCH_UP_LIMIT_S = 60.0
CONTENTS = 3  # random contents to rewrite the window with; two that follow each other differ

Bytes = NDArray[np.uint8]

libc = ctypes.CDLL(None, use_errno=True)
libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def main() -> None:
    options = parse()
    job = os.environ.get("FTRMA_JOB")
    if not job:
        sys.exit("checkpoint_app: this program measures checkpoints; start it with 'ftrma run'")
    comm = MPI.COMM_WORLD
    subject = Subject(comm, options)
    for _ in range(options.warm_up):  # first touch of vaults, copies and files
        subject.round(options.share)
    rounds = [subject.round(options.share) for _ in range(options.rounds)]
    if comm.Get_rank() == 0:
        report = {
            "size_bytes": options.size_bytes,
            "slots": comm.Get_size(),
            "rounds": rounds,
            "memory": memory(Path(job), comm.Get_size()),
        }
        print(json.dumps(report), flush=True)
    subject.free()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-bytes", type=int, required=True, help="of each slot's window")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=2, help="rounds that are not reported")
    parser.add_argument("--share", type=float, default=0.1, help="of the pages, for 'some dirty'")
    parser.add_argument("--tmpfs", required=True, help="directory in tmpfs for files")
    parser.add_argument("--disk", required=True, help="directory on disk for files")
    return parser.parse_args()


def aligned(size_bytes: int) -> Bytes:
    """Private memory from a page boundary on, touched."""
    raw = np.ones(size_bytes + PAGE_BYTES, dtype=np.uint8)
    first = -raw.ctypes.data % PAGE_BYTES
    return raw[first : first + size_bytes]


class Subject:
    """The window and everything it is copied to."""

    def __init__(self, comm: Any, options: argparse.Namespace) -> None:
        self.comm, self.size_bytes = comm, options.size_bytes
        slot = comm.Get_rank()
        self.random = np.random.default_rng([20260101, slot])
        window: Any = MPI.Win.Allocate(self.size_bytes, 1, comm=comm)
        self.window = window
        self.bytes: Bytes = np.frombuffer(window.tomemory(), dtype=np.uint8)
        self.contents = [aligned(self.size_bytes) for _ in range(CONTENTS)]
        for content in self.contents:
            content[:] = np.frombuffer(self.random.bytes(self.size_bytes), dtype=np.uint8)
        self.copy, self.other = aligned(self.size_bytes), aligned(self.size_bytes)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.files = {
            name: os.open(os.path.join(directory, f"slot-{slot}"), flags, 0o600)
            for name, directory in (("tmpfs", options.tmpfs), ("disk", options.disk))
        }
        shared = os.open(os.path.join(options.tmpfs, f"shared-{slot}"), flags, 0o600)
        os.ftruncate(shared, self.size_bytes)
        self.shared = np.frombuffer(mmap.mmap(shared, self.size_bytes), dtype=np.uint8)
        os.close(shared)
        self.rewritten = 0
        self.safepoints = 0
        self.summing_s = 0.0

    def round(self, share: float) -> dict[str, Any]:
        """Each timed action once: seconds, and the versions of the checkpoints among them."""
        seconds: dict[str, float] = {}
        versions: dict[str, int] = {}
        for name, prepare in (
            ("all dirty", self.rewrite),
            ("nothing dirty", lambda: None),
            ("some dirty", lambda: self.scatter(share)),
        ):
            prepare()
            seconds[name] = self.timed(self.safepoint)
            versions[name] = self.safepoints
            self.catch_up()
        self.rewrite()
        seconds["memcpy"] = self.timed(lambda: np.copyto(self.copy, self.bytes))
        seconds["memcmp"] = self.timed(lambda: self.compare(self.copy))
        self.rewrite()
        seconds["memcpy shared"] = self.timed(lambda: np.copyto(self.shared, self.bytes))
        seconds["memcmp shared"] = self.timed(lambda: self.compare(self.shared))
        seconds["write tmpfs"] = self.timed(lambda: self.write("tmpfs"))
        seconds["write disk"] = self.timed(lambda: self.write("disk", sync=True))
        self.rewrite()
        self.safepoint()
        self.rewrite()
        seconds["all dirty, no wait"] = self.timed(self.safepoint, same_start=False)
        versions["all dirty, no wait"] = self.safepoints
        seconds["nothing dirty, no wait"] = self.timed(self.safepoint, same_start=False)
        versions["nothing dirty, no wait"] = self.safepoints
        self.catch_up()
        return {"seconds": seconds, "versions": versions}

    def timed(self, action: Callable[[], object], same_start: bool = True) -> float:
        """Seconds of the slowest slot; all start together.

        A core that has just slept is slow, and one that has just touched the window has some of it
        in its caches, so each action starts after other memory has been copied.
        """
        if same_start:
            np.copyto(self.other, self.contents[0])
        self.comm.Barrier()
        began = time.perf_counter()
        action()
        return float(self.comm.allreduce(time.perf_counter() - began, op=MPI.MAX))

    # -- what happens to the window -----------------------------------------------------------

    def rewrite(self) -> None:
        """Other random bytes everywhere."""
        self.rewritten += 1
        np.copyto(self.bytes, self.contents[self.rewritten % CONTENTS])

    def scatter(self, share: float) -> None:
        """Other random bytes in a share of the pages, chosen at random."""
        pages = self.size_bytes // PAGE_BYTES
        for page in self.random.choice(pages, max(1, round(share * pages)), replace=False):
            first = int(page) * PAGE_BYTES
            fresh = np.frombuffer(self.random.bytes(PAGE_BYTES), dtype=np.uint8)
            self.bytes[first : first + PAGE_BYTES] = fresh

    def safepoint(self) -> None:
        self.safepoints += 1
        ftrma.safepoint()

    def catch_up(self) -> None:
        """Wait until the newest checkpoint is committed and folded into the parity."""
        began = time.monotonic()
        while ftrma.stats()["version"] < self.safepoints:
            if time.monotonic() - began > CATCH_UP_LIMIT_S:
                sys.exit(f"checkpoint_app: checkpoint {self.safepoints} is not committed in time")
            time.sleep(0.002)
        # Folding comes after the commit and touches no more memory than the steps before it.
        self.summing_s = max(self.summing_s, time.monotonic() - began)
        time.sleep(0.02 + 2 * self.summing_s)

    # -- references ---------------------------------------------------------------------------

    def compare(self, copy: Bytes) -> None:
        if libc.memcmp(self.bytes.ctypes.data, copy.ctypes.data, self.size_bytes):
            sys.exit("checkpoint_app: the copy differs from the window")

    def write(self, name: str, sync: bool = False) -> None:
        file, done, view = self.files[name], 0, self.bytes.data
        while done < self.size_bytes:
            done += os.pwrite(file, view[done:], done)
        if sync:
            os.fsync(file)

    def free(self) -> None:
        self.comm.Barrier()
        for file in self.files.values():
            os.close(file)
        del self.bytes
        self.window.Free()


# ---- memory ---------------------------------------------------------------------------------


def memory(job: Path, slots: int) -> dict[str, Any]:
    """Shared memory taken in the job's directory, in bytes, from the files themselves.

    Slots are the first processes of a job and the checksum ranks come next, while nobody has died.
    """
    windows = sum(taken(path) for path in job.glob("window-*"))  # each holds all parts
    vaults = {int(path.name.partition("-")[2]): path for path in job.glob("vault-*")}
    names = {True: ("copy", "stage"), False: ("parity", "sum")}
    found: dict[str, Any] = {"windows": windows, "slots": [], "checksum_ranks": []}
    for process, path in sorted(vaults.items()):
        is_slot = process < slots
        first, second = names[is_slot]
        large = two_largest(path)
        entry = {"total": taken(path), first: large[0], second: large[1]}
        entry["lists"] = entry["total"] - sum(large)
        found["slots" if is_slot else "checksum_ranks"].append(entry)
    return found


def taken(path: Path) -> int:
    return path.stat().st_blocks * 512


def two_largest(path: Path) -> list[int]:
    """Sizes of the two largest stretches of a sparse file that hold data, in the file's order.

    In a vault these are the copy and the stage; everything else is lists of a few bytes a block.
    """
    stretches: list[tuple[int, int]] = []
    with path.open("rb") as file:
        at, end = 0, os.fstat(file.fileno()).st_size
        while at < end:
            try:
                first = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break  # nothing but a hole is left
            at = os.lseek(file.fileno(), first, os.SEEK_HOLE)
            stretches.append((first, at - first))
    largest = sorted(stretches, key=lambda s: s[1])[-2:]
    return [size for _, size in sorted(largest)]


if __name__ == "__main__":
    main()
