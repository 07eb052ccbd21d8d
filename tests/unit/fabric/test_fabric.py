"""One suite of laws for what a job looks like to its processes: a fake in one process, and real
processes that share a control file, without MPI."""

from __future__ import annotations

import json
import os
import re
import signal
import traceback
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from fabriclaws import LAWS, SLOTS, STATUS, Law, an_abort_has_its_status
from fakefabric import FakeJob, FakeProcessWords, FakeView, FakeWords

from ftrma.fabric import view as views
from ftrma.fabric import words
from ftrma.fabric.control_file import make_control
from ftrma.fabric.control_words import ControlProcessWords, ControlWords
from ftrma.fabric.one_node import OneNodeView
from ftrma.fabric.several_nodes import SeveralNodesView
from ftrma.fabric.story import Event
from ftrma.host.key import Key
from ftrma.machine.topology import make_layout
from ftrma.native import job, loading
from ftrma.native.shared import Proc

PATIENCE_S = 20


def run_threads(law: Law, directory: Path) -> tuple[dict[int, Any], int | None]:
    made = FakeJob(SLOTS, directory)
    seen = made.run(lambda view: law.body(view, view.die))
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
            take_part(law, OneNodeView(directory, key, Proc(proc)), here[1], together[0], answer[1])
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


def take_part(law: Law, mine: OneNodeView, here: int, together: int, answer: int) -> None:
    """Do what the law says, and wait to be ended: an end of its own would be a death."""
    signal.alarm(PATIENCE_S)
    try:
        os.write(here, b"x")
        os.read(together, 1)
        job.watch()
        if mine.proc < SLOTS or law.everyone:
            saw = law.body(mine, lambda: os.kill(os.getpid(), signal.SIGKILL))
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


def twice(view: FakeView, event: Event) -> None:
    for _ in range(2):
        view.job.story.append(event)


BROKEN = [
    ("all_know_who_is_who", "alive", lambda view, proc: True),
    ("a_barrier_holds_all_until_the_last_came", "barrier", lambda view: None),
    ("words_are_seen_behind_a_barrier", "slot_holders", lambda view: [0] * SLOTS),
    ("the_slot_that_differs_is_named", "slot_that_differs", lambda view, value: None),
    ("events_are_told_once_and_in_order", "emit", twice),
    ("one_reports_the_error", "claim_error", lambda view: True),
    ("the_end_is_the_end_of_all", "end_program", lambda view: None),
    ("a_death_is_seen_by_all_and_unwinds_waits", "unwind_if_alarmed", lambda view: None),
    ("another_death_changes_the_round", "meet", lambda view, number, phase, planned=True: None),
    ("nobody_meets_without_a_holder", "meet", lambda view, number, phase, planned=True: None),
]


@pytest.mark.parametrize(("name", "method", "instead"), BROKEN, ids=[b[0] for b in BROKEN])
def test_each_law_can_be_broken(
    name: str, method: str, instead: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a view that does less is found out."""
    monkeypatch.setattr(FakeView, method, instead)
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
    fake, one = FakeView(FakeJob(1, tmp_path), Proc(0)), OneNodeView.__new__(OneNodeView)
    for view in (fake, one, SeveralNodesView.__new__(SeveralNodesView)):
        view.set_policy(policy, fresh=False)
        assert view.logs_accesses(trace=trace) == logged and view.policy == policy


def declared(protocol: type) -> set[str]:
    names = {*vars(protocol), *protocol.__annotations__}
    return {name for name in names if not name.startswith("_")}


PACKAGE = Path(views.__file__).parents[1]
USERS = [path.read_text() for folder in ("protocol", "program", "vault")
         for path in (PACKAGE / folder).glob("*.py")]
PARTS = (views.Membership, views.Meeting, views.JobFiles, views.Reporting)
SEVERAL = {"everyone", "table", "report_start"}  # of a launch over several nodes, while it begins


def test_the_view_is_what_is_used() -> None:
    """Law: who uses the job's view finds all of it declared, and nothing is declared for nobody.

    mypy compares the types of the three implementations with what is declared.
    """
    names = {"words"}.union(*map(declared, PARTS))
    text = "\n".join([*USERS, (PACKAGE / "framework.py").read_text()])
    used = set(re.findall(r"\bview\.(\w+)", re.sub(r"fabric\.view\.\w+", "", text)))
    assert used - SEVERAL == names
    shared = declared(words.Words) | declared(words.ProcessWords)
    assert set(re.findall(r"\bview\.words\.(\w+)", text)) <= shared
    unused = {name for name in shared if not re.search(rf"\.{name}\b", text)}
    assert not unused


def test_all_have_the_whole_view(tmp_path: Path) -> None:
    """Law: nothing that is declared is missing anywhere."""
    names = {"words"}.union(*map(declared, PARTS))
    have = vars(FakeView(FakeJob(1, tmp_path), Proc(0))).keys() | set(dir(FakeView))
    assert names <= have
    of_real = {"words", "proc", "directory", "mapped_vaults"}  # set by the constructor
    for kind in (OneNodeView, SeveralNodesView):
        assert names - of_real <= set(dir(kind))
    assert declared(words.Words) - {"me"} <= set(dir(ControlWords))
    assert declared(words.Words) <= {f.name for f in fields(FakeWords)} | set(dir(FakeWords))
    assert declared(words.ProcessWords) <= set(dir(ControlProcessWords))
    assert declared(words.ProcessWords) == {f.name for f in fields(FakeProcessWords)}
