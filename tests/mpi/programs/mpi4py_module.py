"""Run one module of mpi4py's own tests, and note how each of them ends.

Arguments: the directory for results, that of the tests, the module.
"""

import json
import sys
import unittest
from pathlib import Path

from mpi4py import MPI

directory, tests, module = sys.argv[1:]
sys.path.insert(0, tests)
sys.dont_write_bytecode = True
outcomes: dict[str, list[str]] = {}


class Noting(unittest.TextTestResult):
    """A test without a word is one that passed; one with subtests may have several."""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        outcomes[test.id()] = []

    def addError(self, test, err) -> None:
        super().addError(test, err)
        outcomes.setdefault(test.id(), []).append("error")

    def addFailure(self, test, err) -> None:
        super().addFailure(test, err)
        outcomes.setdefault(test.id(), []).append("failure")

    def addSkip(self, test, reason) -> None:
        super().addSkip(test, reason)
        outcomes.setdefault(test.id(), []).append("skip")

    def addSubTest(self, test, subtest, err) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            outcomes[test.id()].append(f"failure of {subtest.id()}")


suite = unittest.defaultTestLoader.loadTestsFromName(module)
unittest.TextTestRunner(resultclass=Noting).run(suite)
name = f"outcomes-{MPI.COMM_WORLD.rank}.json"
Path(directory, name).write_text(json.dumps(outcomes))
