"""Slots' parts of graphs in files of a directory, for replaced slots and later jobs.

A part follows from the graph and the slot alone, so a file serves whoever needs the same part. It
is of the same graph if that has the same `ftrma.graph.parts.Graph.key`; a graph without one has no
files. Of a part that is missing, damaged or another user's nothing is taken: it is made again.

Law: a file is there whole or not at all, and what is read has the checksums that were written.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

import ftrma

from .parts import Graph, Part, Partition
from .references import AnyArray

PREFIX = "ftrma-graph-"


def place_of(directory: str, graph: Graph, partition: Partition, slot: int) -> tuple[str, str]:
    """Path of a part's file, and what it says that it is."""
    bounds = partition.bounds.tolist() if partition.kind == "edges" else partition.kind
    key = f"{ftrma.__version__} {graph.key} {graph.n} {bounds} {slot} of {partition.slots}"
    name = f"{PREFIX}{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    return os.path.join(os.path.abspath(directory), name), key


def read(directory: str, graph: Graph, partition: Partition, slot: int) -> Part | None:
    """What a file has of a slot's part; None: there is no such file, or it does not serve."""
    path, key = place_of(directory, graph, partition, slot)
    arrays: dict[str, Any] | None = fetch(path, key) if graph.key else None
    try:
        return None if arrays is None else Part(**{"weight": None} | arrays)
    except TypeError:
        return None


def write(directory: str, graph: Graph, partition: Partition, slot: int, part: Part) -> None:
    """Leave a slot's part in a file. What stands in the way of that is told, and no failure."""
    path, key = place_of(directory, graph, partition, slot)
    if not graph.key:
        return
    arrays = {field.name: getattr(part, field.name) for field in fields(part)}
    try:
        leave(path, key, {name: array for name, array in arrays.items() if array is not None})
    except OSError as error:
        print(f"graph: slot {slot} cannot leave its part of {graph.what} in {directory}: "
              f"{error.strerror}; it is made again when it is needed", file=sys.stderr, flush=True)


# ---- files of arrays, also those of `ftrma.graph.spill` -------------------------------------


def fetch(path: str, key: str) -> dict[str, AnyArray] | None:
    """The arrays of a file of this key; None: there is no such file, or it does not serve."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            with np.load(file, allow_pickle=False) as found:
                if found["key"].item() != key:
                    return None
                return {name: found[name] for name in found.files if name != "key"}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def leave(path: str, key: str, arrays: Mapping[str, Any], *, lasting: bool = False) -> None:
    """Write a file of arrays, in place of one of that name; lasting: also if power fails now.

    Raises:
        OSError: it cannot be; then nothing is left of it.
    """
    draft = f"{path}.{os.uname().nodename}-{os.getpid()}"
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    _sweep(path)
    try:
        with open(draft, "xb") as file:
            np.savez(file, key=np.array(key), **arrays)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    if lasting:
        directory = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _sweep(path: str) -> None:
    """Remove what processes of this node that are dead now had begun to write."""
    drafts = glob.glob(f"{glob.escape(path)}.{os.uname().nodename}-*")
    for draft in drafts:
        pid = draft.rpartition("-")[2]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(FileNotFoundError):  # somebody else has
                os.unlink(draft)
