"""Whatever is wrong with a command line, an environment or a file is one line, and status 2.

Names of files, and rights to them, are in test_bad_files. Most commands run in this process; those
with closed terminals, missing directories and pipes run as a user would start them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from badinput import (
    BASE,
    HUGE,
    LIMIT_S,
    MANY,
    NAME,
    PLAN,
    SURROGATE,
    one_line,
    process,
    refused,
    words_of,
)
from badinput import here as here

from ftrma.command import cli
from ftrma.host.errors import FtrmaError
from ftrma.launch import supervisor
from ftrma.settings import options as settings

# ---- ftrma run: values ----------------------------------------------------------------------

NOT_WHOLE = ["", "x", "1.5", "-1", "-0x1", "1e3", "nan", "inf", "1_0", "٤x", MANY, HUGE, "1 2",
             "1\n", "0x10", SURROGATE, "\0", "--"]
WHOLE = ["-n", "--checksums", "--group-size", "--spares", "--max-relaunch"]
NOT_SECONDS = ["", "x", "nan", "-nan", "inf", "-1", "1e400", "1e13", MANY, HUGE, "1h", "1\0", "\n",
               SURROGATE, "0x1p3"]
NOT_SIZES = ["", "x", "64MB", "-1", "1e400", "nan", "inf", MANY, MANY + "G", HUGE, "2048G", "1K1",
             "64 M M", ".", "K", "1.2.3M", SURROGATE]
NOT_RULES = ["x", "1@", "@put", "1@lunch", "1@put:0", "1@put:1.5", "1@put:-1", "1@put:nan",
             f"{MANY}@put", f"1@put:{MANY}", f"1@put:{HUGE}", "1@time:1e9", f"1@time:{MANY}",
             "1@put:9999999999999999", "1@put\0", f"{SURROGATE}@put", "c9@fold", "s5@start",
             "7@put", "1@" + "p" * 3000]
NOT_CHOSEN = ["", "x", "Auto", "auto\n", "auto ", "a" * 3000, SURROGATE, "\0"]
RUN_VALUES = [
    *((flag, value) for flag in WHOLE for value in NOT_WHOLE),
    *(("--mtbf", value) for value in [*NOT_SECONDS, "0"]),
    *(("--interval", value) for value in [*NOT_SECONDS, "Daly", "1e10"]),
    *(("--log-budget", value) for value in NOT_SIZES),
    *(("--kill", value) for value in NOT_RULES),
    *((flag, value) for flag in ("--policy", "--log", "--demand") for value in NOT_CHOSEN),
    *(("--aware", value) for value in ["", "rack", "all", "x" * 3000, SURROGATE, "a\nb"]),
    *(("--mpirun", value) for value in ["-n 4", "-np 4", "--n=4", "'", "--host 'a", "-c\n5",
                                        "a\0", "-n " + "x" * 3000]),
]


@pytest.mark.parametrize(
    ("flag", "value"), RUN_VALUES, ids=[f"{i}{f}-{v[:9]!a}" for i, (f, v) in enumerate(RUN_VALUES)]
)
def test_values_of_run(capsys: pytest.CaptureFixture[str], flag: str, value: str) -> None:
    """Law: option and value are told; on the command line and, unless it is empty or cannot be
    there, in the environment, where the variable is told."""
    given = ["-n", "2"] if flag != "-n" else []
    word = f"{flag}{'=' * flag.startswith('--')}{value}"
    words = ["run", *given, *([word] if value else [flag, ""]), "app.py"]
    if (flag, value) == ("-n", "--"):
        words = ["run", "-n", "--", "app.py"]
    name = flag.lstrip("-").replace("n", "slots") if flag == "-n" else flag.lstrip("-")
    told = [value] if value.strip() and flag != "--mpirun" else []
    refused(capsys, words, name if not value else flag, *told)
    if value and "\0" not in value:
        variable = next(o.variable for o in settings.OPTIONS if o.flag == flag)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable, value)
            refused(capsys, ["run", *given, "app.py"], variable, *told)


def test_layouts_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: options that exclude each other are told before anything starts."""
    refused(capsys, ["run", "app.py"], "-n is missing")
    refused(capsys, ["run", "-n", "1020", "--group-size", "9", "app.py"], "-n 1020", "at most 1024")
    refused(capsys, ["run", "-n", "300", "--group-size", "255", "app.py"], "--group-size 255")
    refused(capsys, ["run", "-n", "3", "--checksums", "2", "--group-size", "1", "app.py"], "3")
    rules = [word for _ in range(33) for word in ("--kill", "0@put")]
    refused(capsys, ["run", "-n", "2", *rules, "app.py"], "--kill: 33 rules; at most 32")
    refused(capsys, ["run", "-n", "2", "--log-budget", "1", "app.py"], "--log-budget 1")
    refused(capsys, ["run", "-n", "2", "--kill", "a9@put", "app.py"], "no slot 9")
    refused(capsys, ["run", "-n", "2", "--kill", "a1@put", "app.py"], "one node has no agents")


