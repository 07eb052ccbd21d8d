"""The report: one page that holds all that is told of a run, and that needs nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftrma.command import cli, reportcharts, reportdata, reportpage, reporttrace
from ftrma.fabric.story import (
    Began,
    Checkpoint,
    Degraded,
    Entered,
    Event,
    Failure,
    Phases,
    Recovery,
    Reseat,
    Stall,
)
from ftrma.launch.stats import summary
from ftrma.machine.topology import make_layout
from ftrma.trace import records
from ftrma.trace.records import RECORD, What

T = 1_700_000_000.0
HOSTILE = "<script>alert('&')</script>"
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium",
                                               "chromium-browser", "google-chrome"))), None)
STORY: list[Event] = [
    Began(time=T), Entered(time=T + 2),
    Checkpoint(1, "coordinated", 0.01, 1 << 20, 1 << 19, step=50, time=T + 10),
    Failure("slot", 1, 11, "fence", time=T + 12),
    Recovery("causal", (1,), 1, 0.5, Phases(0.01, 0.09, 0.1, 0.3), "", 0.0, time=T + 12.5),
    Checkpoint(2, "coordinated", 0.02, 1 << 20, 1 << 18, step=120, time=T + 20),
    Checkpoint(2, "demand", 0.02, 1 << 18, 1 << 18, slot=3, time=T + 21),
    Failure("checksum", 0, 12, "unknown", host="node2", time=T + 22),
    Reseat(0, 0.5, 0, time=T + 22.5),
    Stall("stall", (2,), 10.0, (f"slot 2: {HOSTILE}",), "replace", (13,), time=T + 25),
    Failure("slot", 2, 13, "unknown", time=T + 26),
    Recovery("rollback", (2,), 2, 1.0, Phases(0.1, 0.5, 0.4), HOSTILE, 0.0, time=T + 27),
    Checkpoint(3, "coordinated", 0.01, 1 << 20, 1 << 18, step=60, time=T + 33),
    Degraded(2, 0, 4, 1, 1, time=T + 35),
]


def stats_of(events: list[Event] = STORY, ended: float = T + 40) -> dict[str, Any]:
    """Statistics as ``--stats`` has them."""
    found = summary(events, make_layout(4, 2, 2, 2), 0, ended)
    logs = [{"peak_bytes": s << 20, "budget_bytes": 64 << 20} for s in range(4)]
    return {"job": "ftrma-0-00000000", "program": ["app.py", HOSTILE], **found,
            "began_monotonic_s": 100.0, "log": logs,
            "pace": [{"steps": 100, "own_s": 5.0 if s == 2 else 1.0, "waited_s": 4.0}
                     for s in range(4)], "slow": [{"slot": 2, "times": 5.0}]}


def write_trace(path: Path, slow: int = 3) -> None:
    """A trace of 4 slots that pass 20 safepoints each; one of them computes for longer."""
    rows = []
    for slot in range(4):
        for step in range(20):
            at = int((105 + step) * 1e9)
            fence = at + int((0.9 if slot == slow else 0.3) * 1e9)
            rows.append((at, at + 10**6, What.Safepoint, slot, 2 * step + 1))
            rows.append((fence, int((106 + step) * 1e9), What.Fence, slot, 2 * step + 2))
    found = np.zeros(len(rows), RECORD)
    for i, (begin, end, what, slot, event) in enumerate(sorted(rows)):
        found[i]["begin_ns"], found[i]["end_ns"], found[i]["what"] = begin, end, what
        found[i]["slot"], found[i]["proc"], found[i]["event"] = slot, slot, event
        found[i]["window"] = found[i]["target"] = -1
        found[i]["entry"] = 1
    path.write_text("".join(records.document(found, int(found[0]["begin_ns"]), 4, [])))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A page about a run with failures of all kinds, its trace, and a machine."""
    (tmp_path / "stats.json").write_text(json.dumps(stats_of()))
    write_trace(tmp_path / "trace.json")
    page = tmp_path / "page.html"
    status = run("report", tmp_path / "stats.json", tmp_path / "trace.json", "-o", page,
                 "--machine", "tsubame2")
    assert status == 0
    return page


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    return int(ended.value.code or 0)


