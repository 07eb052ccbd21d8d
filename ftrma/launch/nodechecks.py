"""Looks at the hosts of a job over several nodes before there is a job, for ``ftrma doctor``.

A probe (`launch.nodeprobe`) is started on each host in the same way as ranks, by one launcher for
each host, so that a bad host is known by name. The probes tell what they find, and measure the
paths between them: between each pair of hosts if there are few, else between each host and the next
one.
"""

from __future__ import annotations

import itertools
import json
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..fabric import link
from ..host import listening, timeouts
from ..host.key import VARIABLE, Key
from ..host.listening import Bind
from ..settings.options import split_mpirun
from . import slurm
from .connections import Connections, Peer
from .eachhost import AT_ONCE, Started
from .mpirun import alone_on, named_hosts, session_directory
from .nodeprobe import ask, measure
from .relays import slots_of_hosts, why_none

PROBE = "from ftrma.launch.nodeprobe import main; main()"
PAIRS_OF = 4  # up to so many hosts are measured pair by pair
SLOWER = 3.0  # so many times slower than the median means another interface, or trouble
CLOCKS_MOST_S = 1.0  # clocks that are further apart are reported
Finding = tuple[str, str, str]  # a name; "ok", "note" or "FAIL"; and a text


def read(mpirun: str, bind: str) -> tuple[list[str], Bind]:
    """Read the options of ``ftrma doctor`` for other hosts.

    Raises:
        ValueError: with the option, its value and the remedy.
    """
    words, where = split_mpirun(mpirun), Bind.parse("--bind", bind) if bind else Bind()
    words = slurm.words_in_allocation(words)
    if not mpirun and len(named_hosts(words)) < 2:
        words = []
    if bind and not words:
        raise ValueError(f"--bind {bind}: nobody connects on one machine; name hosts by --mpirun")
    if bind:
        listening.check(where, "--bind")
    return words, where


class Doctor:
    """Starts probes and lets them in.

    Args:
        bind: where to listen.
        session: directory of all launchers.
        words: the launcher's options.

    Attributes:
        said: what each host's probe has said about the host.
        probes: connections to them.
        failed: why a host has no probe.
        slowest_s: the longest time until a probe connected.
    """

    def __init__(self, bind: Bind, session: Path, words: list[str]) -> None:
        self.bind, self.session, self.words = bind, session, words
        self.key = Key.make()
        self.connections = Connections(self.key, bind, self._take, lambda peer: None)
        self.started: dict[str, Started] = {}
        self.said: dict[str, dict[str, Any]] = {}
        self.probes: dict[str, socket.socket] = {}
        self.failed: dict[str, str] = {}
        self.slowest_s = 0.0

    def _take(self, peer: Peer, text: bytes) -> None:
        said = json.loads(text)
        probe = self.connections.let_go(peer)
        probe.settimeout(timeouts.EACH_HOST.s)
        probe.sendall(link.line("hello"))
        self.said[said["named"]], self.probes[said["named"]] = said, probe

    def start(self, hosts: Sequence[str]) -> None:
        """Start probes on some hosts, and wait for them."""
        assert self.connections.address
        began = time.monotonic()
        deadline = began + timeouts.EACH_HOST.s
        for host in hosts:
            command = [sys.executable, "-c", PROBE, self.connections.address.text(), host,
                       f"--bind={self.bind}"]
            self.started[host] = Started(
                self.session, ["-x", VARIABLE, *alone_on(self.words, host)], command,
                {VARIABLE: self.key.text()})
        waiting = {*hosts}
        while waiting and time.monotonic() < deadline:
            self.connections.pump(0.02)
            if waiting & {*self.said}:
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            waiting -= {*self.said}
            ended = {host for host in waiting if self.started[host].over()}
            waiting -= ended
            self.failed |= {host: self.started[host].end(deadline) or "its process ends at once"
                            for host in ended}
        self.failed |= {host: self.started[host].end(0.0) for host in waiting}

    def close(self) -> None:
        """End all probes."""
        for probe in self.probes.values():
            probe.close()
        for started in self.started.values():
            started.end(time.monotonic() + 1.0)
        self.connections.close()


def look(words: list[str], bind: Bind) -> Iterator[Finding]:
    """Look at all hosts that the launcher's options name, and yield what is found.

    Args:
        words: the launcher's options, as given by ``--mpirun``.
        bind: where to listen, on this host and on the others.
    """
    hosts = named_hosts(words)
    if len(hosts) < 2:
        yield ("hosts", "FAIL", "the options of --mpirun name fewer than two: give them by --host "
               "or --hostfile, or start this in the batch system's allocation")
        return
    with session_directory() as session:
        doctor = Doctor(bind, session.parent, words)
        try:
            for first in range(0, len(hosts), AT_ONCE):
                doctor.start(hosts[first:first + AT_ONCE])
            yield answering(hosts, doctor.failed, doctor.slowest_s)
            yield outliving(words)
            found = {host: doctor.said[host] for host in hosts if host in doctor.said}
            if found:
                yield from compare(found)
                yield from measured(found, doctor.probes)
        finally:
            doctor.close()


