"""Docstrings and comments of the tests begin with their subject or verb, as those of C do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree import ROOT, TESTS, statements
from unit.house.test_c_comments import REFUSED

FILES = {str(path.relative_to(ROOT)): path for path in sorted(TESTS.rglob("*.py"))}


def docstrings_of(path: Path) -> Iterator[str]:
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def comments_of(path: Path) -> Iterator[str]:
    """The first lines of comments that stand on lines of their own, also in programs in strings."""
    above = False
    for line in path.read_text().splitlines():
        text = line.lstrip()
        if text.startswith("#") and not above:
            yield text.lstrip("# ")
        above = text.startswith("#")


@pytest.mark.parametrize("name", FILES)
def test_they_begin_well(name: str) -> None:
    """Law: none begins with one of the refused words."""
    texts = [*docstrings_of(FILES[name]), *comments_of(FILES[name])]
    assert not [text for text in texts if REFUSED.match(text)]
