"""Erroneous, and legal but odd calls on windows: what each says, by its label.

Runs under plain mpirun as well as protected. Each case has windows of its own, so that what one
leaves behind does not matter to the next; those that are left are never freed.

    calls_table.py RESULTS [LABEL ...]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
right = (me + 1) % n
NAMES = {v: k for k, v in vars(MPI).items() if k.startswith("ERR_") and isinstance(v, int)}
D, INT, BYTE = MPI.DOUBLE, MPI.INT, MPI.BYTE
ROOM = 12  # doubles of a part
WANTED = sys.argv[2:]  # all, if none is named
Case = Callable[[MPI.Win], object]


def numbers(count: int) -> np.ndarray:
    return np.sqrt(100.0 * (me + 1) + np.arange(count))


def pair() -> MPI.Datatype:
    """Every other of two elements: 16 of 24 bytes."""
    return D.Create_vector(2, 1, 2).Commit()


def mixed() -> MPI.Datatype:
    """A double and, in front of it, an int: 12 of 24 bytes."""
    return MPI.Datatype.Create_struct([1, 1], [16, 0], [D, INT]).Commit()


def user(a: memoryview, b: memoryview, type: MPI.Datatype) -> None:
    pass


own_op = MPI.Op.Create(user, commute=True)

# ---- sizes that differ: within Lock_all -----------------------------------------------------


def get(count: int, target: object, type: MPI.Datatype = D) -> Case:
    def call(win: MPI.Win) -> list[float]:
        origin = np.zeros(8)
        win.Get([origin, count, type], right, target)
        win.Flush(right)
        return origin.tolist()

    return call


def put(count: int, target: object, type: MPI.Datatype = D) -> Case:
    def call(win: MPI.Win) -> None:
        win.Put([numbers(8), count, type], right, target)
        win.Flush(right)

    return call


def accumulate(count: int, target: object, op: MPI.Op = MPI.SUM, type: MPI.Datatype = D) -> Case:
    def call(win: MPI.Win) -> None:
        win.Accumulate([numbers(8), count, type], right, target, op)
        win.Flush(right)

    return call


def get_accumulate(count: int, room: int, target: object, op: MPI.Op = MPI.SUM,
                   type: MPI.Datatype = D) -> Case:
    def call(win: MPI.Win) -> list[float]:
        result = np.zeros(8)
        win.Get_accumulate([numbers(8), count, type], [result, room, D], right, target, op)
        win.Flush(right)
        return result.tolist()

    return call


def requests(win: MPI.Win) -> list[list[float]]:
    result, other = np.zeros(8), np.zeros(8)
    win.Rput([numbers(8), 1, D], right, [0, 3, D]).Wait()
    win.Flush(right)
    win.Raccumulate([numbers(8), 2, D], right, [0, 3, D]).Wait()
    win.Flush(right)
    win.Rget([result, 5, D], right, [0, 3, D]).Wait()
    win.Rget_accumulate([numbers(8), 1, D], [other, 4, D], right, [0, 2, D]).Wait()
    win.Flush(right)
    return [result.tolist(), other.tolist()]


LOCKED: dict[str, Case] = {
    "put fewer": put(1, [0, 3, D]),
    "put fewer bytes": put(4, [1, 3, D], BYTE),
    "put fewer into holes": put(2, [0, 4, pair()]),
    "put half an element": put(3, [0, 2, pair()]),
    "put a part of a mixed element": put(8, [0, 3, mixed()], BYTE),
    "put from holes": put(1, [0, 5, D], pair()),
    "put nothing": put(0, [0, 3, D]),
    "put into the whole part and more": put(1, [ROOM - 1, 3, D]),
    "put more": put(3, [0, 2, D]),
    "put more into holes": put(3, [0, 1, pair()]),
    "put into nothing": put(1, [0, 0, D]),
    "get fewer": get(4, [0, 2, D]),
    "get fewer from holes": get(8, [0, 2, pair()]),
    "get fewer into holes": get(2, [0, 3, D], pair()),
    "get nothing": get(3, [0, 0, D]),
    "get more": get(2, [0, 3, D]),
    "get more from holes": get(3, [0, 2, pair()]),
    "accumulate fewer": accumulate(2, [0, 4, D]),
    "accumulate fewer into holes": accumulate(3, [0, 4, pair()]),
    "accumulate from holes": accumulate(1, [0, 5, D], MPI.SUM, pair()),
    "replace fewer into holes": accumulate(3, [0, 4, pair()], MPI.REPLACE),
    "accumulate more": accumulate(4, [0, 2, D]),
    "accumulate more into holes": accumulate(5, [0, 2, pair()]),
    "get_accumulate": get_accumulate(2, 2, [0, 2, D]),
    "get_accumulate fewer": get_accumulate(1, 4, [0, 3, D]),
    "get_accumulate fewer into holes": get_accumulate(1, 5, [0, 2, pair()]),
    "get_accumulate more": get_accumulate(3, 4, [0, 2, D]),
    "get_accumulate small result": get_accumulate(2, 1, [0, 2, D]),
    "get_accumulate nothing": get_accumulate(3, 3, [0, 3, D], MPI.NO_OP),
    "requests": requests,
    # Values that are none.
    "disp": put(1, [-1, 1, D]),
    "disp get": get(1, [-1, 1, D]),
    "disp accumulate": accumulate(1, [-1, 1, D]),
    "disp fetch": lambda win: win.Fetch_and_op(np.ones(1), np.ones(1), right, -1),
    "disp swap": lambda win: win.Compare_and_swap(*np.ones((3, 1), int), right, -1),
    "count": put(1, [0, -1, D]),
    "type": put(1, [0, 1, MPI.DATATYPE_NULL]),
    "type not committed": lambda win: win.Put([numbers(8), 1, D.Create_vector(2, 1, 2)], right),
    "rank": lambda win: win.Put(numbers(1), n),
    "rank below": lambda win: win.Get(numbers(1), -7),
    "nobody": lambda win: win.Put(numbers(1), MPI.PROC_NULL),
    "nobody and disp": lambda win: win.Put(numbers(1), MPI.PROC_NULL, -1),
    "op of the program": accumulate(1, [0, 1, D], own_op),
    "op of the program, get": get_accumulate(1, 1, [0, 1, D], own_op),
    "op of the program, fetch": lambda win: win.Fetch_and_op(
        np.ones(1), np.ones(1), right, 0, own_op
    ),
    "op null": accumulate(1, [0, 1, D], MPI.OP_NULL),
    "op null, fetch": lambda win: win.Fetch_and_op(np.ones(1), np.ones(1), right, 0, MPI.OP_NULL),
    "op of integers": accumulate(1, [0, 1, D], MPI.BAND),
    "op of pairs": accumulate(1, [0, 1, D], MPI.MAXLOC),
    "op none": accumulate(1, [0, 1, D], MPI.NO_OP),
    "op for a mixed type": lambda win: win.Accumulate(
        [numbers(8), 1, mixed()], right, [0, 1, mixed()]
    ),
    "replace a mixed type": lambda win: win.Accumulate(
        [numbers(8), 1, mixed()], right, [0, 1, mixed()], MPI.REPLACE
    ),
    "swap of doubles": lambda win: win.Compare_and_swap(*np.ones((3, 1)), right),
    "swap of bytes": lambda win: win.Compare_and_swap(*np.ones((3, 1), np.int8), right),
    "swap of a layout": lambda win: win.Compare_and_swap(*[[numbers(8), 1, pair()]] * 3, right),
    # Locks.
    "lock after lock_all": lambda win: win.Lock(right),
    "lock_all twice": lambda win: win.Lock_all(),
    "unlock after lock_all": lambda win: win.Unlock(right),
    "flush": lambda win: win.Flush(right),
    "flush rank": lambda win: win.Flush(n + 7),
    "flush nobody": lambda win: win.Flush(MPI.PROC_NULL),
    "flush_local": lambda win: win.Flush_local(right),
    "flush_all": lambda win: win.Flush_all(),
    "fence in lock_all": lambda win: win.Fence(),
    "start in lock_all": lambda win: win.Start(MPI.GROUP_EMPTY),
}

# ---- outside of an epoch --------------------------------------------------------------------


def in_lock_of(rank: int, call: Callable[[MPI.Win], object]) -> Callable[[MPI.Win], None]:
    def run(win: MPI.Win) -> None:
        win.Lock(rank)
        try:
            call(win)
        finally:
            win.Unlock(rank)

    return run


def of(*ranks: int) -> MPI.Group:
    return comm.Get_group().Incl(ranks)


def post(win: MPI.Win) -> None:
    """One exposure and one access epoch, towards the right."""
    win.Post(of((me - 1) % n))
    win.Start(of(right))


def start_twice(win: MPI.Win) -> None:
    post(win)
    win.Start(of(right))


def post_twice(win: MPI.Win) -> None:
    win.Post(of((me - 1) % n))
    win.Post(of((me - 1) % n))


def test_done(win: MPI.Win) -> bool:
    post(win)
    win.Complete()
    comm.Barrier()
    return win.Test()


def test_again(win: MPI.Win) -> bool:
    return test_done(win) and win.Test()


def complete_again(win: MPI.Win) -> None:
    post(win)
    win.Complete()
    win.Wait()
    win.Complete()


def wait_again(win: MPI.Win) -> None:
    post(win)
    win.Complete()
    win.Wait()
    win.Wait()


def fence_in_start(win: MPI.Win) -> None:
    post(win)
    win.Fence()


def lock_in_start(win: MPI.Win) -> None:
    post(win)
    win.Lock(right)


def lock_in_fence(win: MPI.Win) -> None:
    win.Fence()
    win.Lock(right)


def lock_all_in_fence(win: MPI.Win) -> None:
    win.Fence()
    win.Lock_all()


def start_in_fence(win: MPI.Win) -> None:
    win.Fence()
    post(win)


def flush_in_fence(win: MPI.Win) -> None:
    win.Fence()
    win.Flush(right)


def flush_all_in_fence(win: MPI.Win) -> None:
    win.Fence()
    win.Flush_all()


def flush_in_start(win: MPI.Win) -> None:
    post(win)
    win.Flush(right)


def put_not_started(win: MPI.Win) -> None:
    win.Post(of((me - 1) % n))
    win.Start(of(right))
    win.Put(numbers(1), me)


def put_after_last_fence(win: MPI.Win) -> None:
    win.Fence()
    win.Fence(MPI.MODE_NOSUCCEED)
    win.Put(numbers(1), right)


def request_in_fence(win: MPI.Win) -> None:
    win.Fence()
    win.Rput(numbers(1), right).Wait()


def get_name(win: MPI.Win) -> str:
    return win.Get_name()


def name_again(win: MPI.Win) -> str:
    win.Set_name("a window")
    return win.name


def attributes(win: MPI.Win) -> list[object]:
    keys = (MPI.WIN_SIZE, MPI.WIN_DISP_UNIT, MPI.WIN_CREATE_FLAVOR, MPI.WIN_MODEL)
    return [win.Get_attr(key) for key in keys]


def group(win: MPI.Win) -> int:
    return MPI.Group.Compare(win.Get_group(), comm.Get_group())


FREE: dict[str, Case] = {
    "put outside": lambda win: win.Put(numbers(1), right),
    "get outside": lambda win: win.Get(numbers(1), right),
    "accumulate outside": lambda win: win.Accumulate(numbers(1), right),
    "put outside to nobody": lambda win: win.Put(numbers(1), MPI.PROC_NULL),
    "put elsewhere": in_lock_of(me, lambda win: win.Put(numbers(1), right)),
    "put not started": put_not_started,
    "put after the last fence": put_after_last_fence,
    "request in a fence epoch": request_in_fence,
    "unlock": lambda win: win.Unlock(right),
    "unlock rank": lambda win: win.Unlock(n + 7),
    "unlock_all": lambda win: win.Unlock_all(),
    "flush unlocked": lambda win: win.Flush(right),
    "flush_local unlocked": lambda win: win.Flush_local(right),
    "flush_all unlocked": lambda win: win.Flush_all(),
    "flush_local_all unlocked": lambda win: win.Flush_local_all(),
    "flush another": in_lock_of(right, lambda win: win.Flush(me)),
    "flush in a fence epoch": flush_in_fence,
    "flush_all in a fence epoch": flush_all_in_fence,
    "flush after Start": flush_in_start,
    "sync outside": lambda win: win.Sync(),
    "lock twice": in_lock_of(me, lambda win: win.Lock(me)),
    "lock_all after lock": in_lock_of(me, lambda win: win.Lock_all()),
    "lock rank": lambda win: win.Lock(-5),
    "lock rank n": lambda win: win.Lock(n),
    "lock nobody": lambda win: win.Lock(MPI.PROC_NULL),
    "unlock nobody": lambda win: win.Unlock(MPI.PROC_NULL),
    "lock type": lambda win: win.Lock(right, 77),
    "lock assert": lambda win: win.Lock(right, MPI.LOCK_SHARED, MPI.MODE_NOPUT),
    "lock_all assert": lambda win: win.Lock_all(MPI.MODE_NOPUT),
    "fence assert": lambda win: win.Fence(MPI.MODE_NOCHECK),
    "post assert": lambda win: win.Post(MPI.GROUP_EMPTY, MPI.MODE_NOSUCCEED),
    "start assert": lambda win: win.Start(MPI.GROUP_EMPTY, MPI.MODE_NOSUCCEED),
    "complete": lambda win: win.Complete(),
    "complete again": complete_again,
    "wait": lambda win: win.Wait(),
    "wait again": wait_again,
    "test": lambda win: win.Test(),
    "test done": test_done,
    "test again": test_again,
    "start twice": start_twice,
    "post twice": post_twice,
    "post null": lambda win: win.Post(MPI.GROUP_NULL),
    "start null": lambda win: win.Start(MPI.GROUP_NULL),
    "start of nobody": lambda win: (win.Start(MPI.GROUP_EMPTY), win.Complete())[0],
    "post for nobody": lambda win: (win.Post(MPI.GROUP_EMPTY), win.Wait())[0],
    "fence after Start": fence_in_start,
    "lock after Start": lock_in_start,
    "lock in a fence epoch": lock_in_fence,
    "lock_all in a fence epoch": lock_all_in_fence,
    "start in a fence epoch": start_in_fence,
    "name": get_name,
    "name again": name_again,
    "attributes": attributes,
    "group": group,
    "shared_query": lambda win: win.Shared_query(me)[1],
}

# ---- without a window -----------------------------------------------------------------------

SELF = MPI.COMM_SELF
ALONE: dict[str, Callable[[], object]] = {
    "create unit 0": lambda: MPI.Win.Create(np.zeros(1), 0, comm=comm),
    "create unit -1": lambda: MPI.Win.Create(np.zeros(1), -1, comm=comm),
    "allocate unit 0": lambda: MPI.Win.Allocate(8, 0, comm=comm),
    "allocate unit -1": lambda: MPI.Win.Allocate(8, -1, comm=comm),
    "allocate size": lambda: MPI.Win.Allocate(-8, comm=comm),
    "allocate none": lambda: MPI.Win.Allocate(0, comm=comm).Free(),
    "create none": lambda: MPI.Win.Create(None, comm=comm).Free(),
    "allocate nowhere": lambda: MPI.Win.Allocate(8, comm=MPI.Intracomm()),
    "create nowhere": lambda: MPI.Win.Create(None, comm=MPI.Intracomm()),
    "name of Create": lambda: MPI.Win.Create(None, comm=SELF).Get_name()[:11],
    "null put": lambda: MPI.WIN_NULL.Put(np.ones(1), 0),
    "null get": lambda: MPI.WIN_NULL.Get(np.ones(1), 0),
    "null fence": lambda: MPI.WIN_NULL.Fence(),
    "null lock": lambda: MPI.WIN_NULL.Lock(0),
    "null flush": lambda: MPI.WIN_NULL.Flush(0),
    "null free": lambda: MPI.Win(MPI.WIN_NULL).Free(),
    "null complete": lambda: MPI.WIN_NULL.Complete(),
    "null test": lambda: MPI.WIN_NULL.Test(),
    "null name": lambda: MPI.WIN_NULL.Get_name(),
    "null group": lambda: MPI.WIN_NULL.Get_group(),
    "initialized": lambda: [MPI.Is_initialized(), MPI.Is_finalized()],
    "thread": lambda: [MPI.Query_thread(), MPI.Is_thread_main()],
}

noted: dict[str, list[object]] = {}


def note(label: str, call: Callable[[], object]) -> None:
    try:
        noted[label] = ["none", call()]
    except MPI.Exception as error:
        noted[label] = [NAMES[error.Get_error_class()], None]


def make(kind: str) -> tuple[np.ndarray, MPI.Win]:
    memory = np.zeros(ROOM)
    if kind == "Create":
        win = MPI.Win.Create(memory, 8, comm=comm)
    else:
        win = MPI.Win.Allocate(8 * ROOM, 8, comm=comm)
        memory = np.frombuffer(win.tomemory())
    memory[:] = 10.0 * (me + 1) + np.arange(ROOM) / 8
    comm.Barrier()
    return memory, win


def wanted(label: str) -> bool:
    return not WANTED or label in WANTED


def cases(kind: str, table: dict[str, Case]) -> Iterator[tuple[str, Case, np.ndarray, MPI.Win]]:
    for name, call in table.items():
        if wanted(f"{kind} {name}"):
            yield f"{kind} {name}", call, *make(kind)


for kind in ("Allocate", "Create"):
    for label, call, memory, win in cases(kind, LOCKED):
        win.Lock_all()
        note(label, lambda call=call, win=win: call(win))
        comm.Barrier()
        noted[label].append(memory.tolist())
    for label, call, _, win in cases(kind, FREE):
        note(label, lambda call=call, win=win: call(win))
        comm.Barrier()
for label, call in ALONE.items():
    if wanted(label):
        note(label, call)
        comm.Barrier()
(Path(sys.argv[1]) / f"noted-{me}.json").write_text(json.dumps(noted))
comm.Barrier()
sys.stdout.flush()
os._exit(0)  # the library may not get over its end after some of this
