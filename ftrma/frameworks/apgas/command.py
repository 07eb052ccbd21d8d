"""The command ``ftrma apgas``: its arguments, and the packaged programs that it runs."""

from __future__ import annotations

import argparse
import sys

from ...host.values import number, whole
from .. import Invocation

PROGRAMS = ("kmeans", "logreg", "pagerank", "lulesh", "uts", "queens")
APPS = ("apgas.py", "kmeans.py", "logreg.py", "pagerank_apgas.py", "lulesh.py", "uts.py",
        "queens.py")
MOST = 10**9
HELP = "KMeans, PageRank, tree search ... over places that survive failures"
USAGE = "ftrma apgas PROGRAM -n N [--checkpoint K] [--out FILE] [options]"
DESCRIPTION = (
    "Run an application of Resilient X10 over places: kmeans, logreg (logistic regression),"
    " pagerank and lulesh (a blast wave), with checkpoints; uts, the search of an unbalanced tree,"
    " and queens, by work stealing. Spares are reserves that replace dead places."
)
SIZES = (
    ("points", "of kmeans, at each place (100000)"), ("clusters", "of kmeans (30)"),
    ("dimensions", "of kmeans (10)"), ("samples", "of logreg, at each place (50000)"),
    ("features", "of logreg (30)"), ("pages", "of pagerank, of all places (20000)"),
    ("steps", "of kmeans, logreg and pagerank (50), of lulesh at most (to its end)"),
    ("edge", "of lulesh, in elements (10)"), ("depth", "of the tree of uts (8)"),
    ("board", "of queens, in columns (9)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for name, text in SIZES:
        add(f"--{name}", metavar="K", help=text)
    add("--checkpoint", metavar="K", help="steps between two, young or daly: by --mtbf (10)")
    add("--commit", metavar="S", help="of uts and queens: seconds between two commits of a place,"
        " 0: nothing is committed (0.05)")
    add("--reserves", metavar="K", help="reserves to keep: places are started where they are fewer"
        " (0)")
    add("--shrink", action="store_true", help="go on with fewer places where no spare is left")
    add("--check", action="store_true", help="compute the result in one process, too, and compare")
    add("--progress", action="store_true", help="tell steps now and then; as on a terminal")
    add("--file", metavar="FILE", help="of programs with checkpoints: write them to this file, too,"
        " and go on from it if it is there")
    add("--file-interval", metavar="S", help="seconds between two of these (60)")
    add("--out", metavar="FILE", help="write the result, an .npy file")
    add("program", metavar="PROGRAM", choices=PROGRAMS, help=f"one of {', '.join(PROGRAMS)}")


def invocation(arguments: argparse.Namespace) -> Invocation:
    words = [arguments.program]
    for name, _ in SIZES:
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name}", str(whole(f"--{name}", value, 1, MOST))]
    if arguments.checkpoint is not None:
        word = arguments.checkpoint
        if word not in ("young", "daly"):
            word = str(whole("--checkpoint", word, 1, MOST, "steps, young or daly"))
        words += ["--checkpoint", word]
    if arguments.commit is not None:
        words += ["--commit", repr(number("--commit", arguments.commit, 0, 1e9, "seconds"))]
    if arguments.reserves is not None:
        words += ["--reserves", str(whole("--reserves", arguments.reserves, 0, MOST))]
    words += [f"--{name}" for name in ("shrink", "check") if getattr(arguments, name)]
    if arguments.progress or sys.stderr.isatty():
        words.append("--progress")
    if arguments.out:
        if arguments.program in ("uts", "queens"):
            raise ValueError(f"--out: the result of {arguments.program} is one number, which is "
                             "printed")
        words += ["--out", arguments.out]
    if arguments.file_interval is not None:
        if not arguments.file:
            raise ValueError("--file-interval: there is no file; give one by --file")
        words += ["--file-interval",
                  repr(number("--file-interval", arguments.file_interval, 0, 1e9, "seconds"))]
    if arguments.file:
        if arguments.program in ("uts", "queens"):
            raise ValueError(f"--file: {arguments.program} takes no checkpoints")
        words += ["--file", arguments.file]
    writes = (("--out", arguments.out), ("--file", arguments.file))
    return Invocation(APPS, words, writes=tuple(one for one in writes if one[1]))
