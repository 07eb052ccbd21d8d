"""Mistakes in a vertex program: what is refused, and how it is told.

Law: one message, in words, on one slot, whichever slots are concerned; and nobody waits.
"""

from __future__ import annotations

import pytest
from graphruns import SCRIPT
from jobs import run_job, run_plain
from tree import APPS

MISTAKES = """
import json, sys
import numpy as np
from ftrma import graph
from ftrma.graph import data
found = []
class Program(graph.VertexProgram):
    fields = {"a": float}
    def update(self, v, inbox, ctx): v.vote_to_halt()
    def emit(self, v, ctx): pass
def told(call):
    try:
        call()
    except (ValueError, AttributeError, RuntimeError) as error:
        found.append(f"{type(error).__name__}: {error}")
told(lambda: graph.Engine(recovery="later"))
told(lambda: graph.Engine(recovery="causal", topology="parity"))
told(lambda: graph.Engine(recovery="rollback", checkpoint=2.5))
told(lambda: graph.Engine(topology="files"))
told(lambda: graph.Engine(partition="odd"))
told(lambda: graph.Engine(checkpoint=-1))
engine = graph.Engine()
told(lambda: graph.Engine(recovery="causal"))
path = data.path(9)
def of(**methods): return type("Program", (Program,), methods)()
def never(self, v, inbox, ctx): pass
def writes(self, v, ctx): v.a = 1
def sends(self, v, inbox, ctx): v.send(1)
def votes(self, v, ctx): v.vote_to_halt()
def masks(self, v, ctx): v.send(1, where=np.ones(len(v), int))
def weighs(self, v, ctx): v.send(1, weight="plus")
def names(self, v, inbox, ctx): v.b = 1
def adds(self, v, ctx): ctx.contribute("x", 1)
def drops(self, v, inbox, ctx): v.drop_edges(np.ones(3, bool))
def comes(self, v, inbox, ctx): v.add_edges([9], [0])
def leaves(self, v, inbox, ctx): v.add_edges([0], [9])
def writes_to(self, v, ctx): v.send_to([0, -1], 1)
class Nothing(graph.VertexProgram): fields = {"a": float}
for program in (of(update=never), of(emit=writes), of(update=sends), of(emit=weighs),
                of(update=names), of(emit=adds), of(emit=votes), of(emit=masks), of(fields={}),
                of(fields={"degree": int}), of(aggregates={"active": int}), of(message=complex),
                of(combine=np.subtract), of(update=drops), of(update=comes), of(update=leaves),
                of(emit=writes_to), graph.VertexProgram.__new__(Nothing)):
    told(lambda: engine.run(path, program, most=3))
json.dump(found, open(f"{sys.argv[1]}/found.json", "w"))
"""


