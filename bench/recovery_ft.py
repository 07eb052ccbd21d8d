"""The program that `bench recovery` kills in the middle of NAS FT, once or often.

It runs FT some times; each run begins with a safepoint, and there is no other, so that a checkpoint
lies at the beginning of each run (with `--interval 0`) and work is lost or replayed from there.
Given slots kill themselves before given steps, once each. Every slot writes when each run began and
each step was done to a file in the given directory, beyond the reach of a recovery: the
times of steps that are replayed or done again follow those of the first time. The last line of
output is one JSON object with the checksums of all runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "apps"))

import ft
import npb

import ftrma
from ftrma import MPI


def main() -> None:
    options = parse()
    comm = MPI.COMM_WORLD
    slot = comm.Get_rank()
    problem = npb.PROBLEMS[options.problem_class]
    solver = ft.Solver(comm, problem)
    state = ftrma.protect(
        "recovery-ft", run=0, u0=solver.new_field(),
        sums=np.zeros((options.runs, options.iterations), dtype=np.complex128),
    )
    kills = [tuple(map(int, kill.split(":"))) for kill in options.kill]
    times = os.open(options.directory / f"times-{slot}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while state.run < options.runs:
        if state.run == 1 and not state.restored:
            time.sleep(options.settle_s)  # run 0 is the warm-up; spares import their modules
        ftrma.safepoint()
        if ftrma.stats():  # the checkpoint that the run is to go back to must be complete
            while ftrma.stats()["version"] <= state.run:
                time.sleep(0.0005)
        comm.Barrier()
        note(times, "began", state.run)
        for step in range(options.iterations + 1):
            if (slot, state.run, step) in kills:
                die_once(options.directory / f"killed-{slot}-{state.run}-{step}")
            if step == 0:
                solver.start(state.u0)
            else:
                state.sums[state.run, step - 1] = solver.iterate(state.u0)
            note(times, "done", state.run * (options.iterations + 1) + step)
        state.run += 1
    verified = all(npb.verify(problem, sums) is not False for sums in state.sums)
    if slot == 0:
        sums = [[(c.real, c.imag) for c in run] for run in state.sums.tolist()]
        print(json.dumps({"verified": verified, "sums": sums}), flush=True)
    os.close(times)
    solver.free()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class", dest="problem_class", default="W", choices=sorted(npb.PROBLEMS))
    parser.add_argument("--runs", type=int, default=2, help="of FT, with the warm-up")
    parser.add_argument("--iterations", type=int, default=6, help="in each run")
    parser.add_argument("--kill", nargs="*", default=[], metavar="SLOT:RUN:STEP", help="who where")
    parser.add_argument("--settle-s", type=float, default=0.0, help="wait so long after the first")
    parser.add_argument("--directory", type=Path, required=True, help="for times and marks")
    return parser.parse_args()


def note(times: int, what: str, number: int) -> None:
    os.write(times, f"{what} {number} {time.monotonic()!r}\n".encode())


def die_once(mark: Path) -> None:
    """Kill this process, unless it or another in its place has done so."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)


main()
