"""Jobs over several nodes: who dies is replaced in place.

Law, where nothing else is said: the final memory is that of the run without failure on one node,
bit for bit; nobody dies but who is killed, and nothing is launched again. A slot whose replacement
is on its node is replayed, and no survivor enters the program again; one that comes back on another
node has everybody go back to the checkpoint, with the reason in words. A checksum rank's place is
taken by a spare of any node.

Ranks go to the nodes in turn. On two nodes slots 0 and 2, checksum rank 0 and spare 1 are on the
first, slots 1 and 3 and spare 0 on the second: with one spare alone, slots 0 and 2 come back
elsewhere. Slots 0 and 1 are the first processes of their nodes, which have made what all there
share.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Result
from nodes import NODES, launcher_options, remove_fake_ssh, run_on_nodes
from programs import (
    SLOTS,
    assert_causal,
    assert_replaced,
    assert_same_bits,
    deaths,
    kinds,
    words_of,
)
from test_causal import DEAD_AT_ONCE, SLOW_TO_BEGIN, assert_replaced_early
from tiers import tiers

HERE = ("--spares", "2", "--interval", "0")
ELSEWHERE = ("--spares", "1", "--interval", "0")
STRONG = (*HERE, "--group-size", "4", "--checksums", "2")  # m = 2; spare 0 is on the first node
# place:visit chosen so that it falls in the middle of the run.
PLACES = {
    "stencil": ["start", "put:30", "fence:25", "safepoint:20", "checkpoint:20", "stage:20",
                "staged:20", "end"],
    "ft": ["put:50", "fence:13", "checkpoint:4"],
    "lock": ["lock-held:30", "put:30"],
    "lockall": ["lock-held:1", "flush:30"],
    "pscw": ["put:30", "call:7"],
    "dht": ["atomic:300", "get:40", "put:60"],
}
ALL = [(program, place) for program, places in PLACES.items() for place in places]


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def run(program: str, *options: str, nodes: int = 2, timeout: float = 60) -> Result:
    """Run one of the programs on nodes that take its ranks in turn."""
    script, args = words_of(program)
    return run_on_nodes(script, SLOTS, *options, args=args, timeout=timeout, in_turn=nodes)


@pytest.mark.parametrize(("program", "place", "slot"), tiers(
    [(*case, slot) for case in ALL for slot in range(SLOTS)],
    quick=["stencil-put:30-2"],
    full=["stencil-start-0"]))
def test_replayed(program: str, place: str, slot: int) -> None:
    kill = f"{slot}@{place}"
    result = run(program, *HERE, "--kill", kill)
    assert_same_bits(program, result)
    assert_replaced(result, kill)
    assert_causal(result, [slot], SLOTS + (place != "start"))


@pytest.mark.parametrize(("place", "slot"), tiers(
    itertools.product(("put:10", "atomic:10", "lock-held:11", "get:10", "flush:10", "fence:17",
                       "call:40"), (0, 3)),
    full=["atomic:10-3"]))
def test_what_is_no_replay_rolls_back(place: str, slot: int) -> None:
    """The program synchronizes behind protect(), and its safepoint comes late: all go back."""
    kill = f"{slot}@{place}"
    result = run("mixed", *HERE, "--kill", kill)
    assert_same_bits("mixed", result)
    assert_replaced(result, kill)
    assert set(kinds(result)) <= {"rollback", "causal"}, result


@pytest.mark.parametrize(("program", "place", "slot"), tiers(
    [(*case, slot) for case in ALL for slot in (0, 2)]))
def test_elsewhere(program: str, place: str, slot: int) -> None:
    kill = f"{slot}@{place}"
    result = run(program, *ELSEWHERE, "--kill", kill)
    assert_same_bits(program, result)
    assert_replaced(result, kill)
    recovery = result.stats["recoveries"][0]
    if place != "start":  # by then nobody has anything to lose
        assert (recovery["kind"], recovery["slots"]) == ("rollback", [slot]), result
        assert "another node" in recovery["reason"], result


@pytest.mark.full
def test_a_node_that_gets_its_first_slot() -> None:
    """Two slots on each of two nodes, servers on a third, which has no memory of slots yet."""
    script, args = words_of("stencil")
    result = run_on_nodes(script, SLOTS, *ELSEWHERE, "--kill", "3@fence:25", args=args)
    assert_same_bits("stencil", result)
    assert_replaced(result, "3@fence:25")
    assert kinds(result) == ["rollback"], result


@pytest.mark.parametrize(("program", "options", "kill"), tiers(
    [pytest.param(program, options, kill, id=f"{program}-{m}-{kill}")
     for kill in ("c0@sum:4", "c0@commit:4", "c0@fold:4", "c0@folded:4")
     for m, options in (("m1", HERE), ("m2", STRONG)) for program in ("stencil", "ft")],
    full=["stencil-m2-c0@sum:4"]))
def test_checksum(program: str, options: tuple[str, ...], kill: str) -> None:
    result = run(program, *options, "--kill", kill)
    assert_same_bits(program, result)
    assert_replaced(result, kill)
    assert kinds(result) == ["causal"], result  # and nobody was replayed
    assert result.stats["recoveries"][0]["slots"] == []


@pytest.mark.full
def test_spare() -> None:
    result = run("stencil", *HERE, "--kill", "s0@time:0.001")
    assert_same_bits("stencil", result)
    assert_replaced(result, "s0@time")
    assert kinds(result) == []


@pytest.mark.parametrize(("options", "second"), tiers(
    [pytest.param((*STRONG, "--policy", policy), second, id=f"{policy}-{second}")
     for second in ("2@repair:1", "c0@repair:1", "s1@restore:1", "s1@replay:5", "s0@repair:1",
                    "s1@repair:1", "1@restore:1", "2@fence:30") for policy in ("auto", "rollback")],
    full=["auto-2@repair:1"]))
def test_a_second_death(options: tuple[str, ...], second: str) -> None:
    """Another one dies amid the repair, or while a slot is replayed, or later."""
    result = run("stencil", *options, "--spares", "3", "--kill", "0@put:30", "--kill", second)
    assert_same_bits("stencil", result)
    assert "relaunch" not in kinds(result), result


@pytest.mark.full
def test_back_once_more() -> None:
    """A process that becomes a slot after a rollback belongs to the attempt that began there."""
    kills = ("1@put:20", "2@put:60")
    words = [word for kill in kills for word in ("--kill", kill)]
    result = run("stencil", *STRONG, "--policy", "rollback", "--spares", "3", *words)
    assert_same_bits("stencil", result)
    assert_replaced(result, *kills)
    assert kinds(result) == ["rollback"] * 2, result


@pytest.mark.parametrize("second", tiers(
    ["1@reset:1", "c0@reset:1", "2@reset:1", "0@reset:1", "3@reset:1", "c1@reset:1", "s1@reset:1"],
    full=["1@reset:1"]))
def test_going_back_is_cut_short(second: str) -> None:
    """Some processes and agents have gone back when the next one dies, some have not.

    Slot 1 is the first on its node, and would have told its agent; slot 2 is who replaces the dead.
    """
    first = "2@put:20"
    result = run("stencil", *STRONG, "--policy", "rollback", "--spares", "3",
                 "--kill", first, "--kill", second)
    assert_same_bits("stencil", result)
    assert_replaced(result, first, second)
    assert kinds(result) == ["rollback"], result


LARGE = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
cells = 1 << 20
window = MPI.Win.Allocate(2 * 8 * cells, 8, comm=comm)
mine = np.frombuffer(window.tomemory(), "i8")
mine[:] = me
state = ftrma.protect("large", step=0)
while state.step < 6:
    ftrma.safepoint()
    window.Fence()
    row = np.arange(cells) * (state.step + 3) + me
    window.Put(row, (me + 1) % n, (0, cells, MPI.INT64_T))
    window.Put(row[::-1].copy(), (me - 1) % n, (cells, cells, MPI.INT64_T))
    window.Fence()
    state.step += 1
np.savez(f"{sys.argv[1]}/cells-{me}.npz", cells=mine)
"""


