"""What a plain run of the tests leaves for later is there."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from tree import TESTS


def test_every_name_in_the_selection_is_one_of_a_test() -> None:
    """Law: a test that is renamed does not come back into the plain run, or drop out of it,
    unnoticed."""
    spec = importlib.util.spec_from_file_location("selection", TESTS / "conftest.py")
    assert spec and spec.loader
    selection = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(selection)
    for file in selection.MANY | selection.REST:
        assert (TESTS / file).is_file(), file
    command = (sys.executable, "-m", "pytest", "--collect-only", "--sweep", "2", str(TESTS))
    collected = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True,
                               timeout=120)
    assert collected.returncode == 0, collected.stdout[-2000:] + collected.stderr
    tests = collected.stdout
    assert tests.count("::") > 5000
    assert [part for part in selection.SLOW + selection.SWEPT if part not in tests] == []
