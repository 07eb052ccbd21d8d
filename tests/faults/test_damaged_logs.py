"""A bit of a log changes, and then a slot dies whose replay would read the log.

Law: the job ends with the bits of the run without failure: if the log cannot be read any more, the
slot is not replayed, which is told, and all go back; nobody reads for ever or outside of the log.
So it is with a bit of what was put or got, of the order of puts, and of the counter of results that
repeat, which has no checksum.
"""

from __future__ import annotations

import pytest
from jobs import Result, run_job
from programs import kinds
from tiers import tiers

SLOTS, STEPS = 3, 12
VICTIM = 1
# Arguments: the slot whose log changes; the log, 0: puts, 1: results; the field of its first
# record, or of the last one that counts results that repeat (last, times); the field's new value,
# or as a negative number the bits of it that change.
PROGRAM = f"""
import os, signal, struct, sys
import numpy as np
import ftrma
from ftrma import MPI
comm, home = MPI.COMM_WORLD, sys.argv[1]
owner, which, field, value = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(8 * 64, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
state = ftrma.protect("s", step=0, seen=0)
comm.Barrier()

def change():
    # The layout of struct ftrma_log, ftrma_chunk and ftrma_record.
    with open(f"{{os.environ['FTRMA_JOB']}}/log-{{owner}}", "r+b") as f:
        chunk_bytes, nchunks, _, _, *head = struct.unpack("6I", f.read(40)[16:])
        chunk = head[which] - 1
        data = os.fstat(f.fileno()).st_size - (nchunks - chunk) * chunk_bytes
        places = dict(sum=data, kind=data + 4, bytes=data + 8, at=data + 24, event=data + 32,
                      clock=data + 40, seq=data + 48, payload=data + 72, next=40 + 8 * chunk,
                      fill=44 + 8 * chunk)
        place, form = places.get(field), {{"kind": "B", "at": "Q"}}.get(field, "I")
        if field in ("last", "times"):
            f.seek(0)
            log, record, repeats = f.read(), data, []
            while record < data + chunk_bytes and log[record + 4]:
                if log[record + 4] == 5:
                    repeats.append(record)
                record += 72 + (struct.unpack_from("I", log, record + 8)[0] + 7 & ~7)
            place = repeats[-1] + (40 if field == "last" else 48)
        f.seek(place)
        old = struct.unpack(form, f.read(struct.calcsize(form)))[0]
        f.seek(place)
        f.write(struct.pack(form, value if value >= 0 else old ^ -value))

while state.step < {STEPS}:
    ftrma.safepoint()
    win.Fence()
    got, old = np.zeros(1, "i8"), np.zeros(1, "i8")
    win.Put(np.array([state.step * 10 + me]), (me + 1) % n, (state.step % 8, 1, MPI.INT64_T))
    win.Get(got, (me + 2) % n, (8, 1, MPI.INT64_T))
    win.Fence()
    for _ in range(20):  # who asks again and again gets the same answer
        win.Get(np.zeros(1, "i8"), (me + 1) % n, (63, 1, MPI.INT64_T))
    win.Lock(0, MPI.LOCK_SHARED)
    win.Fetch_and_op(np.array([1 + me]), old, 0, 9 + me, op=MPI.SUM)
    win.Unlock(0)
    state.seen = state.seen * 31 % 1000003 + int(got[0] + old[0]) + comm.allreduce(state.step)
    cells[8] = state.seen
    comm.Barrier()
    if state.step == 8:
        once = os.path.exists(f"{{home}}/once-{{me}}.txt")
        open(f"{{home}}/once-{{me}}.txt", "w").close()
        if me == owner and not once:
            change()
        comm.Barrier()
        if me == {VICTIM} and not once:
            os.kill(os.getpid(), signal.SIGKILL)
    state.step += 1
comm.Barrier()
np.savez(f"{{home}}/slot-{{me}}.npz", cells=cells, seen=state.seen)
"""
LOST = "a log from which it would be replayed is damaged"
CASES = [
    (0, "0", "sum", "-1"), (0, "0", "bytes", "0"), (0, "0", "bytes", "4294967295"),
    (0, "0", "payload", "-1024"), (0, "0", "event", "-1"), (0, "0", "clock", "-4"),
    (0, "0", "seq", "-64"), (0, "0", "kind", "-4"), (VICTIM, "1", "payload", "-8"),
    (0, "0", "kind", "77"), (0, "0", "at", str(1 << 62)), (0, "0", "next", "1000000"),
    (0, "0", "fill", "4294967288"), (VICTIM, "1", "sum", "-8"), (VICTIM, "1", "kind", "0"),
    (VICTIM, "1", "next", "1"),
]


def run(*args: str) -> Result:
    # Checkpoints would free the logs.
    return run_job(PROGRAM, SLOTS, "--interval", "never", "--log-budget", "256K", args=args,
                   timeout=60)


@pytest.fixture(scope="module")
def expected() -> Result:
    """A run in which nothing changes, and which replays."""
    result = run("-1", "0", "sum", "0")
    assert result.status == 0 and kinds(result) == ["causal"], result
    return result


@pytest.mark.parametrize(("owner", "which", "field", "value"), tiers(
    CASES, full=["1-1-sum--8", "0-0-clock--4"]))
def test_nobody_reads_on(owner: int, which: str, field: str, value: str, expected: Result) -> None:
    """Law of this file."""
    result = run(str(owner), which, field, value)
    assert result.status == 0, result
    assert kinds(result) == ["rollback"], result
    assert LOST in result.stats["recoveries"][0]["reason"], result
    for slot in range(SLOTS):
        for name, right in expected.results[f"slot-{slot}"].items():
            assert result.results[f"slot-{slot}"][name].tobytes() == right.tobytes(), (slot, name)


@pytest.mark.parametrize(("field", "value"), tiers(
    [("times", "-1"), ("times", "-64"), ("last", "-1"), ("last", "-1073741824")],
    full=["times--1"]))
def test_a_counter_of_repeated_results(field: str, value: str, expected: Result) -> None:
    """Law of this file; a replay that asks for no more and no fewer results is right."""
    result = run(str(VICTIM), "1", field, value)
    assert result.status == 0, result
    assert kinds(result) == ["rollback"] or (kinds(result), field) == (["causal"], "last"), result
    for slot in range(SLOTS):
        for name, right in expected.results[f"slot-{slot}"].items():
            assert result.results[f"slot-{slot}"][name].tobytes() == right.tobytes(), (slot, name)
