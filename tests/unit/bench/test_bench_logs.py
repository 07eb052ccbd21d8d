"""The drivers that measure logs and recovery: what they make of measurements, and that the smallest
run of each comes to its end.

Why: a side that thinks less, a replay that is compared with the wrong steps, or checkpoints that
are counted with the wrong launch would say that logging is cheaper or dearer than it is.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiers import tiers
from tree import ROOT

sys.path.insert(0, str(ROOT))

from bench import __main__ as bench_main
from bench import (
    common,
    dht,
    ft,
    ft_demand,
    graph,
    launching,
    lwcp,
    lwcp_lost,
    phoenix,
    phoenix_faults,
    recovery,
    recovery_many,
    sides,
    turns,
)
from bench.recovery_many import Times

# ---- sides ----------------------------------------------------------------------------------


def stats(demanded: int, peaks: list[int]) -> dict[str, Any]:
    taken = [{"version": i, "kind": kind, "seconds": 0.002, "bytes": 9, "dirty_bytes": 3}
             for i, kind in enumerate(["coordinated"] + ["demand"] * demanded)]
    return {
        "checkpoints": taken,
        "log": [{"peak_bytes": peak, "budget_bytes": 4 << 20} for peak in peaks],
    }


def test_what_a_job_has_told_is_kept_by_launch() -> None:
    runs = [sides.told(stats(2, [1 << 20, 3 << 20])), sides.told(stats(4, [2 << 20, 1 << 20]))]
    found = sides.summary_of_told(runs)
    assert found["checkpoints_per_launch"]["median"] == 4
    assert found["demand_checkpoints_per_launch"]["median"] == 3
    assert (found["log_peak_bytes"]["min"], found["log_peak_bytes"]["max"]) == (2 << 20, 3 << 20)
    assert sides.logged(found) == "2.5 MiB of 4 MiB"


def test_unprotected_sides_tell_nothing_and_loggers_what_they_stored() -> None:
    found = sides.summary_of_told([sides.told({})])
    assert found["checkpoints_per_launch"]["max"] == 0 and sides.logged(found) == "-"
    stored = {"stored": {"records": 7, "bytes": 2048, "wraps": 0}}
    assert sides.logged(sides.summary_of_told([sides.told(stored)])) == "7 messages, 2 KiB"


def test_sides_take_turns() -> None:
    order: list[str] = []

    def side(name: str) -> sides.Side:
        return lambda *_: (order.append(name), ({"n": len(order)}, {}))[1]

    runs = sides.in_turn(
        {"a": side("a"), "b": side("b")}, 2, "test",
        lambda s: s(1, Path(), [], 1.0, launching.ignore)[0],
    )
    assert order == ["a", "b", "a", "b"]
    assert runs == {"a": [{"n": 1}, {"n": 3}], "b": [{"n": 2}, {"n": 4}]}


def test_columns_that_say_nothing_are_left_out() -> None:
    assert sides.filled([["x", "y", "z"], ["1", "-", "-"], ["2", "-", "3"]]) == [
        ["x", "z"], ["1", "-"], ["2", "3"]
    ]


# ---- dht ------------------------------------------------------------------------------------


def dht_report(monkeypatch: Any, seen: list[list[str]]) -> dict[str, Any]:
    """A report from made-up launches; `seen` takes the program's arguments of each."""
    rounds = iter([30.0, 50.0, 31.0, 51.0])

    def launched(pace: float) -> sides.Side:
        def side(_slots: int, _script: Path, arguments: Any, _limit: float, _told: Any) -> Any:
            seen.append(list(arguments))
            given = dict(zip(arguments[::2], arguments[1::2], strict=True))
            think_us = float(given["--think-us"]) if "--think-us" in given else next(rounds)
            report = {"verified": True, "began": 100.0, "seconds": 1000 + think_us * pace,
                      "inserts": 1000, "think_us": think_us, "duty": 0.1}
            return report, {}

        return side

    def in_turns(launches: dict[str, turns.Launch], _turn_s: float) -> dict[str, Any]:
        """Each is stopped for 1000 s in the middle of its time."""
        found = {name: launch(launching.ignore) for name, launch in launches.items()}
        return {name: {**run, "turns": [(0.0, 110.0), (1110.0, 2000.0)]}
                for name, run in found.items()}

    monkeypatch.setattr(dht, "take_turns", in_turns)
    monkeypatch.setattr(sides, "unprotected", launched(1.0))
    monkeypatch.setattr(sides, "protected", lambda *flags: launched(1.02 + 0.1 * ("all" in flags)))
    monkeypatch.setattr(sides, "message_logging", lambda _: launched(1.5))
    options = dht.parse(["--rounds", "2"])
    results = [dht.measure(slots, 0.1, options) for slots in (2, 4)]
    return {**common.begin("dht"), "rounds": 2, "duties": [0.1], "slots": [2, 4], "loggers": 1,
            "results": results}


