"""Each value of a run comes from the strongest source that gives it, and it is known from which."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tree import ROOT

from ftrma.command import cli
from ftrma.host import timeouts
from ftrma.settings import configuration
from ftrma.settings.configuration import Configuration, configure

HOME = "home/.config/ftrma"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory with an empty home in it."""
    monkeypatch.chdir(tmp_path)
    Path(HOME).mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith("FTRMA_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def found(environ: dict[str, str] | None = None, config: str | None = None,
          **words: str) -> Configuration:
    return configure(words, {**os.environ, **(environ or {})}, config)


def write(text: str, path: str = "ftrma.toml") -> None:
    Path(path).write_text(f"[run]\n{text}\n")


def test_each_source_beats_the_next() -> None:
    """Law: command line, environment, the directory's file, the user's file, default."""
    sources = []
    for give in (lambda: None, lambda: write("spares = 2", f"{HOME}/ftrma.toml"),
                 lambda: write("spares = 3"), lambda: os.environ.update(FTRMA_SPARES="4")):
        give()
        now = found()
        source = now.sources.get("spares")
        sources.append((now.options.spares, source.source if source else "default"))
    now = found(spares="5")
    sources.append((now.options.spares, now.sources["spares"].source))
    del os.environ["FTRMA_SPARES"]
    assert sources == [
        (1, "default"), (2, f"{Path.cwd()}/{HOME}/ftrma.toml:2:1"), (3, "ftrma.toml:2:1"),
        (4, "environment: FTRMA_SPARES"), (5, "command line")]


def test_files_are_merged_key_by_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Law: what the stronger file does not say the weaker one may; XDG_CONFIG_HOME leads to it,
    unless it is relative."""
    (tmp_path / "x/ftrma").mkdir(parents=True)
    write('policy = "causal"\nspares = 2', "x/ftrma/ftrma.toml")
    write("spares = 0\nquiet = true\nkill = ['1@put:3', 'c0@sum']\ninterval = 2.5")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "x"))
    options = found().options
    assert (options.policy, options.spares, options.quiet) == ("causal", 0, True)
    assert [rule.text for rule in options.kill] == ["1@put:3", "c0@sum"]
    assert options.interval == 2.5
    monkeypatch.setenv("XDG_CONFIG_HOME", "x")
    assert found().options.policy == "auto"


def test_one_file_in_place_of_both() -> None:
    """Law: --config, or its variable, names the one file that is read, or none."""
    write("spares = 2")
    write("spares = 3", "other.toml")
    assert found(config="other.toml").options.spares == 3
    assert found({"FTRMA_CONFIG": "other.toml"}).options.spares == 3
    assert found({"FTRMA_CONFIG": "other.toml"}, "none").options.spares == 1
    with pytest.raises(ValueError, match=r"lost.toml: cannot be read: No such file"):
        found(config="lost.toml")


@pytest.mark.parametrize(("text", "told"), [
    ("spare = 2", "2:1: unknown key 'spare'; did you mean spares?"),
    ("log_budget = 2", "2:1: unknown key 'log_budget'; did you mean log-budget?"),
    ("n = 4", "2:1: unknown key 'n'; "),
    ("spares = -1", "2:1: spares -1: expected a whole number, 0 or more"),
    ("\nspares = 1.5", "3:1: spares 1.5: expected a whole number"),
    ("spares = [1, true]", "2:1: spares: expected a number, true, false or a string"),
    ("spares = 1979-05-27", "2:1: spares: expected a number, true, false or a string"),
    ("spares = {a = 1}", "2:1: spares: expected a number, true, false or a string"),
    ("trace = ''", "2:1: trace: the value is empty"),
    ("kill = []", "2:1: kill: the value is empty"),
    ("quiet = 2", "2:1: quiet 2: expected yes or no"),
    ("spares = true", "2:1: spares yes: expected a whole number"),
    ("[timeouts]\nstuk = 3", "3:1: unknown key 'stuk'; did you mean stuck?"),
    ("[timeouts]\nstuck = 0", "3:1: timeouts stuck 0: expected seconds, 0.001 or more"),
    ("timeout = 'stuck=3'", "2:1: unknown key 'timeout'"),
    ("spares =", "not valid TOML"), ("[more]", "2:1: unknown key 'more'"),
])
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    """Law: a wrong value is refused, even if a stronger source has a right one."""
    write(text)
    with pytest.raises(ValueError) as error:
        found({"FTRMA_SPARES": "1"}, spares="1")
    assert str(error.value).startswith("ftrma.toml:") and told in str(error.value)
    assert "\n" not in str(error.value)


def test_time_outs_are_merged_one_by_one() -> None:
    """Law: each has a source of its own; a contradiction names it."""
    write("[timeouts]\nstuck = 2\nlate = 2\nalone = 2\nsplit = 2", f"{HOME}/ftrma.toml")
    write("[timeouts]\nlate = 3\nalone = 3\nsplit = 3")
    now = configure({"timeout": ["split=5"]}, {**os.environ, "FTRMA_TIMEOUT": "alone=4 split=4"})
    assert now.options.timeout == {"stuck": 2.0, "late": 3.0, "alone": 4.0, "split": 5.0}
    assert [now.sources[name].source.rpartition("/")[2] for name in now.options.timeout] == [
        "ftrma.toml:3:1", "ftrma.toml:3:1", "environment: FTRMA_TIMEOUT", "command line"]
    assert now.where("--timeout late=3: too short") == " (late in ftrma.toml:3:1)"


def test_a_contradiction_names_all_places(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: options of one source that contradict each other are told with their places."""
    write("quiet = true\nverbose = true")
    Path("app.py").touch()
    with pytest.raises(SystemExit) as end:
        cli.main(["run", "-n", "2", "app.py"])
    err = capsys.readouterr().err
    assert end.value.code == 2 and err.count("\n") == 1
    assert err.endswith("(quiet in ftrma.toml:2:1; verbose in ftrma.toml:3:1)\n")