def answering(hosts: Sequence[str], failed: dict[str, str], slowest_s: float) -> Finding:
    """Say on which hosts a process could be started. Pure."""
    if failed:
        return "hosts", "FAIL", "; ".join(f"{host}: {why}" for host, why in failed.items())
    return "hosts", "ok", (f"{len(hosts)} start a process and reach this one: {', '.join(hosts)}; "
                           f"the slowest takes {slowest_s:.1f} s")


def outliving(words: Sequence[str]) -> Finding:
    """Say what happens to a job with these options of the launcher when a node is lost."""
    slots = slots_of_hosts(words) or {}
    left = (f"; without the largest host {sum(slots.values()) - max(slots.values())} of "
            f"{sum(slots.values())} slots are left") if slots else ""
    if why := why_none(words):
        return "a lost node", "note", f"ends a launch, and the next one follows: {why}{left}"
    return "a lost node", "ok", f"is replaced in place, but not that of the first host{left}"


def compare(found: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    """Compare what hosts have said. Pure."""
    names = [said["host"] for said in found.values()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield "host names", "FAIL", (f"several hosts call themselves {', '.join(twice)}: nodes are "
                                     "told apart by their names (hostname NAME)")
    for what, of in (("ftrma", "ftrma"), ("Python", "python"), ("MPI library", "library")):
        by: dict[str, list[str]] = {}
        for host, said in found.items():
            short = said[of].split(",")[0]
            by.setdefault(".".join(short.split(".")[:2]) if of == "python" else short, []).append(
                host)
        if len(by) > 1:
            each = "; ".join(f"{value or 'none'} on {', '.join(its)}" for value, its in by.items())
            yield what, "FAIL", f"{each}: install one version on all"
        else:
            yield what, "ok", f"{next(iter(by))} on all"
    for host, said in found.items():
        if said["lacks"]:
            yield host, "FAIL", said["lacks"]


def measured(
    found: dict[str, dict[str, Any]], probes: dict[str, socket.socket]
) -> Iterator[Finding]:
    """Measure the paths between this host and the others, and among the others."""
    ways = {host: _tried(measure, probes[host]) for host in found}
    yield clocks({host: way["ahead_s"] for host, way in ways.items() if "error" not in way})
    pairs = [*itertools.combinations(found, 2)]
    if len(found) > PAIRS_OF:
        pairs = [*itertools.pairwise(found), ([*found][-1], next(iter(found)))]
    between = {}
    for one, other in pairs:
        asked = _tried(ask, probes[other], "listen")
        between[one, f"to {other} "] = asked if "error" in asked else _tried(
            ask, probes[one], "measure", address=asked["address"])
    has = {host: f"{said['cores']} cores, {said['free_bytes'] / 2**30:.1f} GiB free in /dev/shm; "
           for host, said in found.items()}
    yield from judge_ways({(host, f"{has[host]}from here "): way for host, way in ways.items()})
    yield from judge_ways(between)


def _tried(call: Callable[..., dict[str, Any]], probe: socket.socket, *words: str,
           **data: Any) -> dict[str, Any]:
    """Ask a probe. A probe that does not answer is not asked again, since its answer may still
    come."""
    try:
        return call(probe, *words, **data)
    except (OSError, ValueError) as error:
        probe.close()
        return {"error": f"its probe does not answer: {error}"}


def clocks(apart: dict[str, float]) -> Finding:
    """Say how far apart clocks are. Pure."""
    far = {host: ahead for host, ahead in apart.items() if abs(ahead) > CLOCKS_MOST_S}
    if far:
        told = ", ".join(f"{host} by {ahead:+.1f} s" for host, ahead in far.items())
        return "clocks", "note", (f"differ from this host's: {told}; no result depends on clocks, "
                                  "but times in files and traces do")
    most = max(map(abs, apart.values()), default=0.0)
    return "clocks", "ok", f"within {max(most, 1e-3):.3f} s of this host's"


def judge_ways(ways: dict[tuple[str, str], dict[str, Any]]) -> Iterator[Finding]:
    """Say how fast paths are, and which are much slower than the others. Pure.

    Args:
        ways: results of `measure`, by host and by the first words of the message about it.
    """
    rates = [way["bytes_per_s"] for way in ways.values() if "error" not in way]
    for (host, words), way in ways.items():
        if "error" in way:
            yield host, "FAIL", way["error"]
            continue
        told = (f"{words}by {way['interface']} {way['address']}: "
                f"{1e3 * way['round_trip_s']:.2f} ms, {way['bytes_per_s'] / 1e9:.2g} GB/s")
        times = statistics.median(rates) / way["bytes_per_s"]
        if times > SLOWER:
            yield host, "note", (f"{told}, {times:.0f} times slower than others: choose a faster "
                                 "interface by --bind, or look at the cable")
        else:
            yield host, "ok", told
