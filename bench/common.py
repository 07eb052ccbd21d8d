"""Shared by all measurements: statistics, options, the report, the figure.

All sides are measured in every round, so that a machine that grows slow or busy does so for all of
them; ratios are formed within a round.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import io
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ftrma.host import outfile
from ftrma.launch.mpirun import find_mpirun
from ftrma.settings import options as settings

from .launching import JsonObject, environment

USAGE_ERROR = 2
UNCLEAR = ")?"  # ends a ratio or a difference that may be none
BUSY_SHARE = 0.3  # load per core, before the measurement, from which on it is disturbed


class UsageError(Exception):
    """An option is wrong; the text names it, its value and the remedy."""


# ---- statistics -----------------------------------------------------------------------------


def spread(values: Iterable[float]) -> JsonObject:
    """Median with its surroundings: ``n``, ``min``, ``q1``, ``median``, ``q3``, ``max``.

    ``low`` and ``high`` are the 95 % interval of the median, by ranks: values below and above it
    are heads and tails. None: six values are needed for one.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    quarters = (
        statistics.quantiles(ordered, n=4, method="inclusive")
        if len(ordered) > 1
        else [ordered[0]] * 3
    )
    return {
        "n": len(ordered), "min": ordered[0], "q1": quarters[0], "median": quarters[1],
        "q3": quarters[2], "max": ordered[-1], **interval(ordered),
    }


def interval(ordered: Sequence[float]) -> JsonObject:
    """The 95 % interval of the median of ordered values, which needs six of them."""
    n, left_out, ways = len(ordered), -1, 1  # ways: to choose so many values and one more
    outside = ways
    while 40 * outside <= 1 << n:  # at most 2.5 % of all sequences of heads and tails
        left_out += 1
        ways = ways * (n - left_out) // (left_out + 1)
        outside += ways
    if left_out < 0:
        return {"low": None, "high": None}
    return {"low": ordered[left_out], "high": ordered[n - 1 - left_out]}


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Ratio of each pair; the two were measured in the same rounds."""
    return [a / b for a, b in zip(above, below, strict=True)]


def scaled(found: Mapping[str, Any], by: float) -> JsonObject:
    """A spread in another unit."""
    return {key: value if key == "n" or value is None else by * value
            for key, value in found.items()}


def with_range(found: Mapping[str, Any], digits: int = 2, against: float | None = None) -> str:
    """``median (min .. max)``.

    Args:
        against: the value that stands for no effect, 1 of a ratio, 0 of a difference; it ends with
            UNCLEAR if the 95 % interval of the median has this value in it, or is not known.
    """
    text = "{:.{d}f} ({:.{d}f} .. {:.{d}f})".format(
        found["median"], found["min"], found["max"], d=digits
    )
    clear = against is None or (
        found["low"] is not None and not found["low"] <= against <= found["high"])
    return text if clear else text[:-1] + UNCLEAR


# ---- where it was measured ------------------------------------------------------------------


def machine() -> JsonObject:
    """The machine, and how busy it was."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "load_average_1min": os.getloadavg()[0],
    }


def versions() -> JsonObject:
    said = subprocess.run(
        [find_mpirun(), "--version"], capture_output=True, text=True, timeout=60, check=False,
        env=environment(),
    ).stdout
    number = re.search(r"Open MPI\D*([\d.]\S*)", said)
    found = {"python": platform.python_version(), "openmpi": number[1] if number else "unknown"}
    for package in ("mpi4py", "numpy", "ftrma"):
        found[package] = importlib.metadata.version(package)
    return found


def where(report: Mapping[str, Any]) -> str:
    """Machine and versions, in a line each."""
    m, v = report["machine"], report["versions"]
    return (
        f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']:g} GiB, Linux {m['kernel']}\n"
        f"ftrma {v['ftrma']}, Open MPI {v['openmpi']}, mpi4py {v['mpi4py']}, NumPy {v['numpy']}, "
        f"Python {v['python']}"
    )


