"""Tells where a job is, from its shared memory and its story, without asking the job.

`look` reads the job's directory on this node: the control file (`native.controlimage`), the heads
of the slots' logs, the story, the start record. Over several nodes each node's control file has the
words of all nodes. Only the node of ``ftrma run`` has the story, and also a control file with the
words that the nodes' agents have sent (`nodewords`).

Words are read one by one while the job changes them, so two of them may be from different moments:
a slot may appear dead in a job that appears whole. The next look is right.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..fabric import story
from ..fabric.story import (
    Checkpoint,
    Degraded,
    Entered,
    Event,
    Failure,
    Recovery,
    Reseat,
    Stall,
)
from ..host import lock, private
from ..host.errors import FtrmaError
from ..native.constants import CLAIM_TOLD, number
from ..native.controlimage import control_image, log_used_bytes
from ..native.shared import Control, Process, Roles
from ..protocol.stalls import WAITS_IN
from . import deadjobs, haltrequests, nodewords, stacks
from .effectivetime import EffectiveTime, began, effective_time
from .haltrequests import EndsInMind
from .stepcount import StepCount

ALIVE, DEAD = number("ALIVE"), number("DEAD")
ENDED, CALLS_INSIDE = number("ENDED"), number("CALLS_INSIDE")
STOPPED = ("T", "t")  # states of a process in /proc
LEAST_S = 1.0  # a rate over less time would be noise
LEFT_BEHIND = "left behind"  # state of a job without processes


@dataclass(frozen=True)
class SlotStatus:
    """The place and state of a slot.

    Attributes:
        group: the slot's group. pid: pid of its process. node: number of the process's node.
        state: "computes", "in MPI", "waits" (for others), "checkpoints", "is replayed",
            "is stopped" (by a signal or a debugger), "has ended", "died" or "is not there yet".
        waits_in: in which call it waits, in words; empty if it does not wait. awaited: the first
            slot that it waits for; None if there is none, or if it is not known.
        step: safepoints that it has passed, see `stepcount`; if a framework is told of deaths, the
            steps that the framework has counted.
        log_bytes: memory that its access logs use; None if they are on another node.
        log_peak_bytes: most that they have used.
    """

    slot: int
    group: int
    pid: int
    node: int
    state: str
    waits_in: str
    awaited: int | None
    step: int
    log_bytes: int | None
    log_peak_bytes: int


@dataclass(frozen=True)
class JobStatus:
    """The state of a job. Times are in seconds. None means unknown, or not there.

    Attributes:
        job: name of its directory. program: the program's words. supervisor: pid of ``ftrma run``.
        state: "starting", "running", "repairing", "replaying", "halting", "ending", or
            "left behind": its ``ftrma run`` was killed, and no process is left.
        began: when it began, in seconds since 1970; None on a node without its story, where only
            the slots are known. seconds: time since then.
        slots, checksums, spares, groups, strength: numbers of the layout; a group survives
            `strength` losses at a time.
        spares_left: number of living processes without a role.
        checksums_given_up, spares_given_up: how many were given up since the job began, because
            hosts were lost.
        degraded: number of groups that lack redundancy now. worst_lack: most members that a group
            lacks.
        version: the newest checkpoint; 0: the program's start. checkpoint_age_s: time since it.
        spilled: newest version in files; 0: none. spill_age_s: time since that checkpoint.
        protected_bytes: size of the newest checkpoint, over all slots.
        step: the smallest step of all slots; that of slot 0 if a framework is told of deaths.
        steps_per_s: rate since the last checkpoint or recovery, or, in `ftrma status --watch`,
            since the last look.
        checkpoints: number of each kind. deaths: number for each role. recoveries: number of each
            kind; "reseat" is the recovery of a checksum rank.
        launches: number of launches so far.
        log_budget_bytes: budget of each slot's logs.
        effective: the account of the job's time.
        loss_s: work that a rollback would throw away now. repair_s: mean time of the recoveries so
            far, without their replay.
        stalls: how often slots hung, with ``--stall``. hangs: which slots hang now, and where, in
            words; empty if none hangs.
        ends: why and when it is to end, in words; empty if nobody has asked for its end.
        each_slot: all slots; empty if they are on other nodes, from which nothing was heard yet.
    """

    job: str
    program: Sequence[str]
    supervisor: int
    state: str
    began: float | None
    seconds: float
    slots: int
    checksums: int
    spares: int
    groups: int
    strength: int
    spares_left: int
    checksums_given_up: int
    spares_given_up: int
    degraded: Sequence[int]
    worst_lack: int
    version: int
    checkpoint_age_s: float | None
    spilled: int
    spill_age_s: float | None
    protected_bytes: int
    step: int
    steps_per_s: float | None
    checkpoints: Mapping[str, int]
    deaths: Mapping[str, int]
    recoveries: Mapping[str, int]
    launches: int
    log_budget_bytes: int
    effective: EffectiveTime
    loss_s: float | None
    repair_s: float | None
    stalls: int
    hangs: str
    ends: str
    each_slot: Sequence[SlotStatus]

    def plain(self) -> dict[str, Any]:
        """Return the status for JSON."""
        return {**asdict(self), "effective": self.effective.plain()}


def jobs() -> Iterator[Path]:
    """Yield the directories of this user's jobs on this node, living and dead."""
    for directory in deadjobs.directories():
        if control_of(directory):
            yield directory


