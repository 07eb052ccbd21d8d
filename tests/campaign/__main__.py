"""Runs jobs with random deaths by the hour, in the folder `tests`.

    python -m campaign DIRECTORY [--first SEED] [--seconds S] [--jobs N] [--at-once K]
    python -m campaign --seed SEED [DIRECTORY]      one job, with what it says
    python -m campaign --report FILE... [--onto SUMMARY]
                        sums up files of records, and adds a summary of other seeds

A campaign can be ended at any time. Begun again in its directory it goes on with the next numbers;
each job is one line in DIRECTORY/jobs.jsonl. The exit status is 1 if a job ended otherwise than it
should.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "faults")]

from campaign.judge import ENDS, HONEST, RIGHT  # noqa: E402
from campaign.play import play  # noqa: E402
from campaign.report import page, read, summary  # noqa: E402
from nodes import remove_fake_ssh  # noqa: E402

SOUND = (RIGHT, HONEST)


def commit_of(tree: Path) -> str:
    """The newest commit that has changed what ships; with a plus, if files differ from it."""
    git = ["git", "-C", str(tree)]
    shipped = ["--", "ftrma", "csrc", ":!ftrma/docs"]
    found = subprocess.run([*git, "log", "-1", "--format=%h", *shipped], capture_output=True,
                           text=True, check=False).stdout.strip()
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", *shipped], check=False).returncode
    return (found or "unknown") + "+" * bool(changed)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="*", default=[])
    parser.add_argument("--first", type=int, default=0, help="the first number (default 0)")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no job after them")
    parser.add_argument("--jobs", type=int, default=10**9, help="as many more")
    parser.add_argument("--at-once", type=int, default=2, help="jobs that run at a time (2)")
    parser.add_argument("--seed", type=int, help="the one job to run")
    parser.add_argument("--report", nargs="+", metavar="FILE", help="files of records")
    parser.add_argument("--onto", metavar="SUMMARY", help="the JSON of a report, to be added to")
    return parser.parse_args(words)


def start_worker() -> None:
    Finalize(None, remove_fake_ssh, exitpriority=1)


def run(directory: Path, first: int, seconds: float, count: int, at_once: int) -> int:
    """Run jobs until the time is over; returns how many ended otherwise than they should."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "jobs.jsonl"
    done = {record["seed"] for record in read([path])} if path.exists() else set()
    seed, begun, failed = first, 0, 0
    deadline, commit = time.monotonic() + seconds, commit_of(TESTS.parent)
    running: set[Future[dict[str, Any]]] = set()
    with ProcessPoolExecutor(at_once, initializer=start_worker) as pool, path.open("a") as file:
        while True:
            while len(running) < at_once and begun < count and time.monotonic() < deadline:
                while seed in done:
                    seed += 1
                running.add(pool.submit(play, seed, directory, commit))
                seed, begun = seed + 1, begun + 1
            if not running:
                return failed
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                record = future.result()
                file.write(json.dumps(record) + "\n")
                file.flush()
                if record["end"] not in SOUND:
                    failed += 1
                    print(f"{record['seed']}: {record['end']}: {record['why']}", flush=True)


def main(words: list[str]) -> int:
    os.environ["FTRMA_CONFIG"] = "none"  # a user's own ftrma.toml must not change what is tested
    for folder in ("ftrma", "tests", "bench"):  # or each process compiles what it imports
        compileall.compile_dir(TESTS.parent / folder, quiet=2)
    given = parse(words)
    if given.report:
        earlier = json.loads(Path(given.onto).read_text()) if given.onto else None
        found = summary(read(Path(name) for name in given.report), earlier)
        print(json.dumps(found, indent=1))
        print(page(found), file=sys.stderr)
        return 0
    directory = Path(given.directory[0] if given.directory else "campaign-runs")
    try:
        if given.seed is not None:
            record = play(given.seed, directory, commit_of(TESTS.parent))
            print(json.dumps(record, indent=1))
            with contextlib.suppress(FileNotFoundError):
                print((directory / "failed" / f"{given.seed}.txt").read_text())
            return int(record["end"] not in SOUND)
        return int(run(directory, given.first, given.seconds, given.jobs, given.at_once) > 0)
    finally:
        remove_fake_ssh()


assert set(SOUND) <= set(ENDS)
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
