"""Works in a directory of its own, finds files beside itself, and keeps state in the process."""

import logging
import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
here = Path(sys.argv[1]).parent / f"work-{me}"
here.mkdir(exist_ok=True)
os.chdir(here)
os.environ["DEPTH"] = str(int(os.environ.get("DEPTH", 0)) + 1)
logging.getLogger().addHandler(logging.FileHandler("log", mode="w"))
win = MPI.Win.Allocate(64 * 8, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
for step in range(600):
    os.makedirs(f"step-{step % 7}", exist_ok=True)
    os.chdir(f"step-{step % 7}")
    beside = Path(__file__).with_name("folders.py").stat().st_size
    win.Fence()
    win.Put(np.array([beside + step]), (me + 1) % n, step % 64)
    win.Fence()
    os.chdir("..")
    logging.warning("step %d", step)
logged = Path("log").read_text().splitlines()
facts = [int(os.environ["DEPTH"]), len(logged), Path.cwd() == here.resolve()]
os.chdir("/")
np.savez(f"{sys.argv[1]}/slot-{me}.npz", cells=cells, facts=np.array(facts))
