"""State of a process beside shared memory: the page on C lists it, and who makes it new."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from csource import CSRC, SOURCES, code_of, items_of

import ftrma

HEADING = "## What a process keeps"
# Symbols of the compiler's own start files.
FOREIGN = {"completed", "__TMC_END__", "__dso_handle", "__cpu_model", "__cpu_features2"}


def declared(text: str) -> set[str]:
    """Variables of one declaration, without its semicolon; not functions, types, constants."""
    text = re.sub(r"__attribute__\s*\(\(.*\)\)", "", text)
    typed = r"_Atomic\(.*?\)|\b(?:struct|union|enum)\s*(?:\w+\s+(?=[\w*])|\{.*?\})"
    text = re.sub(typed, "int ", text)
    before = text.partition("=")[0]
    if re.search(r"\b(?:typedef|extern|_Static_assert|pthread_mutex_t)\b|\(", before):
        return set()
    if re.search(r"\*\s*const\b", before) or ("const" in before and "*" not in before):
        return set()
    text = re.sub(r"\[[^]]*\]|\{.*\}|\b(?:static|_Thread_local)\b", "", text, flags=re.S)
    first, *others = [part.partition("=")[0] for part in text.split(",")]
    words = re.findall(r"\w+", first)
    if len(words) < 2 or words[0] in ("struct", "union", "enum"):
        return set()
    return {words[-1], *(word for other in others for word in re.findall(r"\w+", other))}


def kept_in(code: str) -> set[str]:
    """Variables of a source that outlive a call."""
    found: set[str] = set()
    unnamed = False  # `static struct {...} name` comes in two
    for head, body in items_of(code):
        head = " ".join(head.split())
        if body and head.endswith(")"):
            for local in re.findall(r"\b(static\b[^;]*);", body):
                found |= declared(local)
        elif unnamed and re.fullmatch(r"\w+", head):
            found.add(head)
        else:
            found |= declared(head)
        unnamed = head == "static struct"
    return found


def told() -> dict[str, set[str]]:
    """The page's table, by source."""
    page = (CSRC / "README.md").read_text()
    section = page.partition(HEADING)[2].partition("\n## ")[0]
    found = defaultdict(set)
    for row in re.findall(r"(?m)^\|[^|]*\|([^|]*)\|$", section):
        for part in row.split(";"):
            source, _, names = part.partition(":")
            assert not set(re.findall(r"`(\w+)`", names)) & found[source.strip(" `")], part
            found[source.strip(" `")] |= set(re.findall(r"`(\w+)`", names))
    return {source: names for source, names in found.items() if names}


def test_declarations_are_read() -> None:
    """Law: what the other tests rest on finds variables, and nothing else."""
    assert declared("static int room, *list, sizes[4]") == {"room", "list", "sizes"}
    assert declared("static struct used *comms") == {"comms"}
    assert declared("_Thread_local int on __attribute__((tls_model(\"\")))") == {"on"}
    assert declared("_Atomic(const struct kernels *) chosen = &portable") == {"chosen"}
    assert declared("static int file = -1, own_slot = -1") == {"file", "own_slot"}
    assert declared("static enum { IDLE, DONE } state") == {"state"}
    for none in ("static const int sizes[] = {1}", "static int is_stale(MPI_Comm comm)",
                 "static const char *const names[] = {0}", "extern int ftrma_me", "struct bid"):
        assert not declared(none), none
    code = "static struct { int n; } told; int f(void) { static int seen; return seen++; }"
    assert kept_in(code) == {"told", "seen"}


def test_the_page_has_all_that_is_kept() -> None:
    """Law: no variable outlives a call of which the page does not say what makes it new."""
    kept = {name: kept_in(code_of(path)) for name, path in SOURCES.items()}
    assert told() == {name: found for name, found in kept.items() if found}


@pytest.mark.skipif(not shutil.which("nm"), reason="needs nm")
def test_the_library_keeps_nothing_else() -> None:
    """Law: the same of what was built, with the generated wrappers."""
    library = Path(ftrma.__file__).with_name("_native.so")
    table = subprocess.run(["nm", "-f", "sysv", "--defined-only", library], check=True, text=True,
                           capture_output=True).stdout
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]
    names = {row[0].partition(".")[0] for row in rows
             if len(row) == 7 and re.fullmatch(r"\.t?(?:bss|data)", row[-1])}
    locks = {"guard", "sorting", "alone", "writing", "opening", "converting", "handles", "listing"}
    assert "ftrma_event_clock" in names
    assert not names - FOREIGN - locks - {name for found in told().values() for name in found}
