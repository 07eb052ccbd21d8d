"""The launcher's options: which hosts the next launch takes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.launch import mpirun
from ftrma.settings.options import split_mpirun

NAMES = st.lists(st.from_regex(r"[a-z]+[0-9]*", fullmatch=True), min_size=1, unique=True)
PLACES = st.lists(
    st.sampled_from(
        [["--host", "a:2,b:2"], ["-H", "a"], ["--hostfile", "f"], ["--machinefile", "f"],
         ["--map-by", "node"], ["--host=a:2"], ["--hostfile=f"], ["-N", "2"]]
    )
)
OTHERS = st.lists(
    st.sampled_from([["--mca", "btl", "tcp,self"], ["-x", "PATH"], ["--verbose"], ["--tag-output"]])
)


def flat(groups: list[list[str]]) -> list[str]:
    return [word for group in groups for word in group]


@given(PLACES, OTHERS, PLACES, NAMES, st.integers(1, 100))
def test_the_next_launch_runs_on_the_hosts_that_are_left(
    before: list[list[str]], others: list[list[str]], after: list[list[str]], left: list[str],
    processes: int,
) -> None:
    """Law: all other options stay, in their order; the hosts are those given, once, and have room
    for all processes, by no more than one too many on each."""
    words = mpirun.on_hosts(flat([*before, *others, *after]), left, processes)
    kept, (host, named, map_by, ppr) = words[:-4], words[-4:]
    assert kept == flat(others)
    assert (host, map_by) == ("--host", "--map-by")
    each = int(ppr.removeprefix("ppr:").removesuffix(":node"))
    assert named.split(",") == [f"{name}:{each}" for name in left]
    assert (each - 1) * len(left) < processes <= each * len(left)


def test_once_per_node_keeps_the_hosts() -> None:
    """Law: only the mapping is replaced."""
    words = split_mpirun("--host a:2,b:2 --map-by ppr:2:node --mca x 'y z'")
    assert mpirun.once_per_node(words) == [
        "--host", "a:2,b:2", "--mca", "x", "y z", "--map-by", "ppr:1:node",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [("--host 'a", "No closing quotation"), ("-n 4", "-n is not yours"), ("-np 4", "-np is not"),
     ("--host a --np=3", "--np=3 is not")],
)
def test_bad_options_are_named(text: str, words: str) -> None:
    """Law: a ValueError with the option, the value and what is wrong."""
    with pytest.raises(ValueError, match=words) as error:
        split_mpirun(text)
    assert str(error.value).startswith(f"--mpirun {text!r}: ")


@pytest.mark.parametrize(
    ("options", "batch", "local"),
    [
        ([], "", True),
        (["-x", "PATH"], "", True),
        (["--host", "a:2,b:2"], "", False),
        (["--hostfile=f"], "", False),
        (["--mca", "btl", "self,ofi"], "", False),
        ([], "SLURM_JOB_ID", False),
    ],
)
def test_fabrics_are_left_out_on_one_node_only(
    options: list[str], batch: str, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a job that may have several nodes, or a user's choice, keeps all ways of transport."""
    for name in mpirun.BATCH_SYSTEMS:
        monkeypatch.delenv(name, raising=False)
    if batch:
        monkeypatch.setenv(batch, "1")
    command = mpirun.mpirun_command(2, Path("/dev/shm/x/launch-1"), options)
    assert ("^ofi,tcp" in command) == local


@pytest.mark.parametrize(
    ("options", "local"),
    [(["--host", "localhost:4"], True), (["-H", "127.0.0.1"], True), (["--host=localhost"], True),
     (["--host", f"{socket.gethostname()}:2,localhost"], True), (["--host", "a"], False),
     (["--host", "localhost,a:2"], False), (["--machinefile", "f"], False),
     (["--add-host", "b"], False), (["--prtemca", "prte_default_hostfile", "f"], False)],
)
def test_a_job_on_this_host_alone_is_on_one_node(options: list[str], local: bool) -> None:
    """Law: naming this host, by any of its names, brings no other into the job."""
    assert mpirun.on_one_node(options) == local
