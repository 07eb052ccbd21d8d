"""The plan after a failure: `plan.make_plan` by property."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ftrma.host.errors import no_room
from ftrma.machine.topology import domains_of_nodes
from ftrma.native.constants import PlanKind
from ftrma.protocol.plan import IN_PLACE, FailureState, make_plan


@st.composite
def states(draw: st.DrawFn, mild: bool = False) -> FailureState:
    """Any state that a job can be in: seats hold distinct processes, spares hold none.

    Mild ones have two dead at most and spares for them, so that most can go on in place.
    """
    slots = draw(st.integers(1, 8))
    group_size = draw(st.integers(1, slots))
    groups = -(-slots // group_size)
    strength = draw(st.sampled_from([1, 1, 2, 3]))
    seats = slots + groups * strength
    processes = draw(st.permutations(range(seats + draw(st.integers(2 if mild else 0, 4)))))
    if mild:
        alive = frozenset(processes) - draw(st.sets(st.sampled_from(processes), max_size=2))
    else:
        alive = frozenset(p for p in processes if draw(st.sampled_from([True, True, True, False])))
    ready = frozenset(
        p
        for p in processes[:seats]
        if p in alive and (mild or draw(st.sampled_from([True] * 5 + [False])))
    )
    return FailureState(
        slot_proc=list(processes[:slots]),
        checksum_proc=list(processes[slots:seats]),
        slot_group=draw(st.permutations([s // group_size for s in range(slots)])),
        strength=strength,
        alive=alive,
        ready=ready,
        spares=sorted(p for p in processes[seats:] if p in alive),
        committed=draw(st.sampled_from([0, 0, 1, 7])),
        obstacle=draw(st.sampled_from(["", "slot 1 has called MPI_Send"])),
    )


def seats_of(state: FailureState) -> list[int]:
    return [*state.slot_proc, *state.checksum_proc]


def lost_in(state: FailureState, group: int) -> list[str]:
    names = [f"slot {s}" for s, g in enumerate(state.slot_group)
             if g == group and state.slot_proc[s] not in state.ready]
    return names + [f"checksum {c}" for c, p in enumerate(state.checksum_proc)
                    if c // state.strength == group and p not in state.ready]


def catastrophes(state: FailureState) -> list[int]:
    groups = range(len(state.checksum_proc) // state.strength)
    return [g for g in groups if state.committed and len(lost_in(state, g)) > state.strength]


def vacant(state: FailureState) -> list[int]:
    return [i for i, p in enumerate(seats_of(state)) if p not in state.alive]


@given(states(mild=True))
def test_no_process_holds_two_roles(state: FailureState) -> None:
    """Law: all seats of a plan that goes on are held by different, living processes."""
    chosen = make_plan(state)
    assume(chosen.kind in IN_PLACE)
    seats = [*chosen.slot_proc, *chosen.checksum_proc]
    assert len(set(seats)) == len(seats) == len(seats_of(state))
    assert set(seats) <= state.alive


@given(states(mild=True))
def test_survivors_keep_their_seats(state: FailureState) -> None:
    """Law: a seat changes hands if and only if its holder is dead."""
    chosen = make_plan(state)
    assume(chosen.kind in IN_PLACE)
    after = [*chosen.slot_proc, *chosen.checksum_proc]
    for before, now in zip(seats_of(state), after, strict=True):
        assert (before == now) == (before in state.alive)


@given(states(mild=True))
def test_spares_are_seated_lowest_first_and_slots_before_checksums(state: FailureState) -> None:
    """Law: the i-th vacant seat, slots in order and then checksum ranks, gets the i-th spare."""
    chosen = make_plan(state)
    assume(chosen.kind in IN_PLACE)
    after = [*chosen.slot_proc, *chosen.checksum_proc]
    assert [after[i] for i in vacant(state)] == list(state.spares)[: len(vacant(state))]


@given(states())
def test_relaunch_is_asked_for_when_spares_run_out_and_only_then(state: FailureState) -> None:
    """Law: without a catastrophe, RELAUNCH holds iff there are more dead seats than spares."""
    chosen = make_plan(state)
    short = len(vacant(state)) > len(state.spares)
    if catastrophes(state):
        assert chosen.kind == PlanKind.CATASTROPHIC
    else:
        in_place = PlanKind.ROLLBACK if state.obstacle else PlanKind.CAUSAL
        assert chosen.kind == (PlanKind.RELAUNCH if short else in_place)
        assert chosen.failure is None
        assert chosen.reason == state.obstacle or short
        assert chosen.reason or not short


@given(states())
def test_catastrophe_names_what_was_lost(state: FailureState) -> None:
    """Law: CATASTROPHIC iff a version is committed and some group lost more members than it has
    checksum ranks; the failure names the group, every lost member and the version."""
    chosen = make_plan(state)
    groups = catastrophes(state)
    assert (chosen.kind == PlanKind.CATASTROPHIC) == bool(groups)
    if groups:
        failure = chosen.failure
        assert failure is not None and failure.group == groups[0]
        assert list(failure.members) == lost_in(state, groups[0])
        assert failure.version == state.committed
        for words in (f"group {failure.group}", *failure.members, f"version {state.committed}"):
            assert words in chosen.reason


@given(states())
def test_nobody_is_reseated_when_the_plan_does_not_go_on(state: FailureState) -> None:
    """Law: RELAUNCH and CATASTROPHIC leave all seats as they are."""
    chosen = make_plan(state)
    if chosen.kind not in IN_PLACE:
        assert [*chosen.slot_proc, *chosen.checksum_proc] == seats_of(state)


@pytest.mark.plain
@given(states())
def test_lost_roles_are_those_without_a_sound_vault(state: FailureState) -> None:
    """Law: a role is rebuilt iff its holder, dead or alive, has no vault that is ready."""
    chosen = make_plan(state)
    slots = [s for s, p in enumerate(state.slot_proc) if p not in state.ready]
    checksums = [c for c, p in enumerate(state.checksum_proc) if p not in state.ready]
    assert (list(chosen.lost_slots), list(chosen.lost_checksums)) == (slots, checksums)


ONE_DEAD = FailureState([0, 1], [2], [0, 0], 1, frozenset({0, 2, 3}), frozenset({0, 2}), [3], 1)


@given(states())
@example(ONE_DEAD)
def test_plan_is_pure(state: FailureState) -> None:
    """Law: the same answer twice, and the arguments are unchanged."""
    before = copy.deepcopy(dataclasses.asdict(state))
    assert make_plan(state) == make_plan(state)
    assert dataclasses.asdict(state) == before


def test_one_dead_slot_by_hand() -> None:
    """Law: the everyday case, spelled out."""
    chosen = make_plan(ONE_DEAD)
    assert chosen.kind == PlanKind.ROLLBACK
    assert (chosen.slot_proc, chosen.checksum_proc) == ((0, 3), (2,))
    assert (chosen.lost_slots, chosen.lost_checksums) == ((1,), ())


@given(states(mild=True), st.sampled_from(["auto", "causal"]), st.booleans(), st.booleans())
def test_what_stands_against_a_cheaper_way(
    state: FailureState, policy: str, fresh: bool, hindered: bool
) -> None:
    """Law: nothing is repaired in place where the library cannot; a rollback is refused where the
    policy wants none, and is a relaunch where fresh processes are wanted; all else stays."""
    seated = make_plan(state)
    hindrance = "no ULFM" if hindered else ""
    now = dataclasses.replace(state, policy=policy, fresh=fresh, hindrance=hindrance)
    expected = seated.kind
    if seated.kind in IN_PLACE and hindered:
        expected = PlanKind.RELAUNCH
    elif seated.kind == PlanKind.ROLLBACK:
        way_back = PlanKind.RELAUNCH if fresh else PlanKind.ROLLBACK
        expected = PlanKind.REFUSED if policy == "causal" else way_back
    chosen = make_plan(now)
    assert chosen.kind == expected
    assert chosen.reason == (hindrance if expected == PlanKind.RELAUNCH and hindered and
                             seated.kind in IN_PLACE else seated.reason)


@given(states(), st.booleans())
def test_a_framework_recovers(state: FailureState, forfeit: bool) -> None:
    """Law: where all would go back a framework recovers, with the same seats. A catastrophe is one
    for it too, unless it forfeits: then all is as if nothing had been committed."""
    seated = make_plan(state)
    chosen = make_plan(dataclasses.replace(state, claimant="ring", forfeit=forfeit))
    if forfeit and seated.kind == PlanKind.CATASTROPHIC:
        seated = make_plan(dataclasses.replace(state, committed=0, obstacle="ring recovers"))
        assert chosen.forfeited == (seated.kind == PlanKind.ROLLBACK)
        assert f"with them checkpoint {state.committed}" in chosen.reason or not chosen.forfeited
    else:
        assert not chosen.forfeited and chosen.reason == seated.reason
    back = PlanKind.REENTRY if seated.kind == PlanKind.ROLLBACK else seated.kind
    assert chosen.kind == back
    assert (chosen.slot_proc, chosen.checksum_proc) == (seated.slot_proc, seated.checksum_proc)


@given(states(), st.sampled_from(["", no_room("node2")]), st.sampled_from([None, 0]))
def test_what_ends_the_job_whatever_could_be_done(
    state: FailureState, full_memory: str, hopeless: int | None
) -> None:
    """Law: memory that is full ends the job, and so does a slot that is killed again and again."""
    chosen = make_plan(dataclasses.replace(state, full_memory=full_memory, hopeless=hopeless))
    if full_memory:
        assert chosen.kind == PlanKind.FULL and chosen.reason == full_memory
    elif hopeless is not None:
        assert chosen.kind == PlanKind.REPEATED and f"slot {hopeless} was killed" in chosen.reason
    else:
        assert chosen == make_plan(state)


def test_over_nodes_the_vaults_of_the_dead_are_looked_for() -> None:
    """Law: where processes run on several nodes, no repair calls a loss a catastrophe: the next
    launch finds the vaults, or says so."""
    now = FailureState([0, 1], [2], [0, 0], 1, frozenset({2, 3, 4}), frozenset({2}), [3, 4], 1)
    assert make_plan(now).kind == PlanKind.CATASTROPHIC
    chosen = make_plan(dataclasses.replace(now, domains=domains_of_nodes(list("abcbd"))))
    assert chosen.kind == PlanKind.RELAUNCH and "slot 0 and slot 1" in chosen.reason
    assert chosen.slot_proc == (0, 1)
    hopeless = dataclasses.replace(now, domains=domains_of_nodes(list("abcbd")), hopeless=1)
    assert make_plan(hopeless).kind == PlanKind.REPEATED
    domains = domains_of_nodes(list("abcbd"))
    hindered = dataclasses.replace(now, domains=domains, hindrance="a window")
    assert make_plan(hindered).reason == "a window"  # which may have killed the second of the two


def test_a_spare_is_chosen_by_awareness() -> None:
    """Law: where processes run on several nodes, the same rule serves a repair as a relaunch: no
    node holds more of a group than it can lose."""
    domains = domains_of_nodes(["a", "b", "c", "b", "d"])
    now = FailureState([0, 1], [2], [0, 0], 1, frozenset({1, 2, 3, 4}), frozenset({1, 2}), [3, 4],
                       1)
    assert make_plan(now).slot_proc == (3, 1)
    aware = dataclasses.replace(now, domains=domains, aware="nodes")
    assert make_plan(aware).slot_proc == (4, 1)


def test_a_slot_comes_back_to_its_own_node_where_awareness_cannot_hold() -> None:
    """Law: with more members than nodes a slot is replayed on its own node, if a spare is there,
    though a lone one waits elsewhere."""
    now = FailureState(
        [0, 1], [2], [0, 0], 1, frozenset({1, 2, 3, 4}), frozenset({1, 2}), [3, 4], 1, obstacle="",
        domains=domains_of_nodes(["a", "a", "a", "a", "b"]), aware="nodes")
    chosen = make_plan(now)
    assert (chosen.kind, chosen.slot_proc) == (PlanKind.CAUSAL, (3, 1))
