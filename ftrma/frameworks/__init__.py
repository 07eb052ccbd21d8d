"""Frameworks: libraries that recover programs in their own way, each in a folder of its own.

A framework uses the door `ftrma.framework` and nothing above it, and no other framework, but that
`aic` uses the graphs of `graph`. Programs import a thin front beside this package: `ftrma.graph`
has the names of `ftrma.frameworks.graph`.

A folder with a module `command` adds a command to ``ftrma``. Nothing else lists the frameworks.
"""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast


@dataclass
class Invocation:
    """A run of a packaged program that a framework's command asks for.

    Attributes:
        apps: packaged programs that have to be there; the first one is run.
        words: its arguments.
        reads, writes: files that it reads; options and files that it writes. They are looked at
            before the job starts.
        policy: of the job, unless the user gives one; "": the default.
        claims: the program claims the job's failures, so ``--policy causal`` is refused.
    """

    apps: tuple[str, ...]
    words: list[str]
    reads: tuple[str, ...] = ()
    writes: tuple[tuple[str, str], ...] = ()
    policy: str = ""
    claims: bool = True


class Command(Protocol):
    """The interface of a framework's module `command`.

    Attributes:
        HELP: one line, for the list of commands.
        USAGE: one line that shows the command's words.
        DESCRIPTION: what the command does, for its help.
    """

    HELP: str
    USAGE: str
    DESCRIPTION: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options and words that come beside those of ``ftrma run``."""

    def invocation(self, arguments: argparse.Namespace) -> Invocation:
        """The program that the command line asks for.

        Raises:
            ValueError: with the word that is wrong, and the remedy.
        """


def commands() -> Iterator[tuple[str, Command]]:
    """Names and modules of the frameworks' commands, in the order of their names."""
    for found in pkgutil.iter_modules(__path__):
        module = f"{__name__}.{found.name}.command"
        if found.ispkg and find_spec(module):
            yield found.name, cast(Command, import_module(module))
