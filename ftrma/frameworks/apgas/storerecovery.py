"""Recovery of a store: each shelf gets a holder and a keeper again, and half-made `set2` end.

The root leads a recovery, in steps. In each step some places do a *job* each. The root waits for
all living places that have a job, and gives up with `DeadPlaceException` if one has died. The
program then begins the recovery again from its start, with a greater number, until one succeeds.

0. All active places and all holders *freeze* their parts.
1. A shelf that has been written to, and whose holder and keeper are both dead, is lost.
2. A place that replaces a dead holder *loads* the shelf from the keeper's file, then says so in
   the table. If there is no replacement, the keeper adopts the shelf. A place may also take over
   from a living holder, if the order of the group has changed, or the group has grown.
3. Holders whose shelf has no keeper *mirror* it: they write the shelf into a new file, then say so
   in the table. If the shelf came from a living holder, that place ceases to be the holder then.
4. Holders *replay* intents that were not answered, in their order.
5. The root publishes the generation, which opens the store everywhere.

If the job was launched again, all places are new processes, which a holder finds in step 0
(`Forgotten`). Files in shared memory have outlived the processes before, and each has all that was
committed to its shelf; so the root looks for the node that has the file, names a place there as the
keeper, and all goes on as if each holder had died. Without one of the files the store begins empty.

Law: at each moment the table names a whole copy of each shelf, or that copy's places are dead.

Source: Resilient X10, section 4.2.2, extended by what a second death during a recovery requires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...framework import kill_place
from ...host import outfile
from ...host.errors import FtrmaError, NodeLost
from . import shelf as shelves
from .errors import DeadPlaceException
from .shelf import ShelfFile, State
from .storeerrors import Forgotten, LostShelves
from .storepart import Part, files_of
from .storetable import DIRTY, FAILED, GENERATION, HALTED, LOST, ROUND, SEAT, Row

TURNS = 2  # turns of loading and mirroring: a shelf moves in the second turn at the latest


class Job(NamedTuple):
    """A job that a place does in one step of a recovery."""

    place: int
    what: str
    arguments: tuple[Any, ...] = ()


# Decisions of the root ----------------------------------------------------------------------------


def seats_of(old: Sequence[int], active: Sequence[int]) -> list[int]:
    """Give each shelf to an active place: to its own place if that is still active, else to a new.

    New places get the shelves of places that have just died first, since they go on with the work
    of those. Only then they get shelves that have belonged to nobody since the group shrank.

    Returns:
        Places by shelf; -1: there are fewer places than shelves.
    """
    new = iter([place for place in active if place not in old])
    seats = [place if place in active else -1 for place in old]
    empty = [shelf for shelf, place in enumerate(seats) if place < 0]
    for shelf in sorted(empty, key=lambda shelf: old[shelf] < 0):
        seats[shelf] = next(new, -1)
    return seats


def holders_of(rows: Sequence[Row], seats: Sequence[int], active: Sequence[int],
               dead: Iterable[int]) -> list[int]:
    """Choose the holder of each shelf; one that lives is replaced only if its keeper lives, too."""
    gone, found = {-1, *dead}, []
    for row, seat in zip(rows, seats, strict=True):
        if row.holder in gone:
            adopter = row.keeper if row.keeper in active else active[0]
            found.append(seat if seat >= 0 else adopter)
        else:
            moves = seat >= 0 and row.keeper not in gone
            found.append(seat if moves else row.holder)
    return found


def keeper_of(holder: int, active: Sequence[int],
              node_of: Callable[[int], int] = lambda place: 0) -> int:
    """Return the keeper for a holder: the next active place, on another node if possible; else -1.
    """
    first = active.index(holder) + 1 if holder in active else 0
    others = [place for place in (*active[first:], *active[:first]) if place != holder]
    away = [place for place in others if node_of(place) != node_of(holder)]
    return (away or others or [-1])[0]


# The steps of the root ----------------------------------------------------------------------------


class Recovery:
    """Leads recoveries of a store at the root.

    Args:
        part: the root's own part of the store.
        serve: does a job at a place, see `storeregistry.serve`.
    """

    def __init__(self, part: Part, serve: Callable[..., None]) -> None:
        self.part, self.table, self.members = part, part.table, part.members
        self._serve = serve
        self.done: dict[int, FtrmaError | None] = {}
        self._asked, self._busy, self._told = 0, False, False

    def run(self, active: Sequence[int]) -> None:
        """Recover the store, with the given places active from now on.

        Raises:
            DeadPlaceException: a place has died: find a replacement and call `run` again.
            LostShelves: shelves are lost. FtrmaError: a place could not do its job.
        """
        self.part.host.scheduler.wait(lambda: not self._busy)
        self._busy = True
        self.table.put(HALTED, 0)
        with self.part.host.scheduler.span(f"recover store {self.part.name}"):
            self._run(active)

    def _run(self, active: Sequence[int]) -> None:
        try:
            keepers = None
            while keepers is None:
                try:
                    keepers = self._place(list(active))
                except Forgotten:
                    self._adopt()
            self._call([Job(place, "replay") for place in
                        sorted({row.holder for row in self.table.rows()})])
            kill_place("apgas.open")
            self.table.put(GENERATION, self.round)
            self._say_alone(keepers)
        except DeadPlaceException as error:
            self.table.put(HALTED, 1 + error.place)
            raise
        except Exception:
            self.table.put(HALTED, FAILED)
            raise
        finally:
            self._busy = False
            self._tell_all()

    def _place(self, active: list[int]) -> list[int]:
        """Give each shelf a holder and a keeper; return the keepers.

        If a shelf is to leave a living holder and its keeper is dead, the first turn makes a new
        file, and the second turn moves the shelf by that file.
        """
        for _ in range(TURNS):
            self.round = self.table.get(ROUND) + 1
            self.table.put(ROUND, self.round)
            seats, holders, keepers = self._turn(active)
            if all(seat in (-1, holder) for seat, holder in zip(seats, holders, strict=True)):
                break
        return keepers

    def _turn(self, active: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Freeze, load and mirror; return the seats, holders and keepers of all shelves."""
        table, members = self.table, self.members
        rows = table.rows()
        if any(row.holder not in (-1, *members.possible, *members.deaths()) for row in rows):
            raise Forgotten(f"store {self.part.name!r}: there are fewer places than before")
        holders = {row.holder for row in rows} - self._gone(rows)
        self._call([Job(place, "freeze") for place in sorted({*active, *holders})])
        dead = self._gone(rows)
        for shelf, row in enumerate(rows):
            if row.holder < 0 and row.made:  # adopted, maybe in a launch that has ended, too
                row = rows[shelf] = self._adopted(shelf, row)
                if row.keeper < 0 and table.get(DIRTY + shelf):
                    raise Forgotten(f"store {self.part.name!r}: shelf {shelf} has no file")
        self._refuse_loss(rows, dead)
        seats = seats_of(table.seats(), active)
        for shelf, place in enumerate(seats):
            table.put(SEAT + shelf, place + 1)
        new = holders_of(rows, seats, active, dead)
        self._call([Job(holder, "load", (shelf, row.holder in dead, row.keeper not in dead))
                    for shelf, (row, holder) in enumerate(zip(rows, new, strict=True))
                    if row.holder != holder])
        files = files_of(self.members)
        keepers = [keeper_of(holder, active, files.node_of) if files
                   else keeper_of(holder, active) for holder in new]
        self._call([Job(holder, "mirror", (shelf, keeper))
                    for shelf, (holder, keeper) in enumerate(zip(new, keepers, strict=True))])
        return seats, new, keepers

    def _gone(self, rows: Sequence[Row]) -> set[int]:
        """The places of rows that are dead, or were started later in an attempt that has ended."""
        members = self.members
        return {-1, *(place for row in rows for place in (row.holder, row.keeper)
                      if place not in members.everyone or not members.alive(place))}

    def _adopt(self) -> None:
        """Have the files of a launch that has ended count as those of places that live."""
        table, part = self.table, self.part
        rows = [self._adopted(shelf, row) for shelf, row in enumerate(table.rows())]
        table.put(LOST, 0)
        lost = [shelf for shelf, row in enumerate(rows)
                if row.keeper < 0 and table.get(DIRTY + shelf)]
        if not lost:
            return
        outfile.tell(f"store {part.name!r}: no copy of shelf {', '.join(map(str, lost))} is left "
                     "from before the job was launched again; the store begins empty", who="apgas")
        # No file is left before a shelf counts as empty: if the job is launched again in between,
        # it finds a shelf without a file again, and never some shelves empty and the others not.
        for shelf, row in enumerate(rows):
            if row.keeper >= 0:
                shelves.remove(part.path(shelf, row), part.far(row.keeper))
            kill_place("apgas.empty")
        for shelf in range(len(rows)):
            table.put_row(shelf, Row(-1, -1, 0))
            table.put(DIRTY + shelf, 0)
            kill_place("apgas.empty")

    def _adopted(self, shelf: int, row: Row) -> Row:
        """Have a living place of the node with a shelf's file be its keeper, until it is loaded."""
        row = Row(-1, self.part.place_with_file(shelf, row.made), row.made)
        self.table.put_row(shelf, row)
        return row

    def _refuse_loss(self, rows: Sequence[Row], dead: set[int]) -> None:
        lost = tuple(shelf for shelf, row in enumerate(rows)
                     if row.holder in dead and row.keeper in dead and self.table.get(DIRTY + shelf))
        if lost:
            self.table.put(LOST, sum(1 << shelf for shelf in lost))
            raise LostShelves(self.part.name, lost)

    def _call(self, jobs: Sequence[Job]) -> None:
        """Have places do their jobs, and wait for all living places among them.

        Raises:
            DeadPlaceException: one of these places, or a place that it needs, has died.
            FtrmaError: a place could not do its job.
        """
        waited = {}
        for job in jobs:
            self._asked += 1
            waited[self._asked] = job.place
            self.part.host.ledger.send_uncounted(job.place, (self._serve, (
                self.part.index, self.part.name, self.part.me, self._asked, self.round, *job[1:]),
                {}))
        alive = self.members.alive
        self.part.host.scheduler.wait(
            lambda: all(number in self.done or not alive(place)
                        for number, place in waited.items()))
        errors = [self.done.pop(number, DeadPlaceException(place))
                  for number, place in waited.items()]
        found = [error for error in errors if error is not None]
        found.sort(key=lambda error: not isinstance(error, DeadPlaceException))
        if found:
            raise found[0]

    def _tell_all(self) -> None:
        """Wake all places, since each of them may wait for the store."""
        for place in self.members.everyone:
            if self.members.alive(place):
                self.part.post(place, "woken")

    def _say_alone(self, keepers: Sequence[int]) -> None:
        if max(keepers) < 0 and not self._told:
            self._told = True
            outfile.tell(f"store {self.part.name!r}: one place is active, so nobody keeps a copy",
                         who="apgas")


