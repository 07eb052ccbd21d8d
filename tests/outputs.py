"""Names of output files that are refused, or written to, within a limit of time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftrma.host.outfile import check, write


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Whatever waits for ever fails."""
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def refused(name: str | Path, words: str) -> str:
    """A name is refused before the job and, as it has not changed, after it."""
    with pytest.raises(ValueError, match=words) as error:
        check("--stats", str(name))
    text = str(error.value)
    assert text.startswith(f"--stats {name}: ") and "\n" not in text and ";" in text
    with pytest.raises(OSError, match=words):
        write(str(name), ["x"])
    return text


def written(name: str | Path, text: str = "new\n") -> None:
    check("--stats", str(name))
    write(str(name), [text[:1], text[1:].encode()])


def tidy(directory: Path) -> bool:
    return not [p for p in directory.iterdir() if p.name.startswith(".")]
