"""Processes of mpi4py's pools square numbers for slot 0."""

import sys
import time
from concurrent.futures import wait

import numpy as np
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor, MPIPoolExecutor


def square(number: int) -> int:
    time.sleep(0.002)
    return number * number


def compute(executor: MPIPoolExecutor) -> None:
    jobs = [executor.submit(square, number) for number in range(100)]
    wait(jobs[:20])
    found = [job.result() for job in jobs]
    found += executor.map(square, range(100, 150), chunksize=4)
    np.savez(f"{sys.argv[1]}/slot-0.npz", found=found)


if __name__ == "__main__":
    if sys.argv[2] == "comm":
        with MPICommExecutor(MPI.COMM_WORLD) as executor:
            if executor is not None:
                compute(executor)
    else:
        with MPIPoolExecutor() as executor:
            compute(executor)
