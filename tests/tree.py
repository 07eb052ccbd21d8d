"""Paths of the source tree, for tests that read it or run what lies in it."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
APPS = ROOT / "bench" / "apps"


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """A module's tree and all statements in it, without their expressions."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        left += [child for child in ast.iter_child_nodes(node)
                 if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case)]
