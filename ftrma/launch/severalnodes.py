"""A launch over several nodes: watched by the ranks' connections.

Who dies is replaced by the others. The launch ends if they ask for it, if a node is lost, or if
they do not come to an end; then the job is launched again on the nodes that answer, see `failover`.
"""

from __future__ import annotations

import itertools
import socket
import time
from dataclasses import replace

from ..fabric import story
from ..fabric.story import Relaunch
from ..host.outfile import tell
from ..protocol.job_end import JobEnd, OwnExit
from . import eachhost, failover
from .endings import did_not_start, give_up, tell_own_end
from .job import LAUNCHER_DIED
from .launch import Launch
from .onenode import come_up_s
from .patience import Patience
from .reception import Peer
from .switchboard import describe

LAUNCHER_S = 2.0  # its daemons take the ranks along; whoever has not ended by then is made to
HEALED_S = 20.0  # a split that nobody has told for so long is over: a try takes 5 s and more
REPAIR_S = 10.0  # a repair takes milliseconds, unless it is told that bytes are on their way
PATIENCE_S = 2.0  # a launcher whose ranks are gone takes its daemons on other nodes along, if let


class SeveralNodes:
    """See `nodes.Nodes`."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.made, self.board = launch, launch.made, launch.switchboard
        self.launcher_died: float | None = None
        self.without: set[str] = set()  # hosts that are left because of a split
        self.patience = Patience()

    def left(self) -> tuple[dict[int, OwnExit], bool, bool]:
        return self.board.left()

    def begun(self) -> bool:
        return self.board.ranks.entered

    def hand_on(self, number: int, slots: set[int]) -> set[int]:
        self.board.hand_on(number)  # each rank looks whether its program handles it
        return set()

    def unheeded(self) -> list[tuple[int, int]]:
        said, self.board.ranks.unheeded = self.board.ranks.unheeded, []
        return said

    def killed(self) -> tuple[int, int] | None:
        return self.board.ranks.killed

    def look(self, *, undecided: bool) -> str | None:
        if self.board.done():
            return ""
        return None if undecided else self.trouble() or None

    def finish(self, own_end: JobEnd | None) -> int:
        self.end(final=True)
        for slot, peak_bytes in self.board.ranks.log_peaks.items():
            self.made.ctl.slots[slot].peak_bytes = peak_bytes  # as on one node
        ranks = self.board.ranks
        return tell_own_end(own_end or JobEnd(ranks.aborted or 0, ranks.why_aborted))

    def go_on(self, reason: str) -> int | None:
        made, board = self.made, self.board
        fell = self.fell() if self.launcher_died else []
        cause = failover.cause_of(board, made.directory, made.options, reason, fell)
        # A launch that follows another and to which nobody has come would come to nothing again.
        started = board.ranks.entered or (board.cause is not None and board.spread)
        hopeless = not started and self.launch.says_why()
        self.end(final=made.exhausted)
        failed = {} if board.ranks.entered else eachhost.failing(made.directory, made.words)
        if failed:
            reason = f"{reason}: {failover.tell_failed(failed)}"
        if made.exhausted or (hopeless and not failed):
            eachhost.sweep(made.directory, made.first_words)
            return give_up(reason, made.relaunches) if started else did_not_start(
                self.launch, reason
            )
        made.words = failover.next_hosts(
            board, made.words, made.layout, made.ended, failed,
            lambda host: bool(eachhost.failing_of(made.directory, made.words, [host])),
            self.without)
        # Only now, since a rank may have begun an entry up to its end.
        homes = {(*role, host) for role, host in board.ranks.homes.items()}
        if board.cause and not board.ranks.entered:
            homes |= {*board.cause.homes}  # what was to move may not have come
        made.cause = replace(cause, entry=board.ranks.entry + 1, homes=tuple(sorted(homes)))
        story.emit(made.directory, Relaunch(reason, cause.slots))
        tell(f"{reason}; launching the job again")
        return None

    def abandon(self) -> None:
        self.end(final=True)

    def end(self, *, final: bool) -> None:
        """End the launch on all nodes; if the job is over, what it has there goes, too."""
        self.board.end(final=final)
        self.launch.end(patience_s=PATIENCE_S)
        if final:
            failover.clean_up(self.board, self.made.directory, self.made.first_words)

    def trouble(self) -> str:
        """Why this launch cannot go on, in words; empty while it can."""
        launch, board = self.launch, self.board
        if launch.mpirun.poll() is not None:
            self.launcher_died = self.launcher_died or time.monotonic()
            late = time.monotonic() - self.launcher_died > LAUNCHER_S
            return self.launchers_end() if board.failure() or late else ""
        if board.ranks.wish:
            return board.ranks.wish
        if board.ranks.deaths and (board.nodes_gone() or not board.ranks.entered):
            return board.failure()
        if in_vain := self.waits_in_vain() or self.parted():
            return in_vain
        now, working = time.monotonic(), board.ranks.working
        if board.ranks.deaths and now - max(board.ranks.deaths[0].died_at, working) > REPAIR_S:
            return f"{board.failure()}, and the others have not come to an end with it"
        since = board.ranks.repairing
        if since and now - max(since, working) > REPAIR_S:
            return "a repair does not end: a process hangs inside the MPI library, perhaps"
        missing = launch.layout.processes - len(board.ranks.links)
        if missing and launch.refused():
            return launch.refused()
        known = {peer.pid for peer in board.ranks.links.values()}
        if missing and (board.ranks.unborn or any(pid not in known for pid in launch.dead())):
            return "a process died before it had joined"
        if missing and (host := self.lost_at_birth()):
            return f"a process on {host} died before it had come up"
        if missing and time.monotonic() - launch.came_up > come_up_s(launch.layout.processes):
            return f"{missing} of {launch.layout.processes} processes did not come up"
        return ""

    def parted(self) -> str:
        """Two nodes that the supervisor reaches do not reach each other, for longer than a network
        gets to come back: then the job goes on without one of them."""
        board, now = self.board, time.monotonic()
        for pair, split in list(board.ranks.splits.items()):
            both = " and ".join(sorted(pair))
            if now - split.newest > HEALED_S or not pair <= board.hosts_alive() or len(pair) < 2:
                del board.ranks.splits[pair]
                if split.told and pair <= board.hosts_alive():
                    tell(f"{both} reach each other again")
            elif not split.told:
                split.told = True
                tell(f"{both} do not reach each other; if that lasts for "
                     f"{failover.RETURN_S:.0f} s, the job goes on without one of them")
            elif now - split.since > failover.RETURN_S:
                self.without = {failover.side_to_leave(board, pair, self.launch.layout)}
                return f"{both} do not reach each other"
        return ""

    def lost_at_birth(self) -> str:
        """A host on which all have come but some; empty if there is none."""
        here = self.launch.arrivals
        hosts = [*self.board.ranks.arrivals.items(), (socket.gethostname(), here)]
        return next((host for host, arrivals in hosts if arrivals.lacking), "")

    def fell(self) -> list[Peer]:
        """All processes of a host, if they were the first to die, and the launcher was not killed:
        it ends by itself, and with it all others, when it has lost a daemon."""
        ranks, status = self.board.ranks, self.launch.mpirun.poll()
        if not ranks.deaths or (status is not None and status < 0):
            return []
        host = ranks.deaths[0].host
        first = list(itertools.takewhile(lambda peer: peer.host == host, ranks.deaths))
        there = {p.rank for p in ranks.links.values() if p.host == host}
        whole = there - ranks.spared == {peer.rank for peer in first}
        return first if whole and len(there) < len(ranks.links) else []

    def launchers_end(self) -> str:
        """Why the launcher has ended, in words."""
        if not (fell := self.fell()):
            return LAUNCHER_DIED
        hosts = [peer.host for peer in self.board.ranks.links.values()]
        died = describe([(peer.name, peer.host) for peer in fell], hosts)
        return f"{died}, and the launcher with it"

    def waits_in_vain(self) -> str:
        """A repair waits for a process that is stopped."""
        died = self.board.failure() or "a repair is under way"
        return self.patience.look(self.board.stopped(), died)
