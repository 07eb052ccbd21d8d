"""``ftrma reliability`` and ``ftrma plan`` as a user meets them; the search behind the plan."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ftrma.command import cli
from ftrma.machine.interval import daly_interval, expected_waste
from ftrma.machine.topology import make_layout
from ftrma.reliability import machine, model, provision
from ftrma.reliability.model import Groups

BASE = "--machine tsubame2 --ranks 4000 --checksums 200"
PLAN = "--machine tsubame2 --ranks 4000 --memory 2GiB --target-pcf 2e-5 --mtbf 36000"


def call(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    """Status, output and errors of one command."""
    with pytest.raises(SystemExit) as end:
        cli.main(shlex.split(line))
    said = capsys.readouterr()
    return int(str(end.value.code)), said.out, said.err


def call_json(capsys: pytest.CaptureFixture[str], line: str) -> Any:
    status, out, err = call(capsys, line + " --json")
    assert (status, err) == (0, "")
    return json.loads(out)


# ---- ftrma reliability ----------------------------------------------------------------------


def test_one_layout_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: all keys are there, the parts add up, and the number is the model's."""
    (found,) = call_json(capsys, f"reliability {BASE} --aware switches")["points"]
    assert {k: found[k] for k in ("machine", "ranks", "checksums", "aware", "m", "group_size")} == {
        "machine": "tsubame2", "ranks": 4000, "checksums": 200, "aware": "switches", "m": 1,
        "group_size": 20,
    }
    assert list(found["by_level"]) == ["nodes", "psus", "switches", "racks"]
    assert found["p_cf_per_day"] == pytest.approx(sum(found["by_level"].values()))
    assert found["p_cf_per_day"] == pytest.approx(1.7393e-5, rel=1e-4)
    assert set(found["exact"]) == {"aligned", "scattered"}


def test_all_numbers_of_the_text_are_those_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: the table of strategies shows what JSON holds, one line each."""
    points = call_json(capsys, f"reliability {BASE}")["points"]
    _, out, _ = call(capsys, f"reliability {BASE} --aware all")
    assert [p["aware"] for p in points] == ["none", "nodes", "psus", "switches", "racks"]
    for p in points:
        (line,) = [line for line in out.splitlines() if line.startswith(p["aware"] + " ")]
        assert f"{p['p_cf_per_day']:.3e}" in line
        assert f"{p['exact']['scattered']['p_cf_per_day']:.3e}" in line


@pytest.mark.plain
def test_a_sweep_is_a_table_and_a_figure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Law: 20 x 5 points take less than 2 s of computing; columns are aligned; what does not fit is
    a gap with its reason; the figure is written."""
    line = "reliability --machine tsubame2 --ranks 4000 --checksums 50:1000:50"
    began = time.process_time()
    points = call_json(capsys, line)["points"]
    assert time.process_time() - began < 2
    assert len(points) == 100
    assert [p["checksums"] for p in points if p["p_cf_per_day"] is None] == [50]
    _, out, _ = call(capsys, f"{line} --plot {tmp_path / 'c.svg'}")
    first = [row for row in out.split("\n\n")[1].splitlines()[3:] if row]
    assert len(first) == 20 and len({len(row) for row in first}) == 1
    assert "does not fit: --aware racks: a group has 81 members" in out
    drawn = (tmp_path / "c.svg").read_text()
    for word in (
        "checksum ranks",
        "catastrophic failures per day",
        "no-topo",
        "racks",
        "HPDC 2014",
    ):
        assert word in drawn


