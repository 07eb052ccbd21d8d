"""Calls into ``csrc/log/`` and ``csrc/interpose/``: windows, logs, replay, and callbacks from C.

``csrc/ftrma.h`` describes the functions of C. Call `loading.load` first.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from . import extension as c
from .constants import number
from .shared import Slot, Version

TRACE_TEXT_BYTES = number("TRACE_TEXT")  # most bytes of the text of a framework's record

_called_up: dict[str, Any] = {}  # keeps functions alive that C may call


class Mode(IntEnum):
    """Mode of a slot: events are executed, replayed, or precede the checkpoint."""

    LIVE, REPLAY, PROLOGUE = number("LIVE"), number("REPLAY"), number("PROLOGUE")


class Logged(IntEnum):
    """Kinds of accesses that are logged."""

    NONE, PUTS, ALL = number("LOG_NONE"), number("LOG_PUTS"), number("LOG_ALL")


class WindowInfo(NamedTuple):
    """A window as this slot has it.

    Attributes:
        ordinal: number of the window, in the order in which the program makes windows.
        address, size_bytes: where this slot's part is.
        gnc, gc: counters of all its accesses (section 4.1).
    """

    ordinal: int
    address: int
    size_bytes: int
    gnc: int
    gc: int


# ---- windows --------------------------------------------------------------------------------


def windows() -> list[WindowInfo]:
    """Return this slot's windows in use, in the order of the extension's list."""
    found: list[WindowInfo] = []
    info = c.ffi.new("struct ftrma_window_info *")
    while c.lib.ftrma_window_at(len(found), info) == 0:
        address = int(c.ffi.cast("uintptr_t", info.base))
        found.append(WindowInfo(info.ordinal, address, info.size_bytes, info.gnc, info.gc))
    return found


def window_counters() -> list[dict[str, Any]]:
    """Read GNC and GC of each window in use, and EC and SC toward each of its members."""
    ec, sc = c.ffi.new("uint64_t *"), c.ffi.new("uint64_t *")
    found = []
    for index, window in enumerate(windows()):
        pairs: list[tuple[int, int]] = []
        while c.lib.ftrma_window_counters(index, len(pairs), ec, sc) == 0:
            pairs.append((ec[0], sc[0]))
        found.append({
            "gnc": window.gnc, "gc": window.gc,
            "ec": [e for e, _ in pairs], "sc": [s for _, s in pairs],
        })
    return found


def exclusive_locks() -> int:
    """Return how many exclusive locks this slot holds, over all windows."""
    return int(c.lib.ftrma_exclusive_locks())


def windows_settle(slot: Slot) -> bool:
    """Settle accesses that a lost slot left half done; return False if they forbid its replay."""
    return c.check(c.lib.ftrma_windows_settle(slot), "reading the logs of a lost slot") == 0


def clear(address: int, size_bytes: int) -> int:
    """Fill memory of the program with zeros; returns the number of bytes written."""
    return int(c.lib.ftrma_clear(c.ffi.cast("void *", address), size_bytes))


# ---- logs and replay ------------------------------------------------------------------------


def log_least() -> int:
    """Return the least budget of a slot's logs, in bytes."""
    return int(c.lib.ftrma_log_least())


def check_budget(budget: int | None) -> None:
    """Refuse a budget of logs that holds next to nothing."""
    least = log_least()
    if budget is not None and budget < least:
        raise ValueError(
            f"--log-budget {budget}: too small for a slot's access logs; give {least} bytes or more"
        )



def log_map(slot: Slot) -> bool:
    """Map a slot's log; False if there is none."""
    return bool(c.lib.ftrma_log_open(slot, 0, 0) == 0)


def log_make(slot: Slot, budget_bytes: int) -> None:
    c.check(c.lib.ftrma_log_open(slot, 1, budget_bytes), f"taking {budget_bytes} bytes for logs")


def log_configure(what: Logged) -> None:
    c.lib.ftrma_log_configure(what)


