"""The command ``ftrma aic``: its arguments, and the packaged programs that it runs."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass

from ...host import values
from ...host.values import number, whole
from .. import Invocation

GRAPH_PROGRAMS = ("pagerank", "sssp", "cc", "katz", "adsorption")
COMPLETION = "mc"
KINDS = ("rmat", "powerlaw", "lognormal", "grid", "path")  # kinds of graphs that are made, not read
PLANTED = "planted"  # matrices that are made, not read
MODES = ("virtual", "chandy-lamport", "synchronous", "hybrid", "faic-d")
GRAPH_APPS = ("aic.py", "aic_programs.py", "aic_oracles.py", "aic_plot.py")
COMPLETION_APPS = ("aic_mc.py", "aic_plot.py")
MOST = 10**9
HELP = "PageRank, distances, completion of matrices ... by workers that never wait, protected"
USAGE = "ftrma aic PROGRAM INPUT -n N [--snapshot MODE:WHEN] [--out FILE] [options]"
DESCRIPTION = (
    "Run an asynchronous program, protected by snapshots that stop nobody. Over a graph: pagerank;"
    " sssp, distances from a vertex; cc, connected components, by least ids; katz, paths that lead"
    " to each vertex; adsorption, averages of labels. Over known entries of a matrix: mc, its"
    " completion by factors."
)


@dataclass(frozen=True)
class Option:
    """An option with a number, of programs over graphs or of mc; a whole one, unless `least` is a
    float."""

    name: str
    least: float
    most: float
    text: str


GRAPH_OPTIONS = (
    Option("eps", 0.0, 1.0, "a vertex waits while less than this is new to it (1e-9; sssp and cc:"
           " 0)"),
    Option("portion", 1e-6, 1.0, "share of the vertices that are updated at a time, the most urgent"
           " ones (0.2)"),
    Option("send-portion", 0.0, 1.0, "messages leave once they are for so many of a slot's vertices"
           " (0.01)"),
    Option("send-seconds", 0.0, 1e6, "or after so long (0.5)"),
    Option("beta", 1e-300, 1.0, "of katz: what an edge of a path counts (0.85 / most edges of a"
           " vertex)"),
    Option("source", 0, MOST, "of sssp (0) and katz (anywhere)"),
    Option("every", 1, MOST, "of adsorption: each so many-th vertex has the label (100)"),
)
COMPLETION_OPTIONS = (
    Option("rank", 1, 10_000, "of mc: factors of each row and column (20)"),
    Option("regularization", 0.0, 1e9, "of mc: lambda (0.1; of a planted matrix 0.001)"),
    Option("step", 1e-12, 1e9, "of mc: eta, of the first steps (0.03)"),
    Option("epochs", 1, MOST, "of mc: visits of each column for each slot, at most (60)"),
    Option("rmse", 1e-300, 1e300, "of mc: the error at known entries at which it ends"),
    Option("held-out", 0.0, 0.999, "of mc: share of the entries that are held out (0.1)"),
    Option("seed", 0, 2**32 - 1, "of mc: of the first factors and the ways of columns (1)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--snapshot", metavar="MODE:WHEN", help=f"{', '.join(MODES)}, or none; seconds between two"
        " (virtual:2), updates (virtual:1000000u), or daly: by --interval daly and --mtbf"
        " (virtual:daly)")
    add("--recovery", choices=("all", "survivors"), help="who goes back to the newest snapshot:"
        " all (default), or nobody: what the dead had begins anew (not mc)")
    for option in (*GRAPH_OPTIONS, *COMPLETION_OPTIONS):
        add(f"--{option.name}", metavar="X" if isinstance(option.least, float) else "K",
            help=option.text)
    add("--check", action="store_true", help="compare the result with scipy's, or with the noise of"
        " a planted matrix")
    add("--plot", metavar="FILE", help="draw the progress over time, with snapshots and failures"
        " (.pdf, .svg or .png; needs matplotlib)")
    add("--progress", action="store_true", help="tell the residual now and then; as on a terminal")
    add("--out", metavar="FILE", help="write the result, an .npy file; of mc an .npz file")
    programs = (*GRAPH_PROGRAMS, COMPLETION)
    add("program", metavar="PROGRAM", choices=programs, help=f"one of {', '.join(programs)}")
    add("input", metavar="INPUT", help="a graph: a file (.npz, .mtx, .mtx.gz, or text: a source and"
        " a target in a line), rmat:SCALE, powerlaw:N, lognormal:N, grid:SIDE or path:N. Of mc"
        " entries: a file (.npz with rows, cols and values, or text) or planted:ROWSxCOLUMNS")


def invocation(arguments: argparse.Namespace) -> Invocation:
    completes = arguments.program == COMPLETION
    check_input(arguments.input, completes)
    words = [arguments.input] if completes else [arguments.program, arguments.input]
    if arguments.snapshot is not None:
        words += ["--snapshot", snapshot(arguments.snapshot)]
    for options, fit in ((GRAPH_OPTIONS, not completes), (COMPLETION_OPTIONS, completes)):
        for option in options:
            words += words_of(option, getattr(arguments, option.name.replace("-", "_")), fit,
                              arguments.program)
    if completes and arguments.recovery == "survivors":
        raise ValueError("--recovery survivors: is not for mc; leave it out")
    if arguments.progress or sys.stderr.isatty():
        words.append("--progress")
    if arguments.check:
        words.append("--check")
    for name in ("recovery", "plot", "out"):
        if getattr(arguments, name):
            words += [f"--{name}", getattr(arguments, name)]
    writes = tuple((f"--{name}", getattr(arguments, name)) for name in ("plot", "out")
                   if getattr(arguments, name))
    return Invocation(COMPLETION_APPS if completes else GRAPH_APPS, words, (arguments.input,),
                      writes)


def words_of(option: Option, value: str | None, fits: bool, program: str) -> list[str]:
    """Return the words of an option for the program, if it is given.

    Raises:
        ValueError: the option is out of range, or is for another program.
    """
    name = f"--{option.name}"
    if value is None:
        return []
    if not fits:
        raise ValueError(f"{name}: is not for {program}; leave it out")
    if isinstance(option.least, float):
        return [name, repr(number(name, value, option.least, option.most))]
    return [name, str(whole(name, value, option.least, int(option.most)))]


def snapshot(word: str) -> str:
    """Return the mode of snapshots and their interval, in the form that the program takes.

    Raises:
        ValueError: it is no mode, or no interval.
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


def check_input(word: str, completes: bool) -> None:
    """Refuse a file that cannot be read.

    Raises:
        ValueError: the file cannot be read; the text has its name, and the remedy.
    """
    if word.partition(":")[0] in ((PLANTED,) if completes else KINDS):
        return
    try:
        values.open_file(word).close()
    except OSError as error:
        others = "planted:ROWSxCOLUMNS" if completes else (
            "rmat:SCALE, powerlaw:N, lognormal:N, grid:SIDE or path:N")
        raise ValueError(f"{word}: {error.strerror}; give a file, {others}") from None
