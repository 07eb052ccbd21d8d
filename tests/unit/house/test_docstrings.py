"""Docstrings: those of public names tell of other processes and of deaths; all begin plainly."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tree import ROOT

import ftrma
from ftrma import framework
from ftrma.native import loading
from ftrma.program.session import FailureEvent, Session

loading.load()  # before what the names lead to imports mpi4py

FRONT = (ROOT / "README.md").read_text()
# No text begins with one of these: its subject or its verb would be elsewhere.
BEGINNINGS = re.compile(r"(?:The same|Of|What|As|Where|Whether|How|Who|That|So)\b")
SOURCES = (".py", ".c", ".h")
ROOMS = sorted({str(path.parent.relative_to(ROOT)) for top in ("ftrma", "csrc")
                for path in (ROOT / top).rglob("*.*") if path.suffix in SOURCES})
THEIRS = {"MPI"}  # mpi4py's
PRINTS = {"tell_recovery"}  # and does nothing else
METHODS = [name for name, what in vars(Session).items()
           if inspect.isfunction(what) and not name.startswith("_") and name not in PRINTS]
# The classes of its objects say it.
FRAMEWORK = {name: what if inspect.isfunction(what) or inspect.isclass(what) else type(what)
             for name, what in vars(framework).items()}
PUBLIC: dict[str, Any] = {
    **{f"ftrma.{name}": getattr(ftrma, name) for name in ftrma.__all__ if name not in THEIRS},
    **{f"ftrma.framework.{name}": FRAMEWORK[name] for name in framework.__all__},
    **{f"Session.{name}": getattr(Session, name) for name in METHODS},
    "FailureEvent": FailureEvent,
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and first words of each docstring, and of each comment that begins a block."""
    source = path.read_text()
    if path.suffix != ".py":
        yield from ((number, line[2:].strip()) for number, line in enumerate(source.split("\n"), 1)
                    if line.startswith("/*"))
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), (ast.get_docstring(node) or "").partition("\n")[0]
    before = ""
    for number, line in enumerate(map(str.strip, source.split("\n")), 1):
        if line.startswith("# ") and not before.startswith("#"):
            yield number, line[2:]
        before = line


def doc_of(what: Any) -> str:
    """Its own, or that of what it refers to and nothing else."""
    own = inspect.cleandoc(what.__doc__ or "")
    other = re.fullmatch(r"See `(ftrma(?:\.framework)?\.\w+)`\.", own)
    return doc_of(PUBLIC[other[1]]) if other else own


@pytest.mark.parametrize("name", PUBLIC)
def test_both_are_told(name: str) -> None:
    """Law: one line, or more that are indented, for each, in this order, at the end."""
    doc = doc_of(PUBLIC[name])
    more = r"(?:\n +[^\n]+)*"
    assert re.search(rf"\n\nMPI: [^\n]+{more}\nFault: [^\n]+{more}\Z", doc)
    assert doc.endswith(".")


def test_the_front_page_names_what_is_public() -> None:
    """Law: a function of ftrma's that the front page shows is public, and all are shown."""
    shown = {name for name in re.findall(r"`(\w+)\([^`]*\)`", FRONT) if hasattr(ftrma, name)}
    # mpi4py is left alone: other tests of the same process need it not to be initialized.
    ours = [name for name in ftrma.__all__ if name not in THEIRS]
    functions = {name for name in ours if inspect.isfunction(getattr(ftrma, name))}
    assert shown == functions


@pytest.mark.parametrize("room", ROOMS)
def test_texts_begin_plainly(room: str) -> None:
    """Law: a docstring or a comment begins with its subject or its verb, not with a reference to
    another sentence or with a clause."""
    paths = [path for path in sorted((ROOT / room).glob("*.*")) if path.suffix in SOURCES]
    found = [f"{path.relative_to(ROOT)}:{number}: {text}" for path in paths
             for number, text in texts(path) if BEGINNINGS.match(text)]
    assert not found, "\n".join(found)
