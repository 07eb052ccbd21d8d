"""The door for frameworks: systems that recover programs in their own way, on ftrma's services.

A framework is a library that runs under ``ftrma run`` inside of a user's program. By `claim` it
takes over the recovery from failures. From then on ftrma replaces a dead slot and rebuilds its
vault as usual, and all slots enter the program again from its top. The framework does the rest,
with arrays that it has kept in the survivors' memory (`kept`) and saved with checkpoints
(`entries`). State that the program itself has protected goes back to the checkpoint as in any
rollback. ftrma knows nothing about what a framework computes.

After a failure a slot takes these steps:

1. call `claim` again, as in each attempt;
2. learn which slots have kept something, by a collective call of the framework's own in which a
   fresh process says that it has kept nothing;
3. read `entries` for slots whose memory is lost;
4. go on.

A window with the info ``ftrma_protect=false`` belongs to the framework, too: it is neither saved
nor restored. Survivors find it with its contents, as long as all parts on their node lie where they
lay before; else it has zeros, as in fresh processes.

A framework may ask to be told of deaths instead (`claim` with the way "told"). Then ftrma does
nothing else about them, and gives the framework `Members`: which processes live, their deaths in
the same order for all, and messages and words that outlive the processes that wrote them.

Under plain ``mpiexec`` nothing is claimed, saved or committed, and `kept` is a dictionary.

``ftrma/docs/add-a-framework.md`` shows how a framework is added.
"""

from __future__ import annotations

import atexit
import numbers
import os
import re
import shutil
import sys
import tempfile
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .host.errors import FtrmaError

if TYPE_CHECKING:
    from .native.mail import Mail
    from .program.deathmail import MemberFacts
    from .program.session import Session
    from .program.staging import SlotStaging
    from .program.timeline import Timeline

__all__ = [
    "Members", "attempt", "claim", "committed", "confirm", "count_step", "due", "ending", "entries",
    "kept", "kill_place", "note", "restored", "safepoint", "staging", "timeline",
]


def _session() -> Session | None:
    module = sys.modules.get("ftrma.program.session")
    return module.current if module else None


def _claimed(what: str) -> Session | None:
    session = _session()
    if session and not session.claimed:
        raise FtrmaError(f"{what}: a framework has to claim() the job's failures first")
    return session


class Members:
    """The processes that run the program, for a framework that is told of deaths.

    A process has a number, which is never used again; no process comes back in place of a dead one.
    Only one thread of a process may use this object at a time.

    Args:
        mail: the mail of this process.
        facts: facts about the attempt.

    Attributes:
        mail: messages, and words that all processes share; new and empty in each attempt.
        me: this process.
        root: the process of slot 0. If it dies, all processes enter the program again.
        slots: number of slots; the first `slots` of `everyone` are the slots' processes.
        possible: all processes that there can be: `everyone`, then those that are not started yet.
        attempt: number of the attempt, from 1.
        directory: directory of the job's memory files on this node.
        mtbf_s: value of the option ``--mtbf``; 0 if it is not known.

    MPI: local; no call waits for other processes, except to wait for mail.
    Fault: tells of deaths. Nothing else is done about a death, unless it is that of the root.
    """

    def __init__(self, mail: Mail, facts: MemberFacts) -> None:
        self.mail, self._facts = mail, facts
        self.me, self.slots, self.attempt = facts.me, facts.slots, facts.attempt
        self.directory, self.mtbf_s = facts.directory, facts.mtbf_s
        self._first = len(facts.everyone)
        self.possible = (*facts.everyone, *facts.late)
        self.root = self.possible[0]
        self._handed = 0
        self._callbacks: list[Callable[[int], object]] = []

    @property
    def everyone(self) -> tuple[int, ...]:
        """Processes that run the program, dead ones included: those of the slots in their order,
        then the spares, then those that came later."""
        return self.possible[:self._first + self.mail.started]

    @property
    def generation(self) -> int:
        """Number of deaths so far."""
        return self.mail.generation

    def check(self) -> None:
        """Raise Rollback if all processes go back; every wait calls this."""
        self._facts.check()

    def deaths(self, since: int = 0) -> tuple[int, ...]:
        """List the processes that have died, in the same order for all, without the first `since`.

        In a new attempt the list begins with the earlier deaths.
        """
        return self.mail.deaths(since)

    def alive(self, process: int) -> bool:
        """Say whether no death of a process is known."""
        return self.mail.alive(process)

    def on_failure(self, callback: Callable[[int], object]) -> None:
        """Have `poll` call a function with each process that dies from now on, or has died."""
        self._callbacks.append(callback)

    def poll(self) -> None:
        """Hand each death to all callbacks, once; if one of them raises, the next call repeats it.
        """
        for process in self.deaths(self._handed):
            for callback in self._callbacks:
                callback(process)
            self._facts.report()
            self._handed += 1

    def start(self, count: int) -> tuple[int, ...]:
        """Start more processes, as the root; they run the program from its top.

        The new processes are members at once, and take their mail as soon as they have come up
        (`Mail.joined`). They have no MPI, hold no role, and end with the attempt.

        Returns:
            Numbers of the new processes.

        Raises:
            ValueError: this is not the root, or there is no room for so many (`claim`).
        """
        if self.me != self.root:
            raise ValueError(f"process {self.me} is not the root, process {self.root}")
        left = self.possible[len(self.everyone):]
        if not 0 <= count <= len(left):
            raise ValueError(f"{count} more processes: there is room for {len(left)}")
        self.mail.started += count
        for number in left[:count]:
            self._facts.start(number)
        return left[:count]


