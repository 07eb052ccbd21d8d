"""One launch of a job: the launcher process, its ranks and their terminal.

* Ranks get the user's stdout and stderr as file descriptors over a socket, so their output passes
  through no launcher; slot 0 gets its stdin in the same way (see `standardinput`). The launcher's
  own output goes to a log, which is shown only if the job never came up.
* Ranks of other nodes connect to `ranklinks`. `launchwatch` finds out whether a launch has trouble.

Invariant: after `Launch.end` none of the launch's processes is left.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time

from ..fabric import story
from ..fabric.link import siblings
from ..host import private
from ..host.key import VARIABLE as KEY_VARIABLE
from ..host.key import Key
from ..host.processes import environment
from ..native import job
from ..native.shared import Process
from ..settings import options as settings
from . import failover, farlooks, hostchecks
from .connections import raise_file_limit
from .guardian import end_launcher, kill_all_of, remove_sessions
from .job import Job
from .mpirun import launcher_environment, make_session, mpirun_command, on_nodes
from .ranklinks import RankLinks
from .rankstate import Arrivals
from .relays import with_relays

BANNER = "-----"  # the launcher frames its explanations with such lines
SIGNED_BYTE = 127  # an exit status above this is a negative number
# The command is 'python -m ftrma', but never from a source directory that happens to be the current
# one. The program's signals are blocked at first, so that libraries which start threads before the
# program runs, such as NumPy, start them with these signals blocked. Otherwise a program that
# blocks a signal to wait for it would die of the signal in such a thread.
RANK = (
    "import sys; getattr(sys.flags, 'safe_path', 0) or sys.path.pop(0); "
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGUSR2)); "
    "from ftrma.program.main import main; main()"
)


def flags() -> list[str]:
    """Return the options that Python was started with (-O, -X dev, -W error), for the program's
    Python."""
    found: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return found


def hash_seed(key: Key) -> str:
    """Return PYTHONHASHSEED for a job's processes.

    With the same seed, a slot that is replayed or resumed iterates over sets in the same order as
    before.
    """
    return str(int.from_bytes(key.tag(b"hash seed")[:4], "little"))


class Launch:
    """One launch of the job: its launcher process and the ranks that have reported.

    Args:
        made: the job.

    Attributes:
        ranks: pidfd by pid of the ranks on this node. arrivals: how these ranks have arrived.
        came_up: when the launch began, time.monotonic().
    """

    def __init__(self, made: Job) -> None:
        self.made, self.directory, self.layout = made, made.directory, made.layout
        self.options, self.stdin = made.options, made.stdin
        directory, layout = self.directory, self.layout
        self.ctl = job.open_control(directory / "control")
        self.ranks: dict[int, int] = {}  # pid -> pidfd
        self.arrivals = Arrivals(0)
        self.living: set[int] = set()  # pidfds that are not known to have ended
        self.came_up = time.monotonic()
        terminal = directory / "terminal"
        terminal.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.socket.bind(str(terminal))
        self.socket.listen(layout.processes)
        raise_file_limit(5 * layout.processes + 128)
        self.rank_links = RankLinks(
            layout.processes, made.key, made.bind,
            functools.partial(story.emit, directory), functools.partial(story.read, directory),
            made.cause, failover.past(directory, made.options, made.begun_from),
            functools.partial(failover.trace_file, directory), self.stdin.serve_far,
            farlooks.seen(directory, layout) if made.may_spread else None,
        )
        self.log = directory / "launcher.log"
        self.session = make_session(directory)
        self.log.unlink(missing_ok=True)
        private.write(self.log, b"")
        self.mpirun = self._start()
        self.mpirun_fd = os.pidfd_open(self.mpirun.pid)
        self.ctl.launcher = self.mpirun.pid

    def _start(self) -> subprocess.Popen[bytes]:
        made = self.made
        ours = {**settings.to_environment(made.options), KEY_VARIABLE: made.key.text()}
        ours |= self.rank_links.environment()
        hostchecks.check_directory()
        words, more = on_nodes(self.session, several=made.may_spread)
        # Rules from the environment that have struck are out of force, see failover.cause_of.
        rest = {name: value for name, value in os.environ.items() if name != "FTRMA_KILL"}
        env = {"PYTHONHASHSEED": made.hash_seed or hash_seed(made.key), **rest}
        env |= {**launcher_environment(), **ours, **more}
        # The launcher passes only these variables on to other nodes.
        names = [*ours] if any("PYTHONHASHSEED" in word for word in made.words) else [
            "PYTHONHASHSEED", *ours]
        carried = [word for name in names for word in ("-x", name)]
        relayed = with_relays(
            made.words, self.layout.processes, self.session, self.log) if made.may_spread else None
        made.relayed = self.rank_links.ranks.relayed = relayed is not None
        options = [*words, *(relayed or made.words), *carried]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*mpirun_command(self.layout.processes, self.session, options),
                 sys.executable, *flags(), "-c", RANK, *made.program],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True,
                preexec_fn=job.die_with_parent(),
            )

    # -- the terminal -------------------------------------------------------------------------

    def serve_terminal(self, timeout_s: float) -> None:
        """Give the user's terminal to ranks that ask for it; return early if a process ends."""
        poll = select.poll()
        links = self.rank_links.fileno()
        for fd in (self.socket.fileno(), links, self.mpirun_fd, *self.living):
            poll.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(timeout_s * 1e3)]
        self.living -= set(ready)
        self.rank_links.pump()
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
                self.arrivals.expected = siblings(environment(pid))
                self.arrivals.note()
                self.living.add(self.ranks[pid])
            if link.recv(1) == b"s":
                with open(self.stdin.serve(), "rb", buffering=0) as stdin:
                    socket.send_fds(link, [b"s"], [stdin.fileno()])
            else:
                with open(os.devnull) as null:
                    socket.send_fds(link, [b"t"], [null.fileno(), 1, 2])

    # -- what is going on ---------------------------------------------------------------------

    def dead(self) -> list[int]:
        """Return the pids of ranks that have ended."""
        if not self.ranks:
            return []
        poll = select.poll()
        by_fd = {fd: pid for pid, fd in self.ranks.items()}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        return [by_fd[fd] for fd, _ in poll.poll(0)]

    def refused(self) -> str:
        """Return why a node does not take part, in words of `host.nodedirectory`; empty if all take
        part.

        The launcher itself goes on waiting for a daemon that could not be started.
        """
        said = self.log.read_text(errors="replace")
        return "; ".join(re.findall(r"^ftrma: error: (.*)", said, re.MULTILINE))

    def says_why(self) -> bool:
        """Say whether the launcher or a process has said why the launch does not come up.

        A death gives no reason, and need not happen again in the next launch. The same holds for an
        exit of the launcher without a message, unless its status is a negative error number and it
        had started nothing.
        """
        status, said = self.mpirun.poll(), self.log.read_text(errors="replace")
        if status is None:
            return BANNER in said or "error" in said.lower()
        by_number = status > SIGNED_BYTE and not self.ranks
        return (status > 0 and (by_number or BANNER in said)) or bool(self.refused())

    def procs(self) -> list[Process]:
        return [self.ctl.proc[i] for i in range(self.ctl.nprocs)]

    # -- the end ------------------------------------------------------------------------------

    def end(self, patience_s: float = 0.0) -> None:
        """End all processes of the launch.

        Args:
            patience_s: time for the launcher to end by itself.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.mpirun.wait(patience_s)  # ranks that are to end by themselves have done so by then
        for pid, fd in self.ranks.items():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                os.killpg(pid, signal.SIGKILL)  # together with its children
        end_launcher(self.mpirun)
        while len(self.dead()) < len(self.ranks):
            time.sleep(0.001)
        for fd in (*self.ranks.values(), self.mpirun_fd):
            os.close(fd)
        self.ranks.clear()
        kill_all_of(self.directory)
        self.rank_links.close()
        self.socket.close()
        remove_sessions(self.directory)
