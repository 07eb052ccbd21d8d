"""The command ``ftrma aic``: its words, and the packaged programs that it runs."""

from __future__ import annotations

import argparse
import re
import sys

from ...host import values
from ...host.values import number, whole
from .. import Invocation

PROGRAMS = ("pagerank", "sssp", "cc", "katz", "adsorption")
KINDS = ("rmat", "powerlaw", "lognormal", "grid", "path")  # of graphs that are made
MODES = ("virtual", "chandy-lamport", "synchronous", "hybrid", "faic-d")
APPS = ("aic.py", "aic_programs.py", "aic_oracles.py", "aic_plot.py")
MOST = 10**9
HELP = "PageRank, distances ... by workers that never wait, protected"
USAGE = "ftrma aic PROGRAM GRAPH -n N [--snapshot MODE:WHEN] [--out FILE] [options]"
DESCRIPTION = (
    "Run an asynchronous program over a graph, protected by snapshots that stop nobody: pagerank;"
    " sssp, distances from a vertex; cc, connected components, by least ids; katz, paths that lead"
    " to each vertex; adsorption, averages of labels."
)
NUMBERS = (
    ("eps", 0.0, 1.0, "a vertex waits while less than this is new to it (1e-9; sssp and cc: 0)"),
    ("portion", 1e-6, 1.0, "share of the vertices that are updated at a time, those with the"
     " highest priority (0.2)"),
    ("send-portion", 0.0, 1.0, "messages leave once they are for so many of a slot's vertices"
     " (0.01)"),
    ("send-seconds", 0.0, 1e6, "or after so long (0.5)"),
    ("beta", 1e-300, 1.0, "of katz: what an edge of a path counts (0.85 / most edges of a vertex)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--snapshot", metavar="MODE:WHEN", help=f"{', '.join(MODES)}, or none; seconds between two"
        " (virtual:2), updates (virtual:1000000u), or daly: by --mtbf (virtual:daly)")
    add("--recovery", choices=("all", "survivors"), help="who goes back to the newest snapshot:"
        " all (default), or nobody: what the dead had begins anew")
    for name, _, _, text in NUMBERS:
        add(f"--{name}", metavar="X", help=text)
    add("--source", metavar="V", help="of sssp (0) and katz (anywhere)")
    add("--every", metavar="K", help="of adsorption: each so many-th vertex has the label (100)")
    add("--check", action="store_true", help="compute the result by scipy, too, and compare")
    add("--plot", metavar="FILE", help="draw the progress over time, with snapshots and failures"
        " (.pdf, .svg or .png; needs matplotlib)")
    add("--progress", action="store_true", help="tell the residual now and then; as on a terminal")
    add("--out", metavar="FILE", help="write the result, an .npy file")
    add("program", metavar="PROGRAM", choices=PROGRAMS, help=f"one of {', '.join(PROGRAMS)}")
    add("graph", metavar="GRAPH", help="a file (.npz, .mtx, .mtx.gz, or text: a source and a target"
        " in a line), rmat:SCALE, powerlaw:N, lognormal:N, grid:SIDE or path:N")


def invocation(arguments: argparse.Namespace) -> Invocation:
    words = [arguments.program, arguments.graph]
    if arguments.snapshot is not None:
        words += ["--snapshot", snapshot(arguments.snapshot)]
    for name, least, most, _ in NUMBERS:
        value = getattr(arguments, name.replace("-", "_"))
        if value is not None:
            words += [f"--{name}", repr(number(f"--{name}", value, least, most))]
    for name, least in (("source", 0), ("every", 1)):
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name}", str(whole(f"--{name}", value, least, MOST))]
    if arguments.progress or sys.stderr.isatty():
        words.append("--progress")
    if arguments.check:
        words.append("--check")
    for name in ("recovery", "plot", "out"):
        if getattr(arguments, name):
            words += [f"--{name}", getattr(arguments, name)]
    check_graph(arguments.graph)
    writes = tuple((f"--{name}", getattr(arguments, name)) for name in ("plot", "out")
                   if getattr(arguments, name))
    return Invocation(APPS, words, (arguments.graph,), writes)


def snapshot(word: str) -> str:
    """The mode of snapshots and when there is one, as the program has it.

    Raises:
        ValueError: it is no mode, or no time.
    """
    mode, _, when = word.partition(":")
    if word == "none" or (mode in MODES and (when == "daly" or re.fullmatch(r"[1-9]\d{0,14}u",
                                                                            when))):
        return word
    if mode not in MODES or not when:
        raise ValueError(f"--snapshot {word}: give none, or one of {', '.join(MODES)} with the "
                         "seconds between two, such as virtual:2, with updates, such as "
                         "virtual:1000000u, or with daly")
    return f"{mode}:{number('--snapshot ' + mode, when, 1e-3, 1e9, 'seconds')!r}"


def check_graph(word: str) -> None:
    """Refuse a file that cannot be read.

    Raises:
        ValueError: with its name, and the remedy.
    """
    if word.partition(":")[0] in KINDS:
        return
    try:
        values.open_file(word).close()
    except OSError as error:
        raise ValueError(f"{word}: {error.strerror}; give a file, rmat:SCALE, powerlaw:N, "
                         "lognormal:N, grid:SIDE or path:N") from None
