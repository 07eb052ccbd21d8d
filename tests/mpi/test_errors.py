"""Mistakes of the user: each has one clear message, ends in time, and harms nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from jobs import FTRMA, Result, run_command, run_job

pytestmark = pytest.mark.full

PROGRAMS = Path(__file__).parent / "programs"
SLOTS = 3
LIMIT_S = 20

# The class that an error must have and words of its text, by the label in win_errors.py;
# {right} is the slot to the right, {room} the doubles of its part.
MISTAKES = {
    "outside": ("ERR_RMA_SYNC", "Put to rank {right} outside of an epoch"),
    "unlock": ("ERR_RMA_SYNC", "rank {right} is not locked"),
    "unlock all": ("ERR_RMA_SYNC", "not locked"),
    "flush": ("ERR_RMA_SYNC", "rank {right} is not locked"),
    "range put": ("ERR_RMA_RANGE", "16 bytes at displacement {last} .* rank {right} .* {bytes} b"),
    "range get": ("ERR_RMA_RANGE", "8 bytes at displacement {beyond} .* rank {right} .* {bytes} b"),
    "range accumulate": ("ERR_RMA_RANGE", "displacement {last} .* rank {right} .* {bytes} bytes"),
    "range fetch": ("ERR_RMA_RANGE", "displacement {room} .* rank {right} .* {bytes} bytes"),
    "range request": ("ERR_RMA_RANGE", "16 bytes at displacement {last} .* {bytes} bytes"),
    "range vector": ("ERR_RMA_RANGE", "104 bytes at displacement 0 .* {bytes} bytes"),
    "range backward": ("ERR_RMA_RANGE", "displacement 2 .* rank {right} .* {bytes} bytes"),
    "range wrapped": ("ERR_RMA_RANGE", "displacement 2305843009213693952 to rank {right} is bey"),
    "range negative": ("ERR_DISP", "displacement -1 .* rank {right}"),
    "rank": ("ERR_RANK", "rank 3 is not in .* group of 3"),
    "rank flush": ("ERR_RANK", "rank 10 is not in .* group of 3"),
    "sizes": ("ERR_TRUNCATE", "origin has 16 bytes, target 8"),
    "sizes result": ("ERR_TRUNCATE", "Get_accumulate"),
    "locked": ("ERR_RMA_SYNC", "locked already"),
    "rank lock": ("ERR_RANK", "rank -5 is not in .* group of 3"),
    "group": ("ERR_GROUP", "rank . of the group is not in the window's group"),
    "group again": ("none", ""),  # a Start that failed has opened nothing
}


@pytest.fixture(scope="module")
def noted() -> list[dict[str, list]]:
    result = run_job(PROGRAMS / "win_errors.py", SLOTS, "--interval", "never", timeout=LIMIT_S)
    assert result.status == 0, str(result)
    return result.of_slots("noted", SLOTS)


@pytest.mark.parametrize("kind", ["Allocate", "Create"])
def test_mistake_with_a_window_raises_what_it_is(noted: list[dict[str, list]], kind: str) -> None:
    """Law: MPI.Exception of the right class, whose text names the values, on every slot."""
    wrong = []
    for slot, of_slot in enumerate(noted):
        right = (slot + 1) % SLOTS
        room = 10 + right
        values = {"right": right, "room": room, "last": room - 1, "beyond": room + 5,
                  "bytes": 8 * room}
        for mistake, (expected_class, words) in MISTAKES.items():
            got_class, text = of_slot[f"{kind} {mistake}"]
            if got_class != expected_class or not re.search(words.format(**values), text):
                wrong.append(f"slot {slot}, {mistake}: {got_class} {text!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", ["Allocate", "Create"])
def test_program_goes_on_after_its_mistakes(noted: list[dict[str, list]], kind: str) -> None:
    """Law: no failed access wrote anything, and the window works as before."""
    for slot, of_slot in enumerate(noted):
        left = (slot - 1) % SLOTS
        assert of_slot[f"{kind} memory"] == [3.0 + left] * 10 + [0.0] * slot


@pytest.mark.parametrize(
    ("mistake", "right_class", "words"),
    [("size", "ERR_SIZE", "window of -8 bytes"), ("unit", "ERR_DISP", "displacement unit 0")],
)
def test_impossible_window_is_refused(
    noted: list[dict[str, list]], mistake: str, right_class: str, words: str
) -> None:
    """Law: a negative size or a unit below 1 is an error that names it."""
    for of_slot in noted:
        got_class, text = of_slot[mistake]
        assert got_class == right_class and words in text, (got_class, text)


def test_too_many_windows_are_refused() -> None:
    """Law: the first that is too many is an error which says so; after one is freed, it works."""
    text = """
