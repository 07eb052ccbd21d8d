"""The job as one process sees it, when the job runs over several nodes.

One-sided communication of the MPI libraries does not survive a failure across nodes, and there is
no memory that all processes share. So nothing is repaired in place here: any death ends the launch,
and the supervisor starts the job again. What `world.World` does by the shared control file goes
other ways:

* Each process has a control file of its own. C reads roles, kill rules and counters there as on one
  node; its alarm never rings.
* Slots synchronize by MPI, on communicators that the user's program never sees.
* Deaths, errors and the end are the supervisor's business, told over the `link`.

Invariant: whoever waits in MPI for a process that has died is ended by the supervisor.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from . import _mpi, settings
from .errors import FtrmaError
from .link import Link
from .sweep import sweep_library_files
from .topology import Layout, roles
from .world import ROLE_NAMES, SLOT, World, check, make_control

LEAVE_S = 30.0  # the supervisor answers the last goodbye within milliseconds


class SpreadWorld(World):
    """One process's place in a job over several nodes.

    Args:
        native: the loaded C extension.
        options: of the job.
        proc: position of this process in the MPI world.
        link: to the supervisor.

    Attributes:
        hosts: name of each process's node.
        everyone: mpi4py communicator of all processes, in the order of the MPI world.
        slots: of all slots, in their order; None on checksum ranks and spares.

    MPI: collective over all processes.
    """

    def __init__(self, native: Any, options: settings.Options, proc: int, link: Link) -> None:
        self.link = link
        sweep_library_files(link.greeting["stale"])  # of a launch before, whose node died
        mpi = _mpi.import_mpi()
        host = socket.gethostname()
        self.hosts: list[str] = mpi.COMM_WORLD.allgather(host)
        directory = Path(options.job) / host
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        link.directory = directory
        native.lib.ftrma_set_link(link.socket.fileno())
        ctl = self._own_control(native, directory / f"control-{proc}", options)
        super().__init__(native, directory, proc, ctl)
        check(-native.lib.ftrma_comm_prepare(), "preparing communicators")
        self.everyone: Any = mpi.Comm.fromhandle(native.lib.ftrma_comm_parent())
        self.slots: Any = None
        role, index = self.role()
        link.send("role", role=ROLE_NAMES[role], index=index)
        if role == SLOT:
            holders = [self.roles.slot_proc[s] for s in range(ctl.nslots)]
            self.slots = self.everyone.Create_group(self.everyone.Get_group().Incl(holders))

    def _own_control(self, native: Any, path: Path, options: settings.Options) -> Any:
        """A control file that nobody else sees: gone from the directory once it is mapped."""
        layout = options.layout()
        ctl = make_control(native, path, layout)
        path.unlink()
        seat(ctl, self.hosts, layout)
        settings.write_kill_rules(native.ffi, ctl, options.kill)
        ctl.resume = int(self.link.greeting["resume"])
        return ctl

    @property
    def first_on_node(self) -> bool:
        """This process is the lowest of its node."""
        return self.hosts.index(self.hosts[self.proc]) == self.proc

    def enter(self, version: int, restore_s: float) -> None:
        """The program begins, at this checkpoint, which it took so long to restore."""
        self.store("start_ns", int(self.lib.ftrma_now_ns()))
        if self.proc == 0:
            self.link.send("entered", version=version, restore_s=restore_s)
        timed = self.lib.FTRMA_PLACE_TIME
        if any(self.ctl.rules[i].place == timed for i in range(self.ctl.nrules)):
            check(self.lib.ftrma_watch(), "starting the watching thread")

    # -- what goes by the control file on one node ---------------------------------------------

    def barrier(self) -> None:
        self.slots.Barrier()

    def same_everywhere(self, value: int) -> int | None:
        theirs = self.slots.allgather(value)
        return next((s for s, v in enumerate(theirs) if v != value), None)

    def end_program(self) -> None:
        self.barrier()
        self.exchange.finish()

    def claim_error(self) -> bool:
        return bool(self.link.request("claim")["granted"])

    def abort(self, status: int) -> None:
        self.link.send("abort", status=status)

    def emit(self, event: str, **data: Any) -> None:
        self.link.send(event, time=time.time(), **data)

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.link.request("events")["events"]
        return found

    def leave(self) -> None:
        """Say goodbye, and go on serving the others' last messages until all have."""
        self.everyone.Barrier()
        if self.first_on_node:
            shutil.rmtree(self.directory, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.directory.parent.rmdir()  # not on the supervisor's own host
        self.link.goodbye()
        deadline = time.monotonic() + LEAVE_S
        while time.monotonic() < deadline:
            self.everyone.Iprobe()
            time.sleep(0.001)
        raise FtrmaError(f"the supervisor did not answer a goodbye within {LEAVE_S:.0f} s")


def seat(ctl: Any, hosts: list[str], layout: Layout) -> None:
    """Write the roles of a new job into a control file."""
    slot_proc, checksum_proc = roles(hosts, layout)
    table = ctl.roles[ctl.roles_seq & 1]
    for s, p in enumerate(slot_proc):
        table.slot_proc[s] = p
    for g, p in enumerate(checksum_proc):
        table.checksum_proc[g] = p
    busy = {*slot_proc, *checksum_proc}
    for number, p in enumerate(p for p in range(layout.processes) if p not in busy):
        ctl.proc[p].spare = number
