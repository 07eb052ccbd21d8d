"""A job in one process: its slots are threads, and a death is the end of one.

`FakeView` is a `JobView` for tests that need a job and no processes. Its code is simple enough to
be right: one lock, one condition, sets of who came. It keeps the laws of `fabriclaws`, as the real
views do; mypy compares its types with `ftrma.fabric.view`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ftrma.fabric.plans import PublishedPlan
from ftrma.fabric.remote import Files
from ftrma.fabric.round_changed import RoundChanged
from ftrma.fabric.story import Event
from ftrma.fabric.view import JobView
from ftrma.fabric.words import Words
from ftrma.host.errors import Rollback
from ftrma.host.key import Key
from ftrma.host.record import Seal
from ftrma.machine.topology import NO_LEVEL, Domains, Layout
from ftrma.native import job as native
from ftrma.native.constants import CLAIM_FORFEIT, CLAIM_SEATED, CLAIM_TOLD, SLOT, SPARE
from ftrma.native.shared import Proc, Progress, Slot, Version

PATIENCE_S = 10.0
START = Version(0)


class Died(BaseException):
    """Ends a slot's thread: its process was killed."""


@dataclass
class FakeProcessWords:
    """Words of one process."""

    ordinal: int = 0
    step: int = 0
    verdict: int = 0
    arrived: int = 0
    staging: int = 0
    staged: Version = START
    summed: Version = START
    folded: Version = START
    spilled: Version = START
    ready: int = 1
    finished: int = 0
    blocks: int = 0
    bytes: int = 0
    dirty_bytes: int = 0
    block_ns: int = 0
    protect_hash: int = 0
    reported: int = 0
    syncs: int = 0
    busy_until_ns: int = 0
    rebuilding: int = 0
    pid: int = 0
    dead: bool = False
    lacked_memory: bool = False
    waits: bool = False


@dataclass
class FakeWords:
    """Words of the job; each view of the job has its own `me` beside them."""

    processes: list[FakeProcessWords]
    slots: list[Any]
    checkpoint_target: int = 0
    checkpoint_wanted: int = 0
    spill: Version = START
    spilled: Version = START
    checkpoint_taken: int = 0
    halt: int = 0
    halting: int = 0
    attempt: int = 1
    causal: int = 0
    replays: int = 0
    plan_round: int = 0
    repaired_round: int = 0
    connect_wanted: int = 0
    failed_connects: int = 0
    dynamic: int = 0
    start_ns: int = 0
    request: int = 0
    committed: Version = START
    resumed: bool = False
    from_files: bool = False
    supervised: bool = False
    capacity_blocks: int = 1 << 20
    log_bytes: int = 1 << 20
    partitioned: bool = False
    death_ns: int = 0
    exit_status: int = 0
    error_owner: int = 0
    refusal: str = ""
    forbidden: bool = False
    told: set[object] = field(default_factory=set)

    def refuse_files(self) -> None:
        self.from_files = False

    @property
    def me(self) -> FakeProcessWords:
        raise AssertionError("only one process's view has words of its own")

    def process(self, proc: Proc) -> FakeProcessWords:
        return self.processes[proc]

    def slot(self, slot: Slot) -> Progress:
        found: Progress = self.slots[slot]
        return found

    def commit(self, version: Version) -> bool:
        may = not self.forbidden and version == self.committed + 1
        self.committed = version if may else self.committed
        return may

    def set_committed(self, version: Version) -> None:
        self.committed, self.forbidden = version, False

    def forfeit(self) -> None:
        self.committed, self.forbidden = Version(0), True

    def forbid_commits(self) -> None:
        self.forbidden = True

    def allow_commits(self) -> None:
        self.forbidden = False

    def _first(self, what: object) -> bool:
        first = what not in self.told
        self.told.add(what)
        return first

    def first_to_report(self, proc: Proc) -> bool:
        self.processes[proc].reported = 1
        return self._first(("death", proc))

    def first_to_tell_full(self, step: int) -> bool:
        return self._first(("full", step))

    def first_to_tell_demand(self) -> bool:
        return self._first("demand")

    def clear_refusal(self) -> None:
        self.refusal = ""


