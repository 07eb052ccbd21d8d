"""A stopped process that keeps a repair waiting is told of, and given up when it is too late."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from ftrma.fabric.absence import StoppedProcess, is_stopped
from ftrma.host.timeouts import STOPPED, STOPPED_TOLD
from ftrma.launch import stoppedprocesses
from ftrma.launch.stoppedprocesses import StoppedProcesses
from ftrma.native.shared import Proc

DIED, ONE = "slot 2 died", StoppedProcess(Proc(1), "slot 1")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(stoppedprocesses, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_who_is_stopped_is_told_once_and_is_too_late(
    clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: told after a moment, relaunched after more; a new repair begins anew."""
    it = StoppedProcesses()
    for begun in (1000.0, 2000.0):
        for after in (0.0, STOPPED_TOLD.s + 0.1, STOPPED.s - 0.1):
            clock.now = begun + after
            assert it.check([ONE], DIED) == ""
        said = capsys.readouterr().err
        assert said.count("slot 2 died; slot 1 does not answer") == said.count("\n") == 1
        clock.now = begun + STOPPED.s + 0.1
        assert it.check([ONE], DIED) == "slot 2 died, and slot 1 does not answer"
        assert it.check([], DIED) == ""


def test_who_goes_on_is_not_late(clock: SimpleNamespace) -> None:
    """Law: a process that is stopped and goes on, and is stopped again, has its time each time."""
    it = StoppedProcesses()
    for after in range(20):
        clock.now = 1000.0 + after * STOPPED.s / 2
        assert it.check([ONE] * (after % 2), DIED) == ""


def test_a_stopped_process_is_known() -> None:
    """Law: by a signal; neither one that sleeps nor one that is gone is."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not is_stopped(process.pid)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            process.send_signal(number)
            deadline = time.monotonic() + 5
            while is_stopped(process.pid) != (number == signal.SIGSTOP):
                assert time.monotonic() < deadline
        process.kill()
    assert not is_stopped(process.pid)