def control_of(directory: Path) -> Path | None:
    """Return the control file of a job on this node; None if there is none."""
    seen = directory / nodewords.SEEN
    for path in (directory / socket.gethostname() / "control", seen, directory / "control"):
        if path.exists() and (path != seen or knows_slots(path)):
            return path
    return None


def knows_slots(path: Path) -> bool:
    """Say whether a control file has words of a job's processes."""
    with control_image(path) as ctl:
        return any(ctl.proc[p].pid for p in range(ctl.nprocs))


def look(directory: Path, events: Sequence[Event], now: float) -> JobStatus:
    """Read where a job is.

    Args:
        events: events of its story.
        now: seconds since 1970.

    Raises:
        FtrmaError: the directory is no job of this version. OSError: the job has ended meanwhile.
    """
    path = control_of(directory)
    if path is None:
        raise FileNotFoundError(f"{directory} is gone")
    start = start_of(directory)
    committed = {e.version: e for e in events if isinstance(e, Checkpoint) and e.slot is None}
    with control_image(path) as ctl:
        known = any(ctl.proc[p].pid for p in range(ctl.nprocs))
        begins = start is None and not known  # its lock comes a moment after its control file
        roles = ctl.roles[ctl.roles_seq & 1]
        lacks = lacking(ctl, roles) if known else {}
        steps = StepCount(events, now, LEAST_S)
        here = ctl.nodes == 1 and path.name != nodewords.SEEN
        each = list(each_slot(ctl, roles, path.parent, steps.base, here=here)) if known else []
        version = int(ctl.commit >> 1) if known else max(committed, default=0)
        newest, files = committed.get(version), committed.get(int(ctl.spilled))
        told = bool(ctl.claim & CLAIM_TOLD)  # then only slot 0 counts, since others may be dead
        step = each[0].step if told and each else min((slot.step for slot in each), default=0)
        # A framework's attempt does not begin at the step of a checkpoint.
        counted = each and not (told and any(isinstance(e, Recovery) for e in events))
        return JobStatus(
            **of_story(events, ctl.nslots, version, start.began if start else None, now),
            job=directory.name, program=start.program if start else (), supervisor=ctl.supervisor,
            state=state_of(ctl, known, any(isinstance(e, Entered) for e in events),
                           alive=begins or is_alive(directory)),
            slots=ctl.nslots, checksums=ctl.nchecksums,
            spares=ctl.nprocs - ctl.nslots - ctl.nchecksums,
            groups=ctl.ngroups, strength=ctl.strength,
            spares_left=sum(1 for _ in spares(ctl, roles)),
            degraded=sorted(lacks), worst_lack=max(lacks.values(), default=0), version=version,
            checkpoint_age_s=age_s(newest, now), spilled=int(ctl.spilled),
            spill_age_s=age_s(files, now), protected_bytes=newest.bytes if newest else 0, step=step,
            steps_per_s=steps.rate(step, now, LEAST_S) if counted else None,
            log_budget_bytes=int(ctl.log_bytes),
            ends=ends(haltrequests.state_of(directory), now), each_slot=each,
        )


