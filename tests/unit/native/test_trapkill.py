"""Breakpoints that a library lets stand in another one (`tests/c/trapkill.c`).

Law: a process in which breakpoints stand computes as one without them; a survey finds the
instructions that are executed, and how often; a process ends before the visit that is named, and
neither before nor after it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from instructions import code
from instructions.draw import Job, Kill
from instructions.judge import BREAKPOINT, breakpoints_of

pytestmark = [
    pytest.mark.plain,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="breakpoints are those of x86"),
    pytest.mark.skipif(not shutil.which("objdump"), reason="there is no objdump"),
]
ROUNDS = 7
TOY = """
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
static __attribute__((noinline)) int step(int x) { return x * 3 + 1; }
int walk(int n) { int x = 1; for (int i = 0; i < n; i++) { x = step(x) % 1000; } return x; }
volatile int signals;
void on_signal(int number) { signals += step(number) > 0; }
int unreasoned(void)
{
    siginfo_t info = {.si_signo = SIGTRAP, .si_code = TRAP_BRKPT};
    long process = getpid(), thread = syscall(SYS_gettid), result = SYS_rt_tgsigqueueinfo;
    register siginfo_t *what __asm__("r10") = &info; /* no call may follow before it is used */
    __asm__ volatile("syscall" : "+a"(result) : "D"(process), "S"(thread), "d"(SIGTRAP), "r"(what)
                     : "rcx", "r11", "memory");
    return result ? -1 : step(3);
}
"""
# The toy is called in a thread that blocks all signals, too.
PROGRAM = f"""
import ctypes, signal, sys, threading
toy = ctypes.CDLL(sys.argv[1])
found = []
def other():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    found.append(toy.walk({ROUNDS}))
thread = threading.Thread(target=other)
thread.start(), thread.join()
print(toy.walk({ROUNDS}), *found)
"""
# The toy handles a signal that comes again and again.
SIGNALLED = f"""
import ctypes, signal, sys
toy = ctypes.CDLL(sys.argv[1])
ctypes.CDLL(None).signal(int(signal.SIGALRM), toy.on_signal)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
signals, values = ctypes.c_int.in_dll(toy, "signals"), set()
while signals.value < 100:
    values.add(toy.walk({ROUNDS}))
signal.setitimer(signal.ITIMER_REAL, 0)
print(*values)
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("toy")
    (home / "toy.c").write_text(TOY)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(home / "toy_code.so"),
                    str(home / "toy.c")], check=True)
    code.build_trap(home)
    return home


def functions_of(toy: Path, monkeypatch: pytest.MonkeyPatch) -> code.Code:
    monkeypatch.setattr(code, "path_of", lambda library: toy / library)
    return code.code_of.__wrapped__("toy_code.so")


def run(toy: Path, mode: str, file: Path,
        program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LD_PRELOAD": str(toy / "trapkill.so"), "TRAP_LIBRARY": "toy_code.so",
           "TRAP_FILE": str(file), "TRAP_MODE": mode}
    return subprocess.run([sys.executable, "-c", program, str(toy / "toy_code.so")], env=env,
                          capture_output=True, text=True, timeout=20)


def right() -> str:
    x = 1
    for _ in range(ROUNDS):
        x = (x * 3 + 1) % 1000
    return f"{x} {x}\n"


def test_a_survey_counts_visits(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law of this file; no more than three are counted."""
    found = functions_of(toy, monkeypatch)
    marks = np.zeros(found.size, "u1")
    marks[np.array(sorted(found.functions)) - found.begin] = 1
    file = toy / "survey"
    file.write_bytes(np.array([found.begin, found.size], "u8").tobytes() + marks.tobytes()
                     + bytes(4 * found.size))
    outcome = run(toy, "survey", file)
    assert (outcome.returncode, outcome.stdout) == (0, right()), outcome
    counts = np.fromfile(file, "u1")[16 + found.size:].reshape(4, found.size)
    assert not counts[:3].any()  # there is no job
    visits = {name: {int(counts[3, at - found.begin]) for at, function in found.functions.items()
                     if function == name} for name in ("step", "walk")}
    assert visits == {"step": {3}, "walk": {0, 2, 3}}  # a branch is not taken


@pytest.mark.parametrize("nth", [1, ROUNDS + 1, 2 * ROUNDS, 2 * ROUNDS + 1])
def test_the_named_visit_is_the_last(toy: Path, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """Law of this file: of 14 visits in two threads, the one that is named, if there is one."""
    found = functions_of(toy, monkeypatch)
    at, other = (max(at for at, name in found.functions.items() if name == function)
                 for function in ("step", "walk"))
    job = Job(0, "", 0, "toy_code.so", 1, (), (Kill(at, nth, "nobody", -1, 0),
                                               Kill(other, 1, "slot", -1, 0)))
    file = toy / "breakpoints"
    breakpoints_of(job).tofile(file)
    outcome = run(toy, "kill", file)
    killed = nth <= 2 * ROUNDS
    assert outcome.returncode == (-signal.SIGKILL if killed else 0), outcome
    assert outcome.stdout == ("" if killed else right())
    row = np.fromfile(file, BREAKPOINT)[0]
    assert (int(row["count"]), bool(row["struck"])) == (min(nth, 2 * ROUNDS), killed)


def test_a_signal_comes_with_that_of_a_breakpoint(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law of this file, where handlers of signals come to breakpoints, too."""
    found = functions_of(toy, monkeypatch)
    ours = [at for at, name in found.functions.items() if name in ("step", "walk", "on_signal")]
    file = toy / "all"
    kills = tuple(Kill(at, 1 << 40, "nobody", -1, 0) for at in ours)
    breakpoints_of(Job(0, "", 0, "toy_code.so", 1, (), kills)).tofile(file)
    outcome = run(toy, "kill", file, SIGNALLED)
    assert (outcome.returncode, outcome.stdout) == (0, f"{right().split()[0]}\n"), outcome


def test_a_trap_without_a_reason(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law of this file, where a virtual machine loses the reason of the trap behind an instruction:
    it is not taken for a breakpoint. The toy sends itself a signal like that trap's."""
    found = functions_of(toy, monkeypatch)
    at = min(at for at, name in found.functions.items() if name == "step")
    file = toy / "one"
    job = Job(0, "", 0, "toy_code.so", 1, (), (Kill(at, 9, "nobody", -1, 0),))
    breakpoints_of(job).tofile(file)
    program = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).unreasoned())"
    outcome = run(toy, "kill", file, program)
    assert (outcome.returncode, outcome.stdout) == (0, "10\n"), outcome
