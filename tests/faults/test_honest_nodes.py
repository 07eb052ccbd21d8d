"""Emulated nodes are as far apart as real ones: what a process holds or reaches is of its own node.

Law: two nodes, the launcher's host among them, have nothing in common but

* files of the system, of Python and of this source tree, which nobody has open for writing, and
  which the emulated nodes see read-only;
* the job's directory, which stands for a shared file system, and /dev/null;
* a pipe between each node and the launcher's host, which stands for ssh's connection;
* the network.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from jobs import FILES, FTRMA, MARK, command_line, kill_marked, marked, processes
from nodes import (
    INSTALLED,
    NODES,
    PER_NODE,
    fake_ssh,
    launcher_options,
    left_on,
    remove_fake_ssh,
    why_not,
)

pytestmark = pytest.mark.full

SLOTS = 4  # and a checksum rank and a spare, both on the third node
READ_ONLY = (*INSTALLED, "/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr")
LIMIT_S = 30
# Each slot's page lies at an address that no other process uses. It tries them all by all numbers
# that may mean a process somewhere: those which the others have told, which it sees in /proc, and
# which their processes have outside of their nodes.
PROGRAM = """
import ctypes, json, os, sys, time
import numpy as np
from mpi4py import MPI
comm, home = MPI.COMM_WORLD, sys.argv[1]
me, others = comm.rank, range(comm.size)
allocated = MPI.Win.Allocate(1 << 16, 1, comm=comm)
created = MPI.Win.Create(np.zeros(1 << 13), 8, comm=comm)
for window in (allocated, created):
    window.Fence()
    window.Put(np.ones(8), (me + 1) % comm.size)
    window.Fence()

class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_long]
pages = [0x2000000000 + (slot << 20) for slot in others]
PRIVATE_ANONYMOUS_FIXED = 0x100022
assert libc.mmap(pages[me], 4096, 3, PRIVATE_ANONYMOUS_FIXED, -1, 0) == pages[me]

def text(slot):  # of 16 bytes
    return f"slot {slot:11}".encode()

def moved(call, pid, address, data):
    here, there = Span(ctypes.addressof(data), len(data)), Span(address, len(data))
    return call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == len(data)

ctypes.memmove(pages[me], text(me), 16)
told = comm.allgather(os.getpid())
open(f"{home}/ready-{me}", "w").close()
while not os.path.exists(f"{home}/outside.json"):
    time.sleep(0.01)
seen = {int(name) for name in os.listdir("/proc") if name.isdigit()}
numbers = sorted({*told, *seen, *json.load(open(f"{home}/outside.json"))})
read, wrote = set(), set()
for pid in numbers:
    for slot in others:
        data = ctypes.create_string_buffer(16)
        if moved(libc.process_vm_readv, pid, pages[slot], data) and data.raw == text(slot):
            read.add(slot)
        data = ctypes.create_string_buffer(text(me), 16)
        if moved(libc.process_vm_writev, pid, pages[slot] + 16 * (1 + me), data):
            wrote.add(slot)
comm.Barrier()
page = ctypes.string_at(pages[me], 4096)
written = [slot for slot in others if page[16 * (1 + slot):][:16] == text(slot)]
found = {"host": os.uname().nodename, "read": sorted(read), "wrote": sorted(wrote),
         "written": written}
json.dump(found, open(f"{home}/found-{me}.json", "w"))
"""


@dataclass(frozen=True)
class Hold:
    """A process has something mapped or open; `pid` is its number outside of the nodes."""

    pid: int
    path: str
    writable: bool


Place = tuple[int, int]  # device and inode


def holds(pid: int) -> Iterator[tuple[Place, Hold]]:
    """List what a process has mapped and open, except what has no inode of its own (an epoll)."""
    proc = Path(f"/proc/{pid}")
    ways: list[tuple[Path, bool]] = [(proc / link, False) for link in ("cwd", "exe", "root")]
    for line in (proc / "maps").read_text().splitlines():
        span, allowed, *_ = line.split()
        name = "-".join(f"{int(end, 16):x}" for end in span.split("-"))
        if (proc / "map_files" / name).is_symlink():
            ways.append((proc / "map_files" / name, allowed[1] == "w" and allowed[3] == "s"))
    for descriptor in (proc / "fd").iterdir():
        flags = re.search(r"^flags:\s*(\d+)", (proc / "fdinfo" / descriptor.name).read_text(), re.M)
        assert flags
        ways.append((descriptor, int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY))
    for way, writable in ways:
        path, found = os.readlink(way), way.stat()
        if not path.startswith("anon_inode:"):
            yield (found.st_dev, found.st_ino), Hold(pid, path, writable)


def space(pid: int, kind: str = "pid") -> str:
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def number(pid: int) -> int:
    """The number by which a process knows itself."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"^NSpid:.*\s(\d+)$", status, re.M)[0])