def of_story(
    events: Sequence[Event], slots: int, version: int, made: float | None, now: float
) -> dict[str, Any]:
    """Return the attributes of `JobStatus` that follow from a job's story.

    Args:
        slots, version: number of the job's slots, and its newest checkpoint.
        made: when the job was made, if that is known here.
    """
    since = began(events, now if made is None else made)
    deaths = Counter(e.role for e in events if isinstance(e, Failure))
    recovered = [e for e in events if isinstance(e, Recovery)]
    kinds = Counter(e.kind for e in recovered)
    kinds.update("reseat" for e in events if isinstance(e, Reseat))
    repairs = [e.seconds - e.phases.replay for e in recovered]
    taken = [e for e in events if isinstance(e, Checkpoint)]
    fewer = [e for e in events if isinstance(e, Degraded)]
    lost_from: dict[int, Event] = {}  # by version: its checkpoint, or the first entry from it
    for event in events:
        if isinstance(event, Checkpoint) and event.slot is None:
            lost_from[event.version] = event
        elif isinstance(event, Entered):
            lost_from.setdefault(event.version, event)
    return {
        "began": since if events or made is not None else None, "seconds": max(0.0, now - since),
        "checkpoints": dict(Counter(e.kind for e in taken)), "deaths": dict(deaths),
        "checksums_given_up": fewer[0].checksums_before - fewer[-1].checksums if fewer else 0,
        "spares_given_up": fewer[0].spares_before - fewer[-1].spares if fewer else 0,
        "recoveries": dict(kinds), "launches": sum(isinstance(e, Entered) for e in events),
        "effective": effective_time(events, slots, now),
        "loss_s": age_s(lost_from.get(version), now),
        "repair_s": sum(repairs) / len(repairs) if repairs else None,
        "stalls": sum(isinstance(e, Stall) for e in events), "hangs": hangs(events, now),
    }


def age_s(event: Event | None, now: float) -> float | None:
    """Return the seconds since an event; None if the event is not known."""
    return None if event is None else max(0.0, now - event.time)


@dataclass(frozen=True)
class _Start:
    program: list[str]
    began: float


def start_of(directory: Path) -> _Start | None:
    """Return a job's program, and when the job was made; None on a node without ``ftrma run``."""
    path = directory / "start"
    with contextlib.suppress(FtrmaError, OSError, ValueError, KeyError, TypeError):
        program = json.loads(private.read(path))["program"]
        return _Start([str(word) for word in program], os.stat(path).st_mtime)
    return None


def hangs(events: Sequence[Event], now: float) -> str:
    """Say which slots hang and where, as the supervisor has reported; empty if none hangs.

    Args:
        now: seconds since 1970.
    """
    for event in reversed(events):
        if isinstance(event, Stall):
            at = f"slot{'s' * (len(event.slots) > 1)} {', '.join(map(str, event.slots))}"
            still_s = event.seconds + max(0.0, now - event.time)
            return f"{event.kind} of {at} for {still_s:.0f} s: {'; '.join(event.places)}"
        if isinstance(event, Checkpoint | Recovery | Entered):
            return ""  # the slots have made progress since
    return ""


