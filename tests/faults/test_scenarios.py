"""Failures beyond one death at one place: several, without spares, in launchers, inside MPI.

Law, where nothing else is said: the final memory is that of the run without failure, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from jobs import FTRMA, Result, marked, run_job
from programs import (
    APP,
    PROGRAMS,
    ROOT,
    SLOTS,
    assert_same_bits,
    deaths,
    kinds,
    run,
    words_of,
)
from tiers import tiers

from ftrma.trace.check import check
from ftrma.trace.records import read
from ftrma.vault import erasure

ROLLBACK = ("--policy", "rollback", "--interval", "0")


@pytest.mark.full
def test_two_successive_failures() -> None:
    result = run("ft", *ROLLBACK, "--spares", "2", "--kill", "1@fence:9", "--kill", "3@fence:16")
    assert_same_bits("ft", result)
    assert kinds(result) == ["rollback", "rollback"]


@pytest.mark.full
def test_five_successive_failures() -> None:
    """Each spare takes a slot; the last failures hit slots that were replaced before."""
    rules = ["1@put:50", "0@fence:8", "2@fence:12", "3@stage:3", "1@fence:20"]
    options = [part for rule in rules for part in ("--kill", rule)]
    result = run("ft", *ROLLBACK, "--spares", "5", *options)
    assert_same_bits("ft", result)
    assert [f for f in deaths(result)] == [
        ("slot", 0, "fence"), ("slot", 1, "fence"), ("slot", 1, "put"), ("slot", 2, "fence"),
        ("slot", 3, "stage"),
    ]
    assert kinds(result) == ["rollback"] * 5


@pytest.mark.full
def test_two_at_once_in_different_groups() -> None:
    result = run("stencil", "--interval", "0", "--group-size", "2", "--spares", "2", "--kill",
                 "0@fence:20", "--kill", "3@fence:20")
    assert_same_bits("stencil", result)
    assert [d[:2] for d in deaths(result)] == [("slot", 0), ("slot", 3)]


@pytest.mark.quick
def test_two_in_one_group_is_catastrophic() -> None:
    """The job ends with a status of its own and names the group and its lost members."""
    result = run("stencil", "--interval", "0", "--spares", "2", "--kill", "1@staged:20", "--kill",
                 "2@repair:1")
    assert result.status == 70
    assert "CatastrophicFailure: group 0 lost slot 1 and slot 2" in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr


@pytest.mark.full
def test_slot_and_its_checksum_is_catastrophic() -> None:
    result = run("stencil", "--interval", "0", "--spares", "3", "--kill", "1@put:40", "--kill",
                 "c0@repair:1")
    assert result.status == 70
    assert "lost slot 1 and checksum 0" in result.stderr


@pytest.mark.full
def test_two_in_one_group_before_any_checkpoint_starts_again() -> None:
    """Nothing is lost that the start of the program does not give back."""
    result = run("stencil", "--interval", "never", "--spares", "2", "--kill", "1@fence:9",
                 "--kill", "2@fence:9")
    assert_same_bits("stencil", result)
    assert result.stats["recoveries"][-1]["version"] == 0


@pytest.mark.parametrize("kill", tiers(
    ["1@put:40", "c0@fold:9", "0@end"], quick=["1@put:40"], full=["c0@fold:9"]))
def test_no_spare_relaunches(kill: str) -> None:
    result = run("stencil", "--interval", "0", "--spares", "0", "--kill", kill)
    assert_same_bits("stencil", result)
    assert kinds(result) == ["relaunch"]
    assert result.stats["recoveries"][0]["version"] > 0


@pytest.mark.full
def test_a_relaunch_takes_over_the_memory_of_logs_and_replays_nothing_of_them() -> None:
    """Logs lie where they lay, and a death after the relaunch is recovered exactly."""
    text = """
import os
from pathlib import Path
with open(f"{directory}/files-{os.getpid()}.txt", "a") as f:
    print(*(p.stat().st_ino for p in Path(os.environ["FTRMA_JOB"]).glob("log-*")), file=f)
