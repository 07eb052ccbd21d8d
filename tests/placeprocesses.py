"""Runs a function in real processes that share a mail, without MPI: places of a job on one node.

The parent stands for those who notice deaths. A death of the first process is told as any other:
nobody goes back.
"""

from __future__ import annotations

import os
import pickle
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mailmaps import unmap

from ftrma.framework import Members
from ftrma.host import signals
from ftrma.native import loading, mail
from ftrma.program.deathmail import MemberFacts


class Ended(NamedTuple):
    """The end of a process that has returned nothing: its signal, or its exit status."""

    signal: int = 0
    status: int = 0


class PlaceFailed(Exception):
    """A function raised an error in one of the processes; the text is its traceback."""


def run_places(
    places: int, function: Callable[[Members], Any], *, spares: int = 0, timeout_s: float = 20.0,
    attempt: int = 1, mtbf_s: float = 0.0,
) -> list[Any]:
    """Run a function in so many processes, and in the spares.

    Args:
        function: is called in each with its `Members`; inherits all by fork.
        timeout_s: after this time all are killed.

    Returns:
        What the function returned, by process, or an `Ended`.

    Raises:
        PlaceFailed: it raised an error somewhere. TimeoutError: somebody did not end.
    """
    loading.load()
    directory = Path(tempfile.mkdtemp(prefix="ftrma-places-", dir="/dev/shm"))
    count = places + spares
    mail.create(directory / "mail", count)
    pids, pipes = [], []
    try:
        for me in range(count):
            read, write = os.pipe()
            pid = os.fork()
            if not pid:
                os.close(read)
                _be_place(directory, me, places, count, function, write, attempt, mtbf_s)
            os.close(write)
            pids.append(pid)
            pipes.append(read)
        return _collect(mail.Mail(directory / "mail", 0), pids, pipes, timeout_s)
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        for pipe in pipes:
            os.close(pipe)
        unmap(directory / "mail")
        shutil.rmtree(directory)


def _be_place(directory: Path, me: int, places: int, count: int,
              function: Callable[[Members], Any], write: int, attempt: int, mtbf_s: float) -> None:
    try:
        for number in signals.ENDING:
            signal.signal(number, signal.SIG_DFL)  # a command that was tested here may handle them
        own = mail.Mail(directory / "mail", me)
        own.join()
        members = Members(own, MemberFacts(me, range(count), (), places, attempt, directory,
                                           mtbf_s))
        answer = True, function(members)
        data = pickle.dumps(answer)
    except BaseException:
        data = pickle.dumps((False, traceback.format_exc()))
    with open(write, "wb") as pipe:
        pipe.write(data)
    os._exit(0)


def _collect(parents: mail.Mail, pids: list[int], pipes: list[int], timeout_s: float) -> list[Any]:
    """Note deaths, and gather what the processes return."""
    answers: list[Any] = [b""] * len(pids)
    open_pipes = dict(zip(pipes, range(len(pids)), strict=True))
    deadline = time.monotonic() + timeout_s
    while open_pipes:
        ready, _, _ = select.select(list(open_pipes), [], [], max(0, deadline - time.monotonic()))
        if not ready:
            alive = sorted(open_pipes.values())
            raise TimeoutError(f"places {alive} had not ended after {timeout_s} s")
        for pipe in ready:
            me, data = open_pipes[pipe], os.read(pipe, 1 << 20)
            answers[me] += data
            if data:
                continue
            del open_pipes[pipe]
            _, how = os.waitpid(pids[me], 0)
            if how:
                parents.note_death(me)
                answers[me] = Ended(os.WTERMSIG(how), os.waitstatus_to_exitcode(how) if
                                    os.WIFEXITED(how) else 0)
            else:
                well, answers[me] = pickle.loads(answers[me])
                if not well:
                    raise PlaceFailed(f"place {me}: {answers[me]}")
    return answers
