"""The supervisor's end of the links, and ranks that connect to it, in one process."""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ftrma.fabric import link
from ftrma.fabric.story import Event
from ftrma.host.errors import FtrmaError
from ftrma.host.key import Key
from ftrma.host.listening import Bind
from ftrma.launch import failover
from ftrma.launch.job import Cause
from ftrma.launch.ranklinks import RankLinks

PATIENCE_S = 5.0


class Board:
    """A switchboard, what it has written, and the ranks that have connected."""

    def __init__(
        self, processes: int = 2, cause: Cause | None = None, directory: Path = Path("/nowhere")
    ) -> None:
        self.story: list[Event] = []
        self.key = Key.make()
        self.board = RankLinks(
            processes, self.key, Bind("127.0.0.1"),
            self.story.append, lambda: self.story, cause, {"committed": 0},
            functools.partial(failover.trace_file, directory), lambda connection: None,
        )
        self.open: list[socket.socket] = []

    def connect(
        self, rank: int, host: str = "node1", kind: str = "link",
        key: Key | None = None,
    ) -> tuple[socket.socket, dict[str, Any]]:
        """Connect as a rank would, from a thread, while the switchboard is served here."""
        got: list[Any] = []

        def work() -> None:
            try:
                got.append(link.connect(
                    self.address, key or self.key, kind, rank=rank, pid=1000 + rank, host=host
                ))
            except FtrmaError as error:
                got.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        self.until(lambda: bool(got))
        thread.join()
        if isinstance(got[0], FtrmaError):
            raise got[0]
        self.open.append(got[0][0])
        return got[0]

    @property
    def address(self) -> link.Address:
        assert self.board.address is not None
        return self.board.address

    def stranger(self) -> socket.socket:
        """Connect and say nothing."""
        self.open.append(socket.create_connection(("127.0.0.1", self.address.port)))
        return self.open[-1]

    def close(self) -> None:
        for connection in self.open:
            connection.close()
        if not self.board.connections.epoll.closed:
            self.board.close()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "nothing came of it"
            self.board.pump(0.01)


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board()
    yield made
    made.close()