def ends(in_mind: EndsInMind | None, now: float) -> str:
    """Say why and when a job is to end; empty if no end is planned.

    Args:
        now: seconds since 1970.
    """
    if in_mind is None:
        return ""
    said = [in_mind.why] if in_mind.why else []
    asked = in_mind.request
    if asked and not asked.unset and not in_mind.why:
        said += [f"asked for, in {asked.after - now:.0f} s"] if asked.after > now else []
        said += [f"asked for, behind {asked.checkpoints} checkpoints"] if asked.checkpoints else []
    if in_mind.limit:
        said.append(f"time limit in {max(0.0, in_mind.limit - now):.0f} s")
    return "; ".join(said)


def is_alive(directory: Path) -> bool:
    """Say whether some process of the job is left on this node."""
    return lock.is_shared(directory)


def state_of(ctl: Control, known: bool, entered: bool, *, alive: bool) -> str:
    """Return the state of a job, see `JobStatus`.

    Args:
        known: whether this node has the words of the job's processes.
        entered: whether the slots have entered the program, according to the story.
    """
    if not alive:
        return LEFT_BEHIND
    if not known:
        return "running" if entered else "starting"
    if ctl.alarm >= ENDED:
        return "ending"
    if ctl.alarm != ctl.repaired:
        return "repairing"
    if not ctl.start_ns:
        return "starting"
    if ctl.replays:
        return "replaying"
    return "halting" if ctl.halt else "running"


def each_slot(
    ctl: Control, roles: Roles, directory: Path, base: int, *, here: bool
) -> Iterator[SlotStatus]:
    """Yield the status of each slot.

    Args:
        directory: of the job on this node.
        base: number of steps before this attempt.
        here: whether all processes are on this node.
    """
    for s in range(ctl.nslots):
        p, progress = ctl.proc[roles.slot_proc[s]], ctl.slots[s]
        state = slot_state(ctl, p, replayed=bool(progress.replaying), here=here)
        kind, awaited = p.awaits >> 32, int(p.awaits & 0xFFFFFFFF) - 1
        waits = state == "waits"
        yield SlotStatus(
            slot=s, group=roles.slot_group[s], pid=p.pid, node=p.node, state=state,
            waits_in=WAITS_IN.get(kind, "") if waits else "",
            awaited=awaited if waits and awaited >= 0 else None,
            step=int(p.step) if ctl.claim & CLAIM_TOLD else base + int(p.ordinal),
            log_bytes=log_used_bytes(directory / f"log-{s}"),
            log_peak_bytes=int(progress.peak_bytes),
        )


def slot_state(ctl: Control, p: Process, *, replayed: bool, here: bool) -> str:
    if p.state == DEAD:
        return "died"
    if p.state != ALIVE:
        return "is not there yet"
    if p.finished == ctl.attempt:
        return "has ended"
    if replayed:
        return "is replayed"
    if here and stacks.state_of(p.pid) in STOPPED:
        return "is stopped"
    if p.arrived > ctl.taken:
        return "checkpoints"
    if p.waiting:
        return "waits"
    return "in MPI" if p.calls & CALLS_INSIDE else "computes"


def lacking(ctl: Control, roles: Roles) -> dict[int, int]:
    """Return the groups that lack redundancy, each with the number of members without a whole
    vault."""
    found: Counter[int] = Counter()
    for s in range(ctl.nslots):
        if not has_vault(ctl.proc[roles.slot_proc[s]]):
            found[roles.slot_group[s]] += 1
    for c in range(ctl.nchecksums):
        if not has_vault(ctl.proc[roles.checksum_proc[c]]):
            found[c // ctl.strength] += 1
    return dict(found)


def has_vault(p: Process) -> bool:
    return p.state == ALIVE and bool(p.ready)


def spares(ctl: Control, roles: Roles) -> Iterator[int]:
    """Yield the living processes without a role."""
    holders = {roles.slot_proc[s] for s in range(ctl.nslots)}
    holders |= {roles.checksum_proc[c] for c in range(ctl.nchecksums)}
    for p in range(ctl.nprocs):
        if p not in holders and ctl.proc[p].state == ALIVE:
            yield p


def read(directory: Path, now: float) -> JobStatus:
    """Read where a job is, once; see `look`."""
    return look(directory, story.read(directory), now)
