"""Options of the whole suite."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: runs with --sweep 2 or more only")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep", type=int, default=1, metavar="N", help="repeat every fault of the sweep N times"
    )
