"""Watches from outside whether the slots of a launch make progress, and acts if some do not.

The supervisor reads words of each slot in shared memory several times a second: safepoints, calls,
events, versions. The words of other nodes are sent by their agents (`farlooks`). `processlooks`
says what a slot is doing and where it is, and `protocol.stalls` judges.

* ``tell``: a line says which slots hang, where, and who waits for whom; another line says when they
  go on.
* ``replace``: the slot to blame is killed, which is a death like any other. If more would be lost
  than a group survives, or no spare is left, or no slot is to blame, the job is launched again
  instead, from all its vaults.
* ``halt``: the job ends, and one can go on from what was saved last.

Repairs, and ends that were asked for, have time-outs of their own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..fabric import story
from ..fabric.story import Stall
from ..host import timeouts
from ..host.outfile import tell
from ..native import job
from ..native.shared import Control, Proc, Process
from ..protocol import stalls
from ..protocol.stalls import Doing, SlotLook, Verdict
from ..settings.options import stall_limit
from .launch import Launch
from .processlooks import Found, ProcessLooks

# Time between two looks; a stall is reported within 1 s of its time-out. A look takes 2 us for each
# slot.
LOOK_S, MANY, LOOK_MANY_S = 0.25, 64, 0.5
MOST_STACKS = 8  # most stacks that are read for one verdict
Counters = tuple[int, ...]


@dataclass
class Track:
    """The state of one slot over several looks.

    Attributes:
        counters: its counters at the newest look; since: when they last changed, by
            time.monotonic().
        ordinal: number of its newest safepoint; stepped: when that was passed; 0: none in this
            attempt.
        replay_since: when its replay began; 0: it is not replayed.
    """

    counters: Counters = ()
    since: float = 0.0
    ordinal: int = 0
    stepped: float = 0.0
    replay_since: float = 0.0


@dataclass
class Longest:
    """The longest step that was seen, in seconds; 0 before there was one."""

    seconds: float = 0.0


@dataclass
class Outcome:
    """The action that a verdict requires of `launchwatch`.

    Attributes:
        relaunch: why the job is launched again; empty if it is not.
        halt: why the job ends; empty if it does not end.
    """

    relaunch: str = ""
    halt: str = ""


NOTHING = Outcome()
NOT_EXAMINED = Found(Doing.OUTSIDE)  # a slot that goes on


class StallWatch:
    """Watches the slots of one launch.

    Args:
        launch: the launch.
        ctl: control file that has the words of all slots.
        processes: looks at the processes.
    """

    def __init__(self, launch: Launch, ctl: Control, processes: ProcessLooks) -> None:
        self.launch, self.ctl, self.processes = launch, ctl, processes
        self.on_stall = launch.options.on_stall
        self.limit_s, self.times = stall_limit(launch.options.stall)
        self.tracks = [Track() for _ in range(launch.layout.slots)]
        self.longest = Longest()
        self.looked, self.look_s = 0.0, LOOK_S if len(self.tracks) <= MANY else LOOK_MANY_S
        self.version, self.committed_at = 0, time.monotonic()
        self.told: Verdict | None = None
        self.replacing = False
        self.lacking_since, self.told_lacking = 0.0, False

    def look(self) -> Outcome:
        """Look at all slots if it is time to, and act on the result."""
        now = time.monotonic()
        if not (self.limit_s or self.times) or now - self.looked < self.look_s:
            return NOTHING
        self.looked = now
        if not self.awaits_slots() or self.lacks_words(now):
            self.tracks = [Track() for _ in self.tracks]
            return NOTHING
        if self.ctl.commit >> 1 != self.version:
            self.version, self.committed_at = self.ctl.commit >> 1, now
        attempt, now_ns = int(self.ctl.attempt), job.now_ns()
        for slot, proc in enumerate(self.holders()):
            self.follow(slot, self.ctl.proc[proc], attempt, now, now_ns)
        limit_s = self.limit_s or stalls.limit_by_steps(self.times, self.longest.seconds)
        if limit_s is None:
            return NOTHING
        verdict = stalls.judge(self.looks(now, limit_s), limit_s, by_steps=bool(self.times))
        if verdict is None:
            self.tell_over(now)
            return NOTHING
        verdict = self.blame_servers(verdict)
        if self.told and {*verdict.slots} <= {*self.told.slots} and verdict.kind == self.told.kind:
            return NOTHING
        return self.act(verdict, self.looks(now, limit_s, all_of_them=True))

    # -- looking ------------------------------------------------------------------------------

    def awaits_slots(self) -> bool:
        """Say whether slots should make progress: the program runs, and nothing else is under
        way."""
        ctl = self.ctl
        return bool(ctl.start_ns and ctl.alarm == ctl.repaired and not ctl.halt
                    and ctl.request == job.Request.NOTHING)

    def lacks_words(self, now: float) -> bool:
        """Say whether some slot's words have not come yet; if they do not come at all, tell the
        user once."""
        lacking = [slot for slot, proc in enumerate(self.holders())
                   if not self.ctl.proc[proc].pid]
        if not lacking:
            self.lacking_since = 0.0
            return False
        self.lacking_since = self.lacking_since or now
        if now - self.lacking_since > timeouts.SIBLINGS.s and not self.told_lacking:
            self.told_lacking = True
            tell(f"warning: --stall: nothing is heard of {stalls.names(lacking)}; "
                 "until it is, none is watched: let each node connect to ftrma run by TCP")
        return True

    def holders(self) -> list[Proc]:
        """Return the process of each slot."""
        roles = self.ctl.roles[self.ctl.roles_seq & 1]
        return [roles.slot_proc[slot] for slot in range(len(self.tracks))]

    def checksums(self) -> list[Proc]:
        """Return the process of each checksum rank."""
        roles = self.ctl.roles[self.ctl.roles_seq & 1]
        return [roles.checksum_proc[c] for c in range(self.ctl.nchecksums)]

    def follow(self, slot: int, p: Process, attempt: int, now: float, now_ns: int) -> None:
        """Note what has changed at one slot since the last look.

        Args:
            p: the process that holds the slot.
            attempt: number of the attempt.
            now: time.monotonic(); now_ns: `job.now_ns`.
        """
        words, track = self.ctl.slots[slot], self.tracks[slot]
        counters = (p.pid, attempt, p.calls, p.ordinal, p.syncs, words.clock, words.events,
                    p.staged, p.finished, p.mails, words.replaying)
        if counters[:2] != track.counters[:2]:
            self.tracks[slot] = track = Track(ordinal=counters[3])
        ordinal = counters[3]
        if ordinal > track.ordinal:
            if track.stepped:
                step_s = (now - track.stepped) / (ordinal - track.ordinal)
                self.longest.seconds = max(self.longest.seconds, step_s)
            track.ordinal, track.stepped = ordinal, now
        if counters != track.counters or p.busy_until_ns > now_ns:
            track.counters, track.since = counters, now
        track.replay_since = (track.replay_since or now) if counters[-1] else 0.0

    def looks(self, now: float, limit_s: float, *, all_of_them: bool = False) -> list[SlotLook]:
        """Return all slots as `protocol.stalls` needs them; only those that stand still are
        examined.

        Args:
            all_of_them: examine all.
        """
        times, holders = [], self.holders()
        for track in self.tracks:
            still_s = now - track.since
            if track.replay_since:
                # The slot repeats what it had done since the checkpoint, and makes no calls.
                still_s -= track.replay_since - min(self.committed_at, track.replay_since)
            times.append((still_s, now - track.stepped if track.stepped else 0.0))
        wanted = [holders[slot] for slot, (still_s, _) in enumerate(times)
                  if still_s >= limit_s or all_of_them]
        found = self.processes.examine(wanted) if wanted else {}
        looks = []
        for slot, (still_s, step_s) in enumerate(times):
            at = found.get(holders[slot], NOT_EXAMINED)
            looks.append(SlotLook(slot, still_s, step_s, at.doing, at.call, at.kind, at.awaited))
        return looks

    def blame_servers(self, verdict: Verdict) -> Verdict:
        """Blame a checksum rank that all wait for because it is stopped; without one, return the
        same verdict."""
        if verdict.kind != "deadlock":
            return verdict
        servers = self.checksums()
        found = self.processes.examine(servers)
        stopped = tuple(c for c, p in enumerate(servers) if found[p].doing is Doing.STOPPED)
        return Verdict("checksum", stopped, verdict.seconds) if stopped else verdict

    # -- acting -------------------------------------------------------------------------------

    def act(self, verdict: Verdict, looks: list[SlotLook]) -> Outcome:
        """Tell the user of a job that hangs, and do what the user has chosen."""
        holders = self.checksums() if verdict.kind == "checksum" else self.holders()
        mine = [holders[index] for index in verdict.slots]
        tell(in_words(verdict, looks))
        places = self.tell_places(verdict, looks, mine)
        replaces = self.on_stall == "replace"
        story.emit(self.launch.directory, Stall(
            kind=verdict.kind, slots=verdict.slots, seconds=round(verdict.seconds, 3),
            places=tuple(places), action=self.on_stall,
            pids=tuple(self.ctl.proc[proc].pid for proc in mine) if replaces else ()))
        self.told = verdict
        if self.on_stall == "halt":
            return Outcome(halt=f"--on-stall halt: {short(verdict)}")
        return self.replace(verdict, looks, mine) if replaces else NOTHING

    def tell_places(
        self, verdict: Verdict, looks: list[SlotLook], procs: list[Proc]
    ) -> list[str]:
        """Say in which line each slot of a verdict is, and who waits for whom.

        Args:
            procs: the processes that hold the slots of the verdict.
        """
        shown = {} if verdict.kind == "checksum" else {
            slot: proc for slot, proc in zip(verdict.slots[:MOST_STACKS], procs, strict=False)
            if looks[slot].doing not in (*stalls.OVER, Doing.SILENT)}
        found = self.processes.places(shown.values()) if shown else {}
        places = [f"slot {slot}: {found[proc]}" for slot, proc in shown.items() if proc in found]
        for place in places:
            tell(f"  {place}")
        if places and not self.processes.names_lines():
            tell("  (install py-spy to have the line of Python named: pip install 'ftrma[stacks]')")
        waiting = stalls.who_waits(
            looks, () if verdict.kind in ("deadlock", "checksum") else verdict.slots)
        if waiting:
            tell(f"  {waiting}")
        return [*places, *filter(None, [waiting])]

    def replace(self, verdict: Verdict, looks: list[SlotLook], procs: list[Proc]) -> Outcome:
        """Kill the processes to blame, or have the job launched again.

        Args:
            procs: the processes to blame.
        """
        spares = sum(1 for p in map(self.ctl.proc.__getitem__, range(self.ctl.nprocs))
                     if p.state == job.ProcessState.ALIVE) - len(self.tracks) - self.ctl.nchecksums
        roles = self.ctl.roles[self.ctl.roles_seq & 1]
        groups = [roles.slot_group[slot] for slot in range(len(self.tracks))]
        if verdict.kind == "checksum":
            killable = len(procs) <= min(spares, self.ctl.strength)
        else:
            reached = all(looks[slot].doing is not Doing.SILENT for slot in verdict.slots)
            killable = reached and verdict.kind == "stall" and stalls.may_be_killed(
                verdict.slots, groups, self.ctl.strength, spares)
        if not killable:
            return Outcome(relaunch=f"the job hangs: {short(verdict)}")
        tell(f"{whom(verdict)} {'is' if len(procs) == 1 else 'are'} killed, to be replaced "
             "(--on-stall replace)")
        self.replacing = True  # this is done once, however long the death takes
        self.processes.kill(procs)
        return NOTHING

    def tell_over(self, now: float) -> None:
        """Say that the slots that were reported to hang go on."""
        if self.told is None:
            return
        told, self.told = self.told, None
        if self.replacing:
            self.replacing = False
        elif told.kind == "stall":
            tell(f"{whom(told)} {'goes' if len(told.slots) == 1 else 'go'} on")
        else:
            tell("the job goes on")


def whom(verdict: Verdict) -> str:
    """Name the slots or checksum ranks to blame."""
    if verdict.kind == "checksum":
        return " and ".join(f"checksum {c}" for c in verdict.slots)
    return stalls.names(verdict.slots)


def short(verdict: Verdict) -> str:
    """Say in a few words who hangs."""
    have = "has" if len(verdict.slots) == 1 else "have"
    if verdict.kind == "deadlock":
        return f"{whom(verdict)} have waited for each other for {verdict.seconds:.1f} s"
    if verdict.kind == "circle":
        return (f"no slot has passed a safepoint for {verdict.seconds:.1f} s, though calls of MPI "
                "are made")
    if verdict.kind == "checksum":
        are = "is" if len(verdict.slots) == 1 else "are"
        return f"{whom(verdict)} {are} stopped, and slots wait for a checkpoint"
    return f"{whom(verdict)} {have} stood still for {verdict.seconds:.1f} s"


def in_words(verdict: Verdict, looks: list[SlotLook]) -> str:
    """Say who hangs, and what those to blame are doing."""
    if verdict.kind != "stall":
        return short(verdict)
    doing = {looks[slot].doing for slot in verdict.slots}
    if len(doing) > 1:
        return short(verdict)
    they = "it is" if len(verdict.slots) == 1 else "they are"
    return f"{short(verdict)}; {they} {doing.pop().value}"

