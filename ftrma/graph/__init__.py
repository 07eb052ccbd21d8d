"""Vertex programs that survive the death of processes: LWCP, LWLog and Phoenix over ftrma's core.

Source: D. Yan, J. Cheng, F. Yang, "Lightweight Fault Tolerance in Large-Scale Distributed Graph
Processing" (LWCP, LWLog), R. Dathathri et al., "Phoenix: A Substrate for Resilient Distributed
Graph Analytics", ASPLOS 2019, and G. Malewicz et al., "Pregel", SIGMOD 2010.
"""

from __future__ import annotations

from .engine import Engine, Result
from .parts import Graph
from .phoenix import (
    Block,
    Field,
    GloballyConsistent,
    GloballyCorrecting,
    LocallyCorrecting,
    Round,
    SelfStabilizing,
)
from .program import Context, Inbox, VertexProgram, Vertices

__all__ = [
    "Block", "Context", "Engine", "Field", "GloballyConsistent", "GloballyCorrecting", "Graph",
    "Inbox", "LocallyCorrecting", "Result", "Round", "SelfStabilizing", "VertexProgram", "Vertices",
]