"""
    app = APP.replace("runpy.run_path", text + "runpy.run_path")
    _, args = words_of("stencil")
    result = run_job(app, SLOTS, "--interval", "0", "--rollback", "fresh", "--group-size", "2",
                     "--spares", "3", "--kill", "0@fence:20", "--kill", "3@fence:20", "--kill",
                     "1@fence:40", args=args)
    assert kinds(result) == ["relaunch", "causal"], result
    assert_same_bits("stencil", result)
    seen = [v.split() for k, v in result.results.items() if k.startswith("files-")]
    assert len(seen) == 2 * SLOTS + 1, seen
    assert len({file for files in seen for file in files}) == SLOTS, seen


@pytest.mark.full
def test_relaunch_is_bounded() -> None:
    result = run("stencil", "--spares", "0", "--max-relaunch", "0", "--kill", "1@put:40")
    assert result.status == 70
    assert "--max-relaunch" in result.stderr


@pytest.mark.full
def test_unmodified_program_begins_again() -> None:
    """A program without protect and safepoint has one version, its start."""
    text = """
import sys, numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(800, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
assert not cells.any()
one = np.ones(1, "i8")
win.Fence()
for step in range(30):
    win.Accumulate(one, (comm.rank + step) % comm.size, (step, 1, MPI.INT64_T))
    win.Fence()
np.save(f"{sys.argv[1]}/cells-{comm.rank}.npy", cells)
"""
    plain = run_job(text, SLOTS)
    killed = run_job(text, SLOTS, "--policy", "rollback", "--kill", "2@atomic:20")
    assert kinds(killed) == ["rollback"]
    for expected, found in zip(
        plain.of_slots("cells", SLOTS), killed.of_slots("cells", SLOTS), strict=True
    ):
        assert expected.tobytes() == found.tobytes()
        assert expected.sum() == 30


@pytest.mark.full
def test_unwinding_reaches_the_top() -> None:
    """No ``except Exception`` swallows it, cleanup code runs, on_failure is told, once."""
    text = """
import sys, json, numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me = comm.rank
story = f"{sys.argv[1]}/story-{me}.json"
events, cleanups = [], 0
def note(event):
    with open(f"{sys.argv[1]}/event-{me}.json", "w") as f:
        json.dump([event.slots, event.kind, event.version, event.seconds], f)
ftrma.on_failure(note)
state = ftrma.protect("s", step=0, cleanups=0)
half = comm.Split(me % 2)
twin = half.Dup()
swallowed = 0
while state.step < 20:
    try:
        try:
            value = comm.allreduce(1)
            twin.bcast(state.step)
            half.Barrier()
            if me % 2 == 0:
                comm.send(b"x" * 100000, (me + 1) % comm.size)
            else:
                comm.recv(source=(me - 1) % comm.size)
        finally:
            comm.Get_size()
    except Exception as error:
        swallowed += 1
    state.step += 1
    ftrma.safepoint()
json.dump([state.step, value, swallowed], open(story, "w"))
"""
    result = run_job(text, SLOTS, "--interval", "0", "--kill", "3@call:60")
    assert result.status == 0, result
    assert kinds(result) == ["rollback"]
    assert result.of_slots("story", SLOTS) == [[20, SLOTS, 0]] * SLOTS
    for slot in range(3):
        slots, kind, version, seconds = result.results[f"event-{slot}"]
        assert (slots, kind) == ([3], "rollback") and version > 0 and 0 < seconds < 30


# Arguments: the step after which a byte changes; in which vault; the byte of which there are many
# where it changes; "kill": and then the checksum rank of the first parity dies.
CORRUPT = """
import os, sys, numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(40000, 1, comm=comm)
cells = np.frombuffer(win.tomemory(), "u1")
cells[:] = comm.rank + 1
state = ftrma.protect("s", step=0)
at_step, vault, byte, then = int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]

def find(f, needle):
    at = 0
    while True:
        at = os.lseek(f.fileno(), at, os.SEEK_DATA)
        found = os.pread(f.fileno(), 1 << 22, at).find(needle)
        if found >= 0:
            return at + found
        at = os.lseek(f.fileno(), at, os.SEEK_HOLE)

def kill_checksum():
    for pid in [p for p in os.listdir("/proc") if p.isdigit() and comm.rank == 0]:
        try:
            mine = open(f"/proc/{pid}/environ").read().split("\\0")
        except OSError:
            continue
        if {"FTRMA_JOB=" + os.environ["FTRMA_JOB"], "OMPI_COMM_WORLD_RANK=3"} <= set(mine):
            os.kill(int(pid), 9)
    while not ftrma.stats()["failures"]:
        pass

while state.step < 6:
    comm.Barrier()
    cells[state.step] += 1
    state.step += 1
    ftrma.safepoint()
    if state.step == at_step and not state.restored:
        while ftrma.stats()["version"] < at_step:
            pass
        if comm.rank == 0:
            with open(os.environ["FTRMA_JOB"] + "/" + vault, "r+b") as f:
                os.pwrite(f.fileno(), b"?", find(f, bytes([byte] * 3000)) + 100)
        if then == "kill":
            kill_checksum()
        comm.Barrier()
    comm.Barrier()
