"""The parts of the benchmark drivers that measure nothing: statistics, options, launching, drawing.

Why: a ratio that pairs the wrong rounds, or a launch that outlives its time limit and disturbs the
next one, would spoil a measurement without anybody noticing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tiers import tiers
from tree import ROOT

sys.path.insert(0, str(ROOT))

from bench import __main__ as bench_main
from bench import checkpoint, common, encode, ft, launching, micro, wire

SAID = 'import json; print("warming up"); print(json.dumps({"a": 1}))'


# ---- statistics -----------------------------------------------------------------------------


def test_spread_orders_and_takes_quartiles() -> None:
    assert common.spread([5.0, 1.0, 3.0, 2.0, 4.0]) == {
        "n": 5, "min": 1.0, "q1": 2.0, "median": 3.0, "q3": 4.0, "max": 5.0,
        "low": None, "high": None,
    }


def test_spread_of_one_value_is_that_value() -> None:
    found = common.spread(x for x in [7.0])
    assert set(found.values()) == {1, 7.0, None}


@pytest.mark.parametrize(("n", "ranks"), [(5, None), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)),
                                          (20, (6, 15)), (100, (40, 61)), (5000, (2431, 2570))])
def test_interval_of_a_median(n: int, ranks: tuple[int, int] | None) -> None:
    """Law: ranks are those of tables of the sign test at 95 %."""
    found = common.interval(range(1, n + 1))
    assert (found["low"], found["high"]) == (ranks or (None, None))


def test_interval_covers_the_median_in_95_of_100_samples() -> None:
    dice, n = random.Random(3), 11
    inside = 0
    for _ in range(4000):
        found = common.interval(sorted(dice.expovariate(1.0) for _ in range(n)))
        inside += found["low"] <= math.log(2) <= found["high"]
    assert 0.95 <= inside / 4000 <= 0.995  # exactly 0.9883 by the binomial distribution


@pytest.mark.parametrize(("values", "clear"), [
    ([1.1, 1.2, 1.3, 1.2, 1.1, 1.15], True), ([0.9, 1.2, 1.3, 1.2, 1.1, 1.15], False),
    ([1.1, 1.2, 1.3], False)])
def test_ratios_that_may_be_none_are_marked(values: list[float], clear: bool) -> None:
    found = common.spread(values)
    assert common.with_range(found, 1, against=1).endswith(common.UNCLEAR) != clear
    assert common.UNCLEAR not in common.with_range(found, 1)
    assert common.with_range(common.scaled(found, 100), 0, against=100).endswith(
        common.UNCLEAR) != clear


def test_spread_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        common.spread([])


def test_ratios_pair_the_rounds() -> None:
    assert common.ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    with pytest.raises(ValueError):
        common.ratios([1.0], [1.0, 2.0])


def test_table_aligns_its_columns() -> None:
    lines = common.table([["name", "x"], ["long name", "1"], ["b", "200"]]).splitlines()
    assert lines == ["name         x", "--------------", "long name    1", "b          200"]


# ---- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["ft", "--class", "X"],
        ["ft", "-n", "0"],
        ["ft", "--spares", "-1"],
        ["ft", "--interval", "nan"],
        ["micro", "--rounds", "1.5"],
        ["micro", "--what"],
        ["checkpoint", "--size", "64 parsecs"],
        ["checkpoint", "--size", "4KiB"],
        ["checkpoint", "--directory", "/no/such/directory"],
        ["checkpoint", "--json", "/no/such/directory/report.json"],
        ["checkpoint", "--plot", "figure.docx"],
        ["encode", "--checksums", "9"],
        ["encode", "--members", "254"],
        ["encode", "--sizes", "1KiB"],
        ["encode", "--kernel", "mmx"],
    ],
    ids=" ".join,
)
def test_a_bad_option_is_one_line_and_status_2(
    arguments: list[str], capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(bench_main, "end_on_signals", lambda: None)
    assert bench_main.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1 and said.err.startswith("bench")
    assert all(argument in said.err for argument in arguments[2:])


def test_a_figure_without_matplotlib_names_the_extra(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(bench_main, "end_on_signals", lambda: None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert bench_main.main(["micro", "--plot", "figure.png"]) == 2
    assert "ftrma[bench]" in capsys.readouterr().err


# ---- launching ------------------------------------------------------------------------------


def test_run_returns_the_object_of_the_last_line() -> None:
    assert launching.run([sys.executable, "-c", SAID], 60) == {"a": 1}


def test_run_reports_a_failure_with_what_was_said() -> None:
    with pytest.raises(launching.BenchError, match=r"(?s)exit status 3.*no such luck"):
        launching.run([sys.executable, "-c", "import sys; print('no such luck'); sys.exit(3)"], 60)


@pytest.mark.parametrize("text", ["", "not JSON", "[1]", '{"a": 1}\nafterwards'])
def test_output_without_an_object_is_an_error(text: str) -> None:
    with pytest.raises(launching.BenchError, match="the source"):
        launching.last_object(text, "the source")


@pytest.mark.full
def test_nothing_of_a_launch_outlives_its_time_limit(tmp_path: Path) -> None:
    """Not even a grandchild in a session of its own, as the launcher of a protected run is."""
    note = tmp_path / "pid"
    program = (
        "import pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(launching.BenchError, match="--timeout"):
        launching.run([sys.executable, "-c", program], 3)
    deadline = time.monotonic() + 10
    while alive(int(note.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_settings_of_the_user_reach_neither_side(monkeypatch: Any) -> None:
    monkeypatch.setenv("FTRMA_INTERVAL", "0")
    monkeypatch.setenv("OMPI_MCA_osc", "rdma")
    assert not {"FTRMA_INTERVAL", "OMPI_MCA_osc"} & set(launching.environment())
    assert os.environ["FTRMA_INTERVAL"] == "0"


# ---- what the drivers make of measurements --------------------------------------------------


def ft_runs(seconds: list[float], checkpoints: int) -> list[dict[str, Any]]:
    taken = [{"version": i, "kind": "coordinated", "seconds": 0.001, "bytes": 2 << 20,
              "dirty_bytes": 1 << 20}
             for i in range(checkpoints)]
    return [
        {
            "seconds_median": s, "seconds_mean": 2 * s, "seconds_fastest": s / 2, "mops": 1 / s,
            "checkpoints": taken,
        }
        for s in seconds
    ]


def ft_report() -> dict[str, Any]:
    runs = {name: ft_runs([1.0, 4.0], 0) for name in ft.sides_of(ft.parse([]))}
    runs["f-no-daly"] = ft_runs([1.5, 4.0], 3)
    return {
        **common.begin("ft"), "problem_class": "W", "rounds": 2, "repeat": 9, "interval_s": 1.0,
        "mtbf_s": 3600.0,
        "results": [
            {"slots": n, "variants": {v: ft.summary(r, runs["no-FT"]) for v, r in runs.items()}}
            for n in (2, 4)
        ],
    }


def test_ft_compares_within_a_round() -> None:
    found = ft_report()["results"][0]["variants"]
    assert found["f-no-daly"]["overhead_median_percent_each"] == [50.0, 0.0]
    assert found["f-no-daly"]["checkpoints_per_launch"]["median"] == 3
    assert "overhead_median_percent" not in found["no-FT"]


def test_ft_says_when_no_checkpoint_came() -> None:
    report = ft_report()
    said = ft.text(report)
    assert "note: f-daly came to no checkpoint" in said
    assert "note: f-no-daly" not in said


def checkpoint_report(monkeypatch: Any, dirty_share: float = checkpoint.DIRTY_SHARE) -> Any:
    kinds = [kind for kind in checkpoint.KINDS if "dirty" in kind]
    shares = {"all": 1.0, "nothing": 0.0, "some": dirty_share}
    rounds = [
        {
            "seconds": {kind: r * i / 1e3 for i, kind in enumerate(checkpoint.KINDS, 1)},
            "versions": {kind: r * 10 + i for i, kind in enumerate(kinds)},
        }
        for r in (1, 2)
    ]
    stats = {
        "checkpoints": [
            {"version": r["versions"][k], "bytes": 1000, "dirty_bytes": 1000 * shares[k.split()[0]]}
            for r in rounds
            for k in kinds
        ]
    }
    slot = {"total": 300, "copy": 100, "stage": 100, "lists": 100}
    rank = {"total": 300, "parity": 100, "sum": 100, "lists": 100}
    memory = {"windows": 200, "slots": [slot, slot], "checksum_ranks": [rank]}
    monkeypatch.setattr(
        launching, "run_protected", lambda *_: ({"rounds": rounds, "memory": memory}, stats)
    )
    options = checkpoint.parse(["--size", "1MiB"])
    return {
        **common.begin("checkpoint"), "ranks": 2, "size_bytes": 1 << 20, "rounds": 2,
        "disk": "ext4", **checkpoint.measure(options),
    }


def test_checkpoint_reports_ratios_and_memory(monkeypatch: Any) -> None:
    report = checkpoint_report(monkeypatch)
    assert len(report["ratios"]) == len(checkpoint.RATIOS)
    kinds = list(checkpoint.KINDS)
    expected = (kinds.index("all dirty") + 1) / (kinds.index("memcpy") + 1)
    assert report["ratios"][0]["each"] == pytest.approx([expected] * 2)
    assert "window 100 B + copy 100 B + stage 100 B" in checkpoint.text(report)


def test_checkpoint_refuses_what_was_not_as_dirty_as_meant(monkeypatch: Any) -> None:
    with pytest.raises(launching.BenchError, match="some dirty"):
        checkpoint_report(monkeypatch, dirty_share=0.5)


def micro_report() -> dict[str, Any]:
    times = {
        "unprotected": [[1e-6, 2e-6, 9e-6]], "without logs": [[2e-6, 3e-6, 4e-6]],
        "with logs": [[3e-6, 6e-6, 7e-6]],
    }
    calls = ("Fence", "Get 8 B + Flush", micro.COLD_COPY, micro.WITH_COPY)
    return {
        **common.begin("micro"), "rounds": 1, "batches": 3,
        "results": [micro.summary(call, 2, times) for call in calls],
    }


def test_micro_takes_the_median_and_the_fastest_batch() -> None:
    report = micro_report()
    found = report["results"][0]["without logs"]
    assert (found["ratio"]["median"], found["ratio_fastest"]["median"]) == (1.5, 2.0)
    assert report["results"][1]["with logs"]["ratio"]["median"] == 3.0
    said = micro.text(report)
    assert "<= 1.50 met" in said and "<= 1.60 missed" in said


def test_micro_adds_the_copy_to_the_put() -> None:
    put = {"unprotected": [[1.0, 2.0, 9.0], [1.0, 1.0, 1.0]]}
    copy = {"unprotected": [[10.0, 20.0, 21.0], [5.0, 6.0, 7.0]]}
    both = micro.together(put, copy)
    assert [min(each) for each in both] == [11.0, 6.0]
    assert [sorted(each)[1] for each in both] == [22.0, 7.0]


@pytest.mark.parametrize("peak_bytes", [0, 2 << 20])
def test_micro_refuses_logs_that_did_not_hold_all(peak_bytes: int) -> None:
    logs = [{"peak_bytes": each, "budget_bytes": 1 << 20} for each in (peak_bytes, 1000)]
    stats = {"log": logs}
    with pytest.raises(launching.BenchError, match="not everything was logged"):
        micro.check_logs(stats)


@pytest.fixture(scope="module")
def encode_report() -> dict[str, Any]:
    """The smallest measurement, of all sides that are there."""
    report = encode.run(encode.parse(["--sizes", "256KiB", "--rounds", "2", "--batch-ms", "0.2"]))
    return json.loads(json.dumps(report))  # it must be JSON


def test_encode_measures_every_operation(encode_report: dict[str, Any]) -> None:
    found = {(r["operation"], r["baseline"]) for r in encode_report["results"]}
    assert set(encode.TARGETS) - {(o, "ISA-L") for o in ("xor", "encode", "decode")} <= found
    assert all(r["ratio"]["min"] > 0 for r in encode_report["results"])
    assert "y ^= c*x, two y" in encode.text(encode_report)


@pytest.mark.plain
def test_wire_measures_every_request() -> None:
    report = wire.run(wire.parse(["--rounds", "2", "--batch", "500"]))
    assert len(report["results"]) == 7
    assert all(0 < r["us"]["min"] <= r["us"]["median"] for r in report["results"])
    assert report["idle"]["private_mib"] < 20 and "fetch and add" in wire.text(report)


def test_encode_without_isal_says_so(monkeypatch: Any) -> None:
    monkeypatch.setattr(encode, "load_isal", lambda: None)
    report = encode.run(encode.parse(["--sizes", "256KiB", "--rounds", "1", "--batch-ms", "0.2"]))
    assert {r["baseline"] for r in report["results"]} == {"scan", "memcpy"}
    assert "ISA-L not found" in encode.text(report)


def test_encode_computes_the_same_as_isal() -> None:
    """Law: what the two sides are timed with is the same work."""
    isal = encode.load_isal()
    if isal is None:
        pytest.skip("ISA-L is not installed")
    group = encode.Group(encode.loading.load(), isal, 5, 3, 4096)
    for operation in ("xor", "encode", "decode", "fold 1", "fold 2"):
        results = []
        for side in ("ours", "ISA-L"):
            before = [row.copy() for row in group.rows]
            group.calls[operation][side](4096)
            results.append([row.copy() for row in group.rows])
            for row, content in zip(group.rows, before, strict=True):
                row[:] = content
        assert any((a != b).any() for a, b in zip(results[0], before, strict=True)), operation
        for ours, theirs in zip(*results, strict=True):
            assert (ours == theirs).all(), operation


def test_encode_finds_the_target_of_a_size() -> None:
    sizes = [1 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20]
    found = [encode.target_of("encode", "ISA-L", size) for size in sizes]
    assert found == [None, 0.75, 0.95, 0.95, 1.15]
    assert encode.target_of("encode", "scan", 1 << 30) is None


def test_reports_end_with_one_json_object(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    drawn: list[Path] = []
    common.finish(micro_report(), argparse.Namespace(json=path, plot=tmp_path / "x.png"),
                  lambda _: "the table", lambda _, file: drawn.append(file))
    assert drawn == [tmp_path / "x.png"]
    said = capsys.readouterr().out
    assert said.startswith("the table\n")
    assert json.loads(said.splitlines()[-1]) == json.loads(path.read_text())


@pytest.mark.plain
@pytest.mark.parametrize("kind", tiers(["png", "pdf", "svg"], full=["svg"]))
def test_figures_are_drawn(
    kind: str, tmp_path: Path, monkeypatch: Any, encode_report: dict[str, Any]
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"figure.{kind}"
    for module, report in (
        (ft, ft_report()),
        (micro, micro_report()),
        (checkpoint, checkpoint_report(monkeypatch)),
        (encode, encode_report),
    ):
        module.draw(report, path)
        assert path.stat().st_size > 5000
        path.unlink()


def test_a_source_tree_that_is_not_built_is_told(tmp_path: Path) -> None:
    """Law: where the source tree hides an installed package, the remedy is told in one line."""
    for name in ("ftrma", "bench"):
        shutil.copytree(Path(bench_main.__file__).parents[1] / name, tmp_path / name,
                        ignore=shutil.ignore_patterns("_*declarations.py", "*.so", "__pycache__"))
    # Without the finder of an editable installation, which would find the missing module.
    code = ("import runpy, sys; sys.meta_path = [finder for finder in sys.meta_path if 'Editable' "
            "not in getattr(finder, '__name__', '')]; runpy.run_module('bench', None, '__main__')")
    done = subprocess.run([sys.executable, "-c", code, "micro"], cwd=tmp_path, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done
    assert f"{tmp_path / 'ftrma'} is not built" in done.stderr
