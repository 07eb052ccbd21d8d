"""Checks the words that name a user's program: a script, or ``-m`` and a module.

The check executes nothing of the program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, NoReturn

from . import values

MODULE = "-m"  # a program's first word if the second is a module's name


def check(words: Sequence[str], directory: str) -> None:
    """Refuse a program that does not exist, without executing anything.

    Args:
        words: as `program.script.UserProgram` takes them.
        directory: the directory in which the program is started.

    Raises:
        ValueError: it does not exist; the text is one line.
    """
    if words[0] == MODULE:
        _check_module(words[1], directory)
        return
    remedy = "give the path of a Python file"
    try:
        values.open_file(os.path.join(directory, words[0])).close()
    except FileNotFoundError:
        raise ValueError(f"no script {words[0]}: {remedy}") from None
    except OSError as error:
        raise ValueError(f"script {words[0]}: {error.strerror}; {remedy}") from None


def _check_module(name: str, directory: str) -> None:
    """Look for a module as an import would, without importing the packages around it."""
    path: list[str] | None = None
    entries = [directory, *sys.path]
    parts = name.split(".")
    for i, part in enumerate(parts):
        spec = _find(".".join(parts[: i + 1]), entries if path is None else path) if part else None
        if spec is None:
            _refuse(name, "" if i == 0 else f" in {'.'.join(parts[:i])}")
        found = spec.submodule_search_locations
        path = None if found is None else list(found)
        if path is None and i + 1 < len(parts):
            _refuse(name, f", since {'.'.join(parts[: i + 1])} is no package")
    if path is not None and _find(f"{name}.__main__", path) is None:
        raise ValueError(f"-m {name}: this is a package without a __main__ module; name a module")


def _find(name: str, path: list[str]) -> ModuleSpec | None:
    """Return the first answer of all finders, since a module of an editable package is on no
    path."""
    finders: list[Any] = [PathFinder, *sys.meta_path]
    for finder in finders:
        spec: ModuleSpec | None = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None


def _refuse(name: str, where: str) -> NoReturn:
    raise ValueError(
        f"-m {name}: no such module{where}; name one that can be imported from here, without .py"
    )
