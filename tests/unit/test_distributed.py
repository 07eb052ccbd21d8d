"""Checkpoints of a job over several nodes, one process at a time: when, and what is left of them.

MPI is not started: slots are threads and their communicator is queues; vaults are real files.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vaultgroup import SEAL

from ftrma import settings as options
from ftrma.errors import CorruptVault
from ftrma.machine.placement import place
from ftrma.machine.topology import domains_of_nodes, make_layout
from ftrma.native import loading, vaults
from ftrma.native.constants import SLOT, SPARE
from ftrma.protocol import distributed
from ftrma.protocol.distributed import Distributed
from ftrma.protocol.retrieval import Retrieval
from ftrma.protocol.spread import SpreadWorld
from ftrma.vault.vault import BLOCK, Vault

PATIENCE_S = 2.0


class Comm:
    """One process's end of a communicator: messages by source and tag, in order."""

    def __init__(self, boxes: dict[Any, queue.Queue[Any]], me: int) -> None:
        self.boxes, self.me = boxes, me

    def Send(self, array: Any, to: int, tag: int) -> None:
        self.boxes[self.me, to, tag].put(np.array(array))

    def Recv(self, array: Any, source: int, tag: int) -> None:
        array[:] = self.boxes[source, self.me, tag].get(timeout=PATIENCE_S)

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def Barrier(self) -> None:
        pass


def exchange(world: Any, slots: int, comm: Any = None) -> Distributed:
    """An exchange of slots 0 .. slots-1 and one checksum rank behind them, without a job."""
    world.everyone = SimpleNamespace(Dup=lambda: comm)
    world.roles = SimpleNamespace(slot_proc=range(slots), checksum_proc=[slots])
    world.ctl = SimpleNamespace(nslots=slots, nchecksums=1, nprocs=slots)
    return Distributed(world)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.sets(st.integers(1, 5)),
       st.booleans())
@example([2, 1], {1}, False)
@settings(max_examples=60, deadline=None)
def test_all_slots_checkpoint_or_none(safepoints: list[int], wanted: set[int], every: bool) -> None:
    """Law: at each safepoint all slots checkpoint or none does, even when some end before others
    get there; and all of them get to the end."""
    n = len(safepoints)
    boxes: dict[Any, queue.Queue[Any]] = defaultdict(queue.Queue)
    for p in range(n):
        for q in range(n):
            for tag in (distributed.VOTE, distributed.RESULT):
                boxes[p, q, tag] = queue.Queue()
    took: dict[int, list[int]] = defaultdict(list)
    ended = []

    def run(slot: int) -> None:
        mine = exchange(SimpleNamespace(role=lambda: (SLOT, slot)), n, Comm(boxes, slot))
        at = [0]
        policy: Any = SimpleNamespace(interval=1.0, every=every, due=lambda size: at[0] in wanted)
        for ordinal in range(1, safepoints[slot] + 1):
            at[0] = ordinal
            if mine.due(policy, slot, ordinal, lambda: 0):
                took[ordinal].append(slot)
        mine.finish()
        ended.append(slot)

    slots = [threading.Thread(target=run, args=(s,)) for s in range(n)]
    for thread in slots:
        thread.start()
    for thread in slots:
        thread.join()
    assert sorted(ended) == list(range(n))
    assert all(len(who) == n for who in took.values()), took
    if every:
        assert sorted(took) == list(range(1, min(safepoints) + 1))
    else:
        assert {o + 1 for o in wanted if o < min(safepoints)} >= set(took)
        assert bool(took) == any(o < min(safepoints) for o in wanted)


loading.load()


def world_of_one() -> Any:
    return SimpleNamespace(
        link=SimpleNamespace(critical=threading.Lock()),
        visit=lambda place: None, barrier=lambda: None, host="a", hosts=["a"], held={}, proc=0,
        first_on_node=True, tell=print, seal=lambda version: SEAL,
    )


