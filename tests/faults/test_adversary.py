"""Other users of a node, and strangers on the network, can do nothing to a job.

Laws are at the tests. Adversaries are real: another uid, real connections, real files; root is
needed to play them, and what needs it is skipped without.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import FILES, FTRMA, MARK, kill_marked, marked, run_job
from nodes import before_daemons, launcher_options, remove_fake_ssh, run_on_nodes, why_not
from tiers import tiers

pytestmark = pytest.mark.full

STRANGER = 20002  # uid
SLOTS = 4
NAPS = """
import sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(64, 8, comm=comm)
comm.rank or open(f"{sys.argv[1]}/started.json", "w").write("1")
for _ in range(int(50 * float(sys.argv[2]))):
    win.Fence()
    win.Put(bytes(8), (comm.rank + 1) % comm.size)
    win.Fence()
    time.sleep(0.02)
comm.Barrier()
open(f"{sys.argv[1]}/slot-{comm.rank}.json", "w").write("1")
"""


@pytest.fixture(scope="module", autouse=True)
def _clean() -> Iterator[None]:
    yield
    remove_fake_ssh()


class Job:
    """A job that goes on while the test does things to it."""

    def __init__(self, home: Path, *options: str, seconds: float) -> None:
        self.home, self.mark = home, secrets.token_hex(8)
        (home / "program.py").write_text(NAPS)
        command = [FTRMA, "run", "-n", str(SLOTS), *options, str(home / "program.py"), str(home)]
        self.process = subprocess.Popen(
            [*command, str(seconds)], env={**os.environ, MARK: self.mark, FILES: str(home)},
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> Job:
        deadline = time.monotonic() + 30
        while not (self.home / "started.json").exists():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "the job did not come up"
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        kill_marked(self.mark)
        self.process.communicate()

    def ends_well(self) -> None:
        said = self.process.communicate(timeout=60)[0]
        assert self.process.returncode == 0, said
        assert all((self.home / f"slot-{s}.json").exists() for s in range(SLOTS)), said


def listening(pids: list[int]) -> dict[int, list[tuple[str, int]]]:
    """Addresses and ports on which processes accept connections or datagrams, from /proc/net."""
    sockets = {}
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for row in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            words = row.split()
            if words[3] in ("0A", "07"):
                packed, port = words[1].split(":")
                raw = b"".join(int(packed[i : i + 8], 16).to_bytes(4, sys.byteorder)
                               for i in range(0, len(packed), 8))
                family = socket.AF_INET6 if len(raw) == 16 else socket.AF_INET
                sockets[words[9]] = socket.inet_ntop(family, raw), int(port, 16)
    found: dict[int, list[tuple[str, int]]] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))
                    if inode and inode[1] in sockets:
                        found.setdefault(pid, []).append(sockets[inode[1]])
    return found


def test_a_job_on_one_node_listens_on_loopback_only(tmp_path: Path) -> None:
    """Law: no process of it (supervisor, launcher, ranks) accepts anything from outside, garbage
    from inside costs nothing, and what the launcher was preloaded with reaches no rank."""
    with Job(tmp_path, seconds=2) as job:
        pids = marked(job.mark)
        assert len(pids) >= 1 + 1 + SLOTS + 2
        ports = listening(pids)
        assert ports, "the launcher listens somewhere; this test looks at the wrong processes"
        outside = {p: a for p, found in ports.items() for a in found
                   if a[0] not in ("127.0.0.1", "::1")}
        assert not outside
        ranks = [p for p in pids if b"OMPI_COMM_WORLD_RANK" in environment(p)]
        assert len(ranks) == SLOTS + 2
        assert not [p for p in ranks if b"_loopback" in Path(f"/proc/{p}/maps").read_bytes()]
        stop = time.monotonic() + 1
        while time.monotonic() < stop:  # other users of the node can reach these
            for _, port in {a for found in ports.values() for a in found}:
                for data in (secrets.token_bytes(64), bytes(4096), b"[" * 100_000):
                    with contextlib.suppress(OSError), socket.create_connection(
                        ("localhost", port), 1
                    ) as stranger:
                        stranger.sendall(data)
        job.ends_well()


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


LOOKS = """
import json, os, subprocess, sys
from mpi4py import MPI
child = subprocess.run(["env"], capture_output=True, text=True).stdout
job = os.environ["FTRMA_JOB"]
modes = {name: oct(os.lstat(f"{job}/{name}").st_mode) for name in os.listdir(job)}
found = {"environ": dict(os.environ), "child": child, "job": oct(os.lstat(job).st_mode),
         "modes": modes}
