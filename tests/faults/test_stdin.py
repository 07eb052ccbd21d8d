"""The program's stdin after failures: each attempt reads from its beginning.

A pipe comes from a shell, which is the command under watch. The output of a job with a failure must
be that of the job without; slot 0 prints at the end only, since what it printed is printed again.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from jobs import FILES, FTRMA, MARK, Result, kill_marked, marked, run_command, until
from nodes import NODES, fake_ssh, why_not
from tiers import tiers

pytestmark = pytest.mark.full

LIMIT_S = 30
# Slot 0 reads one line in each step and puts it into both windows; then it reads what is left.
PROGRAM = """
import os, sys, time
import numpy as np
from mpi4py import MPI

def lines(how):
    if how == "input":
        while True:
            try:
                yield input()
            except EOFError:
                return
    elif how == "readline":
        while line := sys.stdin.readline():
            yield line
    elif how == "for":
        yield from sys.stdin
    elif how == "open":
        kept = open(0)  # with a number of its own for what is closed when it is collected
        yield from kept
    elif how == "all":
        yield from sys.stdin.buffer.read().split()
    elif how == "pieces":
        text = b""
        while piece := os.read(0, 3):
            text += piece
            *whole, text = text.split(b"\\n")
            yield from whole

comm = MPI.COMM_WORLD
window = MPI.Win.Allocate(8 * 4, 8, comm=comm)
field = np.frombuffer(window.tomemory())
field[:] = 0
answers = lines(sys.argv[1])
for step in range(4):
    window.Fence()
    if comm.rank == 0:
        value = np.array([float(next(answers))])
        for rank in range(comm.size):
            window.Put(value, rank, step)
    window.Fence()
rest = [float(line) for line in answers] if comm.rank == 0 else []
if "waiting" in sys.argv:
    print("waiting", flush=True)
    time.sleep(3)
window.Fence()
print(comm.rank, field.tolist(), rest)
"""
EXPECTED = ["0 [1.0, 2.0, 3.0, 4.0] [5.0, 6.0]", "1 [1.0, 2.0, 3.0, 4.0] []"]
AUTO, ROLLBACK, RELAUNCH = (), ("--policy", "rollback"), ("--spares", "0")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stdin") / "program.py"
    path.write_text(PROGRAM)
    return path


def words(*of: object) -> str:
    return shlex.join(map(str, of))


def shell(text: str, timeout: float = LIMIT_S) -> Result:
    return run_command(["bash", "-c", text], timeout)


def check(result: Result, happened: str) -> None:
    assert result.status == 0, result
    assert sorted(result.stdout.splitlines()) == EXPECTED, result
    assert re.search(happened, result.stderr), result


@pytest.mark.parametrize(("how", "options", "kill", "happened"), tiers([
    pytest.param(how, options, kill, happened, id=f"{how}-{kill}")
    for how, options, kill, happened in (
        ("input", AUTO, "0@fence:6", "slot 0 died; replayed"),
        ("input", ROLLBACK, "1@fence:5", "slot 1 died; back at the start"),
        ("readline", ROLLBACK, "0@fence:7", "slot 0 died; back at the start"),
        ("readline", AUTO, "1@fence:5", "slot 1 died; replayed"),
        ("for", ROLLBACK, "1@fence:6", "slot 1 died; back at the start"),
        ("for", AUTO, "0@fence:3", "slot 0 died; replayed"),
        ("open", ROLLBACK, "1@fence:5", "slot 1 died; back at the start"),
        ("open", AUTO, "0@fence:9", "slot 0 died; replayed"),
        ("all", RELAUNCH, "0@fence:5", "launching the job again"),
        ("all", AUTO, "0@fence:2", "slot 0 died; replayed"),
        ("pieces", ROLLBACK, "1@fence:7", "slot 1 died; back at the start"),
        ("pieces", RELAUNCH, "1@fence:5", "launching the job again"))],
    full=["readline-0@fence:7", "for-1@fence:6"]))
def test_a_pipe_is_read_again(
    program: Path, how: str, options: tuple[str, ...], kill: str, happened: str
) -> None:
    """Whoever dies, and however the job goes on: who runs the program again reads what was read
    before, and who goes on where it is reads on."""
    job = words(FTRMA, "run", "-n", 2, *options, "--kill", kill, program, how)
    check(shell(f"seq 6 | {job}"), happened)


def test_a_pipe_is_read_again_and_again(program: Path) -> None:
    """Two replacements, a rollback by another's death, and a launch."""
    kills = [w for kill in ("0@fence:3", "0@replay:1", "1@fence:4", "0@fence:9")
             for w in ("--kill", kill)]
    job = words(FTRMA, "run", "-n", 2, "--spares", 3, *kills, program, "input")
    check(shell(f"seq 6 | {job}"), "launching the job again")


