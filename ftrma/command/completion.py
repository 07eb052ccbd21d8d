"""Completion in shells: ``ftrma completion bash|zsh|fish``, by argcomplete and the parser's tables.

The shell starts ``ftrma`` at each TAB, with the words so far in its environment. The words that an
option takes follow from its metavar (``auto|causal|rollback``, ``FILE``, ``JOB``), so a new option
needs no code here.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..host import outfile, timeouts
from ..host.signals import ASKABLE
from . import helping
from .manpages import subparsers

SHELLS = ("bash", "zsh", "fish")
LINES = {"bash": 'eval "$(ftrma completion bash)"', "zsh": 'eval "$(ftrma completion zsh)"',
         "fish": "ftrma completion fish | source"}
ASKED = "_ARGCOMPLETE"  # variable of a process that a shell has asked
LACKING = "completion needs argcomplete: pip install 'ftrma[completion]'"
DESCRIPTION = f"""Print what lets a shell complete the words of ftrma. In the file that the shell
reads at its start: {LINES['bash']}, with zsh in bash's place too, or, in fish: {LINES['fish']}."""
Way = Callable[..., Iterable[str]]  # returns words by their beginning, as argcomplete calls it


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion", help="let a shell complete words of ftrma", description=DESCRIPTION)
    parser.add_argument("shell", metavar="|".join(SHELLS), help="the shell")
    parser.set_defaults(run=command_completion)


def command_completion(arguments: argparse.Namespace) -> int:
    """Print the code for a shell.

    Raises:
        ValueError: the shell is not known, or argcomplete is lacking.
    """
    if arguments.shell not in SHELLS:
        raise ValueError(f"completion {arguments.shell}: expected {', '.join(SHELLS[:-1])} or "
                         f"{SHELLS[-1]}")
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise ValueError(LACKING) from None
    outfile.say(shellcode(["ftrma"], shell=arguments.shell).rstrip("\n"))
    return 0


def answer(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that has asked, and end this process; return if none has."""
    if ASKED not in os.environ:
        return
    try:
        import argcomplete
        from argcomplete import completers
    except ImportError:
        return
    files = completers.FilesCompleter()
    ways: dict[str, Way] = {
        "FILE": files, "GRAPH": files, "INPUT": files, "DIR": completers.DirectoriesCompleter(),
        "CSV": completers.FilesCompleter(["csv"]), "script": completers.FilesCompleter(["py"]),
        "arguments": behind_a_script(files), "JOB": words(jobs),
        "NAME=SECONDS": words(lambda: [f"{name}=" for name in timeouts.TABLE]),
        "LEVEL": words(lambda: ["none", "nodes"]), "SIGNAL": words(lambda: ASKABLE),
        "PAGE": words(helping.pages), "COMMAND": words(lambda: commands_of(parser)),
    }
    attach(parser, ways)
    argcomplete.autocomplete(parser, always_complete_options=False,
                             default_completer=completers.SuppressCompleter())


def attach(parser: argparse.ArgumentParser, ways: Mapping[str, Way]) -> None:
    """Set for each option, and for each other word, how it is completed.

    Args:
        ways: by the parts of metavars. A part in small letters, beside others, is itself a word.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.choices:
            continue
        shown = str(action.metavar or action.dest).split("|")
        found = [ways[part] for part in shown if part in ways]
        if len(shown) > 1:
            found += [words(lambda shown=shown: [  # type: ignore[misc]
                part for part in shown if re.fullmatch("[a-z][a-z-]*", part)])]
        if found:
            action.completer = all_of(found)  # type: ignore[attr-defined]
    for of_command in commands_of(parser).values():
        attach(of_command, ways)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's commands by their names."""
    actions = subparsers(parser)
    return dict(actions.choices) if actions else {}


def all_of(ways: Sequence[Way]) -> Way:
    """Return a way that combines the words of several."""
    return lambda prefix, **more: [word for way in ways for word in way(prefix, **more)]


def words(known: Callable[[], Iterable[str]]) -> Way:
    """Return a way that completes by these words."""
    return lambda prefix, **_: [word for word in known() if word.startswith(prefix)]


def behind_a_script(files: Way) -> Way:
    """Return a way for the program's own words; there are none before the program is named."""
    return lambda prefix, **more: (
        files(prefix, **more) if getattr(more["parsed_args"], "script", None) else [])


def jobs() -> list[str]:
    """Return the names of this user's jobs on this node, living or dead."""
    from ..launch import deadjobs

    return [path.name for path in deadjobs.directories()]
