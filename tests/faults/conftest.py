"""Fixtures of several fault tests: jobs that are killed by hand."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from byhand import Job, results
from jobs import kill_marked, remove


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    """Starts a `byhand.Job`, and leaves nothing of it."""
    made: list[Job] = []
    directories: list[Path] = []

    def start(*options: str, **more: str) -> Job:
        made.append(Job(tmp_path, *options, **more))
        return made[-1]

    yield start
    for one in made:
        with contextlib.suppress(AssertionError):
            directories.append(one.directory)
        kill_marked(one.mark)
        one.process.wait()
        assert one.process.stdout
        one.process.stdout.close()
    remove(directories)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The `byhand.results` of a job without a kill."""
    home = tmp_path_factory.mktemp("expected")
    undisturbed = Job(home)
    said = undisturbed.process.communicate(timeout=60)[0]
    assert undisturbed.process.returncode == 0, said
    return results(home)
