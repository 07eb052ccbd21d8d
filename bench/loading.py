"""Measures how long slots take to load a graph, beside pandas, NumPy and scipy.

A peer reads the columns of a file in this process, on one core. Slots read their shares, send the
edges to their owners, and sort them by source: until that is done the time counts. So they are
compared twice: with the peer's reading, and with that and a matrix in CSR that scipy.sparse makes
of what was read, since it is what slots have then. Files are in the machine's cache, packages are
imported. The graph is R-MAT; `.npz` has arrays of 64-bit ids, or a matrix in CSR as scipy.sparse
packs it; Parquet has groups of 1 M rows.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ftrma.graph import data

from . import common, figures, launching
from .common import Parser, ratios, spread
from .launching import HERE, BenchError, JsonObject

SCRIPT = HERE / "loading_app.py"
DEGREE = 10  # edges for each vertex
AIMS = {"text": 1.5, "npz": 1.2, "packed npz": 1.2, "parquet": None}  # of the peer's time
BYTES = 24  # for each edge, in all slots, that are aimed at
PEERS = {"text": "pandas.read_csv", "npz": "numpy.load", "packed npz": "scipy.sparse.load_npz",
         "parquet": "pandas.read_parquet"}
GROUP = 1 << 20  # rows


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("loading", "Loading of graphs beside pandas, NumPy and scipy.")
    parser.add_argument("--scale", type=common.whole, default=20, metavar="S",
                        help=f"of the R-MAT graph: 2**S vertices, {DEGREE} edges for each")
    parser.add_argument("-n", dest="slots", type=common.whole, nargs="+", default=[4, 2],
                        metavar="N", help="slots")
    options = parser.parse_args(arguments)
    if min(options.slots) < 2:
        parser.error(f"-n {min(options.slots)}: slots read shares; give 2 or more")
    return options


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    if not all(map(importlib.util.find_spec, ("pandas", "pyarrow"))):
        raise BenchError("needs pandas and pyarrow: pip install 'ftrma[graph]'")
    report = common.begin("loading")
    report.update(scale=options.scale, edges=DEGREE << options.scale, slots=options.slots,
                  rounds=options.rounds)
    theirs: dict[str, list[float]] = {kind: [] for kind in PEERS}
    sorting: dict[str, list[float]] = {kind: [] for kind in PEERS}
    ours: dict[str, dict[str, list[float]]] = {}
    taken: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        files = write(options.scale, Path(directory))
        for i in range(options.rounds):
            common.progress(f"loading: round {i + 1} of {options.rounds}")
            for kind, (path, read) in files.items():
                began = time.perf_counter()
                found = read(path)
                theirs[kind].append(time.perf_counter() - began)
                matrix(found, 1 << options.scale)
                sorting[kind].append(time.perf_counter() - began)
                del found
                for slots in options.slots:
                    said, _ = launching.run_protected(slots, SCRIPT, [str(path)],
                                                      ["--spares", "0"], options.timeout)
                    name = f"{kind}, {slots} slots"
                    ours.setdefault(name, {}).setdefault(kind, []).append(said["seconds"])
                    taken.setdefault(name, {}).setdefault(kind, []).append(said["bytes"])
    report["theirs"] = {kind: spread(times) for kind, times in theirs.items()}
    report["sorting"] = {kind: spread(times) for kind, times in sorting.items()}
    report["ours"] = {name: {"peer": kind, "seconds": spread(times), "bytes": spread(
        taken[name][kind]), "ratio": spread(ratios(times, theirs[kind])),
        "sorted": spread(ratios(times, sorting[kind]))}
        for name, found in ours.items() for kind, times in found.items()}
    common.finish(report, options, text, draw)
    return 0


def write(scale: int, directory: Path) -> dict[str, tuple[Path, Callable[[Path], Any]]]:
    """Write the graph as each kind of file: its path, and how the peer reads it."""
    import pandas

    chunks = list(data.rmat(scale, DEGREE).chunks())
    source, target = (np.concatenate([chunk[i] for chunk in chunks]) for i in (0, 1))
    frame = pandas.DataFrame({"source": source, "target": target})
    paths = {kind: directory / f"{kind.replace(' ', '-')}.dat" for kind in PEERS}
    frame.to_csv(paths["text"], sep=" ", header=False, index=False)
    frame.to_parquet(paths["parquet"], row_group_size=GROUP)
    with paths["npz"].open("wb") as file:
        np.savez(file, src=source, dst=target)
    n = 1 << scale
    edges = scipy.sparse.coo_array((np.ones(len(source)), (source, target)), (n, n))
    with paths["packed npz"].open("wb") as file:
        scipy.sparse.save_npz(file, edges.tocsr())

    def arrays(path: Path) -> Any:
        with np.load(path) as found:
            return found["src"], found["dst"]

    readers = (lambda path: pandas.read_csv(path, sep=" ", header=None), arrays,
               scipy.sparse.load_npz, pandas.read_parquet)
    return dict(zip(PEERS, zip(paths.values(), readers, strict=True), strict=True))


def matrix(found: Any, n: int) -> Any:
    """The matrix in CSR of what a peer has read."""
    if scipy.sparse.issparse(found):
        return found
    source, target = found if isinstance(found, tuple) else (
        found.iloc[:, column].to_numpy() for column in (0, 1))
    return scipy.sparse.coo_array((np.ones(len(source), np.int8), (source, target)), (n, n)).tocsr()


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The table for people."""
    rows = [["file", "s", "peer", "s", "of the peer's time", "target", "s with a matrix", "of it",
             "bytes for an edge"]]
    for name, found in report["ours"].items():
        aim, ratio = AIMS[found["peer"]], found["ratio"]
        rows.append([name, common.with_range(found["seconds"], 2), PEERS[found["peer"]],
                     common.with_range(report["theirs"][found["peer"]], 2),
                     common.with_range(ratio, against=1), "-" if aim is None else
                     f"<= {aim:g} {'met' if ratio['median'] <= aim else 'missed'}",
                     common.with_range(report["sorting"][found["peer"]], 2),
                     common.with_range(found["sorted"], against=1),
                     common.with_range(found["bytes"], 1)])
    return "\n".join([f"rmat:{report['scale']}, {report['edges']:,} edges; peers on one core; "
                      f"{report['rounds']} rounds; median (min .. max). At most {BYTES} bytes are "
                      "aimed at.", "", common.table(rows)])


def draw(report: JsonObject, path: Any) -> None:
    """Times of each kind of file beside the peer's."""
    names = list(report["ours"])
    figure, _ = figures.chart(
        names, {"ftrma.graph": [report["ours"][name]["seconds"] for name in names],
                "peer": [report["theirs"][report["ours"][name]["peer"]] for name in names]},
        f"s, {report['edges']:,} edges")
    common.save(figure, path, report)
