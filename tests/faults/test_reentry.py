"""A program that is entered again finds a clean process; it is started as Python does it.

Law: every entry of a program finds the same: what the attempt before has changed is put back, and
what it has registered does not happen twice. A module is run as Python's own ``-m`` runs it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import FTRMA, Result, run_command, run_job
from programs import kinds

from ftrma.launch.mpirun import launcher_environment, mpirun_command, session_directory

# A program that has set `pause_s` takes at least so many seconds for a step.
TAIL = """
import time
import numpy as np
from ftrma import MPI
import ftrma
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(8, 8, comm=comm)
memory = np.frombuffer(win.tomemory(), "i8")
memory[:] = 0
state = ftrma.protect("main", step=0)
while state.step < 20:
    ftrma.safepoint()
    time.sleep(pause_s)
    win.Fence()
    win.Accumulate(np.ones(1, "i8"), (me + state.step) % n)
    win.Fence()
    state.step += 1
np.save(f"{results}/memory-{me}.npy", memory)
"""
KILL = ("--policy", "rollback", "--interval", "0", "--kill", "1@fence:15")


def assert_done(memories: list[np.ndarray], slots: int) -> None:
    assert [m.tolist() for m in memories] == [[20]] * slots


CHANGES = """
import atexit, json, logging, os, signal, sys, warnings
results = sys.argv[1]
slot = os.environ["OMPI_COMM_WORLD_RANK"]
import ctypes
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p

def found():
    return {
        "cwd": os.getcwd(), "environ": sorted(set(os.environ) & {"COUNTER", "HOME", "NEW"}),
        "counter": os.environ.get("COUNTER"), "c": str(libc.getenv(b"PAST")),
        "path": sys.path, "argv": sys.argv, "root": len(logging.root.handlers),
        "level": logging.root.level, "app": len(logging.getLogger("app").handlers),
        "app level": logging.getLogger("app").level,
        "propagate": logging.getLogger("app").propagate,
        "signal": str(signal.getsignal(signal.SIGUSR1)),
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "filters": len(warnings.filters), "showwarning": warnings.showwarning.__name__,
        "hook": sys.excepthook.__name__, "stdout": type(sys.stdout).__name__,
        "stdin": type(sys.stdin).__name__, "disabled": logging.root.manager.disable,
    }

with open(f"{results}/found-{slot}.txt", "a") as f:
    f.write(json.dumps(found()) + "\\n")
os.chdir("/")
os.environ["COUNTER"] = os.environ.get("COUNTER", "") + "x"
os.environ["NEW"] = "1"
del os.environ["HOME"]
os.putenv("PAST", "1")
sys.path.insert(0, "/nowhere")
sys.argv.append("more")
shown = logging.StreamHandler(sys.stderr)
logging.root.addHandler(shown)
logging.root.setLevel(logging.DEBUG)
app = logging.getLogger("app")
app.setLevel(logging.INFO)
app.propagate = False
app.addHandler(logging.StreamHandler(sys.stderr))
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 1000)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
warnings.simplefilter("error", ImportWarning)
warnings.showwarning = lambda *_, **__: None
sys.excepthook = lambda *_: None
class Doubled:
    def __init__(self, under): self.under = under
    def write(self, text): return self.under.write(text)
    def flush(self): self.under.flush()
sys.stdout = Doubled(sys.stdout)
sys.stdin = Doubled(sys.stdin)
def last(words):
    with open(f"{results}/last-{slot}.txt", "a") as f:
        f.write(words)
atexit.register(last, "once ")
@atexit.register
def decorated():
    last("again ")
atexit.register(last, "never")
atexit.unregister(last)
atexit.register(last, "more ")
pause_s = 0
""" + TAIL + """
if me == 0:
    logging.getLogger("app").info("one line of app")
    logging.getLogger("other").debug("one line of other")
"""


def test_what_an_attempt_has_changed() -> None:
    """Law: the survivors of a rollback find everything as at their first entry; log lines come
    once, and so do functions for the end."""
    result = run_job(CHANGES, 2, *KILL)
    assert result.status == 0 and kinds(result) == ["rollback"], result
    assert_done(result.of_slots("memory", 2), 2)
    first, again = result.results["found-0"].splitlines()
    assert json.loads(again) == json.loads(first)
    assert result.stderr.count("one line of app") == 1, result.stderr
    assert result.stderr.count("one line of other") == 1, result.stderr
    assert result.results["last-0"] == "more again ", result.results["last-0"]


def in_directory(directory: Path, *words: str, timeout: float = 60) -> Result:
    """A command with this current directory."""
    return run_command(["sh", "-c", 'cd "$0" && exec "$@"', str(directory), *words], timeout)


@pytest.mark.parametrize("options, recovery", [
    (KILL, ["rollback"]), pytest.param((), [], marks=pytest.mark.full),
    pytest.param((*KILL, "--spares", "0"), ["relaunch"], marks=pytest.mark.full),
    pytest.param(("--kill", "1@fence:15"), ["causal"], marks=pytest.mark.full),
])
def test_a_file_beside_the_script(
    tmp_path: Path, options: tuple[str, ...], recovery: list[str]
) -> None:
    """Law: as in Python, __file__ is absolute and sys.argv[0] as it was given, so that a program
    which changes its directory finds what lies beside it; and it is found itself."""
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "beside.txt").write_text("beside")
    (tmp_path / "program" / "helper.py").write_text("value = 'helped'\n")
    (tmp_path / "program" / "app.py").write_text("""
