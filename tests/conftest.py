"""Options and fixtures of the whole suite, and what a run takes if no tier is asked for.

A plain ``pytest`` takes the tiers quick and plain (`tests/tiers.py`), or the tests that are named
by ``FILE::NAME``, whatever their tier; ``-m all`` takes every test of the files that are named.
``--repeat N`` runs each test N times. ``--load N`` adds N processes that compute: a test that
depends on whose turn it is, and hangs if that process comes late, shows it then in minutes.
``--passed FILE`` makes a run that can be continued, and shared by two (`tests/passed.py`).
"""

import compileall
import os
import subprocess
import sys
from collections.abc import Generator, Iterator

import pytest
from jobs import Result
from passed import Passed
from tiers import PLAIN_RUN, TIERS, latest
from tree import ROOT, TESTS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--repeat", type=int, default=1, metavar="N", help="run each test N times")
    parser.addoption(
        "--load", type=int, default=0, metavar="N", help="let N processes compute beside the tests"
    )
    parser.addoption(
        "--passed", metavar="FILE",
        help="leave out the tests that have passed by this file, and note there which pass now"
    )
    parser.addoption(
        "--backwards", action="store_true",
        help="with --passed: begin with the last test, beside a run that begins with the first"
    )


def pytest_configure(config: pytest.Config) -> None:
    os.environ["FTRMA_CONFIG"] = "none"  # a user's own ftrma.toml must not change what is tested
    # With PYTHONDONTWRITEBYTECODE thousands of processes would compile what they import, and each
    # run all tests.
    compileall.compile_dir(ROOT / "ftrma", quiet=2)
    sys.dont_write_bytecode = False
    asked = config.option.markexpr
    if asked == "all":
        config.option.markexpr = ""
    elif not asked and not any("::" in word for word in config.args):
        config.option.markexpr = PLAIN_RUN
    if path := config.getoption("--passed"):
        config.pluginmanager.register(Passed(path, backwards=config.getoption("--backwards")))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if (times := metafunc.config.getoption("--repeat")) > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(times), indirect=True)


@pytest.fixture
def repetition(request: pytest.FixtureRequest) -> int:
    """The number of this repetition, from 0: a test that draws numbers draws others in each."""
    return getattr(request, "param", 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure all that its jobs printed, of which an assertion's message shows the
    beginning alone."""
    report = yield
    frames = call.excinfo.traceback if report.failed and call.excinfo else ()
    jobs = {id(value): (name, value) for frame in frames for name, value in frame.locals.items()
            if isinstance(value, Result)}
    report.sections += [(f"job {name!r}", f"{job}\n--- stats\n{job.stats}")
                        for name, job in jobs.values()]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave each test one tier mark, before marks select."""
    unit = TESTS / "unit"
    chosen = []
    for item in items:
        tier = latest(mark.name for mark in item.iter_markers())
        chosen.append(tier or ("quick" if unit in item.path.parents else "plain"))
    for node in {node for item in items for node in item.listchain()}:
        node.own_markers = [mark for mark in node.own_markers if mark.name not in TIERS]
    for item, tier in zip(items, chosen, strict=True):
        item.add_marker(tier)


@pytest.fixture(scope="session", autouse=True)
def load(request: pytest.FixtureRequest) -> Iterator[None]:
    """The processes of ``--load``; they end with this one, however that ends."""
    compute = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(1 << 16))"
    others = [subprocess.Popen([sys.executable, "-c", compute])
              for _ in range(request.config.getoption("--load"))]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.fixture(scope="session", autouse=True)
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keys that tests make are no key of who runs them."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