def test_the_stronger_of_two_opposites_wins() -> None:
    """Law: who asks for verbose lines on the command line gets them, whatever a file says."""
    write("quiet = true")
    options = found(verbose="yes").options
    assert options.verbose and not options.quiet
    options = found({"FTRMA_VERBOSE": "yes"}, quiet="yes").options
    assert options.quiet and not options.verbose
    assert found({"FTRMA_VERBOSE": "no"}).options.quiet


def test_a_file_that_others_can_write_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a file that is found is read only if it is the user's or root's; one that is named is
    the user's choice."""
    write("spares = 2")
    os.chmod("ftrma.toml", 0o646)
    with pytest.raises(ValueError, match=r"^\./ftrma.toml: everybody may write to it, .*--config"):
        found()
    assert found(config="./ftrma.toml").options.spares == 2
    os.chmod("ftrma.toml", 0o664)
    assert found().options.spares == 2
    if os.geteuid() == 0:
        os.chown("ftrma.toml", 1234, -1)
        with pytest.raises(ValueError, match="belongs to user 1234"):
            found()
        os.remove("ftrma.toml")
        write("spares = 2", "theirs")
        os.symlink("theirs", "ftrma.toml")
        os.lchown("ftrma.toml", 1234, -1)
        with pytest.raises(ValueError, match="belongs to user 1234"):
            found()


@pytest.mark.parametrize("make", [
    lambda: os.mkdir("ftrma.toml"), lambda: os.mkfifo("ftrma.toml"),
    lambda: os.symlink("ftrma.toml", "ftrma.toml"), lambda: os.symlink("lost", "ftrma.toml"),
])
def test_what_is_no_file_is_refused(make: object) -> None:
    make()  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"^\./ftrma.toml: .*give --config none"):
        found()


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20)


@example(1, "daly", False, '\x7f\t"\\\u2028', "1@put:3")
@given(st.integers(0, 9), st.sampled_from(["daly", "never", "2.5"]), st.booleans(), TEXTS,
       st.sampled_from(["1@put:3", "1@put:3 c0@sum"]))
def test_what_is_shown_is_a_file(
    spares: int, interval: str, verbose: bool, trace: str, kill: str
) -> None:
    """Law: --show-config prints a file that gives the same options."""
    words = {"spares": str(spares), "interval": interval, "trace": trace, "kill": kill,
             "verbose": "yes" if verbose else "no"}
    first = configure(words, {})
    text = "\n".join(first.lines())
    Path("shown").write_bytes(text.encode())
    second = configure({}, {}, "shown").options
    assert second.timeout == {name: row.default_s for name, row in timeouts.TABLE.items()}
    second.timeout = {}
    assert second == first.options


def test_show_config(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: each option is shown with its source, and nothing runs."""
    write("mtbf = 60")
    with pytest.raises(SystemExit) as end:
        cli.main(["run", "-n", "3", "--show-config", "no.py"])
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code == 0
    assert {tuple(line.split("  # ")) for line in lines} >= {
        (f"{'slots = 3':<32}", "command line"), (f"{'mtbf = 60.0':<32}", "ftrma.toml:2:1"),
        (f"{'# topology is not given':<32}", "default")}
    assert len(lines) == 3 + len(configuration.OPTIONS) + len(timeouts.TABLE)


def test_the_page_s_file_is_right() -> None:
    """Law: the file that the page of configuration shows is read without a complaint."""
    page = (ROOT / "ftrma/docs/configuration.md").read_text()
    (text,) = re.findall(r"(?ms)^```toml\n(.*?)^```", page)
    Path("ftrma.toml").write_text(text)
    now = found()
    assert now.options.slots == 4 and now.options.verbose and now.options.timeout == {"stuck": 10.0}
    (shown,) = re.findall(r"(?ms)^\$ FTRMA_MTBF=600 ftrma run .*?\n(.*?)^```", page)
    now = found({"FTRMA_MTBF": "600"}, "none", spares="2")
    assert [line for line in now.lines() if "default" not in line] == shown.splitlines()