PROTECTED = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
head = sys.stdin.readline() if comm.rank == 0 else ""
window = MPI.Win.Allocate(8 * 4, 8, comm=comm)
field = np.frombuffer(window.tomemory())
field[:] = 0
state = ftrma.protect("main", step=0)
for _ in range(state.step):
    comm.rank == 0 and sys.stdin.readline()
while state.step < 4:
    ftrma.safepoint()
    window.Fence()
    if comm.rank == 0:
        value = np.array([float(sys.stdin.readline())])
        for rank in range(comm.size):
            window.Put(value, rank, state.step)
    window.Fence()
    state.step += 1
print(comm.rank, field.tolist(), [head])
"""


@pytest.mark.parametrize(("options", "happened"), [
    (("--kill", "0@fence:6"), "replayed from checkpoint [123]"),
    ((*ROLLBACK, "--kill", "1@fence:6"), "back at checkpoint [123]"),
    ((*RELAUNCH, "--kill", "0@fence:6"), "again from checkpoint [123]"),
])
def test_behind_protect_the_program_passes_over_what_it_has_had(
    tmp_path: Path, options: tuple[str, ...], happened: str
) -> None:
    """Declared fields come back, stdin begins anew: the README's line leads to the right place."""
    program = tmp_path / "protected.py"
    program.write_text(PROTECTED)
    result = shell(f"seq 0 4 | {words(FTRMA, 'run', '-n', 2, '--interval', 0, *options, program)}")
    assert sorted(result.stdout.splitlines()) == [
        "0 [1.0, 2.0, 3.0, 4.0] ['0\\n']", "1 [1.0, 2.0, 3.0, 4.0] ['']"
    ], result
    assert re.search(happened, result.stderr), result


OFFSETS = """
import os
from mpi4py import MPI
window = MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
for _ in range(3):
    if MPI.COMM_WORLD.rank == 0:
        print(os.read(0, 2).decode(), end="")
    window.Fence()
"""


@pytest.mark.parametrize("options", [(), ("--policy", "rollback", "--kill", "0@fence:3"),
                                     ("--spares", "0", "--kill", "1@fence:3")])
