"""Births of threads, and what a program's end and a rollback do about them."""

from __future__ import annotations

import subprocess
import sys
import threading

from ftrma.native import job, loading

HEAD = """
import _thread, threading, time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from ftrma.native import job, loading
from ftrma.host.errors import Rollback
from ftrma.host.helper import Helper
from ftrma.program.threads import Threads
loading.load()
job.set_attempt_of_thread(7)
threads = Threads()
threads.watch()
mine = job.attempt_of_thread
"""


def run(text: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", HEAD + text], capture_output=True, text=True,
                           timeout=60)
    assert ended.returncode == 0 and not ended.stderr, ended
    return ended.stdout.split("\n")[:-1]


def test_a_thread_belongs_to_its_creators_attempt() -> None:
    """Law: however it is started, and wherever it makes its first call."""
    text = """
def report(name):
    print(name, mine(), len(threads.unfinished()))
def parent():
    job.set_attempt_of_thread(8)
    child = threading.Thread(target=report, args=("child",))
    child.start(), child.join()
for start in (lambda: threading.Thread(target=report, args=("thread",)).start(),
              lambda: _thread.start_new_thread(report, ("bare",)),
              lambda: _thread.start_new_thread(report, (), {"name": "named"}),
              lambda: threading.Timer(0, report, ("timer",)).start(),
              lambda: threading.Thread(target=parent).start()):
    start()
    while threads.unfinished():
        time.sleep(0.001)
report("main")
"""
    assert run(text) == ["thread 7 1", "bare 7 1", "named 7 1", "timer 7 1", "child 8 2",
                         "main 7 0"]


def test_ends_of_threads() -> None:
    """Law: none is forgotten that runs, none kept that has ended; a rollback ends one in silence,
    and a helper is nobody's business."""
    text = """
def unwind():
    raise Rollback("a process failed")
_thread.start_new_thread(unwind, ())
while threads.unfinished():
    time.sleep(0.001)
gate = threading.Event()
Helper(gate.wait).start()
print(threads.unfinished())
threading.Thread(target=gate.wait, name="waits").start()
_thread.start_new_thread(gate.wait, ())
threading.Thread(target=gate.wait, daemon=True).start()
left = threads.unfinished()
print(sorted(b.name for b in left)[:2], len(left), len(threads.awaited()))
gate.set()
while threads.unfinished():
    time.sleep(0.001)
for wrong in ((3, ()), (print, [])):
    try:
        _thread.start_new_thread(*wrong)
    except TypeError:
        print("no thread", threads.unfinished())
"""
    assert run(text)[1:] == ["[\"'Thread-1 (wait)'\", \"'waits'\"] 3 1", "no thread []",
                             "no thread []"]


def test_executors() -> None:
    """Law: at the program's end what was submitted is done; after a rollback what was not begun is
    not; and idle workers end, whereupon new executors work as ever."""
    text = """
pool, processes = ThreadPoolExecutor(2), ProcessPoolExecutor(1)
assert processes.submit(abs, -4).result() == 4
jobs = [pool.submit(time.sleep, 0.02) for _ in range(10)]
with threads.executors_closing():
    while threads.awaited():
        time.sleep(0.001)
print(sum(job.done() and not job.cancelled() for job in jobs))
pool = ThreadPoolExecutor(1)
jobs = [pool.submit(time.sleep, 0.3) for _ in range(10)]
threads.cancel_queued_work()
with threads.executors_closing():
    while threads.unfinished():
        time.sleep(0.001)
print(sum(job.cancelled() for job in jobs))
print(ThreadPoolExecutor(1).submit(abs, -3).result())
"""
    assert run(text) in (["10", "9", "3"], ["10", "10", "3"])


def test_one_thread_has_the_turn() -> None:
    """Law: what a repair changes about this process's origin no other thread's access sees."""
    loading.load()
    order: list[str] = []

    def other() -> None:
        with job.reserve_origin():
            order.append("other")

    with job.reserve_origin():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", "other"]
