"""Lines that several ranks print come whole, and none is lost, also before a kill."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from jobs import FILES, FTRMA, MARK, Result, kill_marked, run_command, until
from nodes import NODES, fake_ssh, run_on_nodes, why_not
from tiers import tiers

LIMIT_S = 40
LINES = 1500
# Each line is "<rank> <number> <length> <letters>." in many parts, some longer than a pipe takes at
# once; every third call prints two lines, so that the last one's newline comes by itself.
PROGRAM = """
import os, signal, sys, threading, time
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
window = MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
LINES, kill = int(sys.argv[1]), sys.argv[2]
number = 0

def line(number):
    length = 20000 if number % 500 == 7 and not kill else number % 97
    return [rank, number, length, chr(97 + rank) * length + "."]

def die():
    while number < LINES // 3:
        time.sleep(0)
    os.close(os.open(kill, os.O_CREAT | os.O_EXCL))  # once
    os.kill(os.getpid(), signal.SIGKILL)

if kill and rank == 2:
    threading.excepthook = lambda _: None
    threading.Thread(target=die, daemon=True).start()
window.Fence()
for number in range(0, LINES, 2):
    stream = sys.stderr if number % 10 == 4 else sys.stdout
    if number % 6:
        print(*line(number), file=stream)
        print(*line(number + 1), file=stream)
    else:
        first, second = (" ".join(map(str, line(n))) for n in (number, number + 1))
        print(f"{first}\\n{second}", file=stream)
    if number == LINES // 2:
        window.Fence()
window.Fence()
"""
LINE = re.compile(r"(\d) (\d+) (\d+) ([a-d]*)\.")
UNBUFFERED = {"buffered": {}, "unbuffered": {"PYTHONUNBUFFERED": "1"}}
pytestmark = pytest.mark.full


def numbers_of(text: str) -> dict[int, Counter[int]]:
    """Numbers of the lines by rank; every line must be whole."""
    assert text.endswith("\n"), text[-200:]
    found: dict[int, Counter[int]] = {rank: Counter() for rank in range(4)}
    for line in text.splitlines():
        if line.startswith("ftrma: "):
            continue
        match = LINE.fullmatch(line)
        assert match, line[:300]
        rank, number, length, letters = match.groups()
        assert letters == "abcd"[int(rank)] * int(length), line[:300]
        found[int(rank)][int(number)] += 1
    return found


def printed(
    tmp_path: Path, to: str, env: dict[str, str], *options: str, kill: str = ""
) -> str:
    """Run the program; all that it has written, to both streams.

    Args:
        kill: file by which slot 2 knows whether it has killed itself while it printed.
    """
    program, log = tmp_path / "program.py", tmp_path / "log"
    program.write_text(PROGRAM)
    job = shlex.join([FTRMA, "run", "-n", "4", *options, str(program), str(LINES), kill])
    ways = {"pipe": f"{job} 2>&1 | cat > {log}", "file": f"{job} > {log} 2>&1"}
    env = {FILES: str(tmp_path), **env}
    result = run_command(["bash", "-c", f"set -o pipefail; {ways[to]}"], LIMIT_S, env)
    assert result.status == 0, (result, log.read_text()[-2000:])
    return log.read_text()


@pytest.mark.parametrize("how", UNBUFFERED)
@pytest.mark.parametrize("to", tiers(["pipe", "file"], full=["pipe"]))
def test_lines_come_whole(tmp_path: Path, to: str, how: str) -> None:
    """In several parts, several at once, of any length, to both streams at the same time."""
    found = numbers_of(printed(tmp_path, to, UNBUFFERED[how]))
    assert found == {rank: Counter(range(LINES)) for rank in range(4)}


@pytest.mark.parametrize("how", UNBUFFERED)
def test_lines_up_to_a_kill_come_whole(tmp_path: Path, how: str) -> None:
    """All that a rank has printed before a call is there when it is killed in this call."""
    text = printed(tmp_path, "pipe", UNBUFFERED[how], "--kill", "2@fence:2")
    found = numbers_of(text)
    assert "slot 2 died; replayed" in text
    assert all(found[rank] == Counter(range(LINES)) for rank in (0, 1, 3))
    # The replacement prints again what the first had printed.
    printed_before = LINES // 2 + 2
    assert found[2] == Counter(range(LINES)) + Counter(range(printed_before)), found[2]


@pytest.mark.parametrize("how", UNBUFFERED)
@pytest.mark.parametrize("to", tiers(["pipe", "file"], full=["pipe"]))
def test_lines_come_whole_around_a_kill(tmp_path: Path, to: str, how: str) -> None:
    """Killed while it prints, a rank has written whole lines, all up to there."""
    text = printed(tmp_path, to, UNBUFFERED[how], kill=str(tmp_path / "killed"))
    found = numbers_of(text)
    assert "slot 2 died; replayed" in text
    assert all(found[rank] == Counter(range(LINES)) for rank in (0, 1, 3))
    again = found[2] - Counter(range(LINES))
    assert again == Counter(range(len(again))) and len(again) >= LINES // 3, again


def test_lines_of_threads_and_children(tmp_path: Path) -> None:
    """They are whole like those of ranks."""
    program = tmp_path / "threads.py"
    program.write_text("""