@pytest.mark.parametrize("kills", [("1@put:5",), *(
    pytest.param(kills, marks=pytest.mark.nightly)
    for kills in (("1@fence:6",), ("0@put:6",), ("3@put:8", "3@live:1")))],
    ids=" ".join)
@pytest.mark.nightly
def test_puts_that_wait_for_room(kills: tuple[str, ...]) -> None:
    """Puts of more bytes than may be under way to one slot (4 MiB), which dies meanwhile."""
    whole = run_on_nodes(LARGE, SLOTS, "--interval", "never", in_turn=2)
    words = [word for kill in kills for word in ("--kill", kill)]
    result = run_on_nodes(LARGE, SLOTS, *HERE, *words, in_turn=2, timeout=60)
    assert_replaced(result, *kills)
    assert kinds(result)[0] == "causal", result
    for found, expected in zip(result.of_slots("cells", SLOTS), whole.of_slots("cells", SLOTS),
                               strict=True):
        assert (found["cells"] == expected["cells"]).all()


MESSAGES = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
window = MPI.Win.Allocate(8 * n, 8, comm=comm)
cells = np.frombuffer(window.tomemory(), "i8")
cells[:] = 0
pair = comm.Split(me // 2, me)
state = ftrma.protect("messages", step=0, got=np.zeros(2, "i8"))
while state.step < 30:
    ftrma.safepoint()
    window.Fence()
    window.Put(np.array([10 * me + state.step]), (me + 1) % n, (me, 1, MPI.INT64_T))
    window.Fence()
    if state.step % 3 == 2:
        got = np.zeros(1, "i8")
        comm.Sendrecv(np.array([cells.sum()]), (me + 1) % n, recvbuf=got, source=(me - 1) % n)
        state.got[0] += got[0]
        pair.Sendrecv(np.array([state.step]), 1 - pair.rank, recvbuf=got, source=1 - pair.rank)
        state.got[1] += got[0]
    state.step += 1
np.savez(f"{sys.argv[1]}/cells-{me}.npz", cells=cells, got=state.got)
"""


@pytest.mark.full
@pytest.mark.parametrize("place", [
    "fence:11", pytest.param("fence:31", marks=pytest.mark.nightly),
    pytest.param("call:15", marks=pytest.mark.nightly)])
def test_messages_go_on(place: str) -> None:
    """After a failure communicators are made anew where the program sends a message by them."""
    whole = run_on_nodes(MESSAGES, SLOTS, "--interval", "never", in_turn=2)
    result = run_on_nodes(MESSAGES, SLOTS, *HERE, "--kill", f"1@{place}", in_turn=2, timeout=60)
    assert result.status == 0, result
    assert_replaced(result, f"1@{place}")
    for found, expected in zip(result.of_slots("cells", SLOTS), whole.of_slots("cells", SLOTS),
                               strict=True):
        assert found["cells"].tolist() == expected["cells"].tolist()
        assert found["got"].tolist() == expected["got"].tolist()


@pytest.mark.full
def test_messages_after_a_checkpoint() -> None:
    """The first message after a recovery, and after a checkpoint, has communicators made again, in
    which nobody has died: nobody goes back."""
    program = MESSAGES.replace("state.step % 3 == 2", "state.step == 20")
    result = run_on_nodes(program, SLOTS, *HERE, "--policy", "causal", "--kill", "1@fence:11",
                          in_turn=2, timeout=60)
    assert result.status == 0 and kinds(result) == ["causal"], result
    assert all(found["got"].any() for found in result.of_slots("cells", SLOTS))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_random_deaths(seed: int) -> None:
    """One or two at moments and places that nobody chose, on two or three nodes.

    With both spares on one node, or a second death before the first is made good, a relaunch is no
    mistake; a wrong bit and a hang are.
    """
    chance = random.Random(f"{seed} 0")
    program = chance.choice([*PLACES, "mixed"])
    roles = ["0", "1", "2", "3", "c0", "s0", "s1"]
    kills = []
    for role in chance.sample(roles, chance.choice([1, 1, 1, 2])):
        place = chance.choice(["put", "fence", "safepoint", "flush", "call", "get", "atomic"])
        at = f"time:{chance.uniform(0, 0.6):.4f}"
        if role in "0123" and chance.random() < 0.5:
            # The first calls are those that bring the job up; who dies then has it end in words.
            at = f"{place}:{chance.randrange(30 if place == 'call' else 1, 60)}"
        kills.append(f"{role}@{at}")
    result = run(program, *HERE, *[word for kill in kills for word in ("--kill", kill)],
                 nodes=chance.choice([2, 3]))
    try:
        assert_same_bits(program, result)
    except AssertionError as wrong:
        raise AssertionError(f"{program} {kills}: {wrong}") from None
    assert all(place != "unknown" for _, _, place in deaths(result)), result


SHORTS = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
window = MPI.Win.Allocate(2 * n, 2, comm=comm)
cells = np.frombuffer(window.tomemory(), "i2")
cells[:] = 0
state = ftrma.protect("shorts", step=0, got=0)
one, old = np.ones(1, "i2"), np.zeros(1, "i2")
comm.Barrier()
while state.step < 20:
    ftrma.safepoint()
    window.Lock((me + 1) % n)
    window.Fetch_and_op(one, old, (me + 1) % n, me)
    window.Unlock((me + 1) % n)
    window.Fence()
    state.got += int(old[0])
    state.step += 1
np.savez(f"{sys.argv[1]}/cells-{me}.npz", cells=cells, got=state.got)
"""


@pytest.mark.full
def test_what_an_agent_cannot_do_is_not_replayed() -> None:
    """An atomic of 2 bytes is several requests to another node, of which some may be done."""
    result = run_on_nodes(SHORTS, SLOTS, *HERE, "--kill", "1@fence:11", in_turn=2)
    assert_replaced(result, "1@fence:11")
    assert result.status == 0 and kinds(result) == ["rollback"], result
    assert "a node's agent cannot do" in result.stats["recoveries"][0]["reason"], result
    for slot, found in enumerate(result.of_slots("cells", SLOTS)):
        left = (slot - 1) % SLOTS
        assert found["cells"].tolist() == [20 * (other == left) for other in range(SLOTS)]
        assert found["got"] == sum(range(20))


AMID = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
window = MPI.Win.Allocate(8, 2, comm=comm)
cells = np.frombuffer(window.tomemory(), "i2")
cells[:] = 0
state = ftrma.protect("amid", step=0)
one = np.ones(1, "i2")
comm.Barrier()
while state.step < 8:
    ftrma.safepoint()
    for i in range(20):
        window.Fence()
        window.Accumulate(one, (me + 1) % n)
    window.Fence()
    state.step += 1
np.savez(f"{sys.argv[1]}/cells-{me}.npz", cells=cells)
"""


@pytest.mark.full
def test_who_goes_back_amid_a_change_of_another_node() -> None:
    """No agent is told of accesses that the attempt before would have made next."""
    result = run_on_nodes(AMID, SLOTS, *HERE, "--kill", "c0@commit:4", in_turn=2)
    assert result.status == 0 and kinds(result) == ["rollback"], result
    for found in result.of_slots("cells", SLOTS):
        assert found["cells"].tolist() == [160, 0, 0, 0]


@pytest.mark.full
def test_who_is_alone_may_end_the_job() -> None:
    """By its own exit, with its status; nobody takes it for a death."""
    result = run_on_nodes(ENDS_ITSELF, 2, "--interval", "0", in_turn=3)
    assert result.status == 7 and "slot 1 ended itself with status 7" in result.stderr, result
    assert not result.stats["recoveries"] and not result.stats["failures"], result


ENDS_ITSELF = """
import os
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
state = ftrma.protect("ends", step=0)
while state.step < 20:
    ftrma.safepoint()
    comm.Barrier()
    state.step += 1
    if state.step == 12 and comm.rank == 1:
        os._exit(7)
"""


@pytest.mark.full
def test_a_replacement_that_ends_itself_ends_the_job() -> None:
    """It ends the job with its status, as the first process would; nobody is launched again."""
    result = run_on_nodes(ENDS_ITSELF, SLOTS, *HERE, "--kill", "1@safepoint:9", in_turn=2)
    assert result.status == 7 and "slot 1 ended itself with status 7" in result.stderr, result
    assert "relaunch" not in kinds(result), result


@pytest.mark.full
@pytest.mark.parametrize("second", [
    "2@fence:25", pytest.param("c0@repair:1", marks=pytest.mark.nightly)])
def test_more_than_a_group_survives_in_place(second: str) -> None:
    """Their vaults are still on their nodes, so a relaunch has everything."""
    result = run("stencil", *HERE, "--kill", "1@fence:25", "--kill", second)
    assert_same_bits("stencil", result)
    assert kinds(result) == ["relaunch"], result
    assert "too many to go on in place" in result.stats["recoveries"][0]["reason"], result


LATE = """
import sys, time
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
window = MPI.Win.Allocate(8 * 4, 8, comm=comm)
cells = np.frombuffer(window.tomemory(), dtype="i8")
cells[:] = 0
state = ftrma.protect("late", step=0)
while state.step < 6:
    ftrma.safepoint()
    window.Fence()
    if comm.rank % 2:
        time.sleep(0.3)
    for at in range(4):
        window.Put(np.array([100 * state.step + 10 * comm.rank + at]), (comm.rank + 1) % comm.size,
                   (at, 1, MPI.INT64_T))
    window.Fence()
    state.step += 1
np.savez(f"{sys.argv[1]}/cells-{comm.rank}.npz", cells=cells)
"""


@pytest.mark.parametrize("second", tiers(["replay:4", "live"], full=["replay:4"]))
def test_who_comes_to_a_fence_meanwhile_is_no_hindrance(second: str) -> None:
    """Slots of the other node arrive at a fence while slot 0 is being replayed, by way of which its
    node is told; then its process dies again. The repair does not wait for it to hear of them."""
    result = run_on_nodes(LATE, SLOTS, "--spares", "4", "--interval", "0", "--kill", "0@put:12",
                          "--kill", f"0@{second}", in_turn=2)
    assert result.status == 0, result
    assert_replaced(result, "0@put:12", f"0@{second}")
    assert set(kinds(result)) == {"causal"}, result
    for slot, found in enumerate(result.of_slots("cells", SLOTS)):
        assert found["cells"].tolist() == [500 + 10 * ((slot - 1) % SLOTS) + at for at in range(4)]


DYNAMIC = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
cells = np.zeros(8, "i8")
window = MPI.Win.Create_dynamic(comm=comm)
window.Attach(cells)
places = comm.allgather(MPI.Get_address(cells))
state = ftrma.protect("dynamic", step=0, got=0)
while state.step < 30:
    ftrma.safepoint()
    target = (me + 1) % n
    window.Lock(target)
    window.Put(np.array([state.step + me]), target, (places[target], 1, MPI.INT64_T))
    window.Unlock(target)
    comm.Barrier()
    state.got += int(cells[0])
    comm.Barrier()
    state.step += 1
np.savez(f"{sys.argv[1]}/got-{me}.npz", got=state.got)
"""


@pytest.mark.full
def test_a_window_of_the_library_is_not_gone_on_with() -> None:
    """Over several nodes one that has lost a process hangs, so the job is launched again.

    Nobody meanwhile gives the library the turn in which it would crash.
    """
    result = run_on_nodes(DYNAMIC, SLOTS, *HERE, "--kill", "1@safepoint:15", in_turn=2)
    assert result.status == 0 and kinds(result) == ["relaunch"], result
    assert "Create_dynamic" in result.stats["recoveries"][0]["reason"], result
    assert "Segmentation" not in result.stderr, result
    for slot, found in enumerate(result.of_slots("got", SLOTS)):
        assert found["got"] == sum(range(30)) + 30 * ((slot - 1) % SLOTS)


@pytest.mark.full
def test_a_death_before_a_slot_elsewhere_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replacement does not wait for a log that is not there."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_TO_BEGIN)
    monkeypatch.setenv("OMPI_MCA_mca_base_env_list", f"PYTHONPATH={tmp_path};LAST_PHASE=2")
    assert_replaced_early(run_on_nodes(DEAD_AT_ONCE, 3, *HERE, in_turn=2, files=tmp_path))


@pytest.mark.full
def test_an_own_place_comes_before_one_where_fewer_of_the_group_are() -> None:
    """Four slots and their checksum rank on two nodes, a spare on each and one on a third, so that
    awareness cannot hold. The slot comes back to its own node and is replayed."""
    words = launcher_options(NODES[:3], 4).replace(f"{NODES[2]}:4", f"{NODES[2]}:1")
    words = words.replace("ppr:4:node", "slot")
    script, args = words_of("stencil")
    result = run_on_nodes(script, SLOTS, "--spares", "4", "--interval", "0", "--mpirun", words,
                          "--kill", "1@put:30", args=args, timeout=60, by_rank=False)
    assert "--aware nodes holds at no level" in result.stderr, result
    assert_same_bits("stencil", result)
    assert_causal(result, [1], SLOTS + 1)
