"""Words of ``ftrma aic``: a mistake costs one line with the remedy, and no job."""

from __future__ import annotations

import argparse

import pytest

from ftrma.frameworks import Invocation
from ftrma.frameworks.aic import command


def invoke(*words: str) -> Invocation:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.invocation(parser.parse_args(words))


def test_words_are_handed_on() -> None:
    found = invoke("sssp", "path:9", "--snapshot", "virtual:2", "--eps", "1e-3", "--source", "4",
                   "--recovery", "survivors", "--out", "x.npy", "--send-portion", "0.5", "--check")
    assert found.apps[0] == "aic.py" and found.writes == (("--out", "x.npy"),) and found.claims
    assert " ".join(found.words) == (
        "sssp path:9 --snapshot virtual:2.0 --eps 0.001 --send-portion 0.5 --source 4 --check "
        "--recovery survivors --out x.npy")


@pytest.mark.parametrize("word", ("none", "virtual:daly", "faic-d:20000u", "hybrid:0.5"))
def test_snapshots(word: str) -> None:
    assert invoke("cc", "path:9", "--snapshot", word).words[3] == word


@pytest.mark.parametrize(("words", "told"), [
    ("--snapshot virtual", "give none, or one of virtual, chandy-lamport"),
    ("--snapshot weekly:2", "give none, or one of virtual, chandy-lamport"),
    ("--snapshot virtual:often", "--snapshot virtual often: expected seconds, 0.001 or more"),
    ("--snapshot virtual:0u", "--snapshot virtual 0u: expected seconds"),
    ("--portion 2", "--portion 2: expected a number, 1e-06 or more, at most 1"),
    ("--source -1", "--source -1: expected a whole number, 0 or more"),
    ("--rank 3", "--rank: is not for pagerank; leave it out"),
    ("--every 0", "--every 0: expected a whole number, 1 or more"),
])
def test_mistakes(words: str, told: str) -> None:
    name, value = words.split()
    with pytest.raises(ValueError, match=told):
        invoke("pagerank", "path:9", f"{name}={value}")


def test_completion() -> None:
    """Law: it has words of its own, and none of graphs'."""
    found = invoke("mc", "planted:100x20", "--rank", "3", "--rmse", "0.2", "--snapshot", "none")
    assert found.apps[0] == "aic_mc.py"
    assert found.words == ["planted:100x20", "--snapshot", "none", "--rank", "3", "--rmse", "0.2"]
    for wrong in (("--eps", "1e-3"), ("--recovery", "survivors")):
        with pytest.raises(ValueError, match="is not for mc; leave it out"):
            invoke("mc", "planted:100x20", *wrong)
    with pytest.raises(ValueError, match=r"give a file, planted:ROWSxCOLUMNS"):
        invoke("mc", "rmat:9")


def test_a_graph_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"No such file or directory; give a file, rmat:SCALE"):
        invoke("pagerank", "/nowhere/graph.txt")
