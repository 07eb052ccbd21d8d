"""The agent of a node is kept by the processes of the node, whichever of them live.

Processes are real ones (`agentkeeper`), and what an agent is for is seen by the mirror: words of
one node come to the other.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import agentkeeper
import pytest
from mirrornodes import ALARM, FLAGS, PATIENCE_S, Mirrored, mirrors, wait_until

from ftrma.fabric.agents import NodeAgent
from ftrma.fabric.link import Address
from ftrma.host.errors import FtrmaError
from ftrma.host.key import VARIABLE, Key
from ftrma.host.listening import Bind
from ftrma.native import wire

HUB, SPOKE = 0, 1


class Keeper:
    """A process of a node."""

    def __init__(self, node: Mirrored, *, first: bool) -> None:
        command = [sys.executable, agentkeeper.__file__, str(node.directory), str(node.number),
                   "first" if first else "next"]
        with (node.directory / "said").open("ab") as said:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
                env={**os.environ, VARIABLE: node.key.text(),
                     "PYTHONPATH": str(Path(agentkeeper.__file__).parents[1])},
            )

    def hears(self) -> str:
        """The next line that it prints, or "" when it has ended."""
        assert self.process.stdout
        fd, line, deadline = self.process.stdout.fileno(), b"", time.monotonic() + PATIENCE_S
        while not line.endswith(b"\n"):
            left_s = max(0.0, deadline - time.monotonic())
            assert select.select([fd], [], [], left_s)[0], "a process says nothing"
            if not (more := os.read(fd, 1)):
                break
            line += more
        return line.decode().rstrip("\n")

    def tell(self, *lines: str) -> None:
        assert self.process.stdin
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def end(self) -> None:
        """Let it end by itself."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe and pipe.close()


class Kept:
    """Two nodes, each with some processes."""

    def __init__(self, nodes: list[Mirrored]) -> None:
        self.nodes, self.count = nodes, 0
        self.keepers: list[list[Keeper]] = [[], []]
        self.addresses: list[str] = []

    def start(self, processes: int) -> None:
        for node, keepers in zip(self.nodes, self.keepers, strict=True):
            wire.ledger_close(node.ledger)  # the first process makes another one
            keepers.append(Keeper(node, first=True))
            self.addresses.append(keepers[0].hears())
            node.ledger = wire.ledger_open(node.directory / "ledger")
            keepers.extend(Keeper(node, first=False) for _ in range(processes - 1))
        for node in (HUB, SPOKE):
            for keeper in self.keepers[node]:  # the lowest one comes first
                keeper.tell(self.addresses[node], self.addresses[HUB])
                assert keeper.hears() == "joined"

    def agents(self, node: int) -> list[int]:
        """Pids of agents of a node."""
        ledger, found = str(self.nodes[node].directory / "ledger").encode(), []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if b"ftrma.launch.agent" in words and ledger in words and b"sh" not in words:
                    found.append(int(path.parent.name))
        return found

    def agent(self, node: int) -> int:
        wait_until(lambda: len(self.agents(node)) == 1, "there is not one agent")
        return self.agents(node)[0]

    def replaced(self, node: int) -> int:
        """SIGKILL to the agent, and wait for the next one, which mirrors."""
        before = self.agent(node)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: self.agents(node) not in ([], [before]), "no agent follows")
        self.check_mirror()
        return self.agent(node)

    def check_mirror(self) -> None:
        """Words that either node stores come to the other."""
        self.count += 1
        for node, other in ((HUB, SPOKE), (SPOKE, HUB)):
            self.nodes[node].store(FLAGS + node, self.count)
            self.nodes[other].awaits(FLAGS + node, self.count)

    def awaits_end(self, node: int) -> None:
        wait_until(lambda: not self.agents(node), "the agent does not end")

    def close(self) -> None:
        for node in (HUB, SPOKE):
            for keeper in self.keepers[node]:
                keeper.close()
            for pid in self.agents(node):  # of a test that has failed
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def kept(processes: int) -> Iterator[Kept]:
    with mirrors(2, start=False) as nodes, contextlib.closing(Kept(nodes)) as made:
        made.start(processes)
        yield made


def test_an_agent_that_is_killed_is_replaced() -> None:
    """Law: by another one at the same address, which is told where the hub is; of the hub, too."""
    with kept(2) as job:
        job.check_mirror()
        for victim in (SPOKE, HUB, SPOKE, HUB):
            job.replaced(victim)
            assert (job.nodes[victim].directory / "agent").read_text() == job.addresses[victim]


