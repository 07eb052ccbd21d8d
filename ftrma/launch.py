"""The supervisor behind ``ftrma run``: starts the job, watches over it, launches it again.

It owns everything that must outlive the processes: the job's directory in shared memory with the
vaults, the user's terminal, and the list of processes to reap. It takes no part in the protocols.

* Ranks get the user's stdin, stdout and stderr from it as file descriptors over a socket, so their
  output passes through no launcher. What the launcher itself says goes to a log, shown only if the
  job never came up.
* A job that cannot be repaired in place (no spare is left, the launcher died, a process hangs in
  the MPI library or died unnoticed) is ended and started again on the vaults that are left.
* A job over several nodes is watched by its ranks' connections instead of the control file (see
  `switchboard`); any death there ends the launch and starts the job again.
* Whatever happens, at the end there is no process and no file left.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _mpi, failover, job, link, settings, tracefile
from .errors import CATASTROPHE
from .mpirun import START_ATTEMPTS, launcher_environment, mpirun_command, split
from .stats import summary
from .sweep import kill_all_of, library_files, sweep_library_files
from .switchboard import Cause, Switchboard, raise_file_limit
from .topology import Layout
from .world import emit, make_control, open_control, read_events

# A slot that is replayed iterates over its sets in the order in which it did before.
HASH_SEED = str(secrets.randbelow(2**32))
STUCK_S = 5.0  # a call of MPI that goes on this long after a failure will never end
UNNOTICED_S = 2.0  # detection takes milliseconds; a death without an alarm after this is lost
COME_UP_S = 120.0  # importing on a slow, crowded machine takes seconds
NODES_S = 2.0  # a launcher whose ranks are gone takes its daemons on other nodes along, if let
# As 'python -m ftrma', but never from a source directory that happens to be the current one.
RANK = "import sys; del sys.path[0]; from ftrma.__main__ import main; main()"


class Interrupted(BaseException):
    """A signal asked the supervisor to end."""


class Signals:
    """Handler of the signals that ask for the end.

    They interrupt the watching. What ends a launch or prepares the next one is not interrupted, or
    processes and files would be left; it is bounded in time, and a signal takes effect after it.
    """

    def __init__(self) -> None:
        self.asked = 0  # number of the first signal
        self.watching = False

    def __call__(self, number: int, _frame: object) -> None:
        self.asked = self.asked or number
        if self.watching:
            self.watching = False
            raise Interrupted(self.asked)

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        try:
            self.watching = True
            if self.asked:
                raise Interrupted(self.asked)
            yield
        finally:
            self.watching = False


class Launch:
    """One launch of the job: its launcher process and the ranks that have reported.

    Args:
        cause: why a job over several nodes is launched again, if it is.
        words: options of the user's own for the launcher.
    """

    def __init__(self, directory: Path, layout: Layout, options: settings.Options,
                 script: str, arguments: list[str], words: Sequence[str] = (),
                 cause: Cause | None = None) -> None:  # fmt: skip
        self.directory, self.layout, self.options = directory, layout, options
        self.native = _mpi.load()
        self.ctl = open_control(self.native, directory)
        self.ranks: dict[int, int] = {}  # pid -> pidfd
        self.living: set[int] = set()  # pidfds that are not known to have ended
        self.seen_call: dict[int, tuple[int, float]] = {}
        self.came_up = time.monotonic()
        self.unnoticed_since: float | None = None
        self.prefixes: set[str] = set()
        terminal = directory / "terminal"
        terminal.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.socket.bind(str(terminal))
        self.socket.listen(layout.processes)
        raise_file_limit(4 * layout.processes + 64)
        self.switchboard = Switchboard(
            layout.processes, functools.partial(emit, directory),
            functools.partial(read_events, directory), cause, failover.past(directory, options),
        )  # fmt: skip
        self.log = directory / "launcher.log"
        ours = {**settings.to_environment(options), link.VARIABLE: self.switchboard.address.text()}
        if cause is not None:
            ours[link.SPREAD] = "1"  # even if one node is left
        # Rules from the environment that have struck are out of force, see failover.cause_of.
        rest = {name: value for name, value in os.environ.items() if name != "FTRMA_KILL"}
        env = {"PYTHONHASHSEED": HASH_SEED, **rest, **launcher_environment(), **ours}
        # To other nodes the launcher takes along only what it is told to.
        carried = [word for name in ours for word in ("-x", name)]
        with self.log.open("wb") as log:
            self.mpirun = subprocess.Popen(
                [*mpirun_command(layout.processes, [*words, *carried]), sys.executable, "-c", RANK,
                 script, *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True,
                preexec_fn=self.native.lib.ftrma_die_with_parent,
            )  # fmt: skip
        self.mpirun_fd = os.pidfd_open(self.mpirun.pid)

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
            self.ranks[pid] = os.pidfd_open(pid)
            self.living.add(self.ranks[pid])
            wants_stdin = link.recv(1) == b"s"
            with open(os.devnull) as null:
                stdin = 0 if wants_stdin else null.fileno()
                socket.send_fds(link, [b"t"], [stdin, 1, 2])

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
            return ""
        gone = self.dead()
        if len(gone) == len(self.ranks):
            return "all processes died"
        return self.unnoticed(gone) or self.stuck()

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

    def procs(self) -> list[Any]:
        return [self.ctl.proc[i] for i in range(self.ctl.nprocs)]

    def learn_library_files(self) -> None:
        for pid in self.ranks:
            self.prefixes |= library_files(pid)

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
        deadline = time.monotonic() + patience_s
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.mpirun.wait(deadline - time.monotonic())
        self.learn_library_files()
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
        self.prefixes |= kill_all_of(self.directory) | self.switchboard.ranks.files
        self.switchboard.close()
        self.socket.close()
        sweep_library_files(self.prefixes)


# ---- the supervisor -------------------------------------------------------------------------


def run(options: settings.Options, script: str, arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Run `script` protected to its end.

    Returns:
        The program's exit status, and the statistics of ``--stats``.

    Raises:
        ValueError: an option cannot be served. FtrmaError: the job could not be started.
    """
    layout = options.layout()
    for rule in options.kill:
        rule.check(layout)
    options.check_levels()
    native = _mpi.load()
    directory = job.make_directory(native, layout, options.log_budget)
    options.job = str(directory)
    signals = Signals()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        numbers.append(signal.SIGHUP)
    old = {s: signal.signal(s, signals) for s in numbers}
    try:
        settings.write_kill_rules(native.ffi, open_control(native, directory), options.kill)
        try:
            status = _supervise(directory, layout, options, script, arguments, signals)
        except Interrupted as interruption:
            status = 128 + int(interruption.args[0])
        if options.trace:
            _write_trace(directory, Path(options.trace), layout.slots, signals)
        stats = summary(read_events(directory), layout, status)
        ctl = open_control(native, directory)
        budget = int(ctl.log_bytes)
        logs = [{"peak_bytes": int(ctl.slots[s].peak_bytes), "budget_bytes": budget}
                for s in range(layout.slots)]  # fmt: skip
        return status, {**stats, "log": logs}
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        for number, handler in old.items():
            signal.signal(number, handler)


