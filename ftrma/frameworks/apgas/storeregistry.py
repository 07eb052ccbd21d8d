"""The stores of a process. Their parts are kept by name, and outlive an attempt of the program.

A place makes its part of a store when the root asks for the first job of a recovery, or when a task
uses a store that has come as its argument.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import storetable
from .kinds import STORE
from .runtime import current
from .shelf import Far
from .storepart import Part, files_of
from .storerecovery import Recovery, do_job, seats_of
from .storetable import ATTEMPT, IDENTITY, SEAT, SHELVES, Table

_kept: dict[str, Part] = {}  # parts of this process by name; they outlive an attempt


class Stores:
    """The parts of stores that this process has in one attempt of the program."""

    def __init__(self, host: Any, kept: dict[str, Part]) -> None:
        self.host, self.members, self._kept = host, host.members, kept
        # None: this is the only place, so nothing is copied.
        self.directory: Path | None = getattr(self.members, "directory", None)
        self.parts: dict[int, Part] = {}
        self.led: dict[int, Recovery] = {}  # recoveries of each store; filled at the root alone
        host.mailroom.handle(STORE, self.take)

    def part(self, index: int, name: str) -> Part:
        """Return this place's part of a store of this attempt."""
        part = self.parts.get(index)
        if part is None:
            path = storetable.table_path(self.directory, name)
            table = Table(self.members.mail.words, index, path, others=self._others())
            part = self._enter(index, name, table)
        return part

    def named(self, name: str) -> Part | None:
        """Return this place's part of the store with a name, or None if this attempt has none."""
        return next((part for part in self.parts.values() if part.name == name), None)

    def lead(self, name: str, active: list[int]) -> Part:
        """Make a store, or attach one of an earlier attempt; called at the root."""
        if self.named(name):
            raise ValueError(f"ResilientStore({name!r}): this attempt of the program has a store "
                             "of that name; use it, or give another name")
        index = len(self.parts)
        if index == storetable.STORES:
            raise ValueError(f"ResilientStore({name!r}): there are {index} stores; use maps of one")
        path = storetable.table_path(self.directory, name)
        table, words, others = None, self.members.mail.words, self._others()
        if path and storetable.bring(path, others):
            table = Table(words, index, path, others=others)
            if table.saved(ATTEMPT) == self.members.attempt:  # left by a program that has ended
                table = None
        if table is None:
            table = self._make(index, name, active)
        else:
            table.renew()
            self._seat(table, active if len(active) >= table.get(SHELVES)
                       else seats_of(table.seats(), active))
        table.put(ATTEMPT, self.members.attempt)
        part = self._enter(index, name, table)
        self.led[index] = Recovery(part, serve)
        return part

    def _make(self, index: int, name: str, active: list[int]) -> Table:
        storetable.check_shelves(len(active))
        if self.directory:
            storetable.remove(self.directory, name)
        path = storetable.table_path(self.directory, name)
        table = Table(self.members.mail.words, index, path, make=True, others=self._others())
        for word in range(storetable.BLOCK):
            if word != IDENTITY:
                table.put(word, 0)
        table.put(SHELVES, len(active))
        self._seat(table, active)
        return table

    def _others(self) -> list[Far]:
        """Return the other nodes that have places."""
        files = files_of(self.members)
        places = {files.node_of(p): p for p in self.members.everyone} if files else {}
        return [Far(files, p) for p in places.values() if files and not files.is_here(p)]

    def _seat(self, table: Table, places: list[int]) -> None:
        """Give the shelves to places, in this order."""
        for shelf in range(table.get(SHELVES)):
            table.put(SEAT + shelf, places[shelf] + 1)

    def _enter(self, index: int, name: str, table: Table) -> Part:
        part, identity = self._kept.get(name), table.get(IDENTITY)
        if part is None or part.identity != identity:
            part = self._kept[name] = Part(name, identity)
        part.enter(self.host, index, table)
        self.parts[index] = part
        return part

    def take(self, source: int, message: tuple[Any, ...]) -> None:
        """Take a message of a store; neither wait nor raise."""
        index, what, *rest = message
        if what == "done":
            self.led[index].done[rest[0]] = rest[1]
        elif index in self.parts:
            self.parts[index].take(source, what, tuple(rest))
        elif what in ("read", "write"):
            self.host.mailroom.post(source, STORE, (index, "answer", rest[0], False, None))
        elif what == "apply":
            self.host.mailroom.post(source, STORE, (index, "refused", *rest[2:4], -1))


def install(host: Any) -> Stores:
    """Have a place serve stores in this attempt of the program."""
    host.stores = Stores(host, _kept)
    return host.stores  # type: ignore[no-any-return]


def stores_here() -> Stores:
    """Return the stores of this place."""
    host = current()
    return getattr(host, "stores", None) or install(host)


def serve(index: int, name: str, root: int, *job: Any) -> None:
    """Do a job of a recovery, as a task that the root has sent; see `storerecovery.do_job`."""
    stores = stores_here()
    do_job(stores.part(index, name), root, *job)
