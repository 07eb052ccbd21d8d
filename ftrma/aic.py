"""Asynchronous iterative computation: the names that programs use, as ``from ftrma import aic``.

The code is in `ftrma.frameworks.aic`.
"""

from __future__ import annotations

from .frameworks.aic.completion import MatrixCompletion
from .frameworks.aic.completion_run import CompletionProgress
from .frameworks.aic.delta_program import Block, DeltaProgram
from .frameworks.aic.delta_workload import Diverged
from .frameworks.aic.engine import PeekedValues, Progress, Result, peek, run
from .frameworks.aic.matrices import Planted, planted
from .frameworks.aic.modes import (
    ChandyLamport,
    Hybrid,
    SnapshotMode,
    Synchronous,
    VirtualSnapshot,
)
from .frameworks.aic.ratings import Ratings, load_ratings
from .frameworks.graph.data import (
    Graph,
    grid,
    load,
    lognormal,
    of_edges,
    path,
    power_law,
    relabel,
    rmat,
    symmetric,
)

__all__ = [
    "Block", "ChandyLamport", "CompletionProgress", "DeltaProgram", "Diverged", "Graph", "Hybrid",
    "MatrixCompletion", "PeekedValues", "Planted", "Progress", "Ratings", "Result", "SnapshotMode",
    "Synchronous", "VirtualSnapshot", "grid", "load", "load_ratings", "lognormal", "of_edges",
    "path", "peek", "planted", "power_law", "relabel", "rmat", "run", "symmetric",
]