def test_mistakes_are_told() -> None:
    """Law: what cannot be done again, or is not there, is refused in words."""
    result = run_plain(MISTAKES, 1)
    assert result.status == 0, result
    assert result.results["found"] == [
        "ValueError: recovery 'later': give one of hwcp, lwcp, hwlog, lwlog, none, causal, "
        "rollback, phoenix, cr",
        "ValueError: topology 'parity' with recovery 'causal', which saves no graph; give "
        "\"loader\", or \"files\" and a cache",
        "ValueError: checkpoint 2.5 with recovery 'rollback': give steps between two, \"daly\" or "
        "\"never\"; seconds are for ftrma run's --interval",
        "ValueError: topology 'files': give a directory too, as cache",
        "ValueError: partition 'odd': give 'hash', 'range', 'edges'",
        "ValueError: checkpoint -1: give steps between two (a whole number), seconds (with a "
        "point), \"daly\" or \"never\"",
        "ValueError: recovery 'causal' beside an engine of another kind: those of a program have "
        "causal or rollback all, or none",
        "NotEnded: the program has not ended after 3 steps",
        "RuntimeError: emit() writes field 'a': it may be done again, so all that changes is "
        "changed in update()",
        "RuntimeError: send() in update(): messages are sent in emit(), from the fields",
        "ValueError: send(weight='plus'): the graph has no weights",
        "AttributeError: vertices have no field 'b'; fields are a",
        "RuntimeError: contribute('x') in emit(), which may be done again: contribute in update()",
        "RuntimeError: vote_to_halt() in emit(), which may be done again: vote in update()",
        "ValueError: send: a mask of int64 and shape (9,); give bool, one for each of the block's "
        "9 vertices",
        "ValueError: Program: declare what a vertex has, such as fields = {\"rank\": float}",
        "ValueError: Program: 'degree' is a name that vertices or steps have already; choose "
        "another",
        "ValueError: Program: 'active' is a name that vertices or steps have already; choose "
        "another",
        "ValueError: Program: message has dtype complex128; give bool, integers or floats",
        "ValueError: Program: combine = <ufunc 'subtract'> has no neutral value; give a NumPy "
        "ufunc such as np.add or np.minimum, or None",
        "ValueError: drop_edges: a mask of bool and shape (3,); give bool, one for each of the "
        "block's 8 edges",
        "ValueError: add_edges: places 9 to 9 in a block of 9 vertices",
        "ValueError: add_edges: vertex 9; vertices are 0 to 8",
        "ValueError: send_to: vertex -1; vertices are 0 to 8",
        "ValueError: Nothing: define update and emit, or compute",
    ]


DIFFERING = """
from ftrma import graph, MPI
from ftrma.graph import data
class Program(graph.VertexProgram):
    fields = {"a": float}
    def update(self, v, inbox, ctx): pass
    def emit(self, v, ctx): pass
    def compute(self, v, inbox, ctx): pass
    def masked(self, ctx): return ctx.step == 3 and MPI.COMM_WORLD.rank == 1
graph.Engine().run(data.path(9), Program())
"""


@pytest.mark.full
def test_a_mask_that_differs_is_told() -> None:
    """Law: it ends the job in words, on all slots, and nobody waits for somebody."""
    result = run_job(DIFFERING, 2)
    assert result.status == 1, result
    assert ("step 3 is masked on 1 of 2 slots: masked() may depend on the step and the aggregates "
            "alone") in result.stderr


OTHER = """
import sys
import numpy as np
from ftrma import framework, graph
from ftrma.graph import data
sys.path.insert(0, sys.argv[2])
from graphs import Component, Distance, sparse, weighted
engine = graph.Engine(checkpoint=2)
if framework.attempt() == 1:
    engine.run(weighted(), Distance())
else:
    engine.run(sparse(), Component())
"""


@pytest.mark.full
def test_another_run_than_before_is_refused() -> None:
    """Law: a program that makes other runs when it is entered again is told, not answered."""
    result = run_job(OTHER, 2, "--kill", "1@graph.compute:9", args=[str(SCRIPT.parent)])
    assert result.status == 1, result
    assert "run 1 of the job was of another program, graph, partition or recovery" in result.stderr


ALONE = """
import sys
from ftrma import MPI
sys.path.insert(0, APPS)
import graph as app
of, bad = app.graph_of, sys.argv[2]
def graph_of(engine, name, **reading):
    if bad in ("all", str(MPI.COMM_WORLD.rank)):
        raise ValueError("edges are odd")
    return of(engine, name, **reading)
app.graph_of = graph_of
sys.exit(app.main(["pagerank", "rmat:8"]))
"""


@pytest.mark.full
@pytest.mark.parametrize("bad", ["0", "2", "all"])
def test_a_mistake_of_any_slot_is_told_once(bad: str) -> None:
    text = ALONE.replace("APPS", repr(str(APPS)))
    result = run_job(text, 3, args=[bad])
    assert result.status == 2 and result.stderr.count("graph: error: edges are odd\n") == 1, result
