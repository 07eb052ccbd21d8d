"""Vertex programs that survive the death of processes: the names that programs use.

The code is in `ftrma.frameworks.graph`.
"""

from __future__ import annotations

from ..frameworks.graph.engine import PHOENIX_RECOVERIES, PREGEL_RECOVERIES, Engine
from ..frameworks.graph.parts import Graph
from ..frameworks.graph.phoenix_program import (
    Block,
    Field,
    GloballyConsistent,
    GloballyCorrecting,
    LocallyCorrecting,
    PhoenixProgram,
    Round,
    SelfStabilizing,
)
from ..frameworks.graph.pregel_program import Context, Inbox, VertexProgram, Vertices
from ..frameworks.graph.results import Result
from ..frameworks.graph.runner import NotEnded

__all__ = [
    "PHOENIX_RECOVERIES", "PREGEL_RECOVERIES", "Block", "Context", "Engine", "Field",
    "GloballyConsistent", "GloballyCorrecting", "Graph", "Inbox", "LocallyCorrecting", "NotEnded",
    "PhoenixProgram", "Result", "Round", "SelfStabilizing", "VertexProgram", "Vertices",
]
