"""``ftrma doctor --mpirun`` over emulated nodes: each host is looked at, and the ways between."""

from __future__ import annotations

import time

import pytest
from nodes import NODES, launcher_options, left_on, refusing, why_not

from ftrma.host.listening import Bind
from ftrma.launch import nodechecks
from ftrma.settings.options import split_mpirun

pytestmark = [pytest.mark.full, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def test_hosts_are_looked_at_and_a_bad_one_is_named() -> None:
    words = split_mpirun(launcher_options(NODES, 2))
    refusing().write_text(f"{NODES[1]}\n")
    try:
        found = [*nodechecks.look(words, Bind())]
    finally:
        refusing().unlink()
    said = {(name, text.split()[0]): (verdict, text) for name, verdict, text in found}
    verdict, text = said["hosts", f"{NODES[1]}:"]
    assert verdict == "FAIL" and "port 22: Connection refused" in text, found
    assert said["ftrma", "0.1.0"][0] == said["clocks", "within"][0] == "ok", found
    ways = [(name, text) for name, verdict, text in found if " ms, " in text]
    assert [name for name, _ in ways] == [NODES[0], NODES[2], NODES[0]], found
    assert "GiB free in /dev/shm; from here by " in ways[0][1], found
    assert ways[2][1].startswith(f"to {NODES[2]} by "), found
    assert len(found) == 9, found


def test_ways_go_by_the_address_that_is_asked_for() -> None:
    """Law: probes listen where --bind says, here and there, and leave nothing on their nodes."""
    words = split_mpirun(launcher_options(NODES[:2], 2))
    found = [*nodechecks.look(words, Bind("127.0.0.1"))]
    assert {verdict for _, verdict, _ in found} == {"ok"}, found
    assert [text.split(" by ")[1].split(":")[0] for _, _, text in found if " ms, " in text] == [
        "lo 127.0.0.1"] * 3, found
    deadline = time.monotonic() + 10
    while any(any(left_on(node)) for node in NODES) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any([*left_on(node)] for node in NODES)
