"""A slot's part of the graph of a run: kept in memory, saved with checkpoints, or made again."""

from __future__ import annotations

import weakref
from typing import Any

from ...framework import entries, kept
from . import cache, shuffle
from .parts import Graph, Part, Partition, partition_of
from .references import Ints
from .runner import Saved, Settings, forget, kill_place
from .shuffle import agree

ARRAYS = ("ids", "ptr", "target", "weight", "targets", "bounds")  # of a part


class PartStore:
    """The parts and partitions of a job's runs, as one slot has them.

    Args:
        comm: the communicator of the slots.
        by_default: checkpoints have the parts of graphs from files, if the settings name no
            topology.
        together: all slots call `part` at the same time, so they read a graph together if no slot
            has its part.
    """

    def __init__(self, comm: Any, settings: Settings, *, by_default: bool = False,
                 together: bool = False) -> None:
        self._together = together and comm.size > 1
        self.comm, self.settings, self._by_default = comm, settings, by_default
        self.topology = settings.topology or ("files" if settings.cache is not None else None)
        self._parts: weakref.WeakKeyDictionary[Graph, Part] = weakref.WeakKeyDictionary()
        self._bounds: weakref.WeakKeyDictionary[Graph, Ints] = weakref.WeakKeyDictionary()

    def partition(self, graph: Graph, run: int) -> Partition:
        """Return the partition of a run; bounds that depend on edges are computed once.

        MPI: as `part`.
        """
        if self.settings.partition != "edges":
            return partition_of(self.settings.partition, graph, self.comm.size)
        key = f"bounds {run}"
        saved = key in entries
        bounds = (kept[key] if key in kept else entries.read(key) if saved
                  else self._bounds.get(graph))
        shared = self._shares(graph, bounds is not None)
        if bounds is None:
            degrees = shuffle.degrees(self.comm, graph) if shared else None
            bounds = partition_of("edges", graph, self.comm.size, degrees).bounds
        found = Partition("edges", graph.n, self.comm.size, bounds)
        kept[key] = self._bounds[graph] = found.bounds
        if not saved:
            entries.put(key, found.bounds, "static")
        return found

    def part(self, graph: Graph, partition: Partition, run: int) -> Part:
        """Return this slot's part, and keep it: one that was kept, a saved one, or a new one."""
        kill_place("load")
        key, found = f"part {run} ", self._parts.get(graph)
        if f"{key}ids" in kept:
            arrays: dict[str, Any] = {name: kept.get(key + name) for name in ARRAYS}
            found = Part(**arrays)
        elif found is None and f"{key}ids" in entries:
            arrays = dict.fromkeys(ARRAYS)
            arrays |= {name: entries.read(key + name).copy() for name in ARRAYS
                       if key + name in entries}
            found = Part(**arrays)
        elif found is None:
            found = self._cached(graph, partition)
        found = self._made(graph, partition, found)
        self._parts[graph] = found
        for name in reversed(ARRAYS):  # "ids" is kept last; if it is there, all arrays are
            if (array := getattr(found, name)) is not None:
                kept[key + name] = array
        kept[f"edges {run}"] = len(found.target)
        return found

    def _cached(self, graph: Graph, partition: Partition) -> Part | None:
        """Return this slot's part from the cache, or None if it is not there."""
        directory = self.settings.cache
        if self.topology != "files" or directory is None:
            return None
        return cache.read(directory, graph, partition, self.comm.rank)

    def make(self, graph: Graph, partition: Partition) -> Part:
        """Return this slot's part from the cache, or make it; it is not kept."""
        return self._made(graph, partition, self._cached(graph, partition))

    def _made(self, graph: Graph, partition: Partition, found: Part | None) -> Part:
        """Return the part that was found, or make it: all slots together, or this slot alone.

        MPI: collective over all slots, if they are together and the graph can be read so.
        """
        if self._shares(graph, found is not None):
            found = shuffle.part(self.comm, graph, partition)
            self._leave(graph, partition, found)
        elif found is None:
            found = graph.part(partition, self.comm.rank)
            self._leave(graph, partition, found)
        return found

    def _shares(self, graph: Graph, found: bool) -> bool:
        """Say whether slots read a graph together now: no slot has found what it needs.

        MPI: collective over all slots, if they are together and the graph can be read so.
        """
        return (self._together and graph.slices is not None
                and not any(agree(self.comm, (int(found),))[0]))

    def _leave(self, graph: Graph, partition: Partition, part: Part) -> None:
        directory = self.settings.cache
        if self.topology == "files" and directory is not None:
            cache.write(directory, graph, partition, self.comm.rank, part)

    def save(self, graph: Graph, part: Part, run: int, saved: Saved, *, heavy: bool) -> None:
        """Save this slot's part with checkpoints, if the topology or the recovery requires it.

        Args:
            heavy: each checkpoint has the part, also in files. If false, it is saved once, and not
                in files, which have only data that changes.
        """
        in_parity = self.topology == "parity" if self.topology else self._by_default and graph.file
        if not heavy and not in_parity:
            return
        for name in ARRAYS:
            key, array = f"part {run} {name}", getattr(part, name)
            if array is not None and heavy:
                saved.put(key, array)
            elif array is not None and key not in entries:
                entries.put(key, array, "static")

    def end(self, run: int) -> None:
        """Forget the part: the run has a result or was given up.

        The next checkpoint belongs to the next run.
        """
        forget(kept, f"part {run} ")
        for name in ARRAYS:
            entries.drop(f"part {run} {name}")
        entries.put("run", run + 1)
