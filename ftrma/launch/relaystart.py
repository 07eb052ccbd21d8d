"""Starts a daemon of the launcher: a relay on this machine, all others by the user's command.

    python relaystart.py COMMAND [ARGUMENT...] [-OPTION...] HOST WORD...

The launcher calls it in place of the command that the user has for that, such as ``ssh``. See
`relays`. The file is run by its path and imports next to nothing.
"""

from __future__ import annotations

import os
import sys

NAME = "ftrma-relay-"  # and a number: hosts of relays


def main(words: list[str]) -> None:
    here = next((i for i, word in enumerate(words) if word.startswith(NAME)), None)
    if here is None:
        os.execvp(words[0], words)
    os.execv("/bin/sh", ["sh", "-c", " ".join(words[here + 1:])])


if __name__ == "__main__":
    main(sys.argv[1:])
