"""One protected program as its slot sees it: state, safepoints, checkpoints, attempts.

The calls of the user's program and of frameworks lead here. So do calls from C: to fill a window
that is made again, to warn of a window that cannot be protected, to have a failure repaired, to say
that a replay is over, and to say that the logs are full.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..fabric.story import Checkpoint, Failure, Note, Recovery
from ..fabric.view import JobView
from ..host.errors import FtrmaError, Rollback
from ..native import job, logs
from ..native.constants import CLAIM_FORFEIT, CLAIM_REENTRY, ROLE_NAMES, SLOT, WHAT
from ..native.mail import Mail
from ..native.shared import Slot, Version
from ..native.vaults import Buffer
from ..protocol import coordinated
from ..protocol.checkpoint_policy import CheckpointPolicy
from ..protocol.demand import DemandStore
from ..protocol.preallocation import preallocate
from ..protocol.repair import repair
from ..protocol.repair_round import LaunchEnded, Repaired
from ..protocol.restoring import check_own_vault
from ..settings import options as settings
from ..vault.vault import Region, Vault
from . import deathmail, imports
from .checkpoint_contents import contents, sizes_bytes
from .checkpoint_source import CheckpointSource
from .entries import EntryStore, size_of
from .notices import Notices
from .openfiles import OpenFiles
from .replay import Replay
from .slot_log import SlotLog
from .staging import COMMIT_LOOK_S, SlotStaging, ending_if_full
from .state import State
from .timeline import Timeline
from .validation import Validation

if TYPE_CHECKING:
    from .spilling import Spilling

SAFEPOINT = WHAT["SAFEPOINT"]
NONE = Version(0)  # no checkpoint
current: Session | None = None


@dataclass(frozen=True)
class FailureEvent:
    """A failure, as it is passed to `on_failure` callbacks.

    Attributes:
        slots: the slots that were lost.
        kind: "causal": the lost slots are replayed and this one goes on where it is; "rollback":
            all go back; "reentry": all go back, and a framework recovers.
        version: the checkpoint that they go on from; 0 is the program's start.
        seconds: from noticing the death to having everything restored, without the replay.

    MPI: local; each slot calls its own callbacks.
    Fault: callbacks are called after failures that are repaired, not at the end of the job.
    """

    slots: tuple[int, ...]
    kind: str
    version: int
    seconds: float


class Session:
    """The part of one process in a protected program.

    Attributes:
        vault: the vault of this process's role; None for a spare without a vault.
        source: the checkpoint that this attempt goes on from; None: the program's start.
        restoring: windows and states that are declared now get the checkpoint's contents.
        reentered: all slots run the program again in this attempt.
        claimed: a framework has claimed the job's failures in this attempt.
        staging: the versions that this slot stages alone; None for a spare.
        spilling: writes checkpoints to files; None if nobody has asked for that.
        generation: number of the round in which the newest repair has ended for this process.
        ordinal: number of the last safepoint, counted from 1.
        steps_before: safepoints since the program's start that this attempt does not pass again.
        replay: the replay that this process is in; None if it is in none.
        repaired: the outcome of the last repair.
        unwound: all slots go back after the last repair, so the program unwinds.
        ending: an error that came up in a call from C.
    """

    def __init__(
        self, view: JobView, vault: Vault | None, options: settings.Options
    ) -> None:
        self.view = view
        self.options = options
        self.vault = vault
        self.demands = DemandStore(view, options.demand)
        self.log = SlotLog(view, options.log)
        self.notices = Notices(view)
        self.source: CheckpointSource | None = None
        self.policy = CheckpointPolicy(options.interval, options.mtbf)
        self.states: dict[str, State] = {}
        self.callbacks: list[Callable[[FailureEvent], object]] = []
        self.entries = EntryStore({}, lambda key, size_bytes: b"")
        self.staging: SlotStaging | None = None
        self.spilling: Spilling | None = None
        self.generation = 0
        self.claimed = False
        self.told_no_files = False
        self.mail: Mail | None = None  # mail of a framework that is told of deaths
        self.ordinal = self.steps_before = 0
        self.names_hash = 0  # hash of the names declared so far, in order
        self.restoring = False
        self.reentered = False
        self.slot = Slot(-1)
        self.checkpoints = 0
        self.files = OpenFiles(lambda text: view.tell(f"slot {self.slot}: {text}"))
        self.imported = set(sys.modules)
        self.first_attempt = view.words.attempt  # number of this launch's first attempt
        self.owns: Callable[[str | None], bool] = lambda file: False  # is code the program's own?
        self.published = False
        self.program_words: list[str] = []  # as `script.UserProgram` takes them
        self.imports_alike: Callable[[str], bool] = lambda file: True
        self.replay: Replay | None = None
        self.repaired: Repaired | None = None
        self.unwound = False
        self.ending: BaseException | None = None
        self.after_repair: Callable[[Repaired], None] = lambda repaired: None
        self.validation = Validation(
            view, options.validate, lambda: self.program_words) if options.validate else None
        if options.spill:
            self._begin_spilling()
        view.set_policy(options.policy, fresh=options.rollback == "fresh")
        logs.on_fill(self._fill_window)
        logs.on_warn(self.notices.warn_unprotected)
        logs.on_interrupt(self._interrupted)
        logs.on_live(self._replay_over)
        logs.on_full(self.notices.tell_full_logs)

    def _begin_spilling(self) -> None:
        """Have checkpoints written to files, too."""
        from .spilling import Spilling  # few jobs need it

        self.spilling = spilling = Spilling(self.view, self.options, lambda: self.program_words)
        self.policy.also = lambda: self.slot == 0 and spilling.due
        self.policy.held = lambda: self.slot == 0 and spilling.busy

    @property
    def name(self) -> str:
        """Return the name of this process's role, for users."""
        role, index = self.view.role()
        return f"{ROLE_NAMES[role]} {index}"

    def _refuse_spare(self, what: str) -> None:
        if self.slot < 0:
            raise FtrmaError(f"{what}: this process is a spare, which has no slot; only slots "
                             "call this")

    # -- what the program calls ---------------------------------------------------------------

    def protect(self, name: str, fields: dict[str, Any]) -> State:
        """See `ftrma.protect`."""
        self.view.unwind_if_alarmed()
        self._refuse_spare(f"protect({name!r})")
        if name in self.states:
            raise ValueError(f"protect({name!r}): this name is declared already; use another")
        state = State(name, fields)
        self._same_everywhere(name)
        self.states[name] = state
        if self.restoring and self.source:
            self.source.restore_windows()
            self.source.load_state(name, state)
        self.view.barrier()
        logs.log_prefix()
        self.preallocate()
        return state

    def safepoint(self, take: bool | None = None, *, durable: bool = False) -> Version:
        """See `ftrma.framework.safepoint`."""
        view = self.view
        if durable:
            take = True
            self._want_files()
        view.visit("safepoint")
        view.unwind_if_alarmed()
        self._refuse_spare("safepoint()")
        if self._begin_replay_here():
            return NONE
        self.ordinal += 1
        view.words.me.step = self.steps_before + self.ordinal
        self.restoring = False
        if self.ordinal == 1:
            self.preallocate()
        done, taken = logs.event_begin(SAFEPOINT), NONE
        if done > 1:
            raise Rollback("a process failed")
        asked = self.policy, self.slot, self.ordinal, self._size_bytes
        settle = self.staging.settle if self.staging else None
        if not done and self.ordinal == 1 and self.validation:
            self._validate_files(self.validation)
        if not done and coordinated.arrive_if_due(self.view, *asked, take, settle):
            taken = self._checkpoint() if self._is_right() else NONE
        elif not done and self.demands.asked():
            self.files.flush()
            self.demands.take(partial(self._protected, alone=True))
        logs.event_finish()
        if taken:
            coordinated.await_end(view, self.slot, self.ordinal)
        return taken

    def _is_right(self) -> bool:
        """Ask the program, if the user wants that, whether its state may be saved in a
        checkpoint."""
        return not self.validation or self.validation.holds(self.slot, self.ordinal, self.states)

    def _validate_files(self, validation: Validation) -> None:
        """Ask at the first safepoint whether the state that was read from files is right."""
        view = self.view
        first = view.words.from_files and view.words.attempt == self.first_attempt
        if not (first and self.source) or validation.holds(self.slot, self.ordinal, self.states):
            return
        if self.slot == 0:
            view.words.refuse_files()
            view.ask_for_relaunch(f"{validation.spec} says that checkpoint {view.words.committed} "
                                  "in files is wrong")
        raise LaunchEnded

    def _want_files(self) -> None:
        """Have the next checkpoint written to files."""
        if self.spilling:
            self.spilling.policy.asked = True
        elif self.slot == 0 and not self.told_no_files:
            self.told_no_files = True
            self.view.tell("warning: safepoint(durable=True) takes checkpoints in memory alone, "
                           "since no directory is given for files: ftrma run --spill DIR")

    def _begin_replay_here(self) -> bool:
        """Begin the replay here, if this is the safepoint of the checkpoint from which it
        begins."""
        replay = self.replay
        if not (replay and replay.source and self.restoring and replay.is_anchor(self.states)):
            return False
        self.restoring = False
        self._tell_states()
        self.ordinal = replay.source.ordinal
        replay.begin_at_anchor()
        return True

    def _tell_states(self) -> None:
        """Set `restored` in the declared states to what the dead process was told."""
        for state in self.states.values():
            state.restored = self.reentered

    def busy(self, seconds: float) -> None:
        """See `ftrma.busy`."""
        if self.slot >= 0:
            self.view.words.me.busy_until_ns = job.now_ns() + int(seconds * 1e9)

    def stats(self) -> dict[str, Any]:
        """See `ftrma.stats`."""
        self.view.unwind_if_alarmed()
        events = self.view.events()
        return {
            "slot": self.slot,
            "slots": self.view.layout.slots,
            "version": self.view.words.committed,
            "checkpoints": sum(isinstance(e, Checkpoint) for e in events),
            "failures": sum(isinstance(e, Failure) for e in events),
            "recoveries": sum(isinstance(e, Recovery) for e in events),
            "protected_bytes": self._size_bytes(),
            "unprotected": sorted(self.notices.unprotected),
            "windows": logs.window_counters(),
        }

    # -- what a framework calls ---------------------------------------------------------------

    def claim(self, name: str, *, forfeit: bool, told: bool = False, most: int = 0) -> None:
        """See `ftrma.framework.claim`."""
        view = self.view
        view.unwind_if_alarmed()
        if self.options.policy == "causal":
            raise FtrmaError(f"claim({name!r}): {name} recovers the job itself, and --policy "
                             "causal wants replay alone: leave it out")
        holder = view.claimant
        if holder not in ("", name):
            raise FtrmaError(f"claim({name!r}): {holder} has claimed the job's failures already; "
                             "use one of the two")
        other = self._other_says(f"claim {name} {forfeit} {told} {most}")
        if other is not None:
            raise FtrmaError(f"claim({name!r}): slot {other} claims otherwise than slot "
                             f"{self.slot}. Claim alike, and in the same order, on every slot")
        view.set_claimant(name, CLAIM_REENTRY | CLAIM_FORFEIT * forfeit)
        view.barrier()
        view.set_policy("rollback", fresh=view.fresh)
        logs.log_stop()
        self._publish_imports()
        self.claimed = True

    def claim_told(self, name: str, *, forfeit: bool, most: int) -> Mail:
        """Claim for a framework that is told of deaths, and return the mail of this attempt.

        MPI: collective over all slots, once in an attempt; local on a spare.
        Fault: it raises Rollback when all slots go back.
        """
        view = self.view
        if self.mail:
            return self.mail
        if self.slot < 0:
            self.mail, self.claimed = deathmail.join_as_spare(view, name), True
            return self.mail
        if self.slot == 0 or view.post_office:
            deathmail.create(view, most)
        self.claim(name, forfeit=forfeit, told=True, most=most)
        if self.slot == 0:
            deathmail.keep_seats(view)
        view.barrier()  # after it all find the same members
        self.mail = deathmail.join(view)
        if self.slot == 0:
            deathmail.tell_deaths(view, self.mail)
            if self.spilling and view.words.attempt == 1:
                view.tell(f"warning: --spill writes no checkpoint: {name} keeps what it saves "
                          "itself")
        return self.mail

    def member_facts(self, most: int) -> deathmail.MemberFacts:
        """Gather the facts of this attempt for a framework that is told of deaths.

        MPI: local.
        Fault: nothing happens in it.
        """
        from . import lateplace

        start = partial(lateplace.start, self.view, self.program_words, bool(self.options.trace))
        return deathmail.facts(self.view, most, self.options.mtbf, start)

    def due(self) -> bool:
        """See `ftrma.framework.due`."""
        halts = bool(self.view.words.halt)
        return halts or self.policy.every or self.policy.due(self._size_bytes)

    def committed(self) -> Version:
        """See `ftrma.framework.committed`."""
        self.view.unwind_if_alarmed()
        return self.view.words.committed

    def confirm(self, version: int) -> bool:
        """See `ftrma.framework.confirm`."""
        while True:
            self.view.unwind_if_alarmed()
            if not version or self.view.words.me.staged < version:
                return False
            if self.view.words.committed >= version:
                return True
            time.sleep(COMMIT_LOOK_S)

    def count_step(self, step: int) -> None:
        """See `ftrma.framework.count_step`."""
        self.view.words.me.step = step

    def timeline(self, name: str) -> Timeline | None:
        """See `ftrma.framework.timeline`."""
        view = self.view
        if not self.options.trace:
            return None
        role, index = view.role()
        return Timeline(name, index if role == SLOT else -1, view.proc, int(view.words.attempt))

    def note(self, entries: dict[str, Any]) -> None:
        """See `ftrma.framework.note`."""
        self.view.emit(Note(slot=self.slot, entries=entries))

    # -- checkpoints --------------------------------------------------------------------------

    def _size_bytes(self) -> int:
        return sum(sizes_bytes(self.states))

    def preallocate(self) -> None:
        """Allocate memory for the first checkpoint while the program computes.

        MPI: local; waits for nobody.
        Fault: nothing happens in it.
        """
        if self.vault and self.policy.interval != "never":
            forms = self.entries.forms().values()
            each_bytes = sizes_bytes(self.states) + [size_of(form) for form in forms]
            preallocate(self.view, self.vault, each_bytes)

    def _protected(self, *, alone: bool = False) -> tuple[list[Region], dict[str, Any]]:
        """Return the contents of a checkpoint that is taken now.

        Args:
            alone: for a demand checkpoint, which does not contain a framework's entries.
        """
        return contents(self.states, self.ordinal, self.steps_before + self.ordinal,
                        self.view.words.committed, None if alone else self.entries)

    def _protected_now(self) -> tuple[list[Region], dict[str, Any]]:
        """Return regions and record for a checkpoint whose part this slot stages alone."""
        self.files.flush()
        self.restoring = False
        return self._protected()

    def _bytes_of(self, key: Any, size_bytes: int) -> Buffer:
        """Return a view of the vault's bytes of a region."""
        assert self.vault
        return self.vault.bytes_of(key, size_bytes)

    def _checkpoint(self) -> Version:
        """Take a checkpoint, and return its version; 0 if it was given up."""
        assert self.vault
        self.files.flush()
        regions, record = self._protected()
        with ending_if_full(self.view):
            taken, held_s = coordinated.take_checkpoint(
                self.view, self.vault, regions, record, self._begin_version)
        if taken:
            self.entries.staged(taken)
        self.checkpoints += 1
        if self.checkpoints > 1:  # the first one also allocates the memory, once and for all
            self.policy.delta_s = held_s
        return taken

    def _begin_version(self, version: Version) -> None:
        """Prepare for staging a version, if checkpoints are written to files."""
        if self.spilling:
            self.spilling.await_read()
            self.spilling.name(version)

    # -- going back ---------------------------------------------------------------------------

    def _same_everywhere(self, name: str) -> None:
        """Raise FtrmaError unless every slot declares the same names in the same order."""
        other = self._other_says(name)
        if other is not None:
            raise FtrmaError(
                f"protect({name!r}): slot {other} declares another name or in another order than "
                f"slot {self.slot}. Declare the same names in the same order on every slot"
            )

    def _other_says(self, name: str) -> int | None:
        """Find a slot that has declared other names so far; None if there is none."""
        self.names_hash = zlib.crc32(name.encode(), self.names_hash)
        return self.view.slot_that_differs(self.names_hash + (len(self.states) << 32))

    def _fill_window(self, ordinal: int, allocated: bool, address: int, size_bytes: int) -> None:
        """Fill this slot's part of a window that is made again with the checkpoint's bytes, or with
        zeros.
        """
        self._publish_imports()
        if self.view.words.attempt == 1 and not self.restoring and not self.replay:
            return
        source = self.source if self.restoring else None
        if source and source.restore_window(ordinal, address, size_bytes) is not None:
            return
        if allocated:
            logs.clear(address, size_bytes)

    def _publish_imports(self) -> None:
        """Tell the spares, once, which libraries the program has imported by now."""
        if not self.published and self.slot == self.view.slots_here()[0]:
            self.published = True
            imports.publish_imports(
                self.view, lambda file: not self.owns(file) and self.imports_alike(file),
                self.imported)

    # -- failures -----------------------------------------------------------------------------

    def interrupt(self) -> bool:
        """Repair the pending failure; return True if this slot can go on where it is.

        MPI: collective over all living processes; they wait for each other between the steps.
        Fault: after another death the next round of the repair begins.
        """
        self.vault, self.repaired = repair(self.view, self.vault)
        self.generation = self.repaired.round
        self.after_repair(self.repaired)
        self.unwound = self.repaired.kind != "causal"
        if self.vault and not self.unwound:
            version = Version(self.view.words.me.staged)
            self.vault.undone(version)
            self.entries.undone(version)
            if self.staging:
                self.staging.undo(version)
        return not self.unwound

    def _interrupted(self) -> bool:
        """Do `interrupt` for C; an exception is kept, and raised later in the program."""
        if self.ending:
            return False
        try:
            return self.interrupt()
        except BaseException as error:
            self.ending = error
            return False

    def _replay_over(self, over: bool) -> None:
        """Release others' accesses after the replay; called again with `over`, report the
        recovery."""
        if not over:
            self.view.release_accesses_to(self.slot)
            return
        assert self.replay and self.repaired
        recovery, self.replay = self.replay.ended(self.repaired), None
        self._tell_states()
        self.notices.tell_recovery(recovery)

    # -- an attempt ---------------------------------------------------------------------------

    def begin_attempt(self, *, replay: bool = False) -> None:
        """Get ready to run the program from its top.

        Args:
            replay: this process is the replacement of a slot, whose events up to its death are
                replayed.

        MPI: local; waits for nobody.
        Fault: a death has no effect on it; it raises Rollback if the slot cannot be replayed.
        """
        view = self.view
        self._forget_attempt()
        self.slot = self.notices.slot = Slot(view.role()[1])
        if view.claimant:
            view.set_policy("rollback", fresh=view.fresh)
        if self.vault:
            if self.spilling:
                self.spilling.end_attempt()
            self.vault.release()
        self.demands.begin_attempt(self.slot)
        view.words.me.syncs = 0
        self.restoring = self.reentered = view.words.attempt > 1 or bool(view.words.resumed)
        if view.words.committed:
            assert self.vault
            if not replay:
                check_own_vault(view, self.slot)
            record = self.vault.read_record(view.seal(view.words.committed))
            self.source = CheckpointSource(self.slot, self.vault, record)
            # The safepoint of the checkpoint will be passed again. A framework may have passed
            # none.
            self.steps_before = max(0, self.source.step - 1)
        entries = self.source.record["entries"] if self.source else {}
        self.entries = EntryStore(entries, self._bytes_of)
        if self.vault:
            self.staging = SlotStaging(
                view, self.vault, self.entries, self.policy, self._protected_now, self.spilling)
            if self.spilling:
                self.spilling.begin_attempt(self.vault)
        self.policy.last = time.monotonic()
        if replay:
            self._begin_replay()
        elif view.logs_accesses(trace=bool(self.options.trace)) or self.log.slot == self.slot:
            # A log from before a framework's claim lets events be counted on.
            self.log.map(self.slot)
            logs.log_start(view.words.committed)

    def begin_attempt_as_place(self) -> None:
        """Get ready to run the program as a spare of a framework that is told of deaths.

        MPI: local; waits for nobody.
        Fault: nothing happens in it.
        """
        self._forget_attempt()
        deathmail.hide_world()
        self.slot = self.notices.slot = Slot(-1)
        self.restoring, self.reentered = False, self.view.words.attempt > 1
        self.entries = EntryStore({}, self._bytes_of)

    def _forget_attempt(self) -> None:
        job.attempt_begin()
        if self.validation:
            self.validation.begin_attempt()
        deathmail.show_world()
        self.states, self.ordinal, self.names_hash, self.steps_before = {}, 0, 0, 0
        self.source, self.replay, self.claimed, self.mail = None, None, False, None
        self.staging = None

    def _begin_replay(self) -> None:
        """Begin an attempt as the replacement of a slot that is replayed."""
        self.log.configure()
        self.replay = Replay(self.view, self.slot)
        self.replay.prepare(self.demands, self.source)
        self.source = self.replay.source
        if self.replay.anchored and self.source:
            self.restoring, self.ordinal = True, self.source.ordinal
            self.steps_before = max(0, self.source.step - self.source.ordinal)
        self.log.slot = self.slot
