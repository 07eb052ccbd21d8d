"""Which instructions of ftrma's code the roles of a job execute, and how often.

A program is run without deaths, and with some at named places, so that it executes the code of
repairs. The result is kept in ``build/`` as long as the compiled code is as it was.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
from tree import ROOT

from . import code
from .programs import PROGRAMS, SLOTS, run

ROLES = ("spare", "slot", "checksum", "nobody")  # in the order of the numbers in shared.h
MOST = 3  # tests/c/trapkill.c counts no more for a process
AFTER = " after a death"  # behind the name of a role
DEATHS = ((), ("--kill", "1@fence:9", "--kill", "c0@fold:9"), ("--kill", "2@put:20"),
          ("--policy", "rollback", "--kill", "1@put:9", "--kill", "0@restore:1"))


def environment(library: str, file: Path, mode: str, trap: Path) -> dict[str, str]:
    """The variables that the processes of a job need for breakpoints.

    Args:
        library: `code.NATIVE` or `code.WIRE`.
        file: that ``tests/c/trapkill.c`` describes.
        mode: "kill", "hold" or "survey".
        trap: the compiled library that lets breakpoints stand.
    """
    return {"LD_PRELOAD": str(trap), "TRAP_LIBRARY": library, "TRAP_FILE": str(file),
            "TRAP_MODE": mode}


def _counts(program: str, library: str, directory: Path, trap: Path) -> np.ndarray:
    """Visits by role and place: in the run without deaths, and most in any run."""
    found = code.code_of(library)
    marks = np.zeros(found.size, "u1")
    marks[np.array(sorted(found.functions)) - found.begin] = 1
    empty = np.array([found.begin, found.size], "u8").tobytes() + marks.tobytes()
    counts = []
    for number, deaths in enumerate(DEATHS):
        file = directory / f"survey-{number}"
        file.write_bytes(empty + bytes(len(ROLES) * found.size))
        ways = PROGRAMS[program].ways
        options = ("--checksums", "2", "--group-size", str(SLOTS), "--spares", "3", *ways[0],
                   *deaths)
        env = environment(library, file, "survey", trap)
        result = run(program, 1, options, env, directory)
        assert result.status == 0, result
        counts.append(np.fromfile(file, "u1")[16 + found.size:].reshape(len(ROLES), found.size))
    return np.stack([counts[0], np.max(counts, axis=0)])


@functools.cache
def of(program: str, library: str, directory: Path, trap: Path) -> dict[str, dict[int, int]]:
    """Visits of each instruction, by role and the instruction's place in the library.

    An instruction to which nobody comes without a death before is in the role "ROLE after a death".

    Args:
        program: one of `PROGRAMS`.
        library: `code.NATIVE` or `code.WIRE`.
        directory: for files of the runs, which all nodes have in common.
        trap: the compiled library that lets breakpoints stand.
    """
    kept = ROOT / "build" / f"instructions-{program}-{code.digest(library)}.npy"
    if kept.exists():
        calm, most = np.load(kept)
    else:
        calm, most = counts = _counts(program, library, directory, trap)
        kept.parent.mkdir(exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}.npy")
        np.save(part, counts)
        part.replace(kept)
    begin = code.code_of(library).begin
    found = {}
    for role, before, after in zip(ROLES, calm, most, strict=True):
        found[role] = {begin + int(at): int(after[at]) for at in np.flatnonzero(before)}
        only = np.flatnonzero((before == 0) & (after > 0))
        found[role + AFTER] = {begin + int(at): int(after[at]) for at in only}
    return found
