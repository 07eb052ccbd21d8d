"""Options of the whole suite, and what a plain ``pytest`` leaves for later.

It runs in minutes: of cases that are many of one kind it takes every second, and it leaves out what
takes long by itself. ``--rest`` runs just what it leaves out; both together are what CI runs, and
``--sweep 2`` everything, with more of the same kind.
"""

import pytest

# Files with many cases of one kind, and tests that take ten seconds and more.
MANY = ("test_sweep.py", "test_causal.py", "test_not_replayable.py", "test_trace.py",
        "test_demand.py", "test_strength.py", "test_dht.py", "test_errors.py", "test_node_loss.py",
        "test_killed_supervisor.py", "test_ends.py", "test_collectives.py")  # fmt: skip
SLOW = ("[columns]", "-sanitized]", "test_the_hashtable_at_random_moments", "of_what_costs_much",
        "test_deaths_of_slots_relaunch", "test_node_loss_without_awareness")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: runs with --sweep 2 or more only")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep", type=int, default=1, metavar="N", help="repeat every fault of the sweep N times"
    )
    parser.addoption(
        "--rest", action="store_true", help="run what a run without this option leaves out"
    )


def is_left(item: pytest.Item, seen: dict[str, int]) -> bool:
    """Whether a plain run leaves a test out; counts the cases of each test."""
    if any(part in item.nodeid for part in SLOW):
        return True
    directory, name = item.path.parent.name, item.path.name
    if directory == "unit" or name not in MANY or not hasattr(item, "callspec"):
        return False
    test = item.nodeid.partition("[")[0]
    seen[test] = seen.get(test, 0) + 1
    return seen[test] % 2 == 0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--sweep") > 1 or any("::" in word for word in config.args):
        return  # everything, or what was named
    seen: dict[str, int] = {}
    rest = [item for item in items if is_left(item, seen)]
    left = set(items) - set(rest) if config.getoption("--rest") else set(rest)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]