_of_attempt: Members | None = None


def claim(name: str, way: str = "reentry", *, forfeit: bool = False, most: int = 0
          ) -> Members | None:
    """Take over the recovery from failures, from now on to the job's end.

    Accesses are no longer logged, and nothing is replayed. A recovery is reported as "*name*
    recovers". With "told" ftrma only reports a death and does nothing else about it. Spares run the
    program, too: they are members like the slots, but cannot use MPI. If the process of slot 0
    dies, all processes enter the program again, and spares take the places of all dead slots.

    Args:
        name: name of the framework: small letters and underscores.
        way: "reentry": after a failure all slots enter the program again, from its top; "told": see
            above.
        forfeit: all slots also enter the program again if more is lost than can be rebuilt, which
            otherwise ends the job. Then no version is committed any more, and there are no entries.
        most: with "told" the greatest number of members, including those that come later
            (`Members.start`). At most as many can come later as there are in the launch; over
            several nodes none can.

    Returns:
        With "told" the processes that run the program, as the same object in the whole attempt.
        For a process that is not under ``ftrma run``, each call returns a new object with that
        process alone. With "reentry" None.

    Raises:
        ValueError: the name or way is not allowed.
        FtrmaError: another framework has claimed failures, or slots disagree; the job's policy is
            "causal", which allows no recovery but replay; with "told" the job is not under
            ``ftrma run`` and has several processes.

    MPI: collective over all slots; waits until all have called it. Local on a spare.
    Fault: raises `Rollback` when all slots go back. A failure that comes when some slots have
        claimed is handled as one that comes after the claim.
    """
    if not re.fullmatch(r"[a-z_]{1,31}", name):
        raise ValueError(f"claim({name!r}): a name has 1 to 31 small letters and underscores")
    if way not in ("reentry", "told"):
        raise ValueError(f"claim({name!r}, {way!r}): the way is \"reentry\" or \"told\"")
    session = _session()
    if way == "told":
        return _members(name, session, forfeit=forfeit, most=most)
    if session:
        session.claim(name, forfeit=forfeit)
    return None


def _members(name: str, session: Session | None, *, forfeit: bool, most: int) -> Members:
    """Claim the job's failures for a framework that is told of deaths."""
    global _of_attempt
    if session is None:
        return _alone(name)
    mail = session.claim_told(name, forfeit=forfeit, most=most)
    if not _of_attempt or _of_attempt.mail is not mail:
        _of_attempt = Members(mail, session.member_facts(most))
        mail.join()
    return _of_attempt


