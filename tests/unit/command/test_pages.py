"""The pages for users: drawings, names, options, and the site that mkdocs makes of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tree import ROOT

from ftrma.command import cli, drawings, helping, manpages, reference

PAGES = helping.pages()
DRAWINGS = [pytest.param(title, text, id=f"{name}-{title}") for name, path in PAGES.items()
            for title, text in drawings.drawings_in(path.read_text())]
# Options on the pages that are not ftrma's.
FOREIGN = {
    "--host", "--hostfile", "--map-by", "--mca", "--prtemca", "--shm-size", "--cap-add",
    "--exclude", "--points", "--pages", "--depth", "--time", "--nodes", "--requeue", "--open-mode",
    "--no-kill", "--overlap",
}


def test_no_page_is_left_out() -> None:
    """Law: each page is in a group, once, so that the list and the site have it."""
    names = [name for group in helping.groups().values() for name in group]
    assert sorted(names) == sorted(path.stem for path in helping.DOCS.glob("*.md"))


def test_the_pages_have_drawings() -> None:
    """Law: layers, a checkpoint, a repair and a replay are drawn."""
    assert {"architecture", "checkpoints", "repair", "replay"} <= {
        name for name, path in PAGES.items() if drawings.drawings_in(path.read_text())}


@pytest.mark.parametrize(("title", "text"), DRAWINGS)
def test_a_drawing_has_all_of_its_text(title: str, text: str) -> None:
    """Law: a drawing is whole XML, its words are those of the text, in order, and boxes close."""
    found = ElementTree.fromstring(drawings.svg(title, text))
    shown = [node.text or "" for node in found.iter() if node.tag == "text"]
    words = re.findall(r"\w[\w.,:()]*", text)
    assert re.findall(r"\w[\w.,:()]*", " ".join(shown)) == [w for w in words if w not in ("v", "X")]
    boxes = [len(line) for line in text.splitlines() if re.match(r"[+|].*[+|]$", line)]
    assert len(set(boxes)) <= 1
    assert found.find("title").text == title  # type: ignore[union-attr]


@pytest.mark.parametrize(("text", "drawn"), [
    ("a-b", 0), ("--spill DIR", 0), ("-->", 3), ("|", 1), ("x|y", 0), ("+--", 3), ("* X", 2),
    ("5*3 MAX", 0), ("<--", 3), ("-", 0), ("## 2", 2), ("#1", 0)])
def test_words_are_no_lines(text: str, drawn: int) -> None:
    """Law: dashes, bars and letters of words stay text."""
    grid = [text]
    assert sum(bool(drawings.element(grid, x, 0, c)) for x, c in enumerate(text)) == drawn


def test_charts_are_true() -> None:
    """Law: a bar is as long as its number, and the number is in a table of the page."""
    page = PAGES["figures"].read_text()
    tables = " ".join(line for line in page.splitlines() if line.startswith("|"))
    charts = drawings.drawings_in(page)
    assert len(charts) >= 5
    for title, text in charts:
        bars = []
        for line in text.splitlines():
            row = re.search(r"(#*) ([\d.]+)(?: to ([\d.]+))?$", line)
            assert row, (title, line)
            numbers = [number for number in row.groups()[1:] if number]
            bars.append((len(row[1]), sum(map(float, numbers)) / len(numbers)))
            for number in numbers:
                whole = rf"(?<![\d.]){re.escape(number)}(?![.\d]*\d)"
                assert re.search(whole, tables), (title, line)
        longest, most = max(bars)
        assert all(abs(value / most * longest - length) <= 1 for length, value in bars), title


def test_a_corner_by_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2, column 3: a corner where no line ends"):
        drawings.svg("t", "--\n  +\n")


@pytest.mark.parametrize("module", reference.MODULES)
def test_each_public_name_is_told(module: str) -> None:
    """Law: a module's page has each public name, with its docstring."""
    page = reference.page(module)
    for word in reference.public(reference.found(module)):
        heading = f"## {module.removeprefix('ftrma.')}.{word}\n"
        assert heading in page, word
        body = page.split(heading)[1].split("\n## ")[0].strip()
        assert len(body.splitlines()) > 1 or body.startswith("`"), word
    assert "``" not in page and "::" not in page


