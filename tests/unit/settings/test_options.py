"""Options: their parsing, their environment twins, which of them wins."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.command import cli
from ftrma.machine.topology import make_layout
from ftrma.native.constants import CHECKSUM, FAILPOINTS, SLOT, SPARE
from ftrma.settings import options as settings
from ftrma.settings.killrules import KillRule
from ftrma.settings.options import Options, from_environment, to_environment

LETTERS = {"": SLOT, "c": CHECKSUM, "s": SPARE}
NAMED = [*sorted(set(FAILPOINTS) - {"time"}), "graph.emit", "a_b.at-end"]
RULES = st.builds(
    lambda letter, index, place, at: f"{letter}{index}@{place}" + (f":{at}" if at else ""),
    st.sampled_from(sorted(LETTERS)), st.integers(0, 99), st.sampled_from(NAMED),
    st.integers(0, 10**6),
)


@given(st.sampled_from(sorted(LETTERS)), st.integers(0, 10**4), st.sampled_from(NAMED),
       st.integers(1, 10**9))
def test_kill_rule_is_read_as_written(letter: str, index: int, place: str, at: int) -> None:
    """Law: role by letter, number, place and count are those of the text; the count is 1 if left
    out."""
    rule = KillRule.parse(f"{letter}{index}@{place}:{at}")
    assert (rule.role, rule.index, rule.place, rule.at) == (LETTERS[letter], index, place, at)
    assert KillRule.parse(f"{letter}{index}@{place}").at == 1


def test_time_is_given_in_seconds() -> None:
    """Law: the place "time" counts milliseconds."""
    assert KillRule.parse("1@time:2.5").at == 2500
    assert KillRule.parse("c0@time").at == 1000


@pytest.mark.parametrize(
    "text",
    ["", "1", "1@", "@fence", "1@lunch", "x1@fence", "-1@fence", "1@fence:", "1@fence:-1",
     "1@fence:0", "1@fence:1.5", "1@fence:two", "1.5@fence", "1@fence:1.2.3", "1@FENCE", "c@fold",
     "1@time:1.2.3", "1@fence 2", " 1@fence", "1@ring.", "1@.send", "1@a.b.c",
     "1@ring.a_place_whose_name_is_too_long"],
)
def test_bad_kill_rule_is_named(text: str) -> None:
    """Law: a ValueError with the rule and with what was expected."""
    with pytest.raises(ValueError) as error:
        KillRule.parse(text)
    assert f"--kill {text}: " in str(error.value)
    assert any(w in str(error.value) for w in ("expected", "must be", "is not a number"))


def test_kill_rule_for_nobody_is_named() -> None:
    """Law: a rule for a role that the layout lacks says which there are."""
    layout = make_layout(3, group_size=2, spares=0)
    for text in ("0@end", "2@end", "c0@sum", "c1@sum"):
        KillRule.parse(text).check(layout)
    for text, have in (("3@end", "0 to 2"), ("c2@sum", "0 to 1"), ("s0@start", "none")):
        with pytest.raises(ValueError, match=f"--kill {text}: there is no .*{have}"):
            KillRule.parse(text).check(layout)


OPTIONS = st.builds(
    Options,
    slots=st.none() | st.integers(1, 500), checksums=st.none() | st.integers(1, 99),
    group_size=st.none() | st.integers(1, 255), spares=st.integers(0, 9),
    interval=st.sampled_from(["daly", "never"]) | st.floats(0, 1e6), mtbf=st.floats(1e-3, 1e9),
    max_relaunch=st.integers(0, 9), kill=st.lists(RULES.map(KillRule.parse), max_size=3),
    quiet=st.booleans(), verbose=st.booleans(), log_file=st.sampled_from(["", "a log"]),
    timeout=st.dictionaries(st.sampled_from(["stuck", "late", "own-end"]), st.floats(1e-3, 1e9)),
    job=st.sampled_from(["", "/dev/shm/ftrma-0-00000000"]),
)


@given(OPTIONS)
def test_environment_carries_all_options(options: Options) -> None:
    """Law: from_environment(to_environment(x)) = x, whatever else the environment holds."""
    environment = {"HOME": "/", "FTRMA_UNKNOWN": "1", **to_environment(options)}
    assert dataclasses.asdict(from_environment(environment)) == dataclasses.asdict(options)
    assert all(isinstance(v, str) and k.startswith("FTRMA_")
               for k, v in to_environment(options).items())


def test_every_option_has_its_twin() -> None:
    """Law: each field of Options except the job's directory is in the table, once, under names
    that belong together."""
    attributes = [option.attribute for option in settings.OPTIONS]
    inner = {"job", "spill_entry"}
    assert sorted(attributes) == sorted({f.name for f in dataclasses.fields(Options)} - inner)
    for option in settings.OPTIONS:
        assert option.variable == f"FTRMA_{option.attribute.upper()}"
        assert option.flag in ("-n", "--" + option.attribute.replace("_", "-"))


@pytest.mark.parametrize("name", [option.variable for option in settings.OPTIONS])
def test_empty_variable_is_none(name: str) -> None:
    """Law: an empty variable means the default."""
    assert from_environment({name: ""}) == Options()


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("100", 100), ("100B", 100), ("512K", 512 << 10), ("64MiB", 64 << 20), ("1.5g", 3 << 29)],
)
def test_size(text: str, size_bytes: int) -> None:
    assert settings.size(text) == size_bytes


WRONG = [
    ("-n", "FTRMA_SLOTS", "0"), ("-n", "FTRMA_SLOTS", "2.5"), ("-n", "FTRMA_SLOTS", "many"),
    ("--checksums", "FTRMA_CHECKSUMS", "0"), ("--group-size", "FTRMA_GROUP_SIZE", "-1"),
    ("--spares", "FTRMA_SPARES", "-1"), ("--spares", "FTRMA_SPARES", "one"),
    ("--interval", "FTRMA_INTERVAL", "-1"), ("--interval", "FTRMA_INTERVAL", "nan"),
    ("--interval", "FTRMA_INTERVAL", "inf"), ("--interval", "FTRMA_INTERVAL", "Daly"),
    ("--mtbf", "FTRMA_MTBF", "0"), ("--mtbf", "FTRMA_MTBF", "1 h"),
    ("--max-relaunch", "FTRMA_MAX_RELAUNCH", "-1"), ("--kill", "FTRMA_KILL", "1@lunch"),
    ("--log-budget", "FTRMA_LOG_BUDGET", "64MB"), ("--log-budget", "FTRMA_LOG_BUDGET", "iB"),
]


@pytest.mark.parametrize(("option", "name", "value"), WRONG)
def test_wrong_value_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, option: str, name: str, value: str
) -> None:
    """Law: a ValueError begins with the name under which the value was given, the variable's or the
    option's, and the value, and says what is expected."""
    with pytest.raises(ValueError) as error:
        from_environment({name: value})
    assert str(error.value).startswith(f"{name} {value}: expected ")
    for other in settings.OPTIONS:
        monkeypatch.delenv(other.variable, raising=False)
    arguments = cli.build_parser().parse_args(
        ["run", f"{option}={value}", "app.py"] if option != "-n" else ["run", "-n", value, "app.py"]
    )
    with pytest.raises(ValueError) as error:
        cli.configuration_of(arguments)
    assert str(error.value).startswith(f"{option} {value}: expected ")


