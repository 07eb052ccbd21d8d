"""The campaign of random deaths, and what judges it.

Law: a number draws one job; a job whose bits differ, that hangs or gives up too early is not called
right; the bound that the page states is that of Clopper and Pearson.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import Result
from nodes import remove_fake_ssh
from tiers import tiers
from tree import ROOT, TESTS

from .__main__ import run
from .draw import PAUSES_FROM, draw
from .judge import GAVE_UP, HONEST, RIGHT, WRONG, Reference, bits_of, judge
from .report import OUTSIDE, bound, page, ranges_of, read, summary

SEEDS = range(300)
FIRST, JOBS = (int(os.environ.get(f"FTRMA_CAMPAIGN_{name}", number))
               for name, number in (("FIRST", 10**6), ("JOBS", 300)))


@pytest.mark.parametrize("count", tiers([2, JOBS], full=["2"]))
def test_jobs_that_a_number_draws(count: int, tmp_path: Path) -> None:
    """Law: each ends right, or honestly. ``FTRMA_CAMPAIGN_FIRST`` and ``FTRMA_CAMPAIGN_JOBS`` take
    other numbers by night."""
    try:
        assert run(tmp_path, FIRST, 1e9, count, 2) == 0
    finally:
        remove_fake_ssh()
    print(page(summary(read([tmp_path / "jobs.jsonl"]))))


def test_a_number_draws_one_job() -> None:
    assert [draw(seed) for seed in SEEDS] == [draw(seed) for seed in SEEDS]
    cases = [draw(seed) for seed in SEEDS]
    assert {case.work.judge for case in cases} == {"bits", "answer", "aic"}
    assert {case.nodes for case in cases} == {1, 2, 3}
    assert {case.strength for case in cases} == {1, 2}
    assert all(case.rules or case.strikes for case in cases)
    assert not any(strike.pause_s for case in cases for strike in case.strikes)
    assert any(strike.pause_s for seed in range(PAUSES_FROM, PAUSES_FROM + 20)
               for strike in draw(seed).strikes)


CASE = next(case for seed in SEEDS if (case := draw(seed)).work.twin and case.policy == "auto"
            and case.strength == 1 and case.work.slots == 2)


def ended(status: int = 0, stderr: str = "", **stats: Any) -> Result:
    """A job with two deaths of slot 1, as `jobs.run_command` returns it."""
    failures = [{"slot": 1, "place": "put", "pid": 9}, {"slot": 1, "place": "unknown", "pid": 10}]
    found = {"failures": failures, "recoveries": [{"kind": "causal"}] * 2, "agents": [], **stats}
    results: dict[str, Any] = {f"slot-{s}": {"x": np.arange(4.0)} for s in range(2)}
    results |= {"twin-0-77": "1 w 00000001\n2 w 00000002\n3 w 0000", "twin-1-78": "1 w 00000003\n"}
    return Result(status, "", stderr, found, results)


TWINS = {"0 1 w": "00000001", "0 2 w": "00000002", "1 1 w": "00000003"}
GOOD = Reference(bits_of(ended(), 2), TWINS)


def test_bits_that_differ_are_seen() -> None:
    assert judge(CASE, ended(), GOOD, 0).end == RIGHT
    other = ended()
    other.results["slot-1"]["x"] = np.nextafter(np.arange(4.0), 5)
    assert judge(CASE, other, GOOD, 0).end == WRONG
    other.results["slot-1"]["x"] = np.arange(4)  # an equal array of another type
    assert judge(CASE, other, GOOD, 0).end == WRONG
    del other.results["slot-1"]
    assert judge(CASE, other, GOOD, 0).end == WRONG


def test_checkpoints_that_differ_are_seen() -> None:
    twins = {**GOOD.twins, "0 2 w": "00000004"}
    verdict = judge(CASE, ended(), dataclasses.replace(GOOD, twins=twins), 0)
    assert verdict.end == WRONG and "0 2 w" in verdict.why


@pytest.mark.parametrize(("job", "outside", "end"), [
    (ended(70, "error: CatastrophicFailure: x"), 0, HONEST),
    (ended(70, "error: CatastrophicFailure: x", failures=[]), 0, GAVE_UP),
    (ended(70, "error: CatastrophicFailure: x", failures=[]), 2, HONEST),
    (ended(70, "error: x (--max-relaunch); giving up"), 0, GAVE_UP),
    (ended(70, "x; launching the job again\n" * 3 + "error: x (--max-relaunch); giving up"), 0,
     HONEST),
    (ended(70, "x; launching the job again\n" * 2 + "error: x (--max-relaunch); giving up"), 0,
     GAVE_UP),
    (ended(70, "error: NotRecoverable: x"), 0, GAVE_UP),  # its policy allows to go back
    (ended(1), 0, GAVE_UP),
    (ended(recoveries=[{"kind": "relaunch"}] * 3), 0, GAVE_UP),  # for two deaths
    (ended(recoveries=[{"kind": "relaunch"}] * 3), 1, RIGHT),
])
def test_ends_are_judged(job: Result, outside: int, end: str) -> None:
    assert judge(CASE, job, GOOD, outside).end == end


def test_a_lost_shelf_is_an_end_of_places() -> None:
    """Law: a program over places may lose a store with two places; one with windows has none."""
    job = ended(1, "error: store 's': shelf 1 lost: the place that held it and the next one, which "
                   "kept its copy, both died before recover()")
    places = next(case for seed in SEEDS if (case := draw(seed)).work.judge == "answer")
    assert judge(places, job, GOOD, 0).end == HONEST
    assert judge(CASE, job, GOOD, 0).end == GAVE_UP
    job.stats["failures"] = job.stats["failures"][:1]
    assert judge(places, job, GOOD, 0).end == GAVE_UP


def test_no_reserve_is_an_end_of_places() -> None:
    """Law: if more processes died than there were spares."""
    why = "error: places 1 are dead and 0 reserves are left; start the job with more --spares"
    deaths = [{"slot": 2, "place": "apgas.deal", "pid": 7},
              {"slot": 1, "place": "apgas.deal", "pid": 8},
              {"spare": 0, "place": "unknown", "pid": 9}]
    for spares, end in ((2, HONEST), (3, GAVE_UP)):
        case = dataclasses.replace(CASE, options=("--spares", str(spares)))
        assert judge(case, ended(1, why, failures=deaths), GOOD, 0).end == end


@pytest.mark.parametrize(("failures", "runs"), [(0, 10), (0, 3000), (1, 3000), (7, 50), (3, 3)])
def test_the_bound_is_that_of_clopper_and_pearson(failures: int, runs: int) -> None:
    import scipy.stats  # takes a second, which runs of other tests do not need

    exact = scipy.stats.beta.ppf(0.95, failures + 1, runs - failures) if failures < runs else 1.0
    assert bound(failures, runs) == pytest.approx(exact, rel=1e-6)


def test_records_are_summed_up(tmp_path: Path) -> None:
    """Law: methods are summed up apart; a line that was cut off is left out."""
    record = {"method": "a", "seed": 4, "commit": "c", "program": "dht 1", "slots": 2, "nodes": 1,
              "options": [], "kills": [], "strikes": [], "status": 0, "seconds": 1.8,
              "deaths": [{"role": "slot", "index": 1, "place": "unknown"},
                         {"role": "checksum", "index": 0, "place": "sum"}],
              "agents": 1, "recoveries": ["causal", "causal"], "reseats": 1, "launches": 1,
              "twins": [5, 0], "end": "right", "why": ""}
    lines = [record, record | {"seed": 9, "end": "hung"}, record | {"method": "b"}]
    path = tmp_path / "jobs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"method": "a", "se')
    found = summary(read([path]))
    assert list(found) == ["a", "b"] and found["a"]["jobs"] == 2
    assert found["a"]["seeds"] == "4, 9" and ranges_of([3, 1, 2, 9]) == "1 to 3, 9"
    assert found["a"]["by_role"] == {"slot": 2, "checksum": 2, "agent": 2}
    assert found["a"]["by_place"] == {OUTSIDE: 2, "sum": 2}
    assert found["a"]["ends"]["hung"] == 1 and found["a"]["failures"][0]["seed"] == 9
    assert found["a"]["bounds_95"]["any"] == bound(1, 2)
    assert "seed 9 (dht 1, c): hung" in page(found)
    later = summary([record | {"seed": 12, "program": "ft", "recoveries": ["relaunch"]}], found)
    assert later["b"] == found["b"] and later["a"]["jobs"] == 3
    assert later["a"]["seeds"] == "4, 9, 12"
    assert later["a"]["programs"] == {"dht": 2, "ft": 1}
    assert later["a"]["recoveries"] == {"causal": 4, "relaunch": 1}
    assert later["a"]["ends"] == {"right": 2, "honest": 0, "wrong": 0, "gave up": 0, "hung": 1,
                                  "untidy": 0}
    assert later["a"]["failures"] == found["a"]["failures"]
    assert later["a"]["bounds_95"]["any"] == bound(1, 3)


def test_the_page_has_what_was_found() -> None:
    """Law: its tables are made from the campaign's summary, which is kept beside the tests."""
    found = json.loads((TESTS / "campaign/found.json").read_text())
    tables = page(found)
    assert tables.strip() in (ROOT / "ftrma/docs/campaign.md").read_text()
