"""A job in one process: its slots are threads, and a death is the end of one.

`FakeFabric` is a `Fabric` as the protocols see it, for tests that need a job and no processes. What
it does is simple enough to be right: one lock, one condition, sets of who came. It keeps the laws
of `fabriclaws`, as the real ones do.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ftrma.errors import Rollback
from ftrma.fabric.base import RoundChanged
from ftrma.fabric.story import Event
from ftrma.native.constants import SLOT

PATIENCE_S = 10.0


class Died(BaseException):
    """Ends a slot's thread: its process was killed."""


class FakeJob:
    """What the slots share.

    Args:
        slots: how many; there are no checksum ranks and spares.

    Attributes:
        status: with which the job was aborted; None if it was not.
    """

    def __init__(self, slots: int, directory: Path) -> None:
        self.slots, self.directory = slots, directory
        self.changed = threading.Condition()
        self.dead: set[int] = set()
        self.alarm = 0
        self.barriers = [0] * slots
        self.met = [(0, 0)] * slots
        self.values: list[int | None] = [None] * slots
        self.ended: set[int] = set()
        self.story: list[Event] = []
        self.owner: int | None = None
        self.status: int | None = None

    def run(self, body: Callable[[FakeFabric], Any]) -> dict[int, Any]:
        """Run a body on all slots; what it returns by slot, without those that died.

        Raises:
            BaseException: the first that a slot has raised.
        """
        results: dict[int, Any] = {}
        errors: list[BaseException] = []

        def slot(number: int) -> None:
            try:
                results[number] = body(FakeFabric(self, number))
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
            if len(self.ended) < self.slots:
                self.alarm += 1
            self.changed.notify_all()
        raise Died


class FakeFabric:
    """The job as one of its slots sees it, see `ftrma.fabric.base.Fabric`."""

    def __init__(self, job: FakeJob, slot: int) -> None:
        self.job, self.proc, self.directory = job, slot, job.directory
        self.policy, self.fresh = "rollback", False
        self.counter = itertools.count(1)
        self.told: list[str] = []
        self.visited: list[str] = []
        self.left = False

    # -- who is who ---------------------------------------------------------------------------

    def role(self) -> tuple[int, int]:
        return SLOT, self.proc

    def holders(self) -> list[int]:
        return list(range(self.job.slots))

    def alive(self, proc: int) -> bool:
        with self.job.changed:
            return proc >= 0 and proc not in self.job.dead

    @property
    def committed(self) -> int:
        return 0

    def choose(self, policy: str, *, fresh: bool) -> None:
        self.policy, self.fresh = policy, fresh

    def logs(self, *, trace: bool) -> bool:
        return trace or self.policy != "rollback"

    # -- waits --------------------------------------------------------------------------------

    def visit(self, place: str) -> None:
        self.visited.append(place)

    def die(self) -> None:
        """Be killed here."""
        self.job.kill(self.proc)

    def alarmed(self) -> bool:
        with self.job.changed:
            return self.job.alarm > 0

    def unwind_if_alarmed(self) -> None:
        if self.alarmed():
            raise Rollback("a process failed")

    def barrier(self) -> None:
        job = self.job
        with job.changed:
            mine = job.barriers[self.proc] = job.barriers[self.proc] + 1
            job.changed.notify_all()
            self._until(lambda: min(job.barriers) >= mine)

    def same_everywhere(self, value: int) -> int | None:
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

    def round_asked(self) -> int:
        with self.job.changed:
            return self.job.alarm

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

    # -- telling ------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        with self.job.changed:
            self.job.story.append(event)

    def events(self) -> list[Event]:
        with self.job.changed:
            return list(self.job.story)

    def tell(self, text: str) -> None:
        self.told.append(text)

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

    def abort(self, status: int) -> None:
        with self.job.changed:
            self.job.status = status

    def leave(self) -> None:
        self.left = True
