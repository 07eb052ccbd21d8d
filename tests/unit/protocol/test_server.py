"""A spare that takes a checksum rank's seat, and slots that stage: neither disturbs the other."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.fabric.control_file import make_control
from ftrma.fabric.one_node import OneNodeView
from ftrma.host.key import Key
from ftrma.machine.topology import make_layout
from ftrma.native import job, loading
from ftrma.native.shared import Proc, Version
from ftrma.protocol.server import Server


def server_of(members: list[Any]) -> tuple[Server, Any, list[int]]:
    """A server whose group has these members; its words; and when it rang the bell."""
    me, rung = SimpleNamespace(rebuilding=0), []
    view: Any = SimpleNamespace(
        words=SimpleNamespace(me=me, committed=3, process=members.__getitem__),
        slot_holders=lambda: [0, 1], layout=SimpleNamespace(members=lambda group: [0, 1]),
        ring=lambda: rung.append(me.rebuilding))
    return Server(view, None, None), me, rung


@pytest.mark.parametrize(("staging", "staged", "amid"), [
    (0, 3, False), (3, 3, False), (4, 4, False), (4, 3, True)])
def test_a_rebuild_is_announced_when_nobody_is_amid_staging(
    staging: int, staged: int, amid: bool
) -> None:
    """Law: it is announced, and slots are kept from beginning, only if it can begin now."""
    still = SimpleNamespace(staging=3, staged=3)
    server, me, rung = server_of([still, SimpleNamespace(staging=staging, staged=staged)])
    assert server.announce_rebuild(0) != amid
    assert me.rebuilding != amid and not rung
    server.withdraw_rebuild()
    assert not me.rebuilding and rung == [0]


def test_a_slot_that_begins_meanwhile_goes_first() -> None:
    """Law: the announcement is taken back if a slot has announced itself at that moment."""

    class Beginning:
        staged, looks = 3, 0

        @property
        def staging(self) -> int:
            self.looks += 1
            return 3 if self.looks == 1 else 4

    server, me, rung = server_of([Beginning(), SimpleNamespace(staging=3, staged=3)])
    assert not server.announce_rebuild(0)
    assert not me.rebuilding and rung == [0]


def in_another_process(work: Callable[[], None]) -> None:
    """Do something in a process that may join a job."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_slot_is_admitted(tmp_path: Path) -> None:
    """Law: a slot may begin version v + 1 if every parity is at v, or is still to be computed at v;
    not while one is being computed, or its checksum rank is dead and nobody has the seat."""
    loading.load()
    layout = make_layout(2)
    make_control(tmp_path / "control", layout)
    alive, dead = job.ProcessState.ALIVE, job.ProcessState.DEAD

    def work() -> None:
        view = OneNodeView(tmp_path, Key.make(), Proc(0))
        seat = view.checksum_holders()[0]
        words, me = view.words.process(seat), view.words.me
        for state, ready, folded, rebuilding, admitted in (
            (alive, 1, 3, 0, True), (alive, 1, 2, 0, False), (alive, 1, 3, 1, False),
            (alive, 0, 0, 0, True), (alive, 0, 3, 1, False), (dead, 1, 3, 0, False),
            (dead, 0, 0, 0, False), (alive, 0, 0, 0, True),
        ):
            view.words.set_committed(Version(3))
            view.ctl.proc[seat].state = state
            words.ready, words.folded, words.rebuilding = ready, Version(folded), rebuilding
            case = state, ready, folded, rebuilding
            assert view.admit(Version(4), wait=False) == admitted, case
            assert me.staging == 4 * admitted, case
            if not ready:
                view.words.set_committed(Version(2))
                assert not view.admit(Version(4), wait=False), case

    in_another_process(work)
