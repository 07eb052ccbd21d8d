"""The command ``ftrma graph``: its arguments, and the packaged program that it runs."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from ...host import values
from ...host.values import number, whole
from .. import Invocation

PROGRAMS = ("pagerank", "bfs", "sssp", "cc", "sv", "triangles", "matching", "kcore", "colour",
            "hits", "labels", "mis", "betweenness",
            "forest", "factors")
KINDS = ("rmat", "lognormal", "grid", "path")  # kinds of graphs that are made, not read
APPS = ("graph.py", "analytics.py", "phoenix.py", "pregel.py")
FLAGS = ("undirected", "hubs", "parents")
# The least value of each option that is a whole number.
NUMBERS = {"steps": 1, "k": 0, "left": 1, "sources": 1, "seed": 0, "rank": 1, "top": 1}
HELP = "PageRank, distances, components ... of a graph, protected"
USAGE = "ftrma graph PROGRAM GRAPH -n N [--recovery R] [--out FILE] [options]"
DESCRIPTION = (
    "Run a vertex program over a graph, protected: pagerank; bfs and sssp, distances from a vertex"
    " in steps and by weights; cc and sv, connected components, by least ids and by pointer"
    " jumping; triangles; matching, of a bipartite graph; kcore, who is in the k-core; colour, a"
    " greedy colouring; hits, hubs and authorities; labels, communities by label propagation; mis,"
    " a maximal independent set; betweenness, of shortest paths over a vertex;"
    " forest, the edges of a minimum spanning forest; factors, of rated pairs, by phoenix or cr."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    # These names are those of `ftrma.graph.Engine`, which the command line does not import.
    add("--recovery", choices=("hwcp", "lwcp", "hwlog", "lwlog", "causal", "rollback", "none",
                               "phoenix", "cr"),
        help="heavy or light checkpoints, with logs or without (lwlog), as programs of other kinds"
        " are, or none; phoenix: without a checkpoint or a log, as colour is; cr: the same programs"
        " by checkpoints")
    add("--checkpoint", metavar="K", help="steps between two, seconds (with a point), daly or never"
        " (10; phoenix: never)")
    add("--partition", choices=("hash", "range", "edges"), help="of the vertices over the slots:"
        " mixed (hash), stretches of as many ids, or stretches of about as many edges")
    add("--cache", metavar="DIR", help="leave the slots' parts of the graph there, for replaced"
        " slots and later runs")
    add("--steps", metavar="K", help="of pagerank and labels (30), hits (1000) and factors (200)")
    add("--rank", metavar="K", help="of factors: numbers for each vertex (8)")
    add("--tolerance", metavar="E", help="of pagerank and hits: ends when the changes of all ranks"
        " in a step add up to no more; by phoenix or cr: of all errors together (1e-6);"
        " of hits 1e-9 by default;"
        " of factors: of a change (1e-4)")
    add("--damping", metavar="D", help="of pagerank: share of a rank that goes along edges (0.85)")
    add("--restart", metavar="IDS", help="of pagerank: where walks begin again (3,17); all vertices"
        " by default")
    add("--undirected", action="store_true", help="take each edge in both directions")
    add("--k", metavar="K", help="of kcore (2)")
    add("--left", metavar="V", help="of matching: the ids below it are one side")
    add("--source", metavar="V", help="of bfs and sssp: a vertex, as the graph names it (0)")
    add("--parents", action="store_true", help="of bfs and sssp: give the vertex in front of each"
        " on a shortest path, too")
    add("--sources", metavar="K", help="of betweenness: shortest paths from so many vertices alone,"
        " scaled up (all)")
    add("--seed", metavar="N", help="of mis: another number, another set (0)")
    add("--hubs", action="store_true", help="of hits: the result are the hubs, not the authorities")
    reading = parser.add_argument_group("reading of GRAPH, where its content does not say enough")
    add_reading(reading)
    add("--out", metavar="FILE", help="write the result: with the vertices if the suffix is .csv,"
        " .tsv, .parquet or .npz, else an .npy file of the values alone")
    add("--top", metavar="K", help="show the K vertices with the largest values (bfs, sssp: the"
        " smallest) on the terminal")
    add("program", metavar="PROGRAM", choices=PROGRAMS, help=f"one of {', '.join(PROGRAMS)}")
    add("graph", metavar="GRAPH", help="a file (.npz, Parquet, Matrix Market, METIS, DIMACS, or"
        " text: a source and a target in a line), rmat:SCALE, lognormal:N, grid:SIDE or path:N")


def add_reading(parser: argparse._ActionsContainer) -> None:
    """Add the options of `ftrma.graph.data.load`, by its names."""
    add = parser.add_argument
    add("--columns", metavar="S,T[,W]", help="of source, target and perhaps weight: numbers from 0"
        " on, or names")
    add("--skip", metavar="K", help="lines at the beginning that are left out")
    add("--separator", metavar="C", help="the character between columns; tab has a name")
    add("--weighted", action="store_true", help="there are weights, also in a column that is not"
        " named so; pagerank and hits count edges by them")
    add("--unweighted", action="store_true", help="weights are left out")
    add("--one-based", action="store_true", help="ids begin at 1, which becomes vertex 0")
    add("--labels", action="store_true", help="ids are words, though they look like numbers")
    add("--relabel", action="store_true", help="only vertices that have edges, from 0 on")
    add("--n", metavar="K", help="vertices (one more than the largest id)")


def invocation(arguments: argparse.Namespace) -> Invocation:
    words = [arguments.program, arguments.graph]
    if arguments.recovery:
        words += ["--recovery", arguments.recovery]
    if arguments.tolerance is not None:
        words += ["--tolerance", str(number("--tolerance", arguments.tolerance, 1e-15, 1))]
    if arguments.damping is not None:
        words += ["--damping", str(number("--damping", arguments.damping, 0, 0.999999))]
    if arguments.restart is not None:
        words += ["--restart", arguments.restart]
    words += [f"--{name}" for name in FLAGS if getattr(arguments, name)]
    if arguments.checkpoint is not None:
        words += ["--checkpoint", checkpoint(arguments.checkpoint)]
    if sys.stderr.isatty():
        words.append("--progress")
    for name, least in NUMBERS.items():
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name}", str(whole(f"--{name}", value, least, 10**9))]
    for name in ("partition", "cache", "out"):
        if getattr(arguments, name):
            words += [f"--{name}", getattr(arguments, name)]
    if arguments.source is not None:
        read = arguments.graph.partition(":")[0] not in KINDS
        words.append("--source=" + (arguments.source if read and not _is_number(arguments.source)
                                    else str(whole("--source", arguments.source, 0, 2**63 - 1))))
    words += reading_words(arguments)
    check_graph(arguments.graph)
    if arguments.out:
        check_kind_of(arguments.out)
    writes = (("--out", arguments.out),) if arguments.out else ()
    # With "rollback" nothing is replayed, so nothing is logged.
    policy = "rollback" if arguments.recovery == "rollback" else ""
    claims = arguments.recovery not in ("causal", "rollback")
    return Invocation(APPS, words, (arguments.graph,), writes, policy, claims)


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isdigit()


def reading_words(arguments: argparse.Namespace) -> list[str]:
    """Return the options of reading, after the checks that need no file.

    Raises:
        ValueError: a value is not allowed, or the graph is made and not read.
    """
    words = [f"--{name}" for name in ("weighted", "unweighted", "one-based", "labels", "relabel")
             if getattr(arguments, name.replace("-", "_"))]
    if arguments.weighted and arguments.unweighted:
        raise ValueError("--weighted and --unweighted: give one of them")
    for name, least in (("skip", 0), ("n", 1)):
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name}", str(whole(f"--{name}", value, least, 2**44))]
    if arguments.separator is not None:
        words += ["--separator", {"tab": "\t", "\\t": "\t"}.get(arguments.separator,
                                                               arguments.separator)]
    if arguments.columns is not None:
        words += ["--columns", arguments.columns]
    if words and arguments.graph.partition(":")[0] in KINDS:
        raise ValueError(f"{words[0]}: {arguments.graph} is made, not read; leave it out")
    return words


def check_graph(word: str) -> None:
    """Refuse a file that cannot be read.

    Raises:
        ValueError: the file cannot be read; the text has its name, and the remedy.
    """
    if word.partition(":")[0] in KINDS:
        return
    try:
        values.open_file(word).close()
    except OSError as error:
        raise ValueError(f"{word}: {error.strerror}; give a file, rmat:SCALE, lognormal:N, "
                         "grid:SIDE or path:N") from None


def check_kind_of(path: str) -> None:
    """Refuse a file that cannot be written because a package is missing.

    Raises:
        ValueError: the package is missing; the text has the remedy.
    """
    if path.endswith(".parquet") and find_spec("pyarrow") is None:
        raise ValueError(f"--out {path}: pyarrow writes Parquet: pip install pyarrow, or name a "
                         ".csv or .npz file")


def checkpoint(word: str) -> str:
    """Return the interval between checkpoints in the form of `ftrma.graph.Engine`.

    Raises:
        ValueError: the word is neither a number of steps nor a time.
    """
    if word in ("daly", "never"):
        return word
    if "." in word:
        return repr(number("--checkpoint", word, 1e-3, 1e9, "seconds"))
    return str(whole("--checkpoint", word, 0, 10**9,
                     "steps, seconds (with a point), daly or never"))
