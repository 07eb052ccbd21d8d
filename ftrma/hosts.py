"""The launcher's options of a job over several nodes: which hosts it runs on.

``--mpirun`` gives them to ``ftrma run``. When a node is lost, the next launch takes those that are
left; when a job is over, one process per node takes its directories away. Both only change words
of the launcher's command line. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

# Options of mpirun that say where processes go, each with one value.
WHERE = {"--host", "-host", "-H", "--hostfile", "-hostfile", "--machinefile", "-machinefile"}
HOW = {"--map-by", "-map-by", "--npernode", "-npernode", "-N", "--ppr", "-ppr"}
COUNT = {"-n", "--n", "-np", "--np", "-c"}


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
