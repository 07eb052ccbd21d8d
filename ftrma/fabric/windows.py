"""This slot's windows in use: where its parts lie, and the counters of section 4.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .world import World


@dataclass(frozen=True)
class Window:
    """A window as this slot has it.

    Attributes:
        ordinal: its number in the program's order of making windows.
        address, size_bytes: of this slot's part.
        gnc, gc: counters of all its accesses.
    """

    ordinal: int
    address: int
    size_bytes: int
    gnc: int
    gc: int


def listed(world: World) -> list[Window]:
    """All of them, in the order of the extension's list."""
    found: list[Window] = []
    info = world.ffi.new("struct ftrma_window_info *")
    while world.lib.ftrma_window_at(len(found), info) == 0:
        address = int(world.ffi.cast("uintptr_t", info.base))
        found.append(Window(info.ordinal, address, info.size_bytes, info.gnc, info.gc))
    return found


def counters(world: World) -> list[dict[str, Any]]:
    """GNC and GC of each window, EC and SC toward each of its members."""
    ec, sc = world.ffi.new("uint64_t *"), world.ffi.new("uint64_t *")
    found = []
    for index, window in enumerate(listed(world)):
        pairs: list[tuple[int, int]] = []
        while world.lib.ftrma_window_counters(index, len(pairs), ec, sc) == 0:
            pairs.append((ec[0], sc[0]))
        found.append({
            "gnc": window.gnc, "gc": window.gc,
            "ec": [e for e, _ in pairs], "sc": [s for _, s in pairs],
        })
    return found


def image(world: World) -> bytes:
    """Counters and held locks that live in this process alone, for a replay."""
    size = world.lib.ftrma_counters_save(world.ffi.NULL, 0)
    bytes_ = world.ffi.new("uint8_t[]", int(size))
    world.lib.ftrma_counters_save(bytes_, size)
    return bytes(world.ffi.buffer(bytes_))
