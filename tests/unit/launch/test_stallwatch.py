"""The watch over slots: when it says that they hang, and when it keeps still.

Each law holds on one node, and over two nodes whose agents send words and are asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.fabric import story
from ftrma.fabric.story import Stall
from ftrma.launch import farlooks, processlooks, stallwatch
from ftrma.launch.farlooks import FarLooks
from ftrma.launch.nodewatch import NodeWatch
from ftrma.launch.nodewords import JOB, PROCESS, SLOT
from ftrma.launch.processlooks import NearLooks
from ftrma.launch.stallwatch import StallWatch
from ftrma.native.constants import WHAT
from ftrma.native.job import CALLS_INSIDE, ProcessState

SLOTS, LIMIT_S = 3, 10.0
CALL = 2 * (CALLS_INSIDE + 1)  # entered and left


def control() -> Any:
    """A control file as far as it is read from outside; of three slots, a checksum rank, a spare.
    """
    proc = [SimpleNamespace(**dict.fromkeys(PROCESS, 0), state=0, call=0)
            for _ in range(SLOTS + 2)]
    roles = SimpleNamespace(slot_proc=[*range(SLOTS)], checksum_proc=[SLOTS],
                            slot_group=[0] * SLOTS)
    return SimpleNamespace(
        **dict.fromkeys(JOB, 0), proc=proc, roles=[roles, roles], roles_seq=0, nprocs=SLOTS + 2,
        nslots=SLOTS, nchecksums=1, strength=1,
        slots=[SimpleNamespace(**dict.fromkeys(SLOT, 0)) for _ in range(SLOTS)])


class Job:
    """A launch as far as `StallWatch` reads it. Process p is on node p % 2."""

    def __init__(self, directory: Path, stall: float | str, on_stall: str) -> None:
        self.ctl = control()
        self.ctl.attempt = self.ctl.start_ns = 1
        for i, p in enumerate(self.ctl.proc):
            vars(p).update(pid=100 + i, state=1, ordinal=1, node=i % 2)
        self.directory = directory
        self.options = SimpleNamespace(stall=stall, on_stall=on_stall)
        self.layout = SimpleNamespace(slots=SLOTS)

    def wait(self, slot: int, awaited: int, kind: str = "FENCE") -> None:
        self.ctl.proc[slot].waiting = 1
        self.ctl.proc[slot].awaits = WHAT[kind] << 32 | (awaited + 1)


class Nodes:
    """Two nodes' agents and the supervisor's end of their connections, without any connection."""

    def __init__(self, ctl: Any) -> None:
        self.asked: list[tuple[Any, bytes]] = []
        self.far = FarLooks(control(), self.send, self.pump_until)
        self.nodes, self.frozen = [], set[int]()
        for node in (0, 1):
            peer: Any = SimpleNamespace(rank=node, open=True)
            connection: Any = SimpleNamespace(sendall=lambda text, to=peer: self.take(to, text))
            self.nodes.append((peer, NodeWatch(ctl, node, connection)))
            self.far.greet(peer)

    def send(self, peer: Any, event: str, **data: Any) -> None:
        if event != "hello":
            self.asked.append((peer, json.dumps({"event": event, **data}).encode()))

    def take(self, peer: Any, text: bytes) -> None:
        message = json.loads(text)
        self.far.take(peer, message.pop("event"), message)

    def tell(self) -> None:
        for peer, node in self.nodes:
            if peer.rank not in self.frozen:
                node.tell()

    def pump_until(self, condition: Callable[[], bool], seconds: float) -> None:
        while self.asked:
            peer, text = self.asked.pop()
            if peer.rank not in self.frozen:
                self.nodes[peer.rank][1].answer(json.loads(text))


class World:
    """Clock, signals and lines of a test.

    Attributes:
        nodes: the agents of a job over two nodes; None: it is on one.
    """

    def __init__(self, directory: Path, *, far: bool) -> None:
        self.now, self.directory, self.far = 1000.0, directory, far
        self.nodes: Nodes | None = None
        self.stopped: set[int] = set()
        self.killed: list[int] = []
        self.told: list[str] = []

    def watch(self, stall: float | str = LIMIT_S, on_stall: str = "tell") -> tuple[Job, StallWatch]:
        made = Job(self.directory, stall, on_stall)
        launch: Any = made
        if self.far:
            self.nodes = Nodes(made.ctl)
            return made, StallWatch(launch, self.nodes.far.ctl, self.nodes.far)
        return made, StallWatch(launch, made.ctl, NearLooks(made.ctl))

    def go(self, watch: StallWatch, seconds: float) -> Any:
        """Let time pass, with the looks in it; returns the first outcome that is not nothing."""
        until, found = self.now + seconds, stallwatch.NOTHING
        while self.now < until and found is stallwatch.NOTHING:
            self.now += stallwatch.LOOK_S
            if self.nodes:
                self.nodes.tell()
            found = watch.look()
        return found

    def stalls(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(e.kind, e.slots) for e in story.read(self.directory) if isinstance(e, Stall)]


@pytest.fixture(params=["one node", "two nodes"])
def world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[World]:
    made = World(tmp_path, far=request.param == "two nodes")
    clock = SimpleNamespace(monotonic=lambda: made.now, sleep=lambda seconds: None)
    for module in (stallwatch, processlooks, farlooks):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(stallwatch, "tell", made.told.append)
    monkeypatch.setattr(stallwatch.job, "now_ns", lambda: int(made.now * 1e9))
    monkeypatch.setattr(processlooks, "is_stopped", lambda pid: pid in made.stopped)
    monkeypatch.setattr(processlooks.stacks, "located", lambda pid: f"the line of {pid}")
    monkeypatch.setattr(processlooks.stacks, "py_spy", lambda: "py-spy")
    monkeypatch.setattr(processlooks.os, "pidfd_open", lambda pid: pid)
    monkeypatch.setattr(processlooks.os, "close", lambda fd: None)
    monkeypatch.setattr(processlooks.signal, "pidfd_send_signal",
                        lambda fd, number: made.killed.append(fd))
    yield made


def test_a_stall_is_named_within_a_second_of_the_limit(world: World) -> None:
    """Law: once, with the line and with those that wait; and told again only when it is over."""
    job, watch = world.watch()
    world.go(watch, 5)
    job.ctl.proc[1].calls += CALL  # the last that slot 1 does
    began = world.now
    for slot in (0, 2):
        job.wait(slot, 1)
    world.go(watch, LIMIT_S - 0.5)
    assert not world.told
    world.go(watch, 1.5)
    assert world.now - began <= LIMIT_S + 1 and world.stalls() == [("stall", (1,))]
    assert world.told[0].startswith("slot 1 has stood still for 10.")
    assert world.told[1] == "  slot 1: the line of 101"
    assert "slots 0 and 2 wait in a fence" in world.told[2] and "for slot 1" in world.told[2]
    world.go(watch, 60)
    assert len(world.told) == 3
    job.ctl.proc[1].calls += CALL
    for slot in (0, 2):
        job.ctl.proc[slot].waiting = 0
        job.ctl.proc[slot].calls += CALL
    world.go(watch, 1)
    assert world.told[3:] == ["slot 1 goes on"]


@pytest.mark.parametrize("word", ["calls", "ordinal", "syncs", "staged", "mails"])
def test_each_sign_of_life_counts(world: World, word: str) -> None:
    """Law: calls, safepoints, synchronizations, versions and mail of each slot, and events below.
    """
    job, watch = world.watch()
    for _ in range(30):
        for p in job.ctl.proc[:SLOTS]:
            setattr(p, word, getattr(p, word) + 1)
        world.go(watch, 1)
    assert not world.told
    for _ in range(30):
        for words in job.ctl.slots:
            words.events += 1
        world.go(watch, 1)
    assert not world.told


@pytest.mark.parametrize("change", [
    {"alarm": 1}, {"halt": 1}, {"request": 1}, {"start_ns": 0}])
def test_what_has_its_own_time_out_is_not_judged(world: World, change: dict[str, int]) -> None:
    """Law: a repair, an end that was asked for, the end of a launch, and its beginning; behind
    these the time begins anew."""
    job, watch = world.watch()
    before = {name: getattr(job.ctl, name) for name in change}
    vars(job.ctl).update(change)
    world.go(watch, 60)
    vars(job.ctl).update(before)
    world.go(watch, LIMIT_S - 1)
    assert not world.told
    world.go(watch, 2)
    assert world.stalls() == [("stall", (0, 1, 2))]


def test_a_death_that_a_framework_is_told_of_is_no_stall(world: World) -> None:
    """Law: nobody is to blame for standing still who is dead; it waits for nobody either."""
    job, watch = world.watch()
    job.ctl.proc[1].state = ProcessState.DEAD
    for _ in range(30):
        for slot in (0, 2):
            job.ctl.proc[slot].calls += CALL
        world.go(watch, 1)
    assert not world.told
    for slot in (0, 2):
        job.wait(slot, -1, "MESSAGE")
    world.go(watch, LIMIT_S + 1)
    assert world.stalls() == [("deadlock", (0, 2))]
    assert "slot 1" not in " ".join(world.told), world.told


def test_a_busy_slot_is_left_alone(world: World) -> None:
    """Law: as long as it has said, and the limit begins behind that."""
    job, watch = world.watch()
    job.ctl.proc[1].busy_until_ns = int((world.now + 30) * 1e9)
    for slot in (0, 2):
        job.wait(slot, 1)
    world.go(watch, 30 + LIMIT_S - 1)
    assert not world.told
    world.go(watch, 2)
    assert world.stalls() == [("stall", (1,))]


def test_a_replay_has_the_time_of_the_work_that_it_repeats(world: World) -> None:
    """Law: so much more as had passed from the checkpoint to the replay's beginning."""
    job, watch = world.watch()
    job.ctl.commit = 1 << 1
    world.go(watch, 0.25)
    for _ in range(20):
        for p in job.ctl.proc[:SLOTS]:
            p.calls += CALL
        world.go(watch, 1)
    for slot in (0, 2):
        job.wait(slot, 1, "REPLAY")
    job.ctl.proc[1].pid, job.ctl.slots[1].replaying = 109, 1
    world.go(watch, 20 + LIMIT_S - 1)
    assert not world.told
    world.go(watch, 3)
    assert world.stalls() == [("stall", (1,))]


