"""Puts relays between the launcher and the nodes of a job, so that a lost node does not end a
launch.

The launcher (prterun) ends a job when it loses a daemon that is connected to it directly, but not
when another daemon loses one. So some additional daemons without ranks run on the launcher's own
machine: the *relays*, to which the daemons of all nodes connect. Their hosts have names that ftrma
makes up, and the command by which the launcher starts daemons elsewhere (`relaystart`) starts them
on this machine.

By itself the launcher would place ranks on relays. So it gets a file with the host of each rank;
these are the hosts that it would have chosen by the user's options. If they are not known, as in a
batch system's allocation, there are no relays, and the loss of a node is answered by another
launch.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ..host import private
from . import relaystart
from .mpirun import HOSTS, HOW, WHERE, hosts_from_elsewhere, without

AGENT = "plm_ssh_agent"  # an option of the launcher: the command that starts daemons elsewhere
USUAL_AGENTS = (("ssh", "-x"), ("rsh",))  # as the launcher itself calls them
PER_NODE = {"-N", "--npernode", "-npernode"}  # short for ppr:K:node


def with_relays(
    words: Sequence[str], processes: int, session: Path, log: Path
) -> list[str] | None:
    """Return the launcher's options with relays; None if relays are not possible.

    Args:
        words: the user's options.
        processes: number of processes of the job.
        session: session directory of the launch.
        log: file for the launcher's output.
    """
    hosts, agent = hosts_of_ranks(words, processes), starting_agent(words)
    if hosts is None or agent is None:
        return None
    nodes = list(dict.fromkeys(hosts))
    relays = [f"{relaystart.NAME}{i}" for i in range(count(len(nodes)))]
    seats = session / "seats"
    private.write(seats, "".join(f"{host}\n" for host in hosts).encode())
    named = [f"{relay}:1" for relay in relays] + [f"{n}:{hosts.count(n)}" for n in nodes]
    start = [sys.executable, "-I", relaystart.__file__, str(log), *agent]
    return [
        *_without_agent(without(words, WHERE | HOW)),
        "--prtemca", AGENT, " ".join(start), "--prtemca", "rml_base_radix", str(len(relays)),
        "--host", ",".join(named), "--map-by", f"seq:file={seats}",
    ]


def why_none(words: Sequence[str]) -> str:
    """Say why a job with these options has no relays; empty if it has relays.

    The number of processes is not known here: a job with more processes than places has no relays
    either.
    """
    if hosts_from_elsewhere(words):
        return "hosts come from a batch system, or from a file for all jobs"
    if hosts_by_options(words) is None:
        return ("--mpirun names hosts or places in another way than by one --host or --hostfile "
                "with slots, and --map-by ppr:K:node, node or slot")
    if starting_agent(words) is None:
        return "it is not known how --mpirun has daemons started elsewhere"
    return ""


def count(nodes: int) -> int:
    """Return the number of relays, so that no daemon has more than so many others below it.
    Pure."""
    relays = 1
    while relays * relays < nodes:
        relays += 1
    return relays


def hosts_of_ranks(words: Sequence[str], processes: int) -> list[str] | None:
    """Return the host of each rank, as the launcher places ranks by these options.

    These options are understood: one list or file of hosts, with or without numbers of slots, and a
    mapping by ``ppr:K:node``, ``node`` or ``slot``. The result is None for others, and if a batch
    system or a file for all jobs may add hosts.
    """
    found = None if hosts_from_elsewhere(words) else hosts_by_options(words)
    return placed(*found, processes) if found else None


def hosts_by_options(words: Sequence[str]) -> tuple[dict[str, int], str] | None:
    """Return the number of slots of each host, and in which way processes are placed on them.

    The result is None if other kinds of options are among them.
    """
    where, how = values(words, WHERE), values(words, HOW)
    if len(where) != 1 or len(how) > 1:
        return None
    read = in_words if where[0][0] in HOSTS else in_file
    found = read(where[0][1])
    name, way = how[0] if how else ("", "slot")
    way = f"ppr:{way}:node" if name in PER_NODE else way
    per_node = re.fullmatch("ppr:[1-9][0-9]*:node", way)
    if not found or not (per_node or (way in ("node", "slot") and all(n for _, n in found))):
        return None
    slots: dict[str, int] = {}
    for host, number in found:
        slots[host] = slots.get(host, 0) + number
    return slots, way


def slots_of_hosts(words: Sequence[str]) -> dict[str, int] | None:
    """Return each host's number of slots, the processes that it may have; None if that is not
    known.

    If the mapping places more processes on a host than the host has slots, that number counts
    instead.
    """
    where, how = values(words, WHERE), values(words, HOW)
    if hosts_from_elsewhere(words) or len(where) != 1:
        return None
    found = (in_words if where[0][0] in HOSTS else in_file)(where[0][1])
    name, way = how[0] if how else ("", "slot")
    per_node = re.match("ppr:([1-9][0-9]*):node", f"ppr:{way}:node" if name in PER_NODE else way)
    least = int(per_node[1]) if per_node else 0
    slots: dict[str, int] = {}
    for host, number in found:
        slots[host] = slots.get(host, 0) + number
    slots = {host: max(number, least) for host, number in slots.items()}
    return slots if slots and all(slots.values()) else None


def in_words(text: str) -> list[tuple[str, int]]:
    """Read hosts and slots from ``node1:2,node2``; empty if anything else is among them. Pure."""
    found = [re.fullmatch(r"([\w.-]+)(?::([1-9]\d*))?", word) for word in text.split(",")]
    return [(each[1], int(each[2] or 1)) for each in found if each] if all(found) else []


def in_file(path: str) -> list[tuple[str, int]]:
    """Read the hosts of a file with lines such as ``node1 slots=2``; 0 slots if a line has no
    number.

    The result is empty if anything else is in the file.
    """
    try:
        lines = [line.partition("#")[0].strip() for line in Path(path).read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return []
    found = [re.fullmatch(r"([\w.-]+)(?:\s+slots=([1-9]\d*))?", line) for line in lines if line]
    return [(each[1], int(each[2] or 0)) for each in found if each] if all(found) else []


def placed(slots: dict[str, int], way: str, processes: int) -> list[str] | None:
    """Place processes on hosts in the way of the launcher's mapping. Pure.

    Args:
        slots: slots of each host.

    Returns:
        The host of each process; None if there are more processes than places, which the launcher
        handles in its own way.
    """
    if way == "slot":
        seats = [host for host, number in slots.items() for _ in range(number)]
    elif way == "node":
        turns = [(turn, i, host) for i, (host, number) in enumerate(slots.items())
                 for turn in range(number)]
        seats = [host for _, _, host in sorted(turns)]
    else:
        seats = [host for host in slots for _ in range(int(way.split(":")[1]))]
    return seats[:processes] if len(seats) >= processes else None


def values(words: Sequence[str], names: set[str]) -> list[tuple[str, str]]:
    """Return the options with these names among the words, each with its value."""
    found = []
    for word, value in itertools.zip_longest(words, words[1:], fillvalue=""):
        name, joined, after = word.partition("=")
        if name in names:
            found.append((name, after if joined else value))
    return found


def starting_agent(words: Sequence[str]) -> list[str] | None:
    """Return the command by which the launcher starts daemons elsewhere; None if it is not
    known."""
    if any(name.startswith("PRTE_MCA_plm") for name in os.environ):
        return None
    said = [i for i, word in enumerate(words) if ("plm" in word or "rsh" in word)
            and [*words[i:i + 2]] != ["plm", "ssh"]]
    if not said:
        return next(([found, *more] for name, *more in USUAL_AGENTS
                     if (found := shutil.which(name))), None)
    at = said[0]
    if at and words[at] == AGENT and words[at - 1] == "--prtemca" and at + 1 < len(words):
        command = shlex.split(words[at + 1])
        others = [i for i in said if i not in (at, at + 1)]
        return command if command and ":" not in words[at + 1] and not others else None
    return None


def _without_agent(words: Sequence[str]) -> list[str]:
    """Return the words without the command that starts daemons elsewhere."""
    if AGENT not in words:
        return [*words]
    at = words.index(AGENT)
    return [*words[:at - 1], *words[at + 2:]]