@pytest.mark.full
@pytest.mark.parametrize("node", [HUB, SPOKE], ids=["hub", "spoke"])
def test_the_keeper_dies(node: int) -> None:
    """Law: the agent lives on when the process that has started it is killed, and the next process
    replaces it, again and again, until the last."""
    with kept(3) as job:
        for keeper in job.keepers[node][:2]:
            agent = job.agent(node)
            keeper.kill()
            job.check_mirror()
            assert job.agent(node) == agent
            assert job.replaced(node) != agent


def test_keeper_and_agent_die_at_once() -> None:
    """Law: the next process replaces the agent then, too, whichever died first; and what a node has
    stored meanwhile, an alarm among it, is told by the next agent."""
    with kept(4) as job:
        for i, keeper in enumerate(job.keepers[SPOKE][:3], 1):
            agent = job.agent(SPOKE)
            keeper.process.send_signal(signal.SIGSTOP)  # it does not replace it
            os.kill(agent, signal.SIGKILL)
            job.nodes[SPOKE].store(ALARM, i)
            keeper.kill()
            job.nodes[HUB].awaits(ALARM, i)
            job.check_mirror()


def test_others_than_the_keeper_end() -> None:
    """Law: what a process does that is not the keeper, live or die, is nothing to the agent; who is
    next may be gone when the keeper dies."""
    with kept(4) as job:
        agent, keepers = job.agent(SPOKE), job.keepers[SPOKE]
        keepers[1].kill()
        keepers[2].end()
        job.check_mirror()
        assert job.agent(SPOKE) == agent
        keepers[0].kill()
        job.replaced(SPOKE)


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "ended"])
def test_the_agent_ends_with_the_last_process(killed: bool) -> None:
    """Law: the hub's lives as long as any process of its node does, and no longer, however they
    end; that of a spoke goes on, as the same one, as long as the hub's does."""
    with kept(2) as job:
        agent = job.agent(SPOKE)
        for node in (SPOKE, HUB):
            for keeper in job.keepers[node]:
                assert job.agents(node)
                if killed:
                    keeper.kill()
                else:
                    keeper.end()
            if node == SPOKE:
                time.sleep(0.1)
                assert job.agent(SPOKE) == agent
        job.awaits_end(HUB)
        job.awaits_end(SPOKE)
        assert all("error" not in job.nodes[node].said() for node in (HUB, SPOKE))


def test_children_keep_no_agent(tmp_path: Path) -> None:
    """Law: a process that the program has forked is nobody's keeper: neither does the agent live as
    long as it, nor does the next process wait for it."""
    fifo = tmp_path / "until"
    os.mkfifo(fifo)
    with kept(2) as job, open(fifo, "rb+", buffering=0):
        for keeper in job.keepers[SPOKE]:
            keeper.tell(f"fork {fifo}")
            assert keeper.hears() == "forked"
        job.keepers[SPOKE][0].kill()
        job.replaced(SPOKE)
        job.keepers[SPOKE][1].kill()
        for keeper in job.keepers[HUB]:
            keeper.kill()
        job.awaits_end(SPOKE)


@pytest.mark.parametrize("deaths", [1, 2])
def test_an_agent_dies_while_it_comes_up(
    deaths: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: another one is started; if that dies, too, the reason is told."""
    keeper, left = NodeAgent(tmp_path, Key.make(), Bind("127.0.0.1"), 0, print), [True] * deaths
    address = Address("here", 4711, ("127.0.0.1",))

    def start(keeper: NodeAgent) -> int:
        alive, its = os.pipe()
        if not left:
            keeper.published.write_text(address.text())
        else:
            left.pop()
        os.close(its)
        return alive

    monkeypatch.setattr(NodeAgent, "_start", start)
    keeper.ledger.touch()
    keeper.keeper.touch()
    os.mkfifo(keeper.fifo)
    if deaths == 1:
        assert keeper.start() == address
    else:
        with pytest.raises(FtrmaError, match="does not come up: it was killed"):
            keeper.start()


@pytest.mark.nightly
def test_agents_that_end_at_once_are_told() -> None:
    """Law: when one agent after another ends as soon as it is started, the keeper says so and why,
    once, and tries no longer; nobody else says it while the keeper lives."""
    with kept(2) as job:
        (job.nodes[SPOKE].directory / "mirror").write_bytes(b"")
        os.kill(job.agent(SPOKE), signal.SIGKILL)
        assert job.keepers[SPOKE][0].hears().startswith("lost: mirroring by")
        job.awaits_end(SPOKE)
        assert job.nodes[SPOKE].said() == ""
        job.keepers[SPOKE][1].end()
        assert job.keepers[SPOKE][1].hears() == ""
        job.keepers[SPOKE][0].end()
        assert job.keepers[SPOKE][0].hears() == ""