def test_a_wrong_variable_is_told_where_only_the_whole_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: what was not on the command line is told to come from the environment."""
    for name, value in (("FTRMA_CHECKSUMS", "3"), ("FTRMA_GROUP_SIZE", "2")):
        monkeypatch.setenv(name, value)
    line = refused(capsys, ["run", "-n", "4", "--group-size", "4", "--checksums", "3",
                            "--aware", "rows", "app.py"], "--aware rows")
    assert "FTRMA_" not in line
    refused(capsys, ["run", "-n", "4", "app.py"], "in the environment: FTRMA_CHECKSUMS")
    for name in ("FTRMA_CHECKSUMS", "FTRMA_GROUP_SIZE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("FTRMA_TRACE", "dir")
    refused(capsys, ["run", "-n", "4", "app.py"], "--trace dir", "FTRMA_TRACE")
    monkeypatch.delenv("FTRMA_TRACE")
    monkeypatch.setenv("FTRMA_TOPOLOGY", "fifo")
    refused(capsys, ["run", "-n", "4", "app.py"], "fifo")


@pytest.mark.parametrize("words", [["graph", "pagerank", "path:9"], ["apgas", "kmeans"],
                                   ["graph", "--recovery", "phoenix", "cc", "path:9"]])
def test_frameworks_want_another_policy_than_causal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Law: a framework that recovers the job itself refuses ``--policy causal`` before the job
    starts; a run of it that is replayed takes it."""
    told = f"--policy causal: ftrma {words[0]} recovers the job itself", "leave it out"
    refused(capsys, [*words, "-n", "2", "--policy", "causal"], *told)
    monkeypatch.setenv("FTRMA_POLICY", "causal")
    refused(capsys, [*words, "-n", "2"], *told, "in the environment: FTRMA_POLICY")
    monkeypatch.setattr(supervisor, "run", lambda *_: (7, {}))
    for taken in ([*words, "--policy", "auto"],
                  ["graph", "--recovery", "causal", "cc", "path:9"]):
        with pytest.raises(SystemExit) as done:
            cli.main([*taken, "-n", "2"])
        assert done.value.code == 7, capsys.readouterr().err


# ---- words that are no options --------------------------------------------------------------

ODD_WORDS = [
    ([], "command"),
    (["frobnicate"], "frobnicate"),
    ([""], "''"),
    (["run"], "script"),
    (["run", "-n"], "-n"),
    (["run", "-n", "2"], "script"),
    (["run", "-n", "2", "--spares"], "--spares"),
    (["run", "--spare", "2", "-n", "2", "app.py"], "--spare, did you mean --spares?"),
    (["run", "--spare=2", "-n", "2", "app.py"], "--spare=2, did you mean --spares?"),
    (["run", "--check", "2", "-n", "2", "app.py"], "--check, did you mean --checksums?"),
    (["run", "--mpi", "x", "-n", "2", "app.py"], "--mpi"),
    (["run", "-n", "2", "--mpirun", "--oversubscribe", "app.py"], "write --mpirun=--oversubscribe"),
    (["run", "-n", "2", "--mpirun", "--x", "y", "app.py"], "write --mpirun=--x"),
    (["run", "-n", "2", "--interval", "-1e5", "app.py"], "write --interval=-1e5"),
    (["run", "-n", "2", "--frob\nnicate", "app.py"], "--frob\\nnicate"),
    (["run", "-n", "2", "--" + "x" * 4000, "app.py"], "--" + "x" * 50),
    (["demo", "--verb"], "--verb, did you mean --verbose?"),
    (["demo", "x"], "x"),
    (["doctor", "x"], "x"),
    (["doctor", "-v"], "-v"),
    (["check"], "FILE"),
    (["check", ""], "file ''"),
    (["check", "a", "b"], "b"),
    (["reliability", "--mach", "tsubame2"], "did you mean --machine?"),
    (["reliability", "--js"], "--js"),
    (["plan", "--mem", "1G"], "--mem"),
    (["plan", "--mtbf", "-inf"], "write --mtbf=-inf"),
    (["plan", SURROGATE], SURROGATE),
]


