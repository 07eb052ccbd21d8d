"""The house: which room may use which, and that no two modules use each other.

The folders of `ftrma` are its rooms, and the modules beside them are one more. A module imports
from rooms below its own, and from its own without a circle. Pure modules stay pure, and the checker
of traces uses nothing of what it checks.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tree import ROOT, statements

PACKAGE = ROOT / "ftrma"

# From the top down: the rooms. The front is what programs import: the modules beside the packages.
FRONT = "front"
ORDER = ("command", "launch", "frameworks", FRONT, "program", "protocol", "settings", "vault",
         "fabric", "trace", "reliability", "machine", "native", "host")
MOST_ROOMS = 14
MOST_DOORS = 48  # pairs of rooms of which one imports from the other
FRONT_MODULES = {"__init__", "__main__", "framework"}
LEVEL = {name: i for i, name in enumerate(ORDER)}
CALLERS = {"native.job", "native.logs", "native.vaults", "native.mirrored",
           "native.mail"}  # of functions in C
WIRE = "native.wire"  # of those in the library of agents, which it loads
WIRE_NUMBERS = "native.wireconstants"
# Callers of the library of vertex programs, which the first one loads.
KERNELS = "frameworks.graph.kernels"
EDGE_KERNELS = "frameworks.graph.edgekernels"
# By the build; they hold no code.
GENERATED = {"_declarations", "_wiredeclarations", "_kerneldeclarations"}
# All frameworks are one room, and so are the fronts beside it that their users import.
FRAMEWORKS = {path.parent.name for path in (PACKAGE / "frameworks").glob("*/__init__.py")}
DOOR = {FRONT, "host"}  # what they may use
# Frameworks that use modules of another one: graphs are the same for both.
BORROWED = {"aic": {f"frameworks.graph.{name}" for name in
                    ("cache", "data", "files", "generate", "kernels", "part_store", "parts",
                     "references", "runner", "runs")}}


def name_of(path: Path) -> str:
    *packages, stem = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(packages if stem == "__init__" and packages else [*packages, stem])


def imports_of(path: Path) -> set[str]:
    """Absolute names of all that a module imports, inside of functions too."""
    package = ["ftrma", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    text = path.read_text()
    nodes = ast.walk if "import_module" in text else statements
    for node in nodes(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return found


MODULES = {name_of(path): imports_of(path) for path in sorted(PACKAGE.rglob("*.py"))
           if path.stem not in GENERATED}


def used_by(name: str) -> set[str]:
    """Modules of ours that a module imports, or whose names it imports."""
    found = set()
    for imported in MODULES[name]:
        first, *parts = imported.split(".")
        if GENERATED & {*parts}:
            continue
        while parts and ".".join(parts) not in MODULES:
            parts.pop()
        if first == "ftrma":
            found.add(".".join(parts) or "__init__")
    return found - {name}


def room_of(name: str) -> str:
    first = name.split(".")[0]
    return FRONT if name in FRONT_MODULES else "frameworks" if first in FRAMEWORKS else first


def framework_of(name: str) -> str:
    """The framework that a module belongs to; "": to none."""
    first, *parts = name.split(".")
    return first if first in FRAMEWORKS else parts[0] if first == "frameworks" and parts else ""


def doors() -> set[tuple[str, str]]:
    """Pairs of rooms: a module of the first imports from the second."""
    found = {(room_of(name), room_of(other)) for name in MODULES for other in used_by(name)}
    return {(room, other) for room, other in found if room != other}


def users(target: str) -> set[str]:
    return {name for name, found in MODULES.items()
            if any(i == target or i.startswith(target + ".") for i in found)}


def test_the_order_is_complete() -> None:
    """Law: every room has its place, and the table names no other; the rooms are few."""
    assert {room_of(name) for name in MODULES} == set(ORDER)
    assert len(ORDER) <= MOST_ROOMS


def test_there_are_few_doors() -> None:
    """Law: a room uses few others, so that a change in one is felt in few."""
    assert len(doors()) <= MOST_DOORS


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down(name: str) -> None:
    """Law: a module imports from rooms below its own only, and from its own."""
    upward = {other for other in used_by(name)
              if LEVEL[room_of(other)] <= LEVEL[room_of(name)]
              and room_of(other) != room_of(name)}
    assert not upward, f"{name} imports {sorted(upward)}"


@pytest.mark.parametrize("name", [name for name in MODULES if framework_of(name)])
def test_frameworks_use_the_door(name: str) -> None:
    """Law: a framework uses the door and nothing else of the core, and no other framework but by
    the table."""
    borrowed = BORROWED.get(framework_of(name), set())
    for other in used_by(name):
        own = framework_of(other) == framework_of(name) or other in borrowed
        assert own or other == "frameworks" or room_of(other) in DOOR, other


def test_no_circles() -> None:
    """Law: no module uses itself by way of others."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in sorted(used_by(name)):
                visit(other, (*path, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


def test_only_native_knows_the_extension() -> None:
    """Law: the extension is loaded in one place, so that it interposes; its declarations are read
    there and where constants are derived from them."""
    assert users("ftrma._declarations") == {"native.loading", "native.constants"}
    assert users("ftrma.native.extension") == CALLERS | {"native.loading"}
    assert not users("ftrma._native")
    callers = {name_of(p) for p in PACKAGE.rglob("*.py")
               if re.search(r"\b(lib|ffi)\.(?!format)|\b_?lib\(\)\.", p.read_text())} - GENERATED
    assert callers == CALLERS | {"native.loading", WIRE, KERNELS, EDGE_KERNELS}
    openers = {name_of(p) for p in PACKAGE.rglob("*.py") if "dlopen(" in p.read_text()}
    assert openers - GENERATED == {"native.loading", WIRE, KERNELS}
    assert users("ftrma._wiredeclarations") == {WIRE_NUMBERS} and not users("ftrma._wire")
    assert users("ftrma.frameworks.graph._kerneldeclarations") == {KERNELS}


def test_only_the_loader_imports_mpi4py() -> None:
    """Law: whoever imports mpi4py too early breaks interposing."""
    assert users("mpi4py") <= {"native.loading", "__init__"}


def test_own_threads_are_told_from_those_of_the_program() -> None:
    """Law: whoever may run in a rank starts a Helper; another thread would be waited for when the
    program is entered again."""
    made = {name_of(path) for path in PACKAGE.rglob("*.py")
            if re.search(r"\bThread\(|start_new_thread\(", path.read_text())}
    theirs = {"frameworks.apgas.scheduler"}  # they run the program's tasks, and end with them
    assert made - {"program.threads"} - theirs == {"launch.hubconnector", "launch.standardinput"}


def test_pure_modules_stay_pure() -> None:
    """Law: what decides or computes needs nothing that touches processes, files or C."""
    for name in ("host.errors", "host.values", "host.version", "machine.interval", "fabric.story"):
        assert not used_by(name), name
    assert used_by("host.tomlfile") <= {"host.values"}
    for name in ("protocol.causal", "machine.topology"):
        assert used_by(name) <= {"native.constants", "native.shared"}, name
    assert used_by("program.state") <= {"host.errors"}
    assert used_by("vault.erasure") <= {"host.errors"}
    assert used_by("protocol.plan") <= {"host.errors", "native.constants", "native.shared",
                                        "protocol.job_end", "protocol.salvage", "protocol.seating"}
    assert used_by("protocol.seating") <= {"machine.placement", "machine.topology",
                                           "native.shared", "protocol.salvage"}
    assert used_by("launch.effectivetime") == {"fabric.story"}
    assert used_by("launch.stats") <= {"fabric.story", "machine.topology", "launch.effectivetime",
                                       "launch.stepcount"}
    assert used_by("launch.stepcount") == {"fabric.story"}
    assert used_by("machine.placement") <= {"machine.topology"}
    assert used_by("protocol.salvage") <= {"host.errors", "machine.topology", "native.shared"}


def test_the_checker_knows_nothing_of_what_it_checks() -> None:
    """Law: a trace is judged by what uses nothing of the library but the trace's format, and of
    the extension its declarations."""
    for name in MODULES:
        if room_of(name) == "trace":
            assert {room_of(other) for other in used_by(name)} <= {"trace", "host", "native"}


def test_the_calculator_needs_only_what_is_pure() -> None:
    """Law: failure probabilities are computed without a job."""
    for name in MODULES:
        if room_of(name) == "reliability":
            used = {room_of(other) for other in used_by(name)}
            assert used <= {"reliability", "host", "machine", "native"}, name
