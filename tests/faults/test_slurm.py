"""Jobs in an allocation of Slurm: a stand-in over emulated nodes, and Slurm itself if it is here.

Law: nothing has to be said about hosts, and a node that is lost is replaced in place.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import slurmcluster
from jobs import FTRMA, Result, run_command, run_job
from nodes import NODES, fake_ssh, left_on, remove_fake_ssh, why_not
from programs import kinds
from slurmcluster import Cluster, wait_until
from test_node_loss import PROGRAM

SLOTS = 4
# Two of each group, on different nodes, and a spare of each node: any node can be lost.
OPTIONS = ("--spares", "3", "--group-size", "2", "--interval", "0")
FABRICS = "--mca btl ^ofi --mca mtl ^ofi --mca mpi_yield_when_idle 1"
STAND_INS = {
    "scontrol": "echo ${3//,/ }",
    "srun": """for word; do
    case $word in --nodelist=*) host=${word#*=} ;; -*) ;; *) break ;; esac
    shift
done
exec SSH "$host" "$(printf '%q ' "$@")"
""",
}
ENDLESS = """
import sys
import numpy as np
from ftrma import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8, 8, comm=comm)
step = 0
while True:
    win.Fence()
    win.Put(np.array([step]), (comm.rank + 1) % comm.size)
    win.Fence()
    step += 1
    if step == 50 and comm.rank == 0:
        open(sys.argv[1], "w").close()
"""


@pytest.fixture
def allocation(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a batch script, of three nodes for three tasks each."""
    if why := why_not():
        pytest.skip(f"nodes cannot be emulated here: {why}")
    for program, script in STAND_INS.items():
        (tmp_path / program).write_text(f"#!/bin/bash\n{script.replace('SSH', fake_ssh())}\n")
        (tmp_path / program).chmod(0o755)
    yield {"PATH": f"{tmp_path}:{slurmcluster.search_path()}", "SLURM_JOB_ID": "7",
           "SLURM_JOB_NODELIST": ",".join(NODES), "SLURM_TASKS_PER_NODE": "3(x3)"}
    remove_fake_ssh()


def run(allocation: dict[str, str], *options: str) -> Result:
    program = PROGRAM.format(fells={}, daemon=False, refused="")
    return run_job(program, SLOTS, *OPTIONS, *options, "--mpirun", f"--map-by node {FABRICS}",
                   env=allocation, timeout=90, patience_s=10.0)


@pytest.mark.full
def test_a_lost_node_is_replaced_in_place(allocation: dict[str, str]) -> None:
    reference = run(allocation)
    assert reference.status == 0 and not reference.stats["recoveries"], reference
    result = run(allocation, "--kill", "n3@put:5")
    assert result.status == 0 and kinds(result) == ["rollback"], result
    assert result.stats["relayed"] and "it counts as lost" in result.stderr, result
    for found, expected in zip(result.of_slots("out", SLOTS), reference.of_slots("out", SLOTS),
                               strict=True):
        for name in ("cells", "field"):
            assert found[name].tobytes() == expected[name].tobytes(), (name, result)
    assert not [left for node in NODES for left in left_on(node)]


@pytest.mark.full
def test_a_step_of_many_tasks_is_refused(allocation: dict[str, str], tmp_path: Path) -> None:
    """Law: ``srun ftrma run`` is one line and status 2, and no job for each task."""
    result = run_command([FTRMA, "run", "-n", "2", "app.py"],
                         env={**allocation, "SLURM_STEP_NUM_TASKS": "6"})
    assert result.status == 2 and result.stderr.count("\n") == 1, result
    assert "leave srun out" in result.stderr, result