json.dump(found, open(f"{sys.argv[1]}/slot-{MPI.COMM_WORLD.rank}.json", "w"))
"""


def test_the_key_is_with_the_jobs_processes_only() -> None:
    """Law: neither the user's program nor what it starts has the key in its environment; the job's
    directory is 0700, and what is in it is for nobody else."""
    result = run_job(LOOKS, 2)
    for found in result.of_slots("slot", 2):
        assert "FTRMA_KEY" not in found["environ"] and "FTRMA_KEY" not in found["child"]
        assert found["job"] == "0o40700"
        loose = {n: m for n, m in found["modes"].items() if n != "terminal" and m[-2:] != "00"}
        assert not loose


def test_the_key_is_on_no_command_line(tmp_path: Path) -> None:
    """Law: of all processes that the job starts, over several nodes too."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    with Job(tmp_path, "--mpirun", launcher_options(), seconds=1) as job:
        pids = marked(job.mark)
        keys = {m[1] for p in pids for m in re.finditer(rb"FTRMA_KEY=(\w{64})", environment(p))}
        assert len(keys) == 1
        (key,) = keys
        for pid in pids:
            with contextlib.suppress(OSError):
                assert key not in Path(f"/proc/{pid}/cmdline").read_bytes()
        job.ends_well()


PLANT = """
import os, pickle, sys
job, spring = sys.argv[1:]
class Trap:
    def __reduce__(self):
        return os.system, (f"touch {spring}",)
os.makedirs(f"{job}/{os.uname().nodename}", 0o777)
for name in ("slot-0", "slot-1", "checksum-0"):
    with open(f"{job}/{os.uname().nodename}/{name}", "wb") as file:
        file.write(pickle.dumps(Trap()) * 100)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to play another user")
@pytest.mark.parametrize("how", ["directory", pytest.param("link", marks=pytest.mark.nightly)])
def test_a_planted_directory_is_refused(tmp_path: Path, how: str) -> None:
    """Law: where another user was first with the job's directory on a node, the job says so and
    does not start; what lies in it is not even read."""
    sprung = tmp_path / "sprung"
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:-1]:
        if parent.stat().st_mode & 0o1 == 0:
            parent.chmod(parent.stat().st_mode | 0o11)
    (tmp_path / "plant.py").write_text(PLANT)
    as_stranger = f"setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups"
    # The name of the job's directory stands on the daemon's command line, for all to see.
    look = "job=$(grep -aoE '/dev/shm/ftrma-[0-9]+-[0-9a-f]+' /proc/$$/cmdline | head -1);"
    if how == "directory":
        plant = f"{as_stranger} {sys.executable} {tmp_path}/plant.py $job {sprung};"
    else:
        plant = f"{as_stranger} ln -s /tmp $job;"
    before_daemons(look + plant)
    try:
        result = run_on_nodes(NAPS, SLOTS, args=["1"], tidy=False, files=tmp_path)
    finally:
        before_daemons("")
    assert result.status not in (0, 2), result
    why = f"belongs to user {STRANGER}" if how == "directory" else "is no directory"
    assert why in result.stderr and "Traceback" not in result.stderr, result
    assert not sprung.exists() and "slot-0" not in result.results


NOISE = {
    "garbage": [secrets.token_bytes(n) for n in (1, 63, 64, 65, 4096)],
    "deep": [b"[" * 60_000 + b"\n"],
    "huge": [b"x" * 5_000_000],
    "half": [b"", b"x" * 63],
    "hello": [b'{"event": "hello", "token": "", "kind": "link", "rank": 0, "pid": 1}\n'],
}


@pytest.mark.skipif(bool(why_not()), reason="nodes cannot be emulated")
def test_strangers_at_the_port_cost_nothing(tmp_path: Path) -> None:
    """Law: a job over several nodes goes on, through garbage, depth, size, halves, and 1,100 idle
    connections at a time, and through a death meanwhile."""
    options = ["--mpirun", launcher_options(), "--kill", "1@fence:40", "--bind", "0.0.0.0"]
    with Job(tmp_path, *options, seconds=2) as job:
        ((_, port),) = listening([job.process.pid])[job.process.pid]
        stop = time.monotonic() + 1.5

        def push(data: bytes) -> None:
            while time.monotonic() < stop:
                with contextlib.suppress(OSError), socket.create_connection(
                    ("127.0.0.1", port), 5
                ) as stranger:
                    stranger.sendall(data)
                    time.sleep(0.05 if len(data) < 64 else 0)

        def idle() -> None:
            with contextlib.ExitStack() as held:
                for _ in range(500):
                    with contextlib.suppress(OSError):
                        held.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                time.sleep(max(0.0, stop - time.monotonic()))

        threads = [threading.Thread(target=push, args=(data,))
                   for kind in NOISE.values() for data in kind]
        threads += [threading.Thread(target=idle) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        job.ends_well()


BESIEGE = """
import os, socket, sys, threading
"x".encode("idna")
count, uid, *doors = sys.argv[1:]
os.setuid(int(uid))
held = []