np.save(f"{sys.argv[1]}/cells-{comm.rank}.npy", cells)
"""


def run_corrupt(
    step: int, *options: str, vault: str = "vault-0", byte: int = 1, then: str = "go on"
) -> Result:
    return run_job(CORRUPT, 3, *options, args=[str(step), vault, str(byte), then])


def test_corrupt_block_is_repaired_from_parity() -> None:
    """A stray store into a slot's vault is found by its checksum when the slot goes back to it."""
    # After the last checkpoint.
    result = run_corrupt(6, *ROLLBACK, "--group-size", "2", "--kill", "2@call:13")
    assert "slot 0: 1 corrupt blocks found and rebuilt from the others" in result.stderr, result
    assert_cells(result)


@pytest.mark.full
def test_corrupt_block_gives_no_delta() -> None:
    """A checkpoint from a damaged copy would poison the parity: the slot steps down instead."""
    result = run_corrupt(3, "--interval", "0")
    assert "slot 0: 1 blocks of the vault do not match their checksums" in result.stderr, result
    assert kinds(result) == ["rollback"]
    assert_cells(result)


def assert_cells(result: Result) -> None:
    assert result.status == 0, result
    for slot, cells in enumerate(result.of_slots("cells", 3)):
        assert cells[:6].tolist() == [slot + 2] * 6
        assert set(cells[6:]) == {slot + 1}


@pytest.mark.full
def test_corrupt_block_beside_a_lost_slot_is_told() -> None:
    """A corrupt block is an error, not an answer, if parity is needed for a lost slot."""
    result = run_corrupt(6, *ROLLBACK, "--kill", "2@call:13")
    assert result.status == 70
    assert "of slot 2 cannot be rebuilt" in result.stderr, result


@pytest.mark.parametrize("vault", tiers(
    ["vault-0", "vault-4"], plain=["vault-4"], full=["vault-0"]))
def test_corrupt_block_beside_a_lost_slot_is_an_erasure(vault: str) -> None:
    """With two checksum ranks a slot is rebuilt although a member's copy, or a parity, is damaged
    as well; that one is mended too."""
    byte = second_parity([1, 2, 3]) if vault == "vault-4" else 1
    result = run_corrupt(6, *ROLLBACK, "--checksums", "2", "--group-size", "3",
                         "--kill", "2@call:13", vault=vault, byte=byte)
    role = "slot 0" if vault == "vault-0" else "checksum 1"
    assert f"{role}: 1 corrupt blocks found and rebuilt from the others" in result.stderr, result
    assert_cells(result)


@pytest.mark.full
def test_corrupt_block_is_mended_when_a_checksum_rank_is_replaced() -> None:
    """A new parity cannot be computed from a damaged member while the slots run; with another
    parity at hand all go back to the checkpoint, where the member is mended."""
    result = run_corrupt(3, *ROLLBACK, "--checksums", "2", "--group-size", "3", then="kill")
    assert deaths(result) == [("checksum", 0, "unknown")]
    assert [(r["kind"], r["slots"]) for r in result.stats["recoveries"]] == [("rollback", [])]
    assert_cells(result)


def second_parity(members: list[int]) -> int:
    """Byte of parity 1 over members that hold one value each."""
    weights = erasure.coefficients(len(members), 2)[1]
    return int(np.bitwise_xor.reduce(erasure.product(weights, members)))


def start(program: str, directory: Path, mark: str, *options: str) -> subprocess.Popen[bytes]:
    """Start a job in the background; the caller ends it."""
    (directory / "program.py").write_text(APP)
    name, *args = PROGRAMS[program]
    return subprocess.Popen(
        [FTRMA, "run", "-n", str(SLOTS), *options, str(directory / "program.py"), str(directory),
         str(ROOT / "bench/apps" / name), *args],
        env={**os.environ, "FTRMA_TEST_MARK": mark}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )


def wait_until(condition: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "the job did not come that far"


def commands(mark: str) -> dict[int, str]:
    found = {}
    for pid in marked(mark):
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def directories_of(mark: str) -> set[Path]:
    """The job directories in shared memory that the marked processes work in."""
    found = set()
    for pid in marked(mark):
        with contextlib.suppress(OSError):
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found |= {Path(e[10:].decode()) for e in environ if e.startswith(b"FTRMA_JOB=")}
    return found


LONG = ("--steps", "100000000")


@pytest.mark.parametrize("number", [signal.SIGINT, *(
    pytest.param(number, marks=pytest.mark.full)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT))])
