"""The command ``ftrma doctor``: checks whether this machine can run protected jobs; else says what
helps.

Each check prints one line: ``ok`` with the finding, or ``FAIL`` with the remedy; a ``note`` does
not prevent jobs. A check that loads or starts MPI runs in a child process with a time limit,
because a broken installation crashes or hangs more often than it raises an error. Only the last
check is a proof: a job of two slots loses one and must recover.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..host import cgroup, outfile, timeouts
from ..host.errors import FtrmaError
from ..host.jsonoutput import document
from ..host.listening import Bind
from ..launch import hostchecks, mpirun, nodechecks, slurm
from ..native import library
from ..settings.configuration import NONE
from ..settings.options import CONFIG_VARIABLE

SLOW_S = 10.0  # a launcher that takes longer has a problem, mostly with host names
FIRST_USER = 1000  # for logind, users below this are the system's own
SMALL_BYTES = 512 << 20  # containers often have 64 MiB of /dev/shm
JOB = 4  # slots of the job that the cores are compared with; it also has 1 checksum rank, 1 spare
UNCHECKED = "not checked before what is missing above is there"
CLI = "from ftrma.command.cli import main; main()"  # needs no console script on PATH

Outcome = subprocess.CompletedProcess[str]
Found = tuple[str, str]  # "ok", "note" or "FAIL"; and what to say


def doctor(*, as_json: bool = False, mpirun: str = "", bind: str = "") -> int:
    """Check this machine and print each finding at once, or all findings as JSON.

    Args:
        mpirun: options of the launcher that name other hosts, which are checked, too.
        bind: where to listen for them, as given by ``--bind``.

    Returns:
        Exit status: 0 if protected jobs run here.

    Raises:
        ValueError: an option cannot be read.
    """
    words, where = nodechecks.read(mpirun, bind)
    found: list[dict[str, str]] = []
    for what, verdict, text in findings(words, where):
        found.append({"name": what, "verdict": verdict, "text": text})
        if not as_json:
            outfile.say(f"{what:<17} {verdict:<5} {text}")
    fit = all(finding["verdict"] != "FAIL" for finding in found)
    if as_json:
        outfile.say(document("doctor", fit=fit, checks=found))
    return 0 if fit else 1


def findings(words: list[str], bind: Bind) -> Iterator[nodechecks.Finding]:
    """Check one thing after the other."""
    with tempfile.TemporaryDirectory(prefix="ftrma-doctor-") as name:
        directory = Path(name)
        for what, check in checks(directory):
            try:
                yield (what, *check())
            except (FtrmaError, OSError, subprocess.SubprocessError, ValueError) as error:
                yield what, "FAIL", str(error)
    if words:
        try:
            yield from nodechecks.look(words, bind)
        except (FtrmaError, OSError, ValueError) as error:
            yield "hosts", "FAIL", str(error)


def checks(directory: Path) -> list[tuple[str, Callable[[], Found]]]:
    """Return all checks, in an order in which each can build on the ones before."""
    found: dict[str, Any] = {}  # findings of the first checks, for those that build on them
    return [
        ("Python", check_python),
        ("mpi4py", check_mpi4py),
        ("surroundings", check_surroundings),
        ("MPI library", lambda: check_library(directory, found)),
        ("ULFM", lambda: check_ulfm(directory, found)),
        ("launcher", lambda: check_launcher(directory, found)),
        ("interposition", lambda: check_interposition(directory, found)),
        ("shared memory", check_shared_memory),
        ("logind", check_logind),
        ("cores", check_cores),
        ("process_vm_readv", check_process_vm),
        ("recovery", lambda: check_recovery(directory, found)),
    ]


# ---- what is installed ----------------------------------------------------------------------


def check_python() -> Found:
    """Tell the version of Python; the installer has refused unfit ones."""
    return "ok", f"{platform.python_version()} ({sys.executable})"


def check_mpi4py() -> Found:
    try:
        version = importlib.metadata.version("mpi4py")
    except importlib.metadata.PackageNotFoundError:
        return "FAIL", "not installed: pip install 'mpi4py>=4.1'"
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < (4, 1):
        return "FAIL", f"{version} is too old: pip install 'mpi4py>=4.1'"
    return "ok", version


def check_surroundings() -> Found:
    hostchecks.check(JOB + 2)
    return "ok", f"limits and shared memory are enough to start {JOB + 2} processes"


LIBRARY = """
import ctypes, json
from ftrma.native import job, loading
loading.load()
text, file = loading.version_of(str(loading.EXTENSION))
revoke = hasattr(ctypes.CDLL(None), "MPIX_Comm_revoke")
print(json.dumps([text, file, revoke, job.has_ulfm()]))
"""


def check_library(directory: Path, found: dict[str, Any]) -> Found:
    """Load the MPI library as a job does, and put its name into `found`."""
    outcome = python(LIBRARY, directory)
    if outcome.returncode:
        why = last_line(outcome).removeprefix("ftrma.host.errors.FtrmaError: ")
        return "FAIL", why if "pip install" in why or "unset" in why else f"{why}; {library.NEEDED}"
    text, found["file"], found["revoke"], found["built"] = json.loads(
        outcome.stdout.splitlines()[-1]
    )
    mpi = found["mpi"] = library.judge(text)
    if mpi.untried:
        return "note", f"{mpi.words} ({found['file']}): newer than what ftrma has been tried with"
    return "ok", f"{mpi.words} ({found['file']})"


def check_ulfm(directory: Path, found: dict[str, Any]) -> Found:
    """Look for MPIX_Comm_revoke, which frees processes that a death blocks in the library."""
    if "mpi" not in found:
        return "FAIL", UNCHECKED
    info = Path(mpirun.find_mpirun()).with_name("ompi_info")
    told = ""
    if info.exists():
        text = run_child([str(info)], directory).stdout
        match = re.search(r"FT MPI support: *(.*)", text)
        told = match[1].strip() if match else ""
    return judge_ulfm(found["mpi"].words, found["revoke"], found["built"], told)


def judge_ulfm(name: str, revoke: bool, built: bool, told: str) -> Found:
    """Judge whether failures can be repaired in place.

    Args:
        revoke: whether the loaded library has MPIX_Comm_revoke.
        built: whether the header with which ftrma was built had it.
        told: output of ompi_info; empty if there is none.
    """
    if revoke and built and not told.startswith("no"):
        return "ok", "the library can revoke communicators" + f" (FT MPI: {told})" * bool(told)
    lacking = f"ftrma was built with an {name}" if revoke and not built else f"{name} was built"
    return "FAIL", (
        f"{lacking} without it: a death ends the job, which 'ftrma run' then launches again from "
        f"its checkpoint; for recovery in place {library.NEEDED}"
    )


# ---- what runs ------------------------------------------------------------------------------


def check_launcher(directory: Path, found: dict[str, Any]) -> Found:
    path = mpirun.find_mpirun()
    version = run_child([path, "--version"], directory, mpirun.launcher_environment())
    kind = library.judge(version.stdout)
    if not kind.fits:
        return "FAIL", f"{path} is the launcher of {kind.words}; {library.NEEDED}"
    found["launcher"] = kind
    name = version.stdout.splitlines()[0]
    began = time.monotonic()
    outcome = mpi_job("print('up')", directory)
    seconds = time.monotonic() - began
    if outcome.returncode or outcome.stdout.split() != ["up", "up"]:
        return "FAIL", f"{path} ({name}) does not start 2 processes: {last_line(outcome)}"
    text = f"{name} ({path}) started 2 processes in {seconds:.2f} s"
    if seconds > SLOW_S:
        return "note", f"{text}: slow; see that the name of this host can be resolved"
    return "ok", text


INTERPOSITION = """
from ftrma.native import job, loading
loading.load()
MPI = loading.import_mpi()
comm = MPI.COMM_WORLD
ours = comm.allreduce(int(job.interposed()), op=MPI.MIN)
if comm.rank == 0:
    print(ours, comm.size, len(loading.load().intercepted()))
