"""The laws of a `Fabric` over several nodes: those without a death, since any death ends the launch
there (`test_nodes` has them)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fabriclaws import LAWS, SLOTS
from nodes import remove_fake_ssh, run_on_nodes

pytestmark = pytest.mark.full

PROGRAM = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import ftrma
from fabriclaws import LAWS
from ftrma.program import session
fabric = session.current.view
seen = {{law.name: law.body(fabric, None) for law in LAWS if not law.deaths}}
with open(f"{{sys.argv[1]}}/seen-{{fabric.role()[1]}}.json", "w") as file:
    json.dump({{"fabric": type(fabric).__name__, **seen}}, file)
"""


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def test_laws_over_several_nodes() -> None:
    """Law: those of `fabriclaws`."""
    result = run_on_nodes(PROGRAM, SLOTS, "--interval", "never")
    assert result.status == 0, result
    saw = result.of_slots("seen", SLOTS)
    assert {found["fabric"] for found in saw} == {"SeveralNodesView"}
    for law in LAWS:
        if not law.deaths:
            law.holds({slot: found[law.name] for slot, found in enumerate(saw)})
