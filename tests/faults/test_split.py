"""Two nodes that the supervisor reaches, and that do not reach each other.

Law: that is noticed within seconds and told. A network that comes back in time costs nothing but
time; after it the job goes on without one of the two, in place where the launcher outlives a node,
and ends with the same bits.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from byhand import Job, same
from jobs import kill_marked, remove
from lossy import ALONE, losing, why_no_network
from nodes import NODES, home_of, launcher_options, remove_fake_ssh, shared_of, why_not

from ftrma.fabric.link import Address

# By the number of nodes. Two have each other's parity; of three any one can be lost in place.
OPTIONS = {
    2: ("--spares", "0", "--group-size", "1", "--checksums", "2", "--aware", "nodes"),
    3: ("--spares", "3", "--group-size", "1", "--checksums", "3", "--aware", "nodes"),
}
PATIENCE = ("--timeout", "healed=10", "--timeout", "return=12")


def ways_to(job: Job, nodes: tuple[str, ...]) -> set[str]:
    """The ways between the agents of some nodes and the processes of all."""
    texts = [(shared_of(node) / job.directory.name / node / "agent").read_text() for node in nodes]
    return {f"{side} {Address.parse(text).port}" for text in texts for side in ("dport", "sport")}


@pytest.mark.parametrize(("nodes", "healed"), [
    pytest.param(2, True, marks=pytest.mark.nightly),
    pytest.param(2, False, marks=pytest.mark.nightly),
    pytest.param(3, False, marks=pytest.mark.nightly)])
def test_nodes_that_do_not_reach_each_other(tmp_path: Path, nodes: int, healed: bool) -> None:
    if why := why_not() or why_no_network():
        pytest.skip(f"a network cannot be split here: {why}")
    options = (*OPTIONS[nodes], *PATIENCE)
    (undisturbed := tmp_path / "undisturbed").mkdir()
    (disturbed := tmp_path / "disturbed").mkdir()
    job = Job(undisturbed, *options, slots=nodes, nap="0")
    assert job.process.wait(60) == 0
    expected = job.results()
    words = f"{launcher_options(NODES[:nodes], nodes, in_turn=True)} -x NAP=0.2"
    job = Job(disturbed, "--mpirun", words, *options, slots=nodes, inside=ALONE)
    cut, end = (NODES[:2], "launching the job again") if nodes == 2 else (
        NODES[2:], "counts as lost")
    try:
        job.until((disturbed / "step-20").exists)
        began = time.monotonic()
        with losing(job, ways_to(job, cut)):
            said = job.read_until("do not reach each other", 40)
            noticed_s = time.monotonic() - began
            if not healed:
                said += job.read_until(end, 60)
        said += job.process.communicate(timeout=60)[0]
        assert job.process.returncode == 0, said
        assert same(job.results(), expected), said
        assert noticed_s < 25, said
        assert f"and {cut[-1]} do not reach each other; if that lasts for 12 s" in said
        assert said.count("launching the job again") == (not healed and nodes == 2), said
        assert said.count("counts as lost") == (not healed), said
    finally:
        kill_marked(job.mark)
        remove(home_of(node) for node in NODES)
        remove_fake_ssh()