def replay_over() -> bool:
    """Say whether the next event of this slot is executed, not replayed."""
    return bool(c.lib.ftrma_replay_over())


def log_stop() -> None:
    c.lib.ftrma_log_stop()


def log_start(version: Version) -> None:
    c.lib.ftrma_log_start(version)


def log_mark(version: Version, *, alone: bool = False) -> None:
    """Mark the place of a version in the slot's logs.

    Args:
        alone: the slot stages alone and waits for no other.
    """
    c.lib.ftrma_log_mark(version, alone)


def log_prefix() -> None:
    c.lib.ftrma_log_prefix()


def mark_broken(slot: Slot, version: Version) -> tuple[int, str]:
    """Read why a slot cannot be replayed from a version.

    Returns:
        Bits BROKEN_*, or -1 if the version has no mark; and the MPI call that caused this.
    """
    call = c.ffi.new("char const **")
    broken = c.lib.ftrma_mark_broken(slot, version, call)
    return int(broken), str(c.ffi.string(call[0]).decode())


def results_lost(slot: Slot) -> None:
    c.lib.ftrma_results_lost(slot)


def counters_save() -> bytes:
    """Save counters and held locks that only this process has, for a replay."""
    size = int(c.lib.ftrma_counters_save(c.ffi.NULL, 0))
    image = c.ffi.new("uint8_t[]", size)
    c.lib.ftrma_counters_save(image, size)
    return bytes(c.ffi.buffer(image))


def demand_begin(*, overwrite: bool) -> tuple[int, bytes]:
    """Begin a demand checkpoint.

    Returns:
        Its number, or 0 if a checkpoint would be of no use now; and its cut.
    """
    cut = c.ffi.new("uint64_t[]", int(c.lib.ftrma_cut_words()))
    number = int(c.lib.ftrma_demand_begin(overwrite, cut))
    return number, bytes(c.ffi.buffer(cut))


def demand_end(cut: bytes) -> bool:
    """Put the demand checkpoint in force; False if it must be taken again."""
    return bool(c.lib.ftrma_demand_end(c.ffi.from_buffer("uint64_t[]", cut)))


def demand_failed(*, lost: bool) -> None:
    c.lib.ftrma_demand_failed(lost)


def demand_of(slot: Slot, version: Version) -> int:
    """Return the demand checkpoint that a replay starts from; 0: it starts from the version."""
    return int(c.lib.ftrma_demand_of(slot, version))


def replay_view(slot: Slot, *, wanted: bool) -> None:
    """Set whether the coming replay looks through this slot's puts."""
    c.check(c.lib.ftrma_replay_view(slot, wanted), f"reading the log of slot {slot}")


