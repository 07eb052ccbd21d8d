"""A process of a node that keeps the node's agent with the others: `test_node_agent` starts it.

``agentkeeper.py DIRECTORY NODE first|next``: the first one makes what they share, starts the agent
and prints its address. Each reads two lines, the address of the node's agent and that of the hub's,
joins, and lives until its stdin ends. By a line ``fork FIFO`` it gets a child that lives until
nobody holds the FIFO any more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mirrornodes import REGIONS

from ftrma.fabric.agents import NodeAgent
from ftrma.fabric.link import Address
from ftrma.host.key import Key
from ftrma.host.listening import Bind

ORIGINS, TARGETS = 4, 1


def main(directory: Path, node: int, first: bool) -> None:
    key = Key.take()
    assert key
    agent = NodeAgent(directory, key, Bind("127.0.0.1"), node,
                      lambda why: print(f"lost: {why}", flush=True))
    if first:
        agent.make(ORIGINS, TARGETS, REGIONS)
        print(agent.start().text(), flush=True)
    agent.join(*(Address.parse(sys.stdin.readline().rstrip("\n")) for _ in range(2)))
    print("joined", flush=True)
    for line in sys.stdin:
        fifo = line.removeprefix("fork ").rstrip("\n")
        if os.fork() == 0:
            print("forked", flush=True)
            with open(fifo, "rb") as until:
                until.read()
            os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "first")
