"""A slot hangs without dying: it is named, and replaced like a dead one if that is wanted.

Law: within 1 s of the limit the slot to blame is named, with its line of Python where py-spy is
there, and so is who waits for it. With ``--on-stall replace`` that slot alone is killed, and the
final memory is that of the run without a hang. Slots that wait for each other cannot be blamed: the
job is launched again. A job that goes on is left alone.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from jobs import Result, run_job
from nodes import remove_fake_ssh, run_on_nodes
from programs import deaths
from tiers import tiers

from ftrma.launch import stacks

SLOTS, STEPS, LIMIT_S = 4, 10, 1.0
FAR_LIMIT_S = 2.0  # a launch over nodes begins more slowly
PROGRAM = f"""
import ctypes, glob, os, signal, socket, subprocess, sys, time
import numpy as np
import ftrma
from mpi4py import MPI
comm, home, how = MPI.COMM_WORLD, sys.argv[1], sys.argv[2]
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(64, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
state = ftrma.protect("s", step=0)

def once():
    try:
        return os.close(os.open(f"{{home}}/once.txt", os.O_CREAT | os.O_EXCL)) is None
    except FileExistsError:
        return False

def hang():
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "spin":
        while True:
            pass
    elif how == "sleep in C":
        ctypes.PyDLL(None).sleep(1000)
    elif how == "lock":
        win.Lock(2)
        open(f"{{home}}/held.txt", "w").close()
        time.sleep(1000)
    elif how == "crossed":
        win.Lock(2)
        open(f"{{home}}/held.txt", "w").close()
        comm.Barrier()
    elif how == "message":
        comm.Recv(np.zeros(1), 2)
    elif how == "for a while":
        time.sleep(2.5)
    elif how == "all":
        time.sleep(1000)
    elif how == "busy":
        ftrma.busy(30)
        time.sleep(2.5)
        ftrma.busy(0)
    elif how == "always":
        time.sleep(1000)
    elif how == "node":
        subprocess.Popen(["sh", "-c", "sleep 12; kill -CONT -1"], start_new_session=True)
        for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
            words = open(f"/proc/{{pid}}/cmdline").read()
            if pid != os.getpid() and ("ftrma.program" in words or "ftrma.launch" in words):
                os.kill(pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "probes":
        while True:
            comm.Iprobe()
            time.sleep(0.001)

far = socket.gethostname().startswith("127.")
while state.step < (60 if how == "slow" else {STEPS}):
    ftrma.safepoint()
    win.Fence()
    win.Put(np.array([state.step + 1]), (me + 1) % n)
    win.Fence()
    if how not in ("all", "parity") and me == 1 and state.step == 5:
        if how in ("always", "dies") or once():
            hang()
    if how == "all" and state.step == 5 and not os.path.exists(f"{{home}}/all-{{me}}.txt"):
        open(f"{{home}}/all-{{me}}.txt", "w").close()
        hang()
    if how == "parity" and state.step == 5 and me == (1 if far else 0) and once():
        found = glob.glob(f"/proc/{{os.getppid()}}/task/*/children")
        for pid in " ".join(open(file).read() for file in found).split():
            if f"OMPI_COMM_WORLD_RANK={{n}}" in open(f"/proc/{{pid}}/environ").read():
                os.kill(int(pid), signal.SIGSTOP)
    if how == "slow":
        time.sleep(0.09 if me == 2 else 0.03)
    if how in ("lock", "crossed"):
        while state.step == 5 and not os.path.exists(f"{{home}}/held.txt"):
            time.sleep(0.001)  # others than slot 1 come to the lock behind it
        win.Lock(2)
        win.Unlock(2)
    if how in ("probes", "for a while"):
        time.sleep(0.1)
    state.step += 1
np.savez(f"{{home}}/cells-{{me}}.npz", cells=cells)
"""


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def run(how: str, *options: str) -> Result:
    return run_job(PROGRAM, SLOTS, "--interval", "0", *options, args=(how,), timeout=60)


def run_far(how: str, *options: str, nodes: int = 3, tidy: bool = True) -> Result:
    """Run the program on nodes; slots 0 and 3, 1 and the checksum rank, 2 are on one each."""
    return run_on_nodes(PROGRAM, SLOTS, "--interval", "0", "--spares", "4", *options, args=(how,),
                        timeout=60, in_turn=nodes, tidy=tidy)


def judged(result: Result) -> dict[str, Any]:
    """The one stall of a job that has come to its right end."""
    assert result.status == 0, result
    for slot, arrays in enumerate(result.of_slots("cells", SLOTS)):
        assert arrays["cells"].tolist() == [STEPS, *[0] * 7], slot
    (stall,) = result.stats["stalls"]
    return dict(stall)


@pytest.mark.parametrize("how", tiers(
    ["stop", "spin", "sleep in C", "lock"], plain="spin", full="stop",
    nightly=["sleep in C", "lock"]))
def test_the_slot_to_blame_is_replaced(how: str) -> None:
    """Law of this file: whether it is stopped, spins, or holds a lock that another slot awaits."""
    result = run(how, "--stall", str(LIMIT_S), "--on-stall", "replace")
    assert_replaced(result, how, LIMIT_S)
    assert re.search(r"slots 0, 2 and 3 wait in .* for slot 1" if how != "lock" else
                     r"waits? in MPI_Win_lock for slot 1", result.stderr), result
    assert "slot 1 is killed, to be replaced" in result.stderr


def assert_replaced(result: Result, how: str, limit_s: float) -> None:
    """Slot 1 was named in time with what it did, and was killed and replaced."""
    stall = judged(result)
    assert (stall["kind"], stall["slots"], stall["action"]) == ("stall", [1], "replace"), result
    assert limit_s <= stall["seconds"] < limit_s + 1
    assert deaths(result) == [("slot", 1, "unknown")], result.stats
    (recovery,) = result.stats["recoveries"]
    assert recovery["kind"] == "causal", recovery
    named = "stopped by a signal" if how == "stop" else "outside of MPI"
    assert re.search(rf"slot 1 has stood still for [\d.]+ s; it is {named}", result.stderr), result
    if stacks.py_spy():
        assert re.search(r"slot 1: .*hang \(program.py:\d+\) < <module>", result.stderr), result


@pytest.mark.parametrize("how", tiers(["stop", "spin", "sleep in C", "lock"], full="sleep in C"))
def test_a_slot_on_another_node_is_replaced(how: str) -> None:
    """Law: as on one node: its own node says where it is, and kills it, though no process of the
    program does anything there."""
    result = run_far(how, "--stall", str(FAR_LIMIT_S), "--on-stall", "replace")
    assert_replaced(result, how, FAR_LIMIT_S)
    assert re.search(r"slots 0, 2 and 3 wait in .* for slot 1" if how != "lock" else
                     r"slots 0, 2 and 3 wait in MPI_Win_lock", result.stderr), result


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["message", "crossed"])
def test_nobody_is_blamed_for_a_deadlock_over_nodes(how: str) -> None:
    """Law: as on one node, though nobody knows who holds a lock on another one."""
    result = run_far(how, "--stall", str(FAR_LIMIT_S), "--on-stall", "replace")
    stall = judged(result)
    assert (stall["kind"], stall["slots"]) == ("deadlock", [0, 1, 2, 3]), result
    assert not result.stats["failures"], result.stats
    assert [r["kind"] for r in result.stats["recoveries"]] == ["relaunch"], result
    place = {"message": "slot 1 waits in MPI_Recv",
             "crossed": "slots 0, 2 and 3 wait in MPI_Win_lock"}[how]
    assert place in result.stderr, result


@pytest.mark.nightly
def test_a_node_that_stands_still_is_named() -> None:
    """Law: the job's processes there are stopped, its agent, too: nobody there can be killed, so
    the job is launched again. What goes on there later ends by itself."""
    result = run_far("node", "--stall", str(FAR_LIMIT_S), "--on-stall", "replace", tidy=False)
    stall = judged(result)
    assert (stall["kind"], stall["slots"]) == ("stall", [1]), result
    assert "it is on a node that does not answer" in result.stderr, result
    assert [r["kind"] for r in result.stats["recoveries"]] == ["relaunch"], result


@pytest.mark.nightly
def test_a_job_on_one_other_node_is_watched() -> None:
    """Law: no process of it needs an agent there, but it is watched by one."""
    result = run_far("stop", "--stall", str(FAR_LIMIT_S), "--on-stall", "replace", nodes=1)
    assert judged(result)["slots"] == [1]
    assert deaths(result) == [("slot", 1, "unknown")], result.stats


@pytest.mark.nightly
def test_a_job_over_nodes_that_hangs_can_be_ended() -> None:
    """Law: ``halt`` says why; without files nothing is left of it."""
    result = run_far("spin", "--stall", str(FAR_LIMIT_S), "--on-stall", "halt")
    assert result.status == 70, result
    assert re.search(r"--on-stall halt: slot 1 has stood still for [\d.]+ s", result.stderr), result


@pytest.mark.parametrize("how", tiers(["message", "crossed"], full="crossed"))
def test_nobody_is_blamed_for_a_deadlock(how: str) -> None:
    """Law: no slot is killed; the job goes on from the checkpoint, by another launch."""
    result = run(how, "--stall", str(LIMIT_S), "--on-stall", "replace")
    stall = judged(result)
    assert stall["kind"] == "deadlock" and 1 in stall["slots"], result
    assert not result.stats["failures"], result.stats
    (recovery,) = result.stats["recoveries"]
    assert recovery["kind"] == "relaunch" and "wait" in recovery["reason"], recovery
    assert recovery["version"] >= 5
    place = {"message": "slot 1 waits in MPI_Recv",
             "crossed": r"slot 1 waits in a collective call for slot \d"}[how]
    assert re.search(place, result.stderr), result


@pytest.mark.nightly
def test_a_slot_that_goes_on_is_told_and_left_alone() -> None:
    """Law: with ``tell`` nothing is done, and the end of the stall is told, too."""
    result = run("for a while", "--stall", str(LIMIT_S))
    stall = judged(result)
    assert stall["slots"] == [1] and stall["action"] == "tell"
    assert result.stderr.count("slot 1 has stood still") == 1, result
    assert "ftrma: slot 1 goes on" in result.stderr
    assert not result.stats["failures"] and not result.stats["recoveries"]


@pytest.mark.nightly
def test_a_slot_that_has_said_so_is_no_stall() -> None:
    """Law: ``busy`` lasts for as long as it says, or until it is taken back."""
    result = run("busy", "--stall", str(LIMIT_S), "--on-stall", "halt")
    assert result.status == 0 and not result.stats["stalls"], result
    assert "stood still" not in result.stderr


@pytest.mark.nightly
def test_a_job_that_hangs_can_be_ended() -> None:
    """Law: ``halt`` ends it with the requeue status if files are left, and says why."""
    with tempfile.TemporaryDirectory() as files:
        result = run("spin", "--stall", str(LIMIT_S), "--on-stall", "halt", "--spill", files,
                     "--spill-interval", "1-th", "--requeue-status", "42")
    assert result.status == 42, result
    assert re.search(r"--on-stall halt: slot 1 has stood still for [\d.]+ s", result.stderr), result
    assert f"ftrma run --resume {files}" in result.stderr
    (stall,) = result.stats["stalls"]
    assert stall["slots"] == [1]


@pytest.mark.nightly
def test_no_more_is_killed_than_can_be_rebuilt() -> None:
    """Law: if all slots hang, the job is launched again with all its vaults, and nobody is killed
    who would be missed."""
    result = run("all", "--stall", str(LIMIT_S), "--on-stall", "replace", "--spares", "4")
    stall = judged(result)
    assert stall["kind"] == "stall" and stall["slots"] == [0, 1, 2, 3], stall
    assert [r["kind"] for r in result.stats["recoveries"]] == ["relaunch"], result
    assert not result.stats["failures"]


@pytest.mark.nightly
def test_a_checksum_rank_that_is_stopped_is_replaced() -> None:
    """Law: slots wait for it in their next checkpoint but one; it is named, and a spare takes its
    seat."""
    for run_it, limit_s in (run, LIMIT_S), (run_far, FAR_LIMIT_S):
        result = run_it("parity", "--stall", str(limit_s), "--on-stall", "replace")
        stall = judged(result)
        assert (stall["kind"], stall["slots"]) == ("checksum", [0]), stall
        assert deaths(result) == [("checksum", 0, "unknown")]
        assert not any(r["slots"] for r in result.stats["recoveries"]), result.stats
        assert result.stats["reseats"] or result.stats["recoveries"], result.stats


@pytest.mark.nightly
def test_a_slow_slot_is_named() -> None:
    """Law: the slot for which the others wait, though all pass as many safepoints."""
    for result in run("slow", "--interval", "never"), run_far("slow", "--interval", "never"):
        (slow,) = result.stats["slow"]
        assert slow["slot"] == 2 and 2 < slow["times"] < 4, result.stats
        assert all(pace["waited_s"] > 1 for i, pace in enumerate(result.stats["pace"]) if i != 2)


@pytest.mark.parametrize("rollback", tiers([False, True], full="False", nightly="True"))
def test_a_job_that_hangs_at_one_step_is_given_up(rollback: bool) -> None:
    """Law: after as many recoveries as it may have there the job ends with 93 and says why, also
    when each recovery takes a new checkpoint of the same step."""
    result = run("always", "--stall", "0.5", "--on-stall", "replace", "--max-no-progress", "1",
                 "--policy", "rollback" if rollback else "auto", "--spares", "3")
    assert result.status == 93, result
    assert "the job makes no progress: it has failed 2 times running at safepoint" in result.stderr
    assert [stall["slots"] for stall in result.stats["stalls"]] == [[1], [1]]


@pytest.mark.nightly
def test_a_job_over_several_nodes_is_given_up() -> None:
    """Law: there, too, after a recovery in place."""
    result = run_on_nodes(PROGRAM, SLOTS, "--interval", "0", "--spares", "4", "--max-no-progress",
                          "1", args=("dies",), timeout=60, in_turn=2)
    assert result.status == 93, result
    assert "failed 2 times running at safepoint" in result.stderr


@pytest.mark.nightly
def test_launches_count_as_recoveries() -> None:
    """Law: a job without spares is given up, too, before its launches are used up."""
    result = run("dies", "--spares", "0", "--max-relaunch", "9", "--max-no-progress", "1")
    assert result.status == 93, result
    assert result.stderr.count("launching the job again") == 1, result


@pytest.mark.nightly
def test_calls_without_steps_are_found_by_the_longest_step() -> None:
    """Law: a slot that probes for ever makes calls, so only the length of steps tells."""
    result = run("probes", "--stall", "10x", "--on-stall", "replace")
    stall = judged(result)
    assert stall["kind"] in ("circle", "deadlock"), result
    assert stall["seconds"] >= 3
    assert result.stats["recoveries"][0]["kind"] == "relaunch"
