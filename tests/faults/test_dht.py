"""The distributed hashtable: atomics and flushes under one lock for all, deaths at every place.

Law: after a replay as after a rollback the volumes hold the same keys, as many heap cells are in
use, and all lookups get the same answers as in a run without failure. (Which key of a bucket is in
the heap depends on timing; the dump is of what does not.)
"""

from __future__ import annotations

import json
import sys

import pytest
from jobs import Result, run_job, run_plain
from programs import (
    APP,
    PROGRAMS,
    ROOT,
    SLOTS,
    assert_causal,
    assert_rollback,
    assert_same_bits,
    deaths,
    final_memory,
    kinds,
    run,
)
from programs import reference as reference_of
from tiers import tiers

# The benchmark programs are scripts beside each other, not a package.
sys.path.insert(0, str(ROOT / "bench/apps"))

import volume

SCRIPT = str(ROOT / "bench/apps/dht.py")
# Nearly every key collides in the program's few buckets, so a slot's warm-up takes 640 puts, 1360
# atomics and 1680 flushes at least, about a quarter more if others come before it, and its inserts
# as many. place:visit chosen so that all but start and lock-held lie between the first and the last
# safepoint, whatever the timing; a get happens only in lookups.
CASES = [(2, "put:1100"), (0, "atomic:2200"), (2, "flush:2700"), (0, "get:500"), (2, "start"),
         (2, "get:500"), (2, "checkpoint:5"), (2, "stage:5"), (2, "staged:5"), (2, "end"),
         (0, "put:1100"), (0, "flush:2700"), (2, "atomic:2200"), (2, "lock-held:1"),
         (2, "safepoint:5"), (0, "stage:5")]
FROM_THE_START = {"start", "lock-held"}


def plain(*args: str) -> Result:
    return run_plain(APP, SLOTS, args=[SCRIPT, *args], timeout=30)


def protected(*args: str) -> Result:
    return run_job(APP, SLOTS, "--spares", "0", args=[SCRIPT, *args], timeout=30)


def report(result: Result) -> dict[str, object]:
    """The JSON object on the last line of output."""
    found: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("slot", "place", "policy"), tiers(
    [(*case, policy) for case in CASES for policy in ("rollback", "auto")],
    full=["0-atomic:2200-auto"]))
def test_slot(slot: int, place: str, policy: str) -> None:
    result = run("dht", "--interval", "0", "--policy", policy, "--kill", f"{slot}@{place}")
    assert_same_bits("dht", result)
    assert report(result)["verified"] is True
    name = place.split(":")[0]
    assert deaths(result) == [("slot", slot, name)]
    if policy == "rollback":
        assert_rollback(result, "the policy is rollback")
    else:
        assert_causal(result, [slot], SLOTS + (name != "start"))
    assert (result.stats["recoveries"][0]["version"] > 0) == (name not in FROM_THE_START)


@pytest.mark.full
@pytest.mark.parametrize("policy", ["rollback", "auto"])
def test_second_failure(policy: str) -> None:
    """Another slot dies, in the batch that is being done again if all have gone back."""
    result = run("dht", "--interval", "0", "--policy", policy, "--spares", "2", "--kill",
                 "1@atomic:2200", "--kill", "3@atomic:2650")
    assert_same_bits("dht", result)
    assert [d[:2] for d in deaths(result)] == [("slot", 1), ("slot", 3)]
    assert len(kinds(result)) == 2
    assert policy == "auto" or kinds(result) == ["rollback", "rollback"]


@pytest.mark.full
@pytest.mark.parametrize("policy", ["rollback", "auto"])
def test_from_the_start(policy: str) -> None:
    """Without a checkpoint all is inserted again into volumes that are empty again, or the lost
    slot's volume is filled from the logs of the others."""
    result = run("dht", "--interval", "never", "--policy", policy, "--kill", "1@atomic:2200")
    assert_same_bits("dht", result)
    assert [r["version"] for r in result.stats["recoveries"]] == [0]
    assert kinds(result) == ["rollback" if policy == "rollback" else "causal"]


# ---- without a failure ----------------------------------------------------------------------


@pytest.mark.full
def test_unprotected_run_has_the_same_result() -> None:
    result = plain(*PROGRAMS["dht"][1:])
    assert result.status == 0, result
    assert report(result)["verified"] is True
    expected, found = reference_of("dht"), final_memory(result)
    for slot, arrays in expected.items():
        for name, array in arrays.items():
            assert array.tobytes() == found[slot][name].tobytes(), (slot, name)


@pytest.mark.full
def test_few_buckets() -> None:
    """All slots prepend to the same two chains of each volume, so that they often meet."""
    result = plain("--inserts", "500", "--lookups", "20", "--buckets", "2", "--heap", "2000",
                   "--duty", "1")
    assert result.status == 0, result
    found = report(result)
    assert found["verified"] is True
    assert found["collisions"] == SLOTS * 500 - SLOTS * 2


def test_thinking_takes_the_rest_of_the_time() -> None:
    result = plain("--inserts", "300", "--lookups", "0", "--think-us", "500")
    assert result.status == 0, result
    found = report(result)
    assert found["verified"] is True
    assert found["think_us"] == pytest.approx(500)
    assert found["seconds"] > 0.1 and found["duty"] < 0.2


@pytest.mark.full
@pytest.mark.parametrize(("args", "message"), [
    (["--inserts", "0"], "dht: --inserts 0 is out of range; give a whole number from 1 to"),
    (["--think-us", "nan"], "dht: --think-us nan is no time; give a number from 0 up")])
def test_bad_input(args: list[str], message: str) -> None:
    """One line on stderr, by one slot, and the status 2."""
    result = protected(*args)
    assert result.status == 2, result
    assert result.stderr.startswith(message) and result.stderr.count("\n") == 1, result


@pytest.mark.full
def test_full_heap() -> None:
    """The message names the least heap that is enough."""
    result = protected("--inserts", "100", "--duty", "1", "--heap", "10")
    assert result.status == 2, result
    shape = volume.Shape(SLOTS, buckets=100, cells=10)
    least = max(
        volume.overflow(shape, volume.expected_content(0, shape, slot, 100))
        for slot in range(SLOTS)
    )
    assert result.stderr == (
        "dht: --heap 10 cells in each volume are too few for these keys; "
        f"give --heap {least}, or more --buckets than 100\n"
    )
