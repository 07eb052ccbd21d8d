"""Accesses from several threads: they have no order that a replay could follow."""

import sys
import threading

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
me, n = comm.Get_rank(), comm.Get_size()
window = MPI.Win.Allocate(8 * 4, 8, comm=comm)
memory = np.frombuffer(window.tomemory(), np.int64)
memory[:] = 0
comm.Barrier()
window.Lock_all()


def count(word: int) -> None:
    one, old = np.ones(1, np.int64), np.zeros(1, np.int64)
    for _ in range(500):
        window.Fetch_and_op(one, old, (me + 1) % n, word)
        window.Flush((me + 1) % n)


threads = [threading.Thread(target=count, args=(word,)) for word in range(3)]
for thread in threads:
    thread.start()
count(3)
for thread in threads:
    thread.join()
window.Unlock_all()
comm.Barrier()
np.savez(f"{sys.argv[1]}/slot-{me}.npz", memory=memory)