class Reader(HTMLParser):
    """Finds elements that are not closed, and what a page would load or run."""

    VOID = ("meta", "br", "i")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "action") or name.startswith("on"):
                self.loads.append(f"{name}={value}")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open[-4:], self.getpos())
        self.open.pop()


def test_the_page_needs_nothing_else(written: Path) -> None:
    """Law: it loads nothing and runs nothing; what a run says of itself is text."""
    text = written.read_text()
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    assert all(load.startswith("href=data:image/png;base64,") for load in reader.loads)
    assert not reader.seen & {"script", "link", "iframe", "object", "embed", "form"}
    assert "default-src 'none'" in text and HOSTILE not in text
    assert text.count("&lt;script&gt;") >= 3  # in the program, the reason and the stall


def test_the_page_tells_all(written: Path) -> None:
    text = re.sub(r"<[^>]+>", " ", written.read_text().partition("</style>")[2])
    for words in ("effective time", "causal", "rollback", "slot 1, at fence", "checksum 0 on node2",
                  "TSUBAME2.0", "racks", "Slow: slot 3", "Checksum ranks replaced", "Stalls",
                  "What one more failure would cost",
                  "given up at 35.0 s  2 of the checksum ranks, 1 of the spares"):
        assert words in text, words


def test_slow_slots_without_a_trace(tmp_path: Path) -> None:
    """Law: without a trace the supervisor's watch names them."""
    (tmp_path / "stats.json").write_text(json.dumps(stats_of()))
    assert run("report", tmp_path / "stats.json", "-o", tmp_path / "page.html") == 0
    text = (tmp_path / "page.html").read_text()
    assert "Slow: slot 2 (50 ms)" in text and "50 ms of 90 ms" in text


def test_a_run_without_anything(tmp_path: Path) -> None:
    """Law: no section fails where there is nothing to tell."""
    for events in ([], STORY[:1], STORY[:2], STORY[:3]):
        (tmp_path / "stats.json").write_text(json.dumps(stats_of(events, T + 3)))
        assert run("report", tmp_path / "stats.json", "-o", tmp_path / "page.html") == 0
        Reader().feed((tmp_path / "page.html").read_text())


@pytest.mark.plain
def test_a_long_run_makes_a_small_page(tmp_path: Path) -> None:
    """Law: marks that fall together are drawn once."""
    many = [Checkpoint(v, "coordinated", 0.01, 9, 9, step=v, time=T + 2 + v)
            for v in range(1, 30_001)]
    (tmp_path / "stats.json").write_text(json.dumps(stats_of([*STORY[:2], *many], T + 30_100)))
    assert run("report", tmp_path / "stats.json", "-o", tmp_path / "page.html") == 0
    assert (tmp_path / "page.html").stat().st_size < 400_000


def test_spans_of_a_run() -> None:
    """Law: the timeline's spans are those of the account."""
    found = reportdata.run_of(stats_of())
    assert found.spans == [("recoveries", 12.0, 12.5), ("recoveries", 26.0, 27.0),
                           ("again", 20.0, 26.0), ("starting", 0.0, 2.0)]
    assert reportcharts.steps(found) == [(2, 0), (10, 50), (20, 120), (27, 120), (27, 120),
                                         (33, 180)]


@pytest.mark.parametrize(("change", "named"), [
    (lambda stats: stats.pop("effective"), "effective lacks"),
    (lambda stats: stats.update(slots=0), "slots is 0"),
    (lambda stats: stats.update(slots=True), "slots is 'True'"),
    (lambda stats: stats.update(checkpoints=[7]), "checkpoints"),
    (lambda stats: stats["recoveries"][0].pop("phases"), "phases lacks"),
    (lambda stats: stats["recoveries"][0].update(seconds=float("nan")), "seconds is 'nan'"),
    (lambda stats: stats["effective"].update(total_s="7"), "total_s"),
    (lambda stats: stats["pace"][1].pop("own_s"), "own_s"),
    (lambda stats: stats["log"][0].update(budget_bytes="much"), "budget_bytes"),
    (lambda stats: stats["stalls"][0].update(at_s=[]), "at_s"),
    (lambda stats: stats["degraded"][0].pop("spares"), "spares lacks"),
], ids=["no account", "no slots", "true", "a number", "no phases", "no number", "text",
        "half a pace", "a word for a number", "a list for a time", "half a loss"])
