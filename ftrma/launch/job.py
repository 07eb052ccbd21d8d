"""Data that all launches of a job share, and the cause of a next launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..fabric import story
from ..fabric.story import Degraded
from ..host.key import Key
from ..host.listening import Bind
from ..machine.topology import Layout
from ..native import job
from ..native.shared import Control
from ..settings import options as settings
from ..settings.options import split_mpirun
from .askedends import AskedEnds
from .fewerhosts import Room
from .mpirun import on_one_node
from .pace import Pace
from .relays import slots_of_hosts
from .standardinput import StandardInput

HALTED = "the job was ended as asked"
SUPERVISOR_DIED = "ftrma run was killed"
LAUNCHER_DIED = "the launcher died"
ALL_DIED = "all processes died"
# Texts behind the name of a process that the others wait for in a repair.
ABSENT = "does not come to the repair: it waits for something outside of MPI, or is stopped"
LATE = "computes, and comes to the repair with its next call of MPI; the others wait for it"


@dataclass(frozen=True)
class Cause:
    """The cause of the next launch of a job over several nodes.

    Attributes:
        reason: in words.
        slots: the slots that died.
        died_at, noticed_at: times on the supervisor's monotonic clock, in seconds.
        hosts: the hosts on which the job has run so far. addresses: name and address of each.
        attempt: number of the next launch's first attempt.
        homes: kind, number and host of each role, as last known; a role has several hosts if a
            launch ended before it had moved all roles.
        one_node: whether the program needs all processes on one node.
    """

    reason: str
    slots: tuple[int, ...]
    died_at: float
    noticed_at: float
    hosts: tuple[str, ...] = ()
    attempt: int = 1
    homes: tuple[tuple[str, int, str], ...] = ()
    addresses: tuple[tuple[str, str], ...] = ()
    one_node: bool = False


@dataclass
class Job:
    """The data that all launches of a job share.

    Attributes:
        directory: the job's directory in shared memory. key: the job's key.
        program: the program's words, see `program.script`.
        hash_seed: PYTHONHASHSEED of its processes; if empty, it is derived from the key.
        begun_from: over several nodes, the checkpoint in files from which the job begins:
            directory, entry, version, and number of the attempt; None: it begins at the program's
            start.
        stdin: the user's stdin.
        words: the user's options for the launcher, as the next launch takes them.
        layout: layout of the next launch; first_layout: that of the first launch.
        room: room on the hosts of the first launch.
        cause: cause of a next launch over several nodes; None otherwise.
        relayed: the loss of a node does not end the newest launch, see `relays`.
        relaunches: number of launches after the first one, by this ``ftrma run``.
        ends: ends that are asked for.
        ended: says whether the user has asked for the end.
        paces: the slots' paces, see `pace`.
        begin_from_older: see `resuming`; its argument is why the program has refused what came from
            files.
    """

    directory: Path
    key: Key
    layout: Layout
    options: settings.Options
    program: list[str]
    hash_seed: str = ""
    begun_from: dict[str, Any] | None = None
    stdin: StandardInput = field(default_factory=StandardInput)
    words: list[str] = field(init=False)
    first_layout: Layout = field(init=False)
    room: Room = field(init=False)
    cause: Cause | None = field(default=None, init=False)
    relayed: bool = field(default=False, init=False)
    relaunches: int = field(default=0, init=False)
    ends: AskedEnds = field(init=False)
    ended: Callable[[], bool] = field(default=lambda: False, init=False)
    paces: list[Pace] = field(default_factory=list, init=False)
    begin_from_older: Callable[[str], bool] = field(default=lambda why: False, init=False)

    def __post_init__(self) -> None:
        self.paces = [Pace() for _ in range(self.layout.slots)]
        self.words, self.first_layout = self.first_words, self.layout
        self.room = Room(slots_of_hosts(self.words), self.options.oversubscribe == "yes")
        self.ends = AskedEnds(self.directory, self.options, spill=self.options.spill,
                              stays=not self.may_spread)

    @property
    def first_words(self) -> list[str]:
        """Return the user's options for the launcher, with all hosts of the first launch."""
        return split_mpirun(self.options.mpirun)

    def go_on_with(self, words: list[str], layout: Layout) -> None:
        """Make the next launch use these options for the launcher, and these roles."""
        before, self.words, self.layout = self.layout, words, layout
        if layout != before:
            self.options.checksums, self.options.spares = layout.checksums, layout.spares
            story.emit(self.directory, Degraded(
                layout.checksums, layout.spares, before.checksums, before.spares, layout.weakened))

    @property
    def ctl(self) -> Control:
        """Return the control file of the newest launch."""
        return job.open_control(self.directory / "control")

    def vault(self, proc: int) -> Path:
        """Return the path of the vault that a process of the newest launch keeps on this node."""
        return self.directory / f"vault-{proc}"

    @property
    def may_spread(self) -> bool:
        """Say whether the next launch may run over several nodes."""
        return self.cause is not None or not on_one_node(self.words)

    @property
    def bind(self) -> Bind | None:
        """Return where to listen for the next launch's ranks; None if nobody connects."""
        return self.options.bind if self.may_spread else None

    @property
    def exhausted(self) -> bool:
        """Say whether the job has been launched again as often as the user allows."""
        return self.relaunches == self.options.max_relaunch