def test_a_file_is_left_where_the_program_stopped(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Each attempt begins where the file stood; who reads it afterwards, where the last ended."""
    program, numbers = tmp_path / "offsets.py", tmp_path / "numbers"
    program.write_text(OFFSETS)
    numbers.write_text("".join(f"{i}\n" for i in range(1, 8)))
    job = words(FTRMA, "run", "-n", 2, *options, program)
    result = shell(f"{{ read; {job}; cat; }} < {words(numbers)}")
    printed = result.stdout.split()
    assert printed[-6:] == ["2", "3", "4", "5", "6", "7"], result
    assert len(printed) == (9 if options else 6), result  # two attempts came to the third fence


LONG = """
import sys
import ftrma
from ftrma import MPI
window = MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
window.Fence()
AGAIN = sys.argv[1] == "again"
state = None if AGAIN else ftrma.protect("main", step=0)
count = 0
if MPI.COMM_WORLD.rank == 0 and not (state and state.restored):
    while piece := sys.stdin.buffer.read1(1 << 16):
        count += len(piece)
window.Fence()
window.Fence()
print(MPI.COMM_WORLD.rank, count)
"""
MUCH = (64 << 20) + (1 << 20)


def long_input(tmp_path: Path, how: str, source: str, *options: str) -> Result:
    program = tmp_path / "long.py"
    program.write_text(LONG)
    return shell(f"{source} {words(FTRMA, 'run', '-n', 2, *options, program, how)}")


def test_more_than_is_kept_ends_the_job_in_words(tmp_path: Path) -> None:
    """An attempt that reads all of it again, which cannot be: one line and 70."""
    source = f"head -c {MUCH} /dev/zero |"
    result = long_input(tmp_path, "again", source, *ROLLBACK, "--kill", "1@fence:3")
    assert result.status == 70 and result.stdout == "", result
    told, error = result.stderr.splitlines()
    assert "back at the start" in told, result
    assert error == (
        f"ftrma: error: the program has to read its stdin again; {MUCH} bytes were read, and of a "
        "pipe or terminal only the first 64 MiB are kept: give it as a file (< FILE), which is "
        "read again however long it is"
    )


def test_more_than_is_kept_is_no_matter_where_it_is_not_read_again(tmp_path: Path) -> None:
    """Neither where slot 0 goes on, nor where it is replaced and has its windows back."""
    source = f"head -c {MUCH} /dev/zero |"
    result = long_input(tmp_path, "again", source, "--kill", "1@fence:3")
    assert result.status == 0 and sorted(result.stdout.split("\n")) == ["", f"0 {MUCH}", "1 0"]
    assert "stdin" not in result.stderr, result


def test_a_long_file_is_read_again(tmp_path: Path) -> None:
    """A file has no bound."""
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(MUCH)
    source = f"< {words(path)}"
    result = long_input(tmp_path, "again", source, *ROLLBACK, "--kill", "1@fence:3")
    assert result.status == 0 and sorted(result.stdout.split("\n")) == ["", f"0 {MUCH}", "1 0"]


# ---- who writes and who does not read --------------------------------------------------------

TALK = """
import sys
from mpi4py import MPI
window = MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
for step in range(5):
    window.Fence()
    if MPI.COMM_WORLD.rank == 0:
        print(f"{step} {input(f'number {step}? ')}!", flush=True)
    window.Fence()
"""


@pytest.mark.parametrize("options", [
    ("--kill", "0@fence:6"), (*ROLLBACK, "--kill", "1@fence:6"),
    (*RELAUNCH, "--kill", "0@fence:6"),
])
def test_a_dialogue_goes_on(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A person who answers prompts is asked nothing twice; an endless writer delays no end."""
    program = tmp_path / "talk.py"
    program.write_text(TALK)
    mark = os.urandom(8).hex()
    with subprocess.Popen(
        [FTRMA, "run", "-n", "2", *options, str(program)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, MARK: mark},
    ) as job:
        try:
            assert job.stdin and job.stdout and job.stderr
            text, deadline = "", time.monotonic() + LIMIT_S
            for step in range(5):
                text = until(job.stdout.fileno(), f"number {step}? ", text, deadline)
                job.stdin.write(f"answer {step}\n".encode())
                job.stdin.flush()
                text = until(job.stdout.fileno(), f"{step} answer {step}!\n", text, deadline)
            job.wait(deadline - time.monotonic())
            text += job.stdout.read().decode()
            said = job.stderr.read().decode()
        finally:
            kill_marked(mark)
    assert job.returncode == 0 and ("died" in said or "again" in said), said
    # Lines that were printed are printed again; every answer has found its question.
    asked = re.findall(r"number (\d)\? (\d) answer (\d)!\n", text)
    assert len(asked) > 5 and {len(set(parts)) for parts in asked} == {1}, text
    assert [parts[0] for parts in asked[-5:]] == list("01234"), text


@pytest.mark.parametrize("what", tiers(
    ["0", "sys.stdin.close()", "os.close(0)", "os.read(0, 1)"], full=["0", "os.close(0)"]))
def test_an_endless_writer_does_not_hold_up_the_end(tmp_path: Path, what: str) -> None:
    """A program that reads nothing, or no more: it ends, and so does who writes to it."""
    program = tmp_path / "closing.py"
    program.write_text(
        "import os, sys\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
        "window = MPI.Win.Allocate(8, 8, comm=comm)\n"
        f"if comm.rank == 0:\n    {what}\nwindow.Fence()\n"
    )
    job = words(FTRMA, "run", "-n", 2, *ROLLBACK, "--kill", "1@fence:1", program)
    result = shell(f"yes | {job}")
    assert result.status == 0 and "back at the start" in result.stderr, result


def test_closed_and_null(tmp_path: Path) -> None:
    """Without a stdin slot 0 reads an empty one; ranks other than 0 always do."""
    program = tmp_path / "empty.py"
    program.write_text("import sys\nfrom mpi4py import MPI\n"
                       "print(MPI.COMM_WORLD.rank, repr(sys.stdin.read()))\n")
    job = words(FTRMA, "run", "-n", 2, program)
    for source, read in (("<&-", ""), ("< /dev/null", ""), ("<<< word", "word\n")):
        result = shell(f"{job} {source}")
        assert sorted(result.stdout.splitlines()) == [f"0 {read!r}", "1 ''"], result


def test_text_is_decoded_as_before(tmp_path: Path) -> None:
    """Each attempt has Python's own sys.stdin: encoding, treatment of errors, newlines."""
    program = tmp_path / "text.py"
    program.write_text("""
import sys
from mpi4py import MPI
window = MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
if MPI.COMM_WORLD.rank == 0:
    first = sys.stdin.encoding, sys.stdin.errors, sys.stdin.name, sys.stdin is sys.__stdin__
    sys.stdin.reconfigure(encoding="utf-8")
    text = sys.stdin.read()
    sys.stdin = None
window.Fence()
window.Fence()
if MPI.COMM_WORLD.rank == 0:
    print(first, ascii(text))
""")
    job = words(FTRMA, "run", "-n", 2, *ROLLBACK, "--kill", "1@fence:2", program)
    result = shell(f"printf 'a\\r\\n\\xe2\\x82\\xac' | PYTHONIOENCODING=latin-1:replace {job}")
    first = "('iso8859-1', 'replace', '<stdin>', True)"
    assert result.stdout == f"{first} 'a\\r\\n\\u20ac'\n", result


# ---- terminals ------------------------------------------------------------------------------


def on_terminal(
    program: list[object], talk: str, *, background: bool = False
) -> tuple[int, str]:
    """Run a job in a session of its own on a new terminal; its status, and what was displayed.

    Args:
        program: with its arguments.
        talk: is typed once the program has said "ready".
        background: in a process group that does not have the terminal.
    """
    pid, terminal = pty.fork()
    if not pid:
        command = [FTRMA, "run", "-n", "2", *map(str, program)]
        if not background:
            os.execv(FTRMA, command)
        job = subprocess.Popen(command, process_group=0)
        for _ in range(10 * LIMIT_S):  # not waited for: who is stopped would not end
            if job.poll() is not None:
                os._exit(job.returncode)
            time.sleep(0.1)
        job.kill()
        os._exit(99)
    text, typed, deadline = "", False, time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < deadline:
            if not typed and "ready" in text:
                os.write(terminal, talk.encode())
                typed = True
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    text += os.read(terminal, 4096).decode()
                except OSError:
                    break
        else:
            os.kill(pid, signal.SIGKILL)
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(terminal)
    return status, text


TYPED = """
import sys, time
from mpi4py import MPI
window = MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
window.Fence()
if MPI.COMM_WORLD.rank == 0:
    print("ready", flush=True)
    print("read", sys.stdin.read().split() if "reads" in sys.argv else "nothing", flush=True)
time.sleep(0.3)
window.Fence()
"""


def test_a_terminal_is_read_to_its_end(tmp_path: Path) -> None:
    """Typed lines come one by one, and Ctrl-D ends them."""
    program = tmp_path / "typed.py"
    program.write_text(TYPED)
    status, text = on_terminal([program, "reads"], "one\ntwo\n\4")
    assert status == 0 and "read ['one', 'two']" in text, text


def test_an_interrupt_from_the_terminal(tmp_path: Path) -> None:
    """Ctrl-C ends a job that reads."""
    program = tmp_path / "typed.py"
    program.write_text(TYPED)
    status, text = on_terminal([program, "reads"], "one\n\3")
    assert status == 130 and "read" not in text.replace("ready", ""), text


def test_a_job_in_the_background_is_not_stopped(tmp_path: Path) -> None:
    """A program that does not read is no reason to stop for the terminal."""
    program = tmp_path / "typed.py"
    program.write_text(TYPED)
    status, text = on_terminal([program], "for the shell\n", background=True)
    assert status == 0 and "read nothing" in text, text


# ---- supervisors and nodes ------------------------------------------------------------------


def test_a_resumed_job_is_given_it_again(program: Path) -> None:
    """``ftrma run --resume`` serves its own stdin from the beginning."""
    mark = os.urandom(8).hex()
    env = {**os.environ, MARK: mark}
    job = subprocess.Popen([FTRMA, "run", "-n", "2", str(program), "readline", "waiting"], env=env,
                           text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert job.stdin and job.stdout
        job.stdin.write("".join(f"{i}\n" for i in range(1, 7)))
        job.stdin.close()
        assert job.stdout.readline() == "waiting\n"
        directory = next(
            Path(line.split()[-1]).parent
            for pid in marked(mark)
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
            if re.search(r"/dev/shm/ftrma-\d+-\w+/control$", line)
        )
        job.kill()
        job.wait()
        result = shell(f"seq 6 | {words(FTRMA, 'run', '--resume', directory)}")
    finally:
        kill_marked(mark)
        job.stdout.close() if job.stdout else None
    result.stdout = result.stdout.replace("waiting\n", "")
    check(result, "ftrma run was killed")


@pytest.mark.parametrize(("first", "options", "how", "happened"), [
    ("here", ("--kill", "0@fence:6"), "input", "slot 0 died; back at the start"),
    pytest.param("here", (*RELAUNCH, "--kill", "1@fence:6"), "readline", "launching the job again",
                 marks=pytest.mark.nightly),
    pytest.param("elsewhere", (), "pieces", "^$", marks=pytest.mark.nightly),
    pytest.param("elsewhere", (*ROLLBACK, "--kill", "1@fence:5"), "for",
                 "slot 1 died; back at the start", marks=pytest.mark.nightly),
    ("elsewhere", (*ROLLBACK, "--kill", "1@fence:5"), "open", "slot 1 died; back at the start"),
    pytest.param("elsewhere", (*RELAUNCH, "--kill", "0@fence:5"), "all", "launching the job again",
                 marks=pytest.mark.nightly),
])
@pytest.mark.parametrize("kind", ["pipe", pytest.param("file", marks=pytest.mark.nightly)])
def test_over_several_nodes(
    program: Path, kind: str, first: str, options: tuple[str, ...], how: str, happened: str
) -> None:
    """Slot 0 reads it in each attempt, whether it is on the supervisor's host, comes back on
    another one, or never was there."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    host = socket.gethostname() if first == "here" else NODES[0]
    hosts = f"--prtemca plm_ssh_agent {fake_ssh()} --host {host}:2,{NODES[1]}:2"
    job = words("env", f"{FILES}={program.parent}", FTRMA, "run", "-n", 2, "--mpirun", hosts,
                "--aware", "none", *options, program, how)
    lines = program.with_name("lines")
    lines.write_text("".join(f"{i}\n" for i in range(1, 7)))
    check(shell(f"seq 6 | {job}" if kind == "pipe" else f"{job} < {words(lines)}", 60), happened)


@pytest.mark.nightly
def test_on_another_host_it_ends_and_is_not_lost(tmp_path: Path) -> None:
    """Much of it comes whole and in order, and who stops reading holds nobody up."""
    program = tmp_path / "much.py"
    program.write_text(MUCH_OF_IT)
    hosts = f"--prtemca plm_ssh_agent {fake_ssh()} --host {NODES[0]}:2,{NODES[1]}:2"
    job = words("env", f"{FILES}={tmp_path}", FTRMA, "run", "-n", 2, "--mpirun", hosts, program)
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    whole = shell(f"seq 200000 | {job} all", 60)
    assert whole.status == 0 and whole.stdout.split() == ["200000", "20000100000"], whole
    some = shell(f"seq 200000 | {job} some", 60)
    assert some.status == 0 and some.stdout.split() == ["10", "55"], some


MUCH_OF_IT = """
import itertools, sys
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    some = itertools.islice(sys.stdin, 10 if sys.argv[1] == "some" else None)
    numbers = [int(line) for line in some]
    print(len(numbers), sum(numbers))
MPI.COMM_WORLD.Barrier()
"""
