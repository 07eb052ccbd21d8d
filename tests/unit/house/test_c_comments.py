"""Comments of C begin with their subject or verb: a reader need not look elsewhere for either."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from csource import CSRC

# Beginnings that leave out a noun or a verb, or point at a sentence that is elsewhere.
REFUSED = re.compile(r"(?:The same|Of|What|As|Where|Whether|How|Who|Whom|Whose|That|So|Such)\b")
FILES = {str(path.relative_to(CSRC)): path for path in sorted(CSRC.rglob("*.[ch]"))}


def comments_of(path: Path) -> list[str]:
    """The comments that stand on lines of their own, each on one line."""
    found = re.findall(r"(?ms)^[ \t]*/\*(.*?)\*/", path.read_text())
    return [" ".join(re.sub(r"\n\s*\*", "\n", text).split()) for text in found]


@pytest.mark.parametrize("name", FILES)
def test_comments_begin_well(name: str) -> None:
    """Law: no comment on a line of its own begins with one of the refused words."""
    assert not [text for text in comments_of(FILES[name]) if REFUSED.match(text)]


@pytest.mark.parametrize("name", FILES)
def test_files_say_what_they_are(name: str) -> None:
    """Law: each file begins with a comment, of which the first sentence is at most two lines."""
    text = comments_of(FILES[name])[0]
    assert FILES[name].read_text().startswith("/*")
    assert len(re.split(r"(?<=[.:;])\s", text)[0]) <= 200
