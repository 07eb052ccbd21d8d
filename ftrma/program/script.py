"""The user's program: a script, or a module (``-m package.module``), started as Python starts it.

Its path is made absolute when the process comes up, so the next attempt finds it although the
program has changed its directory.
"""

from __future__ import annotations

import os
import pkgutil
import runpy
import sys
import sysconfig
import types
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from typing import Any

from ..host.programwords import MODULE


def is_installed(file: str) -> bool:
    """Say whether a file belongs to Python or to an installed package."""
    standard = sysconfig.get_path("stdlib") + os.sep
    return file.startswith(standard) or bool(
        {"site-packages", "dist-packages"} & set(file.split(os.sep)))


class UserProgram:
    """A script or module that can be run again and again.

    Args:
        words: the script, or ``-m`` and the module; then the program's own arguments.

    Attributes:
        home: directory at the front of ``sys.path``; modules in it are the program's own.
        name: the program's name as the user gave it.
        words: words by which another process can run the program, from any directory.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.is_module = words[0] == MODULE
        self.name, *self.arguments = words[int(self.is_module) :]
        self.path = "" if self.is_module else os.path.abspath(self.name)
        start = Path.cwd() if self.is_module else Path(self.path).resolve().parent
        self.home = str(start)
        self.words = [self.path or MODULE, *([self.name] * self.is_module), *self.arguments]
        self.names: dict[str, Any] = {}  # names of the main module, if it exists after the run

    def add_to_path(self) -> None:
        """Let Python find the program's own modules first, unless it was asked not to."""
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, self.home)

    def owns(self, file: str | None) -> bool:
        """Say whether a file of Python code is the program's own, not a library's."""
        if not file:
            return False
        if file == self.path:
            return True
        if not file.endswith(".py") or not file.startswith(self.home.rstrip("/") + "/"):
            return False
        return not is_installed(file)

    def run(self) -> None:
        """Run the program once as ``__main__``; its exceptions pass through."""
        sys.argv = [self.name, *self.arguments]
        if self.is_module:
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        elif pkgutil.get_importer(self.path):  # a zip file with a __main__.py
            runpy.run_path(self.path, run_name="__main__")
        else:
            self._run_script()

    def _run_script(self) -> None:
        """Run a script; `runpy.run_path` would not leave ``sys.argv[0]`` as it was given."""
        compiled = self.path.endswith(".pyc")
        kind = SourcelessFileLoader if compiled else SourceFileLoader
        loader: Any = kind("__main__", self.path)
        if compiled:
            code = loader.get_code("__main__")
        else:
            code = loader.source_to_code(loader.get_data(self.path), self.path)
        main = types.ModuleType("__main__")
        main.__dict__.update(__file__=self.path, __cached__=None, __loader__=loader)
        self.names = main.__dict__
        sys.modules["__main__"] = main
        exec(code, main.__dict__)

    def display_name(self, file: str) -> str:
        """Return the name of a file of the program, as the user knows it."""
        return self.name if file == self.path else file
