"""The door for frameworks: systems that recover in their own way, on what ftrma has.

A framework is a library that runs under ``ftrma run`` inside of a user's program. It takes over
what is done about failures by `claim`: from then on a dead slot is replaced and its vault rebuilt
as ever, everybody enters the program again from its top, and the framework does the rest, with what
it has kept in the survivors' memory (`kept`) and saved with checkpoints (`entries`). What the
program itself has protected goes back to the checkpoint as in any rollback. ftrma knows nothing of
what a framework is about.

A slot's way through a failure is then: `claim` again, as at each entry; learn who is where, by a
collective call of the framework's own in which a fresh process says that it has kept nothing; read
`entries` where memory is gone; go on.

A window with the info ``ftrma_protect=false`` is a framework's own, too: it is neither saved nor
restored. Survivors find it again with what was in it, as long as all parts of their node are where
they were; else it is zeros, as it is for others.

Under plain ``mpiexec`` nothing is claimed, saved or committed, and `kept` is a dictionary.
"""

from __future__ import annotations

import numbers
import re
import sys
from collections import UserDict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import FtrmaError

if TYPE_CHECKING:
    from .program.session import Session

__all__ = [
    "attempt", "claim", "committed", "confirm", "due", "entries", "kept", "kill_place", "note",
    "restored", "safepoint",
]


def _session() -> Session | None:
    module = sys.modules.get("ftrma.program.session")
    return module.current if module else None


def _claimed(what: str) -> Session | None:
    session = _session()
    if session and not session.claimed:
        raise FtrmaError(f"{what}: a framework has to claim() the job's failures first")
    return session


def claim(name: str, way: str = "reentry", *, forfeit: bool = False) -> None:
    """Take over what is done about failures, from now on to the job's end.

    Accesses are logged no more, and nothing is replayed. The recovery is told as "*name* recovers".

    Args:
        name: of the framework: small letters and underscores.
        way: "reentry": after a failure all slots enter the program again, from its top.
        forfeit: they do so as well where more is lost than can be rebuilt, which otherwise is the
            job's end: then no version is committed any more, and there are no entries.

    Raises:
        ValueError: the name or way is none; the job's policy is "causal", which wants no recovery
            but replay.
        FtrmaError: another framework has claimed them, or slots disagree.

    MPI: collective over all slots; waits until all have come to it.
    Fault: unwinds when all go back. One that comes while some have claimed is handled as after it.
    """
    if not re.fullmatch(r"[a-z_]{1,31}", name):
        raise ValueError(f"claim({name!r}): a name has 1 to 31 small letters and underscores")
    if way != "reentry":
        raise ValueError(f"claim({name!r}, {way!r}): the way is \"reentry\"")
    session = _session()
    if session:
        session.claim(name, forfeit=forfeit)