def test_command_line_beats_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: option by option, the command line wins over the environment, this over the default."""
    given_ = {"FTRMA_SLOTS": "7", "FTRMA_SPARES": "3", "FTRMA_INTERVAL": "never",
              "FTRMA_KILL": "1@fence", "FTRMA_JOB": "/somewhere"}
    for known in settings.OPTIONS:
        monkeypatch.delenv(known.variable, raising=False)
    for name, value in given_.items():
        monkeypatch.setenv(name, value)
    parse = cli.build_parser().parse_args
    options = cli.configuration_of(parse([
        "run", "--spares", "0", "--kill", "0@put", "--kill", "c0@sum", "--interval", "2.5",
        "app.py", "--spares", "9"])).options
    assert (options.slots, options.spares, options.interval) == (7, 0, 2.5)
    assert [rule.text for rule in options.kill] == ["0@put", "c0@sum"]
    assert options.mtbf == Options().mtbf and options.job == ""
    plain = cli.configuration_of(parse(["run", "app.py"])).options
    assert (plain.slots, plain.spares, [r.text for r in plain.kill]) == (7, 3, ["1@fence"])


def test_arguments_of_the_program_are_its_own() -> None:
    """Law: whatever follows the script goes to the script, options too."""
    arguments = cli.build_parser().parse_args(["run", "-n", "2", "app.py", "-n", "5", "--x", "y"])
    assert arguments.slots == "2" and arguments.arguments == ["-n", "5", "--x", "y"]


@pytest.mark.parametrize("words", [
    ["app.py", "-m", "x"], ["-m", "pkg.app", "-n", "5", "-m", "x", "--spares"], ["-m", "pkg"],
    ["app.py", "--", "x"], ["app.py", "x", "--", "y"], ["app.py", "--"], ["app.py", "--", "--"],
    ["-m", "pkg", "--", "x"], ["-m", "pkg", "x", "--", "app.py", "--"],
])
def test_words_of_the_program(words: list[str]) -> None:
    """Law: a module is named by -m in a script's place, and has all that follows."""
    arguments = cli.parse(["run", "-n", "2", "--spares", "3", *words])
    assert (arguments.slots, arguments.spares) == ("2", "3")
    assert cli.words_of(arguments) == words


def test_a_module_may_be_named_behind_its_letter() -> None:
    assert cli.words_of(cli.parse(["run", "-n", "2", "-mpkg"])) == ["-m", "pkg"]


def test_missing_slots_are_asked_for() -> None:
    """Law: without -n the message says what is missing."""
    with pytest.raises(ValueError, match="-n is missing"):
        Options().layout()


@given(st.integers(1, 60), st.integers(0, 4))
def test_processes_of_another_launcher_fit(slots: int, spares: int) -> None:
    """Law: as many processes as the layout needs give it; one more or fewer is told with all
    numbers and the remedy."""
    needed = slots + 1 + spares
    layout = Options(spares=spares).layout_for(needed)
    assert (layout.slots, layout.checksums, layout.spares) == (slots, 1, spares)
    for other in (needed - 1, needed + 1):
        with pytest.raises(ValueError) as error:
            Options(slots=slots, spares=spares).layout_for(other)
        for words in (f"{other} processes", f"{needed} are needed", "FTRMA_SLOTS"):
            assert words in str(error.value)
