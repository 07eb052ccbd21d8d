"""Starts a daemon of the launcher: a relay on this machine, all others by the user's command.

    python relaystart.py LOG COMMAND [ARGUMENT...] [-OPTION...] HOST WORD...

The launcher calls it in place of the command that the user has for that, such as ``ssh``, and so do
relays, which have no output. What is said elsewhere goes to the launcher's log, where it is looked
for. See `relays`. The file is run by its path and imports next to nothing.
"""

from __future__ import annotations

import os
import sys

NAME = "ftrma-relay-"  # and a number: hosts of relays


def main(log: str, words: list[str]) -> None:
    here = next((i for i, word in enumerate(words) if word.startswith(NAME)), None)
    if here is None:
        with open(log, "ab") as output:
            for fd in (1, 2):
                os.dup2(output.fileno(), fd)
        os.execvp(words[0], words)
    os.execv("/bin/sh", ["sh", "-c", " ".join(words[here + 1:])])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
