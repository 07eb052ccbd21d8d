"""The slots of a run of Phoenix over MPI: ghosts and mirrored values go through lanes of a window.
"""

from __future__ import annotations

from collections.abc import Sequence

from .phoenix_lanes import Bytes
from .references import AnyArray
from .transport import WindowTransport


class PhoenixWindow(WindowTransport):
    """Implements `phoenix_runner.PhoenixTransport`. A lane has all that a turn sends to a slot."""

    def send(self, turn: int, lanes: Sequence[Bytes]) -> int:
        for slot, lane in enumerate(lanes):
            if len(lane):
                self.put(turn, slot, lane)
        return sum(map(len, lanes)) - len(lanes[self.comm.rank])

    def meet(self, partial: AnyArray) -> list[AnyArray]:
        return [array.reshape(()) for array in self.everybody(partial)]

    def incoming(self, turn: int) -> list[Bytes]:
        return [self.lane(turn, slot) for slot in range(self.comm.size)]
