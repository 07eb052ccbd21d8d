"""What programs use says what it means for the other processes, and what a death in it does."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from tree import ROOT

import ftrma
from ftrma import framework
from ftrma.native import loading
from ftrma.program.session import FailureEvent, Session

loading.load()  # before what the names lead to imports mpi4py

FRONT = (ROOT / "README.md").read_text()
THEIRS = {"MPI"}  # mpi4py's
PRINTS = {"tell_recovery"}  # and does nothing else
METHODS = [name for name, what in vars(Session).items()
           if inspect.isfunction(what) and not name.startswith("_") and name not in PRINTS]
# Of its two objects the classes say it.
FRAMEWORK = {name: what if inspect.isfunction(what) else type(what)
             for name, what in vars(framework).items()}
PUBLIC: dict[str, Any] = {
    **{f"ftrma.{name}": getattr(ftrma, name) for name in ftrma.__all__ if name not in THEIRS},
    **{f"ftrma.framework.{name}": FRAMEWORK[name] for name in framework.__all__},
    **{f"Session.{name}": getattr(Session, name) for name in METHODS},
    "FailureEvent": FailureEvent,
}


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
