"""Two nodes that the supervisor reaches, and that do not reach each other.

Law: that is noticed within seconds and told. A network that comes back within a minute costs
nothing but time; after it the job goes on without one of the two, and ends with the same bits.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from byhand import Job, same
from jobs import kill_marked, remove
from nodes import NODES, home_of, launcher_options, remove_fake_ssh, shared_of, why_not

from ftrma.fabric.link import Address

TWO = NODES[:2]
# Each has the other's parity, so that the job can do without either node.
OPTIONS = ("--spares", "0", "--group-size", "1", "--checksums", "2", "--aware", "nodes")


TABLES = ("iptables", "ip6tables")


def why_no_split() -> str:
    """Why packets cannot be dropped here; empty if they can."""
    for table in TABLES:
        if not shutil.which(table):
            return f"there is no {table}"
        done = subprocess.run([table, "-L", "INPUT"], capture_output=True, text=True, timeout=10)
        if done.returncode:
            return done.stderr.strip()
    return ""


@contextlib.contextmanager
def split(job: Job) -> Iterator[None]:
    """No packet passes between the agent of either node and the processes of the other one."""
    texts = [(shared_of(node) / job.directory.name / node / "agent").read_text() for node in TWO]
    rules = [(table, f"INPUT -p tcp {side} {Address.parse(text).port} -j DROP".split())
             for table in TABLES for text in texts for side in ("--dport", "--sport")]
    try:
        for table, rule in rules:
            subprocess.run([table, "-I", *rule], check=True, timeout=10)
        yield
    finally:
        for table, rule in rules:
            subprocess.run([table, "-D", *rule], check=True, timeout=10)


@pytest.mark.parametrize("healed", [
    pytest.param(True, marks=pytest.mark.full), pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.nightly
def test_nodes_that_do_not_reach_each_other(tmp_path: Path, healed: bool) -> None:
    if why := why_not() or why_no_split():
        pytest.skip(f"a network cannot be split here: {why}")
    (undisturbed := tmp_path / "undisturbed").mkdir()
    (disturbed := tmp_path / "disturbed").mkdir()
    job = Job(undisturbed, *OPTIONS, slots=2, nap="0")
    assert job.process.wait(60) == 0
    expected = job.results()
    job = Job(disturbed, "--mpirun", launcher_options(TWO), *OPTIONS, slots=2, nap="0.05")
    try:
        job.until((disturbed / "step-20").exists)
        began = time.monotonic()
        with split(job):
            said = job.read_until("do not reach each other", 40)
            noticed_s = time.monotonic() - began
            if not healed:
                said += job.read_until("launching the job again", 90)
        said += job.process.communicate(timeout=60)[0]
        assert job.process.returncode == 0, said
        assert same(job.results(), expected), said
        assert noticed_s < 25, said
        assert f"{TWO[0]} and {TWO[1]} do not reach each other; if that lasts for 60 s" in said
        assert said.count("launching the job again") == (not healed), said
    finally:
        kill_marked(job.mark)
        remove(home_of(node) for node in NODES)
        remove_fake_ssh()
