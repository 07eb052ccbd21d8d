"""The launcher with relays puts each rank where it would be without, and outlives a node."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import FILES, MARK
from nodes import NODES, fake_ssh, remove_fake_ssh, why_not
from tiers import tiers

from ftrma.launch.mpirun import launcher_environment, mpirun_command, session_directory
from ftrma.launch.relays import with_relays

RANKS = 5
SAY = ["sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname)"]
THREE = ",".join(f"{node}:{slots}" for node, slots in zip(NODES, (2, 3, 1), strict=True))


@pytest.fixture(scope="module", autouse=True)
def nodes() -> Iterator[None]:
    yield
    remove_fake_ssh()


def hosts_of(options: list[str], session: Path, directory: Path) -> list[str]:
    """The host of each rank, as the launcher has placed it."""
    environment = {**os.environ, **launcher_environment(), FILES: str(directory), MARK: "relays"}
    done = subprocess.run([*mpirun_command(RANKS, session, options), *SAY], text=True, timeout=60,
                          capture_output=True, env=environment)
    assert done.returncode == 0, done
    return [line.split()[1] for line in sorted(done.stdout.splitlines())]


@pytest.mark.parametrize("how", tiers([
    "--host LIST", "--host LIST --map-by slot", "--host LIST --map-by node",
    "--host LIST --map-by ppr:2:node", "--hostfile FILE --map-by node"],
    full=["--hostfile FILE --map-by node"]))
def test_ranks_are_where_they_would_be_without_relays(how: str, tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(f"nodes cannot be emulated here: {why}")
    (tmp_path / "hosts").write_text(THREE.replace(",", "\n").replace(":", " slots=") + "\n")
    how = how.replace("LIST", THREE).replace("FILE", f"{tmp_path}/hosts")
    words = f"--prtemca plm_ssh_agent {fake_ssh()} --mca btl ^ofi {how}".split()
    with session_directory() as session:
        relayed = with_relays(words, RANKS, session, tmp_path / "log")
        assert relayed
        found = hosts_of(relayed, session, tmp_path)
    with session_directory() as session:
        assert found == hosts_of(words, session, tmp_path)
