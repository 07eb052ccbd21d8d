"""The pages of the project say what is there: files, functions, options, and their own counts."""

from __future__ import annotations

import argparse
import re
from functools import cache

import pytest
from tree import ROOT

from ftrma.command import cli
from ftrma.settings import options as settings

FRONT = "README.md"
MOST_LINES = 220  # of the front page
# The folders that explain themselves.
ROOMS = ("ftrma", "ftrma/frameworks/graph",
         "ftrma/frameworks/apgas", "ftrma/frameworks/aic", "ftrma/launch", "ftrma/protocol",
         "ftrma/reliability", "ftrma/trace", "csrc", "bench", "tests")
DOCS = "ftrma/docs"  # pages about all rooms
PAGES = (FRONT, *(f"{room}/README.md" for room in ROOMS),
         *(f"{DOCS}/{path.name}" for path in sorted((ROOT / DOCS).glob("*.md"))))
GLOSSARY = f"{DOCS}/glossary.md"
OPTIONS = f"{DOCS}/options.md"
MOST_NOUNS = 15
TOPS = ("csrc", "ftrma", "bench", "tests", "models", ".ci")
GENERATED = {"ftrma/_declarations.py", "ftrma/_wiredeclarations.py",
             "ftrma/frameworks/graph/_kerneldeclarations.py"}
WALK = "ftrma/docs/put.md"
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def text(page: str) -> str:
    return (ROOT / page).read_text()


def quoted(page: str) -> set[str]:
    """Everything in backticks, fenced blocks aside."""
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text(page))))


@cache
def functions() -> set[str]:
    """Names that are followed by a parenthesis in some source."""
    files = [*(ROOT / "csrc").rglob("*.[ch]"), *(ROOT / "ftrma").rglob("*.py")]
    return {name for path in files for name in re.findall(r"\b(\w+)\(", path.read_text())}


def run_options() -> dict[str, argparse.Action]:
    """Options of ``ftrma run``, as its help shows them."""
    commands = next(action for action in cli.build_parser()._actions if action.dest == "command")
    known = commands.choices["run"]._option_string_actions  # type: ignore[index]
    return {flag: known[flag] for flag in known if flag not in ("-h", "--help", "-m")}


def table(page: str = OPTIONS) -> dict[str, str]:
    """Rows of a page's table of options, by option."""
    rows = [line for line in text(page).splitlines() if line.startswith("| `-")]
    return {row.split("`")[1].split()[0]: row for row in rows}


def test_the_front_page_is_short() -> None:
    """Law: who wants to know what this is has a few pages to read."""
    assert len(text(FRONT).splitlines()) <= MOST_LINES


def test_the_front_page_links_nowhere() -> None:
    """Law: it is shown where the source tree is not, so it names other pages by their path."""
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", text(FRONT))


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_explain_themselves(room: str) -> None:
    """Law: each has its page, and the front page leads there."""
    assert (ROOT / room / "README.md").is_file()
    assert f"{room}/README.md" in quoted(FRONT)


def test_all_pages_are_known() -> None:
    """Law: no page escapes these tests."""
    paths = [ROOT / FRONT, *(path for top in TOPS for path in (ROOT / top).rglob("*.md"))]
    assert {str(path.relative_to(ROOT)) for path in paths} == set(PAGES)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(DOCS)])
def test_the_front_page_leads_to_each_task(page: str) -> None:
    """Law: a page that belongs to no room is named on the front page."""
    assert page in quoted(FRONT)


def test_the_glossary_is_short() -> None:
    """Law: a reader has few words to learn before the code can be read."""
    nouns = re.findall(r"(?m)^\*\*(\w+)\.\*\*", text(GLOSSARY))
    assert 0 < len(nouns) <= MOST_NOUNS
    assert len(nouns) == len(set(nouns))


def test_every_module_is_named_on_a_page() -> None:
    """Law: who looks for a module's purpose finds it without opening the module."""
    pages = "".join(text(page) for page in PAGES)
    for path in (ROOT / "ftrma").rglob("*.py"):
        name = str(path.relative_to(ROOT))
        assert path.stem.startswith("_") or name in pages, name


@pytest.mark.parametrize("page", PAGES)
def test_named_files_are_there(page: str) -> None:
    """Law: a path in backticks that begins with a folder of the project exists."""
    words = {word for word in quoted(page) if re.fullmatch(r"[\w.-]+/[\w./-]*", word)}
    paths = {word for word in words if word.partition("/")[0] in TOPS}
    assert paths or page == FRONT
    assert not {path for path in paths - GENERATED if not (ROOT / path).exists()}


@pytest.mark.parametrize("page", PAGES)
def test_named_functions_are_there(page: str) -> None:
    """Law: a function that a page of ours names is somewhere in the sources."""
    names = {match[1] for word in quoted(page) if (match := re.fullmatch(r"(\w+)\(\)", word))}
    assert not names - functions()


def test_the_walk_counts_its_files() -> None:
    """Law: a heading that counts files counts those that are named below it."""
    counted = 0
    for section in re.split(r"(?m)^#+ ", text(WALK))[1:]:
        heading, _, body = section.partition("\n")
        if match := re.search(r": (\d+) files$", heading):
            named = re.findall(r"`((?:csrc|ftrma)/[\w/]+\.(?:c|h|py))`", body)
            assert len(set(named)) == int(match[1]), heading
            counted += 1
    assert counted == 3


def test_the_calls_upward_are_counted() -> None:
    """Law: the page of C names every function that it calls Python by, and says how many."""
    header = (ROOT / "csrc/ftrma.h").read_text()
    setters = set(re.findall(r"void (ftrma_set_\w+)\(ftrma_\w+_function ", header))
    (paragraph,) = re.findall(r"(?ms)^\*\*Calls upward\.\*\*.*?$\n$", text("csrc/README.md"))
    assert set(re.findall(r"`(ftrma_set_\w+)\(\)`", paragraph)) == setters
    assert f"by {NUMBERS[len(setters)]} function pointers" in paragraph


def test_the_table_has_every_option() -> None:
    """Law: what ``ftrma run -h`` shows is in the table, and nothing else is."""
    assert set(table()) == set(run_options())


def test_the_front_page_has_rows_of_the_table() -> None:
    """Law: who reads the front page reads of an option what the page of options says."""
    front, whole = table(FRONT), table()
    assert front and {flag: whole.get(flag) for flag in front} == front


def test_options_without_a_twin_are_told() -> None:
    """Law: the page of options names those that cannot be given in the environment."""
    without = set(run_options()) - {option.flag for option in settings.OPTIONS}
    without -= {"--config"}  # FTRMA_CONFIG, which is no option of a job
    assert without == {"--resume", "--stats", "--show-config"}
    words = " ".join(text(OPTIONS).split())
    assert "`--resume` and `--stats` have none, nor has `--show-config`" in words


def test_the_table_has_the_choices() -> None:
    """Law: where an option takes one of several words, the table has them all."""
    for flag, action in run_options().items():
        words = set(re.findall(r"\w[\w-]*", str(action.metavar or "")))
        assert words <= set(re.findall(r"\w[\w-]*", table()[flag])), flag
