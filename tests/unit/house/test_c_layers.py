"""The data plane's house: which folder of csrc may use which, and that no two rooms use each other.

A room is a source with the header of its name. No compiler is needed. A file uses the headers that
it includes, the functions and variables that its text names, and those that macros and inline
functions of its headers name in turn. All that more than one file can see begins with ``ftrma_``
or ``MPI_``.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from csource import CSRC, HEADERS, ORDER, SOURCES, code_of, items_of, names_in

SHARED = {"ftrma.h", "wire.h"}  # all that Python calls, wherever it is
GENERATED = {"ftrma_intercepted"}  # by calls.py
# Sources whose functions one header declares; all others have a header of their own name.
GROUPS = {
    "kernels.h": {"kernels.c", "kernels_ref.c"},
    "gf.h": {"gf.c", "gf_ref.c"},
    "gf_pass.h": {"gf_portable.c", "gf_x86.c"},
    "gf_run.h": {"gf.c"},
    "graph.h": {"sums.c", "factors.c", "sort.c", "text.c", "rmat.c", "owners.c",
                "deal.c", "triangles.c"},
}
OURS = r"(?:ftrma_|MPI_)\w+"


FUNCTION = re.compile(rf"[\w\s*]*?\b({OURS})\s*\(", re.S)


def functions(path: Path, with_body: bool) -> set[str]:
    """Functions that all can call: defined there (with their body), or declared."""
    found = set()
    for head, body in items_of(code_of(path)):
        match = FUNCTION.match(head.strip())
        if match and bool(body) == with_body and not re.search(r"\b(static|typedef)\b", head):
            found.add(match[1])
    return found


def externs(path: Path) -> set[str]:
    """Variables that a header declares."""
    found: set[str] = set()
    for head, _ in items_of(code_of(path)):
        if re.match(r"\s*extern\b", head) and not FUNCTION.match(head.strip()):
            found |= {n for n in names_in(re.sub(r"__attribute__.*", "", head, flags=re.S))
                      if re.match(OURS, n)} - TYPES
    return found


TYPES = {"MPI_Comm", "MPI_Win"}
VARIABLES = {name for path in HEADERS.values() for name in externs(path)}


@cache
def definitions() -> dict[str, set[str]]:
    """Sources that define a name."""
    found = defaultdict(set)
    for name, path in SOURCES.items():
        for function in functions(path, with_body=True):
            found[function].add(name)
        for head, _ in items_of(code_of(path)):
            plain = re.sub(r"\b(?:struct|enum)\s+\w+", " ", head).split("=")[0]
            if not re.search(r"\b(static|extern)\b", head) and not FUNCTION.match(plain.strip()):
                for variable in names_in(plain) & VARIABLES:
                    found[variable].add(name)
        for variant in re.findall(r"(?m)^#define VARIANT (\w+)", path.read_text()):
            found[f"ftrma_gf_lines_{variant}"].add(name)  # in gf_tiles.h
    return found


def includes_of(path: Path) -> list[str]:
    return re.findall(r'(?m)^#include "([\w.]+)"', path.read_text())


@cache
def expansions(header: str) -> dict[str, set[str]]:
    """Names in the macros and inline functions of a header."""
    code = code_of(HEADERS[header])
    defines = re.findall(r"(?m)^\s*#\s*define\s+(\w+)(.*)$", code)
    found = {name: names_in(body) for name, body in defines}
    for head, body in items_of(code):
        match = re.search(r"\binline\b[\w\s*]*?\b(\w+)\s*\(", head)
        if match:
            found[match[1]] = names_in(body)
    return found


def uses_of(name: str) -> dict[str, set[str]]:
    """Other sources that a source uses, with the names that it uses of each."""
    headers: set[str] = set()
    left = set(includes_of(SOURCES[name]))
    while left:
        header = left.pop()
        headers.add(header)
        left |= set(includes_of(HEADERS[header])) - headers
    seen: set[str] = set()
    left = names_in(re.sub(r"(?m)^\s*#\s*include.*$", "", code_of(SOURCES[name])))
    while left:
        word = left.pop()
        seen.add(word)
        for header in headers:
            left |= expansions(header).get(word, set()) - seen
    found = defaultdict(set)
    for word in seen:
        for source in definitions().get(word, set()) - {name}:
            found[source].add(word)
    return found


EDGES = {name: uses_of(name) for name in SOURCES}


def room_of(path: Path) -> str:
    """Folder and name: a source and the header of its name are one room."""
    return f"{path.parent.name}/{path.stem}"


@cache
def doors() -> dict[str, dict[str, set[str]]]:
    """Rooms that a room uses, with the names: a header's name where it is included."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in [*SOURCES.values(), *HEADERS.values()]:
        for header in includes_of(path):
            found[room_of(path)][room_of(HEADERS[header])].add(header)
    for name, used in EDGES.items():
        for other, words in used.items():
            found[room_of(SOURCES[name])][room_of(SOURCES[other])] |= words
    for name, path in HEADERS.items():
        for words in expansions(name).values():
            for word in words:
                for source in definitions().get(word, set()):
                    found[room_of(path)][room_of(SOURCES[source])].add(word)
    for room, used in found.items():
        used.pop(room, None)
    return found