import os, sys
results = os.path.abspath("results")
os.chdir("/")
with open(os.path.join(os.path.dirname(__file__), "beside.txt")) as f:
    assert f.read() == "beside"
import helper
assert helper.value == "helped"
assert sys.argv == ["program/app.py", "x"], sys.argv
assert sys.path[0] == os.path.dirname(__file__), (sys.path, __file__)
assert __spec__ is None and __package__ is None and __name__ == "__main__"
assert sys.modules["__main__"].__file__ == __file__
pause_s = 0
""" + TAIL)
    (tmp_path / "results").mkdir()
    stats = tmp_path / "stats.json"
    result = in_directory(tmp_path, FTRMA, "run", "-n", "2", "--stats", str(stats), *options,
                          "program/app.py", "x")
    assert result.status == 0, result
    assert [r["kind"] for r in json.loads(stats.read_text())["recoveries"]] == recovery
    assert_done([np.load(tmp_path / f"results/memory-{s}.npy") for s in range(2)], 2)


# ---- modules ----------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose module imports another relatively and says how it was started."""
    (tmp_path / "pkg" / "sub").mkdir(parents=True)
    (tmp_path / "results").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from mpi4py import MPI  # too early for ftrma\n")
    (tmp_path / "pkg" / "sub" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "other.py").write_text("steps = 0\n")
    (tmp_path / "pkg" / "__main__.py").write_text("print('the package itself')\n")
    (tmp_path / "pkg" / "sub" / "app.py").write_text("""
import os, sys, time
from .. import other
assert other.steps == 0, "the module is not fresh"
other.steps += 1
results = sys.argv[1]
assert __spec__.name == "pkg.sub.app" and __package__ == "pkg.sub" and __name__ == "__main__"
assert sys.argv[0] == __file__ == __spec__.origin, sys.argv
assert sys.path[0] == os.getcwd(), sys.path
assert sys.argv[2:] == ["--spares", "-m", "x"], sys.argv
os.chdir("/")
pause_s = 0.01
""" + TAIL)
    return tmp_path


def run_module(package: Path, *options: str) -> dict:
    stats = package / "stats.json"
    result = in_directory(
        package, FTRMA, "run", "-n", "3", "--stats", str(stats), *options, "-m", "pkg.sub.app",
        str(package / "results"), "--spares", "-m", "x",
    )
    assert result.status == 0, result
    assert_done([np.load(package / f"results/memory-{s}.npy") for s in range(3)], 3)
    return json.loads(stats.read_text())


@pytest.mark.full
@pytest.mark.parametrize("options", [
    ("--interval", "0", "--kill", "1@time:0.06"), ("--policy", "rollback", "--kill", "0@time:0.13"),
    ("--spares", "0", "--interval", "0", "--kill", "2@time:0.1"), ()])
def test_a_module(package: Path, options: tuple[str, ...]) -> None:
    """Law: -m starts it as Python does, in each process and at each entry; killed at some time."""
    stats = run_module(package, *options)
    assert len(stats["failures"]) == len(stats["recoveries"]) == int("--kill" in options), stats


@pytest.mark.full
def test_a_module_without_supervisor(package: Path) -> None:
    with session_directory() as session:
        command = [*mpirun_command(3, session), sys.executable, "-m", "ftrma", "-m", "pkg.sub.app",
                   str(package / "results"), "--spares", "-m", "x"]
        environment = " ".join(f"{k}='{v}'" for k, v in launcher_environment().items())
        result = in_directory(package, "sh", "-c", f'{environment} exec "$@"', "sh", "env",
                              "FTRMA_SPARES=0", *command)
    assert result.status == 0, result
    assert_done([np.load(package / f"results/memory-{s}.npy") for s in range(2)], 2)


