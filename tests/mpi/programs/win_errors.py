"""Mistakes in the use of windows; each is caught, noted, and the program goes on."""

import json
from collections.abc import Callable

import numpy as np
from common import MPI, RESULTS, comm, make, me, n

noted: dict[str, list] = {}


def note(label: str, call: Callable[[], object]) -> None:
    """Note the class and text of the error that a call raises."""
    try:
        call()
    except MPI.Exception as error:
        names = {v: k for k, v in vars(MPI).items() if k.startswith("ERR_")}
        noted[label] = [names[error.Get_error_class()], error.Get_error_string()]
    else:
        noted[label] = ["none", ""]


def mistakes(kind: str) -> None:
    memory, win = make(kind, 10 + me)
    right = (me + 1) % n
    room = 10 + right
    one, two = np.ones(1), np.ones(2)
    vector = MPI.DOUBLE.Create_vector(3, 1, 6).Commit()
    backward = MPI.DOUBLE.Create_vector(2, 1, -3).Commit()
    note(f"{kind} outside", lambda: win.Put(one, right))
    note(f"{kind} unlock", lambda: win.Unlock(right))
    note(f"{kind} unlock all", lambda: win.Unlock_all())
    note(f"{kind} flush", lambda: win.Flush(right))
    win.Lock_all()
    note(f"{kind} range put", lambda: win.Put(two, right, room - 1))
    note(f"{kind} range get", lambda: win.Get(one.copy(), right, room + 5))
    note(f"{kind} range accumulate", lambda: win.Accumulate(two, right, room - 1))
    note(f"{kind} range fetch", lambda: win.Fetch_and_op(one, one.copy(), right, room))
    note(f"{kind} range request", lambda: win.Rput(two, right, room - 1))
    note(f"{kind} range vector", lambda: win.Put(np.ones(3), right, [0, 1, vector]))
    note(f"{kind} range backward", lambda: win.Put(two, right, [2, 1, backward]))
    # Times the unit of 8 bytes this is 2**64, which wraps around to the part's first byte.
    note(f"{kind} range wrapped", lambda: win.Put(two, right, 2**61))
    note(f"{kind} range negative", lambda: win.Put(one, right, -1))
    note(f"{kind} rank", lambda: win.Put(one, n))
    note(f"{kind} rank flush", lambda: win.Flush(n + 7))
    note(f"{kind} sizes", lambda: win.Put([two, 2, MPI.DOUBLE], right, [0, 1, MPI.DOUBLE]))
    note(f"{kind} sizes result", lambda: win.Get_accumulate(two, one.copy(), right))
    note(f"{kind} locked", lambda: win.Lock(right))
    win.Unlock_all()
    note(f"{kind} rank lock", lambda: win.Lock(-5))
    group = comm.Get_group()
    half = comm.Split(me)
    _, small = make(kind, 4, on=half)
    note(f"{kind} group", lambda: small.Start(group))
    note(f"{kind} group again", lambda: small.Start(MPI.GROUP_EMPTY))
    small.Complete()
    small.Free()
    half.Free()
    win.Fence()
    win.Put(np.full(10, 3.0 + me), right)
    win.Fence()
    noted[f"{kind} memory"] = memory.tolist()
    win.Free()


for kind in ("Allocate", "Create"):
    mistakes(kind)
note("size", lambda: MPI.Win.Allocate(-8, comm=comm))
note("unit", lambda: MPI.Win.Allocate(8, 0, comm=comm))
comm.Barrier()
(RESULTS / f"noted-{me}.json").write_text(json.dumps(noted))
