"""What the processes of a job over several nodes do together beside the user's program.

On one node checksum ranks and spares see in the control file what is to be done. Here they are told
by messages on a communicator of their own, and sleep between two looks: a server that waited inside
the MPI library would burn a core.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .checkpoint import Policy
from .spread import SpreadWorld
from .vault import Vault

POLL_S = 0.005
END = 1  # tag of the message that tells a server that the program has ended


class Exchange:
    """A process's part in it.

    Args:
        world: of this process.

    MPI: collective over all processes.
    """

    def __init__(self, world: SpreadWorld) -> None:
        self.world = world
        self.comm = world.everyone.Dup()

    def start(self) -> Vault | None:
        """The vault that this process begins with: none, since no checkpoints are taken."""
        return None

    def due(self, policy: Policy, slot: int, ordinal: int, size_bytes: Callable[[], int]) -> bool:
        """Whether all slots checkpoint at this safepoint: never."""
        return False

    def serve(self, role: tuple[int, int]) -> None:
        """Be a checksum rank or a spare until the program has ended."""
        first = self.world.roles.slot_proc[0]
        while not self.comm.Iprobe(first, END):
            time.sleep(POLL_S)
        self.comm.Recv([bytearray(0), 0], first, END)

    def finish(self) -> None:
        """All slots have come to the program's end: the servers may go."""
        world, layout = self.world, self.world.ctl
        if world.role()[1] == 0:
            slots = {world.roles.slot_proc[s] for s in range(layout.nslots)}
            for server in set(range(layout.nprocs)) - slots:
                self.comm.Send([bytearray(0), 0], server, END)
