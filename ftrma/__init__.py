"""Lets MPI one-sided programs in Python survive the death of a process.

Three lines make a program survive with the loss of little work::

    from ftrma import MPI                       # drop-in for mpi4py.MPI
    state = ftrma.protect("main", step=0)       # after the windows are made and initialized
    ftrma.safepoint()                           # where windows and state belong together

Run under ``ftrma run -n N app.py`` the program is protected; under plain ``mpiexec`` the same lines
do nothing. Unmodified mpi4py programs run under ``ftrma run``, too; after a death they are replayed
from their top.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .host.errors import CatastrophicFailure, CorruptVault, FtrmaError, NotRecoverable, Rollback
from .host.version import VERSION

if TYPE_CHECKING:
    from mpi4py import MPI

    from .program.session import FailureEvent
    from .program.state import State

__version__ = VERSION
__all__ = [
    "MPI",
    "CatastrophicFailure",
    "CorruptVault",
    "FtrmaError",
    "NotRecoverable",
    "Rollback",
    "State",
    "busy",
    "on_failure",
    "protect",
    "safepoint",
    "stats",
]

for _error in (CatastrophicFailure, CorruptVault, FtrmaError, NotRecoverable, Rollback):
    _error.__module__ = __name__  # tracebacks then show the name by which programs catch them

if "mpi4py.MPI" in sys.modules:
    from .native import loading

    if not loading.loaded():
        raise FtrmaError(loading.too_late())


def _current() -> Any:
    module = sys.modules.get("ftrma.program.session")
    return module.current if module else None


def __getattr__(name: str) -> Any:
    if name == "MPI":
        from mpi4py import MPI

        return MPI
    if name == "State":  # it needs NumPy, which an agent does not import
        from .program.state import State

        return State
    raise AttributeError(f"module 'ftrma' has no attribute {name!r}")


def protect(name: str, **fields: Any) -> State:
    """Declare local variables that belong to the program's state.

    Call it after the windows are made and initialized. When the program is run again after a
    failure, this call puts back the contents of the windows made so far, and the fields, as they
    were at the last checkpoint. A window that is made after this call comes back with its contents;
    initialize such a window only if ``state.restored`` is false.

    Args:
        name: name of the state, unique in the program. All slots declare the same states in the
            same order.
        fields: initial values. C-contiguous NumPy arrays are restored in place; everything else
            must be picklable.

    Returns:
        A `State` with the fields as attributes.

    Raises:
        FtrmaError: a field cannot be saved, or slots disagree about names or order.
        ValueError: the name is taken, or there are no fields.

    MPI: collective over all slots; waits until all have called it.
    Fault: waits while a dead slot is replayed; raises `Rollback` when all slots go back.
    """
    from .program.state import State

    session = _current()
    return session.protect(name, fields) if session else State(name, fields)


def safepoint(*, durable: bool = False) -> None:
    """Mark a place where windows and declared state are consistent with each other.

    Checkpoints are taken only here, and only when one is due. No exclusive lock may be held. Every
    slot must call it equally often. Its place is the top of the program's loop: a slot that is
    replayed finds the place of the checkpoint there again, whatever lies between `protect` and the
    loop. It costs about 2 us when no checkpoint is due.

    Args:
        durable: take a checkpoint here, and write it to the files of ``ftrma run --spill DIR``
            while the program goes on. All slots must give the same value.

    MPI: local, unless a checkpoint is due; then it is collective over all slots, and waits until
        all have staged their parts.
    Fault: waits while a dead slot is replayed; raises `Rollback` when all slots go back. A
        checkpoint that was not committed has no effect.
    """
    session = _current()
    if session:
        session.safepoint(durable=durable)


def busy(seconds: float) -> None:
    """Announce that this slot computes for a time without a call of MPI or a safepoint.

    During that time ``--stall`` does not regard the slot as hanging. The announcement ends when the
    time is over, or with the next announcement; ``ftrma.busy(0)`` ends it at once. It costs less
    than 2 us.

    Args:
        seconds: time from now on, 0 to 1e9.

    Raises:
        ValueError: `seconds` is no such number.

    MPI: local; does not wait.
    Fault: a death elsewhere has no effect on it. A replacement of the slot makes the call again.
    """
    if not 0 <= seconds <= 1e9:
        raise ValueError(f"busy({seconds!r}): expected a number of seconds from 0 to 1e9")
    session = _current()
    if session:
        session.busy(seconds)


def stats() -> dict[str, Any]:
    """Return what this slot knows about the job: checkpoints, failures, recoveries; counters.

    Returns:
        A dictionary; empty when the program is not protected. ``windows`` has one entry per
        protected window with the counters GNC, GC, and EC and SC per target.

    MPI: local; does not wait for other slots.
    Fault: if a death is known, it is repaired first; raises `Rollback` when all slots go back.
    """
    session = _current()
    return session.stats() if session else {}


def on_failure(callback: Callable[[FailureEvent], object]) -> None:
    """Call ``callback(event)`` on this slot after a recovery, before the program goes on.

    Callbacks run in the order of registration. After a causal recovery (``event.kind``) they stay
    registered. After a rollback they are forgotten, since the program is run again and registers
    them anew. See `ftrma.program.session.FailureEvent`.

    MPI: local; does not wait. The callback must not communicate.
    Fault: a death elsewhere has no effect on it. A death while callbacks run is the next failure.
    """
    session = _current()
    if session:
        session.callbacks.append(callback)
