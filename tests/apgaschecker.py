"""A checker reads what places have written of `finish`, `async` and `at`, and names violations.

Each place writes down what happens there, in order (`tests/apgasrecorder.py`). `check()` compares
the histories with the laws of Resilient X10 and names each violation. The clock is one for all
places (CLOCK_MONOTONIC of one machine), and a recorder writes "close" of a scope after its wait and
all events of a task before the runtime counts the task's end. Whatever has a later time than a
"close" has therefore happened after the scope's end, and no violation is invented.

A *scope* is a finish or an `at`; its *home* is the place that waits for it. The *chain* of a task
are all scopes that must wait for the task, from the outermost one to the one in whose record it is
counted.

| event | subject | what is written with it |
|---|---|---|
| spawn, spawned | task | before: `scope`, `to`, `chain`; after it was counted and sent |
| begin, end | task | end: `error`, the exception's text, or ""; "DPE 3" for a DeadPlaceException |
| step | task | the task goes on |
| pause, resume | task | it waits: others of the place may run |
| open | scope | `kind` ("finish" or "at"), `task` |
| wait | scope | its body has ended, and its home waits from now on |
| close | scope | `dpes`: the dead places told; `errors`: texts of other exceptions |
| | | `own`: texts of those that come from the body; `value`: an at returns one |
| told | place | this place has learnt that the subject is dead |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

MAIN = "main"  # begins the names of programs themselves, which nobody spawns
DPE = "DPE "  # begins the text of a DeadPlaceException, which a scope has among its `dpes`
OF_TASKS = ("begin", "end", "step", "pause", "resume")


@dataclass(frozen=True)
class Event:
    """One line of a history: what happened at a place, and when.

    Attributes:
        place: where it happened.
        at_ns: on the one clock.
        kind, subject: see the table above.
        more: what was written with it.
        attempt: of the job, in which it happened.
    """

    place: int
    at_ns: int
    kind: str
    subject: str
    more: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1


@dataclass
class Task:
    """A task as all histories together show it: the events, None where one is missing."""

    spawn: Event | None = None
    spawned: Event | None = None
    begins: list[Event] = field(default_factory=list)
    end: Event | None = None
    last: Event | None = None  # the latest event of the task itself

    @property
    def chain(self) -> list[str]:
        return self.spawn.more["chain"] if self.spawn else []


@dataclass
class Scope:
    """A finish or an at as all histories together show it."""

    open: Event | None = None
    wait: Event | None = None
    close: Event | None = None


class Histories:
    """Histories of all places, sorted by task and by scope.

    Args:
        events: of all places; each place's own in its own order.
        dead: the places that have died by the end.
    """

    def __init__(self, events: Iterable[Event], dead: Iterable[int]) -> None:
        self.events = sorted(events, key=lambda e: e.at_ns)  # stable: a place's order is kept
        self.dead = set(dead)
        self.tasks: defaultdict[str, Task] = defaultdict(Task)
        self.scopes: defaultdict[str, Scope] = defaultdict(Scope)
        self.told: defaultdict[int, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.kind in ("open", "wait", "close"):
                setattr(self.scopes[event.subject], event.kind, event)
            elif event.kind == "told":
                self.told[event.place].append(event)
            else:
                self._of_task(event)

    def _of_task(self, event: Event) -> None:
        task = self.tasks[event.subject]
        if event.kind in OF_TASKS:
            task.last = event
        if event.kind == "begin":
            task.begins.append(event)
        elif event.kind in ("spawn", "spawned", "end"):
            setattr(task, event.kind, event)

    def of(self, scope: str) -> Iterator[tuple[str, Task]]:
        """The tasks that a scope waits for."""
        return ((name, task) for name, task in self.tasks.items() if scope in task.chain)

    def counted(self, scope: str) -> Iterator[tuple[str, Task]]:
        """The tasks that are counted in the record of this scope itself."""
        return ((name, task) for name, task in self.tasks.items()
                if task.spawn and task.spawn.more["scope"] == scope)


def check(events: Iterable[Event], dead: Iterable[int] = (), delay_s: float = 1.0) -> list[str]:
    """Find what contradicts the laws; an empty list if nothing does.

    Args:
        events: of all places.
        dead: places that died.
        delay_s: how long after the end of the last thing that it waits for a scope may close.

    Returns:
        One sentence for each violation, that begins with the law's name.
    """
    seen = Histories(events, dead)
    laws = (begins_once, nothing_goes_on, all_have_ended, losses_are_told, only_the_dead_are_told,
            exceptions_arrive, at_comes_back, scopes_close, nobody_delays, dead_are_silent,
            one_order, one_at_a_time)
    return [f"{law.__name__}: {text}" for law in laws for text in law(seen, delay_s)]


def begins_once(seen: Histories, _: float) -> Iterator[str]:
    """A task begins at most once, after its spawn, at the place that it was sent to."""
    for name, task in seen.tasks.items():
        if len(task.begins) > 1:
            yield f"task {name} begins {len(task.begins)} times"
        for begin in task.begins:
            if name.startswith(MAIN):
                continue
            if task.spawn is None:
                yield f"task {name} begins at place {begin.place}, and nobody has spawned it"
            elif begin.at_ns < task.spawn.at_ns:
                yield f"task {name} begins before its spawn"
            elif begin.place != task.spawn.more["to"]:
                yield f"task {name} for place {task.spawn.more['to']} begins at {begin.place}"


def nothing_goes_on(seen: Histories, _: float) -> Iterator[str]:
    """F1: no task begins or goes on after a scope of its chain has ended at a living place."""
    for name, task in seen.tasks.items():
        for scope in task.chain:
            close = seen.scopes[scope].close
            if close is None or task.last is None or task.last.at_ns <= close.at_ns:
                continue
            begun = task.begins and task.begins[0].at_ns > close.at_ns
            how = "begins" if begun else f"goes on ({task.last.kind})"
            yield (f"task {name} {how} at place {task.last.place} after {scope} "
                   f"has ended at place {close.place}")


def all_have_ended(seen: Histories, _: float) -> Iterator[str]:
    """F1: a scope closes only when its tasks at living places have ended, and all have come."""
    for scope, its in seen.scopes.items():
        if its.close is None:
            continue
        for name, task in seen.of(scope):
            assert task.spawn
            if task.spawn.more["to"] in seen.dead or (task.end and not late(task.end, its.close)):
                continue
            if task.begins and task.begins[0].at_ns <= its.close.at_ns and task.end is None:
                yield f"{scope} has ended, and task {name} of it at a living place never does"
            elif task.begins and task.begins[0].at_ns <= its.close.at_ns:
                yield f"{scope} ends while task {name} of it runs at place {task.begins[0].place}"
            elif not task.begins and task.spawned and task.spawn.place not in seen.dead:
                yield f"{scope} has ended, and task {name} of it has not begun: nobody had died"


def late(event: Event, close: Event) -> bool:
    return event.at_ns > close.at_ns


def losses_are_told(seen: Histories, _: float) -> Iterator[str]:
    """F2: a lost task gives at least one DPE, of its place or of its sender's.

    The sender's is enough: it may have known that the place was dead, and died before it could tell
    so. A scope at a dead home tells nobody; who spawned a task and died on the way may not have.
    """
    for scope, its in seen.scopes.items():
        if its.close is None:
            continue
        for name, task in seen.counted(scope):
            if task.end or task.spawned is None or task.spawn is None:
                continue
            guilty = {task.spawn.more["to"], task.spawn.place} & seen.dead
            if guilty and not guilty & set(its.close.more["dpes"]):
                places = " and ".join(map(str, sorted(guilty)))
                yield f"task {name} is lost with place {places}, and {scope} has no DPE of it"


def only_the_dead_are_told(seen: Histories, _: float) -> Iterator[str]:
    """A DPE names a place that has died."""
    for scope, its in seen.scopes.items():
        if its.close:
            for place in set(its.close.more["dpes"]) - seen.dead:
                yield f"{scope} ends with a DPE of place {place}, which lives"


def exceptions_arrive(seen: Histories, _: float) -> Iterator[str]:
    """A task's exception comes out of the scope that counts the task, and none comes twice.

    If the place dies between the exception and its way home, a DPE comes instead of it.
    """
    for scope, its in seen.scopes.items():
        if its.close is None:
            continue
        ends = [t.end for _, t in seen.counted(scope)
                if t.end and t.end.more["error"] and not t.end.more["error"].startswith(DPE)]
        raised = Counter(end.more["error"] for end in ends)
        excused = Counter(end.more["error"] for end in ends
                          if end.place in its.close.more["dpes"])
        came = Counter(its.close.more["errors"])
        for text in raised - came - excused:
            yield f"exception {text!r} of a task does not come out of {scope}"
        for text in came - raised - Counter(its.close.more.get("own", ())):
            yield f"exception {text!r} comes out of {scope}, and nothing in it has raised it"


def at_comes_back(seen: Histories, _: float) -> Iterator[str]:
    """An at returns a value only if its body has ended without exception."""
    for scope, its in seen.scopes.items():
        if its.close is None or its.open is None or its.open.more["kind"] != "at":
            continue
        bodies = [task for _, task in seen.counted(scope)]
        if its.close.more.get("value") and not any(
                t.end and not t.end.more["error"] and not late(t.end, its.close) for t in bodies):
            yield f"{scope} returns a value, and its body has not ended"


def scopes_close(seen: Histories, _: float) -> Iterator[str]:
    """Finishes and calls that were opened at a living place are closed by the end."""
    for scope, its in seen.scopes.items():
        if its.open and its.close is None and its.open.place not in seen.dead:
            yield f"{scope} was opened at place {its.open.place} and is never closed"


def nobody_delays(seen: Histories, delay_s: float) -> Iterator[str]:
    """F3: a scope closes soon after the end of all that it waits for, however busy others are."""
    for scope, its in seen.scopes.items():
        if its.close is None or its.wait is None:
            continue
        ready = [its.wait.at_ns, *(t.at_ns for t in seen.told[its.wait.place])]
        for _, task in seen.of(scope):
            ready += [e.at_ns for e in (task.spawn, task.last) if e]
        ready += [i.close.at_ns for name, i in seen.scopes.items()
                  if i.close and name != scope and any(
                      name in task.chain for _, task in seen.of(scope))]
        delay = (its.close.at_ns - max(t for t in ready if t <= its.close.at_ns)) / 1e9
        if delay > delay_s:
            busy = sorted(set(busy_at(seen, its.close.at_ns)) - {its.wait.place})
            yield f"{scope} ends {delay:.3f} s late; places {busy} were busy"


def busy_at(seen: Histories, at_ns: int) -> Iterator[int]:
    """The places where a task runs at this moment."""
    for task in seen.tasks.values():
        if task.begins and task.begins[0].at_ns < at_ns and (
                task.end is None or task.end.at_ns > at_ns):
            yield task.begins[0].place


def dead_are_silent(seen: Histories, _: float) -> Iterator[str]:
    """Nothing happens at a place after another one was told of its death."""
    told: dict[int, Event] = {}
    for event in seen.events:
        if event.kind == "told":
            told.setdefault(int(event.subject), event)
        elif event.place in told:
            yield (f"{event.kind} of {event.subject} at place {event.place}, whose death place "
                   f"{told[event.place].place} was told of")


def one_order(seen: Histories, _: float) -> Iterator[str]:
    """All places are told of deaths in one order, of each once, and only of dead ones."""
    longest = max((list(events) for events in seen.told.values()), key=len, default=[])
    order = [int(e.subject) for e in longest]
    for place, events in seen.told.items():
        mine = [int(e.subject) for e in events]
        if mine != order[:len(mine)]:
            yield f"place {place} is told of deaths {mine}, another one of {order}"
        for stranger in set(mine) - seen.dead:
            yield f"place {place} is told of the death of {stranger}, which lives"


def one_at_a_time(seen: Histories, _: float) -> Iterator[str]:
    """One task of a place runs at a time; it hands over only where it waits."""
    running: dict[int, str] = {}
    for event in seen.events:
        if event.kind not in OF_TASKS:
            continue
        now = running.get(event.place)
        if event.kind in ("begin", "resume") and now is not None:
            yield f"task {event.subject} runs at place {event.place} while {now} does"
        if event.kind in ("step", "end", "pause") and now not in (None, event.subject):
            yield f"task {event.subject} goes on at place {event.place} while {now} runs"
        if event.kind in ("begin", "resume", "step"):
            running[event.place] = event.subject
        elif now == event.subject:
            del running[event.place]
