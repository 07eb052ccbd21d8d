"""The library that is preloaded into the launcher lets in only some (``csrc/loopback.c``).

Law: only this user's processes, of those on this host; others are turned away at the door, however
many, and cost who waits behind them nothing. Strangers from other hosts may be silent for seconds.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftrma.launch.mpirun import LOOPBACK

STRANGER = 20002  # uid
# Plays the launcher, by its name: says where it listens, then whom it has let in.
LAUNCHER = """
import select, socket, sys
address, turns = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
server = socket.socket(family)
server.bind((address, 0))
server.listen(4096)
server.setblocking(False)
print(*server.getsockname()[:2], flush=True)
inside = []
for _ in range(turns):
    sys.stdin.readline()
    while select.select([server], [], [], 0.3)[0]:
        try:
            inside.append(server.accept()[0])
        except BlockingIOError:
            pass
    for guest in inside:
        guest.setblocking(False)
    ended = 0
    for guest in inside:
        try:
            ended += guest.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            pass
    print(len(inside), ended, flush=True)
"""
# Connects so often, as somebody else, and stays.
GUEST = """
import os, socket, sys
"x".encode("idna")
address, port, count, uid = sys.argv[1], *map(int, sys.argv[2:5])
os.setuid(uid)
held = [socket.create_connection((address, port), 5) for _ in range(count)]
for connection in held:
    connection.sendall(bytes(int(sys.argv[5])))
print("there", flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to play another user")


@contextlib.contextmanager
def launcher(name: str, address: str, turns: int, preload: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [name, "-c", LAUNCHER, address, str(turns)], executable=sys.executable, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "LD_PRELOAD": preload},
    ) as process:
        yield process
        process.kill()


@contextlib.contextmanager
def guests(
    address: str, port: str, count: int, uid: int, said: int = 0, before: tuple[str, ...] = ()
) -> Iterator[None]:
    with subprocess.Popen(
        [*before, sys.executable, "-c", GUEST, address, port, str(count), str(uid), str(said)],
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stdout.readline() == "there\n"
        yield
        process.kill()


def ask(process: subprocess.Popen[str]) -> tuple[int, int]:
    """Ask for the numbers of connections that it has let in, and that have ended."""
    assert process.stdin and process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    inside, ended = process.stdout.readline().split()
    return int(inside), int(ended)


REST = pytest.mark.full


@pytest.mark.parametrize(("name", "listens", "connects"), [
    ("prterun", "127.0.0.1", "127.0.0.1"), pytest.param("prterun", "::1", "::1", marks=REST),
    pytest.param("prted", "::", "127.0.0.1", marks=REST)])
def test_only_this_users_processes_come_in(name: str, listens: str, connects: str) -> None:
    with launcher(name, listens, 2, str(LOOPBACK)) as process:
        assert process.stdout
        _, port = process.stdout.readline().split()
        with guests(connects, port, 300, STRANGER):
            assert ask(process) == (0, 0)
            with guests(connects, port, 3, 0):
                assert ask(process) == (3, 0)


@REST
def test_another_program_is_left_alone() -> None:
    with launcher("python", "127.0.0.1", 1, str(LOOPBACK)) as process:
        assert process.stdout
        _, port = process.stdout.readline().split()
        with guests("127.0.0.1", port, 3, STRANGER):
            assert ask(process) == (3, 0)


@REST
def test_on_one_node_it_listens_on_loopback(tmp_path: Path) -> None:
    link = tmp_path / "loopback.so"
    link.symlink_to(LOOPBACK)
    for address, bound in (("0.0.0.0", "127.0.0.1"), ("::", "::1")):
        with launcher("prterun", address, 0, str(link)) as process:
            assert process.stdout and process.stdout.readline().split()[0] == bound


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, str]]:
    """A network namespace, which is another host as far as sockets go: its name, our address."""
    name, net = f"ftrma{uuid.uuid4().hex[:6]}", f"10.{os.getpid() % 200 + 20}.77"
    steps = [f"netns add {name}", f"link add {name}a type veth peer name {name}b netns {name}",
             f"addr add {net}.1/24 dev {name}a", f"link set {name}a up",
             f"-n {name} addr add {net}.2/24 dev {name}b", f"-n {name} link set {name}b up"]
    try:
        for step in steps:
            made = subprocess.run(["ip", *step.split()], capture_output=True, text=True)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {made.stderr}")
        yield name, f"{net}.1"
    except FileNotFoundError:
        pytest.skip("no ip command here")
    finally:
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@REST
def test_strangers_from_other_hosts_may_be_silent_for_a_while(elsewhere: tuple[str, str]) -> None:
    """Law: over several nodes they come in, 32 of them may be silent; who says something is none.
    On one node they do not."""
    name, address = elsewhere
    there = ("ip", "netns", "exec", name)
    with launcher("prted", "0.0.0.0", 3, str(LOOPBACK)) as process:
        assert process.stdout
        _, port = process.stdout.readline().split()
        with guests(address, port, 40, 0, said=64, before=there):
            assert ask(process) == (40, 0)
            with guests(address, port, 40, STRANGER, before=there):
                assert ask(process) == (80, 8)
                with guests(address, port, 1, 0, said=64, before=there):
                    assert ask(process) == (81, 9)