def test_who_is_to_blame_is_killed(world: World) -> None:
    """Law: a slot that is stopped while it waits, and not those that wait for it."""
    job, watch = world.watch(on_stall="replace")
    for slot, awaited in ((0, 1), (1, 2), (2, 1)):
        job.wait(slot, awaited)
    world.stopped.add(101)
    assert world.go(watch, LIMIT_S + 1) is stallwatch.NOTHING
    assert world.killed == [101]


@pytest.mark.parametrize("spares", [0, 1])
def test_nobody_is_killed_who_cannot_be_replaced(world: World, spares: int) -> None:
    """Law: with no spare, or more slots to blame than their group survives, the job is launched
    again from all vaults."""
    job, watch = world.watch(on_stall="replace")
    job.ctl.proc[-1].state = spares
    job.wait(0, 1)
    if not spares:
        job.wait(2, 1)
    found = world.go(watch, LIMIT_S + 1)
    assert found.relaunch.startswith("the job hangs: slot") and not world.killed


def test_a_deadlock_has_nobody_to_blame(world: World) -> None:
    """Law: it is named with all lines, and the job is launched again."""
    job, watch = world.watch(on_stall="replace")
    for slot, awaited in ((0, 1), (1, 0), (2, 0)):
        job.wait(slot, awaited, "LOCK")
    found = world.go(watch, LIMIT_S + 1)
    assert "slots 0 and 1 have waited for each other" in found.relaunch and not world.killed
    assert world.stalls() == [("deadlock", (0, 1))]


