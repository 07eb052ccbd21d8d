"""Checkpoints in files on the command line: ``--spill``, ``--resume DIR`` and ``ftrma spill``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..host import outfile
from ..settings import options as settings

if TYPE_CHECKING:  # they import NumPy, for which no other command has to wait
    from ..launch.resuming import RunFiles

ACTIONS = ("list", "verify", "show")


def claim(arguments: argparse.Namespace, options: settings.Options) -> RunFiles:
    """Claim the directories that a run names; fill in the options that a resumed run does not give
    again.

    Args:
        options: options of the run, not checked yet.

    Raises:
        ValueError: one of them cannot be used.
    """
    from ..launch import resuming

    files = resuming.files_of_run(arguments.resume or "", options.spill)
    manifest = files.source.manifest if files.source else None
    if manifest:
        if options.slots is None:
            arguments.slots = str(manifest["slots"])
        if arguments.script is None and arguments.module is None:
            if not os.path.isdir(manifest["cwd"]):
                raise ValueError(f"--resume {arguments.resume}: the directory {manifest['cwd']} of "
                                 "the program is gone; put it back, or name the program")
            os.chdir(manifest["cwd"])
            arguments.script, *arguments.arguments = manifest["program"]
            if arguments.script == "-m":
                arguments.script, arguments.module = None, arguments.arguments
    return files


def check(files: RunFiles, words: Sequence[str], options: settings.Options) -> None:
    """Refuse a run that does not fit its files.

    Raises:
        ValueError: they do not fit; the text names both, and the remedy.
    """
    from ..launch import resuming

    if files.source:
        resuming.check_program(files.source, words, options.slots)
    if files.sink:
        options.spill, options.spill_entry = str(files.sink.directory), files.sink.entry


def add_parser(commands: Any) -> None:
    """Add ``ftrma spill``."""
    parser = commands.add_parser("spill", help="list, verify or show checkpoints in files")
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("directory", metavar="DIR", help="of ftrma run --spill")
    parser.set_defaults(run=command)


def command(arguments: argparse.Namespace) -> int:
    """Carry ``ftrma spill`` out; 1 if something is damaged."""
    from ..launch import spilllist

    lines, sound = spilllist.describe(arguments.directory, arguments.action)
    outfile.say("\n".join(lines))
    return 0 if sound else 1
