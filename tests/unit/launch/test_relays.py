"""Which host each rank gets by the launcher's options, and the options with relays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ftrma.launch import mpirun, relays, relaystart

HOSTS = "n1:2,n2:3,n3:1"


@pytest.fixture(autouse=True)
def _no_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in mpirun.BATCH_SYSTEMS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mpirun, "default_hostfiles", list)


@pytest.mark.parametrize(("words", "processes", "expected"), [
    (f"--host {HOSTS}", 5, "n1 n1 n2 n2 n2"),
    (f"--host={HOSTS} --map-by slot", 6, "n1 n1 n2 n2 n2 n3"),
    (f"-H {HOSTS} --map-by node", 6, "n1 n2 n3 n1 n2 n2"),
    (f"--host {HOSTS} --map-by ppr:2:node", 5, "n1 n1 n2 n2 n3"),
    (f"--host {HOSTS} -N 1", 3, "n1 n2 n3"),
    ("--host n1,n1,n2", 3, "n1 n1 n2"),
])
def test_hosts_of_ranks(words: str, processes: int, expected: str) -> None:
    assert relays.hosts_of_ranks(words.split(), processes) == expected.split()
    assert not relays.why_none([*words.split(), "--prtemca", relays.AGENT, "starter"])


@pytest.mark.parametrize("words", [
    "", "--hostfile absent", f"--host {HOSTS} --hostfile hosts", f"--host {HOSTS} --host n4",
    "--host +n0,+n1", "--host n1:x", "--host user@n1:2",
    f"--host {HOSTS} --map-by core", f"--host {HOSTS} --map-by ppr:2:package",
    f"--host {HOSTS} --map-by node:oversubscribe", f"--host {HOSTS} --map-by ppr:0:node",
    f"--host {HOSTS} --map-by node -N 2", "--host n1:0,n2:1", "--host fe80::1:2,n2:1",
])
def test_other_options_have_no_relays(words: str) -> None:
    """Law: nothing is guessed; these options go to the launcher as they are."""
    assert relays.hosts_of_ranks(words.split(), 3) is None
    assert "--host" in relays.why_none(words.split())


@pytest.mark.parametrize(("lines", "way", "expected"), [
    ("n1 slots=2\n\n# a comment\nn2 slots=1 # another\nn1 slots=1\n", "slot", "n1 n1 n1 n2"),
    ("n1\nn2\n", "ppr:2:node", "n1 n1 n2 n2"),
    ("n1\nn2\n", "node", None),
    ("n1 slots=2 max_slots=4\nn2 slots=2\n", "node", None),
    ("", "node", None),
])
def test_hosts_of_a_file(lines: str, way: str, expected: str | None, tmp_path: Path) -> None:
    """Law: a line without a number of slots has as many as the host has cores, which is not known
    here; so ways that need the number have no relays."""
    (tmp_path / "hosts").write_text(lines)
    found = relays.hosts_of_ranks(["--hostfile", f"{tmp_path}/hosts", "--map-by", way], 4)
    assert found == (expected.split() if expected else None)


def test_more_processes_than_places_have_no_relays() -> None:
    for way in ("slot", "node", "ppr:2:node"):
        assert relays.hosts_of_ranks(f"--host {HOSTS} --map-by {way}".split(), 7) is None


def test_hosts_of_a_batch_system_have_no_relays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert relays.hosts_of_ranks(["--host", HOSTS], 3) is None
    assert "batch system" in relays.why_none(["--host", HOSTS])


@pytest.mark.parametrize(("words", "expected"), [
    (["--prtemca", "plm_ssh_agent", "ssh -q -p 2222"], ["ssh", "-q", "-p", "2222"]),
    (["--prtemca", "plm_ssh_agent", "ssh : rsh"], None),
    (["--prtemca", "plm_ssh_agent"], None),
    (["--mca", "plm_rsh_agent", "ssh"], None),
    (["--prtemca", "plm", "slurm"], None),
])
def test_the_command_that_starts_daemons(words: list[str], expected: list[str] | None) -> None:
    assert relays.starting_agent(words) == expected


def test_the_usual_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert relays.starting_agent([]) is None
    (tmp_path / "rsh").touch(0o755)
    assert relays.starting_agent([]) == [str(tmp_path / "rsh")]
    (tmp_path / "ssh").touch(0o755)
    assert relays.starting_agent([]) == [str(tmp_path / "ssh"), "-x"]
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", "other")
    assert relays.starting_agent([]) is None


def test_options_with_relays(tmp_path: Path) -> None:
    words = ["--prtemca", "plm_ssh_agent", "start -q", "--mca", "btl", "^ofi", "--host", HOSTS,
             "--map-by", "node"]
    found = relays.with_relays(words, 5, tmp_path, tmp_path / "log")
    assert found is not None
    assert (tmp_path / "seats").read_text().split() == ["n1", "n2", "n3", "n1", "n2"]
    assert found[:3] == ["--mca", "btl", "^ofi"]
    said = dict(relays.values(found, {"--host", "--map-by"}))
    assert said["--host"] == "ftrma-relay-0:1,ftrma-relay-1:1,n1:2,n2:2,n3:1"
    assert said["--map-by"] == f"seq:file={tmp_path}/seats"
    assert found[found.index(relays.AGENT) + 1].endswith(f"relaystart.py {tmp_path}/log start -q")
    assert found[found.index("rml_base_radix") + 1] == "2"


@pytest.mark.parametrize("nodes", range(1, 70))
def test_no_daemon_of_a_node_has_another_one_below_it(nodes: int) -> None:
    """Law: in the launcher's tree, in which each has as many below it as there are relays, these
    fill the first level, and the nodes fit into the second one."""
    radix = relays.count(nodes)
    assert (radix - 1) ** 2 < nodes <= radix**2


def test_relays_are_started_here_and_others_there(tmp_path: Path) -> None:
    starter = [sys.executable, "-I", relaystart.__file__, f"{tmp_path}/log", "/bin/echo", "there"]
    here = [f"{relaystart.NAME}1", "echo", "here;", "echo", "again"]
    for words, expected in ((["-x", *here], "here\nagain\n"), (["-x", "n1", "echo", "x"], "")):
        done = subprocess.run([*starter, *words], capture_output=True, text=True, timeout=10)
        assert (done.stdout, done.returncode) == (expected, 0), done
    assert (tmp_path / "log").read_text() == "there -x n1 echo x\n"