def test_a_stopped_checksum_rank_is_found_behind_a_deadlock(world: World) -> None:
    """Law: all slots wait for it, and it alone is killed."""
    job, watch = world.watch(on_stall="replace")
    for slot in range(SLOTS):
        job.wait(slot, -1, "COMMIT")
    world.stopped.add(100 + SLOTS)
    assert world.go(watch, LIMIT_S + 1) is stallwatch.NOTHING
    assert world.killed == [100 + SLOTS] and world.stalls() == [("checksum", (0,))]


def test_the_limit_follows_steps(world: World) -> None:
    """Law: ten times the longest step; a slot that makes calls for so long without a safepoint
    hangs, too, and none does before a step was seen."""
    job, watch = world.watch(stall="10x")
    world.go(watch, 60)
    assert not world.told
    for seconds in (1.0, 2.0, 1.0):
        for p in job.ctl.proc[:SLOTS]:
            p.ordinal += 1
        world.go(watch, seconds)
    for _ in range(18):
        for p in job.ctl.proc[:SLOTS]:
            p.calls += CALL
        world.go(watch, 1)
    assert not world.told
    for _ in range(4):
        for p in job.ctl.proc[:SLOTS]:
            p.calls += CALL
        world.go(watch, 1)
    assert world.stalls() == [("circle", (0, 1, 2))]


