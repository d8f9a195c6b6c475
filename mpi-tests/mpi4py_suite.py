"""Runs mpi4py's own tests and writes what became of each to DIRECTORY/RANK.json.

The ranks' terminal output is mixed, so that nobody could tell from it.

    mpi4py_suite.py TESTS DIRECTORY [ARGUMENT OF TESTS/main.py ...]
"""

import json
import os
import sys
import unittest

_, tests, directory, *arguments = sys.argv
sys.dont_write_bytecode = True
sys.path.insert(0, tests)
import main  # noqa: E402


class Result(unittest.TextTestResult):
    """Remembers each test's outcome, by its name."""

    outcomes = {}

    def startTest(self, test):
        super().startTest(test)
        self.outcomes[test.id()] = "passed"

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcomes[test.id()] = f"skipped: {reason}"

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.outcomes[test.id()] = "failed"

    def addError(self, test, err):
        super().addError(test, err)
        self.outcomes[test.id()] = "failed"

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.outcomes[test.id()] = "failed"


runner = unittest.TextTestRunner(resultclass=Result, verbosity=0)
try:
    main.TestProgram(module=None, argv=[main.__file__, *arguments], testRunner=runner)
finally:
    from mpi4py import MPI

    path = os.path.join(directory, f"{MPI.COMM_WORLD.rank}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(Result.outcomes, file)
