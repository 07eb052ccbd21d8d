"""Commands that are refused in one line, run in a directory with files of all kinds.

Most run in this process, others as a user would start them. A case that takes long fails: bad input
is refused and not worked on.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftrma.command import cli

LIMIT_S = 15  # none takes more than 4 s on two cores
MANY = "9" * 400
HUGE = "9" * 5000  # more digits than Python converts
NAME = "n" * 300  # longer than a file's may be
SURROGATE = "caf\udce9"  # a byte of the command line that is not UTF-8

BASE = {"--machine": "tsubame2", "--ranks": "4000", "--checksums": "200"}
PLAN = {"--machine": "tsubame2", "--ranks": "4000", "--memory": "2GiB", "--target-pcf": "1e-5",
        "--mtbf": "36000"}


class TooLong(BaseException):
    """A command took longer than bad input may."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory with files of all kinds, an environment without options, a time limit."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FTRMA_")]:
        monkeypatch.delenv(name)
    Path("app.py").write_text("raise SystemExit(0)\n")
    Path("dir").mkdir()
    os.mkfifo("fifo")
    os.mkfifo("fifo.svg")
    Path("link").symlink_to("link")
    Path("link.svg").symlink_to("link.svg")
    Path("empty").touch()
    Path("file").write_text("x")

    def handler(*_: object) -> None:
        raise TooLong

    old = signal.signal(signal.SIGALRM, handler)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def refused(
    capsys: pytest.CaptureFixture[str], words: list[str], *told: str, status: int = 2
) -> str:
    """Run a command that must be refused in one line, which contains what is told."""
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (status, ""), said.err
    _, error = re.fullmatch("(usage: .*\n)?(.*\n)", said.err).groups()  # type: ignore[union-attr]
    return one_line(error, *told)


def one_line(err: str, *told: str) -> str:
    assert err.startswith("ftrma: error: ") and err.count("\n") == 1 and err.endswith("\n"), err
    assert len(err) < 1300 and "Traceback" not in err and "Errno" not in err, err
    for words in told:
        assert shown(words) in err, err
    return err


def shown(value: str) -> str:
    """A value as a line shows it: its beginning if it is long, no control characters."""
    value = value.replace("\n", "\\n").replace("\0", "\\x00").replace("\udce9", "\\xe9")
    return value if len(value) <= 100 else value[:90]


def process(words: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, with a time limit."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [str(Path(sys.executable).with_name("ftrma")), *words],
        text=True, timeout=LIMIT_S, **{**options, **more},
    )


def words_of(values: dict[str, str]) -> list[str]:
    return [word for flag, value in values.items()
            for word in ([f"{flag}={value}"] if value else [flag, ""])]