"""


def check_interposition(directory: Path, found: dict[str, Any]) -> Found:
    if not found.keys() >= {"mpi", "launcher"}:
        return "FAIL", UNCHECKED
    outcome = mpi_job(INTERPOSITION, directory)
    words = outcome.stdout.split()
    if outcome.returncode or len(words) != 3:
        return "FAIL", f"a job of 2 processes does not run: {last_line(outcome)}"
    if words[:2] != ["1", "2"]:
        return "FAIL", (
            "mpi4py's calls of MPI do not pass through ftrma: they use two MPI libraries; build "
            "both with one mpicc (MPICC=... pip install --no-cache-dir --no-binary mpi4py ...)"
        )
    return "ok", f"{words[2]} calls of MPI pass through ftrma, in 2 of 2 processes"


# This process holds memory that another process reads, as a slot holds a window from Create.
OWNER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)  # as every ftrma process
buffer = ctypes.create_string_buffer(b"ftrma")
print(os.getpid(), ctypes.addressof(buffer), flush=True)
sys.stdin.read()
"""


def check_process_vm() -> Found:
    """Read memory of another process by the call that reads windows from Create."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdin and owner.stdout
        pid, address = map(int, owner.stdout.readline().split())
        with tempfile.TemporaryDirectory(prefix="ftrma-doctor-") as name:
            reader = python(READER.format(pid=pid, address=address), Path(name))
        owner.stdin.close()
    if reader.stdout.strip() == "ftrma":
        return "ok", "allowed between processes of one user"
    return "FAIL", (
        f"refused ({last_line(reader)}): windows from Win.Create do not work, those from "
        "Win.Allocate do; in a container allow it with --cap-add SYS_PTRACE"
    )


READER = """
import ctypes, os
class Stretch(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(5)
here, there = Stretch(ctypes.addressof(buffer), 5), Stretch({address}, 5)
call = ctypes.CDLL(None, use_errno=True).process_vm_readv
call.restype = ctypes.c_ssize_t
got = call({pid}, ctypes.byref(here), 1, ctypes.byref(there), 1, ctypes.c_ulong(0))
print(buffer.raw.decode() if got == 5 else os.strerror(ctypes.get_errno()))
"""


# ---- what there is --------------------------------------------------------------------------


def check_shared_memory() -> Found:
    try:
        with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="ftrma-doctor-") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
    except OSError as error:
        return "FAIL", f"/dev/shm cannot be written ({error.strerror}): mount a tmpfs there"
    free, allowed = shutil.disk_usage("/dev/shm").free, cgroup.room_bytes()
    text = f"{free / 2**30:.1f} GiB free in /dev/shm"
    if allowed is not None and allowed < free:
        free, text = allowed, f"{text}, {allowed / 2**30:.1f} GiB left by the control group's limit"
    if free < SMALL_BYTES:
        return "note", (
            f"{text}: enough for small windows only; in a container ask for more (--shm-size=4g)"
        )
    return "ok", text


def check_logind(root: Path = Path("/"), uid: int | None = None) -> Found:
    """Check whether logind would remove a user's shared memory while jobs still need it.

    Args:
        root: root of the file system; uid: the user's id, None: this user's.

    Source: logind.conf(5), RemoveIPC.
    """
    uid = os.getuid() if uid is None else uid
    if not (root / "run/systemd/users").exists():
        return "ok", "there is none: shared memory stays"
    if uid < FIRST_USER:
        return "ok", f"it leaves alone what user {uid} has in shared memory"
    folder, words = Path("systemd/logind.conf.d"), "yes"
    parts = {path.name: path for base in ("usr/lib", "run", "etc")
             for path in sorted((root / base / folder).glob("*.conf"))}
    for path in [root / "etc/systemd/logind.conf", *(parts[name] for name in sorted(parts))]:
        with contextlib.suppress(OSError):
            text = path.read_text(errors="replace")
            words = (re.findall(r"(?m)^\s*RemoveIPC\s*=\s*(\S+)", text) or [words])[-1]
    if words.lower() in ("no", "false", "off", "0"):
        return "ok", "it leaves shared memory alone (RemoveIPC=no)"
    with contextlib.suppress(KeyError):
        if (root / "var/lib/systemd/linger" / pwd.getpwuid(uid).pw_name).exists():
            return "ok", "it leaves shared memory alone while you linger"
    return "note", (
        "when your last session on this machine ends it clears /dev/shm of your files (RemoveIPC), "
        "those of jobs that run on, as of a batch system, too: 'loginctl enable-linger' keeps them"
    )


def check_cores() -> Found:
    cores, processes = len(os.sched_getaffinity(0)), JOB + 2
    text = f"{cores} for the {processes} processes of a job of {JOB} slots"
    if cores < JOB:
        return "note", f"{text}: they take turns; correct, but slow"
    return "ok", text


# ---- the proof ------------------------------------------------------------------------------

PROGRAM = """
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
window = MPI.Win.Allocate(8, 8, comm=comm)
memory = np.frombuffer(window.tomemory(), dtype=np.int64)
memory[0] = 0
state = ftrma.protect("doctor", step=0, total=0)
while state.step < 10:
    window.Fence(MPI.MODE_NOPRECEDE)
    window.Put(np.array([state.step], dtype=np.int64), 1 - comm.rank)
    window.Fence(MPI.MODE_NOSUCCEED)
    state.total += int(memory[0])
    state.step += 1
    ftrma.safepoint()
total = comm.allreduce(state.total)
if comm.rank == 0:
    print(total)
"""


def check_recovery(directory: Path, found: dict[str, Any]) -> Found:
    """Kill slot 1 of 2 in the sixth of ten steps; it must be recovered in place, with the right
    sum."""
    if not found.keys() >= {"mpi", "launcher"}:
        return "FAIL", UNCHECKED
    program, stats_file = directory / "program.py", directory / "stats.json"
    program.write_text(PROGRAM)
    options = ["-n", "2", "--interval", "0", "--kill", "1@fence:11", "--stats", str(stats_file)]
    options += ["--mpirun", shlex.join(words_for_here())]
    outcome = python(CLI, directory, "run", *options, str(program))
    if outcome.returncode:
        return "FAIL", f"a job with a killed slot failed: {last_line(outcome)}"
    if outcome.stdout.split() != ["90"]:
        return "FAIL", f"after a recovery the sum was {outcome.stdout.strip()} and not 90"
    stats = json.loads(stats_file.read_text())
    ways = [(r["kind"], r["slots"]) for r in stats["recoveries"]]
    if ways != [("rollback", [1])]:
        return "FAIL", f"a killed slot did not come back in place: {last_line(outcome)}"
    seconds, version = stats["recoveries"][0]["seconds"], stats["recoveries"][0]["version"]
    return "ok", (
        f"slot 1 of 2 was killed and came back at checkpoint {version} in {seconds * 1e3:.0f} ms"
    )


# ---- children -------------------------------------------------------------------------------


def python(code: str, directory: Path, *arguments: str) -> Outcome:
    return run_child([sys.executable, "-c", code, *arguments], directory)


def mpi_job(code: str, directory: Path) -> Outcome:
    """Run a piece of Python in 2 processes, started as `ftrma run` starts them."""
    with mpirun.session_directory() as session:
        words = slurm.words_in_allocation(words_for_here())
        command = [*mpirun.mpirun_command(2, session, words), sys.executable, "-c", code]
        return run_child(command, directory, mpirun.launcher_environment())


def words_for_here() -> list[str]:
    """Return the launcher's options for a job on this host alone, also in the allocation of a batch
    system: no other host has the directory of these checks."""
    if not mpirun.hosts_from_elsewhere([]):
        return []
    return ["--host", f"{socket.gethostname()}:{JOB}"]


def run_child(command: list[str], directory: Path, extra: dict[str, str] | None = None) -> Outcome:
    """Run a command in `directory`, away from the user's own settings.

    Raises:
        FtrmaError: it took longer than `timeouts.DOCTOR`, and was ended together with its job.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FTRMA_")}
    environment[CONFIG_VARIABLE] = NONE
    with subprocess.Popen(
        command, cwd=directory, env={**environment, **(extra or {})}, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:
        try:
            output, errors = child.communicate(timeout=timeouts.DOCTOR.s)
        except subprocess.TimeoutExpired:
            child.terminate()  # a supervisor ends its job as well
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
            raise FtrmaError(f"no end after {timeouts.DOCTOR.s:.0f} s") from None
    return Outcome(command, child.returncode, output, errors)


def last_line(outcome: Outcome) -> str:
    """Return the line of the output that most probably says what went wrong."""
    lines = [line.strip() for line in (outcome.stdout + outcome.stderr).splitlines()]
    lines = [line for line in lines if re.search(r"\w", line)]
    if outcome.returncode < 0 and not lines:
        return f"killed by signal {-outcome.returncode}"
    return lines[-1] if lines else f"exit status {outcome.returncode}"
