"""Seats roles on processes so that no broken element costs a group more than it survives.

A group survives the loss of m members. It is *t-aware* up to a level (eq. (6) of section 5) if no
element at that level or below holds more than m of its members: then the failure of a single
element is no catastrophe. `place` seats all roles t-aware, `level_held` says up to which level a
given seating is t-aware, and `choose_spare` seats a lost role anew.

Elements are nested, so a bound that holds at a level holds below it, and only the level asked for
matters. The task is then to place the s members of each group in elements with room for c_e
processes, at most t of them in one element. Group by group, each member takes a place in the
element that has the most room left. This is complete: if any seating exists, it finds one. (Suppose
that some seating uses element a for the group where ours takes b. If b has room left in that
seating, move the member there. Otherwise, since b had at least as much room left as a, the other
groups have more members in b than in a, so one of them can exchange a place in b for one in a. Step
by step that seating becomes ours, without violating any bound.)

`place` tries t = 1 first (pairwise different elements, as eq. (6) is printed), then more up to
t = m, which the text of the paper demands and the erasure code survives.

Slots are numbered in the order of processes, so that neighbours in the program are neighbours on
the machine. Taking from the fullest element leaves the spares spread out evenly, and the checksum
ranks of different groups are put on different nodes as far as possible, since each receives what
all its group's members send.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import zip_longest

from .topology import NO_LEVEL, Domains, Layout, listed


@dataclass(frozen=True)
class Placement:
    """A seating: the process of each role.

    Attributes:
        layout: the layout, with the table of groups that belongs to this seating.
        slot_proc: the process of each slot, in rising order.
        checksum_proc: the process of each checksum rank.
        spares: the other processes, in rising order.
        held: the highest level at which eq. (6) holds, "none" if at no level.
        together: the largest number of members of one group that share an element at that level: 1
            to m. A failure of that element uses up so much of the group's strength.
        shortfall: why `held` is below the level asked for, and the remedy; empty if it is not
            below.
    """

    layout: Layout
    slot_proc: tuple[int, ...]
    checksum_proc: tuple[int, ...]
    spares: tuple[int, ...]
    held: str = NO_LEVEL
    together: int = 1
    shortfall: str = ""


def place(layout: Layout, domains: Domains, aware: str) -> Placement:
    """Seat all roles so that eq. (6) holds up to a level, or else up to the highest possible level.

    Args:
        layout: how many of each role there are, and the groups' sizes. The slots of each group are
            chosen here, except with aware="none", where roles and groups stay as they are.
        domains: domains of all layout.processes processes.
        aware: the level asked for, "none" or one of domains.levels.

    Raises:
        ValueError: there is no such level.

    Source: Besta & Hoefler, section 5.1, eq. (6).
    """
    assert len(domains.paths) == layout.processes
    asked = domains.height(aware)
    if not asked:
        slots, seats = layout.slots, layout.slots + layout.checksums
        chosen = Placement(
            layout, tuple(range(slots)), tuple(range(slots, seats)),
            tuple(range(seats, layout.processes)),
        )
    else:
        chosen = _seated(layout, domains, _spread(layout, domains, asked))
    held = level_held(chosen.layout, chosen.slot_proc, chosen.checksum_proc, domains)
    height = domains.height(held)
    if height:
        inside = _inside(chosen.layout, chosen.slot_proc, chosen.checksum_proc, domains, height)
        chosen = replace(chosen, held=held, together=max(len(names) for _, _, names in inside))
    if height >= asked:
        return chosen
    return replace(chosen, shortfall=_shortfall(chosen, domains, asked))


def level_held(
    layout: Layout, slot_proc: Sequence[int], checksum_proc: Sequence[int], domains: Domains
) -> str:
    """Return the highest level up to which eq. (6) holds: no element has over m of a group.

    Args:
        layout: the layout with the groups in force.
        slot_proc, checksum_proc: the process of each role, -1 for a vacant one.
        domains: of all processes.
    """
    held = NO_LEVEL
    for height, level in enumerate(domains.levels, 1):
        inside = _inside(layout, slot_proc, checksum_proc, domains, height)
        if any(len(names) > layout.strength for _, _, names in inside):
            break
        held = level
    return held


def choose_spare(
    lost: int, others: Iterable[int], spares: Sequence[int], strength: int, domains: Domains,
    aware: str, *, home: bool = False,
) -> int:
    """Return the spare that takes a lost role: by eq. (6) first, then the nearest, then the lowest.

    The nearest spare is preferred to one with fewer members of the group near it, since a slot can
    be replayed on its own node. With `home` a spare on the lost process's node is preferred even to
    eq. (6): if eq. (6) does not hold with it, it did not hold before the loss either.

    Args:
        lost: the process that held the role.
        others: processes that hold the other roles of its group, without those that are also lost.
        spares: processes to choose from, at least one.
        strength: m, the losses that the group survives.
        domains: of all processes.
        aware: the level up to which eq. (6) is wanted; above it only nearness counts.
        home: prefer a spare on the lost process's node to all others.
    """
    paths, asked = domains.paths, domains.height(aware)
    # Members of the group in each element, for each level from the top one wanted downward.
    counts = [Counter(paths[p][i] for p in others) for i in reversed(range(asked))]

    def cost(spare: int) -> tuple[bool, int, int, list[int], int]:
        above = reversed(paths[spare][:asked])
        around = [count[element] for count, element in zip(counts, above, strict=True)]
        crowded = sum(n >= strength for n in around)
        apart = sum(a != b for a, b in zip(paths[spare], paths[lost], strict=True))
        return home and paths[spare][0] != paths[lost][0], crowded, apart, around, spare

    return min(spares, key=cost)


# ---- groups over elements -------------------------------------------------------------------


def _spread(layout: Layout, domains: Domains, asked: int) -> list[list[int]]:
    """Return each group's processes, t-aware up to `asked` levels or as many as possible."""
    sizes = [len(layout.members(g)) + layout.strength for g in range(layout.groups)]
    order = _interleaved(range(layout.processes), domains.paths, len(domains.levels))
    for height in range(asked, 0, -1):
        rooms: dict[str, list[int]] = defaultdict(list)
        for process in order:
            rooms[domains.paths[process][height - 1]].append(process)
        room = [len(processes) for processes in rooms.values()]
        limits = range(1, layout.strength + 1)
        # A larger limit is never harder to keep, so the smallest one is found by bisection.
        at = bisect_left(limits, True, key=lambda limit: _assign(sizes, room, limit) is not None)
        if at < len(limits) or height == 1:
            # At the level of nodes members may share a node, but they are still spread evenly.
            limit = limits[at] if at < len(limits) else max(sizes)
            break
    assigned = _assign(sizes, room, limit)
    assert assigned is not None
    queues = [iter(processes) for processes in rooms.values()]
    return [[next(queues[element]) for element in group] for group in assigned]