def _alone(name: str) -> Members:
    """Return the members of a program that is a single process, not under ``ftrma run``."""
    processes = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    if processes > 1:
        raise FtrmaError(f"claim({name!r}): {processes} processes without 'ftrma run' cannot be "
                         "told of deaths; start them by 'ftrma run -n'")
    from .native import loading, mail
    from .program.deathmail import MemberFacts

    loading.load()
    directory = Path(tempfile.mkdtemp(prefix="ftrma-alone-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    mail.create(directory / "mail", 1)
    return Members(mail.Mail(directory / "mail", 0), MemberFacts(0, (0,), (), 1, 1, directory))


class Kept(UserDict[str, Any]):
    """Numbers and arrays that a framework keeps in this process, by name.

    They are still there when the program is entered again in the same process. A spare that has
    taken a slot has none, nor has any process of a job that was launched again.

    Raises:
        TypeError: a value is neither a number nor an array of numbers.
        FtrmaError: nothing has been claimed.

    MPI: local.
    Fault: the values are lost with the process, and kept if another process dies.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        _claimed("kept")
        if not isinstance(value, numbers.Number | np.generic | np.ndarray):
            raise TypeError(f"kept[{key!r}]: {type(value).__name__}; only numbers and arrays stay "
                            "for the next attempt: what belongs to MPI is made again in each")
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise TypeError(f"kept[{key!r}]: an array of objects; give one of numbers")
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            value = value.copy()  # it may be an entry, whose memory belongs to ftrma
        super().__setitem__(key, value)


class SavedEntries:
    """Arrays that are saved with each checkpoint, by name; the framework itself reads them back.

    MPI: local.
    Fault: entries that were put but not committed are lost when the program is entered again.
    """

    def put(self, key: str, value: npt.ArrayLike, kind: str = "value") -> None:
        """Save an array with the next checkpoints; it replaces an earlier array of that name.

        Args:
            key: name of the entry.
            value: the array. C-contiguous arrays are saved with the values that they have when a
                checkpoint is taken; other arrays, and numbers, with their values now.
            kind: "value": it is compared with its copy at each checkpoint; "static": it is saved
                once, and not compared until it is put again; "append": it grows only at its end,
                and the part that is committed is not compared.

        Raises:
            ValueError: there is no such kind, or an "append" entry has become smaller.
            FtrmaError: it is an array of objects, or nothing has been claimed.
        """
        session = _claimed("entries.put")
        if session:
            session.entries.put(key, value, kind)

    def read(self, key: str) -> npt.NDArray[Any]:
        """Return a saved entry: a read-only view that is valid until the next checkpoint.

        At the beginning of an attempt it shows the committed copy; later it shows the newest copy,
        even while that is being staged (`staging`).

        Raises:
            KeyError: no checkpoint has such an entry.
        """
        session = _claimed("entries.read")
        if not session:
            raise KeyError(key)
        return session.entries.read(key)

    def drop(self, key: str) -> None:
        """Leave an entry out of the next checkpoint, if there is one of that name."""
        session = _claimed("entries.drop")
        if session:
            session.entries.drop(key)

    def __contains__(self, key: str) -> bool:
        """Say whether a checkpoint has the entry."""
        session = _claimed("entries")
        return session is not None and key in session.entries.saved


class Staging:
    """Checkpoints for which no slot waits: each slot stages its part when it likes.

    A slot begins a version, may add to it, and ends it; between these steps the program goes on.
    The checksum ranks commit the version once all slots have ended it; `committed` and `confirm`
    tell when. Only one version is under way at a time. The framework has to make sure that the
    parts of all slots belong together, also those of windows and state that the program protects;
    these are staged as they are at `begin`.

    A repair in which no slot goes back (for example in a job over several nodes) undoes what is not
    committed, on all slots: parts that are half staged, and a version that only some slots have
    ended. A slot notices that by `generation`. If all slots go back, all enter the program again,
    with the version that is committed then; it may be one that all slots had ended when the failure
    came.

    Under plain ``mpiexec`` `begin` returns True, and nothing is saved.

    MPI: local; no call waits for another process.
    Fault: calls raise `Rollback` when all slots go back.
    """

    @property
    def generation(self) -> int:
        """Number that rises with each repair that this slot has gone through.

        Slots that have gone through the same repairs have the same number. So if a message carries
        the sender's number, the receiver knows whether a repair came between.
        """
        session = _session()
        return session.generation if session else 0

    def prepare(self) -> None:
        """Reserve the memory of a first version, for all that is put and protected by now.

        A thread of low priority reserves it, as far as memory is free. What is missing then is
        reserved by `begin`, which holds the program up.
        """
        session = _claimed("staging.prepare")
        if session:
            session.preallocate()

    def ready(self) -> bool:
        """Say whether no version is under way: the newest is committed, with all its parities.

        One slot asks this before it tells all slots to begin the next version. In a job over
        several nodes another slot may see the commit a moment later; until then its `begin`
        returns False.
        """
        staging = _staging("ready")
        return staging is None or staging.ready()

    def begin(self, generation: int | None = None) -> bool:
        """Begin the next version: stage all entries that are put, windows and declared state.

        Entries are staged with their values now, even if the arrays change later.

        Args:
            generation: begin only if the slot's `generation` is still this one. A repair may come
                at the beginning of this call, and a version that is begun has to be ended.

        Returns:
            False: nothing has happened. The previous version is still under way, or a spare
            computes the parity of a checksum rank that died, so try again later; or the slot's
            `generation` is another one.

        Raises:
            FtrmaError: a version is begun already.
        """
        staging = _staging("begin")
        return staging is None or staging.begin(
            lambda: generation is None or generation == self.generation)

    def add(self) -> None:
        """Also stage the entries that were put since `begin`, or since the last `add`.

        If a repair has undone the version, the call does nothing.

        Raises:
            FtrmaError: no version is begun.
        """
        staging = _staging("add")
        if staging:
            staging.add()

    def end(self) -> int:
        """End the version: this slot's part is whole.

        Entries that were put since `begin` and not added belong to the next version.

        Returns:
            The version, which is committed when all slots have ended it, unless a repair undoes it
            first. 0: a repair has undone it already.

        Raises:
            FtrmaError: no version is begun.
        """
        staging = _staging("end")
        return int(staging.end()) if staging else 0


def _staging(what: str) -> SlotStaging | None:
    session = _claimed(f"staging.{what}")
    if session and session.mail:
        raise FtrmaError(f"staging.{what}: a framework that is told of deaths has no checkpoints; "
                         "claim() in the way \"reentry\"")
    return session.staging if session else None


kept = Kept()
entries = SavedEntries()
staging = Staging()


def safepoint(take: bool | None = None) -> int:
    """Mark a place where all that is saved is consistent, as `ftrma.safepoint`.

    All slots must have ended the same versions of `staging` before a safepoint that takes a
    checkpoint; the safepoint waits until these versions are committed.

    Args:
        take: True: all slots take a checkpoint now; False: no checkpoint is taken; None: one is
            taken if it is due, as in `ftrma.safepoint`. All slots must give the same value.

    Returns:
        The version that was taken, which will be committed unless a repair undoes it, see
        `confirm`; 0: no checkpoint was taken.

    MPI: collective over all slots if a checkpoint is taken; else local.
    Fault: raises `Rollback` when all slots go back. A checkpoint that was not committed has no
        effect.
    """
    session = _session()
    return int(session.safepoint(take)) if session else 0


def due() -> bool:
    """Say whether a checkpoint is due by ``--interval``, as this slot sees it.

    Slots may see that differently, so the framework has to make them agree.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    session = _session()
    return session is not None and session.due()


def ending() -> bool:
    """Say whether the job is to end after its next checkpoint, as this slot sees it.

    `due` is true then, too. A framework with a clock of its own for checkpoints should ask this.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    session = _session()
    return session is not None and bool(session.view.words.halt)


def committed() -> int:
    """Return the newest version that is committed; 0: there is none.

    The checksum ranks commit a checkpoint soon after it was taken; `confirm` waits for that. A
    version that slots stage by `staging` is committed when all slots have ended it.

    MPI: local.
    Fault: raises `Rollback` when all slots go back.
    """
    session = _session()
    return int(session.committed()) if session else 0


def confirm(version: int) -> bool:
    """Wait until a version that `safepoint` or `staging.end` has returned is committed.

    A repair can undo a checkpoint that has been taken, even if no slot goes back. So save data that
    must not be lost by ``while not confirm(safepoint(take=True))``.

    Returns:
        True: the version is committed, or nothing is protected. False: it was given up or undone,
        on all slots, and another one can be taken.

    Raises:
        FtrmaError: nothing has been claimed. (Without a claim slots are replayed, and in a replay
            the same safepoint may take no checkpoint.)

    MPI: local; waits for the checksum ranks, and for slots that have not ended the version.
    Fault: raises `Rollback` when all slots go back.
    """
    session = _claimed("confirm")
    return session is None or session.confirm(version)


def attempt() -> int:
    """Return the number of the attempt, from 1: how often all slots have entered the program.

    It is 0 if the program is not protected.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    session = _session()
    return int(session.view.words.attempt) if session else 0


def restored() -> bool:
    """Say whether `ftrma.protect` has put back state that the program declares.

    Then the program goes on from the place of the checkpoint in this attempt, and not from its
    beginning.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    session = _session()
    return session is not None and any(state.restored for state in session.states.values())


def kill_place(name: str) -> None:
    """Mark a place, such as ``graph.emit``, for rules ``--kill SLOT@NAME`` of tests.

    MPI: local.
    Fault: the process is killed here, if a rule says so.
    """
    session = _session()
    if session:
        session.view.visit_named(name)


def count_step(step: int) -> None:
    """Report how many steps the program has taken, by a framework that is told of deaths.

    ``ftrma status`` and ``--metrics`` show the number of slot 0 as the number of the job.

    MPI: local.
    Fault: the next attempt begins at 0.
    """
    session = _session()
    if session:
        session.count_step(step)


def timeline(name: str) -> Timeline | None:
    """Return the timeline of ``--trace``, for a framework's own events; each attempt has one.

    Args:
        name: name of the framework.

    Returns:
        The timeline; None if no trace is wanted.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    session = _session()
    return session.timeline(name) if session else None


def note(**entries: Any) -> None:
    """Add names, with numbers or texts, to the ``notes`` in the file of ``--stats``.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    session = _session()
    if session:
        session.note(entries)