@pytest.mark.parametrize(("words", "told"), ODD_WORDS)
def test_odd_words(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    """Law: the word is told; no option has a short form, and the nearest is offered."""
    refused(capsys, words, told)


@pytest.mark.parametrize("words", [["--mpirun", "--host a:2"], ["--mpirun=--host a:2"],
                                   ["--mpirun=--oversubscribe"], ["--mpirun", ""]])
def test_launcher_options_are_taken(words: list[str]) -> None:
    """Law: what users write for the launcher is read as they mean it."""
    arguments = cli.parse(["run", "-n", "2", *words, "app.py", "--mpirun", "--x"])
    assert cli.prepare(arguments).mpirun == words[-1].removeprefix("--mpirun=")


# ---- ftrma reliability and plan -------------------------------------------------------------

NOT_COUNTS = ["", "0", "-1", "1.5", "1e3", "nan", "inf", MANY, HUGE, "x", "1\n", SURROGATE]
NOT_SHARES = ["", "0", "-1", "1.1", "nan", "inf", "1e-400", "1e400", MANY, "x", SURROGATE]
MODEL_VALUES = [
    *(("--ranks", value) for value in NOT_COUNTS),
    *(("--m", value) for value in [*NOT_COUNTS, "255"]),
    *(("--simulate", value) for value in [*NOT_COUNTS, "49", "99999999999"]),
    *(("--checksums", value) for value in [*NOT_COUNTS, "1:2", "1:2:3:4", "9:1:1", "1:9:0", ":::",
      "1::2", f"1:{MANY}:1", f"{MANY}:1:1", f"1:2:{MANY}", "1:1000000000:1", "1:999999:1",
      "a:b:c"]),
    *(("--aware", value) for value in ["", "row", "x" * 3000, SURROGATE, "a\nb"]),
    *(("--machine", value) for value in ["", "tsubame", "x" * 3000]),
    ("--seed", "-1"), ("--seed", MANY), ("--seed", "x"), ("--history-days", "5"),
]
PLAN_VALUES = [
    *(("--ranks", value) for value in NOT_COUNTS),
    *(("--target-pcf", value) for value in NOT_SHARES),
    *((flag, value) for flag in ("--memory", "--bandwidth")
      for value in ["", "0", "-1", "nan", "1e99", "1e400", MANY, HUGE, "2XiB", "0.5", SURROGATE]),
    *(("--mtbf", value) for value in ["", "0", "-1", "nan", "inf", "1e99", MANY, HUGE, "1h"]),
]


@pytest.mark.parametrize(("flag", "value"), MODEL_VALUES, ids=range(len(MODEL_VALUES)))
def test_values_of_reliability(capsys: pytest.CaptureFixture[str], flag: str, value: str) -> None:
    values = {**BASE, **({"--simulate": "99"} if flag == "--seed" else {}), flag: value}
    refused(capsys, ["reliability", *words_of(values)], flag.lstrip("-"), value.strip() or "''")


@pytest.mark.parametrize(("flag", "value"), PLAN_VALUES, ids=range(len(PLAN_VALUES)))
def test_values_of_plan(capsys: pytest.CaptureFixture[str], flag: str, value: str) -> None:
    refused(capsys, ["plan", *words_of({**PLAN, flag: value})], flag.lstrip("-"),
            value.strip() or "''")


@pytest.mark.parametrize(
    "rows",
    ["1,nodes,1", "1,nodes,1\n2,nodes", f"1,nodes,{MANY}", f"1,nodes,{HUGE}", f"{MANY},nodes,1",
     "nan,nodes,1", "inf,nodes,1", "1e308,nodes,1", "-1e308,nodes,1\n1e308,nodes,1", "1e9,nodes,1",
     "1,nodes,1000001", "0,nodes,1\n5e-324,nodes,2", "1,nodes,-1", "1,nodes,nan", "1,,1", ",,",
     "0000-00-00,nodes,1", "2012-13-01,nodes,1", "1,nodes,1\n2012-01-01,nodes,1", "1,nodes,1,1",
     '1,"nodes,1', "1,nodes," + "1" * 200_000, "\n".join(f"{i},l{i},1" for i in range(99)),
     "1,nodes,²", "\0,nodes,1", "x" * 200_000],
    ids=range(26),
)
def test_records_of_no_sense(capsys: pytest.CaptureFixture[str], rows: str) -> None:
    """Law: file and line are told; in no line there is anything that is worked on."""
    Path("f.csv").write_text(f"time,level,count\n{rows}\n")
    refused(capsys, ["reliability", "--fit", "f.csv"], "f.csv")


@pytest.mark.parametrize(
    "days", ["0", "-1", "nan", "inf", "1e308", "1e-308", MANY, "x", "", "0.01"]
)
def test_history_days(capsys: pytest.CaptureFixture[str], days: str) -> None:
    Path("f.csv").write_text("time,level,count\n0,nodes,1\n1,nodes,2\n")
    words = [f"--history-days={days}"] if days else ["--history-days", ""]
    refused(capsys, ["reliability", "--fit", "f.csv", *words], "history-days", days)


LEVEL = 'name = "m"\n[[level]]\nname = "nodes"\ncount = 9\n[level.failures]\n'


@pytest.mark.parametrize(
    "text",
    [f'name = "m"\n[[level]]\nname = "nodes"\ncount = {count}\n'
     for count in (MANY, "0x" + "f" * 9000, "1000001", "-1", "0", "nan", "1e3", "true", "[[[]]]")]
    + [f"{LEVEL}amplitude_per_day = {a}\ndecay = {d}\n" for a, d in (
        (MANY, "1"), ("nan", "1"), ("inf", "1"), ("1e308", "1"), ("1", "1e308"), ("1", "1e-320"),
        ("1", "nan"), ("-1", "1"), ("1", f"0x{'f' * 999}"))]
    + [f"{LEVEL}per_day = [1e308, 1e308]\n", f"{LEVEL}per_day = {[0.0] * 5000}\n",
       f"{LEVEL}history = 'a\\u0000b'\n", f'{LEVEL}history = "a\\u0000b"\n',
       f"{LEVEL}history = 'fifo'\n", f"{LEVEL}history = '{NAME}'\n",
       f"{LEVEL}history = '/dev/zero'\n",
       f"{LEVEL}history = 'f.csv'\nhistory_days = 1e300\n",
       'name = "m"\n' + "".join(f"[[level]]\nname = 'l{i}'\ncount = 9\n" for i in range(99))],
    ids=range(27),
)
def test_machines_of_no_sense(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Law: file, line and column are told."""
    Path("m.toml").write_text(text)
    line = refused(capsys, ["reliability", *words_of({**BASE, "--machine": "m.toml"})], "m.toml")
    assert re.search(r"m\.toml:\d+:\d+: ", line)


@pytest.mark.plain
@pytest.mark.parametrize(
    "lines",
    ['levels = ["r"]\n[r]\n' + "".join(f'r{i} = "n{i}-[1-900000]"\n' for i in range(50)),
     'levels = ["r"]\n[r]\nr1 = "n[' + "1-900000," * 50 + '1]"\n',
     f'levels = ["r"]\n[r]\nr1 = "{"n" * 100_000}[1-900000]"\n',
     'levels = ["r"]\n[r]\nr1 = "[1-9999][1-9999][1-9999]"\n',
     f'levels = ["r"]\n[r]\nr1 = "n[1-{MANY}]"\n',
     f"levels = {[f'l{i}' for i in range(99)]}\n", 'levels = ["a\\nb"]\n', 'levels = [""]\n'],
    ids=range(8),
)
def test_topologies_of_no_sense(capsys: pytest.CaptureFixture[str], lines: str) -> None:
    """Law: names are counted before they are made."""
    Path("t.toml").write_text(lines)
    line = refused(capsys, ["run", "-n", "2", "--topology", "t.toml", "app.py"], "t.toml")
    assert re.search(r"t\.toml:\d+:\d+: ", line)


# ---- what is no mistake ---------------------------------------------------------------------


@pytest.mark.parametrize("signature", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_signatures_and_line_ends(
    capsys: pytest.CaptureFixture[str], signature: str, end: str
) -> None:
    """Law: what editors add is read: a UTF-8 signature, CRLF."""
    def put(name: str, text: str) -> None:
        Path(name).write_text(signature + text.replace("\n", end), newline="")

    put("t.toml", 'levels = ["r"]\n[r]\nr1 = "n[1-4]"\n')
    put("m.toml", 'name = "m"\n[[level]]\nname = "nodes"\ncount = 9\n')
    put("f.csv", "time,level,count\n0,nodes,1\n1,nodes,2\n")
    cli.prepare(cli.parse(["run", "-n", "2", "--topology", "t.toml", "--aware", "r", "app.py"]))
    for words in (["--fit", "f.csv"], ["--machine", "m.toml", "--ranks", "2", "--checksums", "1"]):
        with pytest.raises(SystemExit) as done:
            cli.main(["reliability", *words])
        assert done.value.code == 0 and capsys.readouterr().err == ""


@pytest.mark.nightly
def test_extreme_records_are_fitted(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: large counts and many days give a fit, and a figure, without a warning of numpy's."""
    Path("f.csv").write_text("time,level,count\n-1e7,a$b$,1\n0,a$b$,200000\n0,_$x^$,1\n")
    with pytest.raises(SystemExit) as done:
        cli.main(["reliability", "--fit", "f.csv", "--history-days", "1e7", "--plot", "f.svg"])
    said = capsys.readouterr()
    assert (done.value.code, said.err) == (0, "") and "maximum likelihood" in said.out
    assert "a$b$ that fail at once" in Path("f.svg").read_text()


@pytest.mark.plain
def test_output_names_the_terminal_cannot_show(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: a name that is no text is shown and does not end the command."""
    Path(SURROGATE).write_text("time,level,count\n0,nodes,1\n1,nodes,2\n")
    done = process(["reliability", "--fit", SURROGATE])
    assert (done.returncode, done.stderr) == (0, "") and "caf\\udce9: 1 days" in done.stdout


def test_unknown_variables_are_told_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a warning with the nearest known name; inner names are known; the run goes on."""
    monkeypatch.setattr(supervisor, "run", lambda *_: (7, {}))
    for name in ("FTRMA_SPARE", "FTRMA_ZZZ", *settings.INNER_NAMES):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("FTRMA_SPARES", "3")
    with pytest.raises(SystemExit) as done:
        cli.main(["run", "-n", "2", "app.py"])
    err = capsys.readouterr().err
    assert done.value.code == 7 and err.count("\n") == 1 and err.startswith("ftrma: warning: ")
    assert "FTRMA_SPARE (the nearest is FTRMA_SPARES)" in err and "FTRMA_ZZZ (the nearest" in err
    assert not any(name in err for name in settings.INNER_NAMES)


# ---- the status of a run --------------------------------------------------------------------


@pytest.mark.parametrize("error", [FtrmaError("no"), ValueError("no"), OSError(28, "no")])
def test_what_goes_wrong_in_a_run_is_not_status_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Law: 2 is for mistakes that are found before; whatever a run raises is 70."""
    def run(*_: object) -> None:
        raise error

    monkeypatch.setattr(supervisor, "run", run)
    with pytest.raises(SystemExit) as done:
        cli.main(["run", "-n", "2", "app.py"])
    assert done.value.code == 70 and capsys.readouterr().err.startswith("ftrma: error: ")


@pytest.mark.parametrize("name", ["/dev/full", "fifo", "later/x"])
def test_stats_that_cannot_be_written_cost_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Law: what fails at the end is a line; the status is the program's."""
    Path("later").mkdir()

    def run(*_: object) -> tuple[int, dict[str, int]]:
        Path("later").rmdir()
        return 5, {"x": 1}

    monkeypatch.setattr(supervisor, "run", run)
    with pytest.raises(SystemExit) as done:
        cli.main(["run", "-n", "2", "--stats", name, "app.py"])
    err = capsys.readouterr().err
    assert done.value.code == 5 and err.count("\n") == 1
    assert err.startswith(f"ftrma: warning: cannot write {name}: ")
    assert os.stat("/dev/full").st_rdev == os.makedev(1, 7)


def test_stats_go_to_stdout(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "run", lambda *_: (0, {"x": 1}))
    with pytest.raises(SystemExit) as done:
        cli.main(["run", "-n", "2", "--stats", "/dev/stdout", "app.py"])
    assert done.value.code == 0 and capfd.readouterr() == ('{\n "x": 1\n}\n', "")


# ---- terminals, directories, homes ----------------------------------------------------------

TABLE = ["reliability", *words_of(BASE)]


@pytest.mark.plain
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize(
    ("words", "status"),
    [(TABLE, 0), (["--version"], 0), (["run", "-n", "2", "none"], 2)],
)
def test_closed_terminals(closed: str, words: list[str], status: int) -> None:
    """Law: no complaint of Python's own, and the status as ever."""
    done = in_shell(words, closed)
    assert done.returncode == status and "Traceback" not in done.stderr
    assert "ignored" not in done.stderr and done.stderr.count("\n") == (
        1 if status and "2>" not in closed else 0
    )


@pytest.mark.plain
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [TABLE, ["--version"]])
def test_a_full_disk_under_stdout(
    words: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a result that is lost is told once, with status 1, however Python buffers it."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    done = in_shell(words, "> /dev/full")
    assert done.returncode == 1
    one_line(done.stderr, "cannot write the output: No space left on device")
    assert in_shell(words, "> /dev/full 2>&1").returncode == 1


@pytest.mark.plain
@pytest.mark.parametrize("words", [TABLE, ["--help"], ["plan", *words_of(PLAN)]])
def test_readers_that_leave(words: list[str]) -> None:
    """Law: a closed pipe is quiet."""
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w") as closed:
        done = process(words, stdout=closed)
    assert (done.returncode, done.stderr) == (0, "")


def in_shell(words: list[str], redirected: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("ftrma")), *words]
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirected}', "sh", *command], capture_output=True, text=True,
        timeout=LIMIT_S, stdin=subprocess.DEVNULL,
    )


