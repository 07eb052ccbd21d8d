"""Programs over a graph, by vertex programs that survive failures: the one that is asked for.

What: the programs of ``pregel.py``, or with ``--recovery phoenix`` and ``cr`` those of
``phoenix.py``, on a file or a graph that is made. The last line on standard output is one JSON
object.

Why: they are what users begin with.

Source: see ``pregel.py`` and ``phoenix.py``.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import analytics
import numpy as np
import phoenix
import pregel

from ftrma import MPI, graph
from ftrma.frameworks.graph import results
from ftrma.frameworks.graph.slices import extremes
from ftrma.graph import PHOENIX_RECOVERIES, PREGEL_RECOVERIES, PhoenixProgram, data
from ftrma.host import outfile
from ftrma.host.messages import one_line

# Programs: what is made of the graph; the field that is the result by `pregel`, by `phoenix`.
PROGRAMS = {"pagerank": (None, "rank", "rank"), "bfs": (None, "value", "value"),
            "sssp": (None, "value", "value"), "cc": (data.symmetric, "value", "value"),
            "sv": (data.symmetric, "value", ""), "triangles": (data.simple, "count", ""),
            "matching": (data.symmetric, "partner", ""),
            "kcore": (data.simple, "kept", "value"), "colour": (data.simple, "", "colour"),
            "hits": (None, "authority", ""), "labels": (data.symmetric, "label", ""),
            "mis": (data.simple, "inside", ""), "betweenness": (None, "value", ""),
            "forest": (data.symmetric, "label", ""),
            "factors": (data.bipartite, "", "squares")}
LONG = 10**9  # steps that betweenness may take: some for each round of sources
AT_ONCE = 1 << 20  # vertices and edges, about, of the copies of a graph that betweenness takes

# Graphs that are made from a number: the scale, vertices, the side of a square, vertices.
MADE: dict[str, Callable[[int], data.Graph]] = {
    "rmat": data.rmat, "lognormal": lambda n: data.lognormal(n, 4, 1.3),
    "grid": lambda side: data.grid(side, side), "path": data.path}


class Parser(argparse.ArgumentParser):
    """One line from slot 0 alone."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="graph", description=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("graph")
    parser.add_argument("--recovery", choices=(*PREGEL_RECOVERIES, *PHOENIX_RECOVERIES))
    parser.add_argument("--partition", default="hash")
    parser.add_argument("--checkpoint")
    parser.add_argument("--cache")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--tolerance", type=float)
    parser.add_argument("--damping", type=float, default=0.85)
    parser.add_argument("--restart", type=ids_of)
    parser.add_argument("--undirected", action="store_true")
    parser.add_argument("--source", default="")
    parser.add_argument("--left", type=int)
    parser.add_argument("--k", type=int, default=2)
    parser.add_argument("--sources", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hubs", action="store_true")
    parser.add_argument("--out")
    parser.add_argument("--columns", type=columns_of)
    parser.add_argument("--skip", type=int)
    parser.add_argument("--separator")
    for name in ("weighted", "unweighted", "one-based", "labels", "relabel", "parents"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--n", type=int)
    parser.add_argument("--top", type=int, default=0)
    options = parser.parse_args(arguments)
    corrected = options.program in ("colour", "factors")
    if options.steps is None:
        options.steps = {"factors": 200, "hits": 1000}.get(options.program, 30)
    if options.steps < 1:
        raise ValueError(f"--steps {options.steps}: give 1 or more")
    if options.tolerance is not None and not options.tolerance > 0:
        raise ValueError(f"--tolerance {options.tolerance}: give more than 0")
    if not 0 <= options.damping < 1:
        raise ValueError(f"--damping {options.damping}: give 0 or more, and less than 1")
    options.checkpoint = checkpoint_of(options.checkpoint)
    if options.hubs and options.program != "hits":
        raise ValueError(f"--hubs is of hits, not of {options.program}; leave it out")
    if options.parents and options.program not in ("bfs", "sssp"):
        raise ValueError(f"--parents is of bfs and sssp, not of {options.program}; leave it out")
    if options.parents and options.recovery in PHOENIX_RECOVERIES:
        raise ValueError(f"--parents is not for --recovery {options.recovery}; give one of "
                         f"{', '.join(PREGEL_RECOVERIES)}")
    options.recovery = options.recovery or ("phoenix" if corrected else "lwlog")
    _, pregels, phoenixs = PROGRAMS[options.program]
    if not (phoenixs if options.recovery in PHOENIX_RECOVERIES else pregels):
        fitting = PREGEL_RECOVERIES if pregels else PHOENIX_RECOVERIES
        raise ValueError(f"--recovery {options.recovery} is not for {options.program}; give one of "
                         f"{', '.join(fitting)}")
    return options


def columns_of(word: str) -> list[int | str]:
    """Columns by numbers or names, as `graph.Engine.load` takes them."""
    return [int(part) if part.strip().isdigit() else part.strip() for part in word.split(",")]


def ids_of(word: str) -> Any:
    """Ids of vertices between commas, ascending, each once."""
    try:
        return np.unique(np.array([int(each) for each in word.split(",")]))
    except ValueError:
        raise ValueError(f"--restart {word}: expected ids, such as 3,17") from None


def checkpoint_of(word: str | None) -> int | float | str | None:
    """The interval between checkpoints, as `graph.Engine` takes it."""
    try:
        return word if word is None or word.isalpha() else float(word) if "." in word else int(word)
    except ValueError:
        raise ValueError(f"--checkpoint {word}: give steps between two, seconds with a point, "
                         "\"daly\" or \"never\"") from None


def graph_of(engine: graph.Engine, name: str, **reading: Any) -> data.Graph:
    """From a file, or made as the name says.

    Args:
        reading: options of `graph.Engine.load`, if it is a file.
    """
    kind, _, number = name.partition(":")
    if kind in MADE and number:
        if not number.isdigit() or not int(number):
            raise ValueError(f"{name}: expected {kind}:NUMBER, such as {kind}:16")
        return MADE[kind](int(number))
    return engine.load(name, **reading)


def reading_of(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `graph.Engine.load`."""
    weighted = True if options.weighted else False if options.unweighted else None
    return {"n": options.n, "relabel": options.relabel, "columns": options.columns,
            "skip": options.skip, "separator": options.separator, "weighted": weighted,
            "one_based": options.one_based, "labels": options.labels or None}


def check_weights(found: data.Graph, program: str, other: str) -> None:
    """Refuse a graph whose weights are no distances or chances, on all slots."""
    least = found.least_weight
    if least is None:
        least = extremes(found.chunks()).weight
    if least != least:
        raise ValueError(f"the graph has no weights; {program} needs some: {other}")
    if least < 0:
        raise ValueError(f"an edge of weight {least}; {program} needs weights from 0 up")


def prepared(options: argparse.Namespace, given: data.Graph) -> data.Graph:
    """The graph that the program runs on."""
    name, found = options.program, given
    if name == "factors":
        check_weights(found, name, "give --weighted if a column has them")
    if name == "sssp":
        check_weights(found, name, "give bfs")
    if name in ("pagerank", "hits") and options.weighted:
        check_weights(found, f"{name} --weighted", "leave --weighted out")
    if options.undirected:
        found = data.symmetric(found)
    if name == "hits":
        return data.both(found, weighted=options.weighted)
    if name == "betweenness":
        return data.simple(found) if options.undirected else data.both(found)
    make = PROGRAMS[name][0]
    return make(found) if make else found


def copies_of(options: argparse.Namespace, found: data.Graph) -> int:
    """Copies of the graph that the program runs on: betweenness takes a source in each."""
    if options.program != "betweenness":
        return 1
    sources = min(options.sources or found.n, found.n)
    return max(1, min(sources, AT_ONCE // max(found.n + found.edges, 1)))


def vertex_of(word: str, found: data.Graph) -> int:
    """The number of the vertex that the user calls so; "": the first one."""
    if found.names is not None and word:
        numbers = np.flatnonzero(found.names.astype(str) == word)
        if not len(numbers):
            raise ValueError(f"--source {word}: no vertex has that name")
        return int(numbers[0])
    if (word.isdigit() and int(word) >= found.n) or not (word or "0").isdigit():
        raise ValueError(f"--source {word}: vertices are 0 to {found.n - 1}")
    return int(word or 0)


def named(program: str, values: Any, found: data.Graph) -> Any:
    """The result as the user's names have it: values that are vertices become their names."""
    if found.names is None or program not in ("cc", "sv", "matching", "labels"):
        return values
    names = np.append(found.names.astype(object), "")  # a partner of -1 is nobody
    return names[values]


def program_of(options: argparse.Namespace, engine: graph.Engine,
               found: data.Graph) -> graph.VertexProgram | PhoenixProgram:
    options.source = vertex_of(options.source, found)
    if options.program == "matching" and not 0 < (options.left or 0) < found.n:
        left = "is missing" if options.left is None else options.left
        raise ValueError(f"--left {left}: vertices below it are on one side, the others on the "
                         f"other; give 1 to {found.n - 1}")
    walks = {"damping": options.damping, "restart": options.restart, "weighted": options.weighted}
    for vertex in () if options.restart is None else options.restart[[0, -1]]:
        if not 0 <= vertex < found.n:
            raise ValueError(f"--restart {vertex}: vertices are 0 to {found.n - 1}")
    if options.recovery in PHOENIX_RECOVERIES:
        corrected: dict[str, Callable[[], PhoenixProgram]] = {
            "pagerank": lambda: phoenix.Residual(found.n, options.tolerance or 1e-6, **walks),
            "bfs": lambda: phoenix.Distance(options.source, weighted=False),
            "sssp": lambda: phoenix.Distance(options.source, weighted=True),
            "cc": phoenix.Component, "kcore": lambda: phoenix.Core(options.k),
            "colour": phoenix.Colour,
            "factors": lambda: phoenix.Factors(options.rank, options.steps,
                                               options.tolerance or 1e-4)}
        return corrected[options.program]()
    paths = analytics.ShortestPaths if options.parents else pregel.Distance
    made: dict[str, Callable[[], graph.VertexProgram]] = {
        "pagerank": lambda: pregel.PageRank(options.steps, tolerance=options.tolerance or 0,
                                               **walks),
        "bfs": lambda: paths(options.source, weighted=False),
        "sssp": lambda: paths(options.source, weighted=True),
        "cc": pregel.Component, "sv": pregel.PointerJumping,
        "triangles": lambda: analytics.TriangleCount(engine.degrees(found)),
        "matching": lambda: pregel.Matching(options.left or 0),
        "kcore": lambda: pregel.Core(options.k),
        "hits": lambda: analytics.Hits(options.steps, options.tolerance or 1e-9),
        "labels": lambda: analytics.Labels(options.steps),
        "mis": lambda: analytics.Independent(options.seed), "forest": analytics.Forest,
        "betweenness": lambda: analytics.Betweenness(
            found.n, analytics.some_of(found.n, options.sources), copies_of(options, found),
            directed=not options.undirected)}
    return made[options.program]()


def summary(program: str, values: Any, edges: int | None) -> dict[str, int | float]:
    """Numbers that sum up the result of a program."""
    if program == "triangles":
        return {"triangles": int(values.sum()) // 3}
    if program == "matching":
        return {"pairs": int((values >= 0).sum()) // 2}
    if program == "kcore":
        return {"in_core": int(values.sum())}
    if program in ("cc", "sv"):
        return {"components": len(np.unique(values))}
    if program == "labels":
        return {"communities": len(np.unique(values))}
    if program == "factors" and edges:  # each edge is there twice
        return {"rmse": float(np.sqrt(values["squares"].sum() / edges))}
    if program == "forest":
        return {"edges_taken": len(values), "weight": float(values["weight"].sum())}
    if program == "mis":
        return {"inside": int(values.sum())}
    if program == "colour":
        return {"colours": int(values.max()) + 1}
    return {}


def forest(result: graph.Result) -> Any:
    """The edges of a minimum spanning forest, at slot 0: low, high and weight of each."""
    low, high, weight = (result.gather(name) for name in ("low", "high", "weight"))
    if low is None:
        return None
    found = np.zeros(int((low >= 0).sum()), [("low", "i8"), ("high", "i8"), ("weight", "f8")])
    found["low"], found["high"], found["weight"] = (
        array[low >= 0] for array in (low, high, weight))
    return found


def parts_of(result: graph.Result, names: tuple[str, ...]) -> Any:
    """Fields of all vertices as one array, at slot 0."""
    arrays = [result.gather(name) for name in names]
    if arrays[0] is None:
        return None
    return np.rec.fromarrays(arrays, names=list(names)).view(np.ndarray)


def factors(result: graph.Result, rank: int) -> Any:
    """The factors of all vertices, and the sums of squared errors of their edges, at slot 0."""
    *arrays, squares = [result.gather(name) for name in
                        (*(f"factor{i}" for i in range(rank)), "squares")]
    if squares is None:
        return None
    found = np.zeros(len(squares), [("factors", "f8", rank), ("squares", "f8")])
    found["factors"], found["squares"] = np.stack(arrays, axis=1), squares
    return found


def field_of(options: argparse.Namespace) -> str:
    """The field that is the result."""
    corrects = options.recovery in PHOENIX_RECOVERIES
    return "hub" if options.hubs else PROGRAMS[options.program][1 + corrects]


def table(options: argparse.Namespace, values: Any, found: data.Graph) -> dict[str, Any]:
    """The columns of the result, with vertices as the user names them."""
    if options.program == "forest":
        names = np.arange(found.n) if found.names is None else found.names
        return {"source": names[values["low"]], "target": names[values["high"]],
                "weight": values["weight"]}
    if options.program == "factors":
        arrays = {f"factor{i}": column for i, column in enumerate(values["factors"].T)}
        return results.columns_of(found, {"squares": values["squares"], **arrays})
    if options.parents:
        parents = values["parent"]
        return results.columns_of(found, {
            "value": values["value"],
            "parent": parents if found.names is None else named("matching", parents, found)})
    return results.columns_of(found, {field_of(options): named(options.program, values, found)})


def values_of(result: graph.Result, options: argparse.Namespace) -> Any:
    """The result, at slot 0; None elsewhere. MPI: collective over all slots."""
    if options.program == "forest":
        return forest(result)
    if options.program == "factors":
        return factors(result, options.rank)
    if options.parents:
        return parts_of(result, ("value", "parent"))
    corrects = options.recovery in PHOENIX_RECOVERIES
    values = result.gather(field_of(options))
    if values is not None and options.program == "pagerank" and corrects:
        values = values / values.sum()
    return values


def balance(sizes: list[int | None], copies: int) -> dict[str, Any]:
    """The edges that the slots have: all, and those of the fullest slot by those of an equal share;
    None if a slot does not know, whose process was replaced when the run had ended."""
    known = [size for size in sizes if size is not None]
    edges = sum(known) if len(known) == len(sizes) else None
    return {"edges": edges if edges is None else edges // copies,
            "imbalance": max(known) * len(known) / edges if edges else None}


def save(path: str, columns: dict[str, Any]) -> int:
    """Write the result; the exit status."""
    try:
        results.write(path, columns)
    except OSError as error:
        outfile.tell(f"error: --out {path}: {outfile.why(error)}", who="graph")
        return 1
    return 0


def show(columns: dict[str, Any], count: int, *, least: bool) -> list[tuple[Any, Any]]:
    """Print the vertices with the largest or smallest values, and return them."""
    first, second, *_ = columns
    if not count or first != "vertex" or columns[second].dtype == object:
        return []
    found = results.first_of(columns, count, least=least)
    rows = [(first, second), *((one_line(str(vertex)), f"{value:.10g}") for vertex, value in found)]
    wide = max(len(vertex) for vertex, _ in rows)
    for vertex, value in rows:
        print(f"{vertex:>{wide}}  {value}")
    return found


def times(reports: list[Any], loading_s: float, run_s: float) -> dict[str, Any]:
    """Times of a run as slot 0 took them, in seconds; steps that were taken again count again."""
    return {"steps": max((report.step for report in reports), default=None),
            "loading_s": loading_s, "seconds": run_s,
            "saving_s": sum(report.saving_s for report in reports),
            "step_s": [round(report.seconds, 6) for report in reports]}


def main(arguments: list[str]) -> int:
    """Run one of them; the result is the exit status."""
    slot, status = MPI.COMM_WORLD.rank, 0
    tell = functools.partial(outfile.tell_first, who="graph", unasked=slot == 0)
    try:
        options = parse(arguments)
        del sys.argv[1:]  # what tells a run from others is in the program and the graph
        engine = graph.Engine(recovery=options.recovery, checkpoint=options.checkpoint,
                              partition=options.partition, cache=options.cache,
                              progress=options.progress)
        loading = time.monotonic()
        given = graph_of(engine, options.graph, **reading_of(options))
        found = prepared(options, given)
        copies = copies_of(options, found)
        began = time.monotonic()
        result = engine.run(data.copies(found, copies) if copies > 1 else found,
                            program_of(options, engine, found), **(
            {"most": LONG} if options.program == "betweenness" else {}))
        seconds = time.monotonic() - began
        values = values_of(result, options)
        balanced = balance(engine.comm.gather(result.edges, root=0) or [], copies)
        if slot == 0:
            values = values[: found.n]
            columns = table(options, values, found)
            top = show(columns, options.top, least=options.program in ("bfs", "sssp"))
            if not (options.out or "").endswith(results.TABLES):
                columns = {"vertex": values, "values": values}
            status = save(options.out, columns) if options.out else 0
            print(json.dumps({
                "program": options.program, "graph": options.graph, "vertices": found.n,
                "slots": engine.comm.size, "recovery": options.recovery,
                **times(result.reports, began - loading, seconds),
                "partition": options.partition, **balanced, "read_as": given.read_as,
                **summary(options.program, values, balanced["edges"]),
                **({"top": top} if top else {}),
                "out": None if status else options.out}), flush=True)
    except MemoryError as error:
        tell(f"error: {options.graph} does not fit: {error}; use more slots on more machines, or a "
             "smaller graph")
        return 2
    except (ValueError, OSError, graph.NotEnded) as error:
        tell(f"error: {error}")
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
