"""The page of sentences has all that a job may print, and nothing that no job prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tree import ROOT

PAGE = ROOT / "ftrma" / "docs" / "wrong.md"
# A user meets their lines while a job runs; commands and frameworks tell their mistakes themselves.
ROOMS = ("launch", "program", "protocol", "fabric", "vault", "native", "host")
TELLING = {"tell", "_warn", "warn", "JobEnd", "refuse", "Relaunch"}
ERRORS = {"FtrmaError", "NotRecoverable", "CatastrophicFailure", "CorruptVault", "NoRoom"}
GAP = "…"  # stands for what differs, on the page and in the sentences that are read here
FEWEST = 3  # words of a sentence; shorter strings are parts of others


def template(node: ast.expr) -> str:
    """Return a string expression with a gap for each value; empty if it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else GAP
                       for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (template(node.left) or GAP) + (template(node.right) or GAP)
    return ""


def sentences_of(path: Path) -> Iterator[str]:
    """Yield what the calls in a module tell or raise."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for argument in node.args if name in TELLING | ERRORS else ():
            text = " ".join(template(argument).split())
            if max((len(run.split()) for run in text.split(GAP)), default=0) >= FEWEST:
                yield text


@cache
def told() -> tuple[str, ...]:
    files = [path for room in ROOMS for path in sorted((ROOT / "ftrma" / room).rglob("*.py"))]
    return tuple(dict.fromkeys(text for path in files for text in sentences_of(path)))


@cache
def strings() -> tuple[str, ...]:
    """Return all strings of the package."""
    nodes = (node for path in (ROOT / "ftrma").rglob("*.py") if "__pycache__" not in str(path)
             for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.expr))
    found = {template(node) for node in nodes if not isinstance(node, ast.Call)}
    return tuple(" ".join(re.sub(r"\{\w+\}", GAP, text).split()) for text in found if text)


@cache
def fragments() -> tuple[str, ...]:
    """Return what the page has in backticks in the first column of its tables."""
    rows = re.findall(r"(?m)^\| (`.*?`) \| ", PAGE.read_text())
    return tuple(word for row in rows for word in re.findall(r"`([^`]+)`", row))


def holds(text: str, fragment: str) -> bool:
    """Say whether a text has the words of a fragment, in their order."""
    at = 0
    for run in fragment.split(GAP):
        found = text.find(run.strip(), at)
        if found < 0:
            return False
        at = found + len(run.strip())
    return True


def test_the_reader_finds_sentences() -> None:
    """Law: a mistake here would find nothing, and nothing would be missing."""
    assert len(told()) > 100 and len(fragments()) > 100


@pytest.mark.parametrize("fragment", fragments())
def test_each_sentence_of_the_page_is_printed(fragment: str) -> None:
    """Law: who searches the sources for a sentence of the page finds it."""
    assert any(holds(text, fragment) for text in strings())


def test_each_printed_sentence_is_on_the_page() -> None:
    """Law: who searches the page for a line of a job finds it."""
    assert not [text for text in told()
                if not any(holds(text, fragment) for fragment in fragments())]