def test_all_sides_of_a_round_think_as_long_as_an_unprotected_launch(monkeypatch: Any) -> None:
    seen: list[list[str]] = []
    dht_report(monkeypatch, seen)
    assert [arguments[-2:] for arguments in seen[:10]] == [
        ["--duty", "0.1"], *[["--think-us", "30.0"]] * 4,
        ["--duty", "0.1"], *[["--think-us", "50.0"]] * 4,
    ]


def test_dht_compares_within_a_round_and_with_the_targets(monkeypatch: Any) -> None:
    report = dht_report(monkeypatch, [])
    found = report["results"][0]["sides"]
    assert found["f-puts"]["overhead_percent_each"] == pytest.approx([2.0, 2.0])
    assert found["ML"]["overhead_percent"]["median"] == pytest.approx(50.0)
    lines = {line.split()[0]: line for line in dht.text(report).splitlines() if line}
    assert "<= 3 met" in lines["f-puts"] and "<= 8 missed" in lines["f-puts-gets"]


# ---- ft: sides ------------------------------------------------------------------------------


def test_sides_of_ft_are_those_asked_for() -> None:
    assert list(ft.sides_of(ft.parse(["--only", "f-daly"]))) == ["no-FT", "f-daly"]
    assert list(ft.sides_of(ft.parse(["--awareness", "--groups", "8", "4"]))) == [
        "no-FT", "f-8", "f-4", "f-8-nodes", "f-4-nodes"]
    assert [ft.paper(name) for name in ("f-8-nodes", "f-no-daly", "f", "every-fence")] == [
        "1 to 5", "1 to 15", "8", "-"]
    for words in (["--mpirun", "--host a"], ["--only", "f-daly", "--logging"]):
        with pytest.raises(common.UsageError):
            ft.parse(words)


# ---- ft --demand ----------------------------------------------------------------------------


def demand_report() -> dict[str, Any]:
    options = ft.parse(["--demand", "--log-budget", "4MiB", "8MiB"])
    baseline = [{"seconds_median": 1.0, "seconds_mean": 1.0, "seconds_fastest": 1.0, "mops": 1.0,
                 **sides.told({})}] * 2
    variants = {}
    for name in ft.sides_of(options):
        runs = baseline
        if name != sides.BASELINE:
            demanded = int(8 / ft_demand.budget_mib(name))
            runs = [{**b, "seconds_mean": 1 + demanded / 10, **sides.told(stats(demanded, [1000]))}
                    for b in baseline]
        variants[name] = ft.summary(runs, baseline)
    return {**common.begin("ft --demand"), "problem_class": "S", "rounds": 2, "repeat": 3,
            "results": [{"slots": 4, "variants": variants}]}


