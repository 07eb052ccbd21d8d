"""Which words of the control file nodes have in common, and that what publishes comes first."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ftrma.fabric.control_file import make_control
from ftrma.machine.topology import make_layout
from ftrma.native import extension, loading, mirrored, wire
from ftrma.native.shared import Control
from ftrma.native.wire import MirrorKind
from ftrma.settings import killrules
from ftrma.settings.killrules import KillRule

WORD = 8


class Shape(NamedTuple):
    slots: int
    nodes: int
    rules: int


SHAPES = [Shape(1, 1, 0), Shape(3, 2, 1), Shape(4, 3, 0), Shape(7, 5, 32), Shape(64, 9, 3)]


class Made:
    """A control file, and its regions."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        loading.load()
        self.path, self.shape = directory / "control", shape
        self.ctl: Control = make_control(self.path, make_layout(shape.slots))
        self.ctl.nodes = shape.nodes
        killrules.write(self.ctl, [KillRule.parse("0@put")] * shape.rules)
        self.regions = mirrored.regions(self.ctl)
        self.places: dict[int, int] = {}  # of each word's offset, among all that are mirrored
        for at, size_bytes, kind in self.regions:
            for offset in range(at, at + size_bytes, WORD) if kind != MirrorKind.BELL else ():
                self.places[offset] = len(self.places)

    def words(self, *path: str | int) -> list[int]:
        """Offsets of the words of a field, as ``words("proc", 3, "state")``."""
        ffi: Any = extension.ffi
        kind, at = ffi.typeof("struct ftrma_ctl"), 0
        for step in path:
            at += ffi.offsetof(kind, step)
            kind = kind.item if isinstance(step, int) else dict(kind.fields)[step].type
        return list(range(at // WORD * WORD, at + ffi.sizeof(kind), WORD))

    def each(self, path: tuple[str, ...]) -> Iterator[tuple[str | int, ...]]:
        """A field of each process, slot, table or plan that it may be in."""
        count = {"proc": self.ctl.nprocs, "slots": self.ctl.nslots, "roles": 2, "plans": 2,
                 "scanned": self.ctl.nodes}.get(path[0])
        for i in range(count) if count else ():
            yield path[0], i, *path[1:]
        if not count:
            yield path


@pytest.fixture(params=SHAPES, ids=str)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    return Made(tmp_path, request.param)


def test_regions_are_whole_words_of_the_file(made: Made) -> None:
    """Law: every region is in the file, begins at a word, has whole words, and shares none with
    another one; a mirror can be made of them."""
    used: set[int] = set()
    for at, size_bytes, kind in made.regions:
        assert at % WORD == size_bytes % WORD == 0 and size_bytes > 0, (at, kind)
        assert at >= 0 and at + size_bytes <= made.path.stat().st_size, (at, kind)
        words = set(range(at, at + size_bytes, WORD))
        assert not words & used, (at, kind)
        used |= words
    wire.mirror_make(made.path.with_name("mirror"), "control", made.regions)


def test_there_is_one_of_each_that_there_must_be(made: Made) -> None:
    """Law: the alarm and what ends it are the words that C raises; each node has an echo, in their
    order; bells are rung and not mirrored."""
    found: dict[MirrorKind, list[int]] = {}
    for at, _, kind in made.regions:
        found.setdefault(kind, []).append(at)
    assert found[MirrorKind.ALARM] == made.words("alarm")
    assert found[MirrorKind.CALM] == made.words("repaired")
    assert found[MirrorKind.ECHO] == [made.words("scanned", y)[0] for y in range(made.shape.nodes)]
    bells = [made.words(name)[0] for name in ("bell", "barrier", "live")]
    assert found[MirrorKind.BELL] == bells and not made.places.keys() & set(bells)


MET = ("proc", "met")
PUBLISHED = [  # what is stored last, and what it speaks of
    (MET, ("proc", name)) for name in ("pid", "state", "staged", "blocks", "spare")
] + [
    (MET, (name,)) for name in (
        "alarm", "plan_round", "request", "roles_seq", "plan_seq", "commit", "attempt", "connect")
] + [
    # An echo says that all words of its node were sent.
    (("scanned",), path) for path in (
        ("alarm",), ("proc", "state"), ("proc", "syncs"), ("slots", "events"), ("slots", "hash"),
        ("slots", "marks"), ("plan_round",), ("plans",))
] + [
    # A death is noted before the alarm is raised, and with it why the process ended.
    (("alarm",), ("proc", name)) for name in ("state", "death_round", "leaving")
] + [
    (("proc", "state"), ("proc", name)) for name in ("death_round", "leaving")
] + [
    # The leader of a round stores the words of its decision, then its number; all of it is there
    # when the round is over.
    (("repaired",), path) for path in (
        ("plan_round",), ("roles_seq",), ("plan_seq",), ("request",), ("attempt",), ("replays",),
        ("proc", "state"), ("slots", "replaying"))
] + [
    (("plan_round",), path) for path in (
        ("roles_seq",), ("plan_seq",), ("request",), ("roles", "slot_proc"),
        ("roles", "checksum_proc"), ("roles", "slot_group"), ("plans",), ("causal",))
] + [
    (("request",), ("plans",)), (("plan_seq",), ("plans",)),
    (("roles_seq",), ("roles", "slot_proc")), (("roles_seq",), ("roles", "checksum_proc")),
] + [
    # A version is committed when all have staged it, summed it, and taken their marks.
    (("commit",), path) for path in (
        ("proc", "staged"), ("proc", "summed"), ("slots", "marks"))
] + [
    (("proc", "staged"), ("proc", name)) for name in ("blocks", "bytes", "dirty_bytes")
] + [
    (("proc", "ready"), ("proc", "blocks")), (("proc", "arrived"), ("slots", "marks")),
    (("slots", "events"), ("slots", "hash")), (("slots", "events"), ("slots", "atomic_done")),
]


@pytest.mark.parametrize("first,later", PUBLISHED,
                         ids=[f"{'.'.join(a)}-{'.'.join(b)}" for a, b in PUBLISHED])
def test_what_publishes_comes_first(tmp_path: Path, first: tuple[str, ...],
                                    later: tuple[str, ...]) -> None:
    """Law: whoever sees a word that says "it is done" sees what was done: it stands before all of
    that in the list."""
    made = Made(tmp_path, Shape(5, 3, 2))
    used = {"slot_proc": made.ctl.nslots, "slot_group": made.ctl.nslots,
            "checksum_proc": made.ctl.nchecksums}
    own = first[0] == later[0] and first != MET  # a process's, or slot's, words about itself
    firsts = list(made.each(first))
    for i, path in enumerate(made.each(later)):
        words = made.words(*path)[: (used.get(str(path[-1]), 1 << 20) + 1) // 2]
        for publisher in firsts[i : i + 1] if own else firsts:
            word = made.words(*publisher)[0]
            assert all(made.places[word] < made.places[each] for each in words), publisher


def test_what_is_each_nodes_own_is_not_mirrored(made: Made) -> None:
    """Law: clocks, what a process says of its calls, and who waits for whom stay where they are."""
    own = [("slots", "clock"), ("proc", "calls"), ("magic",), ("supervisor",), ("start_ns",),
           ("slots", "peak_bytes"), ("log_bytes",), ("nodes",)]
    for path in own:
        for each in made.each(path):
            assert not made.places.keys() & set(made.words(*each)), each


def test_clocks_are_those_of_the_slots(made: Made) -> None:
    """Law: at the places that agents are told each slot's clock is found."""
    first, step = mirrored.clocks()
    for slot in range(made.shape.slots):
        made.ctl.slots[slot].clock = 1000 + slot
    content = made.path.read_bytes()
    for slot in range(made.shape.slots):
        assert struct.unpack_from("<Q", content, first + step * slot)[0] == 1000 + slot