def test_what_are_no_statistics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, named: str
) -> None:
    """Law: one line names the file, the field and the remedy; nothing is written."""
    stats = stats_of()
    change(stats)
    (tmp_path / "stats.json").write_text(json.dumps(stats))
    assert run("report", tmp_path / "stats.json", "-o", tmp_path / "page.html") == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and named in said and "--stats FILE" in said
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("content", [None, "", "[]", "{", "\0", '{"slots": 4}'])
def test_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    if content is not None:
        (tmp_path / "stats.json").write_text(content)
    assert run("report", tmp_path / "stats.json", "-o", tmp_path / "page.html") == 2
    assert "--stats FILE" in capsys.readouterr().err


def test_the_page_replaces_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stats.json").write_text(json.dumps(stats_of()))
    assert run("report", tmp_path / "stats.json", "-o", tmp_path / "stats.json") == 2
    assert "is read as" in capsys.readouterr().err


def test_shares_of_calls() -> None:
    """Law: a stretch of time has the share that calls cover, also of calls over its border."""
    begin, end = np.array([0.0, 1.5]), np.array([0.5, 3.0])
    found = reporttrace.covered(begin, end, 1.0)
    assert found[:5] == pytest.approx([0.5, 0.5, 1.0, 0.0, 0.0])


def test_slow_slots(tmp_path: Path) -> None:
    """Law: a slot is slow if its own part of a step is, though all steps take equally long."""
    write_trace(tmp_path / "trace.json")
    found = reporttrace.read(str(tmp_path / "trace.json"), 100.0, 40.0)
    assert [pace.slot for pace in found.slow] == [3]
    assert [pace.step_s for pace in found.paces] == pytest.approx([1.0] * 4)
    assert [pace.own_s for pace in found.paces] == pytest.approx([0.299] * 3 + [0.899])
    assert found.levels[0][0] == reporttrace.ABSENT and len(found.levels[0]) == reporttrace.BINS
    write_trace(tmp_path / "trace.json", slow=-1)
    assert not reporttrace.read(str(tmp_path / "trace.json"), 100.0, 40.0).slow


def test_pictures_of_points() -> None:
    """Law: the PNG has the numbers as palette indices."""
    image = reportcharts.png([[0, 1], [2, 1], [0, 0]], [(1, 2, 3), (4, 5, 6), (7, 8, 9)])
    assert image.startswith(b"\x89PNG\r\n\x1a\n") and b"\1\2\3\4\5\6\7\10\11" in image


@pytest.mark.parametrize("total_s", [1e-6, 0.37, 8.0, 61.0, 3600.0, 86400.0, 9e6])
def test_axes(total_s: float) -> None:
    """Law: an axis has between 3 and 12 times, from 0, within its length."""
    ticks = reportcharts.Scale(total_s).ticks()
    assert ticks[0] == 0 and 3 <= len(ticks) <= 12 and ticks[-1] <= total_s * 1.000001


def test_times_of_day() -> None:
    assert "unknown" in reportpage.clock(1e300)


@pytest.mark.full
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")
def test_a_browser_shows_it(written: Path) -> None:
    """Law: in a real browser the page has its pictures, says nothing on the console, and is as wide
    as the window."""
    shot = written.with_suffix(".png")
    probe = written.with_name("probe.html")
    text = written.read_text().replace("'none'", "'none'; script-src 'unsafe-inline'")
    probe.write_text(text.replace("</body>", """<script>
        const svgs = [...document.querySelectorAll('svg')];
        document.title = JSON.stringify([svgs.length,
            Math.min(...svgs.map(s => s.getBoundingClientRect().height)),
            document.documentElement.scrollWidth - innerWidth,
            getComputedStyle(document.querySelector('rect.useful')).fill]);
        </script></body>"""))
    common = [BROWSER or "", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
              "--window-size=1160,2400", "--enable-logging=stderr"]
    done = subprocess.run([*common, f"--screenshot={shot}", f"file://{written}"],
                          capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    assert shot.stat().st_size > 50_000
    done = subprocess.run([*common, "--dump-dom", f"file://{probe}"],
                          capture_output=True, text=True, timeout=60, check=True)
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title, done.stdout[:500]
    count, least, beyond, colour = json.loads(title[1])
    assert count == 7 and least > 20 and beyond <= 0 and colour.startswith("rgb(")
