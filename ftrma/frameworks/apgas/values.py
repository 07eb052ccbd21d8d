"""Values and keys of a store. Arrays are kept as they are, all other values are pickled.

A *kept* value is an array that only the store has, or the bytes of a pickle. A program never sees a
kept value: it gets a copy of the array, or a new object from the pickle.

Source: Resilient X10, section 2.5: an object that is read is a deep copy of the one that was put.
"""

from __future__ import annotations

import pickle
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Kept: TypeAlias = "bytes | npt.NDArray[Any]"


def check_key(key: object) -> str:
    """Refuse a key that is no string.

    Raises:
        TypeError: the key is no string; the text names the key and the remedy.
    """
    if type(key) is str:
        return key
    raise TypeError(f"store: the key {key!r} is of type {type(key).__name__}; keys are strings: "
                    f"use for example {' '.join(map(str, key))!r}" if isinstance(key, tuple | list)
                    else f"store: the key {key!r} is of type {type(key).__name__}; keys are "
                    f"strings: use {str(key)!r}")


def encode(value: Any) -> Kept:
    """Return a value as it is kept; an array is not copied, and is still the user's own.

    Raises:
        TypeError: the value cannot be pickled.
    """
    if type(value) is np.ndarray and not value.dtype.hasobject and value.dtype.names is None:
        return value if value.flags.c_contiguous or value.flags.f_contiguous else value.copy()
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        raise TypeError(f"store: a value of type {type(value).__name__} cannot be kept, since it "
                        f"cannot be pickled ({error}); store plain data or arrays") from error


def decode(kept: Kept) -> Any:
    """Return an object that shares nothing with what is kept."""
    return pickle.loads(kept) if isinstance(kept, bytes) else kept.copy("K")


def own(value: Kept) -> Kept:
    """Return a kept value that shares nothing with the user's array."""
    return value if isinstance(value, bytes) else value.copy("K")
