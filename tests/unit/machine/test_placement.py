"""Placement by property: eq. (6) holds as high as brute force can make it hold, and stays so."""

from __future__ import annotations

import time
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ftrma.machine.placement import Placement, choose_spare, level_held, place
from ftrma.machine.topology import Domains, Layout, domains_of_nodes, make_layout

LEVELS = ("nodes", "switches", "racks")


def machine(racks: list[list[list[int]]]) -> Domains:
    """Domains of a machine given as racks of switches of nodes with so many processes each."""
    paths = []
    for r, switches in enumerate(racks):
        for s, nodes in enumerate(switches):
            for n, processes in enumerate(nodes):
                paths += [(f"n{r}.{s}.{n}", f"s{r}.{s}", f"r{r}")] * processes
    return Domains(LEVELS, tuple(paths))


@st.composite
def jobs(draw: st.DrawFn, most: int = 10) -> tuple[Layout, Domains]:
    """A layout, and a machine of uneven parts on which its processes run in any order."""
    slots = draw(st.integers(1, most - 3))
    group_size = draw(st.integers(1, slots))
    groups = -(-slots // group_size)
    strength = draw(st.integers(1, 3))
    assume(slots + strength * groups <= most)
    spares = draw(st.integers(0, most - slots - strength * groups))
    layout = make_layout(slots, strength * groups, group_size, spares)
    nodes = draw(st.integers(1, layout.processes))
    node_switch = sorted(draw(st.lists(st.integers(0, 5), min_size=nodes, max_size=nodes)))
    paths = tuple(
        (f"n{n}", f"s{node_switch[n]}", f"r{node_switch[n] // 2}")
        for n in draw(
            st.lists(st.integers(0, nodes - 1), min_size=layout.processes,
                     max_size=layout.processes)
        )
    )
    return layout, Domains(LEVELS, paths)


def members_of(placed: Placement) -> list[list[int]]:
    layout = placed.layout
    return [
        [placed.slot_proc[s] for s in layout.members(g)]
        + [placed.checksum_proc[c] for c in layout.checksums_of(g)]
        for g in range(layout.groups)
    ]


def most_in_one(groups: list[list[int]], domains: Domains, level: int) -> int:
    return max(max(Counter(domains.paths[p][level] for p in g).values()) for g in groups)


def possible(sizes: list[int], domains: Domains, level: int, limit: int) -> bool:
    """Try all seatings for one with at most `limit` of a group in one element."""

    def seat(rest: list[int], left: Counter[str]) -> bool:
        if not rest:
            return True
        # Processes of one element are alike, so only how many each gives is tried.
        ways = set(combinations(sorted(left.elements()), rest[0]))
        return any(max(Counter(way).values()) <= limit and seat(rest[1:], left - Counter(way))
                   for way in ways)

    return seat(sizes, Counter(path[level] for path in domains.paths))


@given(jobs(30), st.sampled_from(["none", *LEVELS]))
def test_every_process_has_one_role(job: tuple[Layout, Domains], aware: str) -> None:
    """Law: each process is a slot, a checksum rank or a spare; counts and group sizes are those
    asked for; slots are numbered in the order of processes."""
    layout, domains = job
    placed = place(layout, domains, aware)
    everybody = [*placed.slot_proc, *placed.checksum_proc, *placed.spares]
    assert sorted(everybody) == list(range(layout.processes))
    assert (len(placed.slot_proc), len(placed.checksum_proc)) == (layout.slots, layout.checksums)
    assert list(placed.slot_proc) == sorted(placed.slot_proc)
    for group in range(layout.groups):
        assert len(placed.layout.members(group)) == len(layout.members(group))
    assert place(layout, domains, aware) == placed


@given(jobs(), st.integers(0, 2))
def test_holds_as_high_as_any_seating_could(job: tuple[Layout, Domains], asked: int) -> None:
    """Law: the level held is the highest, up to the one asked for, at which brute force finds a
    seating with at most m of a group in an element; and if one with pairwise different elements
    exists there, ours is one. Otherwise the shortfall is told."""
    layout, domains = job
    placed = place(layout, domains, LEVELS[asked])
    groups = members_of(placed)
    sizes = [len(g) for g in groups]
    best = max((i for i in range(asked + 1) if possible(sizes, domains, i, layout.strength)),
               default=-1)
    assert min(domains.height(placed.held), asked + 1) == best + 1
    assert bool(placed.shortfall) == (best < asked)
    if best >= 0:
        most = most_in_one(groups, domains, best)
        assert most <= layout.strength
        assert not any(possible(sizes, domains, best, t) for t in range(1, most))


@given(jobs(30), st.sampled_from(LEVELS))
def test_level_held_is_eq_6(job: tuple[Layout, Domains], aware: str) -> None:
    """Law: at the level held and below no element has more than m of a group, and at the next
    level some element has."""
    layout, domains = job
    placed = place(layout, domains, aware)
    crowd = [most_in_one(members_of(placed), domains, i) for i in range(3)]
    height = domains.height(placed.held)
    assert all(n <= layout.strength for n in crowd[:height])
    assert all(n > layout.strength for n in crowd[height : height + 1])
    assert placed.together == (crowd[height - 1] if height else 1)


@given(jobs(30))
def test_vacant_roles_do_not_count(job: tuple[Layout, Domains]) -> None:
    """Law: with all but m roles of each group vacant, eq. (6) holds everywhere."""
    layout, domains = job
    slot_proc = [-1] * layout.slots
    checksum_proc = list(range(layout.checksums))
    assert level_held(layout, slot_proc, checksum_proc, domains) == LEVELS[-1]


@pytest.mark.parametrize(
    ("aware", "groups", "machine_", "held", "words"),
    [
        # One group of 3 and its checksum rank, on 4 nodes under 2 switches.
        ("switches", [3], [[[1, 1], [1, 1]]], "nodes",
         ["--aware switches holds up to nodes only", "group 0 has 2 members in s0.0 (switches)",
          "slot 0 and slot 1", "survives the loss of 1", "need 4 switches and there are 2",
          "use --group-size 1 with --checksums 3"]),
        ("racks", [3], [[[1, 1], [1, 1]]], "nodes", ["all processes run in one of the racks"]),
        ("nodes", [3], [[[4]]], "none", ["--aware nodes holds at no level", "one of the nodes"]),
        ("nodes", [2, 2, 1], [[[5, 1, 2]]], "none",
         ["from 1 processes (n0.0.1) to 5 (n0.0.0)", "start equally many on each"]),
    ],
)
def test_shortfall_in_words(
    aware: str, groups: list[int], machine_: list[list[list[int]]], held: str, words: list[str]
) -> None:
    """Law: what cannot be kept is told with level, group, element, members and remedy."""
    layout = make_layout(sum(groups), group_size=groups[0], spares=0)
    placed = place(layout, machine(machine_), aware)
    assert placed.held == held
    for part in words:
        assert part in placed.shortfall
    assert "\n" not in placed.shortfall


def test_the_remedy_helps() -> None:
    """Law: with the group size that the shortfall names, the level holds."""
    hosts = [f"n{i % 4}" for i in range(40)]
    layout = make_layout(32, 4, spares=4)
    assert "--group-size 3 with --checksums 11" in place(
        layout, domains_of_nodes(hosts), "nodes"
    ).shortfall
    better = make_layout(32, 11, 3, spares=1)
    hosts = [f"n{i % 4}" for i in range(better.processes)]
    assert place(better, domains_of_nodes(hosts), "nodes").held == "nodes"


def test_four_full_nodes_by_hand() -> None:
    """Law: 12 slots on 4 nodes of 4 stay together in their order, with one checksum rank each."""
    placed = place(make_layout(12, 4, spares=0),
                   domains_of_nodes([f"n{p // 4}" for p in range(16)]), "nodes")
    assert placed.held == "nodes" and not placed.shortfall
    assert Counter(p // 4 for p in placed.checksum_proc) == dict.fromkeys(range(4), 1)
    assert [p // 4 for p in placed.slot_proc] == sorted([0, 1, 2, 3] * 3)


def test_two_losses_on_three_nodes() -> None:
    """Law: with m = 2 a node may hold two members of a group, since their loss is survived."""
    domains = domains_of_nodes(["a", "a", "b", "b", "c", "c"])
    assert place(make_layout(4, 2, 4, spares=0), domains, "nodes").held == "nodes"
    assert place(make_layout(5, 1, 5, spares=0), domains, "nodes").held == "none"


@given(st.integers(2, 12), st.integers(1, 6), st.data())
def test_spares_on_every_node_keep_it_after_any_repair(
    nodes: int, groups: int, data: st.DataObject
) -> None:
    """Law: on evenly filled nodes with as many spares as nodes, any one lost role finds a spare
    that keeps eq. (6)."""
    size = data.draw(st.integers(1, nodes - 1))
    members = groups * (size + 1)
    spares = nodes + -members % nodes
    layout = make_layout(groups * size, groups, size, spares)
    hosts = data.draw(st.permutations([f"n{p % nodes}" for p in range(layout.processes)]))
    domains = domains_of_nodes(list(hosts))
    placed = place(layout, domains, "nodes")
    assert placed.held == "nodes"
    for group in members_of(placed):
        for lost in group:
            others = [p for p in group if p != lost]
            spare = choose_spare(lost, others, placed.spares, 1, domains, "nodes")
            assert hosts[spare] not in {hosts[p] for p in others}
            assert hosts[spare] == hosts[lost]  # the nearest


@given(jobs(20), st.sampled_from(["none", *LEVELS]), st.data())
def test_no_other_spare_keeps_more_or_is_nearer(
    job: tuple[Layout, Domains], aware: str, data: st.DataObject
) -> None:
    """Law: no spare leaves eq. (6) valid to a higher level (up to the one asked for); among those
    as good none is nearer; and among those none leaves fewer of the group together."""
    layout, domains = job
    assume(layout.spares)
    processes = list(data.draw(st.permutations(range(layout.processes))))
    spares = processes[layout.slots + layout.checksums :]
    strength = data.draw(st.integers(1, 3))
    others, lost = processes[: layout.slots - 1], processes[layout.slots - 1]
    asked = domains.height(aware)

    def quality(spare: int) -> tuple[int, int, list[int]]:
        path = domains.paths[spare]
        group = [*others, spare]
        with_spare = [sum(domains.paths[p][i] == path[i] for p in group) for i in range(3)]
        held = next((i for i in range(asked) if with_spare[i] > strength), asked)
        near = sum(a == b for a, b in zip(path, domains.paths[lost], strict=True))
        return held, near, [-n for n in reversed(with_spare[:asked])]

    chosen = choose_spare(lost, others, spares, strength, domains, aware)
    assert chosen in spares and quality(chosen) == max(map(quality, spares))


@given(jobs(20), st.sampled_from(["none", *LEVELS]), st.data())
def test_an_own_place_comes_before_all(
    job: tuple[Layout, Domains], aware: str, data: st.DataObject
) -> None:
    """Law: with `home` a spare on the lost one's node is taken, if there is one, whatever else
    holds; else the one that is taken without."""
    layout, domains = job
    assume(layout.spares)
    processes = list(data.draw(st.permutations(range(layout.processes))))
    lost, *others = processes[: layout.slots]
    spares = processes[layout.slots + layout.checksums :]
    given = lost, others, spares, data.draw(st.integers(1, 3)), domains, aware
    chosen, own = choose_spare(*given, home=True), domains.paths[lost][0]
    if any(domains.paths[p][0] == own for p in spares):
        assert domains.paths[chosen][0] == own
    else:
        assert chosen == choose_spare(*given)


@pytest.mark.parametrize(
    ("slots", "group_size", "strength"), [(2000, 20, 3), (6000, 15, 1), (6000, 2, 2)]
)
def test_thousands_of_processes(slots: int, group_size: int, strength: int) -> None:
    """Law: a large job is placed at once, since nothing is searched (0.1 s, measured)."""
    groups = slots // group_size
    layout = Layout(slots, strength * groups, groups, group_size,
                    tuple(s // group_size for s in range(slots)))
    paths = tuple((f"n{p // 8}", f"s{p // 128}", f"r{p // 256}") for p in range(layout.processes))
    domains = Domains(LEVELS, paths)
    began = time.monotonic()
    placed = place(layout, domains, "switches")
    assert domains.height(placed.held) >= 2 and time.monotonic() - began < 10