def _assign(sizes: Sequence[int], room: Sequence[int], limit: int) -> list[list[int]] | None:
    """Give each group elements for its members, at most `limit` times the same one.

    Args:
        sizes: members of each group.
        room: processes in each element.

    Returns:
        For each group the element of each member; None if and only if it is impossible.
    """
    heap = [(-left, element) for element, left in enumerate(room)]
    heapify(heap)
    groups = []
    for size in sizes:
        group: list[int] = []
        taken: Counter[int] = Counter()
        full = []
        for _ in range(size):
            if not heap or heap[0][0] == 0:
                return None
            left, element = heappop(heap)
            group.append(element)
            taken[element] += 1
            if taken[element] == limit:
                full.append((left + 1, element))
            else:
                heappush(heap, (left + 1, element))
        for entry in full:
            heappush(heap, entry)
        groups.append(group)
    return groups


def _interleaved(
    processes: Iterable[int], paths: Sequence[tuple[str, ...]], height: int
) -> list[int]:
    """Order processes so that neighbours in the order are far apart in the machine."""
    if height == 0:
        return list(processes)
    parts: dict[str, list[int]] = defaultdict(list)
    for process in processes:
        parts[paths[process][height - 1]].append(process)
    turns = zip_longest(*(_interleaved(part, paths, height - 1) for part in parts.values()))
    return [process for turn in turns for process in turn if process is not None]