def test_demand_tells_checkpoints_and_overhead_for_each_budget() -> None:
    report = demand_report()
    assert list(report["results"][0]["variants"]) == [
        "no-FT", "bulk-4MiB", "stream-4MiB", "bulk-8MiB", "stream-8MiB",
    ]
    rows = {line.split()[0]: line.split() for line in ft_demand.text(report).splitlines() if line}
    # After the overhead of a typical run, that of all; then demand checkpoints and others.
    assert rows["bulk-4MiB"][6:12] == ["20.0", "(20.0", "..", "20.0)?", "2", "1"]
    assert rows["stream-8MiB"][6:12] == ["10.0", "(10.0", "..", "10.0)?", "1", "1"]


# ---- recovery -------------------------------------------------------------------------------


def test_notes_are_read_by_slot() -> None:
    found = recovery_many.read_times("began 0 1.5\ndone 0 2.5\ndone 1 3.5\n")
    assert found == Times([(0, 1.5)], [(0, 2.5), (1, 3.5)])


def test_lost_time_is_counted_from_the_last_step_to_the_next_new_one() -> None:
    died_s = 13.5
    causal = Times([(1, 10.0)], [(0, 11.0), (1, 12.0), (2, 13.0), (3, 15.0)])
    again = [(0, 16.0), (1, 17.0), (2, 18.0), (3, 19.0)]
    back = Times([(1, 10.0), (1, 15.0)], [*causal.done[:3], *again])
    assert recovery.lost(causal, died_s) == {"lost, ms": 1000, "steps done again by survivors": 0}
    assert recovery.lost(back, died_s) == {"lost, ms": 5000, "steps done again by survivors": 3}


def test_replay_is_compared_with_the_same_steps() -> None:
    """The step in which the slot died was not done at first and is no part of the replay."""
    times = Times(
        [(0, 1.0), (1, 10.0), (1, 20.0)], [(5, 11.0), (6, 13.0), (5, 20.5), (6, 21.0), (7, 29.0)]
    )
    found = recovery.replayed(times, died_s=14.0)
    assert found["steps at first, ms"] == 3000 and found["steps replayed, ms"] == 1000
    assert found["replay speed / original speed"] == 3
    assert found["set-up by the replacement, ms"] == 6000


def test_another_recovery_than_was_meant_is_an_error_with_its_reason() -> None:
    rollback = {"kind": "rollback", "reason": "logs ran over", "phases": {}}
    assert recovery.only_recovery({"recoveries": [rollback]}, "rollback") is rollback
    with pytest.raises(launching.BenchError, match=r"not one causal .*\(logs ran over\)"):
        recovery.only_recovery({"recoveries": [rollback]}, "causal")
    with pytest.raises(launching.BenchError, match="none"):
        recovery.only_recovery({"recoveries": []}, "causal")


def recovery_report() -> dict[str, Any]:
    phases = {f"  {p}, ms": common.spread([5.0]) for p in recovery_many.PHASES}
    rows = {"in place to first new step, ms": common.spread([30.0, 50.0]), **phases}
    moved = {"lost, ms": common.spread([25.0, 35.0]), **phases,
             "replay speed / original speed": common.spread([3.0])}
    return {
        **common.begin("recovery"), "slots": 4, "rounds": 2, "size_bytes": 64 << 20, "steps": 30,
        "problem_class": "W", "window": {p: rows for p in recovery.POLICIES},
        "ft": {p: moved for p in recovery.POLICIES},
    }


def many_report() -> dict[str, Any]:
    rows = [{"seconds": 2.0, "kinds": {"causal": 3, "rollback": 1}, "reasons": ["two at once"],
             "phases": dict.fromkeys(recovery_many.PHASES, 0.2)}]
    return {
        **common.begin("recovery --many"), "slots": 4, "rounds": 1, "runs": 4, "problem_class": "S",
        "sides": {
            name: recovery_many.summary(rows, [{**rows[0], "seconds": 1.0}] if i else rows)
            for i, name in enumerate(["no-FT", "f-4", "f-2", "rollback-4"])
        },
    }


def test_recovery_tells_whether_targets_are_met() -> None:
    assert ">= 2 met" in recovery.text(recovery_report())


