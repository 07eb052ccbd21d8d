"""When a lost slot can be replayed: `causal.obstacle`.

Law: there is no obstacle iff one slot at most is lost, no log is broken in a way that the replay
needs, nothing passed that no log knows of, and neither the user nor a replay objects; and what is
in the way is named.
"""

from __future__ import annotations

import pytest

from ftrma.protocol.causal import CHECKSUM, DEMAND, FOREIGN, FULL, GETS, RECOVERED, Logs, obstacle

SOUND = {s: Logs() for s in range(3)}


def reason(lost: tuple[int, ...] = (1,), policy: str = "auto", refusal: str = "",
           version: int = 4, **broken: Logs) -> str:
    logs = {**SOUND, **{int(name[1:]): log for name, log in broken.items()}}
    return obstacle(policy, lost, logs, version, 65536, refusal)


@pytest.mark.parametrize("policy", ["auto", "causal"])
@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,)])
def test_sound_logs_are_no_obstacle(policy: str, lost: tuple[int, ...]) -> None:
    assert reason(lost, policy) == ""


@pytest.mark.parametrize(
    ("bits", "mine", "others", "words"),
    [
        (FOREIGN, True, True, "slot {} has called MPI_Send since checkpoint 4"),
        (FULL, True, True, "slot {} ran over their budget of 65536 bytes since checkpoint 4"),
        (RECOVERED, False, True, "slot {}'s put log died with its process"),
        (CHECKSUM, True, False, "slot {}'s get log died with the checksum rank"),
        (DEMAND, True, False, "slot {}'s demand checkpoint is lost"),
        (CHECKSUM | DEMAND, True, False, "slot {}'s get log died with the checksum rank"),
        (GETS, True, False, "slot {} has used gets"),
        (-1, True, True, "slot {} has no log since checkpoint 4"),
    ],
)
def test_a_broken_log_matters_where_it_is_needed(
    bits: int, mine: bool, others: bool, words: str
) -> None:
    log = Logs(bits, "MPI_Send")
    for slot, matters in ((1, mine), (2, others)):
        found = reason(**{f"s{slot}": log})
        assert (words.format(slot) in found) == matters == bool(found)


def test_where_nobody_is_lost_only_messages_are() -> None:
    """Law: without a replay no log is read; messages that no log covers can be lost nonetheless."""
    for bits in (FULL, RECOVERED, CHECKSUM, DEMAND, GETS):
        assert reason(lost=(), s1=Logs(bits, "MPI_Send")) == ""
    assert "has called MPI_Send" in reason(lost=(), s1=Logs(FOREIGN, "MPI_Send"))


def test_everything_else_is_said() -> None:
    assert "rollback" in reason(policy="rollback")
    assert reason(refusal="its program is not deterministic") == "its program is not deterministic"
    assert reason((0, 2)) == "slots 0 and 2 were lost at once"
    assert "since the start" in reason(version=0, s0=Logs(FOREIGN, "MPI_Send"))
