"""Entries of files: texts as people have them, arrays, sparse matrices; those that are refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from ftrma.frameworks.aic.ratings import load_ratings

ROWS, COLS, VALUES = [0, 2, 2, 1], [0, 1, 0, 1], [4.0, 4.5, 1.0, 3.0]
ENTRIES = [(7, 10, 4.0), (90, 31, 4.5), (90, 10, 1.0), (8, 31, 3.0)]


@pytest.mark.parametrize(("name", "head", "line", "read_as"), [
    ("u.data", "", "{}\t{}\t{}\t881250949", ", columns 1 to 3 of 4"),
    ("ratings.csv", "userId,movieId,rating,timestamp\n", "{},{},{},964982703",
     ", a header, columns 1 to 3 of 4"),
    ("ratings.dat", "", "{}::{}::{}::978300760", ", columns 1 to 3 of 4"),
    ("plain.txt", "# a comment\n\n", "  {} {}   {}", ""),
    ("semicolons.csv.gz", "user;item;value\n", "{};{};{}", ", a header"),
])
def test_texts(tmp_path: Path, name: str, head: str, line: str, read_as: str) -> None:
    """Law: separators, headers and further columns are found; ids that occur get numbers."""
    text = head + "".join(line.format(*entry) + "\n" for entry in ENTRIES)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    found = load_ratings(path)
    assert [found.rows.tolist(), found.cols.tolist(), found.values.tolist()] == [ROWS, COLS, VALUES]
    assert [*found.row_ids] == [7, 8, 90] and [*found.column_ids] == [10, 31]
    assert found.shape == (3, 2) and len([*found]) == 3
    assert found.read_as == f"4 entries, 3 rows x 2 columns{read_as}"


def test_arrays(tmp_path: Path) -> None:
    """Law: sparse matrices and three arrays are taken, too."""
    sparse = scipy.sparse.coo_array((VALUES, (ROWS, COLS)), (5, 4))
    scipy.sparse.save_npz(tmp_path / "sparse.npz", sparse.tocsr())
    scipy.io.mmwrite(tmp_path / "matrix.mtx", sparse)
    np.savez(tmp_path / "arrays.npz", rows=ROWS, cols=COLS, values=VALUES)
    for name in ("sparse.npz", "matrix.mtx", "arrays.npz"):
        found = load_ratings(tmp_path / name)
        assert sorted(zip(*(array.tolist() for array in found), strict=True)) == sorted(
            zip(ROWS, COLS, VALUES, strict=True))


@pytest.mark.parametrize(("text", "message"), [
    ("1 2\n", "invalid column index 2 .*; give lines of a row, a column and a value"),
    ("", "no entries; give lines"),
    ("a b c\n", "no entries; give lines"),
    ("user item value\na b c\n", "'a b c' are no numbers; give lines"),
    ("1 2 3\n1 x 3\n", "could not convert string 'x'.*; give lines"),
    ("1 2 3\n1.5 2 3\n", "entry 1 is row 1.5, column 2; give ids that are whole numbers"),
    ("nan 2 3\n", "entry 0 is row nan, column 2; give ids"),
    ("1e300 2 3\n", "entry 0 is row 1e.300, column 2; give ids"),
])
def test_bad_texts(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "entries.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"entries.txt: {message}"):
        load_ratings(path)


def test_bad_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", rows=ROWS)
    with pytest.raises(ValueError, match=r"other.npz: .*; give a sparse matrix, or the arrays"):
        load_ratings(tmp_path / "other.npz")
    np.savez(tmp_path / "short.npz", rows=ROWS, cols=COLS, values=VALUES[1:])
    with pytest.raises(ValueError, match=r"short.npz: 4 rows, 4 columns and 3 values; give one"):
        load_ratings(tmp_path / "short.npz")
    (tmp_path / "bytes.txt").write_bytes(bytes(range(128, 256)))
    with pytest.raises(ValueError, match=r"bytes.txt: .*; give lines"):
        load_ratings(tmp_path / "bytes.txt")
