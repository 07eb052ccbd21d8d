"""An origin as a process: ``agentorigin.py DIRECTORY SLOT RESULT``, until DIRECTORY/stop is there.

It does accesses of all kinds in an order of its own and writes down, as JSON, what it was told:
`test_agent` compares that with what lies in the part, and with what others were told.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from wirenode import WINDOW, Site, User

from ftrma.host.key import Key
from ftrma.native.wire import Kind, Op, Type

COUNTER, SWAPPED, LOCKED, ROW, ROW_ELEMENTS, OWN, OWN_WORDS = 0, 8, 16, 1024, 32, 4096, 64
PATIENCE_S = 30.0  # for an agent that is replaced, on a machine that is busy
WORD = "little"


def main(directory: Path, slot: int, result: Path) -> None:
    key = Key.take()
    assert key
    user, picked = User(Site(directory, key, 1), slot, patience_s=PATIENCE_S), random.Random(slot)
    told = {"added": [], "swapped": 0, "locked": 0, "rows": 0, "torn": 0, "puts": 0, "lost": 0}
    own, swapped, longest_s = [0] * OWN_WORDS, 0, 0.0
    at = OWN + 8 * OWN_WORDS * slot

    def add() -> None:
        told["added"].append(user.add(COUNTER))

    def put() -> None:
        for _ in range(picked.randrange(1, 30)):
            told["puts"] += 1
            i = picked.randrange(OWN_WORDS)
            own[i] = told["puts"]
            user.put(at + 8 * i, own[i].to_bytes(8, WORD))
        if picked.random() < 0.3:
            user.origin.flush(0)

    def get() -> None:
        i = picked.randrange(OWN_WORDS)
        told["lost"] += int.from_bytes(user.get(at + 8 * i, 8), WORD) != own[i]

    def swap() -> None:
        nonlocal swapped
        answer = user.origin.atomic(Kind.CAS, None, Type.U64, 0, WINDOW, SWAPPED,
                                    (swapped + 1).to_bytes(8, WORD), swapped)
        old = int.from_bytes(answer.old, WORD)
        told["swapped"] += old == swapped
        swapped = old + (old == swapped)

    def accumulate() -> None:
        one = (1).to_bytes(8, WORD) * ROW_ELEMENTS
        answer = user.origin.atomic(Kind.ACC, Op.SUM, Type.I64, 0, WINDOW, ROW, one)
        told["rows"] += 1
        told["torn"] += answer.old != answer.old[:8] * ROW_ELEMENTS

    def lock() -> None:
        user.origin.lock(0, WINDOW)
        value = int.from_bytes(user.get(LOCKED, 8), WORD)
        user.put(LOCKED, (value + 1).to_bytes(8, WORD))
        user.origin.unlock(0, WINDOW)
        told["locked"] += 1
        told["puts"] += 1

    steps = [add, add, add, put, put, get, swap, accumulate, lock]
    while not (directory / "stop").exists():
        for _ in range(20):
            started = time.monotonic()
            picked.choice(steps)()
            longest_s = max(longest_s, time.monotonic() - started)
    user.origin.flush(0)
    told["own"] = own
    told["acknowledged"] = len(user.numbers())
    told["in_order"] = user.numbers() == sorted(set(user.numbers()))
    told["longest_s"] = longest_s
    user.close()
    result.write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
