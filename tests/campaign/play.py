"""Plays one job of the campaign for real, with its deaths, and returns its record."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jobs
from jobs import FILES, FTRMA, Result, run_command
from nodes import NODES, home_of, launcher_options, left_on
from tree import ROOT

from .draw import Case, draw
from .judge import (
    HUNG,
    UNTIDY,
    WRONG,
    Reference,
    Verdict,
    bits_of,
    compare_twins,
    deaths_of,
    judge,
    twins_of,
)
from .works import HERE, Work

TWIN = Path(__file__).parent / "twin.py"
# A death from outside that the job has not told.
UNTOLD = {"role": "any", "index": -1, "place": "coming up or ending"}
LIMIT_S = 150.0  # after which a job hangs; most take two seconds alone, and the machine is shared
LOOK_S = 0.03
jobs.MADE_OF_S = 30.0  # the machine is shared
NODES_PATIENCE_S = 20.0
RANK = b"ftrma.program.main"  # on the command line of each rank
HOME = "CAMPAIGN_HOME"  # in the environment of each process on this node
LAUNCHERS = ("mpirun", "prterun", "mpiexec")


class Outsider(threading.Thread):
    """Strikes processes of a job from outside, at moments that were drawn.

    Args:
        home: directory of the job, which is in the environment of its processes, or over nodes on
            their command lines.
        reference: says when a run without deaths comes up, begins and ends.
    """

    def __init__(self, case: Case, home: str, reference: Reference) -> None:
        super().__init__(daemon=True)
        self.mark, self.over = home.encode(), threading.Event()
        self.begun, self.waits = Path(home, "results", "begun"), bool(case.work.app)
        self.left = sorted(case.strikes, key=lambda strike: strike.part)
        self.reference = reference
        self.seen_s = self.begun_s = 0.0
        self.struck: list[dict[str, Any]] = []

    def run(self) -> None:
        began = time.monotonic()
        while not self.over.wait(LOOK_S) and not self.processes()["rank"]:
            pass
        self.seen_s = time.monotonic() - began
        coming_s = self.reference.begun_s - self.reference.seen_s
        while self.left and self.left[0].part < 0:
            self.strike_at(began + self.seen_s + (1 + self.left[0].part) * coming_s)
        while self.waits and not self.over.wait(LOOK_S) and not self.begun.exists():
            pass
        self.begun_s = time.monotonic() - began
        while self.left:
            lasts_s = self.reference.seconds - self.reference.begun_s
            self.strike_at(began + self.begun_s + self.left[0].part * lasts_s)

    def strike_at(self, moment: float) -> None:
        """Strike the next process that was drawn, if the job is not over before."""
        strike, what = self.left.pop(0), "rank"
        if self.over.wait(max(0.0, moment - time.monotonic())):
            self.left.clear()
            return
        if strike.launcher:
            what = "launcher"
        if living := self.processes()[what]:
            pid = living[strike.pick % len(living)]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if strike.pause_s else signal.SIGKILL)
                self.struck.append({"part": round(strike.part, 3), "pid": pid,
                                    "what": "pause" if strike.pause_s else what})
                if strike.pause_s:
                    threading.Thread(target=self.wake, args=(pid, strike.pause_s)).start()

    def wake(self, pid: int, after_s: float) -> None:
        """Let a paused process go on, in time or when the job is over."""
        self.over.wait(after_s)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def processes(self) -> dict[str, list[int]]:
        """Processes of the job: ranks in any role, and the launcher."""
        found: dict[str, list[int]] = {"rank": [], "launcher": []}
        for pid in jobs.processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                launcher = Path(os.fsdecode(words[0])).name in LAUNCHERS
                rank = any(RANK in word for word in words)
                if (launcher or rank) and (any(self.mark in word for word in words) or
                                           self.mark in Path(f"/proc/{pid}/environ").read_bytes()):
                    found["launcher" if launcher else "rank"].append(pid)
        return {what: sorted(pids) for what, pids in found.items()}


def command_of(work: Work, options: list[str], stats: Path, results: Path) -> list[str]:
    """The command line of a job."""
    shared = ["-n", str(work.slots), "--stats", str(stats), *options]
    if not work.app:
        name, *words = work.args
        return [FTRMA, "apgas", name, *shared, *words]
    words = [word.replace(HERE, str(results)) for word in work.args]
    compared = "yes" if work.twin else "no"
    return [FTRMA, "run", *shared, str(TWIN), str(results), compared, str(ROOT / work.app), *words]


def run(case: Case, options: list[str], outsider: Outsider, home: Path) -> Result:
    """Run a job; AssertionError: it hung, or left something behind."""
    results = home / "results"
    results.mkdir()
    stats, nodes = home / "stats.json", NODES[:case.nodes] if case.nodes > 1 else ()
    if nodes:
        options = ["--aware", "none", "--mpirun", launcher_options(nodes, 16, in_turn=True),
                   *options]
    outsider.start()
    try:
        result = run_command(command_of(case.work, options, stats, results), LIMIT_S,
                             {HOME: str(home), **({FILES: str(home)} if nodes else {})},
                             patience_s=NODES_PATIENCE_S if nodes else 0.0)
    finally:
        outsider.over.set()
        outsider.join()
        left = [f"{node}: {path}" for node in nodes for path in left_on(node)]
        jobs.remove(home_of(node) for node in nodes)
    if stats.exists():
        result.stats = json.loads(stats.read_text())
    result.results = read_results(results, result)
    if left and not outsider.struck:
        raise AssertionError(f"files left on nodes: {left}\n{result}")
    return result


def read_results(directory: Path, result: Result) -> dict[str, Any]:
    """Read what the slots have written; a job that has failed may have left half of a file.

    Raises:
        AssertionError: a file of a job that has not failed cannot be read.
    """
    found = {}
    for path in sorted(directory.iterdir()):
        if path.suffix in (".json", ".npz", ".npy", ".txt"):
            try:
                found[path.stem] = jobs.read_result(path)
            except (EOFError, ValueError, BadZipFile) as error:
                assert result.status, f"{path.name} cannot be read ({error})\n{result}"
    return found


def make_reference(case: Case) -> Reference:
    """Run a program without deaths."""
    work = case.work
    plain = dataclasses.replace(case, nodes=1, rules=(), strikes=())
    options = [] if work.claims else ["--interval", "0"]
    if work.judge == "aic":
        options = ["--interval", "never"]
    with tempfile.TemporaryDirectory(prefix="campaign-") as home:
        outsider = Outsider(plain, home, Reference())
        began = time.monotonic()
        result = run(plain, options, outsider, Path(home))
        seconds = time.monotonic() - began
    assert result.status == 0 and not result.stats["failures"], result
    twins = {key: found.pop() for key, found in twins_of(result).items() if len(found) == 1}
    bits = bits_of(result, work.slots) if work.judge == "bits" else {}
    return Reference(bits, twins, outsider.seen_s, outsider.begun_s, seconds)


def reference_of(case: Case, directory: Path) -> Reference:
    """The run without deaths, which is made once for each program."""
    path = directory / "references" / f"{case.work.key}.json"
    if not path.exists():
        found = make_reference(case)
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.{os.getpid()}")
        made.write_text(json.dumps(dataclasses.asdict(found)))
        made.replace(path)
    return Reference(**json.loads(path.read_text()))


def play(seed: int, directory: Path, commit: str) -> dict[str, Any]:
    """Play the job of a number.

    Args:
        directory: where references are, and where the output of a job goes that is not as it
            should be.

    Returns:
        Its record, see `tests/campaign/report.py`.
    """
    case = draw(seed)
    reference = reference_of(case, directory)
    options = list(case.options) + [word for rule in case.rules for word in ("--kill", rule)]
    result, began = Result(-1, "", ""), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-") as home:
        outsider = Outsider(case, home, reference)
        try:
            result = run(case, options, outsider, Path(home))
            verdict = judge(case, result, reference, len(outsider.struck))
        except AssertionError as error:
            text = str(error)
            verdict = Verdict(HUNG if "not ended after" in text
                              else WRONG if "cannot be read" in text else UNTIDY, text)
    seconds, stats = time.monotonic() - began, result.stats
    if verdict.end not in ("right", "honest"):
        failed = directory / "failed" / f"{seed}.txt"
        failed.parent.mkdir(parents=True, exist_ok=True)
        failed.write_text(f"{case}\n{outsider.struck}\n{verdict.why}\n{json.dumps(stats)}\n{result}")
    told = {failure["pid"] for failure in stats.get("failures", [])}
    early = [strike for strike in outsider.struck
             if case.nodes == 1 and strike["what"] == "rank" and strike["pid"] not in told]
    compared, differs = compare_twins(reference.twins, twins_of(result))
    return {
        "method": "places and times", "seed": seed, "commit": commit, "program": case.work.name,
        "slots": case.work.slots, "nodes": case.nodes, "options": list(case.options),
        "kills": list(case.rules), "strikes": outsider.struck, "status": result.status,
        "seconds": round(seconds, 2), "deaths": [*deaths_of(stats), *[UNTOLD] * len(early)],
        "agents": len(stats.get("agents", [])),
        "recoveries": [r["kind"] for r in stats.get("recoveries", [])],
        "reseats": len(stats.get("reseats", [])), "launches": len(stats.get("entered", [])),
        "twins": [compared, int(bool(differs))], "end": verdict.end, "why": verdict.why[:300],
    }