class WordsOfOne:
    """The job's words as one process sees them: `me` are its own."""

    def __init__(self, shared: FakeWords, proc: Proc) -> None:
        self.__dict__["shared"], self.__dict__["me"] = shared, shared.processes[proc]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shared, name)

    def __setattr__(self, name: str, value: Any) -> None:
        assert hasattr(self.shared, name), name
        setattr(self.shared, name, value)


class FakeJob:
    """State that the processes share.

    Args:
        slots: how many; there are no checksum ranks and spares.

    Attributes:
        status: with which the job was aborted; None if it was not.
    """

    def __init__(self, slots: int, directory: Path) -> None:
        self.slots, self.directory = slots, directory
        self.layout = Layout(slots, 0, 0, slots, (0,) * slots)
        self.changed = threading.Condition()
        self.words = FakeWords([FakeProcessWords(pid=1 + p) for p in range(slots)],
                               [SimpleNamespace(replaying=0, entered=1) for _ in range(slots)])
        self.holders = [Proc(p) for p in range(slots)]
        self.dead: set[int] = set()
        self.alarm = self.bell = 0
        self.barriers = [0] * slots
        self.met = [(0, 0)] * slots
        self.values: list[int | None] = [None] * slots
        self.ended: set[int] = set()
        self.story: list[Event] = []
        self.owner: int | None = None
        self.status: int | None = None
        self.plan = PublishedPlan()
        self.claimant, self.claim = "", 0
        self.key = Key(bytes(32))
        self.vaults_lost: set[int] = set()

    def run(self, body: Callable[[FakeView], Any]) -> dict[int, Any]:
        """Run a body on all slots; what it returns by slot, without those that died.

        Raises:
            BaseException: the first that a slot has raised.
        """
        results: dict[int, Any] = {}
        errors: list[BaseException] = []

        def slot(number: int) -> None:
            try:
                results[number] = body(FakeView(self, Proc(number)))
            except Died:
                pass
            except BaseException as error:
                errors.append(error)
                with contextlib.suppress(Died):
                    self.kill(number)  # or the others would wait for it

        threads = [threading.Thread(target=slot, args=(s,), daemon=True) for s in range(self.slots)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        if errors:
            raise errors[0]
        assert not any(thread.is_alive() for thread in threads), "a slot waits for ever"
        return results

    def kill(self, slot: int) -> None:
        """Death and alarm; the repair of an earlier one starts over."""
        with self.changed:
            self.dead.add(slot)
            self.words.processes[slot].dead = True
            if len(self.ended) < self.slots:
                self.alarm += 1
            self.changed.notify_all()
        raise Died


class FakeView:
    """The job as one of its processes sees it, see `ftrma.fabric.view.JobView`."""

    domains: Domains | None = None
    aware = NO_LEVEL
    remote_files: Files | None = None
    post_office: Any = None
    several_nodes = False
    critical: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    leads_node = False
    takeover_pending = False

    def __init__(self, job: FakeJob, proc: Proc) -> None:
        self.job, self.proc, self.directory, self.layout = job, proc, job.directory, job.layout
        self.words: Any = WordsOfOne(job.words, proc)
        self.policy, self.fresh = "rollback", False
        self.mapped_vaults: dict[Proc, Any] = {}
        self.told: list[str] = []
        self.visited: list[str] = []
        self.left = False

    # -- membership ---------------------------------------------------------------------------

    def role(self) -> tuple[int, int]:
        return self.role_of(self.proc)

    def role_of(self, proc: Proc) -> tuple[int, int]:
        if proc in self.job.holders:
            return SLOT, self.job.holders.index(proc)
        return SPARE, 0

    def all_slots(self) -> list[Slot]:
        return [Slot(s) for s in range(self.job.slots)]

    def all_procs(self) -> list[Proc]:
        return [Proc(p) for p in range(self.layout.processes)]

    def slot_holders(self) -> list[Proc]:
        return list(self.job.holders)

    def checksum_holders(self) -> list[Proc]:
        return []

    def spares(self) -> list[Proc]:
        return []

    def set_holders(self, slots: Sequence[Proc], checksums: Sequence[Proc]) -> None:
        self.job.holders = list(slots)

    def reach_holders(self) -> None:
        pass

    def alive(self, proc: Proc) -> bool:
        with self.job.changed:
            return proc >= 0 and proc not in self.job.dead

    def ready(self, proc: Proc) -> bool:
        return self.alive(proc) and bool(self.words.process(proc).ready)

    def host_of(self, proc: Proc) -> str:
        return ""

    def lost_with_node(self, proc: Proc) -> bool:
        return False

    def slots_here(self) -> list[Slot]:
        return self.all_slots()

    def may_commit(self, checksum: int) -> bool:
        return True

    def set_policy(self, policy: str, *, fresh: bool) -> None:
        self.policy, self.fresh = policy, fresh

    def logs_accesses(self, *, trace: bool) -> bool:
        return trace or self.policy != "rollback"

    def set_claimant(self, name: str, bits: int) -> None:
        self.job.claimant, self.job.claim = name, bits

    @property
    def claimant(self) -> str:
        return self.job.claimant

    @property
    def may_forfeit(self) -> bool:
        return bool(self.job.claim & CLAIM_FORFEIT)

    @property
    def tells_deaths(self) -> bool:
        return bool(self.job.claim & CLAIM_TOLD)

    def tell_deaths(self, tells: bool) -> None:
        gone = CLAIM_TOLD if tells else CLAIM_TOLD | CLAIM_SEATED
        self.job.claim = self.job.claim & ~gone | CLAIM_TOLD * tells

    @property
    def keeps_seats(self) -> bool:
        return bool(self.job.claim & CLAIM_SEATED)

    def keep_seats(self) -> None:
        self.job.claim |= CLAIM_SEATED

    # -- meeting ------------------------------------------------------------------------------

    def visit(self, place: str) -> None:
        self.visited.append(place)

    def visit_named(self, place: str) -> None:
        self.visited.append(place)

    def die(self) -> None:
        """Be killed here."""
        self.job.kill(self.proc)

    def alarmed(self) -> bool:
        with self.job.changed:
            return self.job.alarm > 0

    def is_ending(self) -> bool:
        return self.requested_round() == native.ENDED

    def unwind_if_alarmed(self) -> None:
        if self.alarmed():
            raise Rollback("a process failed")

    def barrier(self) -> None:
        job = self.job
        with job.changed:
            mine = job.barriers[self.proc] = job.barriers[self.proc] + 1
            job.changed.notify_all()
            self._until(lambda: min(job.barriers) >= mine)

    def slot_that_differs(self, value: int) -> int | None:
        self.job.values[self.proc] = value
        self.barrier()
        different = next((s for s, v in enumerate(self.job.values) if v != value), None)
        self.barrier()
        return different

    def end_program(self) -> None:
        job = self.job
        with job.changed:
            job.ended.add(self.proc)
            job.changed.notify_all()
            self._until(lambda: len(job.ended) == job.slots)

    def _until(self, condition: Callable[[], bool]) -> None:
        """Wait with the lock held; a failure comes first only if the condition has not."""
        job = self.job
        job.changed.wait_for(lambda: condition() or job.alarm > 0, PATIENCE_S)
        if not condition():
            raise Rollback("a process failed")

    def requested_round(self) -> int:
        with self.job.changed:
            return self.job.alarm

    def begin_round(self) -> int:
        return self.requested_round()

    def meet(self, round_number: int, phase: int, *, planned: bool = True) -> None:
        job, mark = self.job, (round_number, phase)
        with job.changed:
            job.met[self.proc] = mark
            job.changed.notify_all()
            came = job.changed.wait_for(
                lambda: job.alarm != round_number or all(
                    job.met[s] >= mark for s in range(job.slots) if s not in job.dead),
                PATIENCE_S,
            )
            if not came or job.alarm != round_number or (planned and job.dead):
                raise RoundChanged

    def synchronize(self) -> None:
        pass

    def raise_alarm(self, round_number: int) -> None:
        with self.job.changed:
            if self.job.alarm == round_number:
                self.job.alarm += 1
                self.job.changed.notify_all()

    def leave_round(self, round_number: int) -> None:
        pass

    @property
    def bell(self) -> int:
        return self.job.bell

    def ring(self) -> None:
        with self.job.changed:
            self.job.bell += 1
            self.job.changed.notify_all()

    def wait_for_bell(self, seen: int, timeout_us: int) -> None:
        with self.job.changed:
            self.job.changed.wait_for(lambda: self.job.bell != seen, timeout_us / 1e6)

    def arrive(self, ordinal: int, *, targeted: bool) -> native.Wait:
        self.words.me.arrived = ordinal
        return self._await(lambda words: words.arrived >= ordinal)

    def admit(self, version: Version, *, wait: bool = True) -> bool:
        return True  # there are no parities

    def await_staged(self, version: Version) -> bool:
        return self._await(lambda words: words.staged >= version) is native.Wait.OK

    def _await(self, condition: Callable[[FakeProcessWords], bool]) -> native.Wait:
        """Wait until a condition holds for all slots' processes, or a failure comes."""
        holders = [self.job.words.processes[p] for p in self.slot_holders()]
        with self.job.changed:
            self.job.changed.notify_all()
            try:
                self._until(lambda: all(map(condition, holders)))
            except Rollback:
                return native.Wait.ALARM
        return native.Wait.OK

    # -- files --------------------------------------------------------------------------------

    def seal(self, version: int | str) -> Seal:
        return Seal(self.job.key, f"slot {self.role()[1]}", str(version))

    def vault_path(self, proc: Proc) -> Path:
        return self.directory / f"vault-{proc}"

    def rename_vault(self) -> None:
        pass

    def share_vault(self) -> None:
        pass

    def put_vault_aside(self, proc: Proc) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.vault_path(proc).rename(self.directory / f"lost-{proc}")

    def free_lost_vaults(self) -> None:
        for path in self.directory.glob("lost-*"):
            path.unlink(missing_ok=True)

    def remove_moved_vaults(self) -> None:
        pass

    def finish_takeover(self) -> None:
        pass

    def mark_vault_lost(self, at: int) -> None:
        self.job.vaults_lost.add(at)

    def is_vault_lost(self, at: int) -> bool:
        return at in self.job.vaults_lost

    def share_log(self, slot: Slot) -> None:
        pass

    def fetch_log(self, slot: Slot) -> None:
        pass

    def hold_accesses(self) -> None:
        pass

    def release_accesses_to(self, slot: Slot) -> None:
        pass

    def release_accesses(self, *, causally: bool) -> None:
        pass

    # -- reporting ----------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        with self.job.changed:
            self.job.story.append(event)

    def events(self) -> list[Event]:
        with self.job.changed:
            return list(self.job.story)

    def tell(self, text: str) -> None:
        self.told.append(text)

    def open_trace(self) -> None:
        pass

    def trace_of_late(self, number: int) -> int:
        return -1

    def place_of_kill(self, role: int, index: int) -> str:
        return "unknown"

    def begin_attempt(self, number: int) -> None:
        self.job.owner, self.job.words.attempt = None, number

    def end_attempt(self, number: int) -> None:
        pass

    def report_plan(self, number: int) -> None:
        pass

    def report_work(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def report_repaired(self, number: int) -> None:
        pass

    def report_lost_spare(self, proc: Proc) -> None:
        pass

    def claim_error(self, *, meanwhile: Callable[[], object] | None = None) -> bool:
        if meanwhile:
            meanwhile()
        with self.job.changed:
            if self.job.owner is None:
                self.job.owner = self.proc
            return self.job.owner == self.proc

    def release_error(self) -> None:
        with self.job.changed:
            if self.job.owner == self.proc:
                self.job.owner = None

    @property
    def plan(self) -> PublishedPlan:
        return self.job.plan

    def publish_plan(self, plan: PublishedPlan) -> None:
        self.job.plan = plan

    def abort(self, status: int) -> None:
        with self.job.changed:
            self.job.status = status

    def ask_for_end(self, request: native.Request, status: int, why: str) -> None:
        self.abort(status)
        self.words.request = request

    def ask_for_relaunch(self, reason: str) -> None:
        self.words.request = native.Request.RELAUNCH

    def why_relaunch(self) -> str:
        return self.job.plan.reason

    def leave(self) -> None:
        self.left = True


def checked(view: FakeView, words: FakeWords) -> tuple[JobView, Words]:
    """Has mypy compare the types."""
    return view, words