def test_many_tells_why_a_recovery_was_no_causal_one() -> None:
    said = recovery_many.text(many_report())
    assert "note: f-2: two at once" in said and "100 (100 .. 100)" in said


def test_groups_are_those_asked_for() -> None:
    """Law: a side for each size of a group, the first one by rollback, too; slots fill them."""
    options = recovery.parse(["--many", "-n", "8", "--groups", "8", "4"])
    assert list(recovery_many.flags_of(options)) == ["no-FT", "f-8", "f-4", "rollback-8"]
    options.groups = [3]
    with pytest.raises(common.UsageError, match="give a multiple of 3, or other --groups"):
        recovery_many.main(options)


# ---- checkpoints and logs of vertex programs ------------------------------------------------


def steps_of(slot: int) -> list[dict[str, Any]]:
    """Notes of a job whose slot 1 was killed in step 4; a checkpoint was in step 2."""
    seen = [(1, "normal", 0.9), (2, "normal", 0.010), (3, "normal", 0.020)]
    after = [(2, "checkpoint", 0.005), (3, "again", 0.004), (4, "again", 0.018),
             (5, "normal", 0.030)]
    return [{"step": step, "kind": kind, "forwarded": kind != "normal" and slot != 1,
             "seconds": seconds, "sending_s": 0.001, "log_bytes": 2**20,
             "saving_s": 0.002 if step == 2 and kind == "normal" else 0.0}
            for step, kind, seconds in (after if slot == 1 else seen + after)]


def lwcp_report(*, files: bool = False) -> dict[str, Any]:
    options = lwcp.parse(["--every", "2", "--kill", "4", "--steps", "6", "-n", "2"])
    slots = [steps_of(0), steps_of(1)]
    rows = {}
    for recovery_name in lwcp.RECOVERIES:
        row = lwcp.figures(slots, recovery_name, options)
        if recovery_name != "none":
            row["bytes, MiB"] = 30.0 if recovery_name[0] == "h" else 1.0
            row["T_cpload, ms"] = 7.0
        rows[recovery_name] = [row]
    rows[lwcp.EDGES] = [{"T_cp, ms": lwcp.held_up(slots, 2) * 9, "bytes, MiB": 20.0}]
    return {**common.begin("lwcp"), "program": "pagerank", "graph": "rmat:9", "slots": 2,
            "every": 2, "kill": 4, "lost": 1, "rounds": 1, "files": files,
            "ratios": lwcp.compare(rows),
            "found": {name: {key: common.spread([value]) for key, value in found[0].items()}
                      for name, found in rows.items()}}


def test_steps_are_told_apart_by_what_they_are() -> None:
    """Law: T_recov has the steps taken again before the one with the kill, which is T_last; T_norm
    has these steps as they went at first; T_cp is the survivors'."""
    found = {name: of["median"] for name, of in lwcp_report()["found"]["lwlog"].items()}
    assert found == {"T_norm, ms": 20.0, "T_recov, ms": 4.0, "T_last, ms": 18.0,
                     "T_cpstep, ms": 5.0, "T_cp, ms": 2.0, "T_cpload, ms": 7.0,
                     "T_log, MiB": 2.0, "T_logload, ms": 1.0, "bytes, MiB": 1.0,
                     "all T_cp, %": pytest.approx(100 * 2 / (900 + 10 + 20 + 30 + 2))}
    said = lwcp.text(lwcp_report())
    assert "checkpoint, bytes: hwcp / lwcp  30.00" in said and ">= 20 met" in said
    assert re.search("T_norm / T_recov: lwlog +5.00 ", said) and "<= 2 met" in said
    assert re.search("T_last / T_norm: lwlog +0.90 ", said)
    assert re.search("T_cp0 / T_cp: lwcp +9.00 ", said)
    assert "in files too" not in said and "in files too" in lwcp.text(lwcp_report(files=True))


