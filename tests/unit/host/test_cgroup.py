"""Memory that a control group leaves, read from files as the kernel shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftrma.host import cgroup


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


ONE = "sys/fs/cgroup/jobs/one"
V1 = "sys/fs/cgroup/memory/docker/abc"


@pytest.mark.parametrize(("files", "left"), [
    ({}, None),
    ({"proc/self/cgroup": "0::/"}, None),
    ({"proc/self/cgroup": "0::/jobs/one", f"{ONE}/memory.max": "1000",
      f"{ONE}/memory.current": "400"}, 600),
    ({"proc/self/cgroup": "0::/jobs/one", f"{ONE}/memory.max": "1000",
      f"{ONE}/memory.current": "900", f"{ONE}/memory.stat": "anon 200\ninactive_file 650\n"}, 750),
    ({"proc/self/cgroup": "0::/jobs/one", f"{ONE}/memory.max": "max",
      f"{ONE}/memory.current": "400", "sys/fs/cgroup/jobs/memory.max": "900",
      "sys/fs/cgroup/jobs/memory.current": "850"}, 50),
    ({"proc/self/cgroup": "0::/../outside", "sys/fs/cgroup/memory.max": "700",
      "sys/fs/cgroup/memory.current": "800"}, 0),
    ({"proc/self/cgroup": "3:cpu,memory:/docker/abc\n1:name=systemd:/x",
      f"{V1}/memory.limit_in_bytes": "5000", f"{V1}/memory.usage_in_bytes": "1000"}, 4000),
], ids=["none", "no limit", "limit", "cache", "of the group above", "namespace", "version 1"])
def test_the_least_of_all_limits_counts(
    tmp_path: Path, files: dict[str, str], left: int | None
) -> None:
    write(tmp_path, files)
    assert cgroup.room_bytes(tmp_path) == left


def test_what_memory_is_left_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: the machine's or what a control group allows, whichever is less; also without /proc."""
    assert 0 < cgroup.available_bytes() < 2**50
    monkeypatch.setattr(cgroup, "room_bytes", lambda: 12345)
    assert cgroup.available_bytes() == 12345

    def none(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(cgroup, "open", none, raising=False)
    monkeypatch.setattr(cgroup, "room_bytes", lambda: None)
    assert 0 < cgroup.available_bytes() < 2**50