IN_THE_ENVIRONMENT = """
import json, os, sys, time
from mpi4py import MPI
os.environ["CONFIGURED"] = "by the program"
import configured
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8, 8, comm=comm)
for step in range(12):
    time.sleep(0.02)
    win.Fence()
win.Fence()
names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "NODE_RANK")
found = [int(os.environ["OMPI_COMM_WORLD_" + name]) for name in names]
with open(f"{sys.argv[1]}/found-{comm.rank}.json", "w") as file:
    json.dump([found, configured.HOW], file)
"""


@pytest.mark.parametrize("options", [
    ("--policy", "causal"), pytest.param(("--policy", "rollback"), marks=pytest.mark.full)])
def test_the_environment_is_that_of_the_slot(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Law: who takes a slot's place has its numbers in the environment, and its libraries as they
    are when they are imported behind what the program has set."""
    (tmp_path / "configured.py").write_text(
        "import os\nHOW = os.environ.get('CONFIGURED', 'not at all')\n")
    result = run_job(IN_THE_ENVIRONMENT, 3, *options, "--kill", "1@fence:9",
                     env={"PYTHONPATH": str(tmp_path)})
    assert result.status == 0 and len(kinds(result)) == 1, result
    for slot in range(3):
        expected = [[slot, 3, slot, 3, slot], "by the program"]
        assert result.results[f"found-{slot}"] == expected


ADDED_TO_THE_PATH = """
import os, sys, time
sys.path.insert(0, os.path.join(os.environ["TOP"], "lib"))
from mpi4py import MPI
import installed, near
assert near.RANK == MPI.COMM_WORLD.rank
win = MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
limit = time.monotonic() + 20
while len(os.listdir(os.environ["TOP"] + "/pids")) < 3 and time.monotonic() < limit:
    time.sleep(0.05)
assert len(os.listdir(os.environ["TOP"] + "/pids")) == 3  # the spare has imported it, too
for step in range(12):
    time.sleep(0.02)
    win.Fence()
    near.note(step)
win.Fence()
"""


@pytest.mark.full
def test_a_spare_imports_installed_packages_by_the_programs_path(tmp_path: Path) -> None:
    """Law: though the program has added to `sys.path`; what lies in the directories that it has
    added runs in slots alone, which have ranks."""
    for name in ("lib", "site-packages", "pids"):
        (tmp_path / name).mkdir()
    (tmp_path / "site-packages/installed.py").write_text(
        "import os\nopen(f\"{os.environ['TOP']}/pids/{os.getpid()}\", 'w').close()\n")
    (tmp_path / "lib/near.py").write_text(
        "import os\nfrom mpi4py import MPI\nRANK = MPI.COMM_WORLD.rank\n"
        "def note(step): open(f\"{os.environ['TOP']}/{RANK}-{step}\", 'a').write('x')\n")
    result = run_job(ADDED_TO_THE_PATH, 2, "--spares", "1", "--policy", "causal", "--kill",
                     "1@fence:9", env={"PYTHONPATH": str(tmp_path / "site-packages"),
                                       "TOP": str(tmp_path)})
    assert result.status == 0 and kinds(result) == ["causal"], result
    assert len(list((tmp_path / "pids").iterdir())) == 3
    noted = {path.name: path.read_text() for path in tmp_path.glob("?-*")}
    assert {name for name, text in noted.items() if text == "xx"} == {
        f"1-{step}" for step in range(8)}, noted


@pytest.mark.full
def test_a_package(package: Path) -> None:
    result = in_directory(package, FTRMA, "run", "-n", "1", "-m", "pkg")
    assert (result.status, result.stdout) == (0, "the package itself\n"), result


@pytest.mark.parametrize("words, why", [
    (["pkg.none"], "-m pkg.none: no such module in pkg"), (["none.app"], "-m none.app: no such"),
    (["pkg.sub"], "-m pkg.sub: this is a package without a __main__"),
    (["pkg.other.x"], "-m pkg.other.x: no such module, since pkg.other is no package"),
    (["pkg/sub/app.py"], "-m pkg/sub/app.py: no such module"), ([], "-m: a module is expected"),
    (["pkg..other"], "-m pkg..other: no such module"), ([""], "-m: a module is expected"),
])
def test_no_such_module(package: Path, words: list[str], why: str) -> None:
    """Law: told in one line, with status 2, and no package is imported for it."""
    for command in ([FTRMA, "run", "-n", "2", "-m"], [sys.executable, "-m", "ftrma", "-m"]):
        found = subprocess.run([*command, *words], cwd=package, capture_output=True, text=True,
                               timeout=30)
        if words and words[0]:
            assert why in found.stderr and found.stderr.count("\n") == 1, found
        elif command[0] == FTRMA:
            assert why in found.stderr, found
        assert found.returncode == (2 if command[0] == FTRMA else 1), found
        assert found.stdout == ""
