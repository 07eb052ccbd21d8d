"""Inputs of C that others have written, at random and at edges, under sanitizers.

The wire (csrc/wire/) gets messages as from somebody who has the key, on all its sides; the reader
of edge lists (csrc/graph/text.c) gets texts that are almost ones.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tree import ROOT

COMPILER = shlex.split(os.environ.get("CC") or "cc")
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
         "-fno-sanitize-recover=all"]
LIMIT_S = 300
SEED = int(os.environ.get("FTRMA_FUZZ_SEED", "1"))

pytestmark = pytest.mark.skipif(shutil.which(COMPILER[0]) is None, reason="no C compiler")


def build(tmp_path: Path, name: str, folder: Path, sources: list[Path]) -> Path:
    program = tmp_path / name
    command = [*COMPILER, *FLAGS, f"-I{folder}", f"-I{folder.parent}", *map(str, sources),
               str(ROOT / "tests" / "c" / f"{name}.c"), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert built.returncode == 0, built.stderr
    return program


def run(program: Path, *words: object) -> None:
    # An address sanitizer must come first among the libraries: nothing may be preloaded.
    environ = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True,
                          timeout=LIMIT_S, env=environ)
    assert done.returncode == 0, (words, done.stdout, done.stderr)


def wire(tmp_path: Path) -> Path:
    folder = ROOT / "csrc" / "wire"
    second = ROOT / "tests" / "c" / "engine_simple.c"
    return build(tmp_path, "fuzz_wire", folder, [*sorted(folder.glob("*.c")), second])


@pytest.mark.full
def test_messages_that_nobody_should_send(tmp_path: Path) -> None:
    """Law: none is written from outside of what it is about, and no reply is believed that cannot
    be: an agent, a hub, a spoke and an origin, over each engine, with the same seed each time."""
    run(wire(tmp_path), tmp_path, SEED, 60_000)


@pytest.mark.nightly
def test_many_messages_that_nobody_should_send(tmp_path: Path) -> None:
    program = wire(tmp_path)
    for seed in range(SEED, SEED + 10):
        run(program, tmp_path, seed, 100_000)


@pytest.mark.full
def test_texts_that_are_almost_edge_lists(tmp_path: Path) -> None:
    folder = ROOT / "csrc" / "graph"
    run(build(tmp_path, "fuzz_text", folder, [folder / "text.c"]), SEED, 100_000)