# The jobs of the places ---------------------------------------------------------------------------


def freeze(part: Part, round_: int) -> None:
    """Serve nobody until the recovery has ended.

    Raises:
        Forgotten: the process that held a shelf for this place is gone; this is another process.
    """
    part.freeze(round_)
    if any(row.holder == part.me and shelf not in part.held
           for shelf, row in enumerate(part.table.rows())):
        raise Forgotten(f"store {part.name!r}: place {part.me} has begun anew")


def load(part: Part, round_: int, shelf: int, orphaned: bool, kept: bool) -> None:
    """Read a shelf from its keeper's file, to become its holder.

    Args:
        orphaned: the holder is dead, so this place becomes the holder now. If false, the living
            holder stays the holder until this place has mirrored the shelf.
        kept: the keeper is alive and has the file; if false, the shelf is empty.

    Raises:
        DeadPlaceException: the keeper has died.
    """
    row, state = part.table.row(shelf), State()
    if kept:
        try:
            state = shelves.read(part.path(shelf, row), part.far(row.keeper))
        except FileNotFoundError:
            raise DeadPlaceException(row.keeper) from None
        if not part.members.alive(row.keeper):
            raise DeadPlaceException(row.keeper)
    kill_place("apgas.load")
    part.held[shelf], part.acked[shelf] = state, set()
    part.files.pop(shelf, None)
    if orphaned:
        part.table.put_row(shelf, Row(part.me, row.keeper, row.made))