def within(path: str, directories: Sequence[str]) -> bool:
    return any(path == d or path.startswith(f"{d}/") for d in directories)


def read_only_at(hold: Hold) -> bool:
    """The process itself, whoever it is, could not open it for writing."""
    return bool(os.statvfs(f"/proc/{hold.pid}/root{hold.path}").f_flag & os.ST_RDONLY)


def why_common(here: str, by_node: Mapping[str, Sequence[Hold]], shared: str) -> str:
    """Name the exception of the law by which several nodes hold this; empty if none does.

    Args:
        here: the launcher's host.
        by_node: who holds it on each.
        shared: the job's directory.
    """
    every = [hold for found in by_node.values() for hold in found]
    away = [hold for node, found in by_node.items() if node != here for hold in found]
    path = every[0].path
    if path == "/dev/null" and stat.S_ISCHR(os.stat(f"/proc/{every[0].pid}/root{path}").st_mode):
        return "/dev/null"
    if path.startswith("pipe:"):
        return "ssh" if here in by_node and len(by_node) == 2 else ""
    if all(within(hold.path, [shared]) for hold in every):
        return "shared"
    if any(hold.writable for hold in every):
        return ""
    common = all(hold.path == "/" or within(hold.path, READ_ONLY) for hold in away)
    return "read-only" if common and all(map(read_only_at, away)) else ""


@dataclass
class Job:
    """A job whose slots hold windows open, and wait for the file outside.json in its directory.

    Attributes:
        pids: its processes, as they are numbered outside of the nodes.
        here: the launcher's host.
        nodes: the processes of each, by the node's UTS namespace.
        ranks: the same, but ranks alone.
    """

    process: subprocess.Popen[str]
    home: Path

    def __post_init__(self) -> None:
        self.pids = marked(str(self.home))
        self.here = space(os.getpid(), "uts")
        self.nodes: dict[str, list[int]] = defaultdict(list)
        self.ranks: dict[str, list[int]] = defaultdict(list)
        for pid in self.pids:
            node = space(pid, "uts")
            self.nodes[node].append(pid)
            if b"OMPI_COMM_WORLD_RANK" in Path(f"/proc/{pid}/environ").read_bytes():
                self.ranks[node].append(pid)


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    home = tmp_path_factory.mktemp("honest")
    (home / "program.py").write_text(PROGRAM)
    mark = str(home)
    process = subprocess.Popen(
        [FTRMA, "run", "-n", str(SLOTS), "--mpirun", launcher_options(),
         str(home / "program.py"), str(home)], text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, MARK: mark, FILES: str(home)}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + LIMIT_S
        while not all((home / f"ready-{slot}").exists() for slot in range(SLOTS)):
            assert time.monotonic() < deadline, "the job did not come up"
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.02)
        yield Job(process, home)
    finally:
        kill_marked(mark)
        process.communicate()


def test_each_node_has_spaces_of_its_own(job: Job) -> None:
    """Spaces of processes, mounts, names and IPC; directories for what is passing."""
    assert job.here not in job.ranks and len(job.ranks) == len(NODES), job
    for kind in ("pid", "mnt", "uts", "ipc"):
        each = [{space(pid, kind) for pid in found} for found in job.ranks.values()]
        assert all(len(kinds) == 1 for kinds in each), (kind, each)
        assert len({space(os.getpid(), kind)}.union(*each)) == 1 + len(NODES), kind
    for directory in ("tmp", "dev/shm"):
        found = [os.stat(f"/{directory}"), *(os.stat(f"/proc/{pids[0]}/root/{directory}")
                                             for pids in job.ranks.values())]
        assert len({(f.st_dev, f.st_ino) for f in found}) == 1 + len(NODES), directory


