"""Runs a program in a job, says that it has begun, and notes what each checkpoint protects.

    twin.py DIRECTORY yes|no APP [ARGUMENT...]

Each process that enters the program makes a file ``begun`` in DIRECTORY. If checkpoints are to be
compared, a slot writes the step and a checksum of its windows and declared state into DIRECTORY
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
from collections.abc import Sequence
from typing import Any

TIMES = re.compile(r"_s$|^(began|seconds)_each$")  # fields with times of the clock


def checksum_of(regions: Sequence[Any], record: dict[str, Any]) -> int:
    """CRC of all bytes that a checkpoint protects, and of the pickled fields, but for times."""
    found = 0
    for region in regions:
        if region.key[0] == "state" and TIMES.search(region.key[-1]):
            continue
        memory = (ctypes.c_char * region.size_bytes).from_address(region.address)
        found = zlib.crc32(memory, zlib.crc32(repr(region.key).encode(), found))
    for name, state in sorted(record["states"].items()):
        # Pickles of equal values can differ where parts of a value are one object.
        fields = sorted(pickle.loads(state["rest"]).items())
        text = repr((name, [(field, pickle.dumps(value)) for field, value in fields
                            if not TIMES.search(field)]))
        found = zlib.crc32(text.encode(), found)
    return found


def watch(directory: str) -> None:
    """Have each checkpoint of this process noted."""
    from ftrma import MPI
    from ftrma.protocol import coordinated

    take, slot = coordinated.take_checkpoint, MPI.COMM_WORLD.rank

    def noting(view: Any, vault: Any, regions: Any, record: dict[str, Any], *rest: Any) -> Any:
        with open(f"{directory}/twin-{slot}-{os.getpid()}.txt", "a") as file:
            file.write(f"{record['step']} {checksum_of(regions, record):08x}\n")
        return take(view, vault, regions, record, *rest)

    coordinated.take_checkpoint = noting


if __name__ == "__main__":
    where, compared, app, *words = sys.argv[1:]
    open(f"{where}/begun", "w").close()
    if compared == "yes":
        watch(where)
    sys.path.insert(0, os.path.dirname(app))
    sys.argv = [app, *words]
    runpy.run_path(app, run_name="__main__")
