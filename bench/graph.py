"""Measures vertex programs beside scipy.sparse, which tolerates no failure.

In each round the same PageRank (20 iterations), breadth-first search from vertex 0 and connected
components are done by scipy in this process, on one core, and by `ftrma.graph` in a job. Times are
those of computing alone: without loading, and of the second run in the job. scipy has two searches:
the distances, as the program has them, and the order of visits, which is less. Where
NetworKit and igraph are installed they are peers, too: the former on as many threads as there are
slots, the latter on one core.
"""

from __future__ import annotations

import importlib.util
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse import csgraph

from ftrma.graph import data

from . import common, figures, launching
from .common import Parser, ratios, spread
from .launching import HERE, JsonObject

SCRIPT = HERE / "graph_app.py"
STEPS = 20
# For each peer the program that it is compared with, and the ratio that is aimed at, if one is.
PEERS: dict[str, tuple[str, float | None]] = {
    "A.T @ x": ("pagerank", 1.2), "dijkstra, unweighted": ("bfs", 1.3),
    "breadth_first_order": ("bfs", None), "connected_components": ("cc", 1.7)}
NETWORKIT = {"NetworKit PageRank": ("pagerank", None), "NetworKit BFS": ("bfs", None),
             "NetworKit components": ("cc", None)}
IGRAPH = {"igraph distances": ("bfs", None), "igraph components": ("cc", None)}
COMPARED = {**PEERS, **NETWORKIT, **IGRAPH}
GRAPHX_S = 6.2  # PageRank x 20 at rmat:16, measured warm on 2 cores of another machine
GRAPHX = (16, 24.0)  # scale, and how many times faster is aimed at


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("graph", "Vertex programs beside scipy.sparse, NetworKit, igraph.")
    parser.add_argument("--scale", type=common.whole, default=18, metavar="S",
                        help="of the R-MAT graph: 2**S vertices, 16 edges for each")
    parser.add_argument("-n", dest="slots", type=common.whole, default=2, metavar="N",
                        help="slots")
    parser.add_argument("--partition", choices=("hash", "range", "edges"), default="hash",
                        help="of the vertices over them")
    parser.add_argument("--recovery", choices=("hwcp", "lwcp", "hwlog", "lwlog", "none"),
                        default="lwlog", help="of the programs")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    report = common.begin("graph")
    report.update(scale=options.scale, slots=options.slots, partition=options.partition,
                  recovery=options.recovery, rounds=options.rounds)
    peers = {**peers_of(options.scale), **more_peers(options.scale, options.slots)}
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    ours: dict[str, list[float]] = {name: [] for name in ("pagerank", "bfs", "cc")}
    whole: dict[str, list[float]] = {name: [] for name in ours}
    for i in range(options.rounds):
        common.progress(f"graph: round {i + 1} of {options.rounds}")
        for name, peer in peers.items():
            began = time.perf_counter()
            peer()
            theirs[name].append(time.perf_counter() - began)
        words = [f"rmat:{options.scale}", options.partition, options.recovery]
        said, _ = launching.run_protected(options.slots, SCRIPT, words, ["--spares", "0"],
                                          options.timeout)
        for name in ours:
            ours[name].append(said[name]["steps_s"])
            whole[name].append(said[name]["run_s"])
    report["ours"] = {name: {"steps": spread(times), "run": spread(whole[name])}
                      for name, times in ours.items()}
    report["theirs"] = {name: spread(times) for name, times in theirs.items()}
    report["ratios"] = {name: spread(ratios(ours[COMPARED[name][0]], times))
                        for name, times in theirs.items()}
    common.finish(report, options, text, draw)
    return 0


def edges_of(scale: int) -> tuple[int, Any, Any]:
    """The number of vertices; sources and targets of all edges."""
    graph = data.rmat(scale)
    chunks = list(graph.chunks())
    source, target = (np.concatenate([chunk[i] for chunk in chunks]) for i in (0, 1))
    return graph.n, source, target