def test_signals_leave_nothing(tmp_path: Path, number: int) -> None:
    """Ctrl-C, SIGTERM and a closed terminal end everything at once, and the files asked for tell
    what was until then."""
    if number != signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("as under nohup, and so is what these tests start")
    mark = f"signal-{number}-{os.getpid()}"
    PROGRAMS["long"] = (*PROGRAMS["stencil"][:3], *LONG)
    files = {name: tmp_path / f"{name}.json" for name in ("stats", "trace")}
    options = [f"--{name}={path}" for name, path in files.items()]
    job = start("long", tmp_path, mark, "--interval", "0.01", *options)
    try:
        wait_until(lambda: any(map(checkpointed, directories_of(mark))))
        directories = directories_of(mark)
        assert directories
        job.send_signal(number)
        job.wait(10)
        assert job.returncode == 128 + number
        assert not commands(mark)
        assert not any(d.exists() for d in directories)
        assert json.loads(files["stats"].read_text())["exit"] == 128 + number
        report = check(read(files["trace"]))
        assert report.violation is None and report.checkpoints >= 3 and report.accesses > 0
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.full
def test_launcher_death_relaunches(tmp_path: Path) -> None:
    """When the launcher dies, everybody dies with it; the vaults are there."""
    mark = f"launcher-{os.getpid()}"
    PROGRAMS["some"] = (*PROGRAMS["stencil"][:3], "--steps", "20000")
    stats = tmp_path / "stats"
    job = start("some", tmp_path, mark, "--interval", "0.01", "--stats", str(stats))
    try:
        wait_until(lambda: any(map(checkpointed, directories_of(mark))))
        launcher = next(p for p, c in commands(mark).items() if "prterun" in c or "mpirun" in c)
        os.kill(launcher, signal.SIGKILL)
        _, err = job.communicate(timeout=40)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
    assert job.returncode == 0, err
    story = json.loads(stats.read_text())
    assert [r["kind"] for r in story["recoveries"]] == ["relaunch"]
    assert story["recoveries"][0]["version"] > 0
    assert b"the launcher died; launching the job again from checkpoint" in err


