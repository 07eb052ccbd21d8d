"""Lists the words of a control file that tell an observer how far a job's slots have come.

Over several nodes each node's agent sends the words of its own processes to the supervisor
(`nodewatch`), which puts them into a control file of its own (`farlooks`). That file is then read
like the control file of a job on one node: by the watch over slots that hang, by `pace`, and by
``ftrma status``.

Words that are equal on all nodes (`native.mirrored`) are sent by all, and taken from one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..native.shared import Control, Proc, Roles

SEEN = "seen"  # name of this control file of the supervisor in the job's directory
JOB = ("attempt", "alarm", "repaired", "halt", "request", "start_ns", "commit", "spilled", "taken",
       "replays", "claim", "log_bytes")
PROCESS = ("pid", "node", "calls", "ordinal", "step", "arrived", "staged", "ready", "finished",
           "waiting", "syncs", "awaits", "waited_ns", "busy_until_ns", "mails")
SLOT = ("clock", "events", "replaying", "peak_bytes")
ROLES = ("slot_proc", "checksum_proc", "slot_group")
Row = list[int]


@dataclass
class NodeWords:
    """The words of a node, or those of them that have changed; rows are in the order of the lists
    above.

    Attributes:
        job: words of the job, followed by the states of all processes. roles: three rows.
        procs: rows by process, for this node's processes. slots: rows by slot, for slots whose
            process is on this node.
    """

    job: Row = field(default_factory=list)
    roles: list[Row] = field(default_factory=list)
    procs: dict[int, Row] = field(default_factory=dict)
    slots: dict[int, Row] = field(default_factory=dict)

    def since(self, before: NodeWords) -> NodeWords:
        """Return the words that have changed."""
        return NodeWords(
            self.job if self.job != before.job else [],
            self.roles if self.roles != before.roles else [],
            {p: row for p, row in self.procs.items() if row != before.procs.get(p)},
            {s: row for s, row in self.slots.items() if row != before.slots.get(s)})

    def plain(self) -> dict[str, Any]:
        """Return the words for a message, without empty tables."""
        return {name: value for name, value in vars(self).items() if value}

    @classmethod
    def of_plain(cls, said: dict[str, Any]) -> NodeWords:
        """Make words from a message, whose tables have text as keys."""
        return cls(said.get("job", []), said.get("roles", []),
                   {int(p): row for p, row in said.get("procs", {}).items()},
                   {int(s): row for s, row in said.get("slots", {}).items()})


def procs_of(ctl: Control, node: int) -> list[Proc]:
    """Return the processes of a node; they stay there."""
    return [Proc(p) for p in range(ctl.nprocs) if ctl.proc[p].node == node]


def take(ctl: Control, procs: Iterable[Proc]) -> NodeWords:
    """Read the words of a node.

    Args:
        procs: processes of this node.
    """
    here, entries = {*procs}, ctl.proc
    roles = _rows(ctl, ctl.roles[ctl.roles_seq & 1])
    return NodeWords(
        [*_row(ctl, JOB), *[entries[p].state for p in range(ctl.nprocs)]],
        roles, {p: _row(entries[p], PROCESS) for p in here},
        {s: _row(ctl.slots[s], SLOT) for s, p in enumerate(roles[0]) if p in here})


def put(ctl: Control, words: NodeWords) -> None:
    """Write words of a node into another control file."""
    if words.job:
        _fill(ctl, JOB, words.job)
        for p, state in enumerate(words.job[len(JOB):]):
            ctl.proc[p].state = state
    if words.roles:
        roles = ctl.roles[ctl.roles_seq & 1]
        for name, row in zip(ROLES, words.roles, strict=True):
            table = getattr(roles, name)
            for i, value in enumerate(row):
                table[i] = value
    for p, row in words.procs.items():
        _fill(ctl.proc[p], PROCESS, row)
    for s, row in words.slots.items():
        _fill(ctl.slots[s], SLOT, row)


def nothing(ctl: Control) -> NodeWords:
    """Return the words of a launch of which nothing is known yet; the roles stay."""
    return NodeWords([0] * (len(JOB) + ctl.nprocs), [],
                     {p: [0] * len(PROCESS) for p in range(ctl.nprocs)},
                     {s: [0] * len(SLOT) for s in range(ctl.nslots)})


def _row(struct: Any, names: Sequence[str]) -> Row:
    return [int(getattr(struct, name)) for name in names]


def _rows(ctl: Control, roles: Roles) -> list[Row]:
    tables = [getattr(roles, name) for name in ROLES]
    counts = (ctl.nslots, ctl.nchecksums, ctl.nslots)
    return [[table[i] for i in range(count)]
            for table, count in zip(tables, counts, strict=True)]


def _fill(struct: Any, names: Sequence[str], row: Row) -> None:
    for name, value in zip(names, row, strict=False):
        setattr(struct, name, value)
