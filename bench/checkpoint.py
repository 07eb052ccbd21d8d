"""Measures one checkpoint, beside copying, comparing and writing the same bytes.

Every slot holds one window. Timed are safepoints that checkpoint it with all of it changed, nothing
changed, and a tenth of its pages changed. In the same process and in turn those bytes are copied,
compared, and written to files. Each time is that of the slowest slot, all starting together; each
ratio is formed within a round. The ratio of the fastest times is given beside it: other work on the
machine only ever makes them slower.

A checkpoint returns when every slot has staged its changes; the checksum rank works on while the
program computes. Before each measurement the program waits for it, except in the line 'no wait'.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from . import common, launching
from .common import Parser, spread
from .launching import HERE, BenchError, JsonObject

SCRIPT = HERE / "checkpoint_app.py"
LEAST_BYTES = 1 << 20  # below, a window is no larger than what lies beside it in a vault
DIRTY_SHARE = 0.1
KINDS = {
    "all dirty": "checkpoint, all dirty",
    "some dirty": "checkpoint, 10 % of pages dirty",
    "nothing dirty": "checkpoint, nothing dirty",
    "all dirty, no wait": "checkpoint, all dirty, no wait",
    "nothing dirty, no wait": "checkpoint, nothing dirty, no wait",
    "memcpy": "memcpy to private memory",
    "memcpy shared": "memcpy to shared memory",
    "memcmp": "memcmp with private memory",
    "memcmp shared": "memcmp with shared memory",
    "write tmpfs": "write to a file in tmpfs",
    "write disk": "write to a file on disk, fsync",
}
# Above, below, highest ratio that the project aims at.
RATIOS: list[tuple[str, str, float | None]] = [
    ("all dirty", "memcpy", 2.5),
    ("nothing dirty", "memcmp", 1.2),
    ("some dirty", "memcpy", None),
    ("all dirty", "memcpy shared", None),
    ("nothing dirty", "memcmp shared", None),
    ("all dirty", "write tmpfs", None),
    ("all dirty", "write disk", None),
    ("all dirty, no wait", "memcpy", None),
    ("nothing dirty, no wait", "memcpy", None),
]


def window_size(text: str) -> int:
    found = common.size(text)
    if found < LEAST_BYTES:
        raise ArgumentTypeError(f"{text} is too small; give 1MiB or more")
    return found


def directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise ArgumentTypeError(f"there is no directory {text}")
    return Path(text)


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("checkpoint", "Cost of one checkpoint.")
    parser.set_defaults(rounds=15)
    parser.add_argument("-n", dest="slots", type=common.whole, default=2, metavar="N",
                        help="ranks of the program")
    parser.add_argument("--size", type=window_size, default="64MiB", metavar="SIZE",
                        help="of each rank's window")
    parser.add_argument("--directory", type=directory, default=".", metavar="DIR",
                        help="on the disk to write to; files are removed")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    report = common.begin("checkpoint")
    report.update(
        ranks=options.slots, size_bytes=options.size, rounds=options.rounds,
        disk=filesystem(options.directory), dirty_share=DIRTY_SHARE,
        units={"seconds": "s", "ratio": "time / time", "memory": "B"},
    )
    report.update(measure(options))
    common.finish(report, options, text, draw)
    return 0


# ---- measuring ------------------------------------------------------------------------------


def filesystem(path: Path) -> str:
    """Type of the file system that holds `path`."""
    best, found = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind = line.split()[:3]
        if path.resolve().is_relative_to(place) and len(place) >= len(best):
            best, found = place, kind
    return found


def measure(options: Namespace) -> JsonObject:
    """One launch with all rounds in it; they are in turn inside the program."""
    common.progress(f"checkpoint: {options.rounds} rounds in one launch")
    with (
        tempfile.TemporaryDirectory(prefix="bench-ftrma-", dir="/dev/shm") as tmpfs,
        tempfile.TemporaryDirectory(prefix="bench-ftrma-", dir=options.directory) as disk,
    ):
        program = ["--size-bytes", str(options.size), "--rounds", str(options.rounds),
                   "--share", str(DIRTY_SHARE), "--tmpfs", tmpfs, "--disk", disk]
        report, stats = launching.run_protected(
            options.slots, SCRIPT, program, ["--interval", "0", "--spares", "0"], options.timeout
        )
    rounds = report["rounds"]
    found: JsonObject = {
        "seconds": {kind: spread(r["seconds"][kind] for r in rounds) for kind in KINDS},
        "dirty": dirty(rounds, stats),
        "ratios": [],
        "memory": report["memory"],
    }
    for above, below, target in RATIOS:
        times = [[r["seconds"][kind] for r in rounds] for kind in (above, below)]
        each = common.ratios(*times)
        found["ratios"].append(
            {
                "of": above, "to": below, "target": target, "ratio": spread(each), "each": each,
                "ratio_fastest": min(times[0]) / min(times[1]),
            }
        )
    return found


def dirty(rounds: list[JsonObject], stats: JsonObject) -> dict[str, float]:
    """Share of the protected bytes that had changed, as the job itself counted."""
    by_version = {c["version"]: c for c in stats["checkpoints"]}
    found = {}
    for kind in rounds[0]["versions"]:
        taken = [by_version[r["versions"][kind]] for r in rounds]
        found[kind] = sum(c["dirty_bytes"] for c in taken) / sum(c["bytes"] for c in taken)
    expected = {"all": 1.0, "nothing": 0.0, "some": DIRTY_SHARE}
    for kind, share in found.items():
        if abs(share - expected[kind.split()[0]]) > 0.02:
            raise BenchError(f"'{kind}': {share:.1%} of the bytes had changed; not what was meant")
    return found


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The tables for people."""
    size_bytes, seconds = report["size_bytes"], report["seconds"]
    rows = [["action", "changed", "ms: median (min .. max)", "GB/s per rank"]]
    for kind, name in KINDS.items():
        share = report["dirty"].get(kind)
        in_ms = common.scaled(seconds[kind], 1e3)
        rows.append(
            [
                name, "-" if share is None else f"{100 * share:.1f} %", common.with_range(in_ms),
                f"{size_bytes / seconds[kind]['median'] / 1e9:.2f}",
            ]
        )
    compared = [["ratio", "median (min .. max)", "fastest", "target"]]
    for r in report["ratios"]:
        target = "-"
        if r["target"]:
            met = "met" if r["ratio"]["median"] <= r["target"] else "missed"
            target = f"<= {r['target']:.1f} {met}"
        compared.append([f"{r['of']} / {r['to']}", common.with_range(r["ratio"], against=1),
                         f"{r['ratio_fastest']:.2f}", target])
    return "\n".join(
        [
            f"One window of {common.size_text(size_bytes)} on each of {report['ranks']} ranks, "
            f"{report['rounds']} rounds; slowest rank; disk: {report['disk']}.",
            "no wait: a checkpoint while the checksum rank is still busy with one of all bytes; "
            "'all dirty' after",
            "rewriting the window in between, 'nothing dirty' at once.",
            "", common.table(rows), "", common.table(compared), "", memory_text(report["memory"]),
        ]
    )


