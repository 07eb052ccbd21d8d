"""``python -m ftrma app.py [args]``: run a script protected, in processes started by a launcher."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: mpiexec -n P python -m ftrma app.py [args...], or ftrma run -n N app.py")
    script = sys.argv[1]
    if not Path(script).is_file():
        sys.exit(f"ftrma: error: no script {script}: give the path of a Python file")
    from . import runner
    from .errors import FtrmaError

    try:
        runner.main(script, sys.argv[2:])
    except (FtrmaError, ValueError) as error:
        sys.exit(f"ftrma: error: {error}")


if __name__ == "__main__":
    del sys.path[0]  # the current directory; a script has its own there
    main()
