"""Records of checkpoints: nothing is read that a process of this job has not written so.

Laws: what was written comes back; any change of a bit, of the role, of the version or of the key is
refused; and reading a record executes nothing, whatever it holds.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.host.errors import CorruptVault
from ftrma.host.key import TAG_BYTES, Key
from ftrma.host.record import Seal, decode, encode

KEY = Key.make()
SEAL = Seal(KEY, "slot 1", "5")
KEYS = st.one_of(
    st.text(max_size=5), st.integers(-5, 5), st.tuples(st.text(max_size=3), st.integers(0, 9))
)
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=9),
        st.binary(max_size=50), st.sampled_from([np.dtype("f8"), np.dtype("M8[ns]"), np.dtype(
            [("x", "<i4"), ("y", "u1", (3,))]), np.dtype({"names": ["b", "x"], "formats": [
                "u1", "f8"]}, align=True), np.dtype("f4", metadata={"unit": "m"})]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=20,
)


@pytest.mark.plain
@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=5))
def test_what_was_written_comes_back(record: dict[str, Any]) -> None:
    found = decode(encode(record, SEAL), SEAL)
    assert found == record and repr(found) == repr(record)  # 1 is not True, a tuple no list


def test_numbers_of_numpy_are_numbers() -> None:
    record = {"a": np.float32(0.5), "b": np.int64(7), "c": np.bool_(True)}
    assert decode(encode(record, SEAL), SEAL) == {"a": 0.5, "b": 7, "c": True}


@given(st.data())
def test_a_changed_bit_is_refused(data: st.DataObject) -> None:
    text = bytearray(encode({"states": {"s": b"0123456789"}, "ordinal": 3}, SEAL))
    at = data.draw(st.integers(0, 8 * len(text) - 1))
    text[at // 8] ^= 1 << at % 8
    with pytest.raises(CorruptVault, match=r"slot 1: .* not written by this job as checkpoint 5"):
        decode(bytes(text), SEAL)


@pytest.mark.parametrize(
    "other",
    [Seal(Key.make(), "slot 1", "5"), Seal(KEY, "slot 2", "5"), Seal(KEY, "slot 1", "6"),
     Seal(KEY, "slot 1", "demand 5"), Seal(KEY, "slot 15", ""), Seal(KEY, "slot", "15")],
)
def test_a_record_is_of_one_job_role_and_version(other: Seal) -> None:
    with pytest.raises(CorruptVault):
        decode(encode({"ordinal": 3}, other), SEAL)


class Trap:
    sprung = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return spring, ()


def spring() -> None:
    Trap.sprung += 1


@pytest.mark.parametrize("size", [0, 1, TAG_BYTES - 1, TAG_BYTES, TAG_BYTES + 8, 5000])
def test_what_is_planted_is_not_executed(size: int) -> None:
    """Law: neither a pickle in the place of a record nor garbage of any size is parsed; a pickle
    inside a record stays a byte string."""
    planted = pickle.dumps({"states": {}, "trap": Trap()})
    for text in (planted, bytes(TAG_BYTES) + planted, bytes(size)):
        with pytest.raises(CorruptVault):
            decode(text, SEAL)
    assert decode(encode({"rest": planted}, SEAL), SEAL) == {"rest": planted}
    assert not Trap.sprung


def test_the_key_goes_from_the_environment() -> None:
    environ = {"FTRMA_KEY": KEY.text(), "HOME": "/"}
    taken = Key.take(environ)
    assert taken is not None and taken.secret == KEY.secret and environ == {"HOME": "/"}
    assert Key.take(environ) is None
    with pytest.raises(ValueError, match="32 bytes, not 3"):
        Key(b"abc")
