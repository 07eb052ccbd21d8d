"""The programs of the campaign: their files, arguments, and places where their processes die."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

HERE = "{}"  # stands for the directory of results among a program's arguments
SEEDS = (1, 8, 14, 23)  # of drawn programs with small windows
ACCESSES = {"put": 40, "put-landed": 40, "fence": 25, "call": 20}
PASSIVE = {"put": 30, "get": 20, "atomic": 20, "flush": 30, "lock-held": 15, "call": 10}
SAFEPOINTS = {"safepoint": 11, "checkpoint": 11, "stage": 11, "staged": 11}
STENCILS = {
    "fence": {"put": 30, "put-landed": 30, "fence": 30},
    "lock": {"put": 30, "lock-held": 60, "flush": 30},
    "lockall": {"put": 30, "flush": 60, "lock-held": 1},
    "pscw": {"put": 30, "call": 60},
}
GRAPHS = ("pagerank", "distance", "component", "sv", "triangles", "matching", "kcore", "lists",
          "labels", "mis", "forest", "doubling")
LATTICE = ("bfs", "sssp", "cc", "kcore")  # of Phoenix's programs, those whose result is unique
ASYNC = ("pagerank", "sssp", "cc", "katz", "adsorption")
MODES = ("virtual", "chandy-lamport", "synchronous", "hybrid")
PLACES = {
    "kmeans": "--points 300 --clusters 4 --dimensions 3 --steps 20 --checkpoint 4",
    "logreg": "--samples 300 --features 5 --steps 20 --checkpoint 4",
    "pagerank": "--pages 300 --steps 20 --checkpoint 4",
    "uts": "--depth 7 --commit 0.01",
}
POLLS = ("shared", "exclusive", "get", "read", "add", "compare", "swap", "test", "nap")


@dataclass(frozen=True)
class Work:
    """A program with its arguments, on a number of slots.

    Attributes:
        name: of the program, with all that its result depends on but the slots.
        app: file below the tree's root; empty: a packaged program, the first of `args`.
        args: of the program; HERE stands for the directory of results.
        judge: "bits": final arrays are those of the run without deaths; "answer": the program
            compares its result with an oracle; "aic": see `tests/faults/test_aic.py`.
        most: for each place of slots, about how many visits there are.
        twin: each checkpoint at a step must have the bytes of the run without deaths.
        claims: a framework claims the job's failures.
    """

    name: str
    slots: int
    app: str
    args: tuple[str, ...]
    judge: str = "bits"
    most: Mapping[str, int] = field(default_factory=dict)
    twin: bool = False
    claims: bool = False

    @property
    def key(self) -> str:
        """Name of its reference."""
        return f"{self.name} on {self.slots}".replace(" ", "_").replace(":", "_")


def stepped(dice: random.Random) -> Work:
    """Draw a program of ``tests/faults/replay`` that has a loop of steps."""
    kind = dice.choice(["drawn", "drawn", "drawn", "fenced", "locked", "atomics", "sizes",
                        "windows", "uneven", "groups"])
    modes = {"uneven": ["plain", "top"], "groups": ["plain", "late", "top"]}
    mode = dice.choice(modes.get(kind, ["plain", "top"]))
    number = [str(dice.choice(SEEDS))] * (kind == "drawn")
    slots = dice.choice([2, 4] if kind == "groups" else [2, 3])
    most = ACCESSES if kind in ("fenced", "sizes", "windows", "groups") else ACCESSES | PASSIVE
    if mode != "plain":
        most = most | SAFEPOINTS
    return Work(" ".join([kind, *number, mode]), slots, f"tests/faults/replay/{kind}.py",
                (HERE, mode, "12", *number), most=most,
                twin=mode != "plain" and kind not in ("locked", "atomics"))


def polling(dice: random.Random) -> Work:
    """Draw a program whose slots look again and again."""
    way = dice.choice(POLLS)
    most = {"put": 3, "get": 3000, "atomic": 3000, "lock-held": 3000, "call": 3}
    return Work(f"polling {way}", 3, "tests/faults/replay/polling.py", (HERE, way, "2", "0.05"),
                most=most)


def mixed(dice: random.Random) -> Work:
    slots = dice.choice([2, 3])
    most = {"put": 25, "get": 25, "atomic": 15, "flush": 25, "lock-held": 20, "fence": 25,
            "call": 60}
    return Work("mixed", slots, "tests/faults/mixed.py", (HERE,), most=most | SAFEPOINTS, twin=True)


def stencil(dice: random.Random) -> Work:
    mode = dice.choice(list(STENCILS))
    return Work(f"stencil {mode}", dice.choice([2, 4]), "bench/apps/stencil.py",
                ("--n", "48", "--steps", "16", "--mode", mode, "--dump", HERE),
                most=STENCILS[mode] | {place: 16 for place in SAFEPOINTS}, twin=True)


def fourier(dice: random.Random) -> Work:
    return Work("ft", 2, "bench/apps/ft.py",
                ("--class", "S", "--iterations", "4", "--dump", HERE),
                most={"put": 40, "put-landed": 40, "fence": 12} | {p: 4 for p in SAFEPOINTS},
                twin=True)


def table(dice: random.Random) -> Work:
    seed = str(dice.randrange(2))
    words = ("--inserts", "120", "--lookups", "60", "--buckets", "20", "--heap", "200",
             "--batch", "30", "--duty", "1", "--seed", seed, "--dump", HERE)
    most = {"put": 300, "atomic": 600, "flush": 700, "get": 150, "lock-held": 1}
    return Work(f"dht {seed}", dice.choice([2, 3]), "bench/apps/dht.py", words,
                most=most | SAFEPOINTS)


def vertices(dice: random.Random) -> Work:
    name, recovery = dice.choice(GRAPHS), dice.choice(["hwcp", "lwcp", "hwlog", "lwlog"])
    most = {"graph.compute": 12, "graph.emit": 12, "graph.exchange": 12, "stage": 3, "staged": 3,
            "put": 20, "fence": 12}
    return Work(f"graph {name}", 3, "tests/faults/graphs.py",
                (HERE, recovery, name), most=most, claims=True)


def phoenix(dice: random.Random) -> Work:
    name = dice.choice(LATTICE)
    most = {"graph.compute": 20, "graph.exchange": 20, "graph.sync": 20}
    return Work(f"phoenix {name}", 3, "tests/faults/phoenixes.py",
                (HERE, "phoenix", name), most=most, claims=True)


def ring(dice: random.Random) -> Work:
    return Work("ring", 3, "tests/faults/ring.py", (HERE,), claims=True,
                most={"ring.send": 40, "put": 40, "fence": 40, "safepoint": 40, "stage": 6,
                      "staged": 6})


def stagers(dice: random.Random) -> Work:
    return Work("stagers", 3, "tests/faults/stagers.py", (HERE,), claims=True,
                most={"stagers.half": 4, "put": 40, "flush": 40, "stage": 5, "staged": 5})


def asynchronous(dice: random.Random) -> Work:
    name, mode = dice.choice(ASYNC), dice.choice(MODES)
    most = {"aic.append": 12, "aic.drain": 12, "aic.begin": 3, "aic.clear": 3, "aic.half": 3,
            "aic.staged": 3, "aic.forward": 3, "aic.quiet": 1, "stage": 3, "staged": 3}
    return Work(f"aic {name}", 4, "tests/faults/aics.py",
                (HERE, name, f"{mode}:0.03", dice.choice(["all", "survivors"])), judge="aic",
                most=most, claims=True)


def places(dice: random.Random) -> Work:
    name = dice.choice(list(PLACES))
    most = ({"apgas.commit": 6, "apgas.deal": 3} if name == "uts" else
            {"apgas.step": 18, "apgas.team": 30, "apgas.checkpoint": 4, "apgas.record": 4,
             "apgas.remake": 1, "apgas.restore": 1})
    return Work(f"apgas {name}", 3, "", (name, "--check", *PLACES[name].split()),
                judge="answer", most=most, claims=True)


KINDS = {stepped: 30, polling: 6, mixed: 6, stencil: 14, fourier: 4, table: 8, vertices: 10,
         phoenix: 6, ring: 4, stagers: 3, asynchronous: 5, places: 4}


def draw_work(dice: random.Random) -> Work:
    """Draw a program, its arguments, and its slots."""
    kind = dice.choices(list(KINDS), list(KINDS.values()))[0]
    return kind(dice)
