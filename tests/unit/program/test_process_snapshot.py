"""A process snapshot: each change of a process is taken back, in an interpreter of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """
import atexit, logging, os, signal, sys, threading, time, warnings
from ftrma.program.process_snapshot import ProcessSnapshot
mine = os.path.dirname(__file__) + os.sep
snapshot = ProcessSnapshot(lambda file: (file or "").startswith(mine) and "library" not in file)
"""
CASES = {
    "directory": ("os.chdir('/')", "os.getcwd()"),
    "a new variable": ("os.environ['NEW'] = '1'", "os.environ.get('NEW')"),
    "a variable that goes": ("os.environ.pop('PATH', None)", "os.environ.get('PATH')"),
    "a changed variable": ("os.environ['PATH'] = 'x'", "os.environ.get('PATH')"),
    "a child's variables": ("os.putenv('PAST', '1'); os.environ['NEW'] = '1'; os.unsetenv('PATH')",
                            "os.popen('/usr/bin/env | /usr/bin/sort').read()"),
    "handlers of the root": ("logging.basicConfig(level=logging.DEBUG)",
                             "(logging.root.handlers, logging.root.level)"),
    "a logger": ("x = logging.getLogger('a.b'); x.addHandler(logging.StreamHandler()); "
                 "x.setLevel(10); x.propagate = False; x.disabled = True; x.addFilter(print)",
                 "vars(logging.getLogger('a.b')) | {'_cache': 0}"),
    "logging at all": ("logging.disable(50)", "logging.root.manager.disable"),
    "a signal": ("signal.signal(signal.SIGTERM, print)", "signal.getsignal(signal.SIGTERM)"),
    "ignored signals": ("signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
                        "signal.getsignal(signal.SIGUSR1)"),
    "a timer": ("signal.signal(signal.SIGALRM, print); signal.alarm(1000)",
                "(signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM))"),
    "the signal mask": ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
                        "signal.pthread_sigmask(signal.SIG_BLOCK, [])"),
    "the path": ("sys.path.insert(0, 'x')", "sys.path"),
    "a new path": ("sys.path = ['x']", "sys.path"),
    "arguments": ("sys.argv[:] = ['x', 'y']", "sys.argv"),
    "filters of warnings": ("warnings.simplefilter('error')", "warnings.filters"),
    "a way to warn": ("warnings.showwarning = print", "warnings.showwarning"),
    "captured warnings": ("logging.captureWarnings(True)", "warnings.showwarning"),
    "the hook for errors": ("sys.excepthook = print", "sys.excepthook"),
    "the hook of threads": ("threading.excepthook = print", "threading.excepthook"),
    "streams": ("sys.stdout = sys.stderr = sys.stdin = open(os.devnull)",
                "[id(s) for s in (sys.stdin, sys.stdout, sys.stderr)]"),
}


def run(directory: Path, text: str, *arguments: str) -> str:
    script = directory / "script.py"
    script.write_text(HEAD + text)
    ended = subprocess.run([sys.executable, str(script), *arguments], capture_output=True,
                           text=True, timeout=60)
    assert ended.returncode == 0 and not ended.stderr, ended
    return ended.stdout


def test_what_is_changed_is_put_back(tmp_path: Path) -> None:
    """Law: for each of these the program finds what it has found at first, however often it is
    entered. (All in one interpreter, one after the other and all together.)"""
    text = """
import json
cases = json.loads(sys.argv[1])
def look(expression):
    return repr(eval(expression))
for which in [[case] for case in cases] + [cases]:
    before = [look(found) for _, found in which]
    for _ in range(2):
        for change, _ in which:
            exec(change)
        changed = [look(found) for _, found in which]
        snapshot.restore()
        assert all(a != b for a, b in zip(before, changed)), (which, before, changed)
        assert [look(found) for _, found in which] == before, (which, before)
print(len(cases), "cases")
"""
    assert run(tmp_path, text, json.dumps(list(CASES.values()))) == f"{len(CASES)} cases\n"


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    text = """
import tempfile
os.chdir(tempfile.mkdtemp())
snapshot = ProcessSnapshot(lambda file: False)
os.rmdir(os.getcwd())
os.chdir("/")
snapshot.restore()
print(os.getcwd())
"""
    assert run(tmp_path, text) == "/\n"


def test_what_a_library_sets_up_stays(tmp_path: Path) -> None:
    """Law: it stays imported, and would not do so again."""
    (tmp_path / "library.py").write_text("""
import atexit, logging
logging.getLogger("library").addHandler(logging.NullHandler())
atexit.register(print, "the library's end")
def later():
    atexit.register(print, "asked for by the program")
""")
    text = """
import library
library.later()
snapshot.restore()
assert len(logging.getLogger("library").handlers) == 1
"""
    assert run(tmp_path, text) == "the library's end\n"


@pytest.mark.parametrize("times", [1, 3])
def test_functions_for_the_end(tmp_path: Path, times: int) -> None:
    """Law: those of the last entry run, each once, in Python's order; taking one back works."""
    (tmp_path / "own.py").write_text("import atexit\natexit.register(print, 'own module')\n")
    text = """
def first(word, end="\\n"):
    print("first", word, end=end)
for entry in range(int(sys.argv[1])):
    sys.modules.pop("own", None)
    if entry:
        snapshot.restore()
    atexit.register(first, entry, end="!\\n")
    import own
    @atexit.register
    def second():
        print("second")
    atexit.register(print, "never")
    atexit.register(sys.stdout.write, "third\\n")
    atexit.unregister(print)
try:
    atexit.register(3)
except TypeError:
    pass
"""
    assert run(tmp_path, text, str(times)) == f"third\nsecond\nfirst {times - 1}!\n"
