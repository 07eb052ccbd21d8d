"""Libraries that the slots have imported; a spare imports them ahead, to take over quickly.

It imports them with the program's `sys.path`, and uses that path for nothing else. Programs often
change it (`sys.path.insert`), and a library may find another one through it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable

from ..fabric.view import JobView


def publish_imports(view: JobView, is_same: Callable[[str], bool], before: set[str]) -> None:
    """Tell this node's spares which libraries the program uses; its first slot does so at its first
    window.

    Args:
        is_same: says whether a spare that imports a file gets what the slots have.
        before: modules that were imported before the program began.
    """
    names = []
    for name in sorted(set(sys.modules) - before):
        path = getattr(sys.modules[name], "__file__", None)
        if path and is_same(path) and "." not in name[:1]:
            names.append(name)
    if not names:
        return
    target = view.directory / "modules"
    temporary = target.with_suffix(".new")
    with contextlib.suppress(OSError):  # if there is no room for the list, a takeover takes longer
        temporary.write_text(json.dumps([sys.path, names]))
        temporary.rename(target)


class AheadImporter:
    """Imports, on a spare, the libraries that the slots have imported."""

    def __init__(self, view: JobView) -> None:
        self.view = view
        self.seen = 0  # size of the list when it was read last

    def import_new(self) -> None:
        """Import the modules that are new in the list."""
        path = self.view.directory / "modules"
        try:
            if path.stat().st_size == self.seen:
                return
            text = path.read_text()
        except OSError:
            return
        self.seen = len(text)
        own, (sys.path, names) = sys.path, json.loads(text)
        try:
            for name in names:
                if self.view.alarmed():
                    return  # this spare is to take a slot; the program imports the rest
                if name not in sys.modules:
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
        finally:
            sys.path = own