def _seated(layout: Layout, domains: Domains, groups: list[list[int]]) -> Placement:
    """Choose the checksum ranks among each group's processes, and number slots by process."""
    serving: Counter[str] = Counter()  # checksum ranks on each node
    group_of: dict[int, int] = {}
    checksum_proc: list[int] = []
    for group, processes in enumerate(groups):
        rest, chosen = set(processes), []
        for _ in range(layout.strength):
            best = min(rest, key=lambda p: (serving[domains.paths[p][0]], -p))
            serving[domains.paths[best][0]] += 1
            rest.remove(best)
            chosen.append(best)
        checksum_proc += sorted(chosen)
        group_of |= dict.fromkeys(rest, group)
    slot_proc = sorted(group_of)
    busy = group_of.keys() | set(checksum_proc)
    return Placement(
        replace(layout, slot_group=tuple(group_of[p] for p in slot_proc)),
        tuple(slot_proc),
        tuple(checksum_proc),
        tuple(p for p in range(layout.processes) if p not in busy),
    )


# ---- eq. (6) ---------------------------------------------------------------------------------


def _inside(
    layout: Layout, slot_proc: Sequence[int], checksum_proc: Sequence[int], domains: Domains,
    height: int,
) -> Iterator[tuple[int, str, list[str]]]:
    """Yield a group, an element of a level, and the roles of the group in that element."""
    for group in range(layout.groups):
        roles = [(f"slot {s}", slot_proc[s]) for s in layout.members(group)]
        roles += [(f"checksum {c}", checksum_proc[c]) for c in layout.checksums_of(group)]
        inside: dict[str, list[str]] = defaultdict(list)
        for name, process in roles:
            if process >= 0:
                inside[domains.paths[process][height - 1]].append(name)
        for element, names in inside.items():
            yield group, element, names


def _shortfall(placed: Placement, domains: Domains, asked: int) -> str:
    """Say in words why the level asked for cannot be kept, and what helps."""
    layout, level, held = placed.layout, domains.level(asked), placed.held
    first_missed = domains.height(held) + 1
    inside = _inside(layout, placed.slot_proc, placed.checksum_proc, domains, first_missed)
    group, element, names = next(found for found in inside if len(found[2]) > layout.strength)
    holds = f"holds up to {held} only" if held != NO_LEVEL else "holds at no level"
    where = f"{element} ({domains.level(first_missed)})"
    story = (
        f"--aware {level} {holds}: group {group} has {len(names)} members in {where}, "
        f"{listed(names)}, and survives the loss of {layout.strength}"
    )
    return f"{story}; {_remedy(layout, domains, asked)}"


def _remedy(layout: Layout, domains: Domains, asked: int) -> str:
    """Say what would make room: smaller groups, or processes spread more evenly."""
    level, strength = domains.level(asked), layout.strength
    room = Counter(path[asked - 1] for path in domains.paths)
    most = strength * len(room)  # most members that a group can have in these elements
    largest = layout.group_size + strength
    if len(room) == 1:
        return f"all processes run in one of the {level}: start them on more"
    if largest > most:
        size = most - strength
        groups = -(-layout.slots // size)
        return (
            f"its {largest} members would need {-(-largest // strength)} {level} and there are "
            f"{len(room)}: use --group-size {size} with --checksums {groups * strength}, or more "
            f"{level}"
        )
    fewest, fullest = min(room, key=room.__getitem__), max(room, key=room.__getitem__)
    return (
        f"the {level} have from {room[fewest]} processes ({fewest}) to {room[fullest]} "
        f"({fullest}): start equally many on each, or use a smaller --group-size"
    )
