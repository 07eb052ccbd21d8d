"""Looks at the processes of this node from outside: what each is doing and where; kills them.

The processes need not cooperate, so a process that is stopped, spins in C or sleeps with the GIL
held is seen like any other. On one node the supervisor looks itself. Over several nodes each node's
agent looks (`nodewatch`), and the supervisor asks it (`farlooks`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ..fabric.absence import is_stopped
from ..native import job
from ..native.constants import AWAITED_SLOT
from ..native.shared import Control, Proc, Process
from ..protocol import stalls
from ..protocol.stalls import Doing
from . import stacks

SAMPLES, SAMPLE_S = 10, 0.002  # a slot that waits is awake for a moment each millisecond
MOST_STACKS_S = 4.0  # after so long no further stack is read for one verdict


@dataclass(frozen=True)
class Found:
    """The activity of a process at one look; the attributes are those of
    `protocol.stalls.SlotLook`.
    """

    doing: Doing
    call: str = ""
    kind: int | None = None
    awaited: int | None = None

    def plain(self) -> list[Any]:
        """Return the attributes for a message."""
        return [self.doing.name, self.call, self.kind, self.awaited]

    @classmethod
    def of_plain(cls, words: list[Any]) -> Found:
        doing, *more = words
        return cls(Doing[doing], *more)


class ProcessLooks(Protocol):
    """Looks at processes of a job, wherever they are."""

    def examine(self, procs: Iterable[Proc]) -> dict[Proc, Found]:
        """Say what each of these processes is doing."""

    def places(self, procs: Iterable[Proc]) -> dict[Proc, str]:
        """Say where these processes are, in one line for each; leave out those that cannot be
        reached.
        """

    def names_lines(self) -> bool:
        """Say whether py-spy is there, so that places are lines of Python."""

    def kill(self, procs: Iterable[Proc]) -> None:
        """Kill these processes (SIGKILL)."""


class NearLooks:
    """Looks at the processes of this node, see `ProcessLooks`.

    Args:
        ctl: the control file, or an image of it.
    """

    def __init__(self, ctl: Control) -> None:
        self.ctl = ctl

    def examine(self, procs: Iterable[Proc]) -> dict[Proc, Found]:
        procs = [*procs]
        waits = self.sample_waits(procs)
        return {proc: self.examine_one(self.ctl.proc[proc], waits.get(proc)) for proc in procs}

    def sample_waits(self, procs: list[Proc]) -> dict[Proc, int]:
        """Find the processes that wait for others, and for which ones (`Process.awaits`)."""
        found: dict[Proc, int] = {}
        for _ in range(SAMPLES):
            found |= {proc: p.awaits for proc in procs if (p := self.ctl.proc[proc]).waiting}
            if len(found) == len(procs):
                break
            time.sleep(SAMPLE_S)
        return found

    def examine_one(self, p: Process, awaits: int | None) -> Found:
        """Say what a process is doing.

        Args:
            awaits: see `sample_waits`; None: it does not wait.
        """
        if p.state == job.ProcessState.DEAD:  # a framework was told, else a repair would follow
            return Found(Doing.DEAD)
        if is_stopped(p.pid):
            return Found(Doing.STOPPED)
        if p.finished == self.ctl.attempt:
            return Found(Doing.ENDED)
        if awaits is not None:
            kind, awaited = awaits >> 32, (awaits & AWAITED_SLOT) - 1
            return Found(Doing.WAITS, stalls.WAITS_IN.get(kind, "a call"), kind,
                         awaited if 0 <= awaited < self.ctl.nslots else None)
        if job.is_in_call(p):
            return Found(Doing.LIBRARY, stacks.call_name(p.pid, p.call))
        return Found(Doing.OUTSIDE)

    def places(self, procs: Iterable[Proc]) -> dict[Proc, str]:
        found, began = {}, time.monotonic()
        for proc in procs:
            late = time.monotonic() - began > MOST_STACKS_S
            pid = self.ctl.proc[proc].pid
            found[proc] = stacks.state_in_words(pid) if late else stacks.located(pid)
        return found

    def names_lines(self) -> bool:
        return bool(stacks.py_spy())

    def kill(self, procs: Iterable[Proc]) -> None:
        for proc in procs:
            p = self.ctl.proc[proc]
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(p.pid)
                try:
                    if p.state == job.ProcessState.ALIVE:  # else the pid may be another's
                        signal.pidfd_send_signal(fd, signal.SIGKILL)
                finally:
                    os.close(fd)
