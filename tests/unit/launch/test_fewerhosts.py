"""On the hosts that are left a job goes on with all, or with less: decisions, and what is told."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.fabric import story
from ftrma.fabric.story import Checkpoint, Degraded
from ftrma.host.errors import NotRecoverable
from ftrma.host.key import Key
from ftrma.launch import failover, mpirun, nexthosts, supervisor
from ftrma.launch.connections import Peer
from ftrma.launch.fewerhosts import Room, fit, shares
from ftrma.launch.job import Cause, Job
from ftrma.launch.rankstate import RankState
from ftrma.launch.relays import hosts_of_ranks, slots_of_hosts
from ftrma.launch.severalnodes import SeveralNodes
from ftrma.launch.stats import summary
from ftrma.machine.topology import Layout, make_layout
from ftrma.native import loading
from ftrma.settings.options import Options, split_mpirun

SLOTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1)


@pytest.fixture(autouse=True)
def no_batch_system(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in mpirun.BATCH_SYSTEMS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(mpirun, "default_hostfiles", lambda: [])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    slots, size = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    groups = -(-slots // min(size, slots))
    return make_layout(slots, groups * draw(st.integers(1, 4)), size, draw(st.integers(0, 5)))


@given(layouts(), st.integers(0, 60))
def test_spares_are_given_up_before_checksum_ranks(layout: Layout, room: int) -> None:
    """Law: slots and groups stay, processes fit, and no process more could have been kept; no
    checksum rank is given up for a spare; nothing is left only where one of each group is too
    many."""
    found = fit(layout, room)
    if found is None:
        assert room < layout.slots + layout.groups
        return
    assert (found.slots, found.groups, found.slot_group) == (
        layout.slots, layout.groups, layout.slot_group)
    assert 1 <= found.strength <= layout.strength and 0 <= found.spares <= layout.spares
    assert found.strength + found.weakened == layout.strength and found.processes <= room
    if found.strength < layout.strength:
        assert room < layout.slots + layout.groups * (found.strength + 1)
    if found.spares < layout.spares:
        assert found.processes == room
    assert [one.strength for one in found.former()] == [
        *range(found.strength + 1, layout.strength + 1)]


@given(SLOTS, st.integers(1, 60))
def test_free_slots_are_taken_first(slots: dict[str, int], processes: int) -> None:
    """Law: all processes have a host; no host has more than its slots while another has a free
    one; those that have free slots have equally many, but for one; the launcher's options say so.
    """
    taken = shares(slots, processes)
    assert sum(taken.values()) == processes and [*taken] == [*slots]
    crowded = any(taken[host] > slots[host] for host in slots)
    free = [taken[host] for host in slots if taken[host] < slots[host]]
    assert not (crowded and free)
    assert all(number <= min(free) + 1 for number in taken.values()) if free else True
    words = Room(slots).words_on(["--host", "x:1", "--verbose"], processes, [*slots])
    assert words[0] == "--verbose"
    assert Counter(hosts_of_ranks(words, processes)) == Counter(taken)


@pytest.mark.parametrize(("words", "slots"), [
    ("--host a:2,b:3", {"a": 2, "b": 3}), ("-H a,b:2,a", {"a": 2, "b": 2}),
    ("--host a,b --map-by ppr:2:node", {"a": 2, "b": 2}),
    ("--host a:4,b:4 --map-by ppr:2:node:oversubscribe", {"a": 4, "b": 4}),
    ("--host a:4,b -N 3", {"a": 4, "b": 3}), ("--host a:2 --host b:2", None), ("", None),
    ("--host a:2,b:relative", None), ("--hostfile FILE", {"c": 2, "d": 1}),
    ("--hostfile FILE2", None), ("--hostfile FILE2 --map-by ppr:3:node", {"c": 3}),
])
def test_slots_of_hosts(words: str, slots: dict[str, int] | None, tmp_path: Path) -> None:
    """Law: they are those of the options; unknown where these say them in another way."""
    (tmp_path / "FILE").write_text("c slots=2\nd slots=1\n")
    (tmp_path / "FILE2").write_text("c\n")
    given = words.replace("FILE", f"{tmp_path}/FILE")
    assert slots_of_hosts(split_mpirun(given)) == slots


def test_a_batch_system_has_its_own_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert slots_of_hosts(["--host", "a:2"]) is None


LAYOUT = make_layout(4, checksums=2, group_size=4, spares=1)


@pytest.mark.parametrize(("slots", "oversubscribe", "told", "processes"), [
    ({"a": 4, "b": 3}, False, "", 7),
    ({"a": 3, "b": 3}, False, "degraded: a and b have 6 slots: the job goes on with 0 of 1 spares",
     6),
    ({"a": 5}, False, "degraded: a has 5 slots: the job goes on with 0 of 1 spares and 1 of 2 "
     "checksum ranks for each group", 5),
    ({"a": 3, "b": 3}, True, "a and b have 6 slots for 7 processes now (--oversubscribe)", 7),
    (None, False, "", 7), ({"c": 1}, False, "", 7),
])
def test_what_is_told(
    slots: dict[str, int] | None, oversubscribe: bool, told: str, processes: int
) -> None:
    """Law: one line says what is lacking; nothing is given up where slots are not known."""
    hosts, room = [*slots] if slots and "c" not in slots else ["a", "b"], Room(slots, oversubscribe)
    found = room.layout_on(LAYOUT, hosts)
    assert found.processes == processes and room.told(LAYOUT, found, hosts) == told


def test_a_job_that_needs_one_host_takes_the_largest() -> None:
    room = Room({"a": 2, "b": 5, "c": 5}, oversubscribe=False)
    found = room.layout_on(LAYOUT, ["a", "b", "c"], True)
    assert (found.checksums, found.spares) == (1, 0)
    assert room.told(LAYOUT, found, ["a", "b", "c"], True).startswith("degraded: b has 5 slots: ")
    assert room.words_on([], 5, ["a", "b", "c"], True)[:2] == ["--host", "b:5,a:5,c:5"]


def test_no_room_names_the_remedy() -> None:
    with pytest.raises(NotRecoverable, match="a and b have 4 slots, and the job needs 5 processes "
                       "without its spares: --oversubscribe yes"):
        Room({"a": 2, "b": 2}, oversubscribe=False).layout_on(LAYOUT, ["a", "b"])


@pytest.mark.parametrize(("words", "oversubscribe", "wrong"), [
    ("--host a:4,b:3", "no", ""), ("--host a:4,b:2", "yes", ""),
    ("--host a:4,b:2", "no", "6 slots"), ("--hostfile nowhere", "no", "how many slots"),
    ("--hostfile nowhere", "yes", "")])
def test_hosts_that_are_too_small_are_refused(words: str, oversubscribe: str, wrong: str) -> None:
    options = Options(mpirun=words, oversubscribe=oversubscribe)
    if not wrong:
        supervisor.check_room(options, LAYOUT)
        return
    with pytest.raises(ValueError, match=f"--oversubscribe no: .*{wrong}"):
        supervisor.check_room(options, LAYOUT)


def test_a_job_goes_on_with_less(tmp_path: Path) -> None:
    """Law: ranks of the next launch are told of fewer checksum ranks and spares, and of how many
    were given up in all; so are the stats, whose layout is that of the beginning."""
    loading.load()
    options = Options(slots=4, checksums=2, group_size=4, spares=1)
    made = Job(tmp_path, Key.make(), LAYOUT, options, ["x.py"])
    made.go_on_with(["--host", "a:7"], LAYOUT)
    assert not [*story.read(tmp_path)]
    weaker = fit(LAYOUT, 5)
    assert weaker
    made.go_on_with(["--host", "a:5"], weaker)
    assert made.options.layout() == make_layout(4, checksums=1, group_size=4, spares=0)
    assert [*story.read(tmp_path)] == [Degraded(1, 0, 2, 1, 1)]
    assert failover.past(tmp_path, options)["weakened"] == 1
    stats = summary(story.read(tmp_path), made.first_layout, 0)
    assert stats["checksums"] == 2 and stats["degraded"][0]["checksums"] == 1


# ---- where vaults are that were made with more checksum ranks ---------------------------------

NOW = {("slot", 0): "a", ("checksum", 1): "b"}
FORMER = (("slot", 0, "a"), ("checksum/3", 5, "c"))


@pytest.mark.parametrize(("entered", "before", "weaker", "homes"), [
    (True, (), False, {("slot", 0, "a"), ("checksum", 1, "b")}),
    (True, (), True, {("slot", 0, "a"), ("checksum/2", 1, "b")}),
    (True, FORMER, False, {("slot", 0, "a"), ("checksum", 1, "b")}),
    (False, FORMER, False, {("slot", 0, "a"), ("checksum", 1, "b"), ("checksum/3", 5, "c")}),
    (False, FORMER, True, {("slot", 0, "a"), ("checksum/2", 1, "b"), ("checksum/3", 5, "c")}),
])
def test_homes_of_parities_of_another_code(
    entered: bool, before: tuple[tuple[str, int, str], ...], weaker: bool,
    homes: set[tuple[str, int, str]],
) -> None:
    """Law: a launch with fewer checksum ranks knows those before by another name, until one has
    entered the program with its own."""
    control = SeveralNodes.__new__(SeveralNodes)
    cause = Cause("", (), 0.0, 0.0, homes=before)
    control.rank_links = SimpleNamespace(cause=cause)  # type: ignore[assignment]
    known = {(kind, index): host for kind, index, host in before}
    control.ranks = RankState(homes={**known, **NOW}, entered=entered)
    assert control.homes_of_vaults(LAYOUT, weaker=weaker) == homes


@pytest.mark.parametrize(("entered", "lost", "needed"), [
    (False, {"b"}, False), (False, {"b", "c"}, True), (True, {"b"}, True)])
def test_what_is_needed_before_the_new_parities_are_there(
    entered: bool, lost: set[str], needed: bool
) -> None:
    """Law: so long as a launch has not entered the program the losses count that the former
    checksum ranks stand."""
    weaker = LAYOUT.with_strength(1)
    homes = {("slot", 0): "a", ("slot", 1): "a", ("slot", 2): "b", ("slot", 3): "b",
             ("checksum/2", 0): "a", ("checksum/2", 1): "c"}
    links: Any = SimpleNamespace(
        ranks=RankState(homes=homes, entered=entered, links={
            rank: Peer(socket.socket(), "link", host=host) for rank, host in enumerate("abc")}),
        read_story=lambda: [Checkpoint(1, "coordinated", 0.5, 80, 8)], cause=None)
    assert nexthosts.are_needed(links, lost, weaker) == needed
