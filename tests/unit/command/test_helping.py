"""Manual pages and ``ftrma help`` say what the parser knows, and groff has no complaint."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ftrma.command import cli, helping, manpages

PARSER = cli.build_parser()
PAGES = manpages.pages(PARSER)


def commands() -> dict[str, argparse.ArgumentParser]:
    actions = manpages.subparsers(PARSER)
    assert actions
    return dict(actions.choices)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(list(words))
    said = capsys.readouterr()
    return int(str(end.value.code)), said.out, said.err


def test_each_command_has_a_page() -> None:
    """Law: all options of a command stand on its page, each once, with a text."""
    assert set(PAGES) == {"ftrma.1", *(f"ftrma-{name}.1" for name in commands())}
    for name, parser in commands().items():
        page = PAGES[f"ftrma-{name}.1"].replace("\\-", "-")
        for action in parser._actions:
            for flag in action.option_strings:
                found = re.findall(rf"(?m)^\.TP\n.*\\fB{re.escape(flag)}\\fR.*\n(.*)$", page)
                assert len(found) == 1 and found[0], (name, flag)
        assert f"ftrma-{name}(1)" in re.sub(r"\\f.", "", PAGES["ftrma.1"].replace("\\-", "-"))


@pytest.mark.parametrize("name", PAGES)
def test_groff_has_no_complaint(name: str) -> None:
    if not shutil.which("groff"):
        pytest.skip("no groff")
    done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8"], input=PAGES[name],
                          capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("words", "shown"), [
    ("a-b", "a\\-b"), ("a\\b", "a\\eb"), (".TH x", "\\&.TH x"), ("'so x", "\\&'so x"),
    ("a\n.b", "a\n\\&.b")])
def test_no_text_is_a_request(words: str, shown: str) -> None:
    assert manpages.text(words) == shown


def test_pages_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Law: all pages are there, and whole."""
    assert call(capsys, "help", "--man", str(tmp_path))[0] == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == PAGES


def test_pages_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Law: one message with the remedy, and nothing is written."""
    status, out, err = call(capsys, "help", "--man", str(tmp_path / "no"))
    assert (status, out) == (2, "") and "no: there is no such directory; make it first" in err
    assert "leave out run" in call(capsys, "help", "run", "--man", str(tmp_path))[2]
    (tmp_path / "ftrma-run.1").mkdir()
    status, out, err = call(capsys, "help", "--man", str(tmp_path))
    assert status == 2 and err.count("\n") == 1 and "is a directory" in err
    assert os.listdir(tmp_path) == ["ftrma-run.1"]


def test_what_there_is_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: each command and each page is listed, and printed by its name; no two share one."""
    status, out, _ = call(capsys, "help")
    names = re.findall(r"(?m)^  (\S+) ", out)
    names = [name for name in names if not name.startswith("ftrma")]
    assert status == 0 and names == [*commands(), *helping.pages()]
    assert len(names) == len(set(names))
    page = call(capsys, "help", "options")[1]
    assert page == helping.shown(helping.pages()["options"].read_text())
    assert call(capsys, "help", "halt")[1].startswith("usage: ftrma halt")


@pytest.mark.parametrize(("word", "told"), [
    ("optoins", "did you mean options?"), ("runn", "did you mean run?"),
    ("zzzzz", "'ftrma help' lists what there is"), ("../options", "did you mean options?"),
    ("", "the value is empty")])
def test_what_there_is_not(capsys: pytest.CaptureFixture[str], word: str, told: str) -> None:
    status, out, err = call(capsys, "help", word)
    assert (status, out) == (2, "") and told in err and err.count("\n") == 1
