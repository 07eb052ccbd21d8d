"""The command line of a process of a job: ``python -m ftrma app.py [args]`` leads here."""

from __future__ import annotations

import os
import sys

from ..host import programwords
from ..host.errors import FtrmaError

USAGE = (
    "usage: mpiexec -n P python -m ftrma {app.py | -m module} [args...], or "
    "ftrma run -n N {app.py | -m module}"
)


def main() -> None:
    """Run the program that the command line names; exits."""
    words = sys.argv[1:]
    least = 1 + (words[:1] == [programwords.MODULE])
    if len(words) < least or words[least - 1].startswith("-"):
        sys.exit(USAGE)
    try:
        programwords.check(words, os.getcwd())
    except ValueError as error:
        sys.exit(f"ftrma: error: {error}")
    from . import runner  # only now: it loads much, and mistakes are to be reported at once

    try:
        runner.main(words)
    except (FtrmaError, ValueError) as error:
        sys.exit(f"ftrma: error: {error}")
