"""An agent's thread tells the supervisor of its node's processes, over a real connection.

Law: the words of all nodes come together in one control file, as if all were on one node; what the
supervisor asks is answered by the node that has the process.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ftrma.fabric.control_file import make_control
from ftrma.fabric.story import Entered
from ftrma.host import timeouts
from ftrma.host.key import Key
from ftrma.host.listening import Bind
from ftrma.launch import farlooks, jobstatus, nodewatch, nodewords
from ftrma.launch.ranklinks import RankLinks
from ftrma.machine.topology import make_layout
from ftrma.native import job, loading
from ftrma.native.constants import WHAT
from ftrma.native.shared import Proc
from ftrma.protocol.stalls import Doing

SLOTS, NODES = 4, 2
LAYOUT = make_layout(SLOTS, 1, 4, 1)


class Supervisor:
    """The supervisor's links, and the control files of two nodes; process p is on node p % 2."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.key = directory, Key.make()
        self.controls = [make_control(self.path(node), LAYOUT) for node in range(NODES)]
        for ctl in self.controls:  # words that are equal on all nodes
            ctl.start_ns, ctl.attempt, ctl.commit, ctl.nodes = 1, 3, 5 << 1, NODES
            for p in range(ctl.nprocs):
                ctl.proc[p].pid, ctl.proc[p].state = 1000 + p, job.ProcessState.ALIVE
                ctl.proc[p].node = p % NODES
        seen = farlooks.seen(directory, LAYOUT)
        assert seen is not None
        self.seen = seen
        self.links = RankLinks(
            LAYOUT.processes, self.key, Bind("127.0.0.1"), lambda event: None, list, None, {},
            lambda rank, clock: io.BytesIO(), lambda connection: None, seen)
        self.far = self.links.far
        self.far.look_s = 0.01

    def path(self, node: int) -> Path:
        return self.directory / f"control-{node}"

    def begin(self) -> None:
        """Have a thread for each node watch, as its agent has."""
        assert self.links.address
        for node in range(NODES):
            threading.Thread(target=nodewatch._watch, args=(
                self.links.address, self.key, node, self.path(node)), daemon=True).start()

    def until(self, condition: Callable[[], bool]) -> None:
        self.links._pump_until(condition, 10.0)
        assert condition(), "nothing came of it"


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    loading.load()
    monkeypatch.setattr(nodewatch, "AGAIN_S", 0.01)
    made = Supervisor(tmp_path)
    yield made
    if not made.links.connections.epoll.closed:
        made.links.close()


def test_words_of_all_nodes_come_together(supervisor: Supervisor) -> None:
    """Law: each word as its own node has it; later changes, too."""
    seen, controls = supervisor.seen, supervisor.controls
    for node, ctl in enumerate(controls):
        for s in range(SLOTS):  # what a node says of another one's slots is old
            ctl.proc[s].ordinal = 70 + s if s % NODES == node else 1
            ctl.slots[s].events = 90 + s if s % NODES == node else 1
    supervisor.begin()
    supervisor.until(lambda: len(supervisor.far.nodes) == NODES
                     and all(seen.proc[p].pid for p in range(seen.nprocs)))
    assert [seen.proc[s].ordinal for s in range(SLOTS)] == [70, 71, 72, 73]
    assert [seen.slots[s].events for s in range(SLOTS)] == [90, 91, 92, 93]
    assert (seen.attempt, seen.commit, seen.start_ns) == (3, 5 << 1, 1)
    assert not supervisor.links.spread  # an agent is no rank
    for ctl in controls:
        ctl.roles[0].slot_proc[3] = 5  # a spare of node 1 has taken the slot
        ctl.proc[3].state = job.ProcessState.DEAD
        ctl.alarm = 1 << 63
    controls[1].proc[5].ordinal, controls[1].slots[3].events = 74, 94
    supervisor.until(lambda: seen.proc[5].ordinal == 74 and seen.roles[0].slot_proc[3] == 5)
    assert seen.slots[3].events == 94 and seen.alarm == 1 << 63
    assert seen.proc[3].state == job.ProcessState.DEAD
    fresh = farlooks.seen(supervisor.directory, LAYOUT)  # the next launch
    assert fresh and not any(fresh.proc[p].pid for p in range(fresh.nprocs))
    assert not fresh.start_ns and not fresh.slots[3].events


