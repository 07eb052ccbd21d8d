"""Laws of what ``ftrma doctor --mpirun`` says of hosts, from what their probes have said."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from ftrma.host import timeouts
from ftrma.host.key import Key
from ftrma.host.listening import Bind
from ftrma.launch import nodechecks, nodeprobe, relays
from ftrma.launch.mpirun import BATCH_SYSTEMS

HOST = {"host": "a", "ftrma": "0.1.0", "python": "3.11.7", "library": "Open MPI v5.0.11, package",
        "lacks": "", "cores": 2, "free_bytes": 1 << 30}
WAY = {"round_trip_s": 1e-4, "bytes_per_s": 2e9, "ahead_s": 0.0, "address": "10.0.0.1",
       "interface": "ib0"}


def verdicts(found: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {name: (verdict, text) for name, verdict, text in nodechecks.compare(found)}


def test_equal_hosts_are_equal() -> None:
    found = verdicts({"n1": HOST, "n2": HOST | {"host": "b", "python": "3.11.9"}})
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    assert found["MPI library"][1] == "Open MPI v5.0.11 on all"


@pytest.mark.parametrize(("change", "name", "said"), [
    ({"ftrma": "0.2.0"}, "ftrma", "0.1.0 on n1; 0.2.0 on n2: install one version on all"),
    ({"python": "3.12.1"}, "Python", "3.11 on n1; 3.12 on n2: install one version on all"),
    ({"library": ""}, "MPI library", "Open MPI v5.0.11 on n1; none on n2: install"),
    ({"lacks": "/dev/shm has 3 MiB free"}, "n2", "/dev/shm has 3 MiB free"),
    ({"host": "a"}, "host names", "several hosts call themselves a"),
])
def test_differences_fail(change: dict[str, Any], name: str, said: str) -> None:
    verdict, text = verdicts({"n1": HOST, "n2": HOST | {"host": "b"} | change})[name]
    assert verdict == "FAIL" and said in text


def test_clocks_that_differ_are_noted() -> None:
    assert nodechecks.clocks({"n1": 0.2, "n2": -0.9})[1] == "ok"
    assert nodechecks.clocks({"n1": 0.2, "n2": -90.0})[1:] == (
        "note", "differ from this host's: n2 by -90.0 s; no result depends on clocks, but times in "
        "files and traces do")


def test_a_slow_way_is_noted_and_a_missing_one_fails() -> None:
    ways = {("n1", ""): WAY, ("n2", ""): WAY, ("n3", "to n1 "): WAY | {
        "bytes_per_s": 4e7, "interface": "eth0"}, ("n4", ""): {"error": "n4 cannot reach n1"}}
    found = [*nodechecks.judge_ways(ways)]
    assert [verdict for _, verdict, _ in found] == ["ok", "ok", "note", "FAIL"]
    assert found[2][2] == ("to n1 by eth0 10.0.0.1: 0.10 ms, 0.04 GB/s, 50 times slower than "
                           "others: choose a faster interface by --bind, or look at the cable")


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        return here, server.accept()[0]


def test_a_probe_that_does_not_answer_spoils_no_other_finding() -> None:
    pairs = {host: connected() for host in ("n1", "n2")}
    probe = nodeprobe.Probe(Key.make(), Bind("127.0.0.1"))
    serving = threading.Thread(target=probe.serve, args=(pairs["n1"][1],))
    serving.start()
    pairs["n2"][1].close()
    for here, _ in pairs.values():
        here.settimeout(20.0)
    found = [*nodechecks.measured({"n1": HOST, "n2": HOST},
                                  {host: here for host, (here, _) in pairs.items()})]
    assert [(name, verdict) for name, verdict, _ in found] == [
        ("clocks", "ok"), ("n1", "ok"), ("n2", "FAIL"), ("n1", "FAIL")]
    assert all("does not answer" in text for _, verdict, text in found if verdict == "FAIL")
    pairs["n1"][0].close()
    serving.join(30.0)
    assert not serving.is_alive()


def test_options_for_other_hosts_are_read() -> None:
    assert nodechecks.read("", "") == ([], Bind())
    assert nodechecks.read("--host a,b", "127.0.0.1") == (["--host", "a,b"], Bind("127.0.0.1"))
    for mpirun, bind, said in (("", "lo", "--bind lo: nobody connects"), ("'", "", "--mpirun"),
                               ("--host a,b", "1:2:3:4", "--bind 1:2:3:4"),
                               ("--host a,b", "192.0.2.77", "--bind 192.0.2.77: cannot listen")):
        with pytest.raises(ValueError, match=said):
            nodechecks.read(mpirun, bind)


def test_one_host_is_none(tmp_path: Any) -> None:
    found = [*nodechecks.look(["--host", "localhost:4"], Bind())]
    assert [verdict for _, verdict, _ in found] == ["FAIL"]


@pytest.mark.plain
def test_a_probe_measures_another() -> None:
    """Law: what is measured is a connection between probes that know the key, and is counted."""
    key, (here, there) = Key.make(), socket.socketpair()
    probe = nodeprobe.Probe(key, Bind("127.0.0.1"))
    serving = threading.Thread(target=probe.serve, args=(there,))
    serving.start()
    here.settimeout(20.0)
    address = nodeprobe.ask(here, "listen")["address"]
    other = nodeprobe.Probe(key, Bind("127.0.0.1"))
    found = other._measure(nodeprobe.link.Address.parse(address))
    assert (found["interface"], found["address"]) == ("lo", "127.0.0.1")
    assert 0 < found["round_trip_s"] < 10 and found["bytes_per_s"] > 1e5
    assert abs(found["ahead_s"]) < 5
    assert "pong" in nodeprobe.ask(here, "pong")["event"]  # it serves its first caller again
    stranger = nodeprobe.Probe(Key.make(), Bind("127.0.0.1"))
    address = nodeprobe.ask(here, "listen")["address"]
    threading.Timer(0.5, other._measure, [nodeprobe.link.Address.parse(address)]).start()
    assert "cannot reach" in stranger._measure(nodeprobe.link.Address.parse(address))["error"]
    began = time.monotonic()
    for _ in range(2):  # nobody has come to the first address
        assert "address" in nodeprobe.ask(here, "listen")
    nodeprobe.ask(here, "pong")
    assert time.monotonic() - began < timeouts.EACH_HOST.s / 2
    here.close()
    serving.join(30.0)
    assert not serving.is_alive()
    there.close()


@pytest.mark.parametrize(("words", "said"), [
    (["--host", "a:4,b:2,c:2"], "first host; without the largest host 4 of 8 slots are left"),
    (["--host", "a,b", "--map-by", "numa"], "slot; without the largest host 1 of 2 slots are left"),
    ([], "node, node or slot")])
def test_what_a_lost_node_leaves(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: it is told how many processes have room without it, where that is known."""
    for variable in BATCH_SYSTEMS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(relays, "starting_agent", lambda words: ["ssh"])
    assert nodechecks.outliving(words)[2].endswith(said)
