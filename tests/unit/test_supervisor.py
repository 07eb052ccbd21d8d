"""The supervisor's course from launch to launch, with launches that are made up."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.errors import CATASTROPHE
from ftrma.host.key import Key
from ftrma.launch import relaunch, supervisor
from ftrma.launch.supervisor import Interrupted, Signals
from ftrma.launch.switchboard import Cause
from ftrma.machine.topology import make_layout
from ftrma.settings import Options


def test_signals_interrupt_the_watching_only() -> None:
    """Law: a signal ends the watching at once, or as soon as there is some again; what is done
    between, and after the first signal, is not interrupted."""
    signals = Signals()
    old = signal.signal(signal.SIGTERM, signals)
    try:
        signal.raise_signal(signal.SIGTERM)
        for _ in range(2):
            with pytest.raises(Interrupted), signals.heeded():
                pytest.fail("watched on")
        signals = Signals()
        signal.signal(signal.SIGTERM, signals)
        with pytest.raises(Interrupted) as raised, signals.heeded():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # once more, while the first one is obeyed
        assert raised.value.args == (signal.SIGTERM,)
    finally:
        signal.signal(signal.SIGTERM, old)


class MadeUp:
    """A launch whose processes never come; the first one is over several nodes and has failed."""

    made = 0

    def __init__(self, directory: Path, *_: Any) -> None:
        MadeUp.made += 1
        cause = None if MadeUp.made == 1 else "slot 1 died"
        self.switchboard = SimpleNamespace(spread=MadeUp.made == 1, cause=cause)
        self.ctl = SimpleNamespace(start_ns=0, resume=0, request=0)
        lib = SimpleNamespace(ftrma_now_ns=lambda: 0, FTRMA_RELAUNCH=1, FTRMA_NOTHING=0,
                              FTRMA_DEAD=2)
        self.memory_was_full, self.own_end = False, None
        self.native, self.ranks = SimpleNamespace(lib=lib), {}
        self.log = directory / "launcher.log"
        self.log.write_text("no such node\n")

    def procs(self) -> list[Any]:
        return []

    def refused(self) -> str:
        return ""

    def end(self, **_: Any) -> None:
        pass


def test_a_relaunch_that_does_not_come_up_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: a job that cannot be launched again ends with the status of failures that cannot be
    repaired, and shows what the launcher said."""
    cause = Cause("slot 1 on node2 died", (1,), 0.0, 0.0)
    monkeypatch.setattr(MadeUp, "made", 0)
    monkeypatch.setattr(supervisor, "Launch", MadeUp)
    monkeypatch.setattr(supervisor, "watch", lambda made: "the launcher died")
    monkeypatch.setattr(supervisor, "_next_spread", lambda *_: ([], cause))
    monkeypatch.setattr(supervisor.failover, "clean_up", lambda *_: None)
    made = relaunch.Job(
        None, tmp_path, Key.make(), make_layout(2), Options(slots=2), ["x.py"]
    )
    status = supervisor._supervise(made, Signals())
    assert status == CATASTROPHE and MadeUp.made == 2
    said = capsys.readouterr().err
    assert "no such node" in said and "did not start again: the launcher died" in said
