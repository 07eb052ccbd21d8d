"""Orders of memory on which protocols of shared words rely, as litmus tests (`tests/litmus`).

Law: each names the source that it stands for and says what becomes of it. Where herd7 is installed
(https://github.com/herd/herdtools7; ``HERD7`` may name it, with its arguments), its model of C11
says the same.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tree import ROOT, TESTS

LITMUS = sorted((TESTS / "litmus").glob("*.litmus"))
HERD = shlex.split(os.environ.get("HERD7", "herd7"))


def expected(path: Path) -> str:
    """The verdict that a test gives in its comment."""
    found = re.findall(r"\b(Never|Sometimes)\.", path.read_text())
    assert len(found) == 1, path
    return found[0]


@pytest.mark.parametrize("path", LITMUS, ids=lambda path: path.stem)
def test_sources_are_there(path: Path) -> None:
    """Law: a litmus test has its file's name, and names sources of this tree."""
    text = path.read_text()
    assert text.startswith(f"C {path.stem}\n") and expected(path)
    named = re.findall(r"\b((?:csrc|ftrma)/[\w/]+\.(?:c|h|py))", text)
    assert named and all((ROOT / name).exists() for name in named)


def test_words_are_sequentially_consistent() -> None:
    """Law: the orders of `LOAD`, `STORE` and `ftrma_load` are those of the tests."""
    internal = (ROOT / "csrc/internal.h").read_text()
    for name, does in (("LOAD", "load"), ("STORE", "store")):
        line = next(each for each in internal.splitlines() if each.startswith(f"#define {name}("))
        assert f"__atomic_{does}_n" in line and "__ATOMIC_SEQ_CST" in line
    control = (ROOT / "csrc/job/control.c").read_text()
    body = control.partition("uint64_t ftrma_load(")[2].partition("}")[0]
    assert "__atomic_thread_fence(__ATOMIC_ACQ_REL)" in body


@pytest.mark.skipif(not shutil.which(HERD[0]), reason="herd7 is not installed")
@pytest.mark.parametrize("path", LITMUS, ids=lambda path: path.stem)
def test_verdicts(path: Path) -> None:
    """Law: the model of C11 says of each test what its comment says."""
    done = subprocess.run([*HERD, "-model", "rc11.cat", str(path)], text=True,
                          capture_output=True, timeout=60)
    assert f"Observation {path.stem} {expected(path)} " in done.stdout, done.stdout + done.stderr
