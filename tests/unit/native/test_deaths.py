"""Processes that are told of a death: `ftrma_note_death` in ``csrc/job/alarm.c``.

Law, on one node: a checksum rank's place is taken by a spare while the slots go on, and so is each
of several; as soon as fewer spares live than places are vacant all are called to a repair, whoever
died last. A slot's death calls always.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ftrma.native import job, loading
from ftrma.native.shared import Proc

SLOTS, CHECKSUMS = 2, 2
SPARES = {"s0": 4, "s1": 5}
PROCS = {"0": 0, "1": 1, "c0": 2, "c1": 3, **SPARES}


def is_called(directory: Path, deaths: tuple[str, ...], spares: int) -> bool:
    """In a process of its own: whether the alarm rings when these have been noticed."""
    processes = SLOTS + CHECKSUMS + spares
    ctl = job.make_control(directory / "control", processes, SLOTS, 1, CHECKSUMS, SLOTS, 16)
    ctl.nodes = 1
    for proc in range(processes):
        ctl.proc[proc].state = job.ProcessState.ALIVE
    job.join(ctl, Proc(0), directory)
    for name in deaths:
        job.note_death(PROCS[name])
    return bool(ctl.alarm)


def test_who_cannot_watch_says_so(tmp_path: Path) -> None:
    """Law: where processes cannot be watched the job does not begin, and is told why; nobody is
    taken for dead."""
    code = """
import resource, sys
from pathlib import Path
from ftrma.host.errors import FtrmaError
from ftrma.native import job, loading
loading.load()
ctl = job.make_control(Path(sys.argv[1]) / "control", 4, 2, 1, 1, 2, 16)
ctl.nodes = 1
for proc in range(4):
    ctl.proc[proc].state, ctl.proc[proc].pid = job.ProcessState.ALIVE, (0, 1, 1, 2**22 + 1)[proc]
job.join(ctl, 0, Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
try:
    job.watch()
except FtrmaError as error:
    print(error)
print(ctl.alarm)
"""
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True,
                           text=True, timeout=30, check=False)
    told, alarm = found.stdout.splitlines()
    assert "by pidfd_open (Linux 5.3): Too many open files" in told and alarm == "0", found


@pytest.mark.parametrize(("spares", "deaths"), [
    pytest.param(spares, deaths, marks=[pytest.mark.full] * (n == 3))
    for spares in range(3) for n in (1, 2, 3)
    for deaths in itertools.permutations(("1", "c0", "c1", *list(SPARES)[:spares]), n)])
def test_all_are_called_when_a_place_stays_vacant(
    tmp_path: Path, spares: int, deaths: tuple[str, ...]
) -> None:
    loading.load()  # once, and not in each child
    living = spares - sum(name in SPARES for name in deaths)
    vacant = sum(name.startswith("c") for name in deaths)
    child = os.fork()
    if not child:
        os._exit(2 if is_called(tmp_path, deaths, spares) else 3)
    _, status = os.waitpid(child, 0)
    called = {2: True, 3: False}[os.waitstatus_to_exitcode(status)]
    assert called == ("1" in deaths or vacant > living)
