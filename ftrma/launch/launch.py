"""One launch of a job: the launcher process, its ranks, their terminal, and what ails them.

* Ranks get the user's stdout and stderr as file descriptors over a socket, so their output passes
  through no launcher; so slot 0 gets its stdin (see `standardinput`). What the launcher itself says
  goes to a log, shown only if the job never came up.
* `Launch.trouble` says why a launch cannot go on: the launcher died, a process hangs in the MPI
  library or died unnoticed. On one node it looks at the control file.
* Over several nodes ranks are watched by their connections instead (see `switchboard`); any death
  there ends the launch.

Invariant: after `Launch.end` none of its processes is left.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import settings
from ..errors import CATASTROPHE
from ..fabric import link
from ..fabric.world import emit, is_full, open_control, read_events
from ..host import private
from ..host.key import VARIABLE as KEY_VARIABLE
from ..host.key import Key
from ..machine.topology import Layout
from ..native import loading
from ..protocol import ends
from . import failover
from .guardian import kill_all_of
from .mpirun import (
    launcher_environment,
    loopback_environment,
    make_session,
    mpirun_command,
    on_one_node,
    words_for_nodes,
)
from .standardinput import StandardInput
from .switchboard import Cause, Switchboard, raise_file_limit

# A slot that is replayed iterates over its sets in the order in which it did before.
HASH_SEED = str(secrets.randbelow(2**32))
STUCK_S = 5.0  # a call of MPI that goes on this long after a failure will never end
UNNOTICED_S = 2.0  # detection takes milliseconds; a death without an alarm after this is lost
COME_UP_S = 120.0  # importing on a slow, crowded machine takes seconds
NODES_S = 2.0  # a launcher whose ranks are gone takes its daemons on other nodes along, if let
# As 'python -m ftrma', but never from a source directory that happens to be the current one.
RANK = "import sys; del sys.path[0]; from ftrma.__main__ import main; main()"


class Launch:
    """One launch of the job: its launcher process and the ranks that have reported.

    Args:
        key: of the job.
        program: its words, see `script`.
        stdin: the user's.
        cause: why a job over several nodes is launched again, if it is.
        words: options of the user's own for the launcher.
    """

    def __init__(self, directory: Path, key: Key, layout: Layout, options: settings.Options,
                 program: Sequence[str], stdin: StandardInput, words: Sequence[str] = (),
                 cause: Cause | None = None) -> None:
        self.directory, self.layout, self.options = directory, layout, options
        self.stdin = stdin
        self.native = loading.load()
        self.ctl = open_control(self.native, directory)
        self.ranks: dict[int, int] = {}  # pid -> pidfd
        self.living: set[int] = set()  # pidfds that are not known to have ended
        self.seen_call: dict[int, tuple[int, float]] = {}
        self.came_up = time.monotonic()
        self.unnoticed_since: float | None = None
        self.left_since = self.waiting_since = 0.0
        self.own_end: ends.End | None = None
        self.memory_was_full = False  # and that was why it had to be ended
        self.undecided = False  # whether a death that was noticed is a failure
        terminal = directory / "terminal"
        terminal.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.socket.bind(str(terminal))
        self.socket.listen(layout.processes)
        raise_file_limit(4 * layout.processes + 128)
        several = cause is not None or not on_one_node(words)
        self.switchboard = Switchboard(
            layout.processes, key, options.bind if several else None,
            functools.partial(emit, directory), functools.partial(read_events, directory), cause,
            failover.past(directory, options),
        )
        self.log = directory / "launcher.log"
        self.session = make_session(directory)
        ours = {**settings.to_environment(options), KEY_VARIABLE: key.text()}
        if self.switchboard.address:
            ours[link.VARIABLE] = self.switchboard.address.text()
        if cause is not None:
            ours[link.SPREAD] = "1"  # even if one node is left
        # Rules from the environment that have struck are out of force, see failover.cause_of.
        rest = {name: value for name, value in os.environ.items() if name != "FTRMA_KILL"}
        env = {"PYTHONHASHSEED": HASH_SEED, **rest, **launcher_environment(), **ours}
        if not several:
            env |= loopback_environment(self.session)
        # To other nodes the launcher takes along only what it is told to.
        carried = [word for name in ours for word in ("-x", name)]
        self.log.unlink(missing_ok=True)
        private.write(self.log, b"")
        on_nodes = words_for_nodes(self.session) if several else []
        with self.log.open("ab") as log:
            self.mpirun = subprocess.Popen(
                [*mpirun_command(layout.processes, self.session, [*on_nodes, *words, *carried]),
                 sys.executable, "-c", RANK, *program],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True,
                preexec_fn=self.native.lib.ftrma_die_with_parent,
            )
        self.mpirun_fd = os.pidfd_open(self.mpirun.pid)
        self.ctl.launcher = self.mpirun.pid

    # -- the terminal -------------------------------------------------------------------------

    def serve_terminal(self, timeout_s: float) -> None:
        """Hand the user's terminal to ranks that ask for it; returns early when a process ends."""
        poll = select.poll()
        links = self.switchboard.fileno()
        for fd in (self.socket.fileno(), links, self.mpirun_fd, *self.living):
            poll.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(timeout_s * 1e3)]
        self.living -= set(ready)
        self.switchboard.pump()
        if self.socket.fileno() not in ready:
            return
        link, _ = self.socket.accept()
        with link, contextlib.suppress(OSError):
            size = struct.calcsize("3i")
            pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[
                0
            ]
            if pid not in self.ranks:
                self.ranks[pid] = os.pidfd_open(pid)
                self.living.add(self.ranks[pid])
            if link.recv(1) == b"s":
                with open(self.stdin.serve(), "rb", buffering=0) as stdin:
                    socket.send_fds(link, [b"s"], [stdin.fileno()])
            else:
                with open(os.devnull) as null:
                    socket.send_fds(link, [b"t"], [null.fileno(), 1, 2])

    # -- what is going on ---------------------------------------------------------------------

    def dead(self) -> list[int]:
        """Pids of ranks that have ended."""
        if not self.ranks:
            return []
        poll = select.poll()
        by_fd = {fd: pid for pid, fd in self.ranks.items()}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        return [by_fd[fd] for fd, _ in poll.poll(0)]

    def trouble(self) -> str:
        """Why this launch cannot go on, in words; empty while it can."""
        if self.ended():
            return ""
        if self.mpirun.poll() is not None:
            return failover.LAUNCHER_DIED
        if len(self.ranks) < self.layout.processes:
            if time.monotonic() - self.came_up > COME_UP_S:
                return f"only {len(self.ranks)} of {self.layout.processes} processes came up"
            return self.refused()
        gone = self.dead()
        if len(gone) == len(self.ranks):
            return "all processes died"
        return self.unnoticed(gone) or self.stuck()

    def refused(self) -> str:
        """Why a node does not take part, in its own words (see `nodedirectory`); empty if all do.

        The launcher goes on waiting for a daemon that could not be started.
        """
        said = self.log.read_text(errors="replace")
        return "; ".join(re.findall(r"^ftrma: error: (.*)", said, re.MULTILINE))

    def ended(self) -> bool:
        """The program has ended well."""
        return bool(self.ctl.alarm == self.native.lib.FTRMA_ENDED)

    def unnoticed(self, gone: list[int]) -> str:
        lib = self.native.lib
        alive = {p.pid for p in self.procs() if p.state == lib.FTRMA_ALIVE}
        known = {p.pid for p in self.procs() if p.pid}
        if not any(pid in alive or pid not in known for pid in gone):
            self.unnoticed_since = None
        elif self.unnoticed_since is None:
            self.unnoticed_since = time.monotonic()
        elif time.monotonic() - self.unnoticed_since > UNNOTICED_S:
            return "a process died before the others could watch over it"
        return ""

    def stuck(self) -> str:
        """A process that is still in the call of MPI in which a failure found it."""
        if self.ctl.alarm == self.ctl.repaired:
            self.seen_call.clear()
            return ""
        now = time.monotonic()
        for i, p in enumerate(self.procs()):
            seq = p.call_seq
            if p.state != self.native.lib.FTRMA_ALIVE or not seq & 1:
                self.seen_call.pop(i, None)
            elif self.seen_call.get(i, (None, 0))[0] != seq:
                self.seen_call[i] = (seq, now)
            elif now - self.seen_call[i][1] > STUCK_S:
                return f"process {p.pid} hangs inside the MPI library"
        return ""

    def ended_itself(self) -> bool:
        """The program ended by a process that ended itself, or lacks input; `own_end` says how."""
        if self.switchboard.spread:
            left, failing, waiting = self.switchboard.left()
        else:
            left, failing, waiting = self.left()
        now = time.monotonic()
        self.left_since = (self.left_since or now) if left else 0.0
        self.waiting_since = (self.waiting_since or now) if left and waiting else 0.0
        if left and now - self.left_since > ends.SETTLE_S:
            late = bool(self.waiting_since) and now - self.waiting_since > ends.WAITING_S
            self.own_end = ends.decide(left, self.layout.slots, failing=failing, waiting=late)
        settling = bool(left) and now - self.left_since <= ends.SETTLE_S
        well = bool(left) and all(how.well for how in left.values())
        self.undecided = settling or (well and not failing and self.mpirun.poll() is None)
        if self.stdin.lacking:
            self.own_end = ends.End(CATASTROPHE, f"error: {self.stdin.lacking}")
        return self.own_end is not None

    def left(self) -> tuple[dict[int, ends.Left], bool, bool]:
        """Slots whose processes have ended themselves; others have failed; all others wait."""
        ctl, lib = self.ctl, self.native.lib
        if not self.ranks or self.mpirun.poll() is not None:
            return {}, False, False
        gone, left, waiting = set(self.dead()), {}, True
        roles = ctl.roles[ctl.roles_seq & 1]
        for slot in range(self.layout.slots):
            p = ctl.proc[roles.slot_proc[slot]]
            if p.pid in gone:
                value = p.leaving & lib.FTRMA_LEFT_VALUE
                if p.leaving & lib.FTRMA_LEFT_BY_SIGNAL:
                    left[slot] = ends.Left(by_signal=value)
                elif p.leaving & (lib.FTRMA_LEFT_BY_STATUS | lib.FTRMA_LEFT_BY_EXIT):
                    sure = bool(p.leaving & lib.FTRMA_LEFT_BY_STATUS)
                    left[slot] = ends.Left(status=value, sure=sure)
            else:
                waiting &= bool(p.waiting or p.call_seq & 1 or p.finished == ctl.entry)
        return left, bool(ctl.alarm != ctl.repaired), waiting

    def procs(self) -> list[Any]:
        return [self.ctl.proc[i] for i in range(self.ctl.nprocs)]

    def spread_trouble(self) -> str:
        """The same for a job over several nodes, by what the links tell."""
        board = self.switchboard
        if board.done():
            return ""
        if self.mpirun.poll() is not None:
            # Its daemons take the ranks along; whoever has not ended soon will be made to.
            self.unnoticed_since = self.unnoticed_since or time.monotonic()
            late = time.monotonic() - self.unnoticed_since > UNNOTICED_S
            return failover.LAUNCHER_DIED if board.failure() or late else ""
        if board.ranks.deaths:
            return board.failure()
        missing = self.layout.processes - len(board.ranks.links)
        if missing and self.refused():
            return self.refused()
        known = {peer.pid for peer in board.ranks.links.values()}
        if missing and any(pid not in known for pid in self.dead()):
            return "a process died before it had joined"
        if missing and time.monotonic() - self.came_up > COME_UP_S:
            return f"{missing} of {self.layout.processes} processes did not come up"
        return ""

    # -- the end ------------------------------------------------------------------------------

    def end(self, patience_s: float = 0.0, *, final: bool = True) -> None:
        """Leave no process behind.

        Args:
            patience_s: that the launcher gets to end by itself.
            final: the job is over: what it has on other nodes goes, too.
        """
        if self.switchboard.spread:
            self.switchboard.end(final=final)
            patience_s = NODES_S
        lacking = any(p.leaving & self.native.lib.FTRMA_LEFT_BY_MEMORY for p in self.procs())
        self.memory_was_full = is_full(self.directory) and (lacking or not self.ctl.start_ns)
        deadline = time.monotonic() + patience_s
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.mpirun.wait(deadline - time.monotonic())
        for pid, fd in self.ranks.items():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                os.killpg(pid, signal.SIGKILL)  # its children too
        with contextlib.suppress(OSError):
            os.killpg(self.mpirun.pid, signal.SIGKILL)
        self.mpirun.wait()
        while len(self.dead()) < len(self.ranks):
            time.sleep(0.001)
        for fd in (*self.ranks.values(), self.mpirun_fd):
            os.close(fd)
        self.ranks.clear()
        kill_all_of(self.directory)
        self.switchboard.close()
        self.socket.close()
        shutil.rmtree(self.session, ignore_errors=True)
