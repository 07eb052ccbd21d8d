"""What all measurements share: running one side, statistics, options, the report, the figure.

Both sides of a comparison run under the launcher command line that `ftrma run` uses, so what
differs between them is the protection alone. All sides are measured in every round, so that a
machine that grows slow or busy grows so for all of them; ratios are formed within a round.

Every launch has a time limit and a session of its own, and whatever it started is ended with it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import importlib.metadata
import json
import os
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ftrma import settings
from ftrma.launch.mpirun import find_mpirun, launcher_environment, make_session, mpirun_command

USAGE_ERROR = 2
TERM_PATIENCE_S = 10.0  # what `ftrma run` may take to clean up after SIGTERM
BUSY_SHARE = 0.3  # load per core, before the measurement, from which on it is disturbed
HERE = Path(__file__).resolve().parent

JsonObject = dict[str, Any]
# Told of each process that a launch starts.
Started = Callable[[subprocess.Popen[bytes]], None]


class UsageError(Exception):
    """An option is wrong; the text names it, its value and the remedy."""


class BenchError(RuntimeError):
    """A measurement cannot be made; the text says why."""


# ---- one side of a comparison ---------------------------------------------------------------


def ignore(_process: subprocess.Popen[bytes]) -> None:
    """The launch concerns nobody else."""


def plain(slots: int, script: Path, arguments: Sequence[str]) -> list[str]:
    """Command line of an unprotected run, with the launcher options of a protected one."""
    return [*mpirun_command(slots, new_session()), sys.executable, str(script), *arguments]


def new_session() -> Path:
    """A directory for one launch; all go at the end of the measurement."""
    return make_session(Path(sessions().name))


@functools.cache
def sessions() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ftrma-", dir="/dev/shm")


def protected(
    slots: int, script: Path, arguments: Sequence[str], options: Sequence[str]
) -> list[str]:
    """Command line of a protected run."""
    cli = "from ftrma.command.cli import main; main()"
    run = [sys.executable, "-c", cli, "run", "-n", str(slots)]
    return [*run, *options, str(script), *arguments]


def environment() -> dict[str, str]:
    """The environment of both sides: no setting of the user's, one thread per rank."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FTRMA_", "OMPI_MCA_"))}
    return {**kept, **launcher_environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def run(command: Sequence[str], limit_s: float, started: Started = ignore) -> JsonObject:
    """Run a command to its end and return the JSON object in its last line of output.

    `started` is told of the process.

    Raises:
        BenchError: it takes longer than `limit_s`, fails, or says something else.
    """
    status, out, err = run_once(command, limit_s, started)
    if status:
        said = err.strip()[-2000:] or out.strip()[-2000:]
        raise BenchError(f"exit status {status} of: {shown(command)}\n{said}")
    return last_object(out, shown(command))


def run_once(
    command: Sequence[str], limit_s: float, started: Started = ignore
) -> tuple[int, str, str]:
    """Run a command to its end: its exit status, output and errors."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment(),
            start_new_session=True,
        )
        try:
            started(process)
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"no end after {limit_s:g} s (--timeout): {shown(command)}") from None
        finally:
            end(process)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return process.returncode, texts[0], texts[1]


def run_protected(
    slots: int, script: Path, arguments: Sequence[str], options: Sequence[str], limit_s: float,
    *, deaths: int = 0, started: Started = ignore,
) -> tuple[JsonObject, JsonObject]:
    """Run protected; returns the program's JSON object and that of ``--stats``.

    Raises:
        BenchError: as `run`, or not as many processes died as are meant to.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "stats.json"
        command = protected(slots, script, arguments, [*options, "--stats", str(path)])
        report = run(command, limit_s, started)
        stats: JsonObject = json.loads(path.read_text())
    if len(stats["failures"]) != deaths:
        raise BenchError(
            f"{len(stats['failures'])} processes died instead of {deaths}: {shown(command)}"
        )
    return report, stats


def shown(command: Sequence[str]) -> str:
    return shlex.join(command)


def last_object(text: str, source: str) -> JsonObject:
    """The JSON object in the last line of `text`."""
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise BenchError(f"no JSON object in the last line of output: {source}")
    return found


def processes() -> dict[int, tuple[int, int, str]]:
    """All processes: pid -> parent, session, start time (that tells a reused pid)."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = (int(fields[1]), int(fields[3]), fields[19])
    return found


def family(leader: int) -> dict[int, str]:
    """The processes below `leader` and in its session: pid -> start time."""
    everyone = processes()
    found = {p for p, (_, session, _) in everyone.items() if leader in (p, session)}
    while True:
        more = {p for p, (parent, _, _) in everyone.items() if parent in found} - found
        if not more:
            return {p: everyone[p][2] for p in found}
        found |= more


def end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of a launch behind: neither processes nor shared memory."""
    members = family(process.pid)
    if process.poll() is None:
        process.terminate()  # `ftrma run` and mpirun clean up
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERM_PATIENCE_S)
        left = processes()
        for pid, started in members.items():
            if pid in left and left[pid][2] == started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.wait()
    else:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def end_on_signals() -> None:
    """SIGTERM ends the measurement like Ctrl-C, so that its launches are ended too."""

    def stop(number: int, _frame: object) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


# ---- statistics -----------------------------------------------------------------------------


def spread(values: Iterable[float]) -> JsonObject:
    """Median with what surrounds it: ``n``, ``min``, ``q1``, ``median``, ``q3``, ``max``."""
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
        "q3": quarters[2], "max": ordered[-1],
    }


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Ratio of each pair; the two were measured in the same rounds."""
    return [a / b for a, b in zip(above, below, strict=True)]


def with_range(found: Mapping[str, float], digits: int = 2) -> str:
    """``median (min .. max)``."""
    return "{:.{d}f} ({:.{d}f} .. {:.{d}f})".format(
        found["median"], found["min"], found["max"], d=digits
    )


# ---- where it was measured ------------------------------------------------------------------


def machine() -> JsonObject:
    """What the reader must know about the machine, and how busy it was."""
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
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: there is no directory {path.parent}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a directory; give a file")
    return path


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
    """What every report begins with."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "benchmark": name,
        "date": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "began_s": time.monotonic(),
    }


def finish(report: JsonObject, options: argparse.Namespace, text: str) -> None:
    """Print the table and the report, and write the report's file."""
    progress("")
    report["measured_for_s"] = round(time.monotonic() - report.pop("began_s"), 1)
    report["machine"]["load_average_1min_after"] = os.getloadavg()[0]
    print(text)
    load = "{load_average_1min:.1f} before, {load_average_1min_after:.1f} after".format_map(
        report["machine"]
    )
    print(f"\n{where(report)}\nload average {load}")
    if report["machine"]["load_average_1min"] > BUSY_SHARE * report["machine"]["cores"]:
        print("note: the machine was busy with other work; times and ratios are disturbed by it")
    print(flush=True)
    line = json.dumps(report)
    if "json" in options:
        options.json.write_text(line + "\n")
    print(line, flush=True)


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
    figure.savefig(path, bbox_inches="tight")
    pyplot().close(figure)
