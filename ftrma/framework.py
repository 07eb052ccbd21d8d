"""The door for frameworks: systems that recover programs in their own way, on ftrma's services.

A framework is a library that runs under ``ftrma run`` inside of a user's program. By `claim` it
takes over what is done about failures. From then on a dead slot is replaced and its vault rebuilt
as ever, all slots enter the program again from its top, and the framework does the rest, with
arrays that it has kept in the survivors' memory (`kept`) and saved with checkpoints (`entries`).
State that the program itself has protected goes back to the checkpoint as in any rollback. ftrma
knows nothing of the subject of a framework.

A slot's way through a failure is then:

1. `claim` again, as in each attempt;
2. learn which slots have kept something, by a collective call of the framework's own in which a
   fresh process says that it has kept nothing;
3. read `entries` where memory is lost;
4. go on.

A window with the info ``ftrma_protect=false`` belongs to the framework, too: it is neither saved
nor restored. Survivors find it with its contents, as long as all parts of their node are where they
were; else it is zeros, as it is for fresh processes.

A framework may ask to be told of deaths instead (`claim`, the way "told"). Then nothing is done
about them, and it has `Members`: who lives, deaths in one order for all, messages and words that
outlive who wrote them.

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

    Processes have numbers, which are never used again; no process comes back in place of a dead
    one. One thread of a process at a time uses this object.

    Args:
        mail: of this process.
        facts: about the attempt.

    Attributes:
        mail: messages and words that all share; new and empty in each attempt.
        me: this process.
        root: the process of slot 0. Its death is a failure that all go back for.
        slots: so many of `everyone` are the slots'.
        possible: all that there can be: `everyone`, then those that are not started yet.
        attempt: number of the attempt, from 1.
        directory: of the job's memory files on this node.
        mtbf_s: of the option ``--mtbf``; 0 if it is not known.

    MPI: local; no call of it waits, but waits for mail.
    Fault: deaths are told here; nothing else is done about them, but about the root's.
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
        """Processes that run the program: those of the slots in their order, then the spares, then
        those that came later; dead ones, too."""
        return self.possible[:self._first + self.mail.started]

    @property
    def generation(self) -> int:
        """Number of deaths so far."""
        return self.mail.generation

    def check(self) -> None:
        """Raise Rollback if all go back; every wait calls this."""
        self._facts.check()

    def deaths(self, since: int = 0) -> tuple[int, ...]:
        """List the processes that have died, in one order for all, without the first `since`.

        A new attempt begins with the deaths of before.
        """
        return self.mail.deaths(since)

    def alive(self, process: int) -> bool:
        """Say whether no death of a process is known."""
        return self.mail.alive(process)

    def on_failure(self, callback: Callable[[int], object]) -> None:
        """Have `poll` call this with each process that dies from now on, or has died."""
        self._callbacks.append(callback)

    def poll(self) -> None:
        """Hand each death to all callbacks: once, and again if one of them raised."""
        for process in self.deaths(self._handed):
            for callback in self._callbacks:
                callback(process)
            self._facts.report()
            self._handed += 1

    def start(self, count: int) -> tuple[int, ...]:
        """Start more processes, as the root; they run the program from its top.

        They are members at once, and take their mail as soon as they have come up (`Mail.joined`).
        They have no MPI, hold no role, and end with the attempt.

        Returns:
            Their numbers.

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
    """Take over what is done about failures, from now on to the job's end.

    Accesses are no longer logged, and nothing is replayed. A recovery is told as "*name* recovers".
    With "told" nothing is done about a death but to tell it, and spares run the program, too: they
    are members like the slots, without an MPI of use to them. The death of slot 0's process is a
    failure as ever: all enter the program again, spares in place of all slots that are dead.

    Args:
        name: of the framework: small letters and underscores.
        way: "reentry": after a failure all slots enter the program again, from its top; "told": see
            above.
        forfeit: they do so also if more is lost than can be rebuilt, which otherwise ends the job:
            then no version is committed any more, and there are no entries.
        most: with "told" so many members there can be with those that come later
            (`Members.start`), who are no more than those of the launch; none over several nodes.

    Returns:
        With "told" the processes that run the program: the same object in the whole attempt. A
        process that is not under ``ftrma run`` is the only one, anew with each call. With
        "reentry" None.

    Raises:
        ValueError: the name or way is not allowed.
        FtrmaError: another framework has claimed failures, or slots disagree; the job's policy is
            "causal", which wants no recovery but replay; with "told" the job is not under
            ``ftrma run`` and has several processes.

    MPI: collective over all slots; waits until all have come to it. Local on a spare.
    Fault: unwinds when all go back. A failure that comes while some have claimed is handled as one
        that comes after it.
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
    """Claim for a framework that is told of deaths."""
    global _of_attempt
    if session is None:
        return _alone(name)
    mail = session.claim_told(name, forfeit=forfeit, most=most)
    if not _of_attempt or _of_attempt.mail is not mail:
        _of_attempt = Members(mail, session.member_facts(most))
        mail.join()
    return _of_attempt


def _alone(name: str) -> Members:
    """Be the only process."""
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

    They are there when the program is entered again in this process, and nowhere else: a spare that
    has taken a slot, or a job that was launched again, has none.

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
            value = value.copy()  # it may be an entry, whose memory is not the framework's
        super().__setitem__(key, value)


class SavedEntries:
    """Arrays that are saved with each checkpoint, by name, and never put back by themselves.

    MPI: local.
    Fault: entries that were put and not committed are gone when the program is entered again.
    """

    def put(self, key: str, value: npt.ArrayLike, kind: str = "value") -> None:
        """Have the next checkpoints save an array, in place of the one before of that name.

        Args:
            key: name of the entry.
            value: C-contiguous arrays are saved as they are when a checkpoint is taken; others, and
                numbers, as they are now.
            kind: "value": compared with its copy at each checkpoint; "static": saved once, and not
                compared again until it is put again; "append": it has grown at its end, and the
                part that is committed is not compared.

        Raises:
            ValueError: there is no such kind, or an entry that only grows has become smaller.
            FtrmaError: an array of objects, or nothing has been claimed.
        """
        session = _claimed("entries.put")
        if session:
            session.entries.put(key, value, kind)

    def read(self, key: str) -> npt.NDArray[Any]:
        """Return a saved entry: a view that is valid until the next checkpoint, not to be written.

        At the begin of an attempt it shows the committed copy, later the newest one, also while
        that is being staged (`staging`).

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
        """A checkpoint has the entry."""
        session = _claimed("entries")
        return session is not None and key in session.entries.saved


