"""`bench phoenix --faults`: time that failures cost, by Phoenix, by checkpoints, and by both.

Arms, each launch of which makes one run, that is timed:

  Ph     Phoenix, which has no checkpoint
  CR-K   a checkpoint every K rounds, which all slots go back to
  CPh-K  Phoenix, where a slot that was lost begins with its part of such a checkpoint

In the run some of the slots are killed at once behind a share of its rounds. Time counts from its
begin to its result: to notice the deaths, to seat spares, to read the lost parts of the graph again
from files and to take rounds again. It is compared with Phoenix's without a failure, in the same
round of the measurement. A job has as many checksum ranks as slots are lost, since that many
checkpoints have to be computed again; Phoenix needs none, and has one. Phoenix saves no result
either, so a program with several runs would also repeat those that had ended.

Source: R. Dathathri et al., "Phoenix", ASPLOS 2019, section 5.3: figures 7 and 9 (time), 8 (rounds
and bytes), 10 (checkpoints with Phoenix). There the slots are 128 hosts, and the time is without
that for loading.
"""

from __future__ import annotations

import statistics
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import common, figures, launching
from .common import spread
from .launching import HERE, BenchError, JsonObject

SCRIPT = HERE / "phoenix_app.py"
PERCENT = (25, 50, 75, 99)  # of the rounds, behind which slots are lost
EVERY = (5, 50)  # rounds between checkpoints
SHARES = (8, 4, 2)  # of the slots one in so many is lost
# Percent more than without a failure, of 128 hosts: by hosts lost; for checkpoints of 4 hosts.
PAPER = {"Ph": "4 lost 14, 16 lost 20.8, 64 lost 44", "CR-50": "48.5", "CR-500": "59"}
PAPER_SHARES = {16 / 128: 20.8, 64 / 128: 44.0}  # by Phoenix, by the share of hosts lost


class Arm(NamedTuple):
    """A way to go on after failures.

    Attributes:
        recovery: as `phoenix_app.py` takes it.
    """

    name: str
    recovery: str


class Run(NamedTuple):
    """A run of a program, and what the process of slot 0 has done in it.

    Attributes:
        crc: of its result.
    """

    seconds: float
    rounds: int
    sent: int
    crc: int


def arms(every: Sequence[int]) -> list[Arm]:
    """Phoenix first, with which the others are compared."""
    return [Arm("Ph", "phoenix"), *(Arm(f"CR-{k}", f"cr:{k}") for k in every),
            Arm(f"CPh-{every[-1]}", f"phoenix:{every[-1]}")]


