"""Metrics: Prometheus's text format, names that the page has, and a file that is always whole."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tree import ROOT

from ftrma.command import cli
from ftrma.fabric import story
from ftrma.fabric.control_file import make_control
from ftrma.fabric.story import Began, Checkpoint, Entered, Failure, Phases, Recovery
from ftrma.host import lock
from ftrma.launch import jobstatus, metrics
from ftrma.launch.jobstatus import JobStatus
from ftrma.machine.topology import make_layout
from ftrma.native import loading

SAMPLE = re.compile(r'(ftrma_\w+)\{(job="(?:[^"\\]|\\.)*"(?:,\w+="(?:[^"\\]|\\.)*")*)\} (\S+)')
PAGE = ROOT / "ftrma/docs/looking.md"


def make(directory: Path) -> Any:
    """A job with 4 slots, as shared memory has it, and its story."""
    loading.load()
    directory.mkdir(0o700, exist_ok=True)
    ctl = make_control(directory / "control", make_layout(4, 2, 2, 1), 64 << 20)
    ctl.start_ns, ctl.commit = 1, 1 << 1
    for p in range(ctl.nprocs):
        ctl.proc[p].pid, ctl.proc[p].state, ctl.proc[p].ready, ctl.proc[p].ordinal = 1, 1, 1, 20
    at = time.time() - 10
    for event in (Began(time=at), Entered(time=at + 1),
                  Checkpoint(1, "coordinated", 0.1, 64, 8, step=10, time=at + 5),
                  Failure("slot", 1, 7, "unknown", time=at + 6),
                  Recovery("causal", (1,), 1, 0.5, Phases(0, 0.1, 0.1, 0.3), "", 0, time=at + 6)):
        story.emit(directory, event)
    return ctl


@pytest.fixture
def status(tmp_path: Path) -> JobStatus:
    make(tmp_path / "ftrma-0-00000000")
    with lock.lock_shared(tmp_path / "ftrma-0-00000000"):
        found = jobstatus.read(tmp_path / "ftrma-0-00000000", time.time())
        return replace(found, checksums_given_up=2)


def values(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and labels but the job's; each line of the text must be right."""
    found = {}
    for line in text.splitlines():
        if not re.fullmatch(r"# (?:HELP ftrma_\w+ .+|TYPE ftrma_\w+ (?:gauge|counter))", line):
            match = SAMPLE.fullmatch(line)
            assert match, line
            found[match[1], match[2].partition('",')[2]] = float(match[3])
    return found


def test_a_status_as_metrics(status: JobStatus) -> None:
    found = values("".join(metrics.text(status, 1000.0)))
    assert found["ftrma_state", 'state="running"'] == 1
    assert sum(value for (name, _), value in found.items() if name == "ftrma_state") == 1
    assert found["ftrma_slots", 'doing="computes"'] == 4
    assert found["ftrma_step", ""] == 20 and found["ftrma_deaths_total", 'role="slot"'] == 1
    assert found["ftrma_recoveries_total", 'kind="causal"'] == 1
    assert found["ftrma_given_up", 'role="checksum"'] == 2
    spent = [value for (name, _), value in found.items() if name == "ftrma_time_seconds"]
    assert sum(spent) == pytest.approx(status.seconds, abs=1e-3)
    assert found["ftrma_update_time_seconds", ""] == 1000.0


def test_each_metric_has_its_lines(status: JobStatus) -> None:
    """Law: HELP and TYPE come once, before the samples; counters end with _total."""
    lines = "".join(metrics.text(status, 1000.0)).splitlines()
    for metric in metrics.METRICS:
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        own = [line for line in lines if re.search(rf"ftrma_{metric.name}[ {{]", line)]
        if own:
            assert own[0].startswith("# HELP") and own[1].startswith("# TYPE") and len(own) > 2


def test_the_page_has_the_names() -> None:
    """Law: page and table have the same metrics in the same order."""
    rows = re.findall(r"(?m)^\| `ftrma_(\w+)(?:\{\w+\})?` \| (.+) \|$", PAGE.read_text())
    assert rows == [(metric.name, metric.help.rstrip(".")) for metric in metrics.METRICS]


def test_words_of_others_are_escaped(status: JobStatus) -> None:
    """Law: a program's name may hold anything."""
    hostile = replace(status, program=['a"b\\c\nd} 1', "\udcff"])
    text = "".join(metrics.text(hostile, 1000.0))
    assert 'program="a\\"b\\\\c\\nd} 1 ?"' in text
    values(text)


def test_what_is_not_known_is_left_out(status: JobStatus) -> None:
    """Law: no sample has a value that nobody knows, such as a zero for a node without slots."""
    text = "".join(metrics.text(replace(status, each_slot=[], checkpoint_age_s=None), 1000.0))
    assert "ftrma_step{" not in text and "ftrma_checkpoint_time_seconds" not in text


def test_the_file_is_written_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: the file is there at once, follows the job, and says at the end that it has ended."""
    monkeypatch.setattr(metrics, "LOOK_EACH_S", 0.01)
    monkeypatch.setattr(metrics, "SHARE", 0)
    directory, file = tmp_path / "ftrma-0-00000000", tmp_path / "a.prom"
    ctl = make(directory)
    with lock.lock_shared(directory), metrics.written(directory, str(file)):
        await_value(file, "ftrma_step", "", 20)
        for p in range(4):
            ctl.proc[p].ordinal = 35
        await_value(file, "ftrma_step", "", 35)
    assert values(file.read_text())["ftrma_state", 'state="ended"'] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.prom", directory.name]


def await_value(file: Path, name: str, labels: str, wanted: float) -> None:
    deadline = time.monotonic() + 10
    while not file.exists() or values(file.read_text())[name, labels] != wanted:
        assert time.monotonic() < deadline, file.read_text() if file.exists() else "no file"
        threading.Event().wait(0.005)


def test_a_file_that_cannot_be_written_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: a job goes on without its metrics."""
    monkeypatch.setattr(metrics, "LOOK_EACH_S", 0.0)
    monkeypatch.setattr(metrics, "SHARE", 0)
    directory = tmp_path / "ftrma-0-00000000"
    make(directory)
    with metrics.written(directory, str(tmp_path / "gone/a.prom")):
        threading.Event().wait(0.1)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "--metrics" in said[0] and "make it first" in said[0]


@pytest.mark.parametrize("name", ["/dev/null", "/dev/stdout", "gone/a.prom"])
def test_a_name_that_no_collector_reads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: it is refused before the job starts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").touch()
    with pytest.raises(SystemExit) as end:
        cli.main(["run", "-n", "2", "--metrics", name, "app.py"])
    assert end.value.code == 2
    assert f"--metrics {name}: " in capsys.readouterr().err


def test_nothing_is_written_unasked(tmp_path: Path) -> None:
    before = threading.active_count()
    with metrics.written(tmp_path, ""):
        assert threading.active_count() == before
