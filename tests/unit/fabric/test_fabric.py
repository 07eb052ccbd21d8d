"""One suite of laws for what a job looks like to its processes: a fake in one process, and real
processes that share a control file, without MPI."""

from __future__ import annotations

import json
import os
import signal
import traceback
from pathlib import Path
from typing import Any

import pytest
from fabriclaws import LAWS, SLOTS, STATUS, Law, an_abort_has_its_status
from fakefabric import FakeFabric, FakeJob

from ftrma.fabric.base import Fabric
from ftrma.fabric.story import Event
from ftrma.fabric.world import World, make_control
from ftrma.host.key import Key
from ftrma.machine.topology import make_layout
from ftrma.native import job, loading
from ftrma.native.shared import Proc
from ftrma.protocol.spread import SpreadWorld

PATIENCE_S = 20


def run_threads(law: Law, directory: Path) -> tuple[dict[int, Any], int | None]:
    made = FakeJob(SLOTS, directory)
    seen = made.run(lambda fabric: law.body(fabric, fabric.die))
    return seen, made.status


def run_processes(law: Law, directory: Path) -> tuple[dict[int, Any], int | None]:
    """Forked processes, one for each role; those that are no slots look on, or
    do the same."""
    loading.load()
    layout = make_layout(SLOTS)
    ctl = make_control(directory / "control", layout)
    key, pids, pipes = Key.make(), [], []
    together, here = os.pipe(), os.pipe()
    for proc in range(layout.processes):
        answer = os.pipe()
        pid = os.fork()
        if not pid:
            for end in (together[1], here[0], answer[0]):
                os.close(end)
            take_part(law, World(directory, key, Proc(proc)), here[1], together[0], answer[1])
        os.close(answer[1])
        pids.append(pid)
        pipes.append(answer[0])
    os.close(together[0])
    os.close(here[1])
    try:
        for _ in pids:
            assert os.read(here[0], 1) == b"x", "a process did not come up"
        os.write(together[1], b"x" * len(pids))  # all have joined: begin
        seen = {}
        for slot in range(SLOTS):
            text = b"".join(iter(lambda end=pipes[slot]: os.read(end, 1 << 16), b""))
            if slot not in law.deaths:
                seen[slot] = json.loads(text)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
        for end in (together[1], here[0], *pipes):
            os.close(end)
    wrong = [saw for saw in seen.values() if isinstance(saw, str) and "Traceback" in saw]
    assert not wrong, wrong[0]
    ended = ctl.request == job.Request.ABORT
    return seen, ctl.exit_status if ended else None


def take_part(law: Law, world: World, here: int, together: int, answer: int) -> None:
    """What a process does; it is ended from outside, since an end of its own is a death."""
    signal.alarm(PATIENCE_S)
    try:
        os.write(here, b"x")
        os.read(together, 1)
        job.watch()
        if world.proc < SLOTS or law.everyone:
            saw = law.body(world, lambda: os.kill(os.getpid(), signal.SIGKILL))
            os.write(answer, json.dumps(saw).encode())
    except BaseException:
        os.write(answer, json.dumps(traceback.format_exc()).encode())
    os.close(answer)
    while True:
        signal.pause()


@pytest.mark.parametrize("run", [run_threads, run_processes])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_laws(law: Law, run: Any, tmp_path: Path) -> None:
    """Law: that of `fabriclaws`, whatever is behind the protocol."""
    seen, _ = run(law, tmp_path)
    assert set(seen) == set(range(SLOTS)) - set(law.deaths)
    law.holds(seen)


def twice(fabric: FakeFabric, event: Event) -> None:
    for _ in range(2):
        fabric.job.story.append(event)


BROKEN = [
    ("all_know_who_is_who", "alive", lambda fabric, proc: True),
    ("a_barrier_holds_all_until_the_last_came", "barrier", lambda fabric: None),
    ("same_everywhere_names_who_differs", "same_everywhere", lambda fabric, value: None),
    ("events_are_told_once_and_in_order", "emit", twice),
    ("one_reports_the_error", "claim_error", lambda fabric: True),
    ("the_end_is_the_end_of_all", "end_program", lambda fabric: None),
    ("a_death_is_seen_by_all_and_unwinds_waits", "unwind_if_alarmed", lambda fabric: None),
    ("another_death_changes_the_round", "meet", lambda fabric, number, phase, planned=True: None),
    ("nobody_meets_without_a_holder", "meet", lambda fabric, number, phase, planned=True: None),
]


@pytest.mark.parametrize(("name", "method", "instead"), BROKEN, ids=[b[0] for b in BROKEN])
def test_each_law_can_be_broken(
    name: str, method: str, instead: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a fabric that does less is found out."""
    monkeypatch.setattr(FakeFabric, method, instead)
    law = next(law for law in LAWS if law.name == name)
    with pytest.raises(AssertionError):
        law.holds(run_threads(law, tmp_path)[0])


def test_each_law_is_broken_once() -> None:
    """Law: no law is left out of the test above."""
    assert [name for name, *_ in BROKEN] == [law.name for law in LAWS]


@pytest.mark.parametrize("run", [run_threads, run_processes])
def test_abort(run: Any, tmp_path: Path) -> None:
    """Law: who aborts gives the job its status."""
    _, status = run(Law(an_abort_has_its_status, lambda seen: None), tmp_path)
    assert status == STATUS


@pytest.mark.parametrize(("policy", "trace", "logged"), [
    ("auto", False, True), ("causal", False, True), ("rollback", False, False),
    ("rollback", True, True),
])
def test_what_is_logged(policy: str, trace: bool, logged: bool, tmp_path: Path) -> None:
    """Law: accesses are logged for replays and traces, on one node as over several."""
    fake, world = FakeFabric(FakeJob(1, tmp_path), 0), World.__new__(World)
    for fabric in (fake, world, SpreadWorld.__new__(SpreadWorld)):
        fabric.choose(policy, fresh=False)
        assert fabric.logs(trace=trace) == logged and fabric.policy == policy


def test_all_have_the_whole_protocol(tmp_path: Path) -> None:
    """Law: nothing of it is missing anywhere (mypy compares the types of those that are used)."""
    wanted = {name for name in vars(Fabric) if not name.startswith("_")}
    for have in (World, SpreadWorld, FakeFabric):
        assert wanted <= set(dir(have)), have
    fake = FakeFabric(FakeJob(1, tmp_path), 0)
    assert set(Fabric.__annotations__) <= set(vars(fake))
