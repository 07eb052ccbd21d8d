"""The page of shared words has each word of the control file once.

Law: a field of the three structs in ``csrc/shared.h`` stands in the first column of one row of its
section in ``ftrma/docs/words.md``, and nothing else does.
"""

from __future__ import annotations

import re

import pytest
from csource import CSRC, code_of
from tree import ROOT

PAGE = (ROOT / "ftrma/docs/words.md").read_text()


def fields(struct: str) -> list[str]:
    """The names of a struct's fields in ``shared.h``."""
    body = re.search(rf"struct {struct} {{(.*?)}};", code_of(CSRC / "shared.h"), re.S)
    assert body
    found = []
    for line in body[1].split(";"):
        found += re.findall(r"(\w+)\s*(?:\[\w+\])?\s*(?:,|$)", line.strip())
    return found


def rows(struct: str) -> list[str]:
    """The words of the first column in a struct's section."""
    section = PAGE.partition(f"`struct {struct}`\n")[2].partition("\n## ")[0]
    found = []
    for line in section.splitlines():
        if line.startswith("| `"):
            assert line.count(" | ") == 3 or line.endswith(" | |"), line
            found += re.findall(r"`(\w+)`", line.split(" | ")[0])
    return found


@pytest.mark.parametrize("struct", ["ftrma_ctl", "ftrma_proc", "ftrma_slot"])
def test_each_word_has_a_row(struct: str) -> None:
    assert len(fields(struct)) > 15
    assert sorted(rows(struct)) == sorted(fields(struct))
