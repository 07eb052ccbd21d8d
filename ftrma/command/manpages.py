"""Manual pages, made from the parser of the command line, so that they say what ``-h`` says.

A page is text for groff's macros ``man``: one for ``ftrma``, one for each command. Page:
man(7), groff_man(7).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from ..host.version import VERSION
from ..settings.configuration import FILE
from ..settings.options import CONFIG_VARIABLE, OPTIONS

NAME = "ftrma"
RUN = "run"
STATUSES = (
    ("2", "a mistake on the command line, in the environment or in a file, before the job began"),
    ("70", "ftrma's own end: a failure that could not be repaired, or a job that did not start"),
    ("85", "ended behind a checkpoint, as was asked for; --requeue-status chooses another one"),
    ("93", "no progress: the job failed at the same step again and again; do not start it again"),
    ("128 + n", "ended by signal n"),
    ("other", "the program's own"),
)


def pages(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the text of each page by its file's name.

    Args:
        parser: the parser of ``ftrma``, with a parser for each command.
    """
    commands = subparsers(parser)
    assert commands
    helps = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    others = [f"{NAME}-{name}" for name in commands.choices]
    found = {f"{NAME}.1": page(parser, NAME, "MPI programs that survive the death of a process",
                               others, helps)}
    for name, of_command in commands.choices.items():
        found[f"{NAME}-{name}.1"] = page(of_command, f"{NAME}-{name}", helps[name], [NAME, *(
            f"{NAME}-{RUN}" for _ in [0] if name != RUN)], {})
    return found


def subparsers(parser: argparse.ArgumentParser) -> argparse._SubParsersAction | None:  # type: ignore[type-arg]
    """Return the action of a parser that has the parsers of its commands."""
    return next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)


def page(
    parser: argparse.ArgumentParser, name: str, purpose: str, others: list[str],
    commands: dict[str, str],
) -> str:
    """Return one page.

    Args:
        purpose: its purpose in a few words. others: related pages. commands: names and purposes.
    """
    lines = [f'.TH "{name.upper()}" 1 "" "{NAME} {VERSION}" "User Commands"',
             ".SH NAME", f"{text(name)} \\- {text(purpose)}",
             ".SH SYNOPSIS", ".nf", f"\\fB{text(usage(parser))}\\fR", ".fi",
             ".SH DESCRIPTION", text(" ".join((parser.description or purpose).split()))]
    if commands:
        lines.append(".SH COMMANDS")
        for command, meaning in commands.items():
            lines += [".TP", f"\\fB{text(command)}\\fR", text(meaning)]
    lines += list(section("ARGUMENTS", parser, options=False))
    lines += list(section("OPTIONS", parser, options=True))
    if name == f"{NAME}-{RUN}":
        lines += list(surroundings())
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{text(other)}\\fR(1)" for other in others) + ",",
              text(f"'{NAME} help' lists the pages that come with it")]
    return "\n".join(lines) + "\n"


def usage(parser: argparse.ArgumentParser) -> str:
    return " ".join(parser.format_usage().removeprefix("usage: ").split())


def section(title: str, parser: argparse.ArgumentParser, *, options: bool) -> Iterator[str]:
    """Yield the lines about a parser's options, or about its other words."""
    formatter = parser._get_formatter()
    begun = False
    for action in parser._actions:
        if (bool(action.option_strings) != options or action.help == argparse.SUPPRESS
                or isinstance(action, argparse._SubParsersAction)):
            continue
        if not begun:
            begun = True
            yield f".SH {title}"
        words = "|".join(map(str, action.choices or ())) or action.dest
        value = "" if action.nargs == 0 else str(action.metavar or words)
        flags = ", ".join(f"\\fB{text(flag)}\\fR" for flag in action.option_strings)
        yield ".TP"
        yield f"{flags} \\fI{text(value)}\\fR" if flags and value else flags or (
            f"\\fI{text(value)}\\fR")
        yield text(formatter._expand_help(action)) if action.help else "\\&"


def surroundings() -> Iterator[str]:
    """Yield the lines about exit status, environment and files."""
    yield ".SH EXIT STATUS"
    for status, meaning in STATUSES:
        yield from (".TP", f"\\fB{text(status)}\\fR", text(meaning))
    yield ".SH ENVIRONMENT"
    for option in OPTIONS:
        yield from (".TP", f"\\fB{text(option.variable)}\\fR", text(f"as {option.flag}"))
    yield from (".TP", f"\\fB{text(CONFIG_VARIABLE)}\\fR", "as \\-\\-config")
    yield ".SH FILES"
    for path in (FILE, f"$XDG_CONFIG_HOME/{NAME}/{FILE}"):
        yield from (".TP", f"\\fI{text(path)}\\fR",
                    "options, below the environment; the first one wins")


def text(words: str) -> str:
    """Return a text as groff shows it: nothing in it is a request, and a dash stays a dash."""
    words = words.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", words)
