"""Networks of their own for emulated nodes, and a switch on the machine of ``ftrma run``.

So one node can be cut off from the others as by its cable. See `nodes`, whose ssh enters them.
"""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodes import fake_ssh
from nodes import why_not as why_no_nodes

HOSTS = ("10.77.0.1", "10.77.0.2", "10.77.0.3", "10.77.0.4")
MAKE_S = 10.0
HERE = """set -e
echo
ip link set lo up
ip link add switch type bridge
ip link set switch up
ip addr add 10.77.0.254/24 dev switch
exec sleep 1000
"""
NODE = """set -e
echo
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
ip link set lo up
until ip link set eth0 up 2>/dev/null; do sleep 0.01; done
ip addr add {host}/24 dev eth0
exec sleep 1000
"""


@functools.cache
def why_not() -> str:
    """Why nodes can have no networks here; empty if they can."""
    if why := why_no_nodes():
        return why
    try:
        made = subprocess.run(["unshare", "--net", "sh", "-c", HERE.replace("exec sleep", "#")],
                              capture_output=True, text=True, timeout=MAKE_S)
    except FileNotFoundError as error:
        return str(error)
    return made.stderr.strip() if made.returncode else ""


@contextmanager
def networks(hosts: Sequence[str] = HOSTS) -> Iterator[list[str]]:
    """Make the networks of some hosts.

    Yields:
        Words of a command that runs another one at the switch.
    """
    with _running(HERE, "10.77.0.254") as switch:
        held, made = [], Path(fake_ssh() + ".networks")
        try:
            for i, host in enumerate(hosts):
                node = _start(NODE.format(host=host))
                held.append(node)
                _at(switch, "link", "add", f"port{i}", "master", "switch", "type", "veth", "peer",
                    "name", "eth0", "netns", str(node.pid))
                _at(switch, "link", "set", f"port{i}", "up")
            for node, host in zip(held, hosts, strict=True):
                _await(node, host)
            made.write_text("".join(f"{host} {node.pid}\n" for host, node in
                                    zip(hosts, held, strict=True)))
            yield ["nsenter", "-t", str(switch.pid), "-n"]
        finally:
            made.unlink(missing_ok=True)
            for node in held:
                _end(node)


def _start(script: str) -> subprocess.Popen[bytes]:
    """Start a process with a network of its own, and wait until it is in it."""
    process = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline(), "no network"
    return process


@contextmanager
def _running(script: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
    process = _start(script)
    try:
        _await(process, address)
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _await(process: subprocess.Popen[bytes], address: str) -> None:
    """Wait until a network has its address."""
    deadline = time.monotonic() + MAKE_S
    while address not in _at(process, "addr"):
        assert process.poll() is None and time.monotonic() < deadline, f"no network of {address}"
        time.sleep(0.01)


def _at(process: subprocess.Popen[bytes], *words: str) -> str:
    done = subprocess.run(["nsenter", "-t", str(process.pid), "-n", "ip", *words],
                          capture_output=True, text=True, timeout=MAKE_S, check=True)
    return done.stdout
