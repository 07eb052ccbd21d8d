"""Values of programs that do not fit their fields, messages and sums: told, not cast.

NumPy makes a number of NaN, cuts off what is behind the point, and lets sums of integers wrap
around. Here a value is looked at if its dtype is another one than declared, and a sum of integers
if the largest values could be too many: so values that fit cost nothing. Sums of unsigned integers
wrap around, as those of checksums are meant to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .references import AnyArray


def fitted(values: Any, kind: npt.DTypeLike, what: str) -> AnyArray:
    """Values that a dtype holds without a change, as an array of any dtype.

    Args:
        what: takes the values, for errors.

    Raises:
        ValueError: with a value that does not fit, and the remedy.
    """
    array, dtype = np.asarray(values), np.dtype(kind)
    if dtype.kind not in "iu" or array.dtype.kind not in "iuf" or not array.size or np.can_cast(
            array.dtype, dtype, "safe"):
        return array
    limits = np.iinfo(dtype)
    wrong = np.zeros(array.shape, bool)
    if array.dtype.kind == "f":
        wrong = (array != np.trunc(array)) | (array < float(limits.min)) | (
            array >= float(limits.max) + (dtype.itemsize < 8))
    elif int(array.min()) < limits.min or int(array.max()) > limits.max:
        small = [limits.min <= value <= limits.max for value in array.ravel().tolist()]
        wrong = ~np.array(small).reshape(array.shape)
    if wrong.any():
        raise ValueError(f"{what} is of {dtype}, which {array[wrong][0]} is not: declare it float, "
                         "or of more bits, or give values that fit")
    return array


def check_weights(weight: AnyArray | None, kind: npt.DTypeLike, what: str) -> None:
    """Refuse weights that an integer would cut off, where a message is made with them.

    Raises:
        ValueError: with one of the weights.
    """
    if weight is not None and np.dtype(kind).kind in "iu":
        fitted(weight, np.int64, f"{what} with weights")


def combined(combine: np.ufunc, total: Any, value: Any, what: str) -> Any:
    """A value that is combined with those before, in their dtype.

    Raises:
        ValueError: the dtype does not hold the value, or their sum.
    """
    if combine is np.add:
        return added(total, value, what)
    return combine(total, fitted(value, np.asarray(total).dtype, what))


def added(total: Any, value: Any, what: str) -> Any:
    """A sum that has the dtype of its first part; of unsigned integers it wraps around.

    Raises:
        ValueError: the dtype does not hold the sum, or the value.
    """
    dtype = np.asarray(total).dtype
    if dtype.kind not in "iu":
        return total + value
    whole = int(total) + int(fitted(value, dtype, what))
    limits = np.iinfo(dtype)
    if dtype.kind == "u":
        whole %= limits.max + 1
    if not limits.min <= whole <= limits.max:
        raise ValueError(f"{what} is of {dtype}, which the sum {whole} is not: declare it float, "
                         "or of more bits")
    return dtype.type(whole)


def largest(values: AnyArray) -> int:
    """The largest size of some integers."""
    return max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0


def may_overflow(combine: np.ufunc | None, dtype: np.dtype[Any], bound: int) -> bool:
    """Messages of signed integers are added, and the sum may be as large as a bound that is more
    than the dtype holds."""
    return combine is np.add and dtype.kind == "i" and bound > np.iinfo(dtype).max


def check_sums(sums: AnyArray, dtype: np.dtype[Any]) -> None:
    """Refuse sums that overflow.

    Args:
        sums: as float64.
        dtype: that they are to have.

    Raises:
        ValueError: one is larger than the dtype holds.
    """
    # A float64 is wrong by less than a part in 2**40 after 2**12 roundings.
    if sums.size and np.abs(sums).max() >= float(np.iinfo(dtype).max) * (1 - 2.0**-40):
        raise ValueError(f"messages are of {dtype}, which their sum {np.abs(sums).max():.6g} is "
                         "not: declare message = float, or of more bits")
