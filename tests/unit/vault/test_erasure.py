"""Erasure codes: any m lost elements of a group are sums over those that are left.

The coefficients (`ftrma.vault.erasure`) and the kernels that apply them (``csrc/kernels/gf.c``) are
tested together and apart, with every instruction set that the processor has, against the plain
reference in C and against reedsolo, which computes by polynomials and shares nothing with either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import reedsolo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ftrma.host.errors import NotRecoverable
from ftrma.native import loading
from ftrma.vault import erasure

KERNELS = ["portable", "ssse3", "avx2", "gfni256", "avx512", "gfni512"]
STREAMED = (2 << 20) + 4133  # beyond what is stored through the caches
# The kernel of a test is chosen once for all its examples.
EXAMPLES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

Rows = list[np.ndarray]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of an instruction set that is in use."""
    native = loading.load()
    if native.lib.ftrma_kernel_select(request.param.encode()) != 0:
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    native.lib.ftrma_kernel_select(native.ffi.NULL)


@pytest.fixture(autouse=True)
def field_of_reedsolo() -> None:
    reedsolo.init_tables(erasure.POLYNOMIAL)


def buffers(random: np.random.Generator, count: int, size_bytes: int) -> Rows:
    """Random rows, each with an alignment of its own."""
    found = []
    for _ in range(count):
        at = int(random.integers(64))
        found.append(np.frombuffer(bytearray(random.bytes(at + size_bytes)), np.uint8)[at:])
    return found


def call(name: str, outputs: Rows, inputs: Sequence[np.ndarray | None], coef: np.ndarray) -> None:
    """One of the C functions; an input that is None is zero everywhere."""
    native = loading.load()
    ffi = native.ffi

    def pointers(rows: Sequence[np.ndarray | None]) -> Any:
        cast = [ffi.NULL if r is None else ffi.cast("void *", r.ctypes.data) for r in rows]
        return ffi.new("void *[]", cast)

    size_bytes = outputs[0].size if outputs else 0
    matrix = ffi.from_buffer("uint8_t[]", np.ascontiguousarray(coef, np.uint8).ravel())
    getattr(native.lib, name)(
        pointers(outputs), len(outputs), pointers(inputs), len(inputs), matrix, size_bytes
    )


def sums(inputs: Sequence[np.ndarray | None], coef: np.ndarray, size_bytes: int) -> Rows:
    found = [np.full(size_bytes, 0xA5, np.uint8) for _ in range(len(coef))]
    call("ftrma_gf_encode", found, inputs, coef)
    return found


def same(a: Rows, b: Rows) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# ---- the field ------------------------------------------------------------------------------


def test_products_and_inverses_are_those_of_reedsolo() -> None:
    elements = np.arange(256, dtype=np.uint8)
    table = erasure.product(elements[:, None], elements[None, :])
    assert table.tolist() == [[reedsolo.gf_mul(a, b) for b in range(256)] for a in range(256)]
    inverses = [reedsolo.gf_inverse(a) for a in range(1, 256)]
    assert erasure.inverse(elements[1:]).tolist() == inverses


def test_zero_and_singular_matrices_have_no_inverse() -> None:
    with pytest.raises(ZeroDivisionError):
        erasure.inverse([3, 0])
    with pytest.raises(ZeroDivisionError):
        erasure.inverse_matrix(np.array([[1, 2], [2, 4]], np.uint8))


@given(st.integers(1, 12), st.integers(0, 2**32))
def test_an_inverse_matrix_gives_the_identity(size: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, 256, (size, size), np.uint8)
    try:
        found = erasure.inverse_matrix(matrix)
    except ZeroDivisionError:
        return  # test_every_minor_is_invertible finds matrices that should not be
    assert np.array_equal(erasure.matmul(found, matrix), np.eye(size, dtype=np.uint8))


# ---- coefficients ---------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "m"), [(1, 1), (4, 1), (8, 2), (1, 9), (254, 1), (200, 55)])
def test_the_first_parity_is_the_exclusive_or(k: int, m: int) -> None:
    found = erasure.coefficients(k, m)
    assert found.shape == (m, k) and found.dtype == np.uint8
    assert (found[0] == 1).all() and (found[:, 0] == 1).all() and found.all()