def test_halt_ends_the_job(world: World) -> None:
    _, watch = world.watch(on_stall="halt")
    found = world.go(watch, LIMIT_S + 1)
    assert found.halt.startswith("--on-stall halt: slots 0, 1 and 2 have stood still for 10.")


OVER_NODES = pytest.mark.parametrize("world", ["two nodes"], indirect=True)


@OVER_NODES
@pytest.mark.parametrize("on_stall", ["tell", "replace"])
def test_a_node_that_does_not_answer_is_named(world: World, on_stall: str) -> None:
    """Law: its slots are, once all others wait; nobody there can be killed, so the job is launched
    again."""
    job, watch = world.watch(on_stall=on_stall)
    world.go(watch, 1)
    assert world.nodes
    world.nodes.frozen = {1}
    for slot in (0, 2):
        job.wait(slot, 1)
    found = world.go(watch, LIMIT_S + 1)
    assert world.stalls() == [("stall", (1,))] and not world.killed
    assert world.told[0].endswith("it is on a node that does not answer")
    assert "slots 0 and 2 wait in a fence" in world.told[1]
    assert found.relaunch.startswith("the job hangs: slot 1") == (on_stall == "replace")


@OVER_NODES
def test_a_node_without_word_blames_nobody_while_others_go_on(world: World) -> None:
    """Law: an agent alone may have stopped, so its slots are judged by those that wait for them."""
    job, watch = world.watch(on_stall="replace")
    world.go(watch, 1)
    assert world.nodes
    world.nodes.frozen = {1}
    for _ in range(60):
        job.ctl.proc[0].calls += CALL
        job.ctl.proc[2].calls += CALL
        assert world.go(watch, 1) is stallwatch.NOTHING
    assert not world.told


@OVER_NODES
def test_an_agent_that_follows_another_goes_on_telling(world: World) -> None:
    """Law: its first message has all words; the end of the old connection changes nothing."""
    job, watch = world.watch()
    world.go(watch, 1)
    nodes = world.nodes
    assert nodes
    before, old = nodes.nodes[1]
    peer: Any = SimpleNamespace(rank=1, open=True)
    connection: Any = SimpleNamespace(sendall=lambda text: nodes.take(peer, text))
    nodes.far.greet(peer)
    nodes.nodes[1] = peer, NodeWatch(job.ctl, 1, connection)
    nodes.far.gone(before)
    assert old.sent.procs
    for _ in range(3):
        for p in job.ctl.proc[:SLOTS]:
            p.calls += CALL
        world.go(watch, LIMIT_S - 1)
    assert not world.told
    world.go(watch, 2)
    assert world.stalls() == [("stall", (0, 1, 2))]


@OVER_NODES
def test_words_that_never_come_are_told(world: World) -> None:
    """Law: once, and nobody is judged until they come."""
    _, watch = world.watch(on_stall="replace")
    assert world.nodes
    world.nodes.frozen = {1}
    assert world.go(watch, 60) is stallwatch.NOTHING
    (line,) = world.told
    assert line.startswith("warning: --stall: nothing is heard of slot 1;")
    world.nodes.frozen = set()
    assert world.go(watch, LIMIT_S - 1) is stallwatch.NOTHING
    assert world.go(watch, 2).relaunch
