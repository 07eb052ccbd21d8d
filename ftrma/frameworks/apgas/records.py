"""The records of finishes, in words that all places share, and when a record is used again.

A record belongs to a *home*, the place that waits for its finish or `at`. For each source s and
destination d it has three words, each with one writer:

| word | writer | meaning |
|---|---|---|
| sent | s | tasks that s has sent to d |
| arrived | d | tasks of s that d has taken from its ring |
| ended | d | tasks of s that have ended at d, with the local tasks that they started |

The head of a record has a serial (odd: the record is in use), the record of the enclosing finish or
`at`, and *cut*, a mask of the places whose tasks in rings are no longer admitted. The home writes
the head; once the home has died, the place that adopts the record writes it.

Words are never cleared. When a record has ended, its words sent and ended are equal for living
places, so the next use begins with equal words. If places had died, the next use subtracts the old
words when it counts lost tasks.

Law (quarantine): a record with cuts is used again only when each living place has taken all
messages of the dead places, since such a message may still belong to the earlier finish. The record
of a dead home is never used again.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from .door import Members

FIRST = 65536  # first word of the records; the words below are for other things
DRAINED = 0  # + i: word of place i, the number of deaths for which it has taken all messages
MOST_PLACES = 64  # bits of a mask
HEAD = 4  # words of a head
SERIAL, PARENT, CUT = range(3)
MOST_RECORDS = 4096  # of each home
NOBODY = 1 << 40  # the record of tasks that no finish waits for


class Records:
    """The records as this place sees them.

    Attributes:
        everyone: all places that there can be, including those that come later.
        me: index of this place in `everyone`; all indices here are of that kind.
        dead: indices of the places whose death this place has looked at, see `refresh`.
    """

    def __init__(self, members: Members) -> None:
        self.members, self.words = members, members.mail.words
        self.everyone = members.possible
        self.count = len(self.everyone)
        if self.count > MOST_PLACES:
            raise ValueError(f"apgas: {self.count} places; there can be {MOST_PLACES}, spares "
                             "among them")
        self.index = {place: i for i, place in enumerate(self.everyone)}
        self.me = self.index[members.me]
        self.square = self.count**2
        room = (self.words.count - FIRST) // (HEAD + 3 * self.square)
        self.each = min(MOST_RECORDS, room // self.count)
        self.rows = FIRST + self.each * self.count * HEAD
        mine = range(self.each * self.me, self.each * (self.me + 1))
        self.free = deque(mine)
        # Records in quarantine, and the number of deaths when each was put there.
        self.held: deque[tuple[int, int]] = deque()
        self.before: dict[int, Any] = {}  # words of a record with cuts when its quarantine ended
        self.generation = 0
        self.dead: frozenset[int] = frozenset()
        self.mask = 0
        self.published = 0  # number of deaths for which all messages are known to be taken here
        self.cut: dict[int, int] = {}  # masks of the records in use that have cuts
        self.parents: dict[int, int] = {}  # parents in the heads of this place's records
        self._orphans: dict[int, list[int]] | None = None
        self._seen: dict[int, tuple[Any, Any]] = {}  # words with which records were found quiet

    # -- where the words are ------------------------------------------------------------------

    def home(self, record: int) -> int:
        """Return the place to which a record belongs."""
        return self.everyone[record // self.each]

    def head(self, record: int) -> int:
        return FIRST + record * HEAD

    def sent(self, record: int, source: int, to: int) -> int:
        return self.rows + record * 3 * self.square + source * self.count + to

    def arrived(self, record: int, source: int, to: int) -> int:
        return self.sent(record, source, to) + self.square

    def ended(self, record: int, source: int, to: int) -> int:
        return self.sent(record, source, to) + 2 * self.square

    # -- use and use again --------------------------------------------------------------------

    def available(self) -> bool:
        """Say whether a record is free; if none is, free those whose quarantine is over."""
        while not self.free and self.held and self._drained() >= self.held[0][1]:
            record, _ = self.held.popleft()
            self.before[record] = self.words.read(self.sent(record, 0, 0), 3 * self.square)
            self.words.store(self.head(record) + CUT, 0)
            self.free.append(record)
        return bool(self.free)

    def take(self, parent: int) -> tuple[int, int]:
        """Return a free record and its serial; it is in use from now on."""
        record = self.free.popleft()
        head = self.head(record)
        if self.parents.get(record) != parent:
            self.words.store(head + PARENT, parent)
            self.parents[record] = parent
        return record, self.words.add(head + SERIAL)

    def retire(self, record: int) -> None:
        """End the use of a record, an own one or an adopted one."""
        self.words.add(self.head(record) + SERIAL)
        if record // self.each != self.me:
            self._orphans = None
        elif self.cut.pop(record, 0):
            self.held.append((record, self.generation))
        else:
            self.free.append(record)

    def _drained(self) -> int:
        there = range(len(self.members.everyone))
        return min(self.words.load(DRAINED + i) for i in there if i not in self.dead)

    # -- deaths -------------------------------------------------------------------------------

    def refresh(self, generation: int) -> bool:
        """Look at the first deaths, and publish when all messages of the dead have been taken here.

        Args:
            generation: number of deaths to look at.

        Returns:
            Whether that has been published for all of these deaths.
        """
        if generation != self.generation:
            self.generation = generation
            deaths = self.members.deaths()[:generation]
            self.dead = frozenset(self.index[p] for p in deaths if p in self.index)
            self.mask = sum(1 << i for i in self.dead)
            self._orphans = None
        if self.published < generation and not any(
                self.members.mail.holds(self.everyone[i]) for i in self.dead):
            self.words.store(DRAINED + self.me, generation)
            self.published = generation
        return self.published == generation

    def orphans(self, record: int) -> list[int]:
        """Return the records in use of dead homes whose first living ancestor is this record."""
        if not self.dead:
            return []
        if self._orphans is None:
            self._orphans = {}
            for home in self.dead:
                first = home * self.each
                heads = self.words.read(self.head(first), self.each * HEAD).reshape(-1, HEAD)
                for i in np.flatnonzero(heads[:, SERIAL] & np.uint64(1)):
                    orphan = first + int(i)
                    self._orphans.setdefault(self._living_ancestor(orphan), []).append(orphan)
        return self._orphans.get(record, [])

    def _living_ancestor(self, record: int) -> int:
        while record // self.each in self.dead:
            parent = self.words.load(self.head(record) + PARENT)
            if parent == NOBODY:
                return -1
            record = parent
        return record

    # -- counts -------------------------------------------------------------------------------

    def quiet(self, record: int) -> bool:
        """Say whether nothing goes on in a record and its orphans, at living places.

        First the tasks of dead places that are still in rings are cut off; so only those that have
        arrived count. All words `ended` are read before the other words: a task's sends and
        arrivals are counted before its end.
        """
        words, square = self.words, self.square
        if not self.dead:
            row = self.rows + record * 3 * square
            return words.equal(row + 2 * square, row, square)
        group = [record, *self.orphans(record)]
        for one in group:
            if self.cut.get(one) != self.mask:
                words.store(self.head(one) + CUT, self.mask)
                self.cut[one] = self.mask
        ended = [words.read(self.ended(one, 0, 0), square) for one in group]
        for one, before in zip(group, ended, strict=True):
            now = words.read(self.sent(one, 0, 0), 2 * square)
            if not self._equal(now.reshape(2, self.count, -1), before):
                return False
            if one == record:
                self._seen[record] = now, before
        return True

    def _equal(self, now: Any, ended: Any) -> bool:
        """Say whether all tasks that count have ended; of dead sources only arrived ones count."""
        dead = list(self.dead)
        must_end = now[0].copy()
        must_end[dead] = now[1, dead]
        same = must_end == ended.reshape(self.count, -1)
        same[:, dead] = True
        return bool(same.all())

    def losses(self, record: int) -> dict[int, int]:
        """Return how many tasks are lost with each dead place: at it, and on their way from it.

        They are counted from the words with which the record was found quiet: messages of a dead
        place that are taken later do not count.
        """
        if record not in self._seen:
            return {}
        words = np.concatenate(self._seen.pop(record))
        if record in self.before:
            words = words - self.before[record]
        sent, arrived, ended = words.astype(np.int64).reshape(3, self.count, -1)
        dead = sorted(self.dead)
        living = [i for i in range(self.count) if i not in self.dead]
        at = (np.maximum(sent, arrived) - ended)[:, dead].sum(0)
        in_rings = (sent - arrived)[np.ix_(dead, living)].sum(1)
        return {self.everyone[i]: int(n) for i, n in zip(dead, at + in_rings, strict=True) if n > 0}