def checkpointed(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        return '"version": 3' in (directory / "events").read_text()
    return False


@pytest.mark.full
def test_stuck_inside_the_library_relaunches() -> None:
    """A slot that the library never gives back is noticed; the job goes on from its vaults."""
    text = """
import os, sys, signal, threading, time, numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
lines = open(sys.argv[0]).read().splitlines()
inside = 1 + next(i for i, line in enumerate(lines) if line.endswith("# inside"))

def tell():
    seen = 0
    while seen < 100:  # while the main thread has given the interpreter away
        frame = sys._current_frames()[threading.main_thread().ident]
        seen = seen + 1 if frame.f_lineno == inside else 0
        time.sleep(0.001)
    open(f"{sys.argv[1]}/inside.json", "w").write("1")

shared = MPI.Win.Create_dynamic(comm=comm)
state = ftrma.protect("s", step=0)
flag = f"{sys.argv[1]}/killed.json"
while state.step < 6:
    comm.Barrier()
    state.step += 1
    ftrma.safepoint()
    if state.step == 4 and not os.path.exists(flag):
        if comm.rank == 1:
            shared.Lock(0, MPI.LOCK_EXCLUSIVE)
            comm.Barrier()
            open(flag, "w").write("1")
            while not os.path.exists(f"{sys.argv[1]}/inside.json"):
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)
        comm.Barrier()
        if comm.rank == 0:
            threading.Thread(target=tell, daemon=True).start()
            shared.Lock(0, MPI.LOCK_EXCLUSIVE)  # inside
np.save(f"{sys.argv[1]}/step-{comm.rank}.npy", state.step)
"""
    result = run_job(text, 3, "--interval", "0")
    assert result.status == 0, result
    assert "a window from Create_dynamic is not protected" in result.stderr
    assert "hangs inside the MPI library" in result.stderr
    assert kinds(result) == ["relaunch"]
    assert [int(s) for s in result.of_slots("step", 3)] == [6, 6, 6]


def test_abort_ends_the_job_with_its_status() -> None:
    result = run_job("from mpi4py import MPI\nMPI.COMM_WORLD.Abort(7)\n", 2)
    assert result.status == 7, result


@pytest.mark.full
def test_inside_an_existing_launcher(tmp_path: Path) -> None:
    """``mpiexec -n P python -m ftrma app.py`` protects without a supervisor."""
    from jobs import run_command

    from ftrma.launch.mpirun import launcher_environment, mpirun_command, session_directory

    (tmp_path / "program.py").write_text(APP)
    name, *args = PROGRAMS["stencil"]
    with session_directory() as session:
        result = run_command(
            [*mpirun_command(SLOTS + 2, session), sys.executable, "-m", "ftrma",
             str(tmp_path / "program.py"), str(tmp_path), str(ROOT / "bench/apps" / name), *args],
            env={**launcher_environment(), "FTRMA_INTERVAL": "0", "FTRMA_KILL": "2@put:20"},
        )
    assert "slot 2 died; replayed from checkpoint" in result.stderr, result
    assert (tmp_path / "slot-2.npz").exists()


@pytest.mark.full
def test_a_round_without_a_death_tells_nothing() -> None:
    """Law: a death that is noticed once more, when it has been made good, holds nobody up and is no
    second one; a server that died is told."""
    text = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
from ftrma.native import job
comm = MPI.COMM_WORLD
state = ftrma.protect("calm", step=0)
ftrma.on_failure(lambda event: print("told", comm.rank, event.slots, flush=True))
while state.step < 30:
    ftrma.safepoint()
    if state.step == 20 and comm.rank == 1:
        job.raise_alarm(RAISED)  # asks for one more round
    state.step += comm.allreduce(1) // comm.size
np.save(f"{sys.argv[1]}/step-{comm.rank}.npy", state.step)
"""
    calm = run_job(text.replace("RAISED", "0"), 3, "--interval", "0")
    assert calm.status == 0 and not kinds(calm), calm
    assert not calm.stdout and not calm.stderr, calm
    after = run_job(text.replace("RAISED", "1"), 3, "--interval", "0", "--kill", "0@safepoint:7")
    assert after.status == 0 and kinds(after) == ["causal"], after
    assert after.stderr.count("died") == 1 and after.stdout.count("told") == 2, after  # survivors
    server = run_job(text.replace("RAISED", "1"), 3, "--interval", "0", "--kill", "c0@sum:5")
    assert server.status == 0 and "checksum 0 died" in server.stderr, server
    for result in (calm, after, server):
        assert [int(s) for s in result.of_slots("step", 3)] == [30] * 3


@pytest.mark.full
def test_a_repair_amid_the_writes_before_a_checkpoint() -> None:
    """Law: who learns of a failure while it waits for its own writes to arrive comes to the
    checkpoint that the others wait in."""
    text = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
from ftrma.native import job
comm = MPI.COMM_WORLD
flush, failed = job.windows_flush, []
def fails():  # as over nodes
    if state.step == 5 and comm.rank == 1 and not failed:
        failed.append(True)
        job.raise_alarm(0)
        return False
    return flush()
job.windows_flush = fails
state = ftrma.protect("main", step=0)
while state.step < 10:
    ftrma.safepoint()
    state.step += comm.allreduce(1) // comm.size
np.save(f"{sys.argv[1]}/step-{comm.rank}.npy", [state.step, len(failed)])
"""
    result = run_job(text, 3, "--interval", "0", timeout=30)
    assert result.status == 0 and not kinds(result), result
    assert [x.tolist() for x in result.of_slots("step", 3)] == [[10, 0], [10, 1], [10, 0]], result


def test_the_end_of_the_job_is_no_round_to_who_leaves_a_repair() -> None:
    """Slots that have ended their programs wait in the repair of another's death; its replacement
    can end the job before they have left the last meeting, which all have come to."""
    text = """
import sys, time
from pathlib import Path
import ftrma
from ftrma import MPI
from ftrma.native import job
from ftrma.program import session
comm = MPI.COMM_WORLD
view = session.current.view
number, phase = divmod(view.ctl.proc[view.proc].met, 256)
comm.Barrier()
if comm.rank == 0:
    assert job.exchange(view.ctl, "alarm", number, job.ENDED)
while not view.is_ending():
    time.sleep(0.001)
Path(sys.argv[1], f"met-{comm.rank}.txt").write_text(str(job.meet(number, phase, planned=True)))
"""
    result = run_job(text, SLOTS)
    assert result.status == 0, result
    assert [result.results[f"met-{s}"] for s in range(SLOTS)] == ["True"] * SLOTS, result
