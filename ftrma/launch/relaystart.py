"""Starts a daemon of the launcher: a relay on this machine, any other by the user's command.

    python relaystart.py LOG COMMAND [ARGUMENT...] [-OPTION...] HOST WORD...

The launcher calls this file in place of the user's command for that, such as ``ssh``. So do relays,
which have no output of their own, so output from elsewhere goes to the launcher's log, where it is
looked for. See `relays`. The file is run by its path and imports next to nothing.
"""

from __future__ import annotations

import os
import sys

NAME = "ftrma-relay-"  # with a number it is the host name of a relay


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