class Staging:
    """Checkpoints that no slot waits for: each stages its part when it likes.

    A version is begun, perhaps added to, and ended, and between these steps the program goes on.
    Checksum ranks commit it once all slots have ended it; `committed` and `confirm` tell of that.
    Only one version is on its way at a time. Whether the parts of all slots belong together is the
    framework's affair, also with windows and state that the program protects: they are staged as
    they are at `begin`.

    A repair in which nobody goes back, in a job over several nodes say, undoes what is not
    committed, on all slots: what is staged by half, and what some have ended and others have not.
    A slot sees that by `generation`. Where all go back, all enter the program again, with what is
    committed then: that may be a version that all had ended when the failure came.

    Under plain ``mpiexec`` `begin` gives True, and nothing is saved.

    MPI: local; no call of it waits for another process.
    Fault: unwinds when all go back.
    """

    @property
    def generation(self) -> int:
        """Number that rises with each repair that this slot has gone through.

        Slots that have gone through the same repairs have the same number. So what a slot sends
        along with its number tells the receiver whether a repair came between.
        """
        session = _session()
        return session.generation if session else 0

    def prepare(self) -> None:
        """Take the memory of a first version ahead, for all that is put and protected by now.

        Else `begin` has to take it. It is taken by a thread of low priority, as far as there is
        some.
        """
        session = _claimed("staging.prepare")
        if session:
            session.preallocate()

    def ready(self) -> bool:
        """Say that no version is on its way: the newest is committed, with all its parities.

        One slot asks this before it has all begin the next one. Another slot may see that a moment
        later, in a job over several nodes: its `begin` gives False until then.
        """
        staging = _staging("ready")
        return staging is None or staging.ready()

    def begin(self, generation: int | None = None) -> bool:
        """Begin the next version: stage all entries that are put, windows and declared state.

        Entries are staged as they are now, also where arrays go on changing.

        Args:
            generation: begin only if this is the slot's `generation` still, since a version that is
                begun has to be ended; a repair may come at the begin of this call.

        Returns:
            False: not now, and nothing has happened. The version before is on its way, a spare
            computes the parity of a checksum rank that died, or there is another generation.

        Raises:
            FtrmaError: a version is begun already.
        """
        staging = _staging("begin")
        return staging is None or staging.begin(
            lambda: generation is None or generation == self.generation)

    def add(self) -> None:
        """Stage the entries that were put since `begin`, or since the last `add`, as well.

        Nothing is done if a repair has undone the version.

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
            before. 0: a repair has undone it already.

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
    checkpoint, which waits until these are committed.

    Args:
        take: True: all slots take a checkpoint now; False: none is taken here; None: one is taken
            if it is due, as in `ftrma.safepoint`. The same on all slots.

    Returns:
        The version that was taken, which will be committed unless it is undone, see `confirm`; 0:
        none was taken.

    MPI: collective over all slots if a checkpoint is taken; else local.
    Fault: unwinds when all go back. A checkpoint that was not committed is as if it had not begun.
    """
    session = _session()
    return int(session.safepoint(take)) if session else 0


