"""Vertex programs that survive the death of processes: LWCP, LWLog and Phoenix over ftrma's core.

Programs import `ftrma.graph`, which has the names of these modules that are meant for them.

Source: D. Yan, J. Cheng, F. Yang, "Lightweight Fault Tolerance in Large-Scale Distributed Graph
Processing" (LWCP, LWLog), R. Dathathri et al., "Phoenix: A Substrate for Resilient Distributed
Graph Analytics", ASPLOS 2019, and G. Malewicz et al., "Pregel", SIGMOD 2010.
"""
