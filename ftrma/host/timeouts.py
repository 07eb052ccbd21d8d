"""All time-outs: their names, their defaults and what they bound.

A row of the table is a bound on waiting, after which something is given up, reported or decided.
The user may choose another bound: ``--timeout NAME=SECONDS``, ``FTRMA_TIMEOUT``, or the table
``[timeouts]`` of ``ftrma.toml`` (`settings.configuration`). Each process of a job reads the chosen
values once, at its beginning, from the job's environment.

Intervals between two looks are no time-outs; they are defined where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .values import number

LEAST_S, MOST_S = 1e-3, 1e9  # chosen: no wait is shorter, and none lasts for 30 years
VARIABLE = "FTRMA_TIMEOUT"
chosen: dict[str, float] = {}  # values that the user has chosen, for this process


@dataclass(frozen=True)
class Timeout:
    """A row of the table.

    Attributes:
        name: the name by which the user chooses another value.
        default_s: seconds, chosen from how long the event normally takes, with a margin.
        meaning: the event that is awaited, or the consequence of waiting so long.
    """

    name: str
    default_s: float
    meaning: str

    @property
    def s(self) -> float:
        """Return the seconds that were chosen, or the default."""
        return chosen.get(self.name, self.default_s)


# One node: what a failure leaves behind.
STUCK = Timeout(
    "stuck", 5.0,
    "a call of MPI that goes on so long after a failure will never end: the job is launched "
    "again",
)
ABSENT = Timeout(
    "absent", 5.0,
    "a process that waits so long outside of MPI after a failure does not come to the repair:"
    " the job is launched again",
)
UNNOTICED = Timeout(
    "unnoticed", 2.0,
    "a death that no process has noticed after so long is lost: the job is launched again",
)
LATE = Timeout("late", 5.0, "a repair has waited so long for a process that computes: that is told")
STOPPED_TOLD = Timeout(
    "stopped-told", 0.5,
    "a process does not answer for so long in a repair: that is told",
)
STOPPED = Timeout(
    "stopped", 5.0,
    "a process does not answer for so long in a repair: the job is launched again",
)
SUSPECT = Timeout(
    "suspect", 1.0,
    "a process that dies so soon after a signal was sent to it has died of it",
)
WAITING = Timeout(
    "waiting", 2.0,
    "all slots have slept so long since one ended itself: they wait for it, and the job ends",
)

# A launch comes up and ends.
COME_UP = Timeout(
    "come-up", 120.0,
    "all processes of a launch have joined, and half a second more for each; importing takes "
    "minutes where many read one file system",
)
FORKED = Timeout("forked", 4.0, "the launcher has started all of its processes")
SIBLINGS = Timeout("siblings", 10.0, "all processes of a node have reported, once the first has")
TOLD = Timeout("told", 1.0, "the launcher has waited for a process that ended")
OWN_END = Timeout("own-end", 2.0, "processes end by themselves after the program's end")
ENDING = Timeout("ending", 6.0, "the processes of a job end whose supervisor was killed")
REFUSED = Timeout("refused", 30.0, "the supervisor ends a process that cannot join")
HANDLER = Timeout("handler", 2.0, "a program has set its handler for a signal that is handed on")

# A process and its program.
LEAVE_ATTEMPT = Timeout(
    "leave-attempt", 5.0,
    "an attempt that is rolled back ends, with its threads; else fresh processes take over",
)
LOST = Timeout("lost", 0.5, "a death shows that explains an error")
WAIT = Timeout("wait", 60.0, "the supervisor ends a process that has nothing more to do")
SHOW_ERROR = Timeout("show-error", 30.0, "the program's own hook for errors returns")
EXIT_FUNCTIONS = Timeout(
    "exit-functions", 2.0,
    "the program's exit functions return, beside an error",
)
PENDING_REPAIR = Timeout(
    "pending-repair", 30.0,
    "a failure that is pending at the end of the program is repaired",
)
WRITE_FILES = Timeout("write-files", 60.0, "files of the program are flushed at its end")
SPILL_READ = Timeout("spill-read", 60.0, "a slot's bytes are read for files, while it waits")
OUTPUT = Timeout("output", 60.0, "the reader of an output reads on")
NATIVE_STACK = Timeout("native-stack", 3.0, "py-spy has read both stacks of a slot that hangs")
PYTHON_STACK = Timeout("python-stack", 2.0, "py-spy has read the Python stack alone")

# Several nodes: the supervisor and its ranks.
CONNECT = Timeout("connect", 5.0, "one address of the supervisor answers")
KNOCK = Timeout("knock", 20.0, "the supervisor lets a process in, which strangers may delay")
ANSWER = Timeout("answer", 60.0, "the supervisor answers a process")
GOODBYE = Timeout(
    "goodbye", 90.0,
    "the supervisor answers a goodbye; the last process may write files before",
)
SEND = Timeout("send", 2.0, "a process reads what the supervisor sends")
STRANGER = Timeout("stranger", 5.0, "who connects has shown the job's key")
SILENT = Timeout("silent", 2.0, "a process has answered a question")
NODE_SILENT = Timeout(
    "node-silent", 5.0,
    "a node answers the probes of its connections; else it is lost. Whole seconds, 2 or more",
)
END = Timeout("end", 2.0, "processes end that were told to; a node whose processes do not is lost")
DRAIN = Timeout("drain", 0.5, "output of processes that have ended has come")
ALONE = Timeout("alone", 1.5, "it is known whether a process died alone or with its node")
LAUNCHER = Timeout("launcher", 2.0, "a launcher's daemons end the processes after its death")
DAEMONS = Timeout("daemons", 2.0, "a launcher ends its daemons on other nodes")
REPAIR = Timeout(
    "repair", 10.0,
    "a repair is over, or has told that it brings bytes; else the job is launched again",
)
HEALED = Timeout(
    "healed", 20.0,
    "no process has told of a split between nodes for so long: it is over",
)

# Several nodes: the next hosts, and agents.
RETURN = Timeout(
    "return", 60.0,
    "a lost node that the job needs comes back, or nodes reach each other again",
)
HOST = Timeout("host", 1.0, "a host answers at the port of ssh")
EACH_HOST = Timeout("each-host", 20.0, "a process is started on each of the hosts")
AGENT_COME_UP = Timeout("agent-come-up", 60.0, "an agent has started")
AGENT_KNOCK = Timeout("agent-knock", 5.0, "an agent answers a process that connects")
AGENT_REACH = Timeout("agent-reach", 60.0, "an agent that died is followed by another one")
UNACKNOWLEDGED = Timeout("unacknowledged", 10.0, "bytes between nodes are acknowledged")
SPLIT = Timeout("split", 5.0, "a node is not reached for so long: that is told")
AGENT_THERE = Timeout("agent-there", 1.0, "the agent of a node answers an alarm")
AGENT_FILES = Timeout("agent-files", 60.0, "an agent answers who reads or writes files of its node")
TAKE_OVER = Timeout("take-over", 5.0, "the kernel ends an agent that was killed")
LINGER = Timeout("linger", 15.0, "an agent serves on after the death of its node's processes")

# Frameworks and commands.
NO_RECORD = Timeout(
    "no-record", 20.0,
    "a record for a finish becomes free; else all of them wait for one another",
)
SWITCH = Timeout("switch", 5.0, "a thread takes over that raises what has ended all")
DEMO = Timeout("demo", 120.0, "a run of ftrma demo ends")
HALT = Timeout("halt", 5.0, "a supervisor answers ftrma halt")
DOCTOR = Timeout("doctor", 60.0, "a check of ftrma doctor ends")


TABLE = {row.name: row for row in globals().values() if isinstance(row, Timeout)}
# A wait that contains another one has to be longer, or it would end too early.
LONGER = ((GOODBYE, WRITE_FILES), (STOPPED, STOPPED_TOLD), (RETURN, HEALED))


def parse(name: str, text: str) -> dict[str, float]:
    """Return what a text such as ``stuck=10 late=2.5`` chooses.

    Args:
        name: name of the option or the variable, for errors.

    Raises:
        ValueError: there is no such time-out (the error names the nearest one), or a value is
            invalid.
    """
    found = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{name} {word}: expected NAME=SECONDS, such as stuck=10")
        if key not in TABLE:
            from difflib import get_close_matches

            near = get_close_matches(key, sorted(TABLE), 1, 0.0)[0]
            raise ValueError(f"{name} {word}: there is no time-out {key}; did you mean {near}?")
        found[key] = number(f"{name} {key}", value, LEAST_S, MOST_S, "seconds")
    return found


def check(those: Mapping[str, float]) -> None:
    """Refuse choices that contradict each other; ValueError with both names and values."""
    for longer, shorter in LONGER:
        outer, inner = (those.get(row.name, row.default_s) for row in (longer, shorter))
        if outer < inner:
            raise ValueError(f"--timeout {longer.name}={outer:g}: shorter than {shorter.name}, "
                             f"which is {inner:g} s and within it; make it longer, or that shorter")


def choose_by_environment() -> None:
    """Take the time-outs of this process from the environment; ValueError if it is wrong."""
    choose(parse(VARIABLE, os.environ.get(VARIABLE, "")))


def choose(those: Mapping[str, float]) -> None:
    """Use these time-outs in this process; all others have their defaults."""
    chosen.clear()
    chosen.update(those)
