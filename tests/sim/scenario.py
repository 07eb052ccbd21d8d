"""Says everything about a run of a simulated job, and what has come of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fault:
    """Something that befalls the job.

    Attributes:
        kind: "kill": a process dies; "place": one dies at a place; "launcher", "supervisor": all
            die with it; "freeze": a process gets no turn for a time; "pause": so does one that
            comes by a place; "stumble": the MPI library fails to make communicators in one round;
            "flip": a bit of a vault is not what was written; "connection": that between a node's
            agent and the first node's fails; "agent": a node's dies, and another one follows;
            "node": one is lost with its memory.
        after: turns after the fault before; at a place: visits since then, while the faults behind
            it take their course, or wait for it if they are `chained`.
        who: number among the living processes, modulo their count.
        place: where it dies; role: only who has this role then ("leader": the first of all);
            empty: anybody.
        more: turns that one still gets behind the place where it dies.
        ms: for which it is frozen.
    """

    kind: str
    after: int = 1
    who: int = 0
    place: str = ""
    role: str = ""
    ms: int = 0
    more: int = 0


@dataclass(frozen=True)
class Scenario:
    """Everything about a run; over several nodes see `nodes`.

    Attributes:
        late: slots put at the end of a step (see `program`); safepoints: behind each step.
        alone: slots also stage versions in steps of their own (`ftrma.protocol.staging`).
        told: the program is one of a framework that is told of deaths (`told`).
        relayed: the launcher outlives a node (`ftrma.launch.relays`).
        chained: a fault waits until the one before it has come to pass.
    """

    seed: int
    nodes: int = 1
    slots: int = 4
    group_size: int = 2
    strength: int = 1
    spares: int = 2
    steps: int = 6
    late: bool = False
    safepoints: int = 1
    alone: bool = False
    told: bool = False
    policy: str = "auto"
    interval: float | str = 0
    fresh: bool = False
    ulfm: bool = True
    max_relaunch: int = 3
    relayed: bool = False
    chained: bool = False
    faults: tuple[Fault, ...] = ()


@dataclass
class Outcome:
    """The outcome of a run.

    Attributes:
        status: exit status of the job; None: it hung.
        wrong: what was wrong, in words; empty: nothing.
        turns: that were given. digest: of whose turns they were. points: accesses to shared words
            before which others may come.
        fired: faults that came to pass. deaths: by role and place.
        recoveries: kinds of repairs, and relaunches.
    """

    status: int | None
    wrong: list[str]
    turns: int
    digest: int
    points: int
    fired: int
    deaths: dict[str, int]
    recoveries: dict[str, int]
    told: list[str] = field(repr=False)
