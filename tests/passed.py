"""Runs of tests that can be continued: a file says how each test has ended.

A test adds one line when it has ended: its outcome, its seconds, its name. A run leaves out the
tests that have passed or been skipped by the file; the last line of a test counts. What pytest
tells of a failure goes at once to a second file, `FILE.failures`: a run of hours may be cut off.
The summary at the end counts all runs together, and names the tests that have failed and the
dearest files.

Two runs may share a file: one begins with the first test, the other (`backwards`) with the last
one. They end where they meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

DEAREST = 10  # files that the summary names


class Passed:
    """The plugin of ``--passed``."""

    def __init__(self, path: str, *, backwards: bool = False) -> None:
        self.path, self.backwards = Path(path), backwards
        self.ended: dict[str, tuple[str, float]] = {}
        self.selected, self._read = 0, 0
        self._since: set[str] = set()  # tests that have ended since this run began
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.read()

    def read(self) -> list[str]:
        """Read what was written since the last time; the tests that it tells of."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        names = []
        for line in new.decode().splitlines():
            outcome, seconds, name = line.split(" ", 2)
            self.ended[name] = outcome, float(seconds)
            names.append(name)
        return names

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config,
                                      items: list[pytest.Item]) -> None:
        self.selected = len(items)
        left = [item for item in items
                if self.ended.get(item.nodeid, ("left", 0))[0] not in ("passed", "skipped")]
        config.hook.pytest_deselected(items=list(set(items) - set(left)))
        items[:] = reversed(left) if self.backwards else left

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.outcome, self.seconds = "passed", 0.0
        ended = yield
        with self.path.open("a") as file:
            file.write(f"{self.outcome} {self.seconds:.2f} {item.nodeid}\n")
        self._since.update(self.read())
        items = item.session.items
        rest = items.index(item) + 1
        if rest < len(items) and items[rest].nodeid in self._since:  # the other run has come here
            del items[rest:]
        return ended

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        if report.outcome != "passed" and self.outcome != "failed":
            self.outcome = report.outcome
        if report.failed:
            with Path(f"{self.path}.failures").open("a") as file:
                file.write(f"==== {report.nodeid}\n{report.longreprtext}\n")
                for title, content in report.sections:
                    file.write(f"---- {title}\n{content}\n")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.selected:
            session.exitstatus = pytest.ExitCode.OK  # all have passed before

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        by_outcome, by_file = defaultdict(list), defaultdict(float)
        for name, (outcome, seconds) in self.ended.items():
            by_outcome[outcome].append(name)
            by_file[name.partition("::")[0]] += seconds
        write = terminalreporter.write_line
        terminalreporter.section(f"all runs of {self.path}")
        counts = ", ".join(f"{len(names)} {outcome}" for outcome, names in by_outcome.items())
        left = self.selected - sum(map(len, by_outcome.values()))
        write(f"{counts or 'none'}, {left} left, in {sum(by_file.values()) / 60:.0f} minutes")
        for name in by_outcome["failed"]:
            write(f"failed: {name}")
        for file, seconds in sorted(by_file.items(), key=lambda pair: -pair[1])[:DEAREST]:
            write(f"{seconds:7.0f} s  {file}")