def knock(address, port):
    for _ in range(int(count)):
        held.append(socket.create_connection((address, int(port)), 20))

threads = [threading.Thread(target=knock, args=door.rsplit(":", 1)) for door in doors]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(held), flush=True)
sys.stdin.read()
"""


def besieged(home: Path, count: int, options: list[str]) -> list[tuple[str, float]]:
    """Kind and seconds of the recoveries of a job, a slot of which is killed while another user has
    so many idle connections to each port of its launcher and daemons."""
    home.mkdir()
    stats = home / "stats.json"
    with Job(home, "--stats", str(stats), *options, seconds=2 + count / 200) as job:
        daemons = [p for p in marked(job.mark)
                   if Path(f"/proc/{p}/comm").read_text().strip() in ("prterun", "prted")]
        anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
        ports = listening(daemons)
        doors = [f"{anywhere.get(address, address)}:{port}"
                 for found in ports.values() for address, port in found]
        assert len(doors) >= 3 * len(ports) >= 3
        with subprocess.Popen(
            [sys.executable, "-c", BESIEGE, str(count), str(STRANGER), *doors], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as strangers:
            assert strangers.stdout and strangers.stdout.readline() == f"{count * len(doors)}\n"
            (victim,) = [p for p in marked(job.mark)
                         if b"OMPI_COMM_WORLD_RANK=1" in environment(p).split(b"\0")]
            os.kill(victim, signal.SIGKILL)
            job.ends_well()
            strangers.kill()
    return [(r["kind"], r["seconds"]) for r in json.loads(stats.read_text())["recoveries"]]


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to play another user")
@pytest.mark.parametrize(("several", "count"), [
    (False, 200), pytest.param(False, 2000, marks=pytest.mark.nightly),
    pytest.param(True, 200, marks=pytest.mark.nightly)])
def test_idle_connections_of_another_user_change_no_recovery(
    tmp_path: Path, several: bool, count: int
) -> None:
    """Law: a stranger's idle connections to each of the launcher's ports keep nothing from being
    repaired, neither in the same way nor in about the same time."""
    if several and why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    options = ["--aware", "none", "--mpirun", launcher_options()] if several else []
    ((calm, calm_s),) = besieged(tmp_path / "calm", 0, options)
    ((kind, seconds),) = besieged(tmp_path / "besieged", count, options)
    assert kind == calm == ("rollback" if several else "causal")
    assert seconds < calm_s + 2.0 + count / 200  # a replay takes as long as there is to replay


@pytest.mark.parametrize("where", tiers(
    ["127.0.0.1", "lo:PORTS", "[::1]:PORTS"], full=["[::1]:PORTS"]))
def test_bind_says_where(tmp_path: Path, where: str) -> None:
    """Law: with --bind the supervisor and the agents of the nodes have one port each, at that
    address, in that range."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]  # of a range, in which it is one too many
        bind = where.replace("PORTS", f"{first}-{first + 40}")
        with Job(tmp_path, "--mpirun", launcher_options(), "--bind", bind, seconds=0.5) as job:
            agents = [p for p in marked(job.mark)
                      if b"ftrma.launch.agent" in Path(f"/proc/{p}/cmdline").read_bytes()]
            found = listening([job.process.pid, *agents])
            assert len(agents) == 3 and len(found) == 4
            for ((address, port),) in found.values():
                assert address == ("::1" if "[" in where else "127.0.0.1")
                assert "PORTS" not in where or first <= port <= first + 40
            job.ends_well()
    wrong = subprocess.run(
        [FTRMA, "run", "-n", "2", "--mpirun", launcher_options(), "--bind", "192.0.2.77",
         str(tmp_path / "program.py")], capture_output=True, text=True, timeout=30,
    )
    assert wrong.returncode == 2 and "--bind 192.0.2.77: cannot listen" in wrong.stderr
    assert wrong.stderr.count("\n") == 1