def due() -> bool:
    """Say that a checkpoint is due by ``--interval``, as this slot sees it: slots have to agree.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    return session is not None and session.due()


def ending() -> bool:
    """Say that the job is to end behind its next checkpoint, as this slot sees it.

    `due` says so, too. A framework with a clock of its own for checkpoints asks here as well.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    return session is not None and bool(session.view.words.halt)


def committed() -> int:
    """Return the newest version that is committed; 0: none is.

    A checkpoint that has been taken is committed soon after, by the checksum ranks; `confirm` waits
    for that. One that slots stage by `staging` is committed when all have ended it.

    MPI: local.
    Fault: unwinds when all go back.
    """
    session = _session()
    return int(session.committed()) if session else 0


def confirm(version: int) -> bool:
    """Wait until a version is committed that `safepoint` or `staging.end` has returned.

    A checkpoint that has been taken can be undone by a repair, also if nobody goes back. So data
    that must not be lost is saved by ``while not confirm(safepoint(take=True))``.

    Returns:
        True: it is committed, or nothing is protected. False: it was given up or undone, on all
        slots, and another one can be taken.

    Raises:
        FtrmaError: nothing has been claimed: in a replay the same safepoint may take none.

    MPI: local; waits for the checksum ranks, and for slots that have not ended the version.
    Fault: unwinds when all go back.
    """
    session = _claimed("confirm")
    return session is None or session.confirm(version)


def attempt() -> int:
    """Return the number of the attempt, from 1: slots have entered the program so often.

    0: the program is not protected.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    return int(session.view.words.attempt) if session else 0


def restored() -> bool:
    """Say that the program has put back state that it declared, by `ftrma.protect`.

    In this attempt it goes on from the place of the checkpoint then, instead of from its begin.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    return session is not None and any(state.restored for state in session.states.values())


def kill_place(name: str) -> None:
    """Be at a place, such as ``graph.emit``, where ``--kill SLOT@NAME`` strikes.

    MPI: local.
    Fault: the process is killed there, if a rule says so.
    """
    session = _session()
    if session:
        session.view.visit_named(name)


def count_step(step: int) -> None:
    """Say how many steps the program has taken, as a framework that is told of deaths counts them.

    ``ftrma status`` and ``--metrics`` show the number of slot 0 as that of the job.

    MPI: local.
    Fault: nothing happens in it; the next attempt begins at 0.
    """
    session = _session()
    if session:
        session.count_step(step)


def timeline(name: str) -> Timeline | None:
    """Return the timeline of ``--trace``, for a framework's own events; each attempt has one.

    Args:
        name: of the framework.

    Returns:
        None: no trace is wanted, so nothing is to be told.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    return session.timeline(name) if session else None


def note(**entries: Any) -> None:
    """Add names and numbers or text to the ``notes`` that ``--stats`` shows.

    MPI: local.
    Fault: nothing happens in it.
    """
    session = _session()
    if session:
        session.note(entries)