@pytest.fixture(scope="module")
def only_cluster() -> Iterator[Cluster]:
    if why := slurmcluster.why_not():
        pytest.skip(f"no Slurm: {why}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as home:
        Path(home).chmod(0o755)
        with Cluster(Path(home)) as made:
            yield made


@pytest.fixture
def cluster(only_cluster: Cluster) -> Cluster:
    """All its nodes are up and idle, whatever the test before has done to them."""
    only_cluster.start()
    return only_cluster


def command(script: Path, *options: str, args: str) -> str:
    return (f"{shlex.quote(FTRMA)} run -n {SLOTS} {' '.join(OPTIONS)} {' '.join(options)} "
            f"--mpirun '--map-by node {FABRICS}' {script} {args}; echo ended with $?")


def ended(cluster: Cluster) -> bool:
    return "ended with" in cluster.said() and cluster.idle() == len(cluster.nodes)


@pytest.mark.nightly
def test_doctor_finds_the_nodes(cluster: Cluster) -> None:
    """Law: in an allocation all its nodes are looked at, without any option."""
    cluster.submit(f"{shlex.quote(FTRMA)} doctor; echo ended with $?")
    wait_until(lambda: ended(cluster), "the end of doctor")
    said = cluster.said()
    assert "ended with 0" in said and f"reach this one: {', '.join(NODES)}" in said, said
    assert "is replaced in place" in said and not cluster.left(), said


@pytest.mark.nightly
def test_a_cancelled_job_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Law: scancel signals all processes of a job; they end and clean up in the time that they
    have, on each node."""
    (tmp_path / "program.py").write_text(ENDLESS)
    job = cluster.submit(command(tmp_path / "program.py", args=f"{tmp_path}/up"))
    wait_until((tmp_path / "up").exists, "the fiftieth step", cluster.said)
    cluster.run("scancel", job)
    wait_until(lambda: cluster.idle() == len(NODES), "the job's end")
    assert not cluster.left(), cluster.said()
    assert "launching the job again" not in cluster.said()


@pytest.mark.nightly
def test_an_allocation_ends_under_a_job(cluster: Cluster, tmp_path: Path) -> None:
    """Law: on a host outside of the allocation nothing is signalled; the job ends with the reason,
    and the nodes clean up by themselves."""
    (tmp_path / "program.py").write_text(ENDLESS)
    shell = cluster.from_outside(command(tmp_path / "program.py", args=f"{tmp_path}/up"))
    wait_until((tmp_path / "up").exists, "the fiftieth step", cluster.said)
    cluster.run("scancel", cluster.run("squeue", "-h", "-o", "%i").strip())
    wait_until(lambda: cluster.idle() == len(NODES), "the job's end")
    assert not cluster.left(), cluster.said()
    shell.wait(90.0)
    assert "has expired" in cluster.said() and "ended with 70" in cluster.said(), cluster.said()


@pytest.mark.nightly
def test_a_node_of_slurm_is_powered_off(cluster: Cluster, tmp_path: Path) -> None:
    """Law: the job goes on in place, with the same bits."""
    program = PROGRAM.format(fells={}, daemon=False, refused="")
    program = program.replace("while state.step < 12:", "import time\nwhile state.step < 60:\n"
                              "    time.sleep(0.05)").replace("    state.step += 1", """
    state.step += 1
    if state.step == 20 and comm.rank == 0:
        open(f"{sys.argv[1]}/up", "w").close()""")
    found = []
    for name in ("whole", "lost"):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "program.py").write_text(program)
        cluster.submit(command(directory / "program.py", args=str(directory)), "--no-kill")
        if name == "lost":
            wait_until((directory / "up").exists, "the twentieth step")
            cluster.kill(NODES[1])
        wait_until(lambda: "ended with" in cluster.said(), "the job's end")
        assert "ended with 0" in cluster.said(), cluster.said()
        found.append([dict(np.load(directory / f"out-{slot}.npz")) for slot in range(SLOTS)])
    assert "it counts as lost" in cluster.said(), cluster.said()
    assert "launching the job again" not in cluster.said(), cluster.said()
    for expected, its in zip(*found, strict=True):
        for part in ("cells", "field"):
            assert its[part].tobytes() == expected[part].tobytes(), (part, cluster.said())
    wait_until(lambda: not cluster.left(), f"files go: {cluster.left()}")
