"""Resilient X10 in Python: the names that programs use, as ``from ftrma import apgas``.

The code is in `ftrma.frameworks.apgas`.
"""

from __future__ import annotations

from .frameworks.apgas import glb
from .frameworks.apgas.applications import CannotShrink, IterativeApp, SPMDIterativeApp
from .frameworks.apgas.control import (
    add_places,
    add_places_and_wait,
    async_,
    async_at,
    at,
    atomic,
    blocking,
    finish,
    here,
    is_dead,
    kill_here,
    on_place_removed,
    places,
    reserves,
    sleep,
    uncounted_async_at,
    when,
    yield_,
)
from .frameworks.apgas.errors import DeadPlaceException, MultipleExceptions, RemoteError
from .frameworks.apgas.executors import IterativeExecutor, SPMDIterativeExecutor
from .frameworks.apgas.futures import Executor, Future
from .frameworks.apgas.localrun import local_app
from .frameworks.apgas.placegroup import PlaceGroup
from .frameworks.apgas.placemanager import ChangeDescription, NotEnoughPlaces, PlaceManager, group
from .frameworks.apgas.references import GlobalRef, PlaceLocal
from .frameworks.apgas.runtime import run
from .frameworks.apgas.store import ResilientMap, ResilientStore
from .frameworks.apgas.storeerrors import DeadPlaceAfterCommit
from .frameworks.apgas.team import Team, TeamRevoked
from .frameworks.apgas.transactions import Transaction
from .host.errors import CatastrophicFailure

__all__ = [
    "CannotShrink", "CatastrophicFailure", "ChangeDescription", "DeadPlaceAfterCommit",
    "DeadPlaceException", "Executor", "Future", "GlobalRef", "IterativeApp", "IterativeExecutor",
    "MultipleExceptions", "NotEnoughPlaces", "PlaceGroup", "PlaceLocal", "PlaceManager",
    "RemoteError", "ResilientMap", "ResilientStore", "SPMDIterativeApp", "SPMDIterativeExecutor",
    "Team", "TeamRevoked", "Transaction", "add_places", "add_places_and_wait", "async_",
    "async_at", "at", "atomic", "blocking", "finish", "glb", "group", "here", "is_dead",
    "kill_here", "local_app", "on_place_removed", "places", "reserves", "run", "sleep",
    "uncounted_async_at", "when", "yield_",
]
