"""Options of the fault tests: ``--sweep N`` repeats every fault N times."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "repetition" in metafunc.fixturenames:
        metafunc.parametrize("repetition", range(metafunc.config.getoption("--sweep")))