# ---- options --------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line; `launches`: the measurement starts programs."""

    def __init__(self, name: str, description: str, *, launches: bool = True) -> None:
        super().__init__(
            prog=f"python -m bench {name}", description=description,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        self.add_argument("--rounds", type=whole, default=5, metavar="R",
                          help="turns of each side")
        if launches:
            self.add_argument("--timeout", type=positive, default=300.0, metavar="SECONDS",
                              help="time limit of each launch")
        # No default text for these: there is no file unless one is asked for.
        self.add_argument("--json", type=output_file, metavar="FILE", default=argparse.SUPPRESS,
                          help="write the report to this file too")
        self.add_argument("--plot", type=figure_file, metavar="FILE", default=argparse.SUPPRESS,
                          help="draw a figure (.pdf, .svg or .png; needs matplotlib)")

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 up")
    return int(text)


def whole_or_none(text: str) -> int:
    return 0 if text == "0" else whole(text)


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def size(text: str) -> int:
    """Bytes from a text such as 64MiB, as ``ftrma run`` takes them."""
    try:
        return settings.size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def size_text(size_bytes: float) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes:g} B"


def output_file(text: str) -> Path:
    try:
        outfile.check("it", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("it ")) from None
    return Path(text)


def write(path: Path, data: bytes) -> None:
    """Write a file that was asked for, or say why not; what was measured is on the terminal."""
    try:
        outfile.write(str(path), [data])
    except OSError as error:
        print(f"warning: cannot write {outfile.one_line(str(path))}: {outfile.why(error)}",
              file=sys.stderr)


def figure_file(text: str) -> Path:
    path = output_file(text)
    if path.suffix not in (".pdf", ".svg", ".png"):
        raise argparse.ArgumentTypeError(f"{text}: give a name in .pdf, .svg or .png")
    try:
        pyplot()  # find out before the measurement, not after
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


# ---- the report -----------------------------------------------------------------------------


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns; the first row is the head, the first column text, the others right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    rule = "-" * max(map(len, lines))
    return "\n".join([lines[0], rule, *lines[1:]])


def progress(text: str) -> None:
    """Say on a terminal how far the measurement is; nothing is left of it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="" if text else "\r", file=sys.stderr, flush=True)


def begin(name: str) -> JsonObject:
    """The begin of every report."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "benchmark": name,
        "date": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "began_s": time.monotonic(),
    }


def finish(report: JsonObject, options: argparse.Namespace, text: Callable[[JsonObject], str],
           draw: Callable[[JsonObject, Path], None]) -> None:
    """Print the table and the report, its file and the figure, if they are wanted.

    Args:
        text: makes the table.
        draw: draws the figure to a file.
    """
    progress("")
    report["measured_for_s"] = round(time.monotonic() - report.pop("began_s"), 1)
    report["machine"]["load_average_1min_after"] = os.getloadavg()[0]
    table = text(report)
    print(table)
    if UNCLEAR in table:
        print("\n? may be no effect: the 95 % interval of the median includes none, or there are "
              "fewer than 6 rounds; take more --rounds")
    load = "{load_average_1min:.1f} before, {load_average_1min_after:.1f} after".format_map(
        report["machine"]
    )
    print(f"\n{where(report)}\nload average {load}")
    if report["machine"]["load_average_1min"] > BUSY_SHARE * report["machine"]["cores"]:
        print("note: the machine was busy with other work; times and ratios are disturbed by it")
    print(flush=True)
    line = json.dumps(report)
    if "json" in options:
        write(options.json, (line + "\n").encode())
    print(line, flush=True)
    if "plot" in options:
        draw(report, options.plot)


# ---- the figure -----------------------------------------------------------------------------


def pyplot() -> Any:
    """matplotlib.pyplot, which is needed for figures alone."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError(
            "figures need matplotlib; install it with pip install 'ftrma[bench]'"
        ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
            "axes.axisbelow": True, "grid.color": "0.88", "savefig.dpi": 200,
            "legend.frameon": False, "pdf.fonttype": 42, "svg.fonttype": "none",
        }
    )
    return plt


def whiskers(found: Sequence[Mapping[str, float]], scale: float = 1.0) -> list[list[float]]:
    """Lengths of error bars from the medians to the quartiles."""
    return [
        [scale * (f["median"] - f["q1"]) for f in found],
        [scale * (f["q3"] - f["median"]) for f in found],
    ]


def save(figure: Any, path: Path, report: Mapping[str, Any]) -> None:
    """Put the source line under a figure and write it."""
    source = (
        f"Source: python -m bench {report['benchmark']}, {report['date'][:10]}; "
        f"error bars: quartiles of {report['rounds']} rounds\n{where(report)}"
    )
    figure.canvas.draw()
    box = figure.get_tightbbox()  # in inches
    wide, high = figure.get_size_inches()
    figure.text(box.x0 / wide, (box.y0 - 0.06) / high, source, fontsize=6, color="0.35", va="top")
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], bbox_inches="tight")
    pyplot().close(figure)
    write(path, drawn.getvalue())
