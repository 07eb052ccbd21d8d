"""``python -m ftrma app.py [args]``: run a program protected, in processes of a launcher."""

from __future__ import annotations

import os
import sys

USAGE = (
    "usage: mpiexec -n P python -m ftrma {app.py | -m module} [args...], or "
    "ftrma run -n N {app.py | -m module}"
)


def main() -> None:
    from .errors import FtrmaError
    from .program import script

    words = sys.argv[1:]
    least = 1 + (words[:1] == [script.MODULE])
    if len(words) < least or words[least - 1].startswith("-"):
        sys.exit(USAGE)
    try:
        script.check(words, os.getcwd())
    except ValueError as error:
        sys.exit(f"ftrma: error: {error}")
    from .program import runner

    try:
        runner.main(words)
    except (FtrmaError, ValueError) as error:
        sys.exit(f"ftrma: error: {error}")


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the current directory; a script has its own there
    main()
