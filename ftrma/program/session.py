"""One protected program, as its slots see it: state, safepoints, checkpoints, going back.

What the user's program calls ends here, and so do the two calls up from C: filling a window that is
made again, and a warning about one that cannot be protected.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import settings
from ..errors import CATASTROPHE, FtrmaError, NoRoom, Rollback
from ..fabric import windows
from ..fabric.world import World, check
from ..native import loading
from ..native.constants import WHAT
from ..protocol.checkpoints import Checkpoints, Policy
from ..protocol.demand import DemandStore
from ..protocol.rounds import Ended, repair, tell_scrubbed
from ..state import State
from ..vault.group import scrub
from ..vault.vault import Vault
from . import imports

SAFEPOINT = WHAT["SAFEPOINT"]
current: Session | None = None


def _keep_error(_kind: object, error: BaseException, _traceback: object) -> None:
    """An error in a call from C: the MPI call that led there raises it."""
    loading.pending_error = error


@dataclass(frozen=True)
class FailureEvent:
    """What `on_failure` callbacks are told.

    Attributes:
        slots: that were lost.
        kind: "causal": the lost slots are replayed and this one goes on where it is; "rollback":
            all go back.
        version: of the checkpoint that they go on from; 0 is the program's start.
        seconds: from noticing the death to having everything restored, without the replay.
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
        self.ordinal = 0
        self.names_hash = 0  # of the names declared so far, in their order
        self.restoring = False
        self.reentered = False  # the program was entered before, by all slots
        self.slot = -1
        self.checkpoints = 0
        self.unprotected: set[str] = set()
        self.imported = set(sys.modules)
        self.first_entry = int(world.ctl.entry)  # of this launch
        self.owns: Callable[[str | None], bool] = lambda file: False  # code of the program's own
        self.published = False
        self.log_slot = -1  # whose log this process has mapped
        self.replaying: float | None = None  # since when, time.monotonic()
        self.replayed_from = 0  # number of its demand checkpoint, or 0 for the committed version
        self.story: dict[str, Any] = {}  # of the last repair
        self.unwound = False  # the last repair was no recovery in place: the program unwinds
        self.ending: BaseException | None = None  # came up in a call from C
        self.after_repair: Callable[[dict[str, Any]], None] = lambda story: None
        world.policy = options.policy if checkpoints.in_place else "rollback"
        world.fresh = options.rollback == "fresh"
        native = world.native
        ffi, lib = native.ffi, native.lib
        # Kept as long as C may call them.
        self.fill = ffi.callback("ftrma_fill_function", self._fill, error=-1, onerror=_keep_error)
        self.warn = ffi.callback("ftrma_warn_function", self._warn, onerror=_keep_error)
        self.interrupted = ffi.callback("ftrma_interrupt_function", self._interrupted, error=1)
        self.live = ffi.callback("ftrma_live_function", self._live, onerror=_keep_error)
        lib.ftrma_set_fill(self.fill)
        lib.ftrma_set_warn(self.warn)
        lib.ftrma_set_interrupt(self.interrupted)
        lib.ftrma_set_live(self.live)
        self.full = ffi.callback("ftrma_full_function", self._full, onerror=_keep_error)
        lib.ftrma_set_full(self.full)

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
        self.world.lib.ftrma_log_prefix()
        return state

    def safepoint(self) -> None:
        """See `ftrma.safepoint`."""
        world, lib = self.world, self.world.lib
        world.visit("safepoint")
        world.unwind_if_alarmed()
        if self.replaying is not None and self.record and self.restoring and self._anchor():
            return
        self.ordinal += 1
        self.restoring = False
        done = lib.ftrma_event_begin(SAFEPOINT, 0)
        if done > 1:
            raise Rollback("a process failed")
        asked = self.policy, self.slot, self.ordinal, self._size_bytes
        if not done and self.coordinated.due(*asked):
            self._checkpoint()
        elif not done and self.demands.asked():
            self.demands.take(self._protected)
        lib.ftrma_event_finish()

    def _anchor(self) -> bool:
        """Take this safepoint for the checkpoint's, in a replay from there.

        It is the one if declared state and windows are what the checkpoint has: the program's way
        from here depends on nothing else.
        """
        lib = self.world.lib
        if lib.ftrma_mode() != lib.FTRMA_PROLOGUE and not lib.ftrma_in_prefix():
            return False
        assert self.record and self.source
        if self._restore_windows() or any(
            state._differs(self.record["states"][name], self.source.bytes_of)
            for name, state in self.states.items()
        ):
            lib.ftrma_refuse(
                b"its program does not come to its first safepoint() with the state that the "
                b"checkpoint has; call safepoint() at the top of the loop"
            )
            raise Rollback("a process failed")
        self.restoring = False
        for state in self.states.values():
            state.restored = self.reentered  # as it was told the dead process
        self.ordinal = self.record["ordinal"]
        if lib.ftrma_replay_anchor():
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
            "checkpoints": sum(e["event"] == "checkpoint" for e in events),
            "failures": sum(e["event"] == "failure" for e in events),
            "recoveries": sum(e["event"] == "recovery" for e in events),
            "protected_bytes": self._size_bytes(),
            "unprotected": sorted(self.unprotected),
            "windows": windows.counters(self.world),
        }

    # -- checkpoints --------------------------------------------------------------------------

    def _size_bytes(self) -> int:
        arrays = sum(
            getattr(getattr(s, f), "nbytes", 64) for s in self.states.values() for f in s._fields
        )
        return int(arrays + sum(w.size_bytes for w in windows.listed(self.world)))

    def _protected(self) -> tuple[list[tuple[Any, int, int]], dict[str, Any]]:
        """Everything that a checkpoint holds, and what describes it."""
        regions: list[tuple[Any, int, int]] = []
        record: dict[str, Any] = {"states": {}, "windows": {}, "ordinal": self.ordinal}
        found = windows.listed(self.world)
        for window, counters in zip(found, windows.counters(self.world), strict=True):
            record["windows"][window.ordinal] = (window.size_bytes, counters)
            if window.size_bytes:
                key = ("window", window.ordinal)
                regions.append((key, window.address, window.size_bytes))
        for name, state in self.states.items():
            arrays, record["states"][name] = state._save()
            regions += [(key, a.ctypes.data, a.nbytes) for key, a in arrays.items()]
        record["counters"] = windows.image(self.world)
        return regions, record

    def _checkpoint(self) -> None:
        assert self.vault
        regions, record = self._protected()
        try:
            held_s = self.coordinated.take(self.vault, regions, record)
        except NoRoom as error:
            # Not the program's error to handle: the other slots are waiting in the checkpoint.
            if self.world.claim_error():
                self.world.tell(f"error: slot {self.slot} cannot checkpoint: {error}")
                self.world.abort(CATASTROPHE)
            raise Ended from None
        self.checkpoints += 1
        if self.checkpoints > 1:  # the first one also takes the memory, which is never paid again
            self.policy.delta_s = held_s

    # -- going back ---------------------------------------------------------------------------

    def _same_everywhere(self, name: str) -> None:
        """Every slot declares the same names in the same order, or the program is told."""
        self.names_hash = zlib.crc32(name.encode(), self.names_hash)
        other = self.world.same_everywhere(self.names_hash + (len(self.states) << 32))
        if other is not None:
            raise FtrmaError(
                f"protect({name!r}): slot {other} declares another name or in another order than "
                f"slot {self.slot}. Declare the same names in the same order on every slot"
            )

    def _restore_windows(self) -> int:
        """Put the windows back once more, over what the program has initialized meanwhile.

        Returns:
            Bytes that were written because they were not as in the checkpoint.
        """
        written = 0
        for window in windows.listed(self.world):
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

    def _fill(self, ordinal: int, allocated: int, base: Any, size_bytes: int) -> int:
        """A window's part is there again: restore it, or make it the zeros that it began with."""
        if self.slot == 0 and not self.published and self.coordinated.in_place:
            self.published = True
            imports.publish(self.world, self.owns, self.imported)
        if self.world.ctl.entry == 1 and not self.restoring and self.replaying is None:
            return 0
        address = int(self.world.ffi.cast("uintptr_t", base))
        if self.restoring and self._restore(ordinal, address, size_bytes) is not None:
            return 0
        if allocated:
            self.world.lib.ftrma_clear(base, size_bytes)
        return 0

    def _warn(self, call: Any) -> None:
        name = self.world.ffi.string(call).decode()
        if name not in self.unprotected and self.slot == 0:
            self.world.tell(
                f"warning: a window from {name} is not protected; after a failure it comes back "
                "empty. Use Win.Allocate or Win.Create to have it restored"
            )
        self.unprotected.add(name)

    # -- failures -----------------------------------------------------------------------------

    def interrupt(self) -> bool:
        """Repair the failure that is pending; True if this slot can go on where it is."""
        self.vault, self.story = repair(self.world, self.vault)
        self.after_repair(self.story)
        self.unwound = self.story["kind"] != "causal"
        return not self.unwound

    def _interrupted(self) -> int:
        if self.ending:
            return 1
        try:
            return int(not self.interrupt())
        except BaseException as error:
            self.ending = error
            return 1

    def _full(self, needed_bytes: int) -> None:
        """The logs are full, or are written again after that: said once each in a job."""
        stage = 1 + bool(needed_bytes)  # one slot says it for all
        if not self.world.lib.ftrma_cas(self.world.field("told_full"), stage - 1, stage):
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

    def _live(self) -> None:
        """The replay is over: tell how it went."""
        world = self.world
        assert self.replaying is not None
        replay_s = time.monotonic() - self.replaying
        self.replaying = None
        for state in self.states.values():
            state.restored = self.reentered
        phases = {**self.story["phases"], "replay": replay_s}
        seconds = self.story["seconds"] + replay_s
        world.emit(
            "recovery", kind="causal", slots=[self.slot], version=self.story["version"],
            seconds=seconds, phases=phases, reason="", began_s=world.ctl.death_ns / 1e9,
            demand=self.replayed_from,
        )
        story = {**self.story, "seconds": seconds, "phases": phases, "demand": self.replayed_from}
        self.tell_recovery(story, [self.slot])

    def tell_recovery(self, story: dict[str, Any], slots: list[int]) -> None:
        """One line for people about a recovery."""
        spares = len(self.world.spares())
        names = " and ".join(f"slot {s}" for s in slots) or "a server"
        to = f"checkpoint {story['version']}" if story["version"] else "the start"
        if story.get("demand"):
            to = f"its demand checkpoint {story['demand']}"
        how = f"replayed from {to}" if story["kind"] == "causal" else f"back at {to}"
        if story["kind"] == "causal" and not story["phases"]["replay"]:
            how = "replaced before it had begun" if slots else "replaced"
        phases = ", ".join(f"{n} {s * 1e3:.0f}" for n, s in story["phases"].items() if s)
        why = f" ({story['reason']})" if story.get("reason") else ""
        self.world.tell(
            f"{names} died; {how} in {story['seconds'] * 1e3:.0f} ms ({phases}){why}; "
            f"{spares} spare{'s' * (spares != 1)} left"
        )

    # -- entering -----------------------------------------------------------------------------

    def enter(self, *, replay: bool = False) -> None:
        """Get ready to run the program from its top.

        Args:
            replay: as the replacement of a slot whose events up to its death are only replayed.
        """
        world = self.world
        world.lib.ftrma_timeline_begin()
        self.slot = world.role()[1]
        self.states, self.ordinal, self.names_hash = {}, 0, 0
        self.record, self.source = None, self.vault
        self.demands.enter(self.slot)
        world.put("syncs", 0)
        self.restoring = self.reentered = world.ctl.entry > 1 or bool(world.ctl.resume)
        if world.committed:
            assert self.vault
            if self.coordinated.in_place and not replay:
                self._scrub()
            self.record = self.vault.read_record(world.seal(world.committed))
        self.policy.last = time.monotonic()
        self.replaying = time.monotonic() if replay else None
        if replay:
            self._enter_replay()
        elif self.coordinated.in_place and (world.policy != "rollback" or self.options.trace):
            self._open_log()
            world.lib.ftrma_log_start(world.committed)

    def _configure_log(self) -> None:
        lib = self.world.lib
        what = lib.FTRMA_LOG_ALL if self.options.log == "all" else lib.FTRMA_LOG_PUTS
        lib.ftrma_log_configure(lib.FTRMA_LOG_NONE if self.world.policy == "rollback" else what)

    def _open_log(self) -> None:
        """Have this slot's log file mapped; its memory is taken when it is made."""
        world, lib = self.world, self.world.lib
        self._configure_log()
        if self.log_slot != self.slot:
            if lib.ftrma_log_open(self.slot, 0, 0):  # nobody has made it, or not to the end
                budget = world.ctl.log_bytes
                check(lib.ftrma_log_open(self.slot, 1, budget), f"taking {budget} bytes for logs")
            self.log_slot = self.slot

    def _enter_replay(self) -> None:
        world, lib = self.world, self.world.lib
        self._configure_log()
        number = lib.ftrma_demand_of(self.slot, world.committed)
        cut = image = b""
        if number:
            found = self.demands.recover(number)
            if not found:
                lib.ftrma_refuse(f"slot {self.slot}'s demand checkpoint is damaged".encode())
                raise Rollback("a process failed")
            self.source, self.record = found
            cut = self.record["cut"]
        if number or not world.ctl.slots[self.slot].marks[world.committed & 1].start:
            assert self.record
            image = self.record["counters"]
            self.restoring, self.ordinal = True, self.record["ordinal"]
        words = world.ffi.new("uint64_t[]", len(cut) // 8)
        world.ffi.memmove(words, cut, len(cut))
        check(
            lib.ftrma_replay_prepare(
                self.slot, world.committed, image, len(image), number, words, len(words)
            ),
            f"reading the logs of slot {self.slot}",
        )
        self.log_slot = self.slot
        self.replayed_from = int(number)

    def _scrub(self) -> None:
        """Check the own vault against the checksums that lie with the parity."""
        group = self.world.roles.slot_group[self.slot]
        element = self.world.members(group).index(self.slot)
        tell_scrubbed(self.world, scrub(self.world, group, element))