def test_processes_see_those_of_their_node_alone(job: Job) -> None:
    """On a node /proc lists its own processes, by their numbers there."""
    for node, found in job.ranks.items():
        expected = set()
        for pid in processes():
            with contextlib.suppress(OSError):
                if space(pid, "uts") == node and space(pid) == space(found[0]):
                    expected.add(number(pid))
        listed = {int(n) for n in os.listdir(f"/proc/{found[0]}/root/proc") if n.isdigit()}
        assert listed == expected


def test_nothing_is_held_in_common(job: Job) -> None:
    """Neither mapped nor open; nor can sockets that have no place in a file system be reached."""
    held: dict[Place, dict[str, list[Hold]]] = defaultdict(lambda: defaultdict(list))
    for node, found in job.nodes.items():
        for pid in found:
            for place, hold in holds(pid):
                held[place][node].append(hold)
    why = {place: why_common(job.here, by_node, str(job.home)) for place, by_node in held.items()
           if len(by_node) > 1}
    wrong = {f"{hold.path}, writable: {hold.writable}, in {command_line(hold.pid)[:60]!r} on {node}"
             for place, reason in why.items() if not reason
             for node, found in held[place].items() for hold in found}
    assert not wrong, "\n".join(sorted(wrong))
    # And it has looked where there is something.
    assert {"read-only", "ssh", "/dev/null"} <= set(why.values())
    for node in job.ranks:
        own = [hold.path for by_node in held.values() if set(by_node) == {node}
               for hold in by_node[node] if hold.writable]
        assert any(path.startswith("/dev/shm/") for path in own)
    sockets = {inode for (_, inode), by_node in held.items()
               if next(iter(by_node.values()))[0].path.startswith("socket:")}
    rows = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]]
    assert not [row for row in rows if int(row[6]) in sockets and row[-1].startswith("@")]


def test_memory_of_other_nodes_is_out_of_reach(job: Job) -> None:
    """By `process_vm_readv` and `process_vm_writev`, which do reach that of the same node. The job
    ends well then and leaves nothing."""
    (job.home / "numbers").write_text(json.dumps(job.pids))
    (job.home / "numbers").rename(job.home / "outside.json")
    said = job.process.communicate(timeout=LIMIT_S)[0]
    assert job.process.returncode == 0, said
    for slot in range(SLOTS):
        found = json.loads((job.home / f"found-{slot}.json").read_text())
        near = [s for s in range(SLOTS) if s // PER_NODE == slot // PER_NODE]
        assert found == {"host": NODES[slot // PER_NODE], "read": near, "wrote": near,
                         "written": near}
    assert not marked(str(job.home)) and not any(left_on(node) for node in NODES)


def on_a_node(command: str) -> subprocess.Popen[str]:
    """Run a command as the launcher would its daemon; the command is also the mark."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    return subprocess.Popen(
        [fake_ssh(), NODES[0], command], env={**os.environ, MARK: command}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )


def test_a_node_ends_with_its_last_process() -> None:
    """One that was left behind outlives the command, whose status it is nevertheless; who has ended
    is no zombie."""
    node = on_a_node("(sleep 0.1 &); (sleep 0.5; grep -h ^State /proc/[0-9]*/status) & exit 7")
    said = node.communicate(timeout=LIMIT_S)[0]
    assert node.returncode == 7 and "sleeping" in said and "zombie" not in said, said


@pytest.mark.parametrize("inside", [True, False])
def test_a_node_can_be_taken_down(inside: bool) -> None:
    """By a kill of its process 1, or of who started that."""
    command = "(setsid sleep 100 &); echo up; sleep 100"
    node = on_a_node(command)
    try:
        assert node.stdout and node.stdout.readline() == "up\n"
        (first,) = [pid for pid in marked(command) if number(pid) == 1]
        os.kill(first if inside else node.pid, signal.SIGKILL)
        deadline = time.monotonic() + LIMIT_S
        while left := [command_line(pid) for pid in marked(command) if pid != node.pid]:
            assert time.monotonic() < deadline, left
            time.sleep(0.01)
    finally:
        kill_marked(command)
        node.communicate()
