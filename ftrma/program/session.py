"""One protected program, as its slots see it: state, safepoints, checkpoints, going back.

What the user's program calls ends here, and so do the two calls up from C: filling a window that is
made again, and a warning about one that cannot be protected.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from .. import settings
from ..errors import CATASTROPHE, FtrmaError, NoRoom, Rollback, on_host
from ..fabric.story import Checkpoint, Failure, Note, Recovery
from ..fabric.world import LOOK_S, World
from ..native import job, logs
from ..native.constants import CLAIM_FORFEIT, CLAIM_REENTRY, WHAT
from ..native.shared import Slot, Version
from ..native.vaults import Buffer
from ..protocol.checkpoints import Checkpoints, Policy, Repaired
from ..protocol.demand import DemandStore
from ..protocol.rounds import Ended
from ..state import State
from ..vault.vault import Region, Vault
from . import imports
from .entries import Entries, size_of
from .openfiles import OpenFiles

SAFEPOINT = WHAT["SAFEPOINT"]
NONE = Version(0)  # no checkpoint
COMMIT_LOOK_S = 0.001  # between looks whether one is committed
current: Session | None = None


@dataclass(frozen=True)
class FailureEvent:
    """What `on_failure` callbacks are told.

    Attributes:
        slots: that were lost.
        kind: "causal": the lost slots are replayed and this one goes on where it is; "rollback":
            all go back; "reentry": all do, and a framework recovers.
        version: of the checkpoint that they go on from; 0 is the program's start.
        seconds: from noticing the death to having everything restored, without the replay.

    MPI: local; each slot is told of its own.
    Fault: told of those that are repaired; of the end of a job nobody is told.
    """

    slots: tuple[int, ...]
    kind: str
    version: int
    seconds: float


class Session:
    """A process's part in a protected program."""

    def __init__(
        self, world: World, checkpoints: Checkpoints, options: settings.Options
    ) -> None:
        self.world = world
        self.coordinated = checkpoints
        self.options = options
        self.vault: Vault | None = None
        self.demands = DemandStore(world, options.demand)
        self.source: Vault | None = None  # that holds the checkpoint being gone back to
        self.policy = Policy(options.interval, options.mtbf)
        self.states: dict[str, State] = {}
        self.callbacks: list[Callable[[FailureEvent], object]] = []
        self.record: dict[str, Any] | None = None  # of the checkpoint being gone back to
        self.entries = Entries({}, lambda key, size_bytes: b"")
        self.claimed = False  # by a framework, in this attempt
        self.ordinal = 0
        self.names_hash = 0  # of the names declared so far, in their order
        self.restoring = False
        self.reentered = False  # the program was entered before, by all slots
        self.slot = Slot(-1)
        self.checkpoints = 0
        self.unprotected: set[str] = set()
        self.files = OpenFiles(lambda text: world.tell(f"slot {self.slot}: {text}"))
        self.imported = set(sys.modules)
        self.first_entry = int(world.ctl.entry)  # of this launch
        self.owns: Callable[[str | None], bool] = lambda file: False  # code of the program's own
        self.published = False
        self.imports_alike: Callable[[], bool] = lambda: True
        self.log_slot = -1  # whose log this process has mapped
        self.replaying: float | None = None  # since when, time.monotonic()
        self.replayed_from = 0  # number of its demand checkpoint, or 0 for the committed version
        self.repaired: Repaired | None = None  # by the last repair
        self.unwound = False  # the last repair was no recovery in place: the program unwinds
        self.ending: BaseException | None = None  # came up in a call from C
        self.after_repair: Callable[[Repaired], None] = lambda repaired: None
        world.choose(options.policy, fresh=options.rollback == "fresh")
        logs.on_fill(self._fill)
        logs.on_warn(self._warn)
        logs.on_interrupt(self._interrupted)
        logs.on_live(self._live)
        logs.on_full(self._full)

    # -- what the program calls ---------------------------------------------------------------

    def protect(self, name: str, fields: dict[str, Any]) -> State:
        """See `ftrma.protect`."""
        self.world.unwind_if_alarmed()
        if name in self.states:
            raise ValueError(f"protect({name!r}): this name is declared already; use another")
        state = State(name, fields)
        self._same_everywhere(name)
        self.states[name] = state
        if self.restoring and self.record:
            self._restore_windows()
            saved = self.record["states"].get(name)
            if saved is None:
                raise FtrmaError(
                    f"protect({name!r}): the checkpoint has no such state; it declares "
                    f"{', '.join(map(repr, self.record['states'])) or 'nothing'}. The program must "
                    "declare the same names each time it runs"
                )
            assert self.source
            state._load(saved, self.source.copy_out)
        self.world.barrier()
        logs.log_prefix()
        self._expect()
        return state

    def safepoint(self, take: bool | None = None) -> Version:
        """See `ftrma.framework.safepoint`."""
        world = self.world
        world.visit("safepoint")
        world.unwind_if_alarmed()
        if self.replaying is not None and self.record and self.restoring and self._anchor():
            return NONE
        self.ordinal += 1
        self.restoring = False
        if self.ordinal == 1:
            self._expect()
        done, taken = logs.event_begin(SAFEPOINT), NONE
        if done > 1:
            raise Rollback("a process failed")
        asked = self.policy, self.slot, self.ordinal, self._size_bytes
        if not done and self.coordinated.due(*asked, take):
            taken = self._checkpoint()
        elif not done and self.demands.asked():
            self.files.flush()
            self.demands.take(partial(self._protected, alone=True))
        logs.event_finish()
        return taken

    def _anchor(self) -> bool:
        """Take this safepoint for the checkpoint's, in a replay from there.

        It is the one if declared state and windows are what the checkpoint has: the program's way
        from here depends on nothing else.
        """
        if logs.mode() is not logs.Mode.PROLOGUE and not logs.in_prefix():
            return False
        assert self.record and self.source
        if self._restore_windows() or any(
            state._differs(self.record["states"][name], self.source.bytes_of)
            for name, state in self.states.items()
        ):
            logs.refuse(
                "its program does not come to its first safepoint() with the state that the "
                "checkpoint has; call safepoint() at the top of the loop"
            )
            raise Rollback("a process failed")
        self.restoring = False
        for state in self.states.values():
            state.restored = self.reentered  # as it was told the dead process
        self.ordinal = self.record["ordinal"]
        if not logs.replay_anchor():
            raise Rollback("a process failed")
        return True

    def stats(self) -> dict[str, Any]:
        """See `ftrma.stats`."""
        self.world.unwind_if_alarmed()
        events = self.world.events()
        return {
            "slot": self.slot,
            "slots": self.world.ctl.nslots,
            "version": self.world.committed,
            "checkpoints": sum(isinstance(e, Checkpoint) for e in events),
            "failures": sum(isinstance(e, Failure) for e in events),
            "recoveries": sum(isinstance(e, Recovery) for e in events),
            "protected_bytes": self._size_bytes(),
            "unprotected": sorted(self.unprotected),
            "windows": logs.window_counters(),
        }

    # -- what a framework calls ---------------------------------------------------------------

    def claim(self, name: str, *, forfeit: bool) -> None:
        """See `ftrma.framework.claim`."""
        world = self.world
        world.unwind_if_alarmed()
        if self.options.policy == "causal":
            raise ValueError(f"claim({name!r}): {name} recovers by having all slots enter the "
                             "program again, and --policy causal wants replay alone: leave it out")
        holder = world.claimant
        if holder not in ("", name):
            raise FtrmaError(f"claim({name!r}): {holder} has claimed the job's failures already; "
                             "use one of the two")
        other = self._other_says(f"claim {name} {forfeit}")
        if other is not None:
            raise FtrmaError(f"claim({name!r}): slot {other} claims otherwise than slot "
                             f"{self.slot}. Claim alike, and in the same order, on every slot")
        world.claim(name, CLAIM_REENTRY | CLAIM_FORFEIT * forfeit)
        world.barrier()
        world.choose("rollback", fresh=world.fresh)
        logs.log_stop()
        self._publish_imports()
        self.claimed = True

    def due(self) -> bool:
        """See `ftrma.framework.due`."""
        return self.policy.every or self.policy.due(self._size_bytes)

    def committed(self) -> Version:
        """See `ftrma.framework.committed`."""
        self.world.unwind_if_alarmed()
        return self.world.committed

    def confirm(self, version: int) -> bool:
        """See `ftrma.framework.confirm`."""
        while True:
            self.world.unwind_if_alarmed()
            if not version or self.world.me.staged < version:
                return False
            if self.world.committed >= version:
                return True
            time.sleep(COMMIT_LOOK_S)

    def note(self, entries: dict[str, Any]) -> None:
        """See `ftrma.framework.note`."""
        self.world.emit(Note(slot=self.slot, entries=entries))

    # -- checkpoints --------------------------------------------------------------------------

    def _sizes_bytes(self) -> list[int]:
        """Of all that is protected, one by one, about."""
        arrays = [
            getattr(getattr(s, f), "nbytes", 64) for s in self.states.values() for f in s._fields
        ]
        return arrays + [w.size_bytes for w in logs.windows()]

    def _size_bytes(self) -> int:
        return sum(self._sizes_bytes())

    def _expect(self) -> None:
        """Have memory taken for the first checkpoint while the program computes."""
        if self.vault and self.policy.interval != "never":
            forms = self.entries.forms().values()
            sizes_bytes = self._sizes_bytes() + [size_of(form) for form in forms]
            self.coordinated.expect(self.vault, sizes_bytes)

    def _protected(self, *, alone: bool = False) -> tuple[list[Region], dict[str, Any]]:
        """Everything that a checkpoint holds, and what describes it; of one that this slot takes
        alone, for a replay, all but a framework's entries."""
        regions = [] if alone else self.entries.regions(self.world.committed)
        record: dict[str, Any] = {"states": {}, "windows": {}, "ordinal": self.ordinal,
                                  "entries": {} if alone else self.entries.forms()}
        found = logs.windows()
        for window, counters in zip(found, logs.window_counters(), strict=True):
            record["windows"][window.ordinal] = (window.size_bytes, counters)
            if window.size_bytes:
                key = ("window", window.ordinal)
                regions.append(Region(key, window.address, window.size_bytes))
        for name, state in self.states.items():
            arrays, record["states"][name] = state._save()
            regions += [Region(key, a.ctypes.data, a.nbytes) for key, a in arrays.items()]
        record["counters"] = logs.counters_save()
        return regions, record

    def _bytes_of(self, key: Any, size_bytes: int) -> Buffer:
        """View of what the vault has of a region."""
        assert self.vault
        return self.vault.bytes_of(key, size_bytes)

    def _checkpoint(self) -> Version:
        """Take one; its version."""
        assert self.vault
        self.files.flush()
        regions, record = self._protected()
        try:
            taken, held_s = self.coordinated.take(self.vault, regions, record)
        except NoRoom as error:
            # Not the program's error to handle: the other slots are waiting in the checkpoint.
            while not self.world.claim_error(meanwhile=self.world.unwind_if_alarmed):
                time.sleep(LOOK_S)
            why = on_host(error, self.world.host_of(self.world.proc))
            self.world.tell(f"error: slot {self.slot} cannot checkpoint: {why}")
            self.world.abort(CATASTROPHE)
            raise Ended from None
        if taken:
            self.entries.staged(taken)
        self.checkpoints += 1
        if self.checkpoints > 1:  # the first one also takes the memory, which is never paid again
            self.policy.delta_s = held_s
        return taken

    # -- going back ---------------------------------------------------------------------------

    def _same_everywhere(self, name: str) -> None:
        """Every slot declares the same names in the same order, or the program is told."""
        other = self._other_says(name)
        if other is not None:
            raise FtrmaError(
                f"protect({name!r}): slot {other} declares another name or in another order than "
                f"slot {self.slot}. Declare the same names in the same order on every slot"
            )

    def _other_says(self, name: str) -> int | None:
        """A slot that says something else, or has before; None: all say the same."""
        self.names_hash = zlib.crc32(name.encode(), self.names_hash)
        return self.world.same_everywhere(self.names_hash + (len(self.states) << 32))

    def _restore_windows(self) -> int:
        """Put the windows back once more, over what the program has initialized meanwhile.

        Returns:
            Bytes that were written because they were not as in the checkpoint.
        """
        written = 0
        for window in logs.windows():
            written += self._restore(window.ordinal, window.address, window.size_bytes) or 0
        return written

    def _restore(self, ordinal: int, address: int, size_bytes: int) -> int | None:
        """Put one window back; the bytes written, or None if the checkpoint does not know it."""
        if not self.record or ordinal not in self.record["windows"]:
            return None
        saved, _ = self.record["windows"][ordinal]
        if saved != size_bytes:
            raise FtrmaError(
                f"window number {ordinal} of slot {self.slot} has {size_bytes} bytes now and had "
                f"{saved} in the checkpoint. The program must make the same windows in the same "
                "order each time it runs"
            )
        assert self.source
        if size_bytes:
            return self.source.copy_out(("window", ordinal), address, size_bytes)
        return 0

    def _fill(self, ordinal: int, allocated: bool, address: int, size_bytes: int) -> None:
        """A window's part is there again: restore it, or make it the zeros that it began with."""
        self._publish_imports()
        if self.world.ctl.entry == 1 and not self.restoring and self.replaying is None:
            return
        if self.restoring and self._restore(ordinal, address, size_bytes) is not None:
            return
        if allocated:
            logs.clear(address, size_bytes)

    def _publish_imports(self) -> None:
        """Tell the spares, once, what the program has imported by now."""
        if self.slot == 0 and not self.published:
            self.published = True
            if self.imports_alike():
                imports.publish(self.world, self.owns, self.imported)

    def _warn(self, name: str) -> None:
        if name not in self.unprotected and self.slot == 0:
            self.world.tell(
                f"warning: a window from {name} is not protected; after a failure it comes back "
                "empty. Use Win.Allocate or Win.Create to have it restored"
            )
        self.unprotected.add(name)

    # -- failures -----------------------------------------------------------------------------

    def interrupt(self) -> bool:
        """Repair the failure that is pending; True if this slot can go on where it is.

        MPI: collective over all living processes; waits for each between the steps.
        Fault: another death begins the repair anew.
        """
        self.vault, self.repaired = self.coordinated.repair(self.vault)
        self.after_repair(self.repaired)
        self.unwound = self.repaired.kind != "causal"
        if self.vault and not self.unwound:
            self.vault.undone(Version(self.world.me.staged))
            self.entries.undone(Version(self.world.me.staged))
        return not self.unwound

    def _interrupted(self) -> bool:
        if self.ending:
            return False
        try:
            return self.interrupt()
        except BaseException as error:
            self.ending = error
            return False

    def _full(self, needed_bytes: int) -> None:
        """The logs are full, or are written again after that: said once each in a job."""
        stage = 1 + bool(needed_bytes)  # one slot says it for all
        if not self.world.exchange("told_full", stage - 1, stage):
            return
        if needed_bytes:
            self.world.tell(
                f"slot {self.slot} would have logged {needed_bytes} bytes between two checkpoints; "
                f"with --log-budget {2 * needed_bytes} it can be replayed at any time"
            )
            return
        version = self.world.committed
        back = f"checkpoint {version}" if version else "the start"
        self.world.tell(
            f"slot {self.slot}: its access logs have used their budget of "
            f"{self.world.ctl.log_bytes} bytes. Until a safepoint() lets a checkpoint be taken, a "
            f"failure rolls everybody back to {back}; a larger --log-budget avoids this"
        )

    def _live(self, over: bool) -> None:
        """The replay is over: take what others send; when they go on (`over`), tell how it went."""
        if not over:
            self.world.live(self.slot)
            return
        repaired = self.repaired
        assert self.replaying is not None and repaired
        replay_s = time.monotonic() - self.replaying
        self.replaying = None
        for state in self.states.values():
            state.restored = self.reentered
        self.tell_recovery(Recovery(
            kind="causal", slots=(self.slot,), version=repaired.version,
            seconds=repaired.seconds + replay_s, phases=replace(repaired.phases, replay=replay_s),
            reason="", began_s=self.world.ctl.death_ns / 1e9, demand=self.replayed_from,
        ))

    def tell_recovery(self, recovery: Recovery, *, died: bool = True) -> None:
        """Put a recovery in the job's story, and one line for people.

        Args:
            died: somebody had; else communicators had to be made again.
        """
        self.world.emit(recovery)
        spares = len(self.world.spares())
        names = " and ".join(f"slot {s}" for s in recovery.slots) or "a server"
        what = f"{names} died" if died or recovery.slots else "communicators are made again"
        to = f"checkpoint {recovery.version}" if recovery.version else "the start"
        if recovery.demand:
            to = f"its demand checkpoint {recovery.demand}"
        how = f"replayed from {to}" if recovery.kind == "causal" else f"back at {to}"
        if recovery.kind == "reentry":
            how = f"{self.world.claimant} recovers " + (
                f"from {to}" if recovery.version else "without a checkpoint")
        if recovery.kind == "causal" and not recovery.phases.replay:
            how = "replaced before it had begun" if recovery.slots else "replaced"
        phases = ", ".join(f"{n} {s * 1e3:.0f}" for n, s in asdict(recovery.phases).items() if s)
        why = f" ({recovery.reason})" if recovery.reason and recovery.reason not in how else ""
        self.world.tell(
            f"{what}; {how} in {recovery.seconds * 1e3:.0f} ms ({phases}){why}; "
            f"{spares} spare{'s' * (spares != 1)} left"
        )

    # -- entering -----------------------------------------------------------------------------

    def enter(self, *, replay: bool = False) -> None:
        """Get ready to run the program from its top; `replay`: as the replacement of a slot whose
        events up to its death are only replayed.

        MPI: local; waits for nobody.
        Fault: nothing happens in it; unwinds if the slot turns out not to be replayable.
        """
        world = self.world
        job.attempt_begin()
        self.slot = Slot(world.role()[1])
        self.states, self.ordinal, self.names_hash = {}, 0, 0
        self.record, self.source, self.claimed = None, self.vault, False
        if world.claimant:
            world.choose("rollback", fresh=world.fresh)
        if self.vault:
            self.vault.release()
        self.demands.enter(self.slot)
        world.put("syncs", 0)
        self.restoring = self.reentered = world.ctl.entry > 1 or bool(world.ctl.resume)
        if world.committed:
            assert self.vault
            if not replay:
                self.coordinated.scrub(self.slot)
            self.record = self.vault.read_record(world.seal(world.committed))
        self.entries = Entries(self.record["entries"] if self.record else {}, self._bytes_of)
        self.policy.last = time.monotonic()
        self.replaying = time.monotonic() if replay else None
        if replay:
            self._enter_replay()
        elif world.logs(trace=bool(self.options.trace)) or self.log_slot == self.slot:
            self._open_log()  # it is there from before a framework's claim: events are counted on
            logs.log_start(world.committed)

    def _configure_log(self) -> None:
        what = logs.Logged.ALL if self.options.log == "all" else logs.Logged.PUTS
        logs.log_configure(logs.Logged.NONE if self.world.policy == "rollback" else what)

    def _open_log(self) -> None:
        """Have this slot's log file mapped; its memory is taken when it is made."""
        self._configure_log()
        if self.log_slot != self.slot:
            if not logs.log_map(self.slot):
                logs.log_make(self.slot, self.world.ctl.log_bytes)
            self.world.place_log(self.slot)
            self.log_slot = self.slot

    def _enter_replay(self) -> None:
        world = self.world
        self._configure_log()
        number = logs.demand_of(self.slot, world.committed)
        cut = image = b""
        if number:
            found = self.demands.recover(number)
            if not found:
                logs.refuse(f"slot {self.slot}'s demand checkpoint is damaged")
                raise Rollback("a process failed")
            self.source, self.record = found
            cut = self.record["cut"]
        if number or not world.ctl.slots[self.slot].marks[world.committed & 1].start:
            assert self.record
            image = self.record["counters"]
            self.restoring, self.ordinal = True, self.record["ordinal"]
        logs.replay_prepare(self.slot, world.committed, image, number, cut)
        self.log_slot = self.slot
        self.replayed_from = number
