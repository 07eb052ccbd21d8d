"""Orders of memory on which protocols of shared words rely, as litmus tests (`tests/litmus`).

Law: each names the source that it stands for and says what becomes of it. Where herd7 is installed
(https://github.com/herd/herdtools7; ``HERD7`` may name it, with its arguments), its model says the
same: that of C11, and, for the instructions that gcc makes of C, that of AArch64.
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

LITMUS = sorted((TESTS / "litmus").rglob("*.litmus"))
CROSS = "aarch64-linux-gnu-gcc"
HERD = shlex.split(os.environ.get("HERD7", "herd7"))


def name_of(path: Path) -> str:
    return path.stem if path.parent.name == "litmus" else f"{path.parent.name}-{path.stem}"


def language(path: Path) -> str:
    return "C" if path.parent.name == "litmus" else "AArch64"


def expected(path: Path) -> str:
    """The verdict that a test gives in its comment."""
    found = re.findall(r"\b(Never|Sometimes)\.", path.read_text())
    assert len(found) == 1, path
    return found[0]


@pytest.mark.parametrize("path", LITMUS, ids=name_of)
def test_sources_are_there(path: Path) -> None:
    """Law: a litmus test has its file's name, and names sources of this tree."""
    text = path.read_text()
    assert text.startswith(f"{language(path)} {path.stem}\n") and expected(path)
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
@pytest.mark.parametrize("path", LITMUS, ids=name_of)
def test_verdicts(path: Path) -> None:
    """Law: the model says of each test what its comment says."""
    model = ["-model", "rc11.cat"] if language(path) == "C" else []  # else that of the processor
    done = subprocess.run([*HERD, *model, str(path)], text=True, capture_output=True, timeout=60)
    assert f"Observation {path.stem} {expected(path)} " in done.stdout, done.stdout + done.stderr


def test_both_languages_say_the_same() -> None:
    """Law: what is never in C is never in the instructions either; they have all tests of C but
    one, which has no instruction for a load and a store in one."""
    c, ours = ({path.stem: expected(path) for path in LITMUS if language(path) == of}
               for of in ("C", "AArch64"))
    assert c.keys() - ours.keys() == {"broken-stored"}
    assert all(ours[name] == verdict for name, verdict in c.items() if name in ours)


# Instructions for memory in the order in which gcc 12 has them, by function.
COMPILED = {
    "announce": ("STORE(a, 1); return LOAD(b);", ["stlr", "ldar"]),
    "again": ("__atomic_thread_fence(__ATOMIC_ACQ_REL); return LOAD(a);", ["dmb ish", "ldar"]),
    "seats": ("uint64_t at = LOAD(a), table = *b; __atomic_thread_fence(__ATOMIC_ACQUIRE);"
              " return table + (LOAD(a) != at);", ["ldar", "ldr", "dmb ishld", "ldar"]),
    "record": ("*b = 1; __atomic_store_n(a, 1, __ATOMIC_RELEASE); return 0;", ["str", "stlr"]),
    "noted": ("__atomic_store_n(a, 1, __ATOMIC_RELEASE); __atomic_thread_fence(__ATOMIC_RELEASE);"
              " *b = 1; return 0;", ["stlr", "dmb ish", "str"]),
    "rung": ("__atomic_add_fetch(a, 1, __ATOMIC_SEQ_CST); return LOAD(b);", ["ldaddal", "ldar"]),
    "reason": ("return __atomic_fetch_or(a, 8, __ATOMIC_SEQ_CST);", ["ldsetal"]),
}


@pytest.mark.skipif(not shutil.which(CROSS), reason=f"{CROSS} is not installed")
def test_instructions(tmp_path: Path) -> None:
    """Law: the compiler makes of the orders in C the instructions of the tests for AArch64."""
    source, made = tmp_path / "orders.c", tmp_path / "orders.s"
    source.write_text('#include "internal.h"\n' + "".join(
        f"uint64_t {name}(uint64_t *a, uint64_t *b);\n"
        f"uint64_t {name}(uint64_t *a, uint64_t *b) {{ (void)b; {body} }}\n"
        for name, (body, _) in COMPILED.items()))
    subprocess.run([CROSS, "-std=gnu11", "-O2", "-march=armv8.1-a", f"-I{ROOT / 'csrc'}", "-S",
                    str(source), "-o", str(made)], check=True, timeout=60)
    for name, (_, wanted) in COMPILED.items():
        body = made.read_text().partition(f"\n{name}:\n")[2].partition("\tret\n")[0]
        found = re.findall(r"\t(ldar|stlr|ldr|str|ldaddal|ldsetal|dmb\tish(?:ld)?)\b", body)
        assert [each.replace("\t", " ") for each in found] == wanted, (name, body)
