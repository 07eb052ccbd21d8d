"""A program is found and started as Python does it."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ftrma.host.programwords import check
from ftrma.program.script import UserProgram

SHOW = """
import json, sys
from os import getcwd
print(json.dumps([__name__, __file__, str(__package__), getattr(__spec__, "name", None), sys.argv,
                  sys.path[0], type(__loader__).__name__, __doc__, __cached__,
                  sorted(k for k in globals() if k.startswith("__"))]))
"""
OURS = """
import sys
from ftrma.program.script import UserProgram
del sys.path[0]
mine = UserProgram(sys.argv[1:])
mine.add_to_path()
mine.run()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    for name in ("pkg/__main__.py", "pkg/mod.py", "app.py", "plain", "latin.py"):
        (tmp_path / name).write_text(SHOW)
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\n# \xe4\n" + SHOW.encode())
    (tmp_path / "link").symlink_to(tmp_path / "pkg")
    (tmp_path / "link.py").symlink_to(tmp_path / "pkg" / "mod.py")
    py_compile.compile(str(tmp_path / "app.py"), str(tmp_path / "compiled.pyc"))
    with zipfile.ZipFile(tmp_path / "packed.pyz", "w") as packed:
        packed.writestr("__main__.py", SHOW)
    return tmp_path


def shown(home: Path, *words: str) -> list:
    ended = subprocess.run([sys.executable, *words], cwd=home, capture_output=True, text=True,
                           timeout=30)
    assert ended.returncode == 0, ended
    return json.loads(ended.stdout)


@pytest.mark.parametrize("words", [
    ["app.py"], ["app.py", "-m", "x"], ["pkg/mod.py"], ["plain"], ["latin.py"], ["link/mod.py"],
    ["link.py"], ["compiled.pyc"], ["-m", "pkg"], ["-m", "pkg.mod", "a", "-b"], ["-m", "app"],
    ["packed.pyz", "x"],
])
def test_as_python_does(home: Path, words: list[str]) -> None:
    """Law: a program sees the same names, arguments and path as under ``python WORDS``."""
    expected, found = shown(home, *words), shown(home, "-c", OURS, *words)
    if words[0] == "packed.pyz":  # by runpy, which names it in full and has its own names
        expected, found = [expected[0]], [found[0]]
    elif words[0] == "-m":
        expected[9] = found[9] = None
    else:
        expected[9] = [n for n in expected[9] if n != "__annotations__"]
        found[9] = [n for n in found[9] if n != "__annotations__"]
    assert found == expected


def test_it_is_found_again(home: Path, monkeypatch: pytest.MonkeyPatch,
                           capsys: pytest.CaptureFixture[str]) -> None:
    """Law: a program that changes its directory is found at its next entry."""
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    mine = UserProgram(["app.py", "x"])
    for directory in (home, "/"):
        os.chdir(directory)
        mine.run()
    first, again = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == again and first[1] == str(home / "app.py") and first[4] == ["app.py", "x"]


def test_what_is_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    for mine in (UserProgram(["app.py"]), UserProgram(["-m", "pkg.mod"])):
        assert mine.owns(str(home / "app.py")) and mine.owns(str(home / "pkg" / "mod.py"))
        for other in (None, "", "<string>", str(home) + "2/app.py", os.__file__, __file__,
                      str(home / "venv/lib/python3/site-packages/x.py"), str(home / "x.so")):
            assert not mine.owns(other)
    monkeypatch.chdir("/")
    root = UserProgram(["-m", "pkg"])
    assert not root.owns(os.__file__) and root.owns("/x.py")


@pytest.mark.parametrize("words, why", [
    (["none.py"], "no script none.py: give the path"), (["pkg"], "script pkg: Is a directory"),
    (["-m", "pkg.none"], "-m pkg.none: no such module in pkg; name"),
    (["-m", "app.py"], "-m app.py: no such module, since app is no package"),
    (["-m", ".mod"], "-m .mod: no such module; name"), (["-m", "json"], "without a __main__"),
])
def test_what_is_not_there(home: Path, words: list[str], why: str) -> None:
    with pytest.raises(ValueError) as error:
        check(words, str(home))
    assert why in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("words", [
    ["app.py"], ["plain"], ["-m", "pkg"], ["-m", "pkg.mod"], ["-m", "json.tool"], ["-m", "timeit"],
])
def test_what_is_there(home: Path, words: list[str]) -> None:
    """Law: it is found without importing anything."""
    (home / "pkg" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    check(words, str(home))
    assert not {name for name in sys.modules if name.partition(".")[0] == "pkg"}
