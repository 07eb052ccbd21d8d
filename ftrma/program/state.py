"""Declared state: local variables of the program that a checkpoint saves beside the windows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ..host.errors import FtrmaError

# Classes whose objects consist of their elements alone; others have, for example, a mask.
PLAIN = (np.ndarray, np.memmap, np.recarray)


def _is_region(value: Any) -> bool:
    """Say whether a value is a plain array, which is protected in place; others are pickled."""
    return (
        type(value) in PLAIN
        and value.flags.c_contiguous
        and not value.dtype.hasobject
        and value.nbytes > 0
    )


class State:
    """The object that `ftrma.protect` returns: the declared fields are its attributes.

    Assign scalars through the attribute (``state.step += 1``); change arrays in place or assign new
    ones. After a failure the program starts again from its top, and `protect` returns the state of
    the last checkpoint: arrays are restored in the memory of the arrays passed in.

    Attributes:
        restored: True if the values come from a checkpoint.

    MPI: local; reading and writing fields waits for nobody.
    Fault: a survivor's fields stay as they are when a dead slot is replayed. When all slots go
        back, the program declares the fields again and gets the checkpoint's values.
    """

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        if not fields:
            raise ValueError(f"protect({name!r}): name at least one field, such as step=0")
        for field in fields:
            if field == "restored" or field.startswith("_"):
                raise ValueError(
                    f"protect({name!r}): a field cannot be named {field!r}; names that begin with "
                    "an underscore and 'restored' are taken"
                )
        self._name = name
        self._fields = tuple(fields)
        self.restored = False
        for field, value in fields.items():
            setattr(self, field, value)
        self._split()

    def _split(self) -> tuple[dict[str, np.ndarray[Any, Any]], bytes]:
        """Return the plain arrays by field, and a pickle of the other fields."""
        arrays, rest = {}, {}
        for field in self._fields:
            value = getattr(self, field)
            if _is_region(value):
                arrays[field] = value
            else:
                rest[field] = value
        try:
            return arrays, pickle.dumps(rest, protocol=5)
        except Exception as error:
            culprit = next((f for f, v in rest.items() if not _picklable(v)), "?")
            raise FtrmaError(
                f"protect({self._name!r}): field {culprit!r} "
                f"({type(rest.get(culprit)).__name__}) cannot be saved: {error}. Declare only what "
                "pickle can save, and make the rest again at the top of the program"
            ) from error

    def _save(self) -> tuple[dict[Any, np.ndarray[Any, Any]], dict[str, Any]]:
        """Return the plain arrays by key, and a record that describes them and has the other
        fields."""
        arrays, rest = self._split()
        keyed = {("state", self._name, field): value for field, value in arrays.items()}
        shapes = {field: (v.dtype, v.shape) for field, v in arrays.items()}
        return keyed, {"arrays": shapes, "rest": rest}

    def _load(self, record: dict[str, Any], copy_out: Any) -> None:
        """Take over the values of a checkpoint."""
        for field, value in pickle.loads(record["rest"]).items():
            setattr(self, field, value)
        for field, (dtype, shape) in record["arrays"].items():
            array: Any = getattr(self, field, None)
            if not (_is_region(array) and array.dtype == dtype and array.shape == shape):
                array = np.empty(shape, dtype)
                setattr(self, field, array)
            copy_out(("state", self._name, field), array.ctypes.data, array.nbytes)
        self.restored = True

    def _differs(self, record: dict[str, Any], bytes_of: Any) -> bool:
        """Say whether the fields differ from those of a checkpoint."""
        arrays, saved = self._save()
        # Pickles of equal values can differ if two parts of a value are the same object in only one
        # of them. So each field is loaded and pickled by itself, which makes such parts alike in
        # both.
        now, then = ({field: pickle.dumps(value, protocol=5)
                      for field, value in pickle.loads(r["rest"]).items()} for r in (saved, record))
        return bool(
            now != then
            or saved["arrays"] != record["arrays"]
            or any(
                memoryview(bytes_of(key, a.nbytes)) != np.asarray(a).reshape(-1).view("u1").data
                for key, a in arrays.items()
            )
        )


def _picklable(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True