def test_each_node_answers_for_its_processes(supervisor: Supervisor) -> None:
    """Law: what they do, where they are, and their end; a node that is gone answers nothing."""
    program = [sys.executable, "-c", "import time; time.sleep(100)"]
    with subprocess.Popen(program) as process:
        near, far = supervisor.controls
        far.proc[1].pid = process.pid
        near.proc[0].waiting = near.proc[2].waiting = 1
        near.proc[0].awaits = WHAT["FENCE"] << 32 | 2
        far.proc[3].finished = 3
        supervisor.begin()
        supervisor.until(lambda: supervisor.seen.proc[1].pid == process.pid
                         and len(supervisor.far.nodes) == NODES)
        procs = [Proc(p) for p in range(SLOTS)]
        found = supervisor.far.examine(procs)
        assert [found[p].doing for p in procs] == [
            Doing.WAITS, Doing.OUTSIDE, Doing.WAITS, Doing.ENDED]
        assert (found[Proc(0)].kind, found[Proc(0)].awaited) == (WHAT["FENCE"], 1)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert supervisor.far.examine([Proc(1)])[Proc(1)].doing is Doing.STOPPED
        assert [*supervisor.far.places([Proc(1)])] == [1]
        supervisor.far.kill([Proc(1)])
        assert process.wait(10) == -signal.SIGKILL
    supervisor.links.connections.cut(supervisor.far.nodes[1].peer)
    assert [f.doing for f in supervisor.far.examine(procs[:2]).values()] == [
        Doing.WAITS, Doing.SILENT]
    supervisor.until(lambda: 1 in supervisor.far.nodes)  # its thread comes again


def test_who_is_silent_is_not_asked(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: so that no look waits for the time-out again and again."""
    monkeypatch.setitem(timeouts.chosen, "silent", 0.1)
    supervisor.begin()
    supervisor.until(lambda: len(supervisor.far.nodes) == NODES)
    node = supervisor.far.nodes[0]
    node.heard_at = 0.0
    asked: list[Any] = []
    monkeypatch.setattr(supervisor.far, "send", lambda *told, **data: asked.append(told))
    assert supervisor.far.examine([Proc(0)])[Proc(0)].doing is Doing.SILENT
    assert not asked


def test_status_has_each_slot(supervisor: Supervisor) -> None:
    """Law: also on a node without any process of the job; signals of other nodes' are not asked
    for."""
    make_control(supervisor.directory / "control", LAYOUT)
    for ctl in supervisor.controls:
        for s in range(SLOTS):
            ctl.proc[s].ordinal, ctl.proc[s].step = 20 + s, 20 + s
    supervisor.begin()
    supervisor.until(lambda: all(supervisor.seen.proc[p].pid for p in range(LAYOUT.processes)))
    found = jobstatus.look(supervisor.directory, [Entered(0, time=1.0)], 2.0)
    assert [slot.step for slot in found.each_slot] == [20, 21, 22, 23]
    assert [slot.node for slot in found.each_slot] == [0, 1, 0, 1]
    assert found.version == 5 and found.each_slot[0].log_bytes is None


def test_only_what_has_changed_is_sent(supervisor: Supervisor) -> None:
    """Law: a line without words if nothing has; rows come whole."""
    ctl = supervisor.controls[0]
    procs = nodewords.procs_of(ctl, 0)
    before = nodewords.take(ctl, procs)
    assert nodewords.take(ctl, procs).since(before).plain() == {}
    ctl.proc[2].calls = 9
    changed = nodewords.take(ctl, procs).since(before)
    assert [*changed.plain()] == ["procs"] and [*changed.procs] == [2]
    assert nodewords.NodeWords.of_plain({"procs": {"2": changed.procs[2]}}) == changed