@pytest.mark.plain
def test_the_simulation_stands_beside_the_formula(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: bounds that hold the exact value, reproducible by the seed, in JSON and text."""
    line = f"reliability {BASE} --aware nodes --simulate 2000 --seed 3"
    (found,) = call_json(capsys, line)["points"]
    for kind in ("aligned", "scattered"):
        low, high = found["simulated"][kind]["between"]
        assert low <= found["exact"][kind]["p_cf_per_day"] <= high
    assert call_json(capsys, line)["points"] == [found]
    assert f"{found['simulated']['aligned']['p_cf_per_day']:.3e}" in call(capsys, line)[1]


@pytest.mark.plain
def test_fits_are_shown_and_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Law: both fits per level with their goodness; the lines for a machine file work in one; a
    level that cannot be fitted is said and spoils nothing."""
    record = tmp_path / "f.csv"
    counts = [1] * 60 + [2] * 20 + [3] * 5
    rows = [f"{i / 2},nodes,{n}" for i, n in enumerate(counts)] + ["1,racks,1"]
    record.write_text("time,level,count\n" + "\n".join(rows) + "\n")
    figure = tmp_path / "ab.svg"
    line = f"reliability --fit {record} --history-days 50 --plot {figure}"
    status, out, _ = call(capsys, line)
    assert status == 0 and "racks: all failures hit 1 element" in out
    found = call_json(capsys, line)["fit"]
    fits = found["levels"]["nodes"]["fits"]
    assert [fit["method"] for fit in fits] == ["least squares", "maximum likelihood"]
    assert all(fit["p_value"] > 0.01 and fit["r_squared"] > 0.98 for fit in fits)
    assert found["mtbf_s"] == pytest.approx(50 * 86400 / 86) and "a failure every 50232.6 s" in out
    assert found["days"] == 50 and found["levels"]["racks"]["fits"] == []
    described = tmp_path / "m.toml"
    snippet = out[out.index("[level.failures]") :]
    described.write_text(f'name = "m"\n[[level]]\nname = "nodes"\ncount = 100\n{snippet}')
    assert machine.read(described).levels[0].total_per_day() == pytest.approx(85 / 50, rel=1e-4)
    assert "that fail at once" in figure.read_text() and "failures per day" in figure.read_text()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("reliability", "--machine is missing"),
        ("reliability --machine tsubame2 --ranks 4000", "--checksums is missing"),
        ("reliability --machine nowhere --ranks 4 --checksums 2", "--machine nowhere: no such"),
        ("reliability --machine tsubame2 --ranks -4 --checksums 2", "--ranks -4: expected a whole"),
        ("reliability --machine tsubame2 --ranks 1e3 --checksums 2", "--ranks 1e3: expected"),
        (
            f"reliability {BASE} --aware rows",
            "--aware rows: TSUBAME2.0 has no such level; use none",
        ),
        (f"reliability {BASE} --m 0", "--m 0: expected"),
        (f"reliability {BASE} --m 3", "3 per group do not divide them; use 198 or 201"),
        ("reliability --machine tsubame2 --ranks 4000 --checksums 10", "at most 255; use 16"),
        ("reliability --machine tsubame2 --ranks 4000 --checksums 50 --aware racks", "44 racks"),
        ("reliability --machine tsubame2 --ranks 4000 --checksums 9:5:1", "5 is below 9"),
        ("reliability --machine tsubame2 --ranks 4000 --checksums 1:2", "FROM:TO:STEP"),
        ("reliability --machine tsubame2 --ranks 4000 --checksums 1:99999:1", "a larger step"),
        (f"reliability {BASE} --simulate 5", "too few"),
        (f"reliability {BASE} --simulate 99999999999", "would take long"),
        (f"reliability {BASE} --plot x.gif", "--plot x.gif: unknown kind"),
        (f"reliability {BASE} --plot nowhere/x.png", "there is no directory nowhere"),
        (f"reliability {BASE} --history-days 5", "only with --fit"),
        ("reliability --fit none.csv", "none.csv: cannot be read"),
        ("reliability --fit none.csv --ranks 5", "--ranks: not together with --fit"),
        (PLAN.replace("2e-5", "2").join(["plan ", ""]),
         "--target-pcf 2: expected a probability, 1e-300 or more, at most 1"),
        (PLAN.replace("2e-5", "-1").join(["plan ", ""]), "--target-pcf -1: expected"),
        (PLAN.replace("2GiB", "2XiB").join(["plan ", ""]),
         "--memory 2XiB: expected bytes, such as"),
        (PLAN.replace("36000", "nan").join(["plan ", ""]), "--mtbf nan: expected"),
        (PLAN.replace("36000", "1e-3").join(["plan ", ""]), "the program never gets on"),
        ("plan --machine tsubame2", "--target-pcf is missing"),
        (f"plan {PLAN.split(' --mtbf')[0]}", "--mtbf is missing: give the seconds between"),
        (f"plan {PLAN.split(' --mtbf')[0]}", "TSUBAME2.0 add up to a failure every 7.8"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], line: str, words: str) -> None:
    """Law: status 2, nothing on the output, one line with the value and the remedy."""
    status, out, err = call(capsys, line)
    assert (status, out) == (2, "")
    assert err.startswith("ftrma: error: ") and err.count("\n") == 1 and words in err


def test_without_matplotlib_there_is_a_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: asking for a figure says what to install; all else works without."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, err = call(capsys, f"reliability {BASE} --plot x.png")
    assert status == 2 and "pip install matplotlib" in err and err.count("\n") == 1
    assert call(capsys, f"reliability {BASE}")[0] == 0


