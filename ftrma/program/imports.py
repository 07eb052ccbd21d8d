"""Libraries that the slots have imported; a spare imports them ahead, to take over quickly.

It does so by the program's `sys.path`, which it has nowhere else: a program that has changed it is
usual (`sys.path.insert`), and a library may import another one by it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable

from ..fabric.view import JobView


def publish_imports(view: JobView, is_same: Callable[[str], bool], before: set[str]) -> None:
    """Tell the spares of this node which libraries the program uses (the node's first slot, at its
    first window).

    Args:
        is_same: whether a spare that imports a file has what the slots have.
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
    with contextlib.suppress(OSError):  # without room for it, taking over takes longer
        temporary.write_text(json.dumps([sys.path, names]))
        temporary.rename(target)


class AheadImporter:
    """Imports on a spare what the slots have imported."""

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
                    return  # a slot is to be taken; the program imports what is missing
                if name not in sys.modules:
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
        finally:
            sys.path = own
