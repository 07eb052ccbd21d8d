"""Calls into ``csrc/wire/``: the agent of a node, its ledger, and origins that send it requests.

``csrc/wire/wire.h`` says what each call does. The library does not need MPI, so an agent is a small
process. This module loads the library at the first call.

If a waiting call of an `Origin` ends before its reply has come, it raises `Unfinished`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NewType

from ..host.errors import NO_ROOM, FtrmaError, NoRoom
from .wireconstants import ATOMIC_BYTES as ATOMIC_BYTES
from .wireconstants import FORMAT as FORMAT
from .wireconstants import KEPT as KEPT
from .wireconstants import NODES as NODES
from .wireconstants import PAYLOAD_BYTES as PAYLOAD_BYTES
from .wireconstants import PLAIN as PLAIN
from .wireconstants import Failpoint as Failpoint
from .wireconstants import FileHow as FileHow
from .wireconstants import Kind as Kind
from .wireconstants import Lock as Lock
from .wireconstants import MirrorKind as MirrorKind
from .wireconstants import Op as Op
from .wireconstants import Type as Type
from .wireconstants import Why as Why
from .wireconstants import WireResult as WireResult
from .wireconstants import declarations as _ffi

LIBRARY = Path(__file__).parents[1] / "_wire.so"
FOREVER = -1  # a time limit in ms
ENGINE = "FTRMA_WIRE_ENGINE"  # variable of the environment

Ledger = NewType("Ledger", object)
Agent = NewType("Agent", object)
Buffer = Any  # memory that can be read, or written if it is to be filled
Run = tuple[int, int]  # offset and bytes


@cache
def _lib() -> Any:
    return _ffi.dlopen(str(LIBRARY))


class Ack(NamedTuple):
    """An acknowledgement of `records` puts from `number` on: all have this clock, and seqs from
    `seq` on."""

    number: int
    records: int
    clock: int
    seq: int


class Answer(NamedTuple):
    """The result of an atomic: clock and seq of the change, the elements before and after it."""

    number: int
    clock: int
    seq: int
    old: bytes
    new: bytes


class Unfinished(FtrmaError):
    """A call to an agent ended before its reply came; it can be made again.

    Attributes:
        result: ALARM: the alarm rang; TIMEOUT: the time was over; STALE: the roles of this process
            are old; REFUSED: the agent has refused the call.
    """

    def __init__(self, result: WireResult, doing: str, reason: str) -> None:
        self.result = result
        super().__init__(f"{doing}: {reason or result.name.lower()}")


def _check(result: int, doing: str) -> int:
    if result >= 0:
        return int(result)
    if -result in (errno.ENOSPC, errno.ENOMEM):
        raise NoRoom(f"{doing}: {NO_ROOM}")
    raise FtrmaError(f"{doing}: {os.strerror(-result)}")


# ---- the ledger -----------------------------------------------------------------------------


def ledger_make(path: Path, *, origins: int, targets: int, parts: int) -> None:
    result = _lib().ftrma_ledger_make(os.fsencode(path), origins, targets, parts)
    _check(result, f"making {path}")


def ledger_open(path: Path) -> Ledger:
    pointer = _ffi.new("struct ftrma_ledger **")
    _check(_lib().ftrma_ledger_open(os.fsencode(path), pointer), f"opening {path}")
    return Ledger(pointer[0])


def ledger_address(ledger: Ledger) -> int:
    """Return the address of a ledger, for C in this process."""
    return int(_ffi.cast("uintptr_t", ledger))


def ledger_close(ledger: Ledger) -> None:
    _lib().ftrma_ledger_close(ledger)


def ledger_place(
    ledger: Ledger, index: int, *, window: int, target: int, generation: int, file: str, at: int,
    size_bytes: int, words: int = PLAIN, head_bytes: int = 0, pid: int = 0,
) -> None:
    """Say where a part lies: in a file beside the ledger, or in the memory of a process.

    A part without `words` is a plain file, which allows only puts and gets.
    """
    place = _ffi.new("struct ftrma_wire_part *", {
        "window": window, "target": target, "generation": generation, "pid": pid, "at": at,
        "bytes": size_bytes, "words": words, "head": head_bytes, "file": file.encode(),
    })
    _check(_lib().ftrma_parts_place(ledger, index, place), f"placing part {index}")


def ledger_find(ledger: Ledger, window: int, target: int, generation: int) -> int:
    """Return the index of a part; -1: the part is not on this node, or has another generation."""
    return int(_lib().ftrma_parts_find(ledger, window, target, generation))


def ledger_reserve(ledger: Ledger, window: int, target: int) -> int:
    """Reserve an index for a new part."""
    return _check(_lib().ftrma_parts_reserve(ledger, window, target), "placing a part")


def ledger_release(ledger: Ledger, index: int) -> None:
    """Release the index of a part, which nobody reaches any more."""
    _lib().ftrma_parts_release(ledger, index)


def ledger_clocks(ledger: Ledger, file: str, targets: int, at: int, step: int) -> None:
    """Say where the clocks of the first targets lie: in a file beside the ledger."""
    result = _lib().ftrma_ledger_clocks(ledger, file.encode(), targets, at, step)
    _check(result, "placing clocks")


def ledger_ring(ledger: Ledger) -> None:
    """Wake the agent: words of the mirrored file have changed."""
    _lib().ftrma_ledger_ring(ledger)


def ledger_share(
    ledger: Ledger, *, window: int, target: int, generation: int, file: str, size_bytes: int,
    head_bytes: int, bells: int = 0,
) -> None:
    """Make a whole plain file a part, unless another process of the node has done so.

    Args:
        head_bytes: bytes at the file's beginning whose words can be set.
        bells: where two bells lie in this head; setting a word rings them.

    Raises:
        FtrmaError: this part is already another file.
    """
    place = _ffi.new("struct ftrma_wire_part *", {
        "window": window, "target": target, "generation": generation, "bytes": size_bytes,
        "words": PLAIN, "head": head_bytes, "bells": bells, "file": file.encode(),
    })
    _check(_lib().ftrma_parts_share(ledger, place), f"placing {file}")


def ledger_unshare(ledger: Ledger, window: int, target: int, generation: int) -> None:
    """Release a part that was shared."""
    _lib().ftrma_parts_unshare(ledger, window, target, generation)


def write_clock(ledger: Ledger, target: int, events: int) -> None:
    """Store how many events the target has completed, as the target does."""
    _lib().ftrma_ledger_target(ledger, target).clock = events


def write_owner(ledger: Ledger, part: int, owner: int) -> None:
    """Store which process of the node is inside a change of the part: its member + 1, or 0."""
    _lib().ftrma_parts_words(ledger, part).owner = owner


def read_owner(ledger: Ledger, part: int) -> int:
    return int(_lib().ftrma_parts_words(ledger, part).owner)


def number_of(ledger: Ledger, origin: int, target: int) -> int:
    """Return the last number of an origin that has taken effect at a target."""
    return int(_lib().ftrma_ledger_number(ledger, origin, target))


def agents_of(ledger: Ledger) -> int:
    """Return the number of agents that have begun to serve this ledger."""
    return int(_lib().ftrma_ledger_agents(ledger))


# ---- engines --------------------------------------------------------------------------------


def engines() -> list[str]:
    """Return the names of the engines that are registered in C."""
    names: list[str] = []
    while name := _lib().ftrma_engine_name(len(names)):
        names.append(_ffi.string(name).decode())
    return names


def engine() -> str:
    """Return the name of the engine for agents and origins that this process opens.

    All processes of a job need the same one: `ENGINE` in the environment, or else TCP.
    """
    name = os.environ.get(ENGINE) or "tcp"
    if name not in engines():
        raise FtrmaError(f"{ENGINE}={name}: use one of {', '.join(engines())}")
    return name


# ---- the agent ------------------------------------------------------------------------------


def agent_open(path: Path) -> Agent | None:
    """Take over a ledger; None while another agent has it."""
    pointer = _ffi.new("struct ftrma_agent **")
    result = _lib().ftrma_agent_open(os.fsencode(path), engine().encode(), pointer)
    if result == -errno.EWOULDBLOCK:
        return None
    _check(result, f"taking over {path}")
    return Agent(pointer[0])


def agent_close(agent: Agent) -> None:
    _lib().ftrma_agent_close(agent)


def agent_adopt(agent: Agent, descriptor: int, origin: int, incarnation: int) -> None:
    """Serve an origin over an authenticated connection, which becomes the agent's.

    Raises:
        FtrmaError: there is no such origin, or a newer incarnation of it has come.
    """
    result = _lib().ftrma_agent_adopt(agent, descriptor, origin, incarnation)
    if result == -errno.ESTALE:
        raise FtrmaError(f"a later process of origin {origin} has come already")
    _check(result, f"serving origin {origin}")


def agent_start(words: Sequence[str], environment: Mapping[str, str], directory: str,
                input_: int, kept: int) -> None:
    """Start an agent's process, so that no `os.wait` of this process finds it.

    Args:
        words: its program and arguments.
        environment: its environment.
        directory: its current directory.
        input_: its standard input.
        kept: a descriptor that becomes its number `KEPT`; it has no others except 0 to 2.

    Raises:
        OSError: the program cannot be run.
    """
    words_ = [_ffi.new("char[]", os.fsencode(word)) for word in words]
    variables = [_ffi.new("char[]", os.fsencode(f"{name}={value}"))
                 for name, value in environment.items()]
    result = _lib().ftrma_agent_start(
        words_[0], _ffi.new("char *[]", [*words_, _ffi.NULL]),
        _ffi.new("char *[]", [*variables, _ffi.NULL]), os.fsencode(directory), input_, kept)
    if result:
        raise OSError(-result, os.strerror(-result), words[0])


def agent_watch(agent: Agent, descriptor: int) -> None:
    _check(_lib().ftrma_agent_watch(agent, descriptor), "watching a descriptor")


def agent_serve(agent: Agent, timeout_ms: int) -> None:
    """Serve until the watched descriptor can be read, the time is over, or a message has come that
    was changed on its way."""
    _check(_lib().ftrma_agent_serve(agent, timeout_ms), "serving")


def agent_damaged(agent: Agent) -> int:
    """Return the number of messages so far that were changed on their way."""
    return int(_lib().ftrma_agent_damaged(agent))


def mirror_make(path: Path, file: str, regions: Sequence[tuple[int, int, MirrorKind]]) -> None:
    """Make the state `path` of the mirror of `file`, which lies beside it and must exist.

    Args:
        regions: offset, bytes and kind of each. If a process on any node sees the new value of a
            word, it also sees every word that was stored before that one and is listed later.
    """
    listed = _ffi.new("struct ftrma_mirror_region[]", list(regions))
    _check(_lib().ftrma_mirror_make(os.fsencode(path), file.encode(), listed, len(listed)),
           f"making {path}")


def mirror_scans(path: Path) -> tuple[int, int]:
    """Return the addresses of two words, for C in this process: the number of scans that the agent
    has begun, and the last scan whose words the hub has ordered."""
    scans, ordered = _ffi.new("uint64_t **"), _ffi.new("uint64_t **")
    _check(_lib().ftrma_mirror_scans(os.fsencode(path), scans, ordered), f"opening {path}")
    return int(_ffi.cast("uintptr_t", scans[0])), int(_ffi.cast("uintptr_t", ordered[0]))


def agent_mirror(agent: Agent, path: Path, node: int) -> None:
    """Make an agent mirror the file whose state this is. The agent of node 0 is the hub."""
    _check(_lib().ftrma_spokes_open(agent, os.fsencode(path), node), f"mirroring by {path}")


def agent_regions(agent: Agent) -> str:
    """Return a hash of the regions, which must be equal at hub and spoke; "": nothing is
    mirrored."""
    found = int(_lib().ftrma_spokes_regions(agent))
    return f"{found:016x}" if found else ""


def agent_adopt_node(agent: Agent, descriptor: int, node: int) -> None:
    """Mirror with another agent over an authenticated connection, which becomes the agent's."""
    _check(_lib().ftrma_spokes_adopt(agent, descriptor, node), f"mirroring with node {node}")


