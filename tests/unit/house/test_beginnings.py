"""Docstrings and comments of the tests begin with their subject or verb, as those of C do."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree import ROOT, TESTS
from unit.house.test_c_comments import REFUSED

FILES = {str(path.relative_to(ROOT)): path for path in sorted(TESTS.rglob("*.py"))}


def docstrings_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def comments_of(path: Path) -> Iterator[str]:
    """The first lines of comments that stand on lines of their own."""
    above = 0
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
                if token.start[0] != above + 1:
                    yield token.string.lstrip("# ")
                above = token.start[0]


@pytest.mark.parametrize("name", FILES)
def test_they_begin_well(name: str) -> None:
    """Law: none begins with one of the refused words."""
    texts = [*docstrings_of(FILES[name]), *comments_of(FILES[name])]
    assert not [text for text in texts if REFUSED.match(text)]
