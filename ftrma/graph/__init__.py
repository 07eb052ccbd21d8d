"""Vertex programs that survive the death of processes: LWCP and LWLog over ftrma's core.

Source: D. Yan, J. Cheng, F. Yang, "Lightweight Fault Tolerance in Large-Scale Distributed Graph
Processing" (LWCP, LWLog), and G. Malewicz et al., "Pregel", SIGMOD 2010.
"""

from __future__ import annotations

from .data import Graph
from .engine import Engine, Result
from .program import Context, Inbox, VertexProgram, Vertices

__all__ = ["Context", "Engine", "Graph", "Inbox", "Result", "VertexProgram", "Vertices"]
