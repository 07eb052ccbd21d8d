"""Runs a program in a job, says that it has begun, and notes what each checkpoint protects.

    twin.py DIRECTORY yes|no APP [ARGUMENT...]

Each process that enters the program makes a file ``begun`` in DIRECTORY. If checkpoints are to be
compared, a slot writes the step and checksums of its windows and declared state into DIRECTORY
before it stages them, at each coordinated checkpoint. A job with deaths must have the checksums of
a job without any (`tests/campaign/judge.py`). Nothing of this is in what ships.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import runpy
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any

TIMES = re.compile(r"_s$|\.(began|seconds)_each$")  # fields with times of the clock


def checksums_of(regions: Sequence[Any], record: dict[str, Any]) -> dict[str, int]:
    """Return the CRC of each window and of each declared field that holds no time."""
    found = {}
    for region in regions:
        memory = (ctypes.c_char * region.size_bytes).from_address(region.address)
        found[".".join(map(str, region.key))] = zlib.crc32(memory)
    for name, state in record["states"].items():
        # Pickles of equal values can differ where parts of a value are one object.
        for field, value in pickle.loads(state["rest"]).items():
            found[f"state.{name}.{field}"] = zlib.crc32(pickle.dumps(value))
    return {name: crc for name, crc in found.items() if not TIMES.search(name)}


def step_of(record: dict[str, Any]) -> str:
    """Return the program's own count of steps, if it declares one, or that of safepoints.

    A program that passes a safepoint at the bottom of its loop passes another number of them when
    it is entered again.
    """
    for state in record["states"].values():
        fields = pickle.loads(state["rest"])
        if "step" in fields:
            return "-".join(str(fields[name]) for name in ("repeat", "step") if name in fields)
    return str(record["step"])


def watch(directory: str) -> None:
    """Have each checkpoint of this process noted."""
    from ftrma import MPI
    from ftrma.protocol import coordinated

    take, slot = coordinated.take_checkpoint, MPI.COMM_WORLD.rank

    def noting(view: Any, vault: Any, regions: Any, record: dict[str, Any],
               begins: Callable[[Any], object] = lambda version: None) -> Any:
        def note(version: Any) -> None:  # not before: a repair may have had all give it up
            lines = [f"{step_of(record)} {name} {crc:08x}\n"
                     for name, crc in checksums_of(regions, record).items()]
            with open(f"{directory}/twin-{slot}-{os.getpid()}.txt", "a") as file:
                file.write("".join(lines))
            begins(version)

        return take(view, vault, regions, record, note)

    coordinated.take_checkpoint = noting


if __name__ == "__main__":
    where, compared, app, *words = sys.argv[1:]
    open(f"{where}/begun", "w").close()
    if compared == "yes":
        watch(where)
    sys.path.insert(0, os.path.dirname(app))
    sys.argv = [app, *words]
    runpy.run_path(app, run_name="__main__")
