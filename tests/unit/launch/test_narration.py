"""The log of a job has its events in words, and the lines of all its processes, in order."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from ftrma.fabric import story
from ftrma.fabric.story import Checkpoint, Event, Failure, Line, Note, Restored
from ftrma.host import messages, outfile
from ftrma.launch import narration
from ftrma.machine.topology import make_layout
from ftrma.settings.options import Options

LAYOUT = make_layout(4, None, None, 1)


@pytest.mark.parametrize(("event", "words"), [
    (Checkpoint(3, "coordinated", 0.0012, 4 << 20, 1 << 20), "coordinated checkpoint, version 3: "
     "4.0 MiB protected, 1.0 MiB changed, held up for 1.2 ms"),
    (Checkpoint(3, "demand", 0.0012, 0, 0, slot=1), "demand checkpoint of slot 1, version 3: "
     "0.0 MiB protected, 0.0 MiB changed, held up for 1.2 ms"),
    (Failure("slot", 2, 77, "fence"), "slot 2 (process 77) died at fence"),
    (Failure("spare", 0, 77, "unknown", "n1"), "spare 0 (process 77 on n1) died"),
    (Restored("slot", 1, 0.5), "the vault of slot 1 was filled in 0.50 s"),
    (Note(1, {}), ""),
])
def test_events_in_words(event: Event, words: str) -> None:
    assert narration.in_words(event) == words


def test_a_log_has_all_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: lines of this process, of others and of events are there, none twice, none of before;
    the terminal gets what it would get without a log."""
    log = tmp_path / "log"
    log.write_text("before\n")
    job = tmp_path / "ftrma-0-ab"
    job.mkdir()
    story.emit(job, Line("of before", "ftrma", "slot 0"))
    with narration.speaking(Options(log_file=str(log))):
        with narration.followed(job, LAYOUT, ["app.py"]):
            story.emit(job, Line("said", "ftrma", "slot 1"))
            story.emit(job, Failure("slot", 2, 77, "fence"))
            outfile.tell("told")
        outfile.tell_details("end")
    outfile.tell("behind the job")
    lines = log.read_text().splitlines()
    assert lines[0] == "before"
    texts = [line.partition(" ftrma-0-ab ")[2] for line in lines[1:]]
    assert texts[0] == "supervisor: 4 slots, 1 checksum rank and 1 spare run app.py"
    assert texts[-1] == "supervisor: end"
    assert sorted(texts[1:-1]) == [
        "slot 1: said", "supervisor: slot 2 (process 77) died at fence", "supervisor: told"]
    assert capsys.readouterr().err == "ftrma: told\nftrma: behind the job\n"


def test_a_full_disk_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: a log that cannot be written costs the log alone."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with narration.speaking(Options(log_file="/dev/full")):
        for _ in range(3):
            outfile.tell("a")
    err = capsys.readouterr().err
    assert err.count("ftrma: a\n") == 3 and err.count("no more lines in --log-file /dev/full") == 1


def test_a_log_never_waits(tmp_path: Path) -> None:
    """Law: a FIFO whose reader does not read on loses lines, and nobody waits for it."""
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with narration.speaking(Options(log_file=str(tmp_path / "fifo"), quiet=True)):
        for _ in range(2000):
            outfile.tell("x" * 100)
        assert messages.voice.record
    os.close(reader)


def test_who_says_nothing_leaves_no_log(tmp_path: Path) -> None:
    """Law: a run that is refused makes no file."""
    with narration.speaking(Options(log_file=str(tmp_path / "log"))):
        pass
    assert not (tmp_path / "log").exists()


def test_a_stranger_s_link_is_not_followed(tmp_path: Path) -> None:
    """Law: a log goes through the way of all files that users name."""
    (tmp_path / "link").symlink_to(tmp_path / "link")
    with pytest.raises(OSError, match="links without end"):
        outfile.appended(str(tmp_path / "link"))


def test_the_story_is_read_piecewise(tmp_path: Path) -> None:
    """Law: read_on gives each event once, and leaves a line that has not ended."""
    assert story.read_on(tmp_path, 0) == ([], 0)
    for number in range(3):
        story.emit(tmp_path, Note(number, {}))
    events, read = story.read_on(tmp_path, 0)
    assert events == story.read(tmp_path) and read == story.size_bytes(tmp_path)
    with open(tmp_path / "events", "ab") as file:
        file.write(b'\n{"event": "note", "slot": 3, ')
    assert story.read_on(tmp_path, read) == ([], read + 1)
    with io.FileIO(tmp_path / "events", "ab") as file:
        file.write(b'"entries": {}}\n')
    assert [e.slot for e in story.read_on(tmp_path, read + 1)[0]] == [3]  # type: ignore[attr-defined]
