"""Delta-accumulative programs: the class that users derive from, and the checks of it.

Each vertex has a *value* and a *delta*: what has come to it and was not handed on yet. An update
takes the delta into the value, makes a message from it, and sends that along the edges. A message
is accumulated into the delta of each vertex to which it comes. Accumulating is commutative and
associative, so the order of updates does not matter, and no slot has to wait.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..graph.parts import Part
from ..graph.references import USES
from .kinds import AnyArray

SAMPLES = 64  # values on which the algebra of a program is tried
RECOVERIES = ("all", "survivors")


class Block:
    """Some vertices of a slot, as a program sees them; arrays are made when they are first used.

    Args:
        part: the slot's part of the graph.
        rows: numbers of the vertices among those of the slot; None: all.
        value, delta: values and deltas of all vertices of the slot.
        n: number of vertices of the graph.

    Attributes:
        ids: ids of the vertices, (k,) int64.
        degree: number of edges that leave each vertex, (k,) int64.
        value, delta: of each vertex, (k,); only `DeltaProgram.init` writes them.
        n: see above.
    """

    def __init__(self, part: Part, rows: npt.NDArray[np.int64] | None, value: AnyArray,
                 delta: AnyArray, n: int) -> None:
        self._part, self._rows, self._of, self.n = part, rows, (value, delta), n

    @cached_property
    def ids(self) -> npt.NDArray[np.int64]:
        return self._pick(self._part.ids)

    @cached_property
    def degree(self) -> npt.NDArray[np.int64]:
        return self._pick(self._part.degree)

    @cached_property
    def value(self) -> AnyArray:
        return self._pick(self._of[0])

    @cached_property
    def delta(self) -> AnyArray:
        return self._pick(self._of[1])

    def _pick(self, array: AnyArray) -> AnyArray:
        return array if self._rows is None else array[self._rows]


class DeltaProgram:
    """A delta-accumulative program over the vertices of a graph.

    Attributes:
        accumulate: a NumPy function of two arguments, commutative and associative, such as np.add,
            np.minimum or np.maximum.
        zero: accumulating it changes nothing: 0 for np.add, np.inf for np.minimum.
        dtype: dtype of values, deltas and messages: a float or an integer.
        weight: the weight of an edge is added to a message ("plus"), multiplies it ("times"), or is
            not used (None).
        factor: the messages made from a delta, summed over all edges of a vertex, are at most this
            factor times the delta; None: that is not known. The factor gives bounds of errors.
        linear: ``send(v, a + b) == send(v, a) + send(v, b)``; the recovery "survivors" needs it for
            programs that add.

    MPI: local; the methods are called in the slot that owns the vertices.
    Fault: after a failure updates since the snapshot may be made again.
    """

    accumulate: ClassVar[np.ufunc] = np.add
    zero: Any = 0.0
    dtype: npt.DTypeLike = np.float64
    weight: str | None = None
    factor: float | None = None
    linear: bool = False

    def init(self, v: Block) -> None:
        """Set ``v.value`` and ``v.delta`` of all vertices; both are `zero` before."""
        raise NotImplementedError

    def receive(self, v: Block, message: AnyArray) -> AnyArray:
        """Return the values that are accumulated for messages: the paper's g.

        Args:
            message: a message to each vertex of the block, (k,), which may have been accumulated
                from several messages.
        """
        return message

    def send(self, v: Block, delta: AnyArray) -> AnyArray:
        """Return the message of each vertex, which goes along all of its edges: the paper's h.

        Args:
            v: the vertices that are updated, with their new values.
            delta: the deltas that their values have taken in, (k,).
        """
        raise NotImplementedError

    def priority(self, v: Block) -> AnyArray:
        """Return how urgent an update of each vertex is, (k,); one that is not above eps waits.

        By default it is the change of the value that the update would make.
        """
        return default_priority(type(self).accumulate, v.value, v.delta)


def default_priority(accumulate: np.ufunc, value: AnyArray, delta: AnyArray) -> AnyArray:
    """Return the change of each value by its delta; 1e300 if the value was infinite before."""
    if accumulate is np.add:
        found: AnyArray = np.abs(delta)
        return found
    after = accumulate(value, delta)
    with np.errstate(invalid="ignore"):
        change = np.abs(np.subtract(after, value, dtype=np.float64))
    change[after == value] = 0.0
    most: AnyArray = np.minimum(np.nan_to_num(change, nan=1e300, posinf=1e300), 1e300)
    return most


class WrongProgram(ValueError):
    """A program does something that no delta-accumulative program may do."""


def check_program(program: DeltaProgram, recovery: str) -> None:
    """Refuse a program whose declarations do not fit each other, or the recovery.

    Raises:
        ValueError: the program is refused; the text says what is wrong, and the remedy.
    """
    name, dtype = type(program).__name__, np.dtype(program.dtype)
    accumulate = type(program).accumulate
    if not isinstance(program, DeltaProgram):
        raise WrongProgram(f"{name}: derive it from DeltaProgram, and give an instance")
    if dtype.kind not in "fiu":
        raise WrongProgram(f"{name}: dtype {dtype}; give a float or an integer")
    if not isinstance(accumulate, np.ufunc) or accumulate.nin != 2:
        raise WrongProgram(f"{name}: accumulate {accumulate!r}; give a NumPy function of two "
                           "arguments, such as np.add or np.minimum")
    if program.weight not in USES and program.weight is not None:
        raise WrongProgram(f"{name}: weight {program.weight!r}; give \"plus\", \"times\" or None")
    if program.factor is not None and not 0 <= program.factor < 1:
        raise WrongProgram(f"{name}: factor {program.factor}; give 0 or more, and less than 1, or "
                           "None if deltas need not shrink")
    _check_algebra(name, accumulate, program.zero, dtype)
    if recovery not in RECOVERIES:
        raise WrongProgram(f"recovery {recovery!r}: give \"all\" or \"survivors\"")
    if recovery == "survivors":
        _check_survivors(name, accumulate, program)


def _check_survivors(name: str, accumulate: np.ufunc, program: DeltaProgram) -> None:
    if type(program).receive is not DeltaProgram.receive:
        raise WrongProgram(f"{name}: recovery \"survivors\" makes messages again, and a program "
                           "with receive() may not take one twice; give \"all\"")
    if accumulate in (np.minimum, np.maximum) or (accumulate is np.add and program.linear):
        return
    why = ("it adds, and is not declared linear" if accumulate is np.add
           else f"{accumulate.__name__} does not allow it")
    raise WrongProgram(f"{name}: recovery \"survivors\" has to tell from the values which deltas "
                       f"are missing, and {why}; give \"all\"")


def _check_algebra(name: str, accumulate: np.ufunc, zero: Any, dtype: np.dtype[Any]) -> None:
    """Check on samples that the order of accumulating does not matter, and zero changes nothing."""
    random = np.random.default_rng(1)
    wide = random.integers(1, 100, (3, SAMPLES)) / (8.0 if dtype.kind == "f" else 1)
    a, b, c = wide.astype(dtype)
    none = np.full(SAMPLES, np.array(zero).astype(dtype), dtype)
    with np.errstate(all="ignore"):
        try:
            one, other = accumulate(a, b), accumulate(b, a)
            neutral = accumulate(a, none)
        except TypeError as error:
            raise WrongProgram(f"{name}: accumulate {accumulate.__name__} has no values of dtype "
                               f"{dtype}: {error}") from None
        _check_same(one, other, f"{name}: accumulate {accumulate.__name__} is not commutative", a,
                    b)
        _check_same(neutral, a, f"{name}: zero {zero!r} is none of {accumulate.__name__}", a, none)
        _check_same(accumulate(accumulate(a, b), c), accumulate(a, accumulate(b, c)),
                    f"{name}: accumulate {accumulate.__name__} is not associative", a, b)


def _check_same(one: AnyArray, other: AnyArray, what: str, a: AnyArray, b: AnyArray) -> None:
    wrong = ~np.isclose(one, other, rtol=1e-6, atol=0, equal_nan=True)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise WrongProgram(f"{what}: for {a[at]} and {b[at]} it gives {one[at]} and {other[at]}; "
                           "messages come in any order")


def check_weights(program: DeltaProgram, part: Part, what: str) -> None:
    """Refuse weights that the algebra forbids.

    Raises:
        ValueError: there is such a weight; the text has it.
    """
    name, weight = type(program).__name__, part.weight
    if program.weight is None:
        return
    if weight is None:
        raise WrongProgram(f"{name}: uses weights ({program.weight!r}), and {what} has none; give "
                           "a graph with a third column")
    least = type(program).accumulate is np.minimum and program.weight == "plus"
    if least and len(weight) and weight.min() < 0:
        raise WrongProgram(f"{name}: {what} has an edge of weight {weight.min()}; least sums need "
                           "weights of 0 or more, or they may shrink forever")


def check_eps(program: DeltaProgram, eps: float, delta: AnyArray) -> None:
    """Refuse a bound that no delta can reach.

    Args:
        delta: the deltas of all vertices at the beginning.

    Raises:
        ValueError: the bound is too small; the text has the least bound that makes sense.
    """
    name, dtype = type(program).__name__, np.dtype(program.dtype)
    if not eps >= 0 or eps == np.inf:
        raise WrongProgram(f"eps {eps}: give 0 or more")
    if type(program).accumulate is not np.add or dtype.kind != "f":
        return
    finite = np.abs(delta[np.isfinite(delta)])
    least = float(np.finfo(dtype).eps) * (float(finite.max()) if len(finite) else 0.0)
    if eps < least:
        raise WrongProgram(f"{name}: eps {eps}; beside deltas of {finite.max():.3g} at the begin "
                           f"{dtype} tells nothing below {least:.3g} apart: give that or more")
