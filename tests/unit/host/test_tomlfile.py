"""TOML files: each mistake is told with its file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.host.tomlfile import Keys, Table, TomlError, positions, read

TEXT = '''\
# a comment = with [signs]
name = "x = [1, # no" # [comment]
"quoted \\u0041.key" = 1
long = """
fake = 1
[fake]
a quote at the end: """"
raw = \'\'\'
\\\'\'\'
a.b . c = true
numbers = [
    1, # one
  [2, 3],
    { x = 4, y.z = "]" },
]
empty = []
when = 1979-05-27 07:32:00

  [table."sub.table"]
key = -1e3
[[level]]
name = "nodes"
[[level]]
    name = 'psus'
[level.more]
deep = { }
[[level.most]]
x=1
'''
PLACES: dict[Keys, tuple[int, int]] = {
    ("name",): (2, 1),
    ("quoted A.key",): (3, 1),
    ("long",): (4, 1),
    ("raw",): (8, 1),
    ("a", "b", "c"): (10, 7),
    ("numbers",): (11, 1),
    ("numbers", 0): (12, 5),
    ("numbers", 1): (13, 3),
    ("numbers", 1, 1): (13, 7),
    ("numbers", 2, "x"): (14, 7),
    ("numbers", 2, "y", "z"): (14, 16),
    ("empty",): (16, 1),
    ("when",): (17, 1),
    ("table", "sub.table"): (19, 3),
    ("table", "sub.table", "key"): (20, 1),
    ("level",): (21, 1),
    ("level", 0): (21, 1),
    ("level", 0, "name"): (22, 1),
    ("level", 1): (23, 1),
    ("level", 1, "name"): (24, 5),
    ("level", 1, "more"): (25, 1),
    ("level", 1, "more", "deep"): (26, 1),
    ("level", 1, "most", 0, "x"): (28, 1),
}


def all_keys(value: object, keys: Keys = ()) -> set[Keys]:
    """Every path in parsed data, by the parser's own account."""
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found = {(*keys, key) for key, _ in items}
    return found.union(*(all_keys(below, (*keys, key)) for key, below in items))


@pytest.mark.parametrize("keys", PLACES)
def test_a_key_is_found(keys: Keys) -> None:
    """Law: line and column are those of the key, of the element, or of the table's header."""
    assert positions(TEXT)[keys] == PLACES[keys]


def test_every_key_is_found_and_no_other() -> None:
    """Law: the scanner and the parser see the same paths."""
    assert set(positions(TEXT)) == all_keys(read("t", TEXT).values)


WORD = st.text("ab=#[]{}\"',. \\", max_size=6)
VALUE = st.recursive(
    st.integers().map(str) | WORD.filter(lambda s: "'" not in s).map(lambda s: f"'{s}'")
    | WORD.map(lambda s: '"' + s.replace("\\", "\\\\").replace('"', '\\"') + '"'),
    lambda inner: st.lists(inner, max_size=3).map(lambda v: "[" + ", # ]\n".join(v) + "\n]")
    | inner.map(lambda v: "{ a = " + v + " }" if "\n" not in v else "[ " + v + " ]"),
    max_leaves=6,
)


@given(st.lists(VALUE, max_size=5))
def test_paths_of_generated_files_agree(values: list[str]) -> None:
    """Law: the scanner and the parser see the same paths in any file, and each key's place holds
    that key."""
    text = "".join(f"[[t]]\n  k{i} = {value}\n" for i, value in enumerate(values))
    found = positions(text)
    assert set(found) == all_keys(read("t", text).values)
    lines = text.split("\n")
    for keys, (line, column) in found.items():
        if isinstance(keys[-1], str) and keys[-1].startswith("k"):
            assert lines[line - 1][column - 1 :].startswith(f"{keys[-1]} =")


