"""Each command prints with --json what ``ftrma/docs/json.md`` says: its fields and their types."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tracesim
from tree import ROOT

from ftrma.command import cli, doctor
from ftrma.host import jsonoutput
from ftrma.launch import deadjobs
from ftrma.trace.collect import convert

PAGE = (ROOT / "ftrma/docs/json.md").read_text()
TYPES = {"string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float),
         "list": (list,), "object": (dict,), "null": (type(None),)}
PLAN = ("plan --machine tsubame2 --ranks 4000 --memory 2GiB --target-pcf {} --mtbf 36000 --json")


def fields(command: str) -> dict[str, list[str]]:
    """Rows of the page's table of a command: the types of each field."""
    (section,) = re.findall(rf"(?ms)^## ftrma {command}$(.*?)(?=^## |\Z)", PAGE)
    found = {"command": ["string"], "format": ["integer"]}
    for names, types in re.findall(r"(?m)^\| (`.*?`) \| ([\w, ]+) \|", section):
        found |= {name: types.split(", ") for name in re.findall(r"`([^`]+)`", names)}
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values without parts in a JSON value, by their paths; lists of such values as a whole."""
    if isinstance(value, dict) and value:
        for name, entry in value.items():
            yield from leaves(entry, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        for entry in value:
            yield from leaves(entry, f"{path}[]")
    else:
        yield path, value


def check(text: str, command: str) -> Any:
    """Compare an output with its table, and return it."""
    found = json.loads(text, parse_constant=pytest.fail)
    assert list(found)[:2] == ["command", "format"] and found["command"] == command
    assert found["format"] == jsonoutput.FORMAT
    known = fields(command)
    if command == "plan":
        known |= {name.replace("offers[]", "safest"): types for name, types in known.items()}
    patterns = {re.compile(re.escape(name).replace(r"\*", r"[^.\[]+")): types
                for name, types in known.items()}
    for path, value in leaves(found):
        types = [types for pattern, types in patterns.items() if pattern.fullmatch(path)]
        if not types and value in ([], {}):  # the page has the fields of entries
            continue
        assert types, f"{path} is not on the page"
        assert type(value) in [kind for name in types[0] for kind in TYPES[name]], (path, value)
    assert not {name for name in known if re.fullmatch(r"\w+", name)} - set(found)
    return found


def printed(capsys: pytest.CaptureFixture[str], words: str, status: int = 0) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main(words.split())
    said = capsys.readouterr()
    assert end.value.code == status and said.err == "", said
    return said.out


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> doctor.Found:
        raise ValueError("no")

    passing: list[Any] = [("Python", doctor.check_python), ("cores", doctor.check_cores)]
    monkeypatch.setattr(doctor, "checks", lambda _: passing)
    assert check(printed(capsys, "doctor --json"), "doctor")["fit"] is True
    monkeypatch.setattr(doctor, "checks", lambda _: [*passing, ("launcher", fail)])
    found = check(printed(capsys, "doctor --json", 1), "doctor")
    assert not found["fit"]
    assert found["checks"][-1] == {"name": "launcher", "verdict": "FAIL", "text": "no"}


def test_clean(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(deadjobs, "SHARED", tmp_path)
    assert check(printed(capsys, "clean --json"), "clean")["jobs"] == []
    job = tmp_path / f"ftrma-{os.getuid()}-ab"
    job.mkdir(mode=0o700)
    (job / "start").write_text("no record")
    (job / "control").write_bytes(bytes(4096))
    (found,) = check(printed(capsys, "clean --json"), "clean")["jobs"]
    assert found["job"] == job.name and not found["resumable"] and found["program"] is None
    assert found["memory_bytes"] >= 4096
    assert check(printed(capsys, "clean --remove --json"), "clean")["removed"]
    assert not job.exists()


def test_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(deadjobs, "SHARED", tmp_path)
    assert check(printed(capsys, "status --json"), "status")["jobs"] == []


@pytest.mark.parametrize("target", ["1e-5", "1e-30"])
def test_plan(capsys: pytest.CaptureFixture[str], target: str) -> None:
    found = check(printed(capsys, PLAN.format(target), int(target == "1e-30")), "plan")
    assert bool(found["offers"]) == (target == "1e-5")


@pytest.mark.parametrize("more", ["", " --aware racks", " --checksums 50:250:100"])
def test_reliability(capsys: pytest.CaptureFixture[str], more: str) -> None:
    words = "reliability --machine tsubame2 --ranks 4000 --checksums 200 --json" + more
    assert len(check(printed(capsys, words), "reliability")["points"]) in (1, 5, 15)


def test_reliability_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("reliability --machine tsubame2 --ranks 400 --checksums 20 --aware nodes --json "
             "--simulate 1000")
    assert "simulated" in check(printed(capsys, words), "reliability")["points"][0]


def test_fits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [f"{i / 2},nodes,{n}" for i, n in enumerate([1] * 60 + [2] * 20 + [3] * 5)]
    (tmp_path / "f.csv").write_text("\n".join(["time,level,count", *rows, "1,racks,1", ""]))
    found = check(printed(capsys, f"reliability --fit {tmp_path}/f.csv --json"), "reliability")
    assert "problem" in found["fit"]["levels"]["racks"] and found["points"] == []


@pytest.mark.parametrize("broken", [False, True])
def test_check(capsys: pytest.CaptureFixture[str], tmp_path: Path, broken: bool) -> None:
    job = tracesim.random_job(3, 30)
    tracesim.write_files(job.records, tmp_path)
    trace = tmp_path / "trace.json"
    convert(tmp_path, trace, job.slots, [])
    content = json.loads(trace.read_text())
    if broken:  # one event comes twice
        content["traceEvents"] += [e for e in content["traceEvents"] if e.get("name") == "Put"][:1]
        trace.write_text(json.dumps(content))
    found = check(printed(capsys, f"check {trace} --json", int(broken)), "check")
    assert found["consistent"] == (not broken) == (found["violation"] is None)


def test_numbers_that_json_lacks_are_null() -> None:
    """Law: each reader of JSON can read it."""
    text = jsonoutput.document("x", a=float("nan"), b=[float("inf"), 1.5], c={"d": -float("inf")})
    assert json.loads(text) == {"command": "x", "format": 1, "a": None, "b": [None, 1.5],
                                "c": {"d": None}}
