"""Wrong command lines: messages about them, and a parser that raises these as exceptions."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from typing import Any, NoReturn

from ..host import outfile


class Misuse(ValueError):
    """A wrong command line; `usage` shows a right one in one line."""

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(message)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """A parser that accepts only complete options, and raises its complaints as exceptions."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise Misuse(f"{message}; see {self.prog} -h", self.format_usage())

    def _print_message(self, message: str, file: Any = None) -> None:
        outfile.say(message.rstrip("\n"))  # argparse would not report that it cannot write


def unknown_command(parser: argparse.ArgumentParser, word: str) -> str:
    """Say that there is no such command, and name the nearest, or all."""
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    near = get_close_matches(word.strip("'"), commands.choices, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(commands.choices)}"
    return f"unknown command {word}; {hint}"


def value_lacking(flag: str, argv: list[str]) -> str:
    """Say that an option has no value, or a value that looks like an option."""
    word = next(iter(argv[argv.index(flag) + 1 :]), "") if flag in argv else ""
    way = f"as it begins with '-', write {flag}={word}" if word else "give one"
    return f"{flag}{f' {word}' * bool(word)}: a value is expected; {way}"


def refuse_unknown(parser: argparse.ArgumentParser, command: str, unknown: list[str]) -> None:
    """Name the words that a command does not know, and the nearest option."""
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    of_command = commands.choices[command]
    known = [flag for flag in of_command._option_string_actions if flag.startswith("--")]
    near = get_close_matches(unknown[0].split("=")[0], known, 1)
    hint = f", did you mean {near[0]}?" if near else ""
    of_command.error(f"unknown {' '.join(unknown)}{hint}")


def refuse_empty(arguments: argparse.Namespace) -> None:
    """Refuse options without text; the program's own words, and the launcher's, may be empty."""
    for name, value in vars(arguments).items():
        values = value if isinstance(value, list) else [value]
        if name not in ("arguments", "module", "mpirun") and "" in values:
            raise ValueError(f"{name.replace('_', '-')} '': the value is empty; give one")


def restore_dashes(arguments: argparse.Namespace, argv: list[str]) -> None:
    """Restore a ``--`` among the program's arguments, which argparse has taken for its own.

    It takes one after a script, and one after ``-m``, where the next word looks like a script.
    """
    if arguments.module:
        at = next((i for i, word in enumerate(argv) if word == "-m"
                   and argv[i + 1 : i + 1 + len(arguments.module)] == arguments.module), None)
        if at is not None and argv[at + 1 + len(arguments.module) :][:1] == ["--"]:
            arguments.module, arguments.script, arguments.arguments = argv[at + 1 :], None, []
    elif arguments.script is not None:
        before = argv[: len(argv) - len(arguments.arguments)]
        if before[-2:] == [arguments.script, "--"]:
            arguments.arguments = ["--", *arguments.arguments]