def test_names_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: a module, a function, a class and a method are printed by their names."""
    for name, told in [("ftrma", "## ftrma.protect"), ("ftrma.protect", "Declare local variables"),
                       ("ftrma.graph.Engine", "recovery: str = 'lwlog'"),
                       ("ftrma.graph.Engine.run", "# ftrma.graph.Engine.run")]:
        with pytest.raises(SystemExit) as end:
            cli.main(["help", name])
        assert end.value.code == 0
        assert told in capsys.readouterr().out


@pytest.mark.parametrize(("name", "hint"), [
    ("ftrma.protct", "did you mean ftrma.protect?"),
    ("ftrma.graph._x", "did you mean ftrma.graph?"),
    ("ftrma.graph.Engine.nothing", "did you mean ftrma.graph.Engine?")])
def test_names_that_are_not_there(capsys: pytest.CaptureFixture[str], name: str, hint: str) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["help", name])
    assert end.value.code == 2 and hint in capsys.readouterr().err


def test_a_terminal_is_told_where_to_go_on() -> None:
    """Law: what is a path in the sources is a command in a terminal, and a drawing has no fence."""
    text = "See `ftrma/docs/files.md`, `ftrma/README.md`.\n```drawing Title\n--->\n```\n\n`a\\|b`"
    assert helping.shown(text) == (
        "See `ftrma help files`, `ftrma/README.md`.\n\n--->\n\n`a|b`")


def test_wide_tables_are_lists() -> None:
    """Law: a row that a terminal would break becomes lines, with all of its words."""
    text = "| a | b | c |\n|---|---|---|\n| `x\\|y` | one two three | |\n| z | four | five |\n"
    assert helping.shown(text, 80) == text.replace("\\|", "|")
    assert helping.shown(text, 20) == (
        "(a, b, c)\n\n`x|y`\n      b: one two\n      three\nz\n      b: four\n      c: five\n")


@pytest.mark.parametrize("name", PAGES)
def test_no_word_is_lost_in_a_terminal(name: str) -> None:
    """Law: no row of a table is wider than 100 characters, and each word of a page is shown."""
    text = PAGES[name].read_text()
    shown = helping.shown(text)
    assert all(len(line) <= 100 for line in shown.splitlines() if line.startswith("|"))
    words = re.findall(r"\w+", re.sub(r"ftrma/docs/([\w-]+)\.md", r"ftrma help \1", text))
    assert {*words} - {"drawing"} <= {*re.findall(r"\w+", shown), *re.findall(
        r"\w+", " ".join(title for title, _ in drawings.drawings_in(text)))}


@pytest.mark.parametrize("name", sorted({*PAGES} - {"figures"}))  # which has those of bench
def test_options_are_there(name: str) -> None:
    """Law: an option that a page names in backticks is one of some command's, or of others'."""
    actions = manpages.subparsers(cli.build_parser())
    assert actions
    known = {flag for parser in actions.choices.values() for action in parser._actions
             for flag in action.option_strings}
    quoted = re.findall(r"`[^`\n]*`", re.sub(r"(?ms)^```.*?^```$", "", PAGES[name].read_text()))
    named = {flag for word in quoted for flag in re.findall(r"(?<![\w-])--\w[\w-]*", word)}
    assert not named - known - FOREIGN


@pytest.mark.full
def test_the_site_is_made(tmp_path: Path) -> None:
    """Law: mkdocs has no complaint, each page is there, and each path of a page became a link."""
    pytest.importorskip("mkdocs")
    config = ROOT / "ftrma" / "docs" / "site" / "mkdocs.yml"
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(config), "-d",
                           str(tmp_path / "site")], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for name in (*PAGES, *reference.MODULES):
        text = (tmp_path / "site" / f"{name}.html").read_text()
        text = re.sub(r"(?s)<pre>.*?</pre>", "", text)
        assert "ftrma/docs/" not in text and "\\|" not in text, name
    assert (tmp_path / "site" / "checkpoints.html").read_text().count("<svg") >= 1
