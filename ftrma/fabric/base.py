"""What the protocols need from a job, whatever the nodes it runs on.

Meeting, agreeing, being told of deaths, telling: one protocol, and what differs with the number of
nodes behind it. `world.World` does it by a control file that all processes of one node map;
`ftrma.protocol.spread` by one on each node, whose words the nodes' agents keep equal; tests have
one whose processes are threads (``tests/fakefabric.py``). All must keep the same laws
(``tests/fabriclaws.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ..native.shared import Proc, Version
from .story import Event


class RoundChanged(Exception):
    """Another process failed during repair: start the round over."""


class Fabric(Protocol):
    """The job as one of its processes sees it.

    Attributes:
        proc: position of this process in the MPI world.
        directory: of the job on this node.
        policy: what is done about the death of a slot: "auto", "causal" or "rollback".
    """

    proc: Proc
    directory: Path
    policy: str

    # -- who is who ---------------------------------------------------------------------------

    def role(self) -> tuple[int, int]:
        """This process's role (SLOT, CHECKSUM, SPARE) and its slot, checksum or spare number."""

    def holders(self) -> list[Proc]:
        """Processes of the slots, in their order."""

    def alive(self, proc: Proc) -> bool:
        """No death of this process is known."""

    @property
    def committed(self) -> Version:
        """The newest version that all can go back to; 0 is the start of the program."""

    def choose(self, policy: str, *, fresh: bool) -> None:
        """Take what the user wants done about failures.

        Args:
            policy: as the attribute, which becomes what can be had here.
            fresh: all go back by being launched again, not in the same processes.
        """

    def logs(self, *, trace: bool) -> bool:
        """Whether slots log their accesses: for replays, or because a trace is wanted."""

    # -- waits --------------------------------------------------------------------------------

    def visit(self, place: str) -> None:
        """Be at a named place, where a ``--kill`` rule may strike."""

    def alarmed(self) -> bool:
        """A failure is pending that is to be repaired."""

    def unwind_if_alarmed(self) -> None:
        """Raise Rollback if a failure is pending that cannot be repaired in place."""

    def barrier(self) -> None:
        """Wait for all slots; raises Rollback when a failure comes first. Slots only."""

    def same_everywhere(self, value: int) -> int | None:
        """Compare a value over all slots; returns a slot that gave another one, or None."""

    def end_program(self) -> None:
        """Wait for all slots at the program's end; raises Rollback when a failure comes first."""

    def round_asked(self) -> int:
        """Number of the newest repair round that was asked for; 0 if none was."""

    def meet(self, round_number: int, phase: int, *, planned: bool = True) -> None:
        """Wait for all the living at a phase of repair; raises RoundChanged at another failure.

        Args:
            round_number: as `round_asked` gave it.
            phase: 1 or more, and more than at the meeting before in this round.
            planned: all who hold a role must live.
        """

    # -- telling ------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Append one event to the job's story."""

    def events(self) -> list[Event]:
        """The job's story so far."""

    def tell(self, text: str) -> None:
        """One line for people, on the user's stderr."""

    def claim_error(self, *, meanwhile: Callable[[], object] | None = None) -> bool:
        """True for the one process whose error is the job's, until it dies or all go back.

        Args:
            meanwhile: is called again and again for a moment, since the error may come of a failure
                that is not known yet; what it raises passes.
        """

    def release_error(self) -> None:
        """The error of this process is not the job's, after all."""

    def abort(self, status: int) -> None:
        """Ask for the end of the whole job with this status."""

    def leave(self) -> None:
        """The last that this process does in the job, after it has ended well."""