def stage(vault: Vault, version: int, array: Any) -> None:
    vault.stage(version, [("x", array.ctypes.data, array.nbytes)], {}, SEAL)
    vault.words.complete = version


def test_a_damaged_vault_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a slot that finds its copy damaged leaves no vault that the next launch takes for one;
    undoing would make the checksums agree with the damage."""
    vault = Vault(tmp_path / "slot-0", 64, 1, create=True)
    array = np.arange(3 * BLOCK, dtype="u1")
    stage(vault, 1, array)
    at = vault.bytes_at(2, BLOCK)
    at[100] = bytes([at[100][0] ^ 1])
    array[::7] += 1
    stood_down: list[CorruptVault] = []
    monkeypatch.setattr(distributed, "step_down", lambda world, error: stood_down.append(error))
    mine = exchange(world_of_one(), 1)
    mine.version = 1
    with pytest.raises(CorruptVault):
        mine.take(vault, [("x", array.ctypes.data, array.nbytes)], {})
    assert stood_down and vault.versions("slot") == {0}
    vault.close()


def test_the_end_does_not_reach_a_vault_that_is_being_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: what another death makes of a launch that is restoring, no vault is left half undone."""
    seen = []
    world = world_of_one()

    def watched(name: str) -> None:
        real = getattr(vaults, name)

        def call(*args: Any) -> None:
            seen.append((name, world.link.critical.locked()))
            real(*args)

        monkeypatch.setattr(vaults, name, call)

    for name in ("stage_undo", "parity_fold", "parity_drop"):
        watched(name)
    array = np.arange(3 * BLOCK, dtype="u1")
    for kind, at in (("slot", 1), ("checksum", 1), ("checksum", 0)):
        vault = Vault(tmp_path / f"{kind}-{at}", 64, 1, create=True)
        stage(vault, 1, array)
        vault.words.version = at
        world.held[kind, at] = vault
    world.role = lambda: (SPARE, 0)
    mine = Retrieval(world, Comm({}, 0), {})
    mine.version = 1
    mine._settle()
    assert sorted(seen) == [
        ("parity_drop", True), ("parity_fold", True), ("stage_undo", True)
    ]
    for vault in world.held.values():
        vault.close()


def test_a_vault_that_is_elsewhere_too_goes(tmp_path: Path) -> None:
    """Law: after a launch has restored, no node has a vault of a role that it does not hold."""
    world = world_of_one()
    world.hosts, world.proc, world.first_on_node = ["b", "a"], 1, True
    world.layout, world.known_committed = make_layout(1, spares=0), 0
    world.found = {("slot", 0): ("b", frozenset({0}))}
    world.role, world.store = (lambda: (2, 0)), (lambda name, value: None)
    world.vault_path_of = lambda role: tmp_path / f"{role[0]}-{role[1]}"
    world.open_vault = lambda role, create: Vault(
        world.vault_path_of(role), 64, 1, create=create
    )
    (tmp_path / "slot-0").touch()
    mine = exchange(world, 1, Comm({}, 1))
    mine.restore()
    vault = mine.vault
    assert vault is not None and os.listdir(tmp_path) == ["checksum-0"]
    vault.close()


class Resumed(SpreadWorld):
    """One that the supervisor has told to resume, before it joins anything."""

    def __init__(self, layout: Any) -> None:
        self.layout = layout
        self.link: Any = SimpleNamespace(greeting={"resume": True})


def test_a_control_file_of_a_killed_process_is_no_obstacle(tmp_path: Path) -> None:
    """Law: a launch begins over whatever the one before was killed at."""
    layout = make_layout(2)
    world = Resumed(layout)
    placement = place(layout, domains_of_nodes(["a"] * layout.processes), "none")
    (tmp_path / "control-0").write_bytes(b"half")
    path = tmp_path / "control-0"
    ctl = world._own_control(path, options.Options(slots=2), placement)
    assert ctl.resume == 1 and ctl.nslots == 2 and not path.exists()