class Kept(UserDict[str, Any]):
    """What a framework keeps in this process: numbers and arrays, by name.

    They are there when the program is entered again in the same process, and nowhere else: a spare
    that has taken a slot, or a job that was launched again, has none.

    Raises:
        TypeError: a value is neither a number nor an array of numbers.
        FtrmaError: nothing has been claimed.

    MPI: local.
    Fault: nothing happens in it.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        _claimed("kept")
        if not isinstance(value, numbers.Number | np.generic | np.ndarray):
            raise TypeError(f"kept[{key!r}]: {type(value).__name__}; only numbers and arrays stay "
                            "for the next attempt: what belongs to MPI is made again in each")
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise TypeError(f"kept[{key!r}]: an array of objects; give one of numbers")
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            value = value.copy()  # of an entry, perhaps, whose memory is not the framework's
        super().__setitem__(key, value)


class Entries:
    """Arrays that are saved with each checkpoint, by name, and never put back by themselves.

    MPI: local.
    Fault: what was put and not committed is gone when the program is entered again.
    """

    def put(self, key: str, value: npt.ArrayLike, kind: str = "value") -> None:
        """Have the next checkpoints save an array, in place of the one before of that name.

        Args:
            key: name of the entry.
            value: C-contiguous arrays are saved as they are when a checkpoint is taken; others, and
                numbers, as they are now.
            kind: "value": compared with its copy at each checkpoint; "static": saved once, and not
                looked at again until it is put again; "append": it has grown at its end, and what
                is committed is not looked at.

        Raises:
            ValueError: there is no such kind, or what only grows has become smaller.
            FtrmaError: an array of objects, or nothing has been claimed.
        """
        session = _claimed("entries.put")
        if session:
            session.entries.put(key, value, kind)

    def read(self, key: str) -> npt.NDArray[Any]:
        """Return what was saved: a view that is not to be written to, until the next checkpoint.

        At the begin of an attempt that is the committed copy, later the newest one.

        Raises:
            KeyError: no checkpoint has such an entry.
        """
        session = _claimed("entries.read")
        if not session:
            raise KeyError(key)
        return session.entries.read(key)

    def drop(self, key: str) -> None:
        """Have the next checkpoint go without an entry, if there is one."""
        session = _claimed("entries.drop")
        if session:
            session.entries.drop(key)

    def __contains__(self, key: str) -> bool:
        """A checkpoint has it."""
        session = _claimed("entries")
        return session is not None and key in session.entries.saved


kept = Kept()
entries = Entries()


def safepoint(take: bool | None = None) -> int:
    """Mark a place where all that is saved is consistent, as `ftrma.safepoint`.

    Args:
        take: True: all slots take a checkpoint now; False: none is taken here; None: one is taken
            if it is due, as in `ftrma.safepoint`. The same on all slots.

    Returns:
        The version that was taken, which will be committed unless that is undone, see `confirm`; 0:
        none was.

    MPI: collective over all slots where a checkpoint is taken; else local.
    Fault: unwinds when all go back. A checkpoint that was not committed is as if it had not begun.
    """
    session = _session()
    return int(session.safepoint(take)) if session else 0


def due() -> bool:
    """Whether a checkpoint is due by ``--interval``, as this slot sees it: slots have to agree.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    return session is not None and session.due()


def committed() -> int:
    """The newest version that is committed; 0: none.

    A checkpoint that has been taken is committed soon after, by the checksum ranks; `confirm` waits
    for that.

    MPI: local.
    Fault: unwinds when all go back.
    """
    session = _session()
    return int(session.committed()) if session else 0


def confirm(version: int) -> bool:
    """Wait until a version is committed that `safepoint` has returned.

    Where failures are repaired and nobody goes back, a checkpoint that has been taken can be undone
    all the same. So what has to be saved is saved by ``while not confirm(safepoint(take=True))``.

    Returns:
        Whether it is committed; else it was given up or undone, on all slots, and another one can
        be taken. True where nothing is protected.

    Raises:
        FtrmaError: nothing has been claimed: in a replay the same safepoint may take none.

    MPI: local; waits for the checksum ranks.
    Fault: unwinds when all go back.
    """
    session = _claimed("confirm")
    return session is None or session.confirm(version)


def attempt() -> int:
    """How often all slots have entered the program by now, from 1; 0: it is not protected.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    return int(session.world.ctl.entry) if session else 0


def restored() -> bool:
    """Whether the program has put back state that it declared, by `ftrma.protect`, in this attempt:
    it goes on from where the checkpoint was taken then, instead of from its begin.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    return session is not None and any(state.restored for state in session.states.values())


def kill_place(name: str) -> None:
    """Be at a place where ``--kill SLOT@NAME`` strikes; its name is such as ``graph.emit``.

    MPI: local.
    Fault: the process is killed there, if a rule says so.
    """
    session = _session()
    if session:
        session.world.visit_named(name)


def note(**entries: Any) -> None:
    """Tell something that ``--stats`` shows under ``notes``: names and numbers or text.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    if session:
        session.note(entries)