def _write_trace(directory: Path, to: Path, slots: int, signals: Signals) -> None:
    """Write the trace of a job that has ended or was interrupted; one more signal ends this.

    What the program did is not lost with it: that it could not be written is told.
    """
    signals.asked = 0
    try:
        with signals.heeded():
            tracefile.convert(directory, to, slots, read_events(directory))
    except ValueError as error:
        sys.stderr.write(f"ftrma: warning: {error}\n")
    except Interrupted:
        sys.stderr.write(f"ftrma: warning: interrupted while the trace {to} was written\n")


def _supervise(directory: Path, layout: Layout, options: settings.Options, script: str,
               arguments: list[str], signals: Signals) -> int:  # fmt: skip
    relaunches = attempts = 0
    words, cause = split(options.mpirun), None
    while True:
        launch = Launch(directory, layout, options, script, arguments, words, cause)
        try:
            with signals.heeded():
                reason = watch(launch)
        except BaseException:
            launch.end()
            failover.clean_up(launch.switchboard, directory, words)
            raise
        if launch.switchboard.spread:
            again = _next_spread(launch, words, reason, relaunches)
            if isinstance(again, int):
                return again
            words, cause = again
            relaunches += 1
            continue
        ctl, lib = launch.ctl, launch.native.lib
        noticed_ns = lib.ftrma_now_ns()
        if not reason:
            # Ranks end by themselves after the program's end; after an error they wait to be ended.
            status, aborted = int(ctl.exit_status), ctl.request == lib.FTRMA_ABORT
            launch.end(patience_s=0.0 if aborted else 2.0)
            if aborted:
                tell_why(directory)
            return status
        ctl.request = lib.FTRMA_RELAUNCH  # from here on deaths are ours, and nobody's business
        died = {i for i, p in enumerate(launch.procs()) if p.state == lib.FTRMA_DEAD}
        nobody_came = not launch.ranks
        launch.end()
        if nobody_came and attempts < START_ATTEMPTS:
            attempts += 1
            ctl.request = lib.FTRMA_NOTHING
            continue
        if cause or (not ctl.start_ns and not ctl.resume and "died" in reason):
            failover.clean_up(launch.switchboard, directory, words)
            sys.stderr.write(launch.log.read_text(errors="replace")[-4000:])
            once_more = " again" if cause else ""
            sys.stderr.write(f"ftrma: error: the job did not start{once_more}: {reason}\n")
            return CATASTROPHE if cause else 1
        if relaunches == options.max_relaunch:
            give_up(reason, relaunches)
            return CATASTROPHE
        relaunches += 1
        prepared = prepare_relaunch(launch, directory, layout, reason, died)
        if prepared is None:
            return CATASTROPHE
        version, lost_slots = prepared
        emit(
            directory, "relaunch", reason=reason, version=version, slots=lost_slots,
            noticed_ns=int(noticed_ns),
        )  # fmt: skip
        to = f"checkpoint {version}" if version else "the start"
        sys.stderr.write(f"ftrma: {reason}; launching the job again from {to}\n")


