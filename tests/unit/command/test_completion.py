"""Shells complete the words of ftrma, from the same tables as its help."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ftrma.command import cli, completion

pytestmark = pytest.mark.plain  # its tests take seconds

pytest.importorskip("argcomplete")
BIN = str(Path(sys.executable).parent)
LIMIT_S = 20
CASES = [
    ("ftrma ru", ["run"]), ("ftrma run --pol", ["--policy"]),
    ("ftrma run --policy ", ["auto", "causal", "rollback"]),
    ("ftrma run --policy c", ["causal"]), ("ftrma run --interval d", ["daly"]),
    ("ftrma run --timeout stu", ["stuck="]), ("ftrma run --signal U", ["USR1", "USR2"]),
    ("ftrma run -n ", []), ("ftrma run ", ["app.py", "folder/"]),
    ("ftrma run app.py d", ["data"]), ("ftrma run --topology da", ["data"]),
    ("ftrma run --spill ", ["folder/"]), ("ftrma run --config n", ["none"]),
    ("ftrma completion ", ["bash", "zsh", "fish"]), ("ftrma help opt", ["options"]),
    ("ftrma help rel", ["reliability"]), ("ftrma spill v", ["verify"]),
    ("ftrma run --xyz ", ["app.py", "folder/"]),
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").touch()
    Path("data").touch()
    Path("folder").mkdir()
    monkeypatch.setenv("PATH", BIN, prepend=os.pathsep)


def shell(*words: str) -> list[str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.split()


@pytest.mark.parametrize(("line", "words"), CASES)
def test_words(line: str, words: list[str]) -> None:
    """Law: options, words of options, files, directories and names are offered where they fit."""
    with open("told", "w") as told:
        subprocess.run(
            ["bash", "-c", 'ftrma 8>&1 9>/dev/null >/dev/null'], stdout=told, timeout=LIMIT_S,
            env={**os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line,
                 "COMP_POINT": str(len(line)), "_ARGCOMPLETE_COMP_WORDBREAKS": " ",
                 "_ARGCOMPLETE_SHELL": "bash", "COMP_TYPE": "9"})
    found = [word.strip() for word in Path("told").read_text().splitlines()]
    assert sorted(found) == sorted(words)


def test_bash() -> None:
    script = """eval "$(ftrma completion bash)"
COMP_LINE="ftrma run --pol" COMP_POINT=15 COMP_TYPE=9 COMP_WORDS=(ftrma run --pol) COMP_CWORD=2
_python_argcomplete ftrma; echo "${COMPREPLY[@]}"; complete -p ftrma"""
    found = shell("bash", "-c", script)
    assert found[0] == "--policy" and found[-1] == "ftrma" and "_python_argcomplete" in found


def test_fish() -> None:
    if not shutil.which("fish"):
        pytest.skip("no fish")
    script = 'ftrma completion fish | source; complete -C "ftrma run --policy "'
    assert shell("fish", "-N", "-c", script) == ["auto", "causal", "rollback"]


def test_zsh() -> None:
    if not shutil.which("zsh"):
        pytest.skip("no zsh")
    script = 'autoload -U compinit; compinit -u -D; eval "$(ftrma completion zsh)"; ' \
             'print $_comps[ftrma]'
    assert shell("zsh", "-f", "-c", script) == ["_python_argcomplete"]


@pytest.mark.parametrize(("words", "told"), [
    (["completion", "tcsh"], "completion tcsh: expected bash, zsh or fish"),
    (["completion"], "the following arguments are required"),
])
def test_no_such_shell(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2 and told in capsys.readouterr().err


def test_without_argcomplete(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: who lacks it is told what to install; a shell that asks gets no answer and no error."""
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.setitem(sys.modules, "argcomplete.shell_integration", None)
    with pytest.raises(SystemExit) as end:
        cli.main(["completion", "bash"])
    assert end.value.code == 2 and completion.LACKING in capsys.readouterr().err
    monkeypatch.setenv(completion.ASKED, "1")
    completion.answer(cli.build_parser())
