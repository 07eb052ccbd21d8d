"""Runs a program protected, in processes of a launcher: ``python -m ftrma app.py [args]``."""

from __future__ import annotations

import sys

from .program.main import main

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the current directory; a script has its own there
    main()