def agent_lacks_hub(agent: Agent) -> bool:
    """Say whether the agent is a spoke without a connection to its hub."""
    return bool(_lib().ftrma_spokes_lacks_hub(agent))


def agent_reason(agent: Agent) -> str:
    """Say why hub and spoke cannot mirror with each other; "" if they can."""
    return str(_ffi.string(_lib().ftrma_spokes_reason(agent)).decode(errors="replace"))


def agent_kill_at(agent: Agent, failpoint: Failpoint, count: int) -> None:
    _lib().ftrma_agent_kill_at(agent, failpoint, count)


# ---- an origin ------------------------------------------------------------------------------


class Origin:
    """The accesses of one thread of a process to parts on other nodes.

    Args:
        connect: takes a node and a time limit in ms (-1: none), and returns a connected,
            authenticated descriptor, or a negative errno value. After EPROTO, a refusal, it is not
            called again.
        acked: called with a target and the acknowledgements of puts to it.

    Attributes:
        refusal: why `connect` was refused; `connect` sets it, in words.
    """

    def __init__(
        self, targets: int, nodes: int, connect: Callable[[int, int], int],
        acked: Callable[[int, list[Ack]], object] | None = None,
    ) -> None:
        def tell(_: object, target: int, acks: Any, n: int) -> None:
            if acked:
                acked(target, [Ack(a.number, a.count, a.clock, a.seq) for a in acks[0:n]])

        self._kept = (
            _ffi.callback("ftrma_wire_connect", lambda _, node, limit: connect(node, limit),
                          error=-errno.EIO),
            _ffi.callback("ftrma_wire_acked", tell) if acked else _ffi.NULL,
        )
        pointer = _ffi.new("struct ftrma_origin **")
        _check(_lib().ftrma_origin_open(targets, nodes, engine().encode(), *self._kept, _ffi.NULL,
                                        pointer),
               "making an origin")
        self._c = pointer[0]
        self.refusal = ""

    def close(self) -> None:
        _lib().ftrma_origin_close(self._c)

    @property
    def damaged(self) -> int:
        """Return the number of replies so far that were changed on their way."""
        return int(_lib().ftrma_origin_damaged(self._c))

    @property
    def address(self) -> int:
        """Return the address of the origin, for C in this process."""
        return int(_ffi.cast("uintptr_t", self._c))

    def _judge(self, result: int, doing: str) -> None:
        if _check(result, doing):
            reason = _ffi.string(_lib().ftrma_origin_reason(self._c)).decode(errors="replace")
            words = ": ".join(text for text in (reason, self.refusal) if text)
            raise Unfinished(WireResult(result), doing, words)

    # -- the alarm, targets, roles ------------------------------------------------------------

    @property
    def alarm(self) -> int:
        """Return the alarm's eventfd: as long as it has been written to, every wait ends."""
        return int(_lib().ftrma_origin_alarm(self._c))

    def ring(self) -> None:
        _lib().ftrma_origin_ring(self._c)

    def clear_alarm(self) -> None:
        _lib().ftrma_origin_clear_alarm(self._c)

    def set_timeout(self, timeout_ms: int) -> None:
        """Limit the wait of each call; `FOREVER`: no limit."""
        _lib().ftrma_origin_set_timeout(self._c, timeout_ms)

    def locate(self, target: int, node: int, generation: int) -> None:
        _check(_lib().ftrma_origin_locate(self._c, target, node, generation), "locating a target")

    def take_roles(self, roles_number: int, *, forget: bool) -> None:
        """Put new roles in force in this process; forget: because of a rollback."""
        _lib().ftrma_origin_take_roles(self._c, roles_number, forget)

    def retry(self) -> None:
        """Forget a refusal, so that the next call tries again."""
        _lib().ftrma_origin_retry(self._c)

    def tell_roles(self, node: int, roles_number: int, *, forget: bool) -> None:
        self._judge(_lib().ftrma_origin_tell_roles(self._c, node, roles_number, forget),
                    "telling roles")

    def hold(self, target: int, *, hold: bool) -> None:
        """Make the agent reject requests to a target, or accept them again."""
        self._judge(_lib().ftrma_origin_hold(self._c, target, hold), "holding a target")

    def set_word(self, target: int, window: int, word: int, value: int) -> None:
        """Raise a word in the head of the file of a target's part; a flush waits for it."""
        self._judge(_lib().ftrma_origin_set(self._c, target, window, word, value),
                    "setting a word")

    def number(self, target: int) -> int:
        """Ask for the last number of this origin that has taken effect at a target."""
        found = _ffi.new("uint64_t *")
        self._judge(_lib().ftrma_origin_number(self._c, target, found), "asking for a number")
        return int(found[0])

    def file(self, target: int, window: int, how: FileHow, name: str, size_bytes: int = 0) -> int:
        """Ask for a plain file of the target's node, which becomes a part of the window.

        Returns:
            Its length in bytes, or a negative errno value if the agent's node has refused.
        """
        told = _ffi.new("int64_t *")
        self._judge(_lib().ftrma_origin_file(self._c, target, window, how, size_bytes,
                                             name.encode(), told), f"asking for {name}")
        return int(told[0])

    # -- accesses -----------------------------------------------------------------------------

    def put(self, target: int, window: int, offset: int, data: Buffer) -> None:
        view = _ffi.from_buffer(data)
        self._judge(_lib().ftrma_origin_put(self._c, target, window, offset, view, len(view)),
                    "putting")

    def putv(self, target: int, window: int, runs: Sequence[Run], data: Buffer) -> None:
        listed = _ffi.new("struct ftrma_wire_run[]", list(runs))
        self._judge(_lib().ftrma_origin_putv(self._c, target, window, listed, len(listed),
                                             _ffi.from_buffer(data)), "putting")

    def get(self, target: int, window: int, offset: int, size_bytes: int) -> bytes:
        room = bytearray(size_bytes)
        self.get_into(target, window, offset, room)
        return bytes(room)

    def get_into(self, target: int, window: int, offset: int, room: Buffer) -> None:
        view = _ffi.from_buffer(room)
        self._judge(_lib().ftrma_origin_get(self._c, target, window, offset, view, len(view)),
                    "getting")

    def getv(self, target: int, window: int, runs: Sequence[Run]) -> bytes:
        room = bytearray(sum(size for _, size in runs))
        listed = _ffi.new("struct ftrma_wire_run[]", list(runs))
        self._judge(_lib().ftrma_origin_getv(self._c, target, window, listed, len(listed),
                                             _ffi.from_buffer(room)), "getting")
        return bytes(room)

    def flush(self, target: int) -> None:
        self._judge(_lib().ftrma_origin_flush(self._c, target), "flushing")

    def flush_all(self) -> None:
        self._judge(_lib().ftrma_origin_flush_all(self._c), "flushing")

    def flush_each(self, targets: Sequence[int]) -> None:
        self._judge(_lib().ftrma_origin_flush_each(self._c, targets, len(targets)), "flushing")

    def pending(self, target: int) -> int:
        """Return the number of bytes that wait for an acknowledgement."""
        return int(_lib().ftrma_origin_pending(self._c, target))

    def atomic(
        self, kind: Kind, op: Op | None, type_: Type, target: int, window: int, offset: int,
        data: bytes, compare: int = 0,
    ) -> Answer:
        """Carry out an ACC, FOP or CAS. After `Unfinished`, `finish` takes the answer."""
        answer = _ffi.new("struct ftrma_wire_answer *")
        self._judge(_lib().ftrma_origin_atomic(self._c, kind, op or 0, type_, target, window,
                                               offset, compare, data, len(data), answer),
                    kind.name)
        return _answer(answer)

    def lock(self, target: int, window: int, how: Lock = Lock.EXCLUSIVE) -> int:
        """Take a lock; return the SC of the part."""
        self._judge(_lib().ftrma_origin_lock(self._c, target, window, how), "locking")
        return self.finish(target).seq

    def unlock(self, target: int, window: int, how: Lock = Lock.EXCLUSIVE) -> None:
        self._judge(_lib().ftrma_origin_unlock(self._c, target, window, how), "unlocking")
        self.finish(target)

    def finish(self, target: int) -> Answer:
        """Wait for the answer of an atomic, a lock or an unlock that was interrupted."""
        answer = _ffi.new("struct ftrma_wire_answer *")
        self._judge(_lib().ftrma_origin_finish(self._c, target, answer), "waiting for an answer")
        return _answer(answer)


def _answer(answer: Any) -> Answer:
    n = int(answer.bytes)
    data = bytes(_ffi.buffer(answer.data, 2 * n))
    return Answer(int(answer.number), int(answer.clock), int(answer.seq), data[:n], data[n:])