def more_peers(scale: int, threads: int) -> dict[str, Callable[[], Any]]:
    """The programs of NetworKit and igraph on that graph, as far as they are installed."""
    found: dict[str, Callable[[], Any]] = {}
    if importlib.util.find_spec("networkit"):
        import networkit

        n, source, target = edges_of(scale)
        ends = source.astype(np.uint64), target.astype(np.uint64)
        directed = networkit.GraphFromCoo(ends, n=n, directed=True)
        directed.indexEdges()
        both = networkit.graphtools.toUndirected(directed)
        networkit.setNumberOfThreads(threads)

        def pagerank() -> Any:
            run = networkit.centrality.PageRank(
                directed, damp=0.85, tol=1e-300,
                distributeSinks=networkit.centrality.SinkHandling.DistributeSinks)
            run.maxIterations = STEPS
            return run.run().scores()

        found |= zip(NETWORKIT, (
            pagerank, lambda: networkit.distance.BFS(directed, 0, storePaths=False).run(),
            lambda: networkit.components.ConnectedComponents(both).run()), strict=True)
    if importlib.util.find_spec("igraph"):
        import igraph

        n, source, target = edges_of(scale)
        graph = igraph.Graph(n, np.stack([source, target], axis=1), directed=True)
        found |= zip(IGRAPH, (lambda: graph.distances(0), lambda: graph.components("weak")),
                     strict=True)
    return found


def peers_of(scale: int) -> dict[str, Callable[[], Any]]:
    """The programs of scipy on that graph."""
    n, source, target = edges_of(scale)
    edges = scipy.sparse.coo_matrix((np.ones(len(source)), (source, target)), (n, n)).tocsr()
    turned, degree = edges.T.tocsr(), np.bincount(source, minlength=n)

    def pagerank() -> Any:
        rank, some, none = np.full(n, 1 / n), degree.clip(1), degree == 0
        for _ in range(STEPS):
            rank = (0.15 + 0.85 * rank[none].sum()) / n + 0.85 * (turned @ (rank / some))
        return rank

    done = (pagerank, lambda: csgraph.dijkstra(edges, indices=0, unweighted=True),
            lambda: csgraph.breadth_first_order(edges, 0),
            lambda: csgraph.connected_components(edges, directed=True, connection="weak"))
    return dict(zip(PEERS, done, strict=True))


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The table for people."""
    rows = [["ms", "program", "whole run", "peer", "program / peer", "target"]]
    for name in report["theirs"]:
        (program, aim), ratio = COMPARED[name], report["ratios"][name]
        ours = report["ours"][program]
        rows.append([f"{program}, {'scipy: ' * (name in PEERS)}{name}", *(
            common.with_range(common.scaled(found, 1e3), 1)
            for found in (ours["steps"], ours["run"], report["theirs"][name])),
            common.with_range(ratio, against=1), "-" if aim is None else
            f"<= {aim:g} {'met' if ratio['median'] <= aim else 'missed'}"])
    lines = [f"rmat:{report['scale']}, {report['slots']} slots, partition {report['partition']}, "
             f"{report['recovery']}; scipy and igraph on one core, NetworKit on "
             f"{report['slots']}; {report['rounds']} rounds; median (min .. max).", "",
             common.table(rows)]
    scale, aim = GRAPHX
    if report["scale"] == scale:
        times = GRAPHX_S / report["ours"]["pagerank"]["steps"]["median"]
        lines.append(f"\nGraphX takes {GRAPHX_S:g} s for this PageRank (warm, 2 cores of another "
                     f"machine, not run again here): {times:.0f} times as long, target >= {aim:g} "
                     f"{'met' if times >= aim else 'missed'}")
    return "\n".join(lines)


def draw(report: JsonObject, path: Any) -> None:
    """Times of each program beside its peer's."""
    names = list(report["theirs"])
    figure, _ = figures.chart(
        names, {"ftrma.graph": [report["ours"][COMPARED[name][0]]["steps"] for name in names],
                "peer": [report["theirs"][name] for name in names]},
        f"ms, rmat:{report['scale']}, {report['slots']} slots", scale=1e3)
    common.save(figure, path, report)
