"""Options of the whole suite, and what a plain ``pytest`` leaves for later.

It runs in minutes: of cases that are many of one kind it takes every fourth, and it leaves out what
takes long by itself. ``--rest`` runs that, and as many other cases; both are what CI runs. With
``--sweep 2`` everything runs, also what is marked `long`: more of the same kind.
"""

import pytest

# Files with many cases of one kind, and tests that take ten seconds and more.
MANY = ("test_sweep.py", "test_causal.py", "test_not_replayable.py", "test_trace.py",
        "test_demand.py", "test_strength.py", "test_dht.py", "test_errors.py", "test_node_loss.py",
        "test_killed_supervisor.py", "test_ends.py", "test_collectives.py", "test_attempts.py",
        "test_reentry.py", "test_stdin.py", "test_lines.py", "test_communicators.py",
        "test_polling.py", "test_library_calls.py", "test_drop_in.py")  # fmt: skip
SLOW = ("[columns]", "-sanitized]", "test_the_hashtable_at_random_moments", "of_what_costs_much",
        "test_deaths_of_slots_relaunch", "test_node_loss_without_awareness",
        "test_an_old_thread_beside_the_next_attempt")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rest: runs with --rest and in sweeps only")
    config.addinivalue_line("markers", "long: runs with --sweep 2 or more only")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep", type=int, default=1, metavar="N", help="repeat every fault of the sweep N times"
    )
    parser.addoption(
        "--rest", action="store_true", help="run what takes long, and other cases than without it"
    )


def when(item: pytest.Item, seen: dict[str, int]) -> str:
    """Which run takes a test: a plain one, the rest, or sweeps alone; counts each test's cases."""
    if item.get_closest_marker("rest") or any(part in item.nodeid for part in SLOW):
        return "rest"
    directory, name = item.path.parent.name, item.path.name
    if directory == "unit" or name not in MANY or not hasattr(item, "callspec"):
        return "plain"
    test = item.nodeid.partition("[")[0]
    seen[test] = seen.get(test, 0) + 1
    return {1: "plain", 2: "rest"}.get(seen[test] % 4, "sweep")


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
