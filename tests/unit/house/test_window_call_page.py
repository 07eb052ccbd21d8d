"""The page "Add a window call" says what is there: files, functions, constants, the places of two
calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from csource import CSRC, code_of

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "ftrma" / "docs" / "add-a-window-call.md").read_text()
QUOTED = set(re.findall(r"`([^`\n]+)`", PAGE))
C = {path: code_of(path) for path in sorted(CSRC.rglob("*.[ch]"))}
PYTHON = {path: path.read_text() for path in [CSRC / "calls.py", *(ROOT / "ftrma").rglob("*.py")]
          if not path.name.startswith("_")}
# A call, and what names its kind, its flags and its failpoint.
CALLS = {
    "Get": r"\bMPI_Get\b|\bFTRMA_\w+_GET\b(?<!_AND_GET)|KIND\(GET\)|\bWhat\.Get\b|WHAT\[\"GET\"\]",
    "Win_flush": r"\bMPI_Win_flush\b|\bFTRMA_(?:WHAT|FLAGS|FAILPOINT)_FLUSH\b|KIND\(FLUSH\)"
                 r"|\bWhat\.Flush\b|WHAT\[\"FLUSH\"\]",
}


def files_in(call: str) -> set[str]:
    """The page's list of a call's places."""
    rows = re.findall(r"(?m)^\| `([\w/.]+)` \|([^|\n]*)\|([^|\n]*)\|$", PAGE)
    return {path for path, *cells in rows if cells[list(CALLS).index(call)].strip() == "yes"}


def places_of(call: str) -> set[str]:
    """The files that name it, and the list of calls that `calls.py` has."""
    wire = CSRC / "wire"  # has kinds of messages of its own
    found = {path for path, text in {**C, **PYTHON}.items()
             if wire not in path.parents and re.search(CALLS[call], text)}
    listed = re.search(r'(?s)^OURS = """(.*?)"""', PYTHON[CSRC / "calls.py"], re.M)
    if listed and call in listed[1].split():
        found.add(CSRC / "calls.py")
    return {str(path.relative_to(ROOT)) for path in found}


@pytest.mark.parametrize("call", CALLS)
def test_all_places_of_a_call(call: str) -> None:
    """Law: who follows the page comes to every place where an old call stands."""
    assert places_of(call) == files_in(call)


def test_files_are_there() -> None:
    """Law: a path on the page leads somewhere."""
    paths = {text for text in QUOTED if re.fullmatch(r"[\w.-]+(/[\w.-]*)+", text)}
    assert len(paths) > 10
    assert not {path for path in paths - {".venv/bin/pip"} if not (ROOT / path).exists()}


def test_names_are_there() -> None:
    """Law: functions, macros, enums and constants on the page are those of C; `What` and `OURS` are
    Python's."""
    code = "\n".join(C.values())
    functions = {text.removesuffix("()") for text in QUOTED if re.fullmatch(r"\w+\(\)", text)}
    constants = {text for text in QUOTED if re.fullmatch(r"FTRMA_[A-Z_]*[A-Z]|MPI_\w+", text)}
    enums = {text.removeprefix("enum ") for text in QUOTED if text.startswith("enum ")}
    assert len(functions) > 8 and len(constants) > 8 and len(enums) == 3
    for name in functions:
        assert re.search(rf"\b{name}\s*\([^;]*?\)\s*\{{|#define {name}\(", code, re.S), name
    assert not {name for name in constants if not re.search(rf"\b{name}\b", code)}
    assert not {name for name in enums if not re.search(rf"\benum {name} \{{", code)}
    assert "\nclass What(" in PYTHON[ROOT / "ftrma" / "trace" / "records.py"]


def test_all_flags_are_told() -> None:
    """Law: each flag of a kind has its row."""
    header = (CSRC / "shared.h").read_text()
    section = header[header.index("/* Flags of a kind."):header.index("/* Flags that go together.")]
    flags = re.findall(r"(?m)^#define (\w+)", section)
    assert flags and set(re.findall(r"(?m)^\| `(FTRMA_\w+)` \|", PAGE)) == set(flags)


def test_the_steps_are_those_of_the_code() -> None:
    """Law: `get()` and `flush()` call the functions of the page, in its order."""
    for name, source, steps in (
        ("get", "access.c", ["ftrma_access_prepare", "enter", "move_out", "ftrma_access_learn",
                             "ftrma_event_end"]),
        ("flush", "lock.c", ["ftrma_failpoint", "ftrma_unwinding", "ftrma_sync_begin",
                             "ftrma_event_end"]),
    ):
        code = C[CSRC / "interpose" / source]
        body = code[re.search(rf"(?m)^static int {name}\(", code).start():].split("\n}")[0]  # type: ignore[union-attr]
        at = [body.index(f"{step}(") for step in steps]
        assert at == sorted(at) and {f"{step}()" for step in steps} <= QUOTED