@pytest.mark.full
def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    """Law: what needs none works; a run says that it needs one."""
    script = tmp_path / "app.py"
    for words, status, told in (
        (TABLE, 0, ""), (["run", "-n", "2", str(script)], 2, "the current directory is gone"),
        (["run", "-n", "2", "--stats", "s", str(script)], 2, "--stats s"), (["check", "x"], 2, "x"),
        ([*TABLE, "--plot", str(tmp_path / "x.svg")], 0, ""),
    ):
        (tmp_path / "gone").mkdir()
        done = subprocess.run(
            ["sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh",
             str(Path(sys.executable).with_name("ftrma")), *words],
            capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
        )
        assert done.returncode == status, done.stderr
        if status:
            one_line(done.stderr, told)
        else:
            assert done.stderr == "" and done.stdout


@pytest.mark.plain
def test_no_home(tmp_path: Path) -> None:
    """Law: without HOME figures are drawn without a word."""
    environment = {k: v for k, v in os.environ.items() if k != "HOME" and "XDG" not in k}
    done = process([*TABLE, "--plot", "x.svg"], env=environment)
    assert (done.returncode, done.stderr) == (0, "") and Path("x.svg").stat().st_size > 1000


def test_an_interrupt_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "run", interrupted)
    with pytest.raises(SystemExit) as done:
        cli.main(["run", "-n", "2", "app.py"])
    assert done.value.code == 130 and capsys.readouterr().err == "ftrma: interrupted\n"