@pytest.mark.parametrize(
    ("text", "where"),
    [("a = \n", "1:5"), ("a = 1\nb = 2 c\n", "2:7"), ("a = 1\na = 2\n", "2:6"),
     ("[t\n", "1:3"), ("a = [1,\n", "2:1"), ("a = " + "[" * 5000, "1:1"),
     ("a = 1\r\nb = x\r\n", "2:5"), ("a = " + "9" * 5000, "1:5005")],
)
def test_a_syntax_error_has_its_place(text: str, where: str) -> None:
    """Law: FILE:LINE:COLUMN, one line, with a remedy."""
    with pytest.raises(TomlError) as error:
        read("dir/x.toml", text)
    assert str(error.value).startswith(f"dir/x.toml:{where}: ")
    assert "\n" not in str(error.value) and ";" in str(error.value)
    assert "(at " not in str(error.value)


def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    """Law: a missing file, a directory and a file that is not UTF-8 are one message each."""
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(TomlError, match=r"cannot be read: .*; give"):
            read(path)
    bad = tmp_path / "bad.toml"
    bad.write_bytes("a = 1\nü = '".encode() + b"\xff'\n")
    with pytest.raises(TomlError) as error:
        read(bad)
    assert str(error.value).startswith(f"{bad}:2:6: byte 0xff is not UTF-8; ")


@pytest.fixture
def table() -> Table:
    text = (
        'name = "n"\nempty = ""\nrate = -0.5\ncount = 2\nflag = true\nlist = [0.1, 1.5]\n'
        "nan = nan\n"
        "[t]\nx = 1\n[[u]]\ny = 1\n[[u]]\ny = 2\n"
    )
    return read("m.toml", text)


def test_good_values_are_returned(table: Table) -> None:
    """Law: values and defaults come back as they are."""
    assert table.text("name") == "n" and table.text("none", "d") == "d"
    assert table.integer("count") == 2 and table.integer("none", 7) == 7
    assert table.number("count") == 2.0 and table.number("rate", least=-1) == -0.5
    assert table.numbers("list", most=2) == [0.1, 1.5]
    assert table.table("t").integer("x") == 1
    assert [u.integer("y") for u in table.tables("u")] == [1, 2]
    assert "rate" in table and "none" not in table


@pytest.mark.parametrize(
    ("call", "where", "words"),
    [
        (lambda t: t.text("count"), "4:1", "count = 2: expected a string"),
        (lambda t: t.text("empty"), "2:1", "empty = ''"),
        (lambda t: t.text("none"), "1:1", "none is missing; it must be a string"),
        (lambda t: t.integer("count", least=3), "4:1", "count = 2: expected a whole number, 3 or"),
        (lambda t: t.integer("rate"), "3:1", "rate = -0.5: expected a whole number"),
        (lambda t: t.integer("flag"), "5:1", "flag = true: expected a whole number"),
        (lambda t: t.number("rate"), "3:1", "rate = -0.5: expected a number, 0 or more"),
        (lambda t: t.number("flag"), "5:1", "flag = true: expected a number"),
        (lambda t: t.number("nan"), "7:1", "nan = nan: expected a number"),
        (lambda t: t.number("count", most=1), "4:1", "between 0 and 1"),
        (lambda t: t.numbers("list", most=1), "6:14", "list[1] = 1.5: expected a number, between"),
        (lambda t: t.array("t"), "8:1", "expected an array"),
        (lambda t: t.table("name"), "1:1", "expected a table: [name]"),
        (lambda t: t.tables("list"), "6:1", "expected tables: [[list]]"),
        (lambda t: t.table("t").text("z"), "8:1", "z is missing"),
        (lambda t: t.tables("u")[1].integer("y", least=3), "13:1", "y = 2"),
        (lambda t: t.allow("name", "empty", "rates"), "3:1", "'rate'; did you mean rates?"),
        (lambda t: t.tables("u")[0].allow("rate"), "11:1", "unknown key 'y'; use rate"),
    ],
)
def test_a_wrong_value_has_its_place(table: Table, call: object, where: str, words: str) -> None:
    """Law: the place of the key (of the table if the key is missing), the value, the remedy."""
    with pytest.raises(TomlError) as error:
        call(table)  # type: ignore[operator]
    assert str(error.value).startswith(f"m.toml:{where}: ") and words in str(error.value)
