"""Declared state: what is saved, and what comes back where."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import numpy as np
import pytest

from ftrma.host.errors import FtrmaError
from ftrma.program.state import State


class Store:
    """Stands for a vault: keeps the arrays of a save, copies them out by key and address."""

    def __init__(self, arrays: dict[Any, np.ndarray]) -> None:
        self.bytes = {key: a.tobytes() for key, a in arrays.items()}
        self.copied: list[Any] = []

    def copy_out(self, key: Any, address: int, size_bytes: int) -> None:
        assert len(self.bytes[key]) == size_bytes
        ctypes.memmove(address, self.bytes[key], size_bytes)
        self.copied.append(key)


def saved(state: State) -> tuple[Store, dict[str, Any]]:
    arrays, record = state._save()
    return Store(arrays), pickle.loads(pickle.dumps(record))


def test_fields_are_attributes() -> None:
    """Law: initial values are the attributes, the very objects; nothing is restored yet."""
    field = np.arange(3.0)
    state = State("main", {"step": 4, "field": field})
    assert state.step == 4 and state.field is field and state.restored is False


def test_arrays_come_back_in_their_own_memory() -> None:
    """Law: an array of equal type and shape is filled in place; every view of it sees it."""
    state = State("main", {"a": np.arange(6.0).reshape(2, 3), "n": 5})
    store, record = saved(state)
    fresh = State("main", {"a": np.zeros((2, 3)), "n": 0})
    before, view = fresh.a, fresh.a[1]
    fresh._load(record, store.copy_out)
    assert fresh.a is before and view.tolist() == [3, 4, 5]
    assert fresh.n == 5 and fresh.restored is True
    assert store.copied == [("state", "main", "a")]


@pytest.mark.parametrize(
    "now", [np.zeros(5), np.zeros((2, 3), "f4"), 0, None, np.zeros((3, 2)).T, np.zeros((2, 0))]
)
def test_array_that_changed_its_kind_is_made_anew(now: Any) -> None:
    """Law: whatever the program passes in, the field has the saved type, shape and bytes."""
    state = State("main", {"a": np.arange(6.0).reshape(2, 3)})
    store, record = saved(state)
    fresh = State("main", {"a": now})
    fresh._load(record, store.copy_out)
    assert fresh.a.dtype == "f8" and fresh.a.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_is_saved_is_the_present_value() -> None:
    """Law: fields that were assigned after protect, also from scalar to array and back."""
    state = State("main", {"a": 1, "b": np.ones(4), "c": "x"})
    state.a, state.b, state.c = np.arange(3), "gone", {"k": [1, 2]}
    store, record = saved(state)
    fresh = State("main", {"a": 1, "b": np.ones(4), "c": "x"})
    fresh._load(record, store.copy_out)
    assert fresh.a.tolist() == [0, 1, 2] and fresh.b == "gone" and fresh.c == {"k": [1, 2]}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(10)[::2],
        np.array([{"a": 1}, None], dtype=object),
        np.zeros(0),
        np.array(7.0),
        np.array([(1, 2.0)], dtype=[("i", "i4"), ("v", "f8")]),
        np.array(["text", "more"]),
        np.array([True, False]),
        np.array(["2026-11-25", "1970-01-01"], "M8[s]"),
        np.ma.masked_array([1.5, 2.5, 3.5], [False, True, False]),
        np.array([(1, 2.0)], dtype=[("i", "i4"), ("v", "f8")]).view(np.recarray),
    ],
    ids=["transposed", "strided", "objects", "empty", "0-d", "records", "strings", "bools", "dates",
         "masked", "recarray"],
)
def test_every_kind_of_array_comes_back(array: np.ndarray) -> None:
    """Law: type, shape and content are those at the save, in place or not."""
    store, record = saved(State("main", {"a": array.copy(order="K")}))
    fresh = State("main", {"a": 0})
    fresh._load(record, store.copy_out)
    assert fresh.a.dtype == array.dtype and fresh.a.shape == array.shape
    assert fresh.a.tolist() == array.tolist()
    again = State("main", {"a": array.copy(order="K")})
    assert not again._differs(record, lambda key, size_bytes: store.bytes[key])
    if array.size > 1:
        again.a = np.roll(again.a, 1)
        assert again._differs(record, lambda key, size_bytes: store.bytes[key])


def test_names_that_are_values_too_make_no_difference() -> None:
    """Law: what comes back is what was saved, also where a field's name occurs in a value, as in
    the dtype of an array without elements."""
    begin: dict[str, Any] = {"step": 1, "table": np.zeros(0, [("step", "i8")]), "w": {"step": "w"}}
    store, record = saved(State("main", begin))
    fresh = State("main", dict.fromkeys(begin))
    fresh._load(record, store.copy_out)
    assert not fresh._differs(record, lambda key, size_bytes: store.bytes[key])
    fresh.w["step"] = "v"
    assert fresh._differs(record, lambda key, size_bytes: store.bytes[key])


def test_loaded_scalars_are_copies() -> None:
    """Law: what is saved does not change with the program's objects."""
    words = ["a"]
    state = State("main", {"words": words})
    _, record = saved(state)
    words.append("b")
    fresh = State("main", {"words": []})
    fresh._load(record, None)
    assert fresh.words == ["a"]


def test_field_that_cannot_be_saved_is_named() -> None:
    """Law: an FtrmaError at protect, with state, field, type and what to do."""
    with pytest.raises(FtrmaError) as error:
        State("main", {"good": 1, "bad": lambda: 0, "array": np.ones(2)})
    for words in ("protect('main')", "field 'bad'", "function", "Declare only what pickle can"):
        assert words in str(error.value)
    state = State("main", {"good": 1})
    state.good = (i for i in range(3))
    with pytest.raises(FtrmaError, match=r"field 'good'.*generator"):
        state._save()


def test_deleted_field_is_named() -> None:
    """Law: a field that the program deletes is missed by its name."""
    state = State("main", {"step": 1, "field": np.ones(2)})
    del state.field
    with pytest.raises((FtrmaError, AttributeError), match="field"):
        state._save()


def test_state_without_fields_is_refused() -> None:
    """Law: ValueError with the name and an example."""
    with pytest.raises(ValueError, match=r"protect\('empty'\): .*step=0"):
        State("empty", {})


@pytest.mark.parametrize("name", ["restored", "_name", "_fields", "_save"])
def test_reserved_names_are_refused(name: str) -> None:
    """Law: a field cannot take the place of what the state itself needs."""
    with pytest.raises(ValueError, match=rf"'{name}'"):
        State("main", {name: 1})