from ftrma import MPI
wins = [MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD) for _ in range(4096)]
try:
    MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
except MPI.Exception as error:
    print(error)
wins.pop(1000).Free()
MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
"""
    result = run_job(text, 2, "--interval", "never", timeout=LIMIT_S)
    assert result.status == 0, result
    assert result.stdout.count("more than 4096 windows: free some") == 2, result


# ---- the command line -----------------------------------------------------------------------

COMMANDS = {
    "no script": (["-n", "2", "missing.py"], "no script missing.py"),
    "zero slots": (["-n", "0", "{app}"], "-n 0: expected a whole number, 1 or more"),
    "no slots": (["{app}"], "-n is missing"),
    "half a slot": (["-n", "1.5", "{app}"], "-n 1.5: expected a whole number"),
    "too many": (["-n", "1100", "--group-size", "100", "{app}"],
                 "-n 1100: 1112 processes .* at most 1024"),
    "spares": (["-n", "2", "--spares", "-1", "{app}"], "--spares -1: .* 0 or more"),
    "group size": (["-n", "4", "--group-size", "2", "--checksums", "3", "{app}"],
                   "--checksums 3 with --group-size 2: 4 slots make 2 groups.*--checksums 2"),
    "group of none": (["-n", "4", "--group-size", "0", "{app}"], "--group-size 0: .* 1 or more"),
    "interval": (["-n", "2", "--interval", "often", "{app}"], "--interval often: .*daly or never"),
    "unknown place": (["-n", "2", "--kill", "1@lunch", "{app}"], "--kill 1@lunch: .*fence"),
    "nobody to kill": (["-n", "2", "--kill", "2@fence", "{app}"],
                       "--kill 2@fence: there is no slot 2; have 0 to 1"),
    "no such spare": (["-n", "2", "--spares", "0", "--kill", "s0@fence", "{app}"],
                      "--kill s0@fence: there is no spare 0; have none"),
    "no such group": (["-n", "2", "--kill", "c1@sum", "{app}"],
                      "--kill c1@sum: there is no checksum rank 1; have 0 to 0"),
    "launcher's count": (["-n", "1", "--mpirun", "--host a -np 3", "{app}"],
                         "--mpirun '--host a -np 3': -np is not yours to give"),
    "stats nowhere": (["-n", "1", "--stats", "no/where.json", "{app}"], "no directory no"),
    "stats directory": (["-n", "1", "--stats", ".", "{app}"], "--stats ."),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_mistake_on_the_command_line_is_one_line(tmp_path: Path, mistake: str) -> None:
    """Law: status 2, one line on stderr that names the value and the remedy, nothing was run."""
    app = tmp_path / "app.py"
    app.write_text("raise SystemExit('this must not run')\n")
    options, words = COMMANDS[mistake]
    result = run_command([FTRMA, "run", *(o.format(app=app) for o in options)], LIMIT_S)
    assert result.status == 2, str(result)
    assert re.fullmatch(f"ftrma: error: .*{words}.*\n", result.stderr), str(result)
    assert not result.stdout


@pytest.mark.parametrize("options", [["run", "--sparse", "1", "x.py"], ["ran"], [], ["run"]])
def test_unknown_option_is_told_by_usage(options: list[str]) -> None:
    """Law: what the parser does not know ends with status 2 and the usage, without traceback."""
    result = run_command([FTRMA, *options], LIMIT_S)
    assert result.status == 2, str(result)
    assert result.stderr.startswith("usage: ftrma") and "Traceback" not in result.stderr


# ---- the program's own end ------------------------------------------------------------------


def ends(text: str, n: int = 2, timeout: float = LIMIT_S) -> Result:
    return run_job(text, n, timeout=timeout)


def test_exception_of_all_slots_is_printed_once() -> None:
    """Law: status 1; one traceback, that shows the program's lines and none of ftrma's."""
    result = ends("from mpi4py import MPI\ndef f(): raise KeyError('lost thing')\nf()\n")
    assert result.status == 1, str(result)
    assert result.stderr.count("Traceback") == result.stderr.count("KeyError: 'lost thing'") == 1
    assert "in f" in result.stderr and "session.py" not in result.stderr


def test_exception_of_one_slot_ends_the_others() -> None:
    """Law: the others, blocked in a collective call, do not keep the job; status 1."""
    result = ends(
        "from mpi4py import MPI\nc = MPI.COMM_WORLD\nif c.rank: raise ValueError('only mine')\n"
        "c.Barrier()\n"
    )
    assert result.status == 1 and result.stderr.count("ValueError: only mine") == 1, str(result)
    assert result.stderr.count("Traceback") == 1, str(result)


@pytest.mark.parametrize(
    ("last", "status"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('bad')", 1), ("", 0)]
)
def test_exit_status_is_the_programs(last: str, status: int) -> None:
    """Law: sys.exit(x) on all slots ends the job with Python's status for x."""
    result = ends(
        "import sys\nfrom mpi4py import MPI\nprint('here', flush=True)\nMPI.COMM_WORLD.Barrier()\n"
        f"{last}\n"
    )
    assert result.status == status, str(result)
    assert result.stdout.count("here") == 2 and "Traceback" not in result.stderr
    assert ("bad" in result.stderr) == ("bad" in last)