def memory_text(memory: JsonObject) -> str:
    """Bytes in shared memory, the largest of each role."""

    def parts(entries: list[JsonObject]) -> str:
        most = max(entries, key=lambda entry: entry["total"])
        return " + ".join(f"{k} {common.size_text(v)}" for k, v in most.items() if k != "total")

    window = common.size_text(memory["windows"] / len(memory["slots"]))
    return (
        f"shared memory of each rank: window {window} + {parts(memory['slots'])}\n"
        f"shared memory of a checksum rank: {parts(memory['checksum_ranks'])}"
    )


def draw(report: JsonObject, path: Any) -> None:
    """Time of every action, checkpoints beside their references."""
    plt = common.pyplot()
    kinds = list(KINDS)[::-1]
    figure, axes = plt.subplots(figsize=(5.6, 3.2))
    for label, color, mine in (
        ("checkpoint", "#d55e00", True),
        ("reference", "0.6", False),
    ):
        places = [i for i, kind in enumerate(kinds) if (kind in report["dirty"]) == mine]
        found = [report["seconds"][kinds[i]] for i in places]
        axes.errorbar([1e3 * f["median"] for f in found], places, fmt="o", ms=5, color=color,
                      xerr=common.whiskers(found, 1e3), capsize=2, lw=1, label=label)
        for i, f in zip(places, found, strict=True):
            axes.text(1.1e3 * f["q3"], i, f"{1e3 * f['median']:.1f}", va="center", fontsize=7)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(right=1e3 * max(f["q3"] for f in report["seconds"].values()) * 1.6)
    axes.set_yticks(range(len(kinds)), [KINDS[kind] for kind in kinds])
    axes.set_xlabel(
        f"time [ms, log scale], {common.size_text(report['size_bytes'])} on each of "
        f"{report['ranks']} ranks"
    )
    axes.grid(axis="x")
    axes.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, handlelength=1.2)
    common.save(figure, path, report)