@pytest.mark.parametrize(("k", "m"), [*itertools.product(range(1, 8), range(1, 5))])
def test_every_minor_is_invertible(k: int, m: int) -> None:
    """Law: the code is MDS. (inverse_matrix raises for a singular one.)"""
    found = erasure.coefficients(k, m)
    for size in range(1, min(k, m) + 1):
        for rows in itertools.combinations(range(m), size):
            for columns in itertools.combinations(range(k), size):
                minor = found[np.ix_(rows, columns)]
                identity = erasure.matmul(erasure.inverse_matrix(minor), minor)
                assert np.array_equal(identity, np.eye(size, dtype=np.uint8))


@given(st.data())
def test_minors_of_large_codes_are_invertible(data: st.DataObject) -> None:
    m = data.draw(st.integers(1, 60))
    k = data.draw(st.integers(1, 255 - m))
    size = data.draw(st.integers(1, min(k, m, 12)))
    rows = data.draw(st.lists(st.integers(0, m - 1), min_size=size, max_size=size, unique=True))
    columns = data.draw(st.lists(st.integers(0, k - 1), min_size=size, max_size=size, unique=True))
    minor = erasure.coefficients(k, m)[np.ix_(rows, columns)]
    identity = erasure.matmul(erasure.inverse_matrix(minor), minor)
    assert np.array_equal(identity, np.eye(size, dtype=np.uint8))


@pytest.mark.parametrize(("k", "m"), [(0, 1), (1, 0), (-3, 2), (254, 2), (128, 128)])
def test_impossible_codes_are_refused(k: int, m: int) -> None:
    with pytest.raises(ValueError, match=f"{k}.*{m}"):
        erasure.coefficients(k, m)


# ---- decoding -------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "m"), [(1, 1), (4, 1), (5, 2), (3, 3), (6, 4), (1, 3)])
def test_every_loss_up_to_m_is_decoded(k: int, m: int) -> None:
    """Law: for all C(k + m, e) patterns the lost are the given sums; what is lost is not read."""
    parity = erasure.coefficients(k, m)
    generator = np.vstack([np.eye(k, dtype=np.uint8), parity])
    for e in range(m + 1):
        for lost in itertools.combinations(range(k + m), e):
            how = erasure.decoding(k, m, lost)
            assert how.lost == lost and len(how.sources) == k
            assert not set(how.sources) & set(lost)
            assert how.coefficients.shape == (e, k)
            found = erasure.matmul(how.coefficients, generator[list(how.sources)])
            assert np.array_equal(found, generator[list(lost)]), lost


@pytest.mark.parametrize(("k", "m"), [(4, 1), (5, 2), (3, 3), (200, 4)])
def test_one_more_loss_is_refused(k: int, m: int) -> None:
    with pytest.raises(NotRecoverable, match=f"{m + 1} elements.*member 0.*parity 0.*{m} parities"):
        erasure.decoding(k, m, [k, *range(m)])


@pytest.mark.parametrize("element", [-1, 7])
def test_elements_that_are_none_are_refused(element: int) -> None:
    with pytest.raises(ValueError, match=f"no element {element} .*0 to 6"):
        erasure.decoding(5, 2, [element])


# ---- the kernels ----------------------------------------------------------------------------


