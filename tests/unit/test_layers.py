"""The order of the modules: each imports only from below, and the edges are kept to few."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "ftrma"

# From the top down; modules of one line know nothing of each other.
LAYERS = [
    {"__main__", "cli"},
    {"reliability"},
    {"tracecheck"},
    {"doctor"},
    {"demo"},
    {"supervisor"},
    {"launch"},
    {"failover"},
    {"switchboard"},
    {"__init__"},
    {"runner"},
    {"session", "job"},
    {"exchange"},
    {"checkpoint", "demand"},
    {"recovery", "retrieval"},
    {"spread"},
    {"group", "salvage", "tracereplay"},
    {"settings", "vault", "traceattempt"},
    {"world", "link", "tracecut"},
    {"tracefile", "_mpi", "state", "stats", "placement", "topologyfile", "mpirun"},
    {"leftover", "guardian"},
    {"program", "slate"},
    {"topology", "erasure", "tomlfile", "library", "private", "record"},
    {"interval", "atomics", "causal", "ends", "key", "lineoutput", "nodedirectory", "outfile",
     "standardinput", "threads"},
    {"errors"},
]
LEVEL = {name: i for i, names in enumerate(LAYERS) for name in names}
# The package's front reads the version and the errors from no module above it.
FRONT = "__init__"


def imports_of(path: Path) -> set[str]:
    """Absolute names of all that a module imports, inside of functions too."""
    package = ["ftrma", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {node.module or ""} | {f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(
                [*package[: len(package) + 1 - node.level], *filter(None, [node.module])]
            )
            found |= {base} if node.module else {f"{base}.{a.name}" for a in node.names}
            # From a package, what is named may be a module of it.
            found |= {f"{base}.{a.name}" for a in node.names if base.count(".") == 1}
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return found


# The build writes _declarations.py, which holds no code.
MODULES = {path.stem: imports_of(path) for path in sorted(PACKAGE.glob("*.py"))
           if path.stem != "_declarations"}  # fmt: skip
# A package within counts as one module; its own order is below.
RELIABILITY = {path.stem: imports_of(path) for path in sorted(PACKAGE.glob("reliability/*.py"))}
MODULES["reliability"] = set().union(*RELIABILITY.values())
RELIABILITY_LAYERS = [
    {"command"},
    {"plots"},
    {"report"},
    {"provision", "simulate"},
    {"model"},
    {"machine"},
    {"history"},
    {"distribution"},
    {"__init__"},
]


def inner(name: str) -> set[str]:
    """Modules of the package that a module imports."""
    names = {i.split(".")[1] for i in MODULES[name] if i.startswith("ftrma.")}
    return {n if n in MODULES else FRONT for n in names} - {name, "_declarations"}


def test_every_module_has_its_layer() -> None:
    """Law: the table above is complete and names no module that is gone or to come, except those
    announced by the command line."""
    assert set(MODULES) <= set(LEVEL)
    assert set(LEVEL) - set(MODULES) <= {"demo", "doctor"}


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down(name: str) -> None:
    """Law: a module imports only modules of lower layers. (The package's front may be asked for
    its version by all.)"""
    upward = {other for other in inner(name) - {FRONT} if LEVEL[other] <= LEVEL[name]}
    assert not upward, f"{name} imports {sorted(upward)}"


def test_no_cycles() -> None:
    """Law: the import graph, without the front, has no cycle."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in sorted(inner(name) - {FRONT}):
                visit(other, (*path, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


def users(target: str) -> set[str]:
    return {name for name, found in MODULES.items()
            if any(i == target or i.startswith(target + ".") for i in found)}  # fmt: skip


def test_only_the_loader_knows_the_extension() -> None:
    """Law: the extension and its declarations are loaded by _mpi alone, so that it interposes."""
    assert users("ftrma._declarations") == {"_mpi"} and not users("ftrma._native")
    openers = {p.stem for p in PACKAGE.glob("*.py") if "dlopen(" in p.read_text()}
    assert openers - {"_declarations"} == {"_mpi"}


def test_only_the_loader_imports_mpi4py() -> None:
    """Law: whoever imports mpi4py too early breaks interposing; only _mpi and the front may."""
    assert users("mpi4py") <= {"_mpi", FRONT}


def test_pure_modules_stay_pure() -> None:
    """Law: placement and errors need nothing of the package; codes, state and statistics know
    neither processes nor files."""
    assert not inner("topology") and not inner("errors") and not inner("tomlfile")
    assert inner("state") <= {"errors"} and inner("stats") <= {"topology"}
    assert inner("placement") <= {"topology"} and inner("erasure") <= {"errors"}
    assert not inner("interval") and not inner("atomics")
    assert inner("tracefile") <= {"outfile", "tomlfile"}


def test_the_checker_knows_nothing_of_what_it_checks() -> None:
    """Law: a trace is judged by modules that use nothing of the library but the trace's format."""
    assert inner("tracecheck") <= {"tracecut", "traceattempt", "tracereplay", "tracefile"}
    assert inner("tracereplay") <= {"traceattempt", "tracecut", "tracefile"}
    assert inner("traceattempt") <= {"tracecut", "tracefile"}
    assert inner("tracecut") <= {"tracefile"}


@pytest.mark.parametrize("name", RELIABILITY)
def test_reliability_has_an_order_too(name: str) -> None:
    """Law: within the package imports go down; it needs of the rest only what is pure."""
    level = {module: i for i, names in enumerate(RELIABILITY_LAYERS) for module in names}
    assert set(level) == set(RELIABILITY)
    below = {i.split(".")[2] for i in RELIABILITY[name] if i.startswith("ftrma.reliability.")}
    assert all(level[other] > level[name] for other in below & set(RELIABILITY)), below
    assert inner("reliability") <= {"interval", "outfile", "tomlfile", "topology", "errors"}