def test_running_a_program_loads_none_of_this() -> None:
    """Law: building the parser of all commands, as `ftrma run` does, imports nothing heavy."""
    code = (
        "import sys; from ftrma.command import cli; cli.build_parser(); "
        "print([m for m in ('scipy', 'matplotlib', 'ftrma.reliability.model') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                         check=True).stdout
    assert out.strip() == "[]"


# ---- ftrma plan -----------------------------------------------------------------------------


def demand(**changed: Any) -> provision.Demand:
    given: dict[str, Any] = {
        "ranks": 120, "memory_bytes": 2**30, "target_per_day": 3e-5, "mtbf_s": 36000.0,
        "bandwidth_bytes_per_s": 2e9,
    }
    return provision.Demand(**given | changed)


def test_the_plan_is_the_cheapest_of_all() -> None:
    """Law: no layout that reaches the target costs less than the first, and runners-up are the
    cheapest of their m and awareness, in order."""
    tsubame = machine.load("tsubame2")
    found, safest = provision.search(tsubame, demand())
    assert found and safest is None
    every = [o for o in provision.offers(tsubame, demand()) if o.p_cf_per_day <= 3e-5]
    assert found[0].processor_time == min(o.processor_time for o in every)
    assert len({(o.groups.m, o.aware) for o in found}) == len(found)
    assert found == sorted(found, key=provision.rank)
    for o in found:
        assert all(o.processor_time <= p.processor_time for p in every
                   if (p.groups.m, p.aware) == (o.groups.m, o.aware))


def test_offers_are_what_the_model_says() -> None:
    """Law: P_cf of an offer is the scattered model's for its layout; its line is a layout that
    `ftrma run` accepts; groups leave an element free at every level where they lie
    apart."""
    tsubame = machine.load("tsubame2")
    offers = list(provision.offers(tsubame, demand()))
    assert len(offers) > 100
    for o in offers:
        above = tsubame.levels[: tsubame.awareness(o.aware)]
        assert all(o.groups.members < level.count for level in above)
    assert max(o.groups.members for o in offers if o.aware == "racks") == 43
    for o in offers[::7]:
        aware = tsubame.awareness(o.aware)
        again = model.make_groups(120, o.groups.checksums, o.groups.m)
        assert again == o.groups
        expected = model.total(model.p_cf_per_day(tsubame, again, aware, "scattered"))
        assert o.p_cf_per_day == pytest.approx(expected)
        if not o.too_large:
            layout = make_layout(120, o.groups.checksums, o.groups.size, o.spares)
            assert (layout.processes, layout.strength) == (o.processes, o.groups.m)
        assert ("--topology" in o.command(1.0)) == (o.aware not in ("none", "nodes"))


def test_costs_by_hand() -> None:
    """Law: 12 ranks of 2 GB in 3 groups with m = 2 at 1 GB/s on 44 racks and 1408 nodes: 2 s per
    checkpoint; Daly's interval if a checksum rank reads its 4 members sooner, else that time."""
    tsubame = machine.load("tsubame2")
    for mtbf_s, interval_s in ((1000.0, daly_interval(2, 1000)), (5.0, 8.0)):
        given = provision.Demand(12, 2e9, 1.0, mtbf_s, 1e9)
        found = provision.price(tsubame, given, Groups(12, 3, 2), "racks", 0.5)
        assert (found.spares, found.processes, found.delta_s) == (1, 19, 2.0)
        assert found.interval_s == pytest.approx(interval_s)
        assert found.memory_bytes == 2e9 * (2 * 12 + 2 * 6 + 1)
        assert found.waste == pytest.approx(expected_waste(interval_s, 2, mtbf_s, 8))
        assert found.processor_time == pytest.approx(19 / 12 / (1 - found.waste) - 1)


def test_stricter_targets_cost_more() -> None:
    """Law: a lower target never gets cheaper, and is kept."""
    tsubame = machine.load("tsubame2")
    costs = []
    for target in (1e-2, 1e-4, 2e-5, 1e-6, 1e-8):
        found, _ = provision.search(tsubame, demand(target_per_day=target))
        assert found[0].p_cf_per_day <= target
        costs.append(found[0].processor_time)
    assert costs == sorted(costs) and costs[0] < costs[-1]


@pytest.mark.plain
def test_the_plan_as_a_user_sees_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: choice, costs, runners-up and the line to use, in less than 5 s of computing;
    JSON has the same."""
    began = time.process_time()
    status, out, _ = call(capsys, f"plan {PLAN}")
    assert status == 0 and time.process_time() - began < 5
    found = call_json(capsys, f"plan {PLAN}")
    best = found["offers"][0]
    assert best["command"] in out and "runner-up" in out and "processor time" in out
    assert best["p_cf_per_day"] <= 2e-5
    assert f"-n 4000 --group-size {best['group_size']} " in best["command"]
    assert best["processes"] == 4000 + best["checksums"] + best["spares"]
    assert "at most 1024" in best["note"]


def test_what_cannot_be_reached_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: status 1, and the safest layout there is."""
    line = "plan --machine bluewaters --ranks 1000 --memory 1GiB --target-pcf 1e-6 --mtbf 15500"
    status, out, _ = call(capsys, line)
    assert status == 1 and "no layout on Blue Waters keeps P_cf at 1e-06" in out
    assert "the lowest is 0.149" in out and "ftrma run -n 1000" in out


@pytest.mark.plain
def test_a_reader_may_stop_early() -> None:
    """Law: a closed pipe ends the command without a complaint."""
    code = "import sys; from ftrma.command.cli import main; main(sys.argv[1:])"
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-c", code, "reliability", *BASE.split()],
            stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "")
