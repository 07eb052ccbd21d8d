"""The example of `ftrma/docs/add-an-engine.md`, as a library beside that of the wire."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tree import ROOT, TESTS

from ftrma.native import wire

NAME = "simple"
SOURCE = TESTS / "c" / "engine_simple.c"
COMPILER = shlex.split(os.environ.get("CC") or "cc")
LIMIT_S = 300


def build(folder: Path) -> Path:
    """Compile the example in a folder; where there is no compiler, skip the test."""
    if shutil.which(COMPILER[0]) is None:
        pytest.skip("no C compiler")
    library, beside = folder / f"engine_{NAME}.so", wire.LIBRARY.parent
    command = [*COMPILER, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
               f"-I{ROOT / 'csrc' / 'wire'}", f"-I{ROOT / 'csrc'}", str(SOURCE), "-o", str(library),
               f"-L{beside}", f"-l:{wire.LIBRARY.name}", f"-Wl,-rpath,{beside}"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert built.returncode == 0, built.stderr
    return library
