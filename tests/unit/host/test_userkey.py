"""The user's own key: made once, whoever asks first, and nobody else's."""

from __future__ import annotations

import os
import pwd
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ftrma.host import userkey
from ftrma.host.errors import FtrmaError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "new" / "state"))
    return tmp_path / "new" / "state" / "ftrma" / "key"


def test_all_have_the_same(place: Path) -> None:
    """Law: of many that make it at once one has made it; it is for this user alone."""
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: userkey.read().secret, range(64)))
    assert len(found) == 1 and userkey.path() == place and os.listdir(place.parent) == ["key"]
    for path, mode in ((place, 0o600), (place.parent, 0o700)):
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("home", ["set", "unset"])
def test_where_it_is(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    """Law: as the specification has it; without HOME in the home that the system knows."""
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", "/somewhere")
    if home == "unset":
        monkeypatch.delenv("HOME")
    where = "/somewhere" if home == "set" else pwd.getpwuid(os.geteuid()).pw_dir
    assert userkey.path() == Path(where, ".local", "state", "ftrma", "key")


@pytest.mark.parametrize(("spoil", "words"), [
    (lambda key: key.chmod(0o640), r"is open to others \(mode 640\)"),
    (lambda key: key.write_bytes(b"short"), "is damaged; remove it"),
    (lambda key: (key.unlink(), os.mkfifo(key)), "is no regular file"),
    (lambda key: (key.unlink(), key.symlink_to("/dev/zero")), "Too many levels of symbolic links"),
    (lambda key: (key.unlink(), key.parent.chmod(0o777)), "is open to others"),
])
def test_one_that_may_be_anothers_is_not_used(place: Path, spoil: object, words: str) -> None:
    userkey.read()
    spoil(place)  # type: ignore[operator]
    with pytest.raises(FtrmaError, match=words):
        userkey.read()