@EXAMPLES
@given(
    nout=st.integers(1, 9), nin=st.integers(0, 40), size_bytes=st.integers(0, 1400),
    fold=st.booleans(), seed=st.integers(0, 2**32),
)
def test_a_kernel_equals_its_reference(
    kernel: str, nout: int, nin: int, size_bytes: int, fold: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    name = "ftrma_gf_fold" if fold else "ftrma_gf_encode"
    inputs = [r if random.integers(8) else None for r in buffers(random, nin, size_bytes)]
    coef = random.integers(0, [[256], [2]][seed % 2], (nout, nin), np.uint8)
    found = buffers(random, nout, size_bytes)
    expected = [r.copy() for r in found]
    call(name, found, inputs, coef)
    call(f"{name}_ref", expected, inputs, coef)
    assert same(found, expected)


@EXAMPLES
@given(
    k=st.integers(1, 20), m=st.integers(1, 6), sizes=st.lists(st.integers(0, 700), min_size=20),
    data=st.data(),
)
def test_lost_members_come_back(
    kernel: str, k: int, m: int, sizes: list[int], data: st.DataObject
) -> None:
    """Law: bit-exactly, members and parities, at odd and uneven sizes, empty members included."""
    lost = data.draw(st.sets(st.integers(0, k + m - 1), max_size=m))
    random = np.random.default_rng(sum(sizes))
    whole = max(sizes[:k])
    members = [np.frombuffer(random.bytes(n).ljust(whole, b"\0"), np.uint8) for n in sizes[:k]]
    parities = sums(
        [r if n else None for r, n in zip(members, sizes[:k], strict=True)],
        erasure.coefficients(k, m), whole,
    )
    everything = [*members, *parities]
    how = erasure.decoding(k, m, lost)
    found = sums([everything[s] for s in how.sources], how.coefficients, whole)
    assert same(found, [everything[e] for e in how.lost])


@EXAMPLES
@given(k=st.integers(1, 12), m=st.integers(1, 5), n=st.integers(1, 500), seed=st.integers(0, 2**32))
def test_folding_a_delta_equals_encoding_anew(
    kernel: str, k: int, m: int, n: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    members, g = buffers(random, k, n), erasure.coefficients(k, m)
    parities = sums(members, g, n)
    changed = int(random.integers(k))
    delta = buffers(random, 1, n)
    call("ftrma_gf_fold", parities, delta, g[:, [changed]])
    members[changed] = members[changed] ^ delta[0]
    assert same(parities, sums(members, g, n))


@pytest.mark.plain
def test_large_sums_go_past_the_caches(kernel: str) -> None:
    """Law: stores of another kind give the same bytes."""
    random = np.random.default_rng(7)
    members, g = buffers(random, 3, STREAMED), erasure.coefficients(3, 2)
    found = [np.empty(STREAMED + 64, np.uint8) for _ in range(2)]
    found = [r[-r.ctypes.data % 64 :][:STREAMED] for r in found]
    expected = [np.empty(STREAMED, np.uint8) for _ in range(2)]
    call("ftrma_gf_encode", found, members, g)
    call("ftrma_gf_encode_ref", expected, members, g)
    assert same(found, expected)


# ---- reedsolo as an oracle ------------------------------------------------------------------


@pytest.mark.parametrize(("k", "m"), [(4, 1), (8, 2), (5, 4), (40, 3), (200, 10)])
def test_the_kernels_encode_as_reedsolo_does(kernel: str, k: int, m: int) -> None:
    """Law: with the coefficients of reedsolo's systematic code, which its encodings of the unit
    vectors show, the kernels compute reedsolo's parities of any message."""
    codec, n = reedsolo.RSCodec(m, c_exp=8, prim=erasure.POLYNOMIAL), 71
    units = np.eye(k, dtype=np.uint8)
    coef = np.array([list(codec.encode(bytes(u))[k:]) for u in units], np.uint8).T
    members = buffers(np.random.default_rng(k * m), k, n)
    found = sums(members, coef, n)
    for column in range(n):
        message = bytes(int(r[column]) for r in members)
        assert bytes(int(r[column]) for r in found) == bytes(codec.encode(message)[k:])


@pytest.mark.plain
@pytest.mark.parametrize(("k", "m"), [(1, 1), (8, 2), (5, 4), (40, 3)])
def test_the_parities_are_values_of_a_polynomial(kernel: str, k: int, m: int) -> None:
    """Law: the code is a generalized Reed-Solomon code. With f = sum over i of
    c_i d_i prod over l != i of (z - y_l), of degree below k, a parity is a multiple of f(x_j)."""
    n, multiply = 9, reedsolo.gf_mul
    members = buffers(np.random.default_rng(k + m), k, n)
    found = sums(members, erasure.coefficients(k, m), n)
    x, y = list(range(m)), list(range(m, m + k))
    for column, j in itertools.product(range(n), range(m)):
        f = [0]
        for i in range(k):
            term = [multiply(int(members[i][column]), x[0] ^ y[i])]
            for other in y[:i] + y[i + 1 :]:
                term = reedsolo.gf_poly_mul(term, [1, other])
            f = reedsolo.gf_poly_add(f, term)
        value = reedsolo.gf_poly_eval(f, x[j])
        for other in y:
            value = multiply(value, reedsolo.gf_inverse(x[j] ^ other))
        scale = multiply(x[j] ^ y[0], reedsolo.gf_inverse(x[0] ^ y[0]))
        assert multiply(value, scale) == found[j][column]
