"""Options of the whole suite, and what a plain ``pytest`` leaves for later.

It runs in minutes: files whose subject is an edge wait for ``--rest``, and of cases that are many
of one kind every eighth is taken. ``--rest`` runs those files so, what takes long by itself, and
other cases; both are what CI runs. With ``--sweep 2`` everything runs, also what is marked `long`:
more of the same kind. ``--load N`` adds N processes that compute: what waits for somebody else's
turn, and hangs if it comes late, shows then in minutes.
"""

import compileall
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Files with many cases of one kind.
MANY = {f"faults/test_{name}.py" for name in (
    "agent", "attempts", "causal", "communicators", "demand", "dht", "drop_in", "ends",
    "killed_supervisor", "library_calls", "lines", "mirror", "node_loss", "not_replayable",
    "polling", "reentry", "stdin", "strength", "sweep", "trace")}
MANY |= {"mpi/test_collectives.py", "mpi/test_errors.py", "unit/test_bad_input.py",
         "unit/test_protocol_model.py", "unit/test_result_log.py"}
# Files that wait for --rest: output and input of jobs, other users, the library's own corners.
REST = {f"faults/test_{name}.py" for name in (
    "adversary", "attempts", "communicators", "ends", "full_memory", "killed_supervisor",
    "library_calls", "lines", "not_replayable", "polling", "stdin", "strength")}
REST |= {"mpi/test_errors.py", "mpi/test_mpi4py_suite.py", "unit/test_bench_logs.py",
         "unit/test_kernels_c.py"}
# Tests of the other files that take long, or are about an edge.
SLOW = (
    "-sanitized]", "test_a_damaged_one_is_no_answer",
    "test_a_replacement_without_memory_for_one", "test_accesses_to_windows_that_are_gone",
    "test_agents_that_end_at_once_are_told",
    "test_awareness_that_cannot_hold_is_told", "test_closed_and_null",
    "test_death_of_a_node_relaunches", "test_without_spares_deaths_of_slots_relaunch",
    "test_every_rule_is_needed", "test_every_variant_equals_its_reference",
    "test_extreme_records_are_fitted", "test_held_and_killed", "test_launcher_death_relaunches",
    "test_much_output_comes_whole", "test_node_loss_with", "test_nothing_of_a_launch_outlives",
    "test_one_death", "test_polling_is_exact_by_its_trace",
    "test_stuck_inside_the_library_relaunches", "test_the_smallest_run_reports",
    "test_a_thread_that_waits_for_a_lock_holds_no_other_up",
    "test_two_in_one_group_without_a_spare", "test_who_comes_to_a_fence_meanwhile",
    "test_without_memory_all_checkpoint_instead",
)


def pytest_configure(config: pytest.Config) -> None:
    # Thousands of processes import it; where PYTHONDONTWRITEBYTECODE is set each would compile it.
    compileall.compile_dir(Path(__file__).parents[1] / "ftrma", quiet=2)
    config.addinivalue_line("markers", "rest: runs with --rest and in sweeps only")
    config.addinivalue_line("markers", "long: runs with --sweep 2 or more only")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep", type=int, default=1, metavar="N", help="repeat every fault of the sweep N times"
    )
    parser.addoption(
        "--rest", action="store_true", help="run what takes long, and other cases than without it"
    )
    parser.addoption(
        "--load", type=int, default=0, metavar="N", help="let N processes compute beside the tests"
    )


@pytest.fixture(scope="session", autouse=True)
def load(request: pytest.FixtureRequest) -> Iterator[None]:
    """What ``--load`` asks for; ends with this process, however that ends."""
    compute = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(1 << 16))"
    others = [subprocess.Popen([sys.executable, "-c", compute])
              for _ in range(request.config.getoption("--load"))]
    yield
    for other in others:
        other.kill()
        other.wait()


def when(item: pytest.Item, seen: dict[str, int]) -> str:
    """Which run takes a test: a plain one, the rest, or sweeps alone; counts each test's cases."""
    if item.get_closest_marker("rest") or any(part in item.nodeid for part in SLOW):
        return "rest"
    file = f"{item.path.parent.name}/{item.path.name}"
    now = "rest" if file in REST else "plain"
    if file not in MANY or not hasattr(item, "callspec"):
        return now
    test = item.nodeid.partition("[")[0]
    seen[test] = seen.get(test, 0) + 1
    return {1: now, 2: "sweep" if now == "rest" else "rest"}.get(seen[test] % 8, "sweep")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--sweep") > 1:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]
    if any("::" in word for word in config.args):
        return  # what was named
    seen: dict[str, int] = {}
    wanted = "rest" if config.getoption("--rest") else "plain"
    left = {item for item in items if when(item, seen) != wanted}
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]
