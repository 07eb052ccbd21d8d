"""A job's program: those of `apgasprograms.py` that are named, one that is drawn, or steps.

    apgasjob.py DIRECTORY FINISH NAME... | storm:NUMBER | steps:EVERY

Place zero writes ``told.json``: what each has told, the places that had died, the attempt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import apgasrecorder
from apgasprograms import run_program
from apgassteps import run_steps
from apgasstorm import draw, weather

from ftrma import apgas

PLACES = 4  # that a drawn program uses


def run(name: str) -> Any:
    kind, _, number = name.partition(":")
    if kind == "storm":
        return weather(draw(int(number), PLACES))
    return run_steps(int(number)) if kind == "steps" else run_program(name)


def main() -> None:
    told = {name: run(name) for name in names}
    members = apgasrecorder.members()
    (directory / "told.json").write_text(json.dumps(
        {"told": told, "dead": members.deaths(0), "attempt": members.attempt}))


if __name__ == "__main__":
    directory, (way, *names) = Path(sys.argv[1]), sys.argv[2:]
    apgasrecorder.start(directory)
    apgas.run(main, finish=way)
