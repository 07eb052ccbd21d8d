"""Options of the fault tests: ``--sweep N`` repeats every fault N times.

What is marked `long` runs in sweeps of more than one round only: more of the same kind.
"""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "repetition" in metafunc.fixturenames:
        metafunc.parametrize("repetition", range(metafunc.config.getoption("--sweep")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--sweep") < 2:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