def counts(slots: int) -> list[int]:
    """How many slots are lost; slot 0 never is."""
    return [lost for lost in dict.fromkeys(slots // share for share in SHARES) if lost]


def main(options: Namespace) -> int:
    """Measure, print, draw."""
    every = options.cr or EVERY
    report = common.begin("phoenix --faults")
    report.update(graph=options.graph, slots=options.slots, rounds=options.rounds,
                  arms=[arm.name for arm in arms(every)], lost=counts(options.slots),
                  percent=options.percent, found={})
    for name in options.programs:
        of_rounds = []
        with tempfile.TemporaryDirectory(prefix="bench-ftrma-") as options.cache:
            launch(options, name, arms(every)[0], [])  # the slots leave their parts in files
            for i in range(options.rounds):
                common.progress(f"phoenix --faults: {name}, {i + 1} of {options.rounds}")
                of_rounds.append(measure(options, name, arms(every)))
        report["found"][name] = {
            arm: {what: spread(found[arm][what] for found in of_rounds) for what in values}
            for arm, values in of_rounds[0].items()}
    common.finish(report, options, text, draw)
    return 0


def measure(options: Namespace, name: str, ways: Sequence[Arm]) -> dict[str, dict[str, float]]:
    """Each arm once without failures and with each: percent more than by Phoenix without one."""
    plain = launch(options, name, ways[0], [])
    found: dict[str, dict[str, float]] = {}
    for arm in ways:
        without = plain if arm is ways[0] else launch(options, name, arm, [])
        more = {"s": without.seconds, "without": percent(without.seconds, plain.seconds)}
        for lost in counts(options.slots):
            runs = []
            for share in options.percent:
                # Every other slot from slot 1 on.
                visit = max(plain.rounds * share // 100, 1)
                rules = [f"{1 + 2 * i}@graph.compute:{visit}" for i in range(lost)]
                runs.append(launch(options, name, arm, rules))
                if runs[-1].crc != plain.crc and name != "pagerank":
                    raise BenchError(f"{name}, {arm.name}: {lost} lost at {share} %: a wrong "
                                     "result")
            for what, field in (("time", "seconds"), ("rounds", "rounds"), ("bytes", "sent")):
                each = [percent(getattr(run, field), getattr(plain, field)) for run in runs]
                more[f"{what}, {lost} lost"] = statistics.mean(each)
        found[arm.name] = more
    return found


def percent(value: float, of: float) -> float:
    """Percent that a value is more than another one."""
    return 100 * (value / of - 1) if of else 0.0


def launch(options: Namespace, name: str, arm: Arm, rules: Sequence[str]) -> Run:
    """A run of a program, in which these kills happen."""
    checksums = 1 if arm.recovery == "phoenix" else max(len(rules), 1)
    flags = ["--spares", str(len(rules)), "--checksums", str(checksums), "--group-size",
             str(options.slots), "--interval", "never",
             *(word for rule in rules for word in ("--kill", rule))]
    said, stats = launching.run_protected(
        options.slots, SCRIPT, [name, options.graph, "1", arm.recovery, "--cache", options.cache],
        flags, options.timeout, deaths=len(rules))
    if {recovery["kind"] for recovery in stats["recoveries"]} != {*["reentry"] * bool(rules)}:
        raise BenchError(f"{name}, {arm.name}: recoveries that are no re-entries alone: "
                         f"{stats['recoveries']}")
    return Run(said["each"][-1][2], said["rounds"], said["sent"], said["crc"])


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The tables for people."""
    lost = report["lost"]
    heads = [f"{count} of {report['slots']}" for count in lost]
    times = [["time more, %", "s", "no failure", *heads]]
    rounds = [["rounds; bytes more, %", *heads]]
    for name, found in report["found"].items():
        for arm, values in found.items():
            times.append([f"{name}, {arm}", f"{values['s']['median']:.2f}",
                          common.with_range(values["without"], 0, 0),
                          *(common.with_range(values[f"time, {count} lost"], 0, 0)
                            for count in lost)])
            rounds.append([f"{name}, {arm}", *(
                "; ".join(f"{values[f'{what}, {count} lost']['median']:.0f}"
                          for what in ("rounds", "bytes")) for count in lost)])
    for arm in report["arms"]:
        times.append([f"mean, {arm}", "", f"{mean(report, arm, 'without'):.0f}",
                      *(f"{mean(report, arm, f'time, {count} lost'):.0f}" for count in lost)])
        rounds.append([f"mean, {arm}", *(
            "; ".join(f"{mean(report, arm, f'{what}, {count} lost'):.0f}"
                      for what in ("rounds", "bytes")) for count in lost)])
    paper = "; ".join(f"{arm} {told}" for arm, told in PAPER.items())
    return "\n".join([
        f"{report['graph']}, {report['slots']} slots, killed behind {told(report['percent'])} % of "
        f"the rounds, of which this is the mean; {report['rounds']} rounds of the measurement; "
        "median (min .. max); beside Phoenix without a failure.",
        "", common.table(times), "",
        f"The paper, time more, %, of 128 hosts: {paper}.", "",
        "Rounds, and bytes that slot 0 sends:", "", common.table(rounds)])


def told(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def mean(report: JsonObject, arm: str, what: str) -> float:
    """The mean of a value over the programs."""
    return statistics.mean(found[arm][what]["median"] for found in report["found"].values())


def draw(report: JsonObject, path: Path) -> None:
    """Time more of each arm, by the number of slots that are lost.

    Of several programs the median, with quartiles over the programs.
    """
    alone = [*report["found"].values()] if len(report["found"]) == 1 else []
    names = ["no failure", *(f"{count} of {report['slots']} lost" for count in report["lost"])]
    whats = ["without", *(f"time, {count} lost" for count in report["lost"])]
    sides: dict[str, list[Any]] = {
        arm: [alone[0][arm][what] if alone else
              spread(found[arm][what]["median"] for found in report["found"].values())
              for what in whats] for arm in report["arms"]}
    told = [None, *(PAPER_SHARES.get(count / report["slots"]) for count in report["lost"])]
    figure, _ = figures.chart(names, sides, "time more than Phoenix without a failure, %",
                              paper=[more and (more, more) for more in told], paper_side=0)
    common.save(figure, path, report)
