"""Topology files: what is accepted is a hierarchy, and what is not is told where it stands."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.machine.topologyfile import expand, read_topology

SMALL = """\
levels = ["switches", "racks"]

[switches]
"s[1-4]" = "node[01-64]"    # 16 nodes each, in order
s5 = ["login1", "login[2-3]"]

[racks]
west = "s[1-2]"
east = ["s[3-4]", "s5"]
"""


def test_the_documented_example() -> None:
    """Law: ranges are shared equally and in order; a path leads from the node to the top."""
    topology = read_topology("t.toml", SMALL)
    assert topology.levels == ("nodes", "switches", "racks")
    assert len(topology.paths) == 67
    assert topology.paths["node16"] == ("node16", "s1", "west")
    assert topology.paths["node17"] == ("node17", "s2", "west")
    assert topology.paths["node64"] == ("node64", "s4", "east")
    assert topology.paths["login3"] == ("login3", "s5", "east")


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4))
def test_any_hierarchy_comes_back(shape: list[tuple[int, int]]) -> None:
    """Law: a written hierarchy of racks of equal switches of equal nodes is read as it was."""
    expected, switches, racks = {}, [], []
    for r, (inside, nodes) in enumerate(shape):
        racks.append(f'r{r} = ["s{r}-[1-{inside}]"]')
        switches.append(f'"s{r}-[1-{inside}]" = "n{r}-[1-{inside}]-[01-0{nodes}]"')
        for s in range(1, inside + 1):
            for n in range(1, nodes + 1):
                name = f"n{r}-{s}-0{n}"
                expected[name] = (name, f"s{r}-{s}", f"r{r}")
    text = "\n".join(['levels = ["s", "r"]', "[r]", *racks, "[s]", *switches])
    assert read_topology("t.toml", text).paths == expected


def test_a_large_machine_in_three_lines(tmp_path: Path) -> None:
    """Law: a machine of thousands of nodes is a few lines, read at once (0.01 s, measured)."""
    path = tmp_path / "tsubame2.toml"
    path.write_text(
        'levels = ["psus", "switches", "racks"]\n'
        '[psus]\n"psu[001-352]" = "n[0001-1408]"\n'
        '[switches]\n"sw[01-88]" = "psu[001-352]"\n'
        '[racks]\n"rack[01-44]" = "sw[01-88]"\n'
    )
    began = time.monotonic()
    topology = read_topology(path)
    assert time.monotonic() - began < 10
    assert topology.paths["n1408"] == ("n1408", "psu352", "sw88", "rack44")
    assert [len({p[i] for p in topology.paths.values()}) for i in range(4)] == [1408, 352, 88, 44]


def test_hosts_are_found_with_and_without_domain() -> None:
    """Law: each process gets its host's path; a host with a domain is its short name's node."""
    domains = read_topology("t.toml", SMALL).domains(["node03", "node17.site.org", "node03"])
    assert domains.levels == ("nodes", "switches", "racks")
    assert domains.paths == (
        ("node03", "s1", "west"), ("node17", "s2", "west"), ("node03", "s1", "west"),
    )


def test_unknown_hosts_are_named() -> None:
    """Law: hosts that the file does not know are told, with the place where they are missing."""
    topology = read_topology("t.toml", SMALL)
    with pytest.raises(ValueError, match="in any of the switches; add") as error:
        topology.domains(["node01", "gpu2", "gpu1", "gpu1"])
    assert str(error.value).startswith("t.toml:3:1: processes run on gpu1 and gpu2, not")


@given(st.integers(0, 120), st.integers(0, 120), st.integers(1, 4))
def test_a_range_stands_for_its_numbers(first: int, more: int, width: int) -> None:
    """Law: all numbers from first to last, with leading zeros as they are written."""
    last = first + more
    if len(str(last)) > width:
        width = 1
    ends = f"{first:0{width}d}-{last:0{width}d}"
    if width > 1 or len(str(first)) == len(str(last)):
        assert expand(f"a[{ends}]b") == [f"a{n:0{width}d}b" for n in range(first, last + 1)]
    assert expand(f"a[{first}-{last}]") == [f"a{n}" for n in range(first, last + 1)]


def test_several_brackets_count_like_digits() -> None:
    """Law: the last bracket runs fastest; commas join ranges."""
    assert expand("r[1-2]n[3,5-6]") == ["r1n3", "r1n5", "r1n6", "r2n3", "r2n5", "r2n6"]
    assert expand("plain-name.x_1") == ["plain-name.x_1"]


GOOD = 'levels = ["racks"]\n[racks]\n'
TWO = 'levels = ["switches", "racks"]\n[switches]\n"s[1-2]" = "n[1-4]"\n[racks]\n'


@pytest.mark.parametrize(
    ("text", "place", "value", "remedy"),
    [
        ("", "1:1", "levels is missing", "must be an array"),
        ("levels = []", "1:1", "levels is empty", 'such as ["racks"]'),
        ("levels = 3", "1:1", "levels = 3", "expected an array"),
        ('levels = ["racks", 3]', "1:20", "level 3", 'such as "racks"'),
        ('levels = ["my racks"]', "1:11", "'my racks'", "expected a word"),
        ('levels = ["nodes"]', "1:11", "'nodes'", "the first level above the nodes"),
        ('levels = ["none"]', "1:11", "'none'", "the first level above the nodes"),
        ('levels = ["a", "a"]', "1:16", "'a' is named twice", "remove one"),
        ('levels = ["racks"]\n', "1:1", "no table [racks]", "add it"),
        ('levels = ["a"]\na = 4', "2:1", "a = 4", "expected a table"),
        ('levels = ["racks"]\n[racks]\n[rack]\n', "3:1", "'rack'", "did you mean racks"),
        (GOOD, "2:1", "[racks] is empty", "add elements"),
        (GOOD + "r1 = 5", "3:1", "r1 = 5", 'such as "node[1-16]"'),
        (GOOD + 'r1 = ["n1", 5]', "3:13", "r1 = 5", 'such as "node[1-16]"'),
        (GOOD + "r1 = []", "3:1", "r1 is empty", "name its nodes"),
        (GOOD + 'r1 = ""', "3:1", "a name is empty", "remove the entry"),
        (GOOD + 'r1 = "n1 n2"', "3:1", "'n1 n2' is not a name", "an array for several"),
        (GOOD + '"r 1" = "n1"', "3:1", "'r 1' is not a name", "use letters"),
        (GOOD + 'r1 = "n[1-3"', "3:1", "'n[1-3' is not a name", "ranges in brackets"),
        (GOOD + 'r1 = "n[a-c]"', "3:1", "'a-c' is not a range", "[01-16]"),
        (GOOD + 'r1 = "n[]"', "3:1", "'' is not a range", "[01-16]"),
        (GOOD + 'r1 = "n[5-2]"', "3:1", "5-2 runs backwards", "write 2-5"),
        (GOOD + 'r1 = "n[01-100]"', "3:1", "01 and 100 differ", "write 001-100"),
        (GOOD + 'r1 = "n[1-99999999999]"', "3:1", "more than 1000000 names", "a shorter"),
        (GOOD + 'r1 = "n[1-9999][1-9999]"', "3:1", "more than 1000000 names", "a shorter"),
        (GOOD + '"r[1-2]" = "n1"', "3:1", "2 racks cannot share 1 nodes", "a line for each"),
        (GOOD + '"r[1-2]" = "n[1-5]"', "3:1", "2 racks cannot share 5 nodes", "a line for each"),
        (GOOD + 'r1 = "n1"\nr2 = ["n2", "n1"]', "4:13", "n1 is in r1 already",
         "remove it here or there"),
        (GOOD + 'r1 = "n[1,1]"', "3:1", "n1 is in r1 already", "remove it"),
        (GOOD + 'r1 = "n1"\n"r[1-2]" = "n[2-3]"', "4:1", "r1 stands in [racks] twice", "remove"),
        (TWO + 'r1 = "s1"', "3:1", "s2 is in none of the racks", "add it to one in [racks]"),
        (TWO + 'r1 = ["s[1-2]", "s3"]', "5:17", "s3 is not one of the switches",
         "add it to [switches]"),
        (TWO + 'r1 = "n[1-4]"', "5:1", "n1 is not one of the switches", "correct the name"),
        (TWO + 'r1 = "s1"\nr2 = "s[1-2]"', "6:1", "s1 is in r1 already", "one of the racks only"),
        (GOOD + "r1 = n1", "3:6", "not valid TOML", "correct this line"),
        (GOOD + 'r1 = "n1"\nr1 = "n2"', "4:10", "not valid TOML", "correct this line"),
    ],
)
def test_mistakes_are_told_with_place_and_remedy(
    text: str, place: str, value: str, remedy: str
) -> None:
    """Law: each mistake is one line: file, line, column, what is wrong, the remedy."""
    with pytest.raises(ValueError) as error:
        read_topology("t.toml", text)
    message = str(error.value)
    assert re.match(r"t\.toml:\d+:\d+: ", message) and "\n" not in message
    assert message.startswith(f"t.toml:{place}: ") and value in message
    assert remedy in message.split(value, 1)[1]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Law: a missing file is told by its path."""
    with pytest.raises(ValueError, match=r"nowhere\.toml: cannot be read: .*; give the path"):
        read_topology(tmp_path / "nowhere.toml")