def give_up(reason: str, relaunches: int) -> None:
    sys.stderr.write(
        f"ftrma: error: {reason}, and the job was launched again {relaunches} times already "
        "(--max-relaunch); giving up\n"
    )


def _next_spread(
    launch: Launch, words: list[str], reason: str, relaunches: int
) -> int | tuple[list[str], Cause]:
    """End a launch over several nodes, for which `reason` says why it cannot go on, if so.

    Returns:
        The job's exit status if it is over; else the launcher's options and the cause of the next
        launch.
    """
    board, options = launch.switchboard, launch.options
    if not reason:
        launch.end()
        failover.clean_up(board, launch.directory, words)
        return board.ranks.aborted or 0
    cause = failover.cause_of(board, launch.directory, options, reason)
    started = board.ranks.entered or board.cause is not None
    final = not started or relaunches == options.max_relaunch
    launch.end(final=final)
    if final:
        failover.clean_up(board, launch.directory, words)
        if started:
            give_up(reason, relaunches)
            return CATASTROPHE
        sys.stderr.write(launch.log.read_text(errors="replace")[-4000:])
        sys.stderr.write(f"ftrma: error: the job did not start: {reason}\n")
        return 1
    words = failover.next_hosts(board, words, launch.layout)
    emit(launch.directory, "relaunch", reason=reason, slots=list(cause.slots))
    sys.stderr.write(f"ftrma: {reason}; launching the job again\n")
    return words, cause