def mirror(part: Part, round_: int, shelf: int, keeper: int) -> None:
    """Write a shelf into a new file for a keeper, unless the keeper already has its file.

    Raises:
        DeadPlaceException: the keeper has died. NoRoom: shared memory is full.
    """
    old = part.table.row(shelf)
    if shelf not in part.held:
        raise FtrmaError(f"store {part.name!r}: place {part.me} does not hold shelf {shelf}")
    _, row = part.files.get(shelf, (None, None))
    if row == old and row.keeper == keeper:
        return
    row = Row(part.me, keeper, round_)
    new, members = None, part.members
    if keeper >= 0:
        try:
            new = ShelfFile(part.path(shelf, row), part.held[shelf], part.far(keeper))
        except NodeLost:
            part.host.scheduler.wait(lambda: not members.alive(keeper))  # its death is told soon
    if keeper >= 0 and not members.alive(keeper):
        shelves.remove(part.path(shelf, row), part.far(keeper))
        raise DeadPlaceException(keeper)
    kill_place("apgas.mirror")
    part.files[shelf] = new, row
    part.table.put_row(shelf, row)
    if old.keeper >= 0:
        shelves.remove(part.path(shelf, old), part.far(old.keeper))


def replay(part: Part, round_: int) -> None:
    """Send all intents that were not answered, one after the other, and wait for the answers.

    All shelves are at their places now, so files that the table does not name are left over.

    Raises:
        DeadPlaceException: the holder or the keeper of a shelf has died.
    """
    part.sweep()
    for origin in [s for s in sorted(part.held) if part.table.row(s).holder == part.me]:
        intents, acked = part.held[origin].intents, part.acked[origin]
        for number in sorted(intents):
            if number in intents and number not in acked:  # an answer may have come meanwhile
                kill_place("apgas.intent")
                part.send_intent(origin, number, round_)
                part.await_intent(origin, number)


JOBS: dict[str, Callable[..., None]] = {
    "freeze": freeze, "load": load, "mirror": mirror, "replay": replay}


def do_job(part: Part, root: int, number: int, round_: int, what: str,
           arguments: tuple[Any, ...]) -> None:
    """Do a job for which the root asks, and send it the outcome."""
    error: FtrmaError | None = None
    name = f"{what} shelf {arguments[0]}" if arguments else what
    try:
        with part.host.scheduler.span(name, store=part.name, round=round_):
            JOBS[what](part, round_, *arguments)
    except FtrmaError as problem:
        error = problem
    except Exception as problem:
        error = FtrmaError(f"store {part.name!r}: place {part.me} could not {what}: "
                           f"{type(problem).__name__}: {problem}")
    part.post(root, "done", number, error)
