"""Kinds of messages between places: each number has only one meaning in all of apgas.

A kind is a number from 1 to 255.
"""

from __future__ import annotations

PIECE = 1  # a piece of a message that is longer than a ring takes
TASK = 2  # a task of a finish
AT = 3  # the body of an `at`
REPLY = 4  # value or exception of an `at`
EXCEPTIONS = 5  # exceptions of a finish's tasks, for its home
UNCOUNTED = 6  # a task that no finish waits for
END = 7  # place zero's program has ended
REPORT = 8  # a place has ended its tasks of a finish (finish "none")
STORE = 16  # messages of resilient stores, which may use 16 to 31
# Teams, executors and work stealing may use 32 to 63.
TEAM = 32  # values of a team's calls, and the end of a team
FUTURE = 33  # result of a function of `apgas.Executor`
GLB = 34  # questions of idle places for work
