"""Kills real jobs at drawn instructions by the hour, in the folder `tests`:

    python -m instructions FIRST COUNT SECONDS DIRECTORY [PROGRAM...]

Jobs FIRST to FIRST + COUNT - 1 of each program are run in turn. Each appends a line of JSON to
``jobs.jsonl`` in the directory; a job that did not end as it should has a file there with all that
it said. A job that has a line is not run again. No job begins after SECONDS. Ends with 1 if one has
not ended as it should.
"""

from __future__ import annotations

import compileall
import json
import sys
import time
from collections import Counter
from pathlib import Path

from tree import ROOT

from .judge import HONEST, RIGHT, Player
from .programs import PROGRAMS


def main(words: list[str]) -> int:
    first, count, over = int(words[0]), int(words[1]), time.monotonic() + float(words[2])
    directory, programs = Path(words[3]), words[4:] or list(PROGRAMS)
    directory.mkdir(parents=True, exist_ok=True)
    # Or with PYTHONDONTWRITEBYTECODE each process of each job compiles what it imports.
    compileall.compile_dir(ROOT / "ftrma", quiet=2)
    lines = directory / "jobs.jsonl"
    known = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    done = {(record["program"], record["seed"]) for record in known}
    player, ends, deaths = Player(), Counter[str](), 0
    try:
        for seed in range(first, first + count):
            for program in programs:
                if (program, seed) in done or time.monotonic() > over:
                    continue
                record, told = player.play(seed, program)
                ends[record["end"]] += 1
                deaths += len(record["deaths"])
                with lines.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                if record["end"] not in (RIGHT, HONEST):
                    (directory / f"{program}-{seed}.txt").write_text(told)
                    print(f"{program} {seed}: {record['end']}: {record['why']}", flush=True)
    finally:
        player.close()
    print(f"{sum(ends.values())} jobs, {deaths} deaths: {dict(ends)}")
    return int(any(end not in (RIGHT, HONEST) for end in ends))


sys.exit(main(sys.argv[1:]))
