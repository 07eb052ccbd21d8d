"""Brings a process into its job: connects its terminal, finds its directory and control file.

Under ``ftrma run`` the supervisor makes the job's directory. In a job over several nodes it does so
on its own node, and every node makes its own part (see `fabric.node_table`). Under another launcher
the first process makes the directory. A launch that follows another one finds the vaults that were
left there.
"""

from __future__ import annotations

import functools
import gc
import io
import locale
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..fabric import link
from ..fabric.control_file import make_job_directory
from ..fabric.one_node import OneNodeView
from ..fabric.view import JobView
from ..host import lineoutput, timeouts
from ..host.errors import CATASTROPHE, FtrmaError, on_host
from ..host.key import SECRET_BYTES, Key
from ..machine.topology import NO_LEVEL
from ..native import job
from ..native.shared import Proc
from ..protocol.starting import start_on_node
from ..settings import killrules
from ..settings import options as settings
from ..vault.vault import Vault

if TYPE_CHECKING:
    from ..fabric.several_nodes import SeveralNodesView
    from ..protocol.vault_inventory import VaultInventory

PATH_BYTES = 256  # most bytes of the path of a job's directory


def take_terminal(directory: Path, key: Key | None, rank: int) -> None:
    """Get the user's stdout and stderr from the supervisor, past the launcher's pipes, but no
    stdin.

    On another host than the supervisor's, connections to the supervisor take their place.
    """
    address = link.find()
    if address is None or address.here:
        _receive(directory, b"t", (0, 1, 2))
    else:
        assert key is not None
        link.take_terminal(address, key, rank)
    lineoutput.install()


def take_stdin(directory: Path, key: Key | None, rank: int) -> None:
    """Get the user's stdin from its beginning; slot 0 does so each time it enters the program."""
    address = link.find()
    encoding, errors = _stdin_text()
    for file in gc.get_objects():
        # The file of an earlier open(0) would close the new stdin when it is collected.
        if type(file) is io.FileIO and not file.closed and file.fileno() == 0 and file.closefd:
            file.close()
    try:
        if address is None or address.here:
            _receive(directory, b"s", (0,))
        else:
            assert key is not None
            link.take_stdin(address, key, rank)
    except (OSError, ValueError, FtrmaError):
        time.sleep(timeouts.REFUSED.s)  # the supervisor is gone, and its guardian ends this process
        raise
    raw = io.FileIO(0, closefd=False)
    raw.name = "<stdin>"  # as Python names it
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(raw), encoding, errors, newline="\n"
    )


@functools.cache
def _stdin_text() -> tuple[str, str | None]:
    """Return the encoding and error handling of stdin, before the program changes them."""
    before = sys.__stdin__
    return (before.encoding, before.errors) if before else (locale.getpreferredencoding(), None)


def _receive(directory: Path, what: bytes, targets: tuple[int, ...]) -> None:
    """Get descriptors from the supervisor, which replace these."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as supervisor:
        supervisor.connect(str(directory / "terminal"))
        supervisor.sendall(what)
        _, fds, _, _ = socket.recv_fds(supervisor, 1, len(targets))
    for fd, target in zip(fds, targets, strict=True):
        os.dup2(fd, target)
        os.close(fd)


def join(
    options: settings.Options, key: Key | None
) -> tuple[JobView, Callable[[], Vault | None]]:
    """Join the job, and find out whether it is on one node or over several.

    Args:
        key: the job's key; None if there is no supervisor.

    Returns:
        This process's view of the job, and a function that all processes call together. It begins
        the launch and returns the vault of this process's role, or None for a spare.
    """
    rank, size, on_node = job.mpi_world()
    address = link.find()
    if on_node != size and address is None:
        raise FtrmaError(
            f"the {size} processes run on several nodes ({on_node} of them on this one), and "
            "nothing connects these: 'ftrma run' starts an agent on each. Start the program with "
            "'ftrma run --mpirun OPTIONS', or ask the launcher for one node"
        )
    if address and (on_node != size or not address.here or link.SPREAD in os.environ):
        from ..protocol import starting_nodes  # importing it takes 10 ms

        assert key is not None
        view, left = join_nodes(options, Proc(rank), link.Link(address, key, rank))
        return view, functools.partial(starting_nodes.start_over_nodes, view, left)
    one = join_node(options, key, rank, size)
    return one, functools.partial(start_on_node, one)


def join_node(options: settings.Options, key: Key | None, rank: int, size: int) -> OneNodeView:
    """Find the job's directory, or make it if no supervisor has made one, and join."""
    key = key or share_key()
    path = ""
    if rank == 0:
        path = options.job or str(make_job_directory(options.layout_for(size), options.log_budget))
    told = job.mpi_bcast(os.fsencode(path), PATH_BYTES).rstrip(b"\0")
    one = OneNodeView(Path(os.fsdecode(told)), key, Proc(rank))
    if one.layout.processes != size:
        raise FtrmaError(
            f"{size} processes were started and {one.layout.processes} are needed: "
            f"{one.layout.slots} slots, {one.layout.checksums} checksum ranks and the spares. "
            "Start that many, or change -n, --checksums and --spares"
        )
    if rank == 0 and not options.job:  # no supervisor has written them
        killrules.refuse_nodes(options.kill)
        killrules.write(one.ctl, options.kill)
    if rank == 0 and options.aware not in ("", NO_LEVEL):
        one.tell(f"--aware {options.aware} holds at no level: all processes are on one node")
    return one


def share_key() -> Key:
    """Make the job's key in the first process, and send it to all. Collective."""
    return Key(job.mpi_bcast(Key.make().secret, SECRET_BYTES))


def join_nodes(
    options: settings.Options, proc: Proc, connection: link.Link
) -> tuple[SeveralNodesView, VaultInventory]:
    """Join a job over several nodes; if that fails, one process says why."""
    from ..protocol import starting_nodes

    try:
        return starting_nodes.join(options, proc, connection)
    except (FtrmaError, ValueError) as error:
        if connection.request("claim")["granted"]:
            status = 2 if isinstance(error, ValueError) else CATASTROPHE
            why = on_host(error, socket.gethostname())
            connection.send("abort", status=status, why=f"error: {why}")
        time.sleep(timeouts.REFUSED.s)  # the supervisor ends all
        raise
    except sys.modules["mpi4py.MPI"].Exception:
        # Most probably the MPI library reports the end of a process that has already said why it
        # ends.
        time.sleep(timeouts.REFUSED.s)
        raise
