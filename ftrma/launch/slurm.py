"""Names the hosts of a Slurm allocation to the launcher, as a user would name hosts by ``--host``.

By itself the launcher starts its daemons on all nodes by one Slurm step. A lost node ends this
step, so it ends the launch, and later steps wait for the lost node in vain. With hosts that are
named, and a step for each daemon (`slurmstart`), a Slurm allocation is like other hosts: relays
keep a launch going, and the next launch leaves lost hosts out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from ..host import timeouts
from . import slurmstart
from .fewerhosts import shares
from .mpirun import HOSTS_FROM_OPTIONS, WHERE

JOB, NODES, STEP_TASKS = "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_STEP_NUM_TASKS"
# In a step the former is about the step, whose nodes may be fewer than the allocation's.
TASKS, CPUS = "SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"
# Options and variables of users who tell the launcher themselves how to use Slurm.
OWN = ("plm", "ras", "rsh")


def words_in_allocation(
    words: list[str], processes: int = 0, *, oversubscribe: bool = True
) -> list[str]:
    """Return the launcher's options for a job in the Slurm allocation that surrounds this process.

    Without an allocation, or if the options say how the launcher is to use it, they stay as they
    are. Hosts that the options name stay, too.

    Args:
        words: the launcher's options.
        processes: number of processes of the job.
        oversubscribe: whether hosts may have more processes than Slurm gives them tasks; then they
            take those beyond in proportion to their tasks.

    Raises:
        ValueError: Slurm has started this process several times, as tasks of one step.
    """
    if int(os.environ.get(STEP_TASKS, "1")) > 1:
        raise ValueError(
            f"{STEP_TASKS}={os.environ[STEP_TASKS]}: srun starts this command so many times, and "
            "each would be a job of its own; leave srun out, since ftrma starts the processes "
            "itself on all nodes of the allocation")
    own = any(name in word for word in words for name in OWN) or any(
        name.startswith(tuple(f"PRTE_MCA_{own}" for own in OWN)) for name in os.environ)
    if own or not all(shutil.which(program) for program in ("srun", "scontrol")):
        return words
    slots = slots_of_nodes()
    if not slots:
        return words
    if not {word.split("=")[0] for word in words} & WHERE:
        if oversubscribe and sum(slots.values()) < processes:
            slots = shares(slots, processes)
        words = [*words, "--host", ",".join(f"{host}:{count}" for host, count in slots.items())]
    starter = shlex.join([sys.executable, "-I", slurmstart.__file__])
    return [*words, *HOSTS_FROM_OPTIONS, "--prtemca", "plm_ssh_agent", starter]


def slots_of_nodes() -> dict[str, int]:
    """Return the number of tasks of each node of the surrounding allocation, or of its CPUs if
    that is not known; empty if there is no allocation."""
    listed = os.environ.get(NODES, "")
    if JOB not in os.environ or not listed:
        return {}
    try:
        hosts = subprocess.run(["scontrol", "show", "hostnames", listed], capture_output=True,
                               text=True, timeout=timeouts.HOST.s, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return {}
    for name in (TASKS, CPUS):
        numbers = numbers_of_nodes(os.environ.get(name, ""))
        if len(numbers) == len(hosts):
            return dict(zip(hosts, numbers, strict=True))
    return {}


def numbers_of_nodes(text: str) -> Sequence[int]:
    """Read a number for each node from text such as ``2(x3),1``; empty if anything else is in it.
    Pure."""
    found = [re.fullmatch(r"([1-9]\d*)(?:\(x([1-9]\d*)\))?", word) for word in text.split(",")]
    if not all(found):
        return []
    return [int(one[1]) for one in found if one for _ in range(int(one[2] or 1))]
