"""Seating: `protocol.seating` by property, without MPI."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from ftrma.machine.topology import Layout, domains_of_nodes, make_layout
from ftrma.protocol.salvage import roles_of
from ftrma.protocol.seating import Seating, next_checksum_seat, seat_launch, seat_spares


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    slots, size = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    groups = -(-slots // min(size, slots))
    layout = make_layout(slots, groups * draw(st.integers(1, 2)), size, draw(st.integers(0, 3)))
    return dataclasses.replace(layout, slot_group=tuple(draw(st.permutations(layout.slot_group))))


@st.composite
def seatings(draw: st.DrawFn) -> Seating:
    """Any seats of a job, on one node or several; whoever is dead is dead."""
    layout = draw(layouts())
    procs = draw(st.permutations(range(layout.processes)))
    held = layout.slots + layout.checksums
    alive = frozenset(p for p in procs if draw(st.sampled_from([True, True, False])))
    nodes = draw(st.lists(st.sampled_from("abc"), min_size=len(procs), max_size=len(procs)))
    several = draw(st.booleans())
    return Seating(
        slot_proc=procs[: layout.slots],
        checksum_proc=procs[layout.slots : held],
        slot_group=layout.slot_group,
        strength=layout.strength,
        alive=alive,
        ready=alive & frozenset(procs[:held]),
        spares=sorted(alive & frozenset(procs[held:])),
        domains=domains_of_nodes(nodes) if several else None,
        aware="nodes" if several else "none",
    )


def holders(now: Seating) -> list[int]:
    return [*now.slot_proc, *now.checksum_proc]


@given(seatings())
def test_vacant_roles_get_spares_and_no_others_move(now: Seating) -> None:
    """Law: every role has a living process, no process has two, survivors stay; it fails if and
    only if there are fewer spares than vacant roles."""
    vacant = [p for p in holders(now) if p not in now.alive]
    seated = seat_spares(now)
    assert (seated is None) == (len(vacant) > len(now.spares))
    if seated is None:
        return
    after = [*seated[0], *seated[1]]
    assert len({*after}) == len(after) and {*after} <= now.alive
    assert all((a == b) == (b in now.alive) for a, b in zip(after, holders(now), strict=True))


@given(seatings())
def test_the_first_vacant_checksum_rank_is_next(now: Seating) -> None:
    """Law: while the slots go on one checksum rank after the other is taken; on one node by the
    lowest spare."""
    vacant = [c for c, p in enumerate(now.checksum_proc) if p not in now.alive]
    chosen = next_checksum_seat(now)
    if not vacant or not now.spares:
        assert chosen is None
    else:
        assert chosen and chosen[0] == vacant[0] and chosen[1] in now.spares
        assert now.domains or chosen[1] == now.spares[0]


@given(seatings())
def test_what_is_lost_is_named_by_group(now: Seating) -> None:
    """Law: each lost role is named once, in its group; on one node nobody is on another."""
    names = [name for lost in now.lost_members().values() for name in lost]
    assert sorted(names) == sorted([f"slot {s}" for s in now.lost_slots]
                                   + [f"checksum {c}" for c in now.lost_checksums])
    assert now.domains or not now.on_different_nodes(0, len(holders(now)) - 1)


def test_a_slot_stays_on_its_node_where_awareness_cannot_hold() -> None:
    """Law: with more members than nodes a slot takes a spare of its own node, where its logs are; a
    checksum rank, which nobody replays, goes where fewer of its group are."""
    now = Seating([0, 1], [2], [0, 0], 1, frozenset({1, 2, 3, 4}), frozenset({1, 2}), [3, 4],
                domains=domains_of_nodes(["a", "a", "a", "a", "b"]), aware="nodes")
    assert seat_spares(now) == ((3, 1), (2,))
    assert now.on_different_nodes(0, 4) and not now.on_different_nodes(0, 3)
    without = dataclasses.replace(now, alive=frozenset({0, 1, 3, 4}), ready=frozenset({0, 1}))
    assert next_checksum_seat(without) == (0, 4)


@given(layouts(), st.data())
def test_roles_go_where_their_vaults_are(layout: Layout, data: st.DataObject) -> None:
    """Law: all seats are held by different processes; a role whose vault was found sits on its
    node, unless more were found there than processes run there."""
    names = ["a", "b", "c"]
    hosts = data.draw(st.lists(st.sampled_from(names), min_size=layout.processes,
                               max_size=layout.processes))
    found = data.draw(
        st.dictionaries(st.sampled_from(roles_of(layout)), st.sampled_from([*names, "gone"]))
    )
    domains = domains_of_nodes(hosts)
    seated = seat_launch(layout, hosts, found, domains, "nodes")
    procs = [*seated.slot_proc, *seated.checksum_proc]
    assert sorted([*procs, *seated.spares]) == list(range(layout.processes))
    if not found:
        return
    assert seated.layout == layout
    at = dict(zip(roles_of(layout), procs, strict=True))
    for host in names:
        here = [r for r, h in found.items() if h == host]
        kept = [r for r in here if hosts[at[r]] == host]
        assert len(kept) >= min(len(here), hosts.count(host))
