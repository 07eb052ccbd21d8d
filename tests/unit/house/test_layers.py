"""The house: which package may use which, and that no two modules use each other.

The folders of `ftrma` are its architecture. A module imports from packages below its own, and from
its own package without a circle; what is pure, and what judges others, stays so.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tree import ROOT

PACKAGE = ROOT / "ftrma"

# From the top down: packages, and the modules beside them. The front is what users import.
ORDER = ("__main__", "command", "launch", "frameworks", "framework", "__init__", "program",
         "protocol", "settings", "vault", "fabric", "trace", "reliability", "machine", "native",
         "host", "state", "errors")
LEVEL = {name: i for i, name in enumerate(ORDER)}
CALLERS = {"native.job", "native.logs", "native.vaults", "native.mirrored"}  # of functions in C
WIRE = "native.wire"  # of those in the library of agents, which it loads
WIRE_NUMBERS = "native.wireconstants"
KERNELS = "frameworks.graph.kernels"  # of those in the library of vertex programs, which it loads
# By the build; they hold no code.
GENERATED = {"_declarations", "_wiredeclarations", "_kerneldeclarations"}
FRONT = "__init__"  # all may ask it for the version
# All frameworks are one room, and so are the fronts beside it that their users import.
FRAMEWORKS = {path.parent.name for path in (PACKAGE / "frameworks").glob("*/__init__.py")}
DOOR = {"framework", "errors", "host", FRONT}  # what they may use


def name_of(path: Path) -> str:
    *packages, stem = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(packages if stem == FRONT and packages else [*packages, stem])


def imports_of(path: Path) -> set[str]:
    """Absolute names of all that a module imports, inside of functions too."""
    package = ["ftrma", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
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
            found.add(".".join(parts) or FRONT)
    return found - {name}


def package_of(name: str) -> str:
    first = name.split(".")[0]
    return "frameworks" if first in FRAMEWORKS else first


def framework_of(name: str) -> str:
    """The framework that a module belongs to; "": to none."""
    first, *parts = name.split(".")
    return first if first in FRAMEWORKS else parts[0] if first == "frameworks" and parts else ""


def users(target: str) -> set[str]:
    return {name for name, found in MODULES.items()
            if any(i == target or i.startswith(target + ".") for i in found)}


def test_the_order_is_complete() -> None:
    """Law: every package and every module beside them has its place, and the table names no other;
    there are few enough to be looked at."""
    assert {package_of(name) for name in MODULES} == set(ORDER)
    assert len(ORDER) <= 18


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down(name: str) -> None:
    """Law: a module imports from packages below its own only, and from its own."""
    upward = {other for other in used_by(name) - {FRONT}
              if LEVEL[package_of(other)] <= LEVEL[package_of(name)]
              and package_of(other) != package_of(name)}
    assert not upward, f"{name} imports {sorted(upward)}"


@pytest.mark.parametrize("name", [name for name in MODULES if framework_of(name)])
def test_frameworks_use_the_door(name: str) -> None:
    """Law: a framework uses the door and nothing else of the core, and no other framework."""
    for other in used_by(name):
        own = framework_of(other) == framework_of(name)
        assert own or other == "frameworks" or package_of(other) in DOOR, other


def test_no_circles() -> None:
    """Law: no module uses itself by way of others (the front aside, whose version all may ask)."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in sorted(used_by(name) - {FRONT}):
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
               if re.search(r"\b(lib|ffi)\.(?!format)|\b_lib\(\)\.", p.read_text())} - GENERATED
    assert callers == CALLERS | {"native.loading", WIRE, KERNELS}
    openers = {name_of(p) for p in PACKAGE.rglob("*.py") if "dlopen(" in p.read_text()}
    assert openers - GENERATED == {"native.loading", WIRE, KERNELS}
    assert users("ftrma._wiredeclarations") == {WIRE_NUMBERS} and not users("ftrma._wire")
    assert users("ftrma.frameworks.graph._kerneldeclarations") == {KERNELS}


def test_only_the_loader_imports_mpi4py() -> None:
    """Law: whoever imports mpi4py too early breaks interposing."""
    assert users("mpi4py") <= {"native.loading", FRONT}


def test_own_threads_are_told_from_those_of_the_program() -> None:
    """Law: whoever may run in a rank starts a Helper; another thread would be waited for when the
    program is entered again."""
    made = {name_of(path) for path in PACKAGE.rglob("*.py")
            if re.search(r"\bThread\(|start_new_thread\(", path.read_text())}
    assert made - {"program.threads"} == {"launch.seeking", "launch.standardinput"}


def test_pure_modules_stay_pure() -> None:
    """Law: what decides or computes needs nothing that touches processes, files or C."""
    for name in ("errors", "host.values", "reliability.interval", "fabric.story"):
        assert not used_by(name), name
    assert used_by("host.tomlfile") <= {"host.values"}
    for name in ("protocol.causal", "machine.topology"):
        assert used_by(name) <= {"native.constants", "native.shared"}, name
    assert used_by("state") <= {"errors"} and used_by("vault.erasure") <= {"errors"}
    assert used_by("protocol.plan") <= {"errors", "native.constants", "native.shared",
                                        "protocol.job_end", "protocol.salvage", "protocol.seating"}
    assert used_by("protocol.seating") <= {"machine.placement", "machine.topology",
                                           "native.shared", "protocol.salvage"}
    assert used_by("launch.stats") <= {"fabric.story", "machine.topology"}
    assert used_by("machine.placement") <= {"machine.topology"}
    assert used_by("protocol.salvage") <= {"errors", "machine.topology", "native.shared"}


def test_the_checker_knows_nothing_of_what_it_checks() -> None:
    """Law: a trace is judged by what uses nothing of the library but the trace's format, and of
    the extension its declarations."""
    for name in MODULES:
        if package_of(name) == "trace":
            assert {package_of(other) for other in used_by(name)} <= {"trace", "host", "native"}


def test_the_calculator_needs_only_what_is_pure() -> None:
    """Law: failure probabilities are computed without a job."""
    for name in MODULES:
        if package_of(name) == "reliability":
            used = {package_of(other) for other in used_by(name)}
            assert used <= {"reliability", "host", "machine", "native", "errors", FRONT}, name
