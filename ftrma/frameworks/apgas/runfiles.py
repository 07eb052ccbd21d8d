"""Checkpoints of an executor's run in a file that the user has named.

The file is an .npz file that NumPy reads: ``about`` is JSON, and ``ORDINAL/FIELD`` is a field of a
place's state. Arrays are written as they are. Any other value is pickled; the file has the bytes of
the pickle, and ``about`` names it. Reading a pickle may run any code, so read only files that you
trust.

Law: `read` returns what `write` was given. If a file is replaced, the old file stays unchanged
until the new one is whole.
"""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...host import outfile
from .values import encode

FORMAT, VERSION = "ftrma apgas run", 1
REMEDY = "name another file, or remove it"

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class SavedRun:
    """The state of a run.

    Attributes:
        application: name of the application's class.
        steps: number of steps that had been taken.
        places: the fields of each place, by ordinal.
    """

    application: str
    steps: int
    places: Sequence[Fields]


def write(file: str, run: SavedRun) -> None:
    """Write a run to a file, as a whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    members: dict[str, Any] = {}
    pickled: list[str] = []
    for ordinal, fields in enumerate(run.places):
        for name, value in fields.items():
            key, kept = f"{ordinal}/{name}", encode(value)
            if isinstance(kept, bytes):
                pickled.append(key)
                kept = np.frombuffer(kept, np.uint8)
            members[key] = kept
    about = {"format": FORMAT, "version": VERSION, "application": run.application,
             "steps": run.steps, "places": len(run.places), "pickled": pickled}
    with outfile.opened(file) as to:
        np.savez(to, about=np.array(json.dumps(about)), **members)


def read(file: str) -> SavedRun | None:
    """Read a run; return None if there is no regular file of that name.

    Raises:
        ValueError: `write` has not made the file, or it is damaged; the text has the remedy.
    """
    if not os.path.isfile(file):
        return None
    try:
        with np.load(file, allow_pickle=False) as members:
            about = json.loads(str(members["about"]))
            if (about["format"], about["version"]) != (FORMAT, VERSION):
                raise ValueError(f"format {about['format']!r}, version {about['version']!r}")
            places: list[dict[str, Any]] = [{} for _ in range(about["places"])]
            pickled = set(about["pickled"])
            for key in members.files:
                if key == "about":
                    continue
                ordinal, _, name = key.partition("/")
                value = members[key]
                places[int(ordinal)][name] = (
                    pickle.loads(value.tobytes()) if key in pickled else value)
            return SavedRun(about["application"], int(about["steps"]), places)
    except (OSError, ValueError, TypeError, KeyError, IndexError, EOFError, AttributeError,
            ImportError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{file}: no checkpoint of a run of ftrma.apgas ({why}); {REMEDY}"
                         ) from None


def check(run: SavedRun, file: str, application: str, places: int) -> None:
    """Refuse a file from which a run cannot go on.

    Raises:
        ValueError: the file is of another application, or of more or fewer places.
    """
    if run.application != application:
        raise ValueError(f"{file}: a run of {run.application}, and this is one of {application}; "
                         f"{REMEDY}")
    if len(run.places) != places:
        raise ValueError(f"{file}: a run over {len(run.places)} places, and {places} are active; "
                         f"start the job with -n {len(run.places)}, or {REMEDY}")
