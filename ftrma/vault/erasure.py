"""Coefficients of the erasure codes: which sums of bytes give a parity, and which a lost member.

The code is a systematic Cauchy code over GF(2^8), because every square submatrix of a Cauchy matrix
is invertible and stays so when rows and columns are scaled. Scaling makes parity 0 the plain XOR of
the members, so that a group with one checksum rank is a special case, and makes the first member's
coefficient 1 in every parity.

Elements of a group are numbered: members 0 .. k - 1, then parities k .. k + m - 1. Decoding is
encoding with other coefficients; ``csrc/kernels/gf.c`` computes the bytes.

Invariant: any m or fewer lost elements are sums over k of the remaining elements. (Besta & Hoefler,
section 5: groups of computing ranks and their checksum ranks.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..host.errors import NotRecoverable

Elements = npt.NDArray[np.uint8]

POLYNOMIAL = 0x11D  # x^8 + x^4 + x^3 + x^2 + 1; x generates all elements but zero
MAX_ELEMENTS = 255  # members and parities of a group; csrc/kernels/gf.h has the same


def _powers() -> Elements:
    """Return the powers x^0 .. x^509: each element twice, so that sums of two logarithms need no
    reduction."""
    found, element = [], 1
    for _ in range(255):
        found.append(element)
        element = element << 1 ^ (POLYNOMIAL if element & 0x80 else 0)
    return np.array(found * 2, np.uint8)


_EXP = _powers()
_LOG = np.zeros(256, np.intp)
_LOG[_EXP[:255]] = np.arange(255)


@dataclass(frozen=True)
class Decoding:
    """Coefficients by which lost elements are computed.

    Attributes:
        lost: their numbers, ascending.
        sources: numbers of the k elements to read, ascending.
        coefficients: (len(lost), k) uint8: lost[j] is the sum over i of
            coefficients[j, i] * sources[i].
    """

    lost: tuple[int, ...]
    sources: tuple[int, ...]
    coefficients: Elements


def coefficients(k: int, m: int) -> Elements:
    """Return g, the coefficients of a group's parities: parity j = sum of g[j, i] * member i.

    Args:
        k: members of the group, from 1 on.
        m: parities, from 1 on; k + m at most 255.

    Returns:
        (m, k) uint8, all nonzero; row 0 and column 0 are ones.

    Raises:
        ValueError: there is no such code.

    Source: Roth and Lempel, On MDS codes via Cauchy matrices, IEEE Trans. IT 35 (1989).
    """
    if k < 1 or m < 1:
        raise ValueError(
            f"a group needs at least one member and one parity, not {k} and {m}; "
            "choose a group size and a number of checksum ranks from 1 up"
        )
    if k + m > MAX_ELEMENTS:
        raise ValueError(
            f"a group of {k} members and {m} parities has {k + m} elements, more than the "
            f"{MAX_ELEMENTS} that the code can tell apart; use smaller groups"
        )
    rows, columns = np.arange(m), np.arange(m, m + k)
    cauchy = inverse((rows[:, None] ^ columns[None, :]).astype(np.uint8))
    scaled = product(cauchy, inverse(cauchy[0])[None, :])
    return product(scaled, inverse(scaled[:, 0])[:, None])


def decoding(k: int, m: int, lost: Iterable[int]) -> Decoding:
    """Return how the lost elements of a group are computed from the remaining ones.

    Args:
        k, m: members and parities, as for `coefficients`.
        lost: numbers of the lost elements.

    Raises:
        NotRecoverable: more than m elements are lost.
        ValueError: a number is not that of an element, or there is no such code.
    """
    parity = coefficients(k, m)
    gone = tuple(sorted(set(lost)))
    for element in gone:
        if not 0 <= element < k + m:
            raise ValueError(
                f"no element {element} in a group of {k} members and {m} parities; "
                f"they are numbered from 0 to {k + m - 1}"
            )
    if len(gone) > m:
        names = ", ".join(f"member {e}" if e < k else f"parity {e - k}" for e in gone)
        raise NotRecoverable(
            f"{len(gone)} elements of a group are lost ({names}), but its code has {m} "
            f"parities and restores no more than that; give groups more checksum ranks"
        )
    kept = [i for i in range(k) if i not in gone]
    members = [i for i in gone if i < k]
    used = [j for j in range(m) if k + j not in gone][: len(members)]
    # Without the contributions of the kept members, the used parities are sums of the lost members
    # alone: as many equations as unknowns. In columns: kept members, then used parities.
    known = np.hstack([parity[np.ix_(used, kept)], np.eye(len(used), dtype=np.uint8)])
    of_members = matmul(inverse_matrix(parity[np.ix_(used, members)]), known)
    # A lost parity is a sum over all members, where the lost ones are given by what was just
    # computed.
    rest = [j - k for j in gone if j >= k]
    of_parities = matmul(parity[np.ix_(rest, members)], of_members)
    of_parities[:, : len(kept)] ^= parity[np.ix_(rest, kept)]
    return Decoding(gone, (*kept, *(k + j for j in used)), np.vstack([of_members, of_parities]))


# ---- arithmetic in GF(2^8) ------------------------------------------------------------------


def product(a: npt.ArrayLike, b: npt.ArrayLike) -> Elements:
    """Return the product of elements, with NumPy's broadcasting."""
    a, b = np.asarray(a, np.uint8), np.asarray(b, np.uint8)
    found: Elements = np.where((a == 0) | (b == 0), 0, _EXP[_LOG[a] + _LOG[b]]).astype(np.uint8)
    return found


def inverse(a: npt.ArrayLike) -> Elements:
    """Return the inverse of each element.

    Raises:
        ZeroDivisionError: one of them is zero.
    """
    a = np.asarray(a, np.uint8)
    if not a.all():
        raise ZeroDivisionError("zero has no inverse in GF(2^8)")
    found: Elements = _EXP[255 - _LOG[a]]
    return found


def matmul(a: Elements, b: Elements) -> Elements:
    """Return the matrix product; shapes (r, s) and (s, t) give (r, t)."""
    found = np.zeros((a.shape[0], b.shape[1]), np.uint8)
    for s in range(a.shape[1]):
        found ^= product(a[:, s, None], b[None, s, :])
    return found


def inverse_matrix(matrix: Elements) -> Elements:
    """Return the inverse of a square matrix, by elimination.

    Raises:
        ZeroDivisionError: the matrix has no inverse.
    """
    size = matrix.shape[0]
    work = np.hstack([matrix, np.eye(size, dtype=np.uint8)])
    for column in range(size):
        pivots = np.flatnonzero(work[column:, column])
        if not pivots.size:
            raise ZeroDivisionError("the matrix is singular")
        pivot = column + pivots[0]
        work[[column, pivot]] = work[[pivot, column]]
        work[column] = product(work[column], inverse(work[column, column]))
        factors = work[:, column].copy()
        factors[column] = 0
        work ^= product(factors[:, None], work[None, column])
    return work[:, size:]
