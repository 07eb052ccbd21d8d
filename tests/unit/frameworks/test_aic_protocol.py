"""Snapshots and the end of an asynchronous run, in a simulator that runs the shipped worker.

The law: a committed snapshot has each message exactly once; a run ends, and never too early;
nothing is left in channels. Each rule of the protocol is left out in turn, and the law must fail
then. `FTRMA_AIC_SEED` takes other cases, `FTRMA_AIC_RUNS` another number of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import aicsim
import numpy as np
import pytest

from ftrma.frameworks.aic.ending import _REPORT, STATUS_SHARE, Counts, Ending, Reason
from ftrma.frameworks.aic.kinds import Kind
from ftrma.frameworks.aic.snapshots import NAME, Snapshots
from ftrma.frameworks.aic.worker import HELD, Worker

SEED = int(os.environ.get("FTRMA_AIC_SEED", "0"))
RUNS = int(os.environ.get("FTRMA_AIC_RUNS", "4"))
MOST_RUNS = 300  # without a rule, until the law fails; measured: 1 to 40


def run(seed: int, mode: str, **options: Any) -> aicsim.Simulation:
    simulation = aicsim.Simulation(seed, mode, **options)
    try:
        simulation.run()
    except Exception as error:
        raise AssertionError(f"seed {seed}, {mode}: {error}") from error
    return simulation


@pytest.mark.parametrize("mode", aicsim.MODES)
def test_snapshots_and_the_end(mode: str) -> None:
    """Law: whatever the order of turns, records, repairs and deaths."""
    for seed in range(SEED, SEED + RUNS):
        run(seed, mode)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", aicsim.MODES)
def test_many_runs(mode: str) -> None:
    """Law: in thousands of runs, too; a failure names its seed."""
    for seed in range(SEED + 10**6, SEED + 10**6 + 500 * RUNS):
        run(seed, mode)


EDGES: dict[str, dict[str, Any]] = {
    "one slot": {"slots": 1},
    "a record fills a channel": {"room": 1, "slots": 3},
    "slots die in their first turns": {"deaths": 8, "rate": 2.0},
    "snapshots follow each other": {"how": {"seconds": 1e-9}, "commits": 1.0, "slots": 3},
    "the store refuses": {"refusals": 0.8},
    "repairs follow each other": {"repairs": 60, "rate": 0.1, "deaths": 0},
    "a slot hardly gets a turn": {"weights": [1, 0.02, 1], "slots": 3, "room": 100},
}


@pytest.mark.plain
@pytest.mark.parametrize("edge", EDGES)
def test_edges(edge: str) -> None:
    """Law: at the edges of what is drawn, too."""
    for mode in aicsim.MODES:
        run(SEED, mode, **EDGES[edge])


def receive_without(kind: int) -> Callable[..., None]:
    def receive(self: Any, source: int, what: int, data: Any,
                original: Any = Snapshots.receive) -> None:
        if what != kind:
            original(self, source, what, data)
    return receive


def stay_for_staged(self: Any, source: int, kind: int, data: Any,
                    original: Any = Snapshots.receive) -> None:
    epoch, (number, generation) = self.epoch, NAME.unpack(data)
    if kind == Kind.CLEAR and epoch and (number, generation) == (epoch.number + 1,
                                                                 epoch.generation):
        return
    original(self, source, kind, data)


def log_too_long(self: Any, source: int, data: Any) -> None:
    if self.epoch and self.epoch.cut:
        self.epoch.log.append((source, bytes(data)))


def counting(passive: bool | None = None, held: bool = True, sums: bool = True) -> Any:
    def report(self: Any) -> Any:
        idle = self._workload.passive() and not (held and self._held)
        sent, received = (self.sent, self.received) if sums else (0, 0)
        return Counts(idle if passive is None else passive, sent, received, self.updates)
    return report


def arrays_without_held(self: Any, original: Any = Worker._arrays) -> Any:
    return {name: array for name, array in original(self).items() if name != HELD}


def leave_amid_a_snapshot(self: Any) -> bool:
    return bool(self.ending.leave())


def names_without_generation(self: Any, source: int, kind: int, data: Any,
                             original: Any = Snapshots.receive) -> None:
    number, _ = NAME.unpack(data)
    original(self, source, kind, NAME.pack(number, self._store.generation))


def leave_at_once(self: Any, original: Any = Ending.leave) -> bool:
    original(self)
    return True


def always(value: bool) -> Any:
    return lambda *_: value


LEFT_OUT = ("heedless", "mixed", "overtakes")  # rules of the simulator
NEVER = 10**9  # visits of tokens
FEW = {"slots": 3, "repairs": 20, "rate": 0.02, "deaths": 0, "delays": 0.05}
# Each rule: modes in which it is needed; what stands in its place; what is tuned to find that.
RULES: dict[str, tuple[str, tuple[type, str, Any] | None, dict[str, Any]]] = {
    "the cut waits for CLEAR of all": (
        "virtual", (Snapshots, "_may_cut", always(True)), {}),
    "no data after CLEAR": (
        "virtual synchronous hybrid", (Snapshots, "appending", always(True)), {}),
    "no data until all have staged": (
        "virtual", (Snapshots, "appending", lambda self: not self.epoch or self.epoch.cut), {}),
    "Chandy-Lamport: no data between CLEAR and the cut": (
        "chandy-lamport", (Snapshots, "appending", always(True)), {"slots": 3, "refusals": 0.5}),
    "RESUME forces the cut": (
        "hybrid", (Snapshots, "receive", receive_without(Kind.RESUME)), {"slots": 3}),
    "a forced cut comes before the next record": (
        "chandy-lamport hybrid", (Snapshots, "frozen", always(False)),
        {"slots": 3, "refusals": 0.7}),
    "records are logged after the cut": (
        "chandy-lamport hybrid", (Snapshots, "data", always(False)), {}),
    "they are logged until CLEAR": (
        "chandy-lamport hybrid", (Snapshots, "data", log_too_long), {}),
    "CLEAR of the next snapshot proves that all have staged": (
        "virtual", (Snapshots, "receive", stay_for_staged), {"slots": 3}),
    "a slot that stops waits for READY": (
        "synchronous", (Snapshots, "receive", receive_without(Kind.READY)), {}),
    "STAGED closes a snapshot": (
        "virtual", (Snapshots, "receive", receive_without(Kind.STAGED)), {}),
    "names have a generation": (
        "virtual", (Snapshots, "receive", names_without_generation), FEW),
    "a slot leaves a void snapshot": (
        "virtual chandy-lamport", (Snapshots, "_leave_void", lambda self: None), FEW),
    "a part belongs to the generation in which it was begun": ("virtual", None,
                                                            {**FEW, "heedless": True}),
    "a snapshot waits for the commit of the one before": (
        "virtual", (aicsim.SimStore, "ready", always(True)), {"commits": 0.02}),
    "snapshots leave each other time": (
        "virtual", (Snapshots, "_too_soon", always(False)), {}),
    "who loads a snapshot loads one that all have staged": (
        "virtual", None, {"mixed": True, "slots": 3, "deaths": 10}),
    "channels are first in, first out": ("virtual chandy-lamport", None, {"overtakes": True}),
    "messages that are kept back are a part of the snapshot": (
        "separate", (Worker, "_arrays", arrays_without_held), {}),
    "a slot that keeps messages back is not passive": (
        "separate", (Worker, "_counts", counting(held=False)), {}),
    "all are passive at the end": ("none", (Worker, "_counts", counting(passive=True)), {}),
    "sums are equal at the end": ("none", (Worker, "_counts", counting(sums=False)), {}),
    "a slot ends after its snapshot": (
        "virtual", (Worker, "_leave", leave_amid_a_snapshot), {"slots": 3}),
    "a slot leaves after END of all": ("none", (Ending, "leave", leave_at_once), {}),
    "END has left before its sender does": (
        "none", (aicsim.SimChannels, "behind", always(False)),
        {"slots": 3, "delays": 0.5, "deaths": 0, "make": aicsim.Tokens, "tokens": 6,
         "visits": NEVER, "enough": 50, "room": 24}),
}


@pytest.mark.plain
@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    """Law: without it some run breaks the law, in each mode that needs it, and with it none."""
    modes, change, tuned = RULES[rule]
    for mode in modes.split():
        for seed in range(SEED, SEED + MOST_RUNS):
            with pytest.MonkeyPatch.context() as patch:
                if change:
                    patch.setattr(*change)
                try:
                    run(seed, mode, **tuned)
                    continue
                except AssertionError:
                    pass
            run(seed, mode, **{**tuned, **dict.fromkeys(LEFT_OUT, False)})
            break
        else:
            raise AssertionError(f"{rule}: not needed in {mode}")


def wave(ending: Ending, *reports: Counts) -> None:
    """Have slot 0 take one report of each slot."""
    ending.step()
    for slot, counts in enumerate(reports):
        data = memoryview(_REPORT.pack(ending.waves, *counts))
        ending.receive(slot, Kind.REPORT, data, lambda: reports[0], lambda: np.empty(0))


def test_one_wave_does_not_suffice() -> None:
    """Law: sums of one wave may be equal by chance, with a slot at work and data under way.

    Slot 0 reports before it takes a record of slot 1, answers it, and goes on with the rest of it;
    slot 1 reports when it has taken the answer.
    """
    channels = aicsim.SimChannels(aicsim.Simulation(1, "none", slots=2, deaths=0), 0)
    ending = Ending(channels, lambda: 0.0, lambda statuses: False)
    wave(ending, Counts(True, 0, 0, 0), Counts(True, 1, 1, 0))
    assert ending.reason is None
    wave(ending, Counts(True, 2, 1, 0), Counts(True, 1, 2, 0))
    assert ending.reason is None
    wave(ending, Counts(True, 2, 1, 0), Counts(False, 1, 2, 0))
    assert ending.reason is None
    for _ in range(2):
        assert ending.reason is None
        wave(ending, Counts(True, 2, 1, 0), Counts(True, 1, 2, 0))
    assert ending.reason == Reason.QUIESCENT


def test_a_status_that_takes_long_is_made_seldom() -> None:
    """Law: the statuses of a run take the share of its time that they may take, at most."""
    now, made = [0.0], []

    def status() -> Any:
        made.append(now[0])
        now[0] += 0.06  # as the sums over a million vertices take
        return np.ones(2)

    simulation = aicsim.Simulation(1, "none", slots=1, deaths=0, repairs=0, delays=0)
    channels = aicsim.SimChannels(simulation, 0)
    ending = Ending(channels, lambda: now[0], lambda statuses: False)
    while now[0] < 60:
        ending.step()
        simulation.turn += 1
        while record := channels.take():
            ending.receive(*record, lambda: Counts(False, 0, 0, 0), status)
            channels.release()
        now[0] += 0.01
    assert 0.9 * STATUS_SHARE < 0.06 * len(made) / now[0] < 1.1 * STATUS_SHARE
    assert ending.told == len(made) < ending.waves / 10
    assert ending.statuses.tolist() == [[1, 1]]