def watch(launch: Launch) -> str:
    """Wait until the launch has ended ("") or cannot go on (the reason)."""
    ctl, lib = launch.ctl, launch.native.lib
    while True:
        launch.serve_terminal(0.1)
        if launch.switchboard.spread:
            reason = launch.spread_trouble()
            if reason or launch.switchboard.done():
                return reason
            continue
        if ctl.start_ns and not launch.prefixes:
            launch.learn_library_files()
        if ctl.request == lib.FTRMA_ABORT:
            return ""
        if ctl.request == lib.FTRMA_RELAUNCH:
            plans = [e for e in read_events(launch.directory) if e["event"] == "plan"]
            return str(plans[-1]["reason"])
        if launch.ended() and len(launch.dead()) == len(launch.ranks):
            return ""
        reason = launch.trouble()
        if reason:
            return reason


def tell_why(directory: Path) -> None:
    plans = [e for e in read_events(directory) if e["event"] == "plan"]
    if plans and plans[-1]["kind"] == "catastrophic":
        sys.stderr.write(f"ftrma: error: CatastrophicFailure: {plans[-1]['reason']}\n")
    elif plans and plans[-1]["kind"] == "refused":
        sys.stderr.write(
            f"ftrma: error: NotRecoverable: {plans[-1]['reason']}; with --policy auto the job goes "
            "back to its last checkpoint\n"
        )


def prepare_relaunch(
    launch: Launch, directory: Path, layout: Layout, reason: str, died: set[int]
) -> tuple[int, list[int]] | None:
    """Arrange the surviving vaults for the next launch. `died`: before it was ended.

    Returns:
        The version it goes on from and the slots whose vaults are lost; None if nothing is left.

    A vault is lost if its process died by itself while the others lived. When the launcher died,
    the processes died with it and not by themselves: their vaults are as good as they were.
    """
    ctl, lib = launch.ctl, launch.native.lib
    roles = ctl.roles[ctl.roles_seq & 1]
    holders = [roles.slot_proc[s] for s in range(layout.slots)]
    holders += [roles.checksum_proc[g] for g in range(layout.checksums)]
    version = int(ctl.commit >> 1)
    together = reason == failover.LAUNCHER_DIED or reason == "all processes died"
    lost = []
    for at, p in enumerate(holders):
        gone = p in died and not together
        if gone or not ctl.proc[p].ready or not (directory / f"vault-{p}").exists():
            lost.append(at)
    for group in range(layout.groups):
        names = [f"slot {s}" for s in layout.members(group) if s in lost]
        names += [f"checksum {c}" for c in layout.checksums_of(group) if layout.slots + c in lost]
        if version and len(names) > layout.strength:
            sys.stderr.write(
                f"ftrma: error: CatastrophicFailure: {reason}, and group {group} lost "
                f"{' and '.join(names)}; checkpoint version {version} cannot be rebuilt. Use "
                "smaller groups (--group-size) with more checksum ranks, and start again\n"
            )
            return None
    for at, p in enumerate(holders):
        if at not in lost:
            (directory / f"vault-{p}").rename(directory / f"kept-{at}")
    for path in directory.glob("vault-*"):
        path.unlink()
    for pattern in ("window-*", "log-*", "demand-*", "exchange", "trace-*"):
        for path in directory.glob(pattern):
            path.unlink()
    for path in directory.glob("kept-*"):
        path.rename(directory / path.name.replace("kept", "vault"))
    (directory / "control").unlink()
    new = make_control(launch.native, directory / "control", layout, int(ctl.log_bytes))
    new.commit, new.resume, new.nrules = version << 1, 1, ctl.nrules
    new.death_ns = lib.ftrma_now_ns() if together or not ctl.death_ns else ctl.death_ns
    launch.native.ffi.memmove(new.rules, ctl.rules, launch.native.ffi.sizeof(ctl.rules))
    for at in lost:
        new.lost[at] = 1
    return version, [at for at in lost if at < layout.slots]