import os, sys, threading
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank

def go(first):
    for number in range(first, first + 300):
        length = 9000 if number % 100 == 7 else number % 50
        print(rank, number, length, chr(97 + rank) * length + ".")

threads = [threading.Thread(target=go, args=(300 * i,)) for i in range(4)]
for thread in threads:
    thread.start()
if not (child := os.fork()):
    go(1200)
    os._exit(0)
os.waitpid(child, 0)
for thread in threads:
    thread.join()
""")
    log = tmp_path / "log"
    job = shlex.join([FTRMA, "run", "-n", "2", str(program)])
    result = run_command(["bash", "-c", f"{job} 2>&1 | cat > {log}"], LIMIT_S)
    assert result.status == 0, result
    assert list(numbers_of(log.read_text()).values())[:2] == 2 * [Counter(range(1500))]


@pytest.mark.parametrize("how", UNBUFFERED)
def test_half_a_line_comes_by_flush(tmp_path: Path, how: str) -> None:
    """A prompt, a progress display, and bytes, as soon as they are to be seen."""
    program = tmp_path / "prompt.py"
    program.write_text("""
import sys, time
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    print("kept back", end=", ")
    print("prompt>", end="", flush=True)
    time.sleep(0.2)
    sys.stdout.buffer.write(b" bytes>")
    sys.stdout.buffer.flush()
    print("\\r50 %", end="")
    input()
    print("no newline at the end", end="")
    sys.stderr.write("nor here")
""")
    mark = os.urandom(8).hex()
    with subprocess.Popen(
        [FTRMA, "run", "-n", "2", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, MARK: mark, **UNBUFFERED[how]},
    ) as job:
        try:
            assert job.stdin and job.stdout and job.stderr
            text = until(job.stdout.fileno(), "50 %", "", time.monotonic() + LIMIT_S)
            assert text == "kept back, prompt> bytes>\r50 %"
            job.stdin.write(b"\n")
            job.stdin.close()
            job.stdin = None
            out, err = job.communicate(timeout=LIMIT_S)
        finally:
            kill_marked(mark)
    assert (job.returncode, out, err) == (0, b"no newline at the end", b"nor here")


def test_output_nobody_reads(tmp_path: Path) -> None:
    """A reader that has seen enough is told to the program as ever, and once."""
    program = tmp_path / "head.py"
    program.write_text("""
import sys
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    try:
        for i in range(200_000):
            print("line", i)
    except BrokenPipeError:
        sys.stderr.write("told\\n")
""")
    job = shlex.join([FTRMA, "run", "-n", "2", str(program)])
    result = run_command(["bash", "-c", f"{job} | head -n 1; exit ${{PIPESTATUS[0]}}"], LIMIT_S)
    assert (result.status, result.stdout, result.stderr) == (0, "line 0\n", "told\n"), result


@pytest.mark.parametrize("how", UNBUFFERED)
def test_lines_of_several_nodes(tmp_path: Path, how: str) -> None:
    """Those of ranks on the supervisor's host, and those that come over the network."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    hosts = f"{socket.gethostname()}:2,{NODES[0]}:2,{NODES[1]}:2"
    options = f"--prtemca plm_ssh_agent {fake_ssh()} --host {hosts} --map-by ppr:2:node"
    found = numbers_of(printed(tmp_path, "pipe", UNBUFFERED[how], "--mpirun", options))
    assert found == {rank: Counter(range(LINES)) for rank in range(4)}


def test_a_prompt_of_another_node() -> None:
    """It is not held back until its line ends."""
    text = """
import sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 3:
    print("half", end="", flush=True)
    comm.send(None, 0)
    time.sleep(1.4)
    print(" of it", end="", flush=True)
elif comm.rank == 0:
    comm.recv(source=3)
    time.sleep(0.7)
    print("[other line]")
"""
    result: Result = run_on_nodes(text, 4)
    assert result.stdout == "half[other line]\n of it", result