def replay_prepare(slot: Slot, version: Version, image: bytes, demand: int, cut: bytes) -> bool:
    """Become the replacement of a dead slot; False if a log is damaged.

    Args:
        image: result of `counters_save`; demand, cut: results of `demand_begin`.
    """
    words = c.ffi.new("uint64_t[]", len(cut) // 8)
    c.ffi.memmove(words, cut, len(cut))
    result = c.lib.ftrma_replay_prepare(slot, version, image, len(image), demand, words, len(words))
    if result == -errno.EBADMSG:
        return False
    c.check(result, f"reading the logs of slot {slot}")
    return True


def replay_anchor() -> bool:
    """Note that the program has come to the checkpoint; return False if it cannot be replayed."""
    return bool(c.lib.ftrma_replay_anchor() == 0)


def mode() -> Mode:
    return Mode(c.lib.ftrma_mode())


def in_prefix() -> bool:
    """Say whether the slot replays events from before the checkpoint, which each attempt goes
    through."""
    return bool(c.lib.ftrma_in_prefix())


def event_begin(what: int) -> int:
    """Begin an event; return 0: execute it, 1: it is replayed, else an error code of MPI."""
    return int(c.lib.ftrma_event_begin(what, 0))


def event_finish() -> None:
    c.lib.ftrma_event_finish()


def refuse(reason: str) -> None:
    """Say why this slot cannot be replayed; all slots go back instead."""
    c.lib.ftrma_refuse(reason.encode())


def keep_refusal(reason: str) -> None:
    c.lib.ftrma_keep_refusal(reason.encode())


def trace_open(path: Path) -> None:
    c.check(c.lib.ftrma_trace_open(str(path).encode()), "opening a trace file")


def trace_to(fd: int) -> None:
    """Write the trace to this stream from now on."""
    c.lib.ftrma_trace_to(fd)


def trace_text(what: int, number: int, line: int, slot: int, proc: int, attempt: int,
               text: bytes) -> None:
    """Write a framework's record to the trace; do nothing if there is no trace."""
    head = c.ffi.new("struct ftrma_trace_record *", {
        "what": what, "event": number, "window": line, "target": -1, "slot": slot, "proc": proc,
        "entry": attempt})
    c.lib.ftrma_trace_text(head, text, len(text))


def trace_note(what: int, value: int, other: int = 0) -> None:
    c.lib.ftrma_trace_note(what, value, other)


# ---- calls up from C ------------------------------------------------------------------------


def on_interrupt(function: Callable[[], bool]) -> None:
    """Set the function that repairs a pending failure; it returns True if the program can go on."""
    _call_up("interrupt", lambda: int(not function()), error=1)


def on_fill(function: Callable[[int, bool, int, int], object]) -> None:
    """Set the function that fills a window's part; it gets ordinal, allocated, address, size in
    bytes."""

    def fill(ordinal: int, allocated: int, base: Any, size_bytes: int) -> int:
        function(ordinal, bool(allocated), int(c.ffi.cast("uintptr_t", base)), size_bytes)
        return 0

    _call_up("fill", fill, error=-1, onerror=c.keep_error)


def on_warn(function: Callable[[str], object]) -> None:
    """Set the function for windows that cannot be protected; it gets the call that made the
    window."""
    _call_up("warn", lambda call: function(c.ffi.string(call).decode()), onerror=c.keep_error)


def on_live(function: Callable[[bool], object]) -> None:
    """Set the function for a replay's end, called before others go on (False), and after (True)."""
    _call_up("live", lambda over: function(bool(over)), onerror=c.keep_error)


def on_full(function: Callable[[int], object]) -> None:
    """Set the function for full logs; it gets 0, or later the number of bytes that they lacked."""
    _call_up("full", function, onerror=c.keep_error)


def _call_up(name: str, function: Callable[..., object], **how: Any) -> None:
    _called_up[name] = c.ffi.callback(f"ftrma_{name}_function", function, **how)
    getattr(c.lib, f"ftrma_set_{name}")(_called_up[name])


# ---- another slot's put log, piece by piece -------------------------------------------------

Span = tuple[int, int]  # offset in the file, and number of bytes


def log_head_bytes() -> int:
    """Return the size of the head of a log file, up to the list of its chunks."""
    return int(c.ffi.sizeof("struct ftrma_log"))


def log_sizes(head: bytes | bytearray) -> tuple[int, int]:
    """Return the sizes of the list of chunks that follows this head, and of the whole file, in
    bytes."""
    log = c.ffi.cast("struct ftrma_log *", c.ffi.from_buffer(head))
    return int(log.nchunks) * int(c.ffi.sizeof("struct ftrma_chunk")), int(log.file_bytes)


def put_log_spans(head: bytes | bytearray) -> list[Span]:
    """Find the records of puts in a log file, by its head and list of chunks."""
    log = c.ffi.cast("struct ftrma_log *", c.ffi.from_buffer(head))
    spans, chunk = [], int(log.head[0])
    while chunk:
        at = log.file_bytes - (log.nchunks - (chunk - 1)) * log.chunk_bytes
        spans.append((int(at), int(log.chunk[chunk - 1].fill)))
        chunk = int(log.chunk[chunk - 1].next)
    return [span for span in spans if span[1]]