def test_steps_taken_again_are_told_by_the_number_that_was_killed(
    capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: each number is a launch with so many kills, and is compared with the first."""
    asked = []

    def launch(options: Any, recovery_name: str) -> tuple[int, dict[str, Any]]:
        asked.append((recovery_name, options.lost))
        return 7, {"T_norm, ms": 30.0, "T_recov, ms": 10.0 * options.lost[0]}

    options = lwcp.parse(["--lost", "1", "3", "--rounds", "1", "-n", "4"])
    assert lwcp_lost.main(options, launch) == 0
    assert asked == [("hwlog", [1]), ("hwlog", [3]), ("lwlog", [1]), ("lwlog", [3])]
    said = capsys.readouterr().out
    assert re.search(r"hwlog: T_recov, ms +10.0 \(10.0 .. 10.0\) +30.0 ", said)
    assert re.search(r"by that with 1 +1.00 +3.00", said)
    assert re.search(r"the paper, by that with 1 +1.00 +1.30", said)
    with pytest.raises(launching.BenchError, match="same bits"):
        lwcp_lost.main(options, lambda options, name: (options.lost[0], launch(options, name)[1]))


@pytest.mark.parametrize(("words", "told"), [
    (["--lost", "8"], "give 9 or more"),
    (["--kill", "11"], "--kill 11: give 12 or more"),
])
def test_kills_that_cannot_be_measured_are_refused(words: list[str], told: str) -> None:
    with pytest.raises(common.UsageError, match=told):
        lwcp.parse(words)


def graph_report() -> dict[str, Any]:
    return {**common.begin("graph"), "scale": 16, "slots": 2, "partition": "hash", "rounds": 1,
            "recovery": "lwlog",
            "theirs": {name: common.spread([0.1]) for name in graph.COMPARED},
            "ours": {name: {"steps": common.spread([0.05]), "run": common.spread([0.06])}
                     for name in ("pagerank", "bfs", "cc")},
            "ratios": {name: common.spread([1.25]) for name in graph.COMPARED}}


def test_peers_do_what_the_programs_do() -> None:
    """Law: ranks are ranks, distances begin at vertex 0, and the targets are told."""
    found = {name: peer() for name, peer in graph.peers_of(6).items()}
    assert found["A.T @ x"].sum() == pytest.approx(1) and len(found["A.T @ x"]) == 64
    reached = np.isfinite(found["dijkstra, unweighted"])
    assert set(np.flatnonzero(reached)) == set(found["breadth_first_order"][0].tolist())
    others = {name: peer() for name, peer in graph.more_peers(6, 2).items()}
    if "NetworKit PageRank" in others:
        assert np.allclose(others["NetworKit PageRank"], found["A.T @ x"], rtol=1e-12)
        distances = others["NetworKit BFS"].getDistances()
        assert distances[:9] == found["dijkstra, unweighted"][:9].tolist()
    said = graph.text(graph_report())
    assert said.count("met") == 3 and said.count("missed") == 1 and "124 times as long" in said


def phoenix_report(monkeypatch: Any) -> dict[str, Any]:
    """From launches that are made up: each failure costs what is left, each run 2 % with Phoenix,
    half as much again with a checkpoint every 5 rounds."""
    options = phoenix.parse(["bfs", "kcore", "-n", "4", "--rounds", "1", "--cr", "5", "50"])

    def launch(options: Any, name: str, rules: list[str]) -> tuple[int, int, list[float]]:
        at = [int(rule.partition(":")[2]) for rule in rules]
        return 20 + 20 - max(at, default=20), 7, [0.05] * bool(rules)

    def run(pace: float) -> dict[str, Any]:
        each = [(float(i), pace * 0.5, pace * 0.6) for i in range(9)]
        return {"crc": 7, "each": each, "fastest_s": pace, "turns": [(0.0, 9.0)]}

    monkeypatch.setattr(phoenix, "launch", launch)
    monkeypatch.setattr(phoenix, "take_turns", lambda *_: {"no-FT": run(1), "phoenix": run(1.02)})
    found = {name: {"lost": phoenix.lose(options, name), "overhead": {
        what: common.spread([value]) for what, value in phoenix.pair(options, name).items()}}
        for name in options.programs}
    monkeypatch.setattr(phoenix, "take_turns", lambda launches, _: {
        every: run({"0": 1, "5": 1.5, "50": 1.1}[every]) for every in launches})
    for name in options.programs:
        found[name]["cr"] = {every: common.spread([value]) for every, value
                             in phoenix.checkpointed(options, name).items()}
    return {**common.begin("phoenix"), "graph": "rmat:14", "slots": 4, "pair": 2, "repeat": 60,
            "rounds": 1, "cr": options.cr, "found": found}


def test_rounds_more_are_counted_with_the_one_that_was_broken_off(monkeypatch: Any) -> None:
    report = phoenix_report(monkeypatch)
    found = report["found"]["kcore"]
    assert [(row["lost"], row["percent"]) for row in found["lost"]] == [
        (lost, percent) for lost in (1, 2) for percent in (25, 50, 75, 99)]
    assert [round(row["extra_percent"]) for row in found["lost"]] == [80, 55, 30, 10] * 2
    assert found["overhead"]["rounds, % more"]["median"] == pytest.approx(2)
    said = phoenix.text(report)
    assert "(10 .. 80) %, target < 50 met; 16 of 16 below" in said and "missed" in said
    words = [line.split() for line in said.splitlines()]
    costs = [line for line in words if line[:3] == ["bfs", "20", "50.00"]]
    assert [line[6] for line in costs] == ["10.00"]


def faults_report(monkeypatch: Any) -> dict[str, Any]:
    """From launches that are made up: a slot that is lost costs a tenth of a run by Phoenix, a
    third by checkpoints, which cost a fifth; a failure late in a run costs as much as an early one.
    """
    options = phoenix.parse(["bfs", "kcore", "-n", "8", "--rounds", "1", "--faults"])

    def launch(options: Any, name: str, arm: Any, rules: list[str]) -> phoenix_faults.Run:
        assert all(0 < int(rule.rpartition(":")[2]) < 20 for rule in rules)
        assert len({rule.partition("@")[0] for rule in rules} - {"0"}) == len(rules)
        saved, each = ("cr" in arm.recovery) / 5, 1 / 3 if "cr" in arm.recovery else 0.1
        more = each * len(rules)
        return phoenix_faults.Run(2 * (1 + saved + more), round(20 * (1 + more)), 100, 7)

    monkeypatch.setattr(phoenix_faults, "launch", launch)
    ways = phoenix_faults.arms(phoenix_faults.EVERY)
    found = {name: {arm: {what: common.spread([value]) for what, value in values.items()}
                    for arm, values in phoenix_faults.measure(options, name, ways).items()}
             for name in options.programs}
    return {**common.begin("phoenix --faults"), "graph": "rmat:14", "slots": 8, "rounds": 1,
            "arms": [arm.name for arm in ways], "lost": phoenix_faults.counts(8),
            "percent": phoenix_faults.PERCENT, "found": found}


def test_failures_are_compared_with_phoenix_without_one(monkeypatch: Any) -> None:
    said = phoenix_faults.text(faults_report(monkeypatch)).splitlines()
    words = {line.partition("  ")[0]: line.split()[2:] for line in said}
    assert words["mean, Ph"] == ["10;", "0", "20;", "0", "40;", "0"]  # rounds, the second table
    times = {line.partition("  ")[0]: line.split()[2:] for line in reversed(said)}
    assert times["mean, Ph"] == ["0", "10", "20", "40"]
    assert times["mean, CR-50"] == ["20", "53", "87", "153"]
    assert times["bfs, CR-5"][:2] == ["2.40", "20"]
    assert [phoenix_faults.counts(slots) for slots in (8, 4, 3, 2)] == [[1, 2, 4], [1, 2], [1], [1]]


# ---- figures, options, smallest runs --------------------------------------------------------


@pytest.mark.nightly
def test_figures_are_drawn(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "figure.png"
    for module, report in (
        (dht, dht_report(monkeypatch, [])),
        (ft_demand, demand_report()),
        (recovery, recovery_report()),
        (recovery_many, many_report()),
        (lwcp, lwcp_report()),
        (graph, graph_report()),
        (phoenix, phoenix_report(monkeypatch)),
        (phoenix_faults, faults_report(monkeypatch)),
    ):
        module.draw(report, path)
        assert path.stat().st_size > 5000
        path.unlink()


@pytest.mark.parametrize(
    "arguments",
    [
        ["dht", "--duty", "1.5"],
        ["dht", "--duty", "0"],
        ["dht", "--log-budget", "much"],
        ["ft", "--logging", "--demand"],
        ["ft", "--log-budget", "4MiB"],
        ["ft", "--demand", "--log-budget", "little"],
        ["recovery", "-n", "1"],
        ["recovery", "-n", "6", "--many"],
        ["lwcp", "-n", "1"],
        ["apgas", "--steps", "5"],
        ["apgas", "--apps", "--mpirun", "--host a,b"],
        ["apgas", "--peers", "--apps"],
        ["phoenix", "hops"],
        ["lwcp", "--kill", "9"],
    ],
    ids=" ".join,
)
def test_a_bad_option_is_one_line_and_status_2(
    arguments: list[str], capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(bench_main, "end_on_signals", lambda: None)
    assert bench_main.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert f"bench {arguments[0]}: error: " in said.err
    assert arguments[-2] in said.err or arguments[-1] in said.err


SMALLEST = {
    "dht": "-n 2 --duty 1 --inserts 300 --spares 0",
    "ft": "--logging --class S -n 2 --repeat 2 --spares 0",
    "ft ": "--demand --class S -n 2 --repeat 2 --log-budget 8MiB --spares 0",
    "micro": "--batches 2 --batch-ms 0.05 --fence-ranks 2 --spares 0",
    "recovery": "--many --class S --runs 2",
    "recovery ": "-n 2 --class S --steps 3 --size 1MiB",
    "graph": "-n 2 --scale 8",
    "phoenix": "cc -n 2 --graph rmat:8 --repeat 0",
    "phoenix ": "kcore -n 2 --graph rmat:8 --faults --cr 3",
    "lwcp": "-n 2 --graph rmat:8 --every 3 --kill 5 --steps 8",
    "apgas": "-n 2 --seconds 0.01",
    "apgas ": "--apps lulesh -n 2 --steps 8",
    "completion": "--rows 300 --cols 40 --rank 3 -n 2",
}


@pytest.mark.plain
@pytest.mark.parametrize("words", [
    "graph_app.py rmat:6 hash lwlog", "lwcp_app.py pagerank rmat:6 lwcp 3 5",
    "lwcp_app.py triangles rmat:6 lwlog 3 5", "phoenix_app.py kcore rmat:6 2",
    "phoenix_app.py cc rmat:6 1 cr:3"])
def test_programs_that_are_timed_run_alone(words: str) -> None:
    """Law: these use the programs that `ftrma graph` runs as these are now."""
    program, *arguments = words.split()
    assert launching.run(launching.plain(1, ROOT / "bench" / program, arguments), 60)


@pytest.mark.parametrize("name", tiers(
    ["dht", "ft", "ft ", "micro", "recovery", "recovery ", "graph", "lwcp", "phoenix", "phoenix ",
     "apgas", "apgas ", "completion"],
    full=["dht"]))
def test_the_smallest_run_reports(name: str, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(bench_main, "end_on_signals", lambda: None)
    arguments = [name.strip(), *SMALLEST[name].split(), "--rounds", "1", "--timeout", "60"]
    assert bench_main.main(arguments) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["benchmark"].split()[0] == name.strip() and report["rounds"] == 1
