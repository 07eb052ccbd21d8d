"""``ftrma help``: pages, commands, names that programs use, and manual pages in files."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import textwrap
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..host import outfile
from . import drawings

DOCS = Path(__file__).resolve().parents[1] / "docs"
PATH = re.compile(r"`ftrma/docs/([\w-]+)\.md`")
TABLE = re.compile(r"(?m)(?:^\|.*\n)+")
INDENT = 6 * " "  # indentation of a list's text after the first cell of a row
DESCRIPTION = """Print a page of the documentation, a command's options, or what a name means that
programs use, such as ftrma.protect; without a word, list them. With --man, write the manual pages
of all commands into a directory, such as ~/.local/share/man/man1."""


def add_parser(commands: Any, whole: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the command to the command line.

    Args:
        whole: returns the parser of all commands.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "help", help="print a page of the documentation", description=DESCRIPTION)
    parser.add_argument("word", metavar="PAGE|COMMAND|NAME", nargs="?",
                        help="to be printed")
    parser.add_argument("--man", metavar="DIR", help="write manual pages into a directory")
    parser.set_defaults(run=command_help, whole=whole)


def command_help(arguments: argparse.Namespace) -> int:
    """Print or write what is asked for.

    Raises:
        ValueError: there is no such page or directory; the text has the remedy.
    """
    from . import manpages, reference

    parser = arguments.whole()
    if arguments.man:
        if arguments.word:
            raise ValueError(f"--man {arguments.man}: pages of all commands are written; leave out "
                             f"{arguments.word}")
        return write_pages(arguments.man, manpages.pages(parser))
    actions = manpages.subparsers(parser)
    assert actions
    commands: dict[str, argparse.ArgumentParser] = dict(actions.choices)
    found = pages()
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    if not arguments.word:
        helps = {choice.dest: choice.help or "" for choice in actions._choices_actions}
        outfile.say("\n".join([
            "Commands (ftrma help COMMAND, or ftrma COMMAND -h):",
            *(f"  {name:<18} {helps[name]}" for name in commands),
            "", "Pages (ftrma help PAGE):",
            *(line for group, names in groups().items()
              for line in (f" {group}", *(f"  {name:<18} {title(found[name])}" for name in names))),
            "", "Names that programs use (ftrma help NAME, such as ftrma.protect), by module:",
            *(f"  {name}" for name in reference.MODULES)]))
    elif arguments.word in commands:
        commands[arguments.word].print_help()
    elif arguments.word in found:
        outfile.say(shown(found[arguments.word].read_text(), width).rstrip("\n"))
    elif (text := of_name(arguments.word)) is not None:
        outfile.say(shown(text, width))
    else:
        known = reference.names() if arguments.word.startswith("ftrma") else [*commands, *found]
        near = get_close_matches(arguments.word, known, 1)
        hint = f"did you mean {near[0]}?" if near else "'ftrma help' lists what there is"
        raise ValueError(f"help {arguments.word}: there is no such page, command or name; {hint}")
    return 0


def of_name(word: str) -> str | None:
    """Return the text about a name that programs use; None if there is no such name."""
    from . import reference

    try:
        return reference.page(word)
    except LookupError:
        return None


def shown(text: str, width: int = 100) -> str:
    """Return a page as a terminal shows it: with commands for other pages, and bare drawings.

    Args:
        width: of the terminal, in characters; wider tables become lists.
    """
    text = PATH.sub(r"`ftrma help \1`", drawings.BLOCK.sub(lambda m: f"\n{m[2]}\n", text))
    text = TABLE.sub(lambda match: table(match[0], width), text)
    return re.sub(r"\n{3,}", "\n\n", text).replace(r"\|", "|")


def table(text: str, width: int) -> str:
    """Return a table as it is if it is narrow enough; else as a list of its rows."""
    lines = text.splitlines()
    if max(map(len, lines)) <= width:
        return text
    heads, _, *rows = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
                       for line in lines)
    found = [f"({', '.join(filter(None, heads))})", ""]
    for first, *others in rows:
        found += textwrap.wrap(first, width, subsequent_indent="  ", break_on_hyphens=False)
        for head, cell in zip(heads[1:], others, strict=True):
            words = f"{head}: {cell}" if len(others) > 1 else cell
            found += textwrap.wrap(words, width, initial_indent=INDENT, subsequent_indent=INDENT,
                                   break_on_hyphens=False) if cell else []
    return "\n".join(found) + "\n"


def groups() -> dict[str, list[str]]:
    """Return the names of the pages by their groups, in the order of the site."""
    found: dict[str, list[str]] = {}
    for line in (DOCS / "site" / "mkdocs.yml").read_text().partition("\nnav:\n")[2].splitlines():
        if match := re.fullmatch(r"  - (\w+):", line):
            found[match[1]] = []
        elif (match := re.fullmatch(r" +- ([\w-]+)\.md", line)) and (
                DOCS / f"{match[1]}.md").is_file():
            found[[*found][-1]].append(match[1])
    return found


def pages() -> dict[str, Path]:
    """Return the pages of the documentation by their names, in the order of the site."""
    return {name: DOCS / f"{name}.md" for names in groups().values() for name in names}


def title(path: Path) -> str:
    """Return a page's heading."""
    return path.read_text().partition("\n")[0].lstrip("# ")


def write_pages(directory: str, texts: dict[str, str]) -> int:
    """Write manual pages into a directory."""
    if not os.path.isdir(directory):
        raise ValueError(f"--man {directory}: there is no such directory; make it first")
    paths = {os.path.join(directory, name): content for name, content in texts.items()}
    for path in paths:
        outfile.check("--man", path)
    for path, content in paths.items():
        try:
            outfile.write(path, [content])
        except OSError as error:
            raise ValueError(f"--man {path}: {outfile.why(error)}") from None
    outfile.say(f"{len(paths)} pages are in {directory}; MANPATH, or man -l, leads to them")
    return 0
