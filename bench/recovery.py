"""How long until a program goes on after a SIGKILL, in place and by relaunch?

One slot is killed at a fence. In place: a spare is there, and what is timed is the way from the
signal to the last survivor leaving repair, with its phases; restoring is the computation of the
lost slot's memory from parity and the others', and its speed is compared with memcpy of the same
size in the same launch. Relaunch: there is no spare, and what is timed is the way to the first new
step of the program.
"""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from . import common
from .common import HERE, BenchError, JsonObject, Parser, spread

SCRIPT = HERE / "recovery_app.py"
TARGETS = {
    "in place, ms": 100.0,
    "relaunch to first new step, s": 5.0,
    "restore / memcpy, bytes read": 0.5,
}


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("recovery", "Time from a SIGKILL to going on.")
    parser.add_argument("-n", dest="slots", type=common.whole, default=4, metavar="N",
                        help="slots, in one group")  # fmt: skip
    parser.add_argument("--size", type=common.size, default="64MiB", metavar="SIZE",
                        help="of each slot's window")  # fmt: skip
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure and print."""
    options = parse(arguments)
    report = common.begin("recovery")
    rows: list[JsonObject] = []
    for i in range(options.rounds):
        common.progress(f"round {i + 1} of {options.rounds}")
        rows.append({**launch(options, spares=1), **launch(options, spares=0)})
    report.update(slots=options.slots, size_bytes=options.size, rounds=options.rounds)
    report["results"] = {name: spread(row[name] for row in rows) for name in rows[0]}
    common.finish(report, options, text(report))
    return 0


def launch(options: Namespace, spares: int) -> JsonObject:
    """One launch with one kill; without a spare it is a relaunch."""
    flags = ["--interval", "0", "--spares", str(spares), "--kill", f"{options.slots - 1}@fence:15"]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "stats.json"
        command = common.protected(
            options.slots, SCRIPT, [str(options.size)], [*flags, "--stats", str(path)]
        )
        said = common.run(command, options.timeout)
        stats = json.loads(path.read_text())
    recoveries: list[Any] = stats["recoveries"]
    if len(recoveries) != 1 or said["went_on_s"] is None:
        raise BenchError(f"not one recovery but {len(recoveries)}: {common.shown(command)}")
    found = recoveries[0]
    on_s = said["went_on_s"] - found["began_s"]
    if not spares:
        return {"relaunch to first new step, s": on_s}
    restore_s = found["phases"]["restore"]
    return {
        "in place, ms": found["seconds"] * 1e3,
        **{f"  {p}, ms": found["phases"][p] * 1e3 for p in ("detect", "repair", "restore")},
        "in place to first new step, ms": on_s * 1e3,
        "restore / memcpy, bytes read": options.slots * said["memcpy_s"] / restore_s,
        "restore / memcpy, bytes restored": said["memcpy_s"] / restore_s,
    }


def text(report: JsonObject) -> str:
    size_text = common.size_text(report["size_bytes"])
    rows = [["", "median (min .. max)", "target"]]
    for name, found in report["results"].items():
        target = TARGETS.get(name)
        sign = ">=" if name.startswith("restore") else "<="
        rows.append([name, common.with_range(found), f"{sign} {target:g}" if target else "-"])
    head = (
        f"One of {report['slots']} slots in one group is killed, {size_text} each; "
        f"{report['rounds']} rounds.\nTo restore one member, all others and the parity are read: "
        "speeds as parts of memcpy's, by either count."
    )
    return f"{head}\n\n{common.table(rows)}"