ROOMS = sorted({room_of(path) for path in [*SOURCES.values(), *HEADERS.values()]})


def level(path: Path) -> int:
    """The number of a file's folder, from the top; files in csrc itself are below all folders."""
    return ORDER.index(path.parent.name) if path.parent != CSRC else len(ORDER)


def circle_from(start: str) -> list[str]:
    """The rooms that lead from a room back to itself; empty: there is no such circle."""
    ways, seen = [[start]], set()
    while ways:
        way = ways.pop()
        for other in doors()[way[-1]]:
            if other == start:
                return [*way, start]
            if other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return []


def test_the_sources_are_read() -> None:
    """Law: what is looked for is found; else the other tests would hold for anything."""
    assert {"ftrma_ctl", "ftrma_event_clock", "ftrma_join", "MPI_Put"} <= set(definitions())
    assert "ftrma_interrupted" in EDGES["access.c"]["interrupt.c"]  # by two inline functions
    assert "ftrma_thread" in EDGES["lock.c"]["attempt.c"]
    assert "ftrma_code_unwind" in EDGES["replay.c"]["errors.c"]


def test_the_build_knows_all_sources() -> None:
    """Law: build.py lists every file, by folder, and has the folders in their order."""
    sys.path.insert(0, str(CSRC.parent))
    try:
        from csrc import build
    finally:
        sys.path.remove(str(CSRC.parent))
    assert tuple(build.SOURCES) == ORDER and {*build.LINKED, *build.WIRE, *build.GRAPH} == {*ORDER}
    listed = {f"{folder}/{name}" for folder, names in build.SOURCES.items() for name in names}
    assert listed == {f"{path.parent.name}/{path.name}" for path in SOURCES.values()}


def test_names_have_one_place() -> None:
    """Law: nothing is defined twice, and all that is declared is defined."""
    assert not {n: files for n, files in definitions().items() if len(files) > 1}
    declared = VARIABLES | {n for path in HEADERS.values() for n in functions(path, False)}
    assert not declared - set(definitions()) - GENERATED


def test_headers_are_doors() -> None:
    """Law: a room has the doors of its header, too: what that includes, and what its inline
    functions call."""
    assert "control.h" in doors()["job/alarm"]["job/control"]
    assert "ftrma_failpoint_visit" in doors()["log/replay"]["job/killrules"]
    assert doors()["job/interrupt"]["job/control"] >= {"control.h", "ftrma_ctl"}


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_comes_back_to_itself(room: str) -> None:
    """Law: what a room uses does not use it in turn, over however many others."""
    way = circle_from(room)
    assert not way, [(a, b, sorted(doors()[a][b])) for a, b in pairwise(way)]


@pytest.mark.parametrize("name", SOURCES)
def test_folders_use_those_below(name: str) -> None:
    """Law: a file uses none of a folder above its own."""
    mine = level(SOURCES[name])
    assert not {o: sorted(w) for o, w in EDGES[name].items() if level(SOURCES[o]) < mine}


@pytest.mark.parametrize("path", [*SOURCES.values(), *HEADERS.values()], ids=lambda p: p.name)
def test_headers_come_from_below(path: Path) -> None:
    """Law: a file or header includes no header of a folder above its own."""
    assert not {name for name in includes_of(path) if level(HEADERS[name]) < level(path)}


@pytest.mark.parametrize("name", [n for n in HEADERS if n not in SHARED])
def test_headers_declare_what_their_source_defines(name: str) -> None:
    """Law: who looks for a function finds it beside its declaration."""
    path = HEADERS[name]
    group = GROUPS.get(name, {path.with_suffix(".c").name})
    declared = functions(path, with_body=False) | externs(path)
    strays = {n: definitions()[n] for n in declared if not definitions()[n] <= group}
    assert not strays
    assert not {s for n in declared for s in definitions()[n] if SOURCES[s].parent != path.parent}
