"""Runs scenarios by the hour, in the folder `tests`: ``python -m sim FIRST COUNT``; or one of them:
``python -m sim SEED``.

It prints the scenarios that fail, each shortened, and how much was run.
"""

from __future__ import annotations

import sys
import time

from .draw import Tally, draw, run, shorten


def main(words: list[str]) -> int:
    first, count = int(words[0]), int(words[1]) if len(words) > 1 else 1
    tally, began = Tally(), time.process_time()
    for seed in range(first, first + count):
        outcome = run(draw(seed))
        tally.add(outcome)
        if outcome.wrong or count == 1:
            print(outcome)
            for told in outcome.told if count == 1 else ():
                print(f"    {told}")
        if outcome.wrong:
            print(f"seed {seed}: {outcome.wrong[0]}\n    shortened: "
                  f"{shorten(draw(seed), lambda scenario: bool(run(scenario).wrong))}", flush=True)
    seconds = time.process_time() - began
    print(f"{tally}\n{seconds:.0f} s, {tally.turns / seconds:.0f} turns a second")
    return int(tally.failed > 0)


sys.exit(main(sys.argv[1:]))
