"""Watches a launch over several nodes by the ranks' connections.

The ranks replace a dead process by themselves. The launch is ended if they ask for it, if a node is
lost and the others cannot repair that, or if a repair does not end. Then the job is launched again
on the nodes that answer, see `failover` and `nexthosts`.
"""

from __future__ import annotations

import itertools
import socket
import time
from dataclasses import replace

from ..fabric import story
from ..fabric.saved import Saved
from ..fabric.story import Relaunch
from ..host import timeouts
from ..host.errors import CATASTROPHE, NotRecoverable
from ..host.outfile import tell
from ..machine.topology import CHECKSUM_KIND, Layout
from ..protocol.job_end import JobEnd, OwnExit, decide_end
from . import eachhost, failover, nexthosts
from .connections import Peer
from .exitmessages import tell_exhausted, tell_not_started, tell_own_end
from .job import LAUNCHER_DIED
from .launch import Launch
from .mpirun import named_hosts
from .noprogress import no_progress
from .onenode import come_up_s
from .rankstate import describe
from .stoppedprocesses import StoppedProcesses


class SeveralNodes:
    """See `launchcontrol.LaunchControl`."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.made = launch, launch.made
        self.rank_links, self.ranks = launch.rank_links, launch.rank_links.ranks
        self.launcher_died: float | None = None
        self.without: set[str] = set()  # hosts to leave out because of a split
        self.given_up: set[str] = set()  # hosts without which the others go on, because of a split
        self.stopped_processes = StoppedProcesses()

    def ended_slots(self) -> tuple[dict[int, OwnExit], bool, bool]:
        return self.rank_links.ended_slots()

    def program_begun(self) -> bool:
        return self.ranks.entered

    def forward_signal(self, number: int, slots: set[int]) -> set[int]:
        self.rank_links.forward_signal(number)  # each rank checks whether its program handles it
        return set()

    def unhandled_signals(self) -> list[tuple[int, int]]:
        said, self.ranks.unheeded = self.ranks.unheeded, []
        return said

    def killed_by_signal(self) -> tuple[int, int] | None:
        return self.ranks.killed

    def saved(self, *, halt: bool) -> Saved | None:
        self.rank_links.ask_what_is_saved(halt=halt)
        return self.ranks.saved

    def check(self, *, undecided: bool) -> str | None:
        if self.ranks.over(self.rank_links.processes):
            return ""
        return None if undecided else self.trouble() or None

    def finish(self, own_end: JobEnd | None) -> int:
        self.end(final=True)
        for slot, peak_bytes in self.ranks.log_peaks.items():
            self.made.ctl.slots[slot].peak_bytes = peak_bytes  # as on one node
        if not own_end and self.ranks.aborted is None:  # all was over before that was judged
            left, failing, _ = self.ended_slots()
            own_end = decide_end(left, self.launch.layout.slots, failing=failing, waiting=False)
        return tell_own_end(own_end or JobEnd(self.ranks.aborted or 0, self.ranks.why_aborted))

    def prepare_next(self, reason: str) -> int | None:
        made, links, ranks = self.made, self.rank_links, self.ranks
        lost = self.lost_host() if self.launcher_died else []
        cause = failover.cause_of(links, made.directory, made.options, reason, lost)
        stuck = no_progress(made)
        # If no rank has come up in the first launch, none would come up in the next one.
        started = ranks.entered or (links.cause is not None and links.spread)
        hopeless = not started and self.launch.says_why()
        self.end(final=made.exhausted or bool(stuck))
        if stuck:
            return tell_own_end(stuck)
        failed = {} if ranks.entered else eachhost.failing(made.directory, made.words)
        if failed:
            reason = f"{reason}: {nexthosts.tell_failed(failed)}"
        if made.exhausted or (hopeless and not failed):
            eachhost.sweep(made.directory, made.first_words)
            return tell_exhausted(reason, made.relaunches) if started else tell_not_started(
                self.launch, reason
            )
        try:
            chosen = nexthosts.next_hosts(
                links, made.words, made.layout, made.ended, failed,
                lambda host: bool(eachhost.failing_of(made.directory, made.words, [host])),
                self.without, made.room)
        except NotRecoverable as error:
            tell(f"error: {reason}; {error}")
            if there := [host for host in named_hosts(made.words) if nexthosts.answers(host)]:
                eachhost.sweep(made.directory, made.words, there)
            return CATASTROPHE
        # The number of the attempt is read only now, since a rank may begin one up to the launch's
        # end.
        homes = self.homes_of_vaults(
            made.layout, weaker=chosen.layout.strength < made.layout.strength)
        made.go_on_with(*chosen)
        made.cause = replace(cause, attempt=ranks.attempt + 1, homes=tuple(sorted(homes)))
        story.emit(made.directory, Relaunch(reason, cause.slots))
        tell(f"{reason}; launching the job again")
        return None

    def homes_of_vaults(self, layout: Layout, *, weaker: bool) -> set[tuple[str, int, str]]:
        """Return kind, number and host of each role whose vault the next launch may find.

        Args:
            layout: layout of the launch that has ended.
            weaker: the next launch has fewer checksum ranks for each group, so these parities
                belong to a former layout.
        """
        links, ranks = self.rank_links, self.ranks
        homes = {(*role, host) for role, host in ranks.homes.items()}
        if ranks.entered:
            homes = {home for home in homes if "/" not in home[0]}
        elif links.cause:
            homes |= {*links.cause.homes}  # a role that was to move may not have moved
        if not weaker:
            return homes
        former = f"{CHECKSUM_KIND}/{layout.strength}"
        return {(former if kind == CHECKSUM_KIND else kind, index, host)
                for kind, index, host in homes}

    def abandon(self) -> None:
        self.end(final=True)

    def end(self, *, final: bool) -> None:
        """End the launch on all nodes; if the job is over, remove its files there, too."""
        self.rank_links.end(final=final)
        # A launcher that has lost a node would wait for that node's daemon.
        self.launch.end(patience_s=0.0 if self.ranks.lost else timeouts.DAEMONS.s)
        if final:
            failover.clean_up(self.rank_links, self.made.directory, self.made.first_words)

    def trouble(self) -> str:
        """Say why this launch cannot go on, in words; empty while it can.

        Each check returns None if it finds nothing; then the next check is made. It returns "" if
        it cannot know yet; then no other check is made.
        """
        for check in (self.launcher_gone, self.relaunch_wanted, self.node_lost,
                      self.waits_for_stopped, self.parted, self.endless_repair, self.not_come_up):
            why = check()
            if why is not None:
                return why
        return ""

    def launcher_gone(self) -> str | None:
        if self.launch.mpirun.poll() is None:
            return None
        self.launcher_died = self.launcher_died or time.monotonic()
        late = time.monotonic() - self.launcher_died > timeouts.LAUNCHER.s
        return self.why_launcher_ended() if self.ranks.failure() or late else ""

    def relaunch_wanted(self) -> str | None:
        return self.ranks.wish or None

    def node_lost(self) -> str | None:
        """Name a death that the ranks cannot repair: that of a whole node, or before the program's
        start."""
        ranks = self.ranks
        beyond = ranks.deaths and (ranks.nodes_gone() or not ranks.entered)
        return ranks.failure() if beyond else None

    def waits_for_stopped(self) -> str | None:
        """Say that a repair waits for a process that is stopped."""
        died = self.ranks.failure() or "a repair is under way"
        return self.stopped_processes.check(self.rank_links.stopped(), died) or None

    def endless_repair(self) -> str | None:
        """Say that a repair has neither ended nor moved any bytes for long."""
        ranks, now = self.ranks, time.monotonic()
        if ranks.deaths and now - max(ranks.deaths[0].died_at, ranks.working) > timeouts.REPAIR.s:
            return f"{ranks.failure()}, and the others have not come to an end with it"
        if ranks.repairing and now - max(ranks.repairing, ranks.working) > timeouts.REPAIR.s:
            return "a repair does not end: a process hangs inside the MPI library, perhaps"
        return None

    def not_come_up(self) -> str | None:
        """Name processes that have not come up, and never will."""
        launch, ranks = self.launch, self.ranks
        missing = launch.layout.processes - len(ranks.links)
        if not missing:
            return None
        if refused := launch.refused():
            return refused
        known = {peer.pid for peer in ranks.links.values()}
        if ranks.unborn or any(pid not in known for pid in launch.dead()):
            return "a process died before it had joined"
        if host := self.host_lacking_ranks():
            return f"a process on {host} died before it had come up"
        if time.monotonic() - launch.came_up > come_up_s(launch.layout.processes):
            return f"{missing} of {launch.layout.processes} processes did not come up"
        return None

    def parted(self) -> str | None:
        """Say that two nodes do not reach each other, although the supervisor reaches both.

        After `timeouts.RETURN` the job goes on without one of them: this node is given up, and the
        others repair that in place, or the launch ends.
        """
        ranks, now = self.ranks, time.monotonic()
        for pair, split in list(ranks.splits.items()):
            both = " and ".join(sorted(pair))
            alive = pair <= ranks.hosts_alive() - self.given_up
            if now - split.newest > timeouts.HEALED.s or not alive or len(pair) < 2:
                del ranks.splits[pair]
                if split.told and alive:
                    tell(f"{both} reach each other again")
            elif not split.told:
                split.told = True
                tell(f"{both} do not reach each other; if that lasts for "
                     f"{timeouts.RETURN.s:.0f} s, the job goes on without one of them")
            elif now - split.since > timeouts.RETURN.s:
                left = nexthosts.side_to_leave(self.rank_links, pair, self.launch.layout)
                if ranks.can_lose(left):
                    self.given_up.add(left)
                    self.rank_links.give_up(left)
                    continue
                self.without = {left}
                return f"{both} do not reach each other"
        return None

    def host_lacking_ranks(self) -> str:
        """Name a host on which some ranks have come up and others have not; empty if there is
        none."""
        here = self.launch.arrivals
        hosts = [*self.ranks.arrivals.items(), (socket.gethostname(), here)]
        return next((host for host, arrivals in hosts if arrivals.lacking), "")

    def lost_host(self) -> list[Peer]:
        """Return all processes of the host that was lost before the launcher ended; empty if none
        was.

        A launcher that has lost a daemon ends by itself, and all other processes end with it. A
        launcher that was killed ends, too, but without a lost host.
        """
        ranks, status = self.ranks, self.launch.mpirun.poll()
        if not ranks.deaths or (status is not None and status < 0):
            return []
        host = ranks.deaths[0].host
        first = list(itertools.takewhile(lambda peer: peer.host == host, ranks.deaths))
        there = {p.rank for p in ranks.links.values() if p.host == host}
        whole = there - ranks.spared == {peer.rank for peer in first}
        return first if whole and len(there) < len(ranks.links) else []

    def why_launcher_ended(self) -> str:
        """Say why the launcher has ended, in words."""
        if not (lost := self.lost_host()):
            return LAUNCHER_DIED
        hosts = [peer.host for peer in self.ranks.links.values()]
        died = describe([(peer.name, peer.host) for peer in lost], hosts)
        return f"{died}, and the launcher with it"
