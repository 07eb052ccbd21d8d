"""Values of programs that do not fit their fields, messages and sums are errors, and not converted.

NumPy converts NaN to some integer, cuts off digits after the point, and lets sums of integers wrap
around. Here a value is checked only if its dtype is another one than declared, and a sum of
integers only if the largest values could overflow; so values that fit cost nothing. Sums of
unsigned integers wrap around, as is intended for checksums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .references import AnyArray


def fitted(values: Any, kind: npt.DTypeLike, what: str) -> AnyArray:
    """Return values, after checking that a dtype holds them unchanged, as an array of any dtype.

    Args:
        what: name of the field or message that takes the values, for errors.

    Raises:
        ValueError: a value does not fit; the text has that value and the remedy.
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
    """Refuse weights that integer messages would cut off.

    Raises:
        ValueError: there is such a weight; the text has one of them.
    """
    if weight is not None and np.dtype(kind).kind in "iu":
        fitted(weight, np.int64, f"{what} with weights")


def combined(combine: np.ufunc, total: Any, value: Any, what: str) -> Any:
    """Return a value combined with the total of earlier ones, in the dtype of the total.

    Raises:
        ValueError: the dtype does not hold the value, or the sum.
    """
    if combine is np.add:
        return added(total, value, what)
    return combine(total, fitted(value, np.asarray(total).dtype, what))


def added(total: Any, value: Any, what: str) -> Any:
    """Return a sum in the dtype of the total; a sum of unsigned integers wraps around.

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
    """Return the largest absolute value of some integers."""
    return max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0


def may_overflow(combine: np.ufunc | None, dtype: np.dtype[Any], bound: int) -> bool:
    """Say whether messages of signed integers are added, and a bound of the sum does not fit the
    dtype."""
    return combine is np.add and dtype.kind == "i" and bound > np.iinfo(dtype).max


def check_sums(sums: AnyArray, dtype: np.dtype[Any]) -> None:
    """Refuse sums that overflow.

    Args:
        sums: the sums, computed in float64.
        dtype: the dtype that they are to have.

    Raises:
        ValueError: a sum is larger than the dtype holds.
    """
    # After 2**12 roundings the relative error of a float64 is less than 2**-40.
    if sums.size and np.abs(sums).max() >= float(np.iinfo(dtype).max) * (1 - 2.0**-40):
        raise ValueError(f"messages are of {dtype}, which their sum {np.abs(sums).max():.6g} is "
                         "not: declare message = float, or of more bits")
