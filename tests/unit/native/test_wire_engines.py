"""A second engine of the wire: the page ``ftrma/docs/add-an-engine.md``, step by step.

The example is compiled into a library of its own, which is loaded beside the wire's and registers
itself there, in the process of the tests and in the agents that these start.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import exampleengine
import pytest
from exampleengine import LIMIT_S
from tree import ROOT

from ftrma.host.errors import FtrmaError
from ftrma.native import wire

WIRE = ROOT / "csrc" / "wire"
# Laws of accesses, numbers, origins, doors, the mirror, and private memory; of agents that die.
LAWS = ("test_wire_origin", "test_wire_mirror", *(
    pytest.param(laws, marks=pytest.mark.nightly) for laws in (
        "test_wire", "test_wire_resent", "test_wire_numbers", "test_wire_door",
        "test_wire_private", "test_wire_shared", "test_wire_sums", "test_agent")))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of the example."""
    return exampleengine.build(tmp_path_factory.mktemp("engine"))


def with_example(example: Path, *command: str, **environ: str) -> str:
    """Run a command of Python with the example loaded; what it says."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT,
                          timeout=LIMIT_S,
                          env={**os.environ, "LD_PRELOAD": str(example), **environ})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_an_engine_registers_itself(example: Path) -> None:
    """Law: an engine is there as soon as its library is loaded, and chosen by its name."""
    assert wire.engines() == ["tcp"] and wire.engine() == "tcp"
    code = "from ftrma.native import wire; print(wire.engines(), wire.engine())"
    found = with_example(example, "-c", code, **{wire.ENGINE: exampleengine.NAME})
    assert found.split("\n")[0] == "['tcp', 'simple'] simple"


def test_an_engine_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: who asks for it learns which ones there are."""
    monkeypatch.setenv(wire.ENGINE, "pigeons")
    with pytest.raises(FtrmaError, match=f"{wire.ENGINE}=pigeons: use one of tcp"):
        wire.engine()


@pytest.mark.full
@pytest.mark.parametrize("laws", LAWS)
def test_the_laws_hold_over_it(example: Path, laws: str) -> None:
    """Law: the wire's tests run over each engine that C knows, and hold for the example."""
    path = next((ROOT / "tests").rglob(f"{laws}.py"))
    said = with_example(example, "-m", "pytest", "-p", "no:cacheprovider", str(path), "-k",
                        exampleengine.NAME)
    assert int(re.findall(r"(\d+) passed", said)[0]) > 0


@pytest.mark.full
def test_a_put_and_a_get_over_it(example: Path) -> None:
    """Law: the first of these laws, for whoever does not wait for all of them."""
    path = ROOT / "tests" / "unit" / "native" / "test_wire.py"
    with_example(example, "-m", "pytest", "-p", "no:cacheprovider", str(path), "-k",
                 "simple and test_what_is_put_is_got")


def test_the_page_names_all_operations() -> None:
    """Law: the example defines each operation of the table, and what the page names is there."""
    table = re.search(r"struct ftrma_engine_ops \{(.*?)\n\};", (WIRE / "engine.h").read_text(),
                      re.S)
    assert table
    operations = set(re.findall(r"\(\*(\w+)\)\(", table[1]))
    example = exampleengine.SOURCE.read_text()
    assert operations == set(re.findall(r"(?m)^    \.(\w+) = simple_", example))
    page = (ROOT / "ftrma" / "docs" / "add-an-engine.md").read_text()
    sources = "".join(path.read_text() for path in [*WIRE.glob("*.[ch]"), WIRE.parent / "build.py"])
    for name in re.findall(r"`(ftrma_\w+|FTRMA_WIRE_REQUESTS|SOURCES|adopt|disconnect)\b", page):
        assert name in sources, name
    assert wire.ENGINE in page
    rules = set(re.findall(r"(?m)^\* `(\w+)`", page))
    assert rules and rules < operations