def test_abort_ends_the_job_with_its_status() -> None:
    """Law: MPI.COMM_WORLD.Abort(9) of one slot ends all with 9, also those that wait."""
    result = ends("from mpi4py import MPI\nc = MPI.COMM_WORLD\nc.rank or c.Abort(9)\nc.Barrier()\n")
    assert result.status == 9 and "Traceback" not in result.stderr, str(result)


FINALIZE = """
import json, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
me = comm.rank
win = MPI.Win.Allocate(8, 8, comm=comm)
other = comm.Dup()
said = [MPI.Is_initialized(), MPI.Is_finalized()]
MPI.Finalize()
said += [MPI.Is_initialized(), MPI.Is_finalized()]
calls = (comm.Barrier, other.Barrier, win.Fence, win.Free, lambda: comm.recv(), comm.Dup,
         lambda: win.Lock(0), lambda: win.Start(comm.Get_group()), lambda: comm.allreduce(1),
         lambda: MPI.Win.Allocate(8, comm=comm), lambda: other.Ibarrier().Wait())
errors = 0
for call in calls if me else ():
    try:
        call()
    except MPI.Exception:
        errors += 1
MPI.Finalize()
open(f"{sys.argv[1]}/said-{me}.json", "w").write(json.dumps([*said, errors - len(calls)]))
"""


def test_finalize_by_the_program_ends_the_job() -> None:
    """Law: MPI.Finalize at a program's end is as it is everywhere; what only one calls then does
    not wait for the others."""
    result = ends(FINALIZE)
    assert result.status == 0, str(result)
    assert result.of_slots("said", 2) == [[True, False, True, True, -11],
                                          [True, False, True, True, 0]]
    assert "slot 1 calls MPI after MPI_Finalize" in result.stderr, str(result)


def test_syntax_error_is_shown() -> None:
    """Law: a program that Python cannot read gives Python's message once and status 1."""
    result = ends("x = = 1\n")
    assert result.status == 1 and result.stderr.count("SyntaxError") == 1, str(result)


def test_field_that_cannot_be_saved_is_named() -> None:
    """Law: protect() of an unpicklable value is an FtrmaError that names the field; status 1."""
    result = ends("import ftrma\nftrma.protect('main', good=1, handle=lambda: 0)\n")
    assert result.status == 1, str(result)
    assert re.search(r"ftrma: error: protect\('main'\): field 'handle' \(function\)", result.stderr)
    assert len(result.stderr.strip().splitlines()) == 1, str(result)


@pytest.mark.parametrize("names", ["'ab'[me]", "['a', 'b'][1 - me]"])
def test_other_names_on_other_slots_are_refused(names: str) -> None:
    """Law: protect() in different order on two slots ends with status 1 and one line."""
    result = ends(
        "import ftrma\nfrom ftrma import MPI\nme = MPI.COMM_WORLD.rank\n"
        f"ftrma.protect({names}, x=1)\nftrma.protect('ba'[me], x=1)\n"
    )
    assert result.status == 1, str(result)
    assert "Declare the same names in the same order on every slot" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, str(result)


def test_ftrma_after_mpi4py_outside_of_a_job_is_refused() -> None:
    """Law: where interposing is no longer possible, the import says so and how to do it."""
    code = "from mpi4py import MPI\nimport ftrma\n"
    # Without a launcher, the library's shared-memory transport leaves a file behind.
    result = run_command([sys.executable, "-c", code], LIMIT_S, {"OMPI_MCA_btl": "self"})
    assert result.status == 1, str(result)
    assert result.stderr.strip().splitlines()[-1].startswith("ftrma.FtrmaError: mpi4py.MPI")
    assert "Import ftrma first" in result.stderr


def test_module_without_a_script_is_refused() -> None:
    """Law: ``python -m ftrma missing.py`` ends with one line."""
    result = run_command([sys.executable, "-m", "ftrma", "missing.py"], LIMIT_S)
    assert result.status == 1, str(result)
    assert re.fullmatch("ftrma: error: no script missing.py: .*\n", result.stderr), str(result)
