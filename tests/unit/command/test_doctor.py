"""Settings of a machine that ``ftrma doctor`` reads."""

from __future__ import annotations

import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from ftrma.command import doctor


def test_logind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: what logind would clear away is told, unless it is set otherwise, by the last file that
    says so, or the user lingers, or is one of the system's."""
    mine = 1234
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=f"user{uid}"))

    def found(uid: int = mine) -> str:
        return doctor.check_logind(tmp_path, uid)[0]

    assert found() == "ok"
    (tmp_path / "run/systemd/users").mkdir(parents=True)
    assert found() == "note" and found(0) == "ok"
    for folder in ("usr/lib", "etc"):
        (tmp_path / folder / "systemd/logind.conf.d").mkdir(parents=True)
    (tmp_path / "etc/systemd/logind.conf").write_text("[Login]\n#RemoveIPC=yes\n")
    assert found() == "note"
    (tmp_path / "usr/lib/systemd/logind.conf.d/10-of.conf").write_text("[Login]\nRemoveIPC=no\n")
    assert found() == "ok"
    (tmp_path / "etc/systemd/logind.conf.d/20-on.conf").write_text("[Login]\n RemoveIPC = yes\n")
    assert found() == "note"
    (tmp_path / "var/lib/systemd/linger").mkdir(parents=True)
    (tmp_path / "var/lib/systemd/linger/another").touch()
    assert found() == "note"
    (tmp_path / "var/lib/systemd/linger/user1234").touch()
    assert found() == "ok"


def test_children_have_no_settings_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: what is checked depends neither on variables nor on files of options."""
    monkeypatch.setenv("FTRMA_SPARES", "0")
    monkeypatch.setenv("FTRMA_CONFIG", "/some/file")
    code = "import os; print(*(f'{k}={v}' for k, v in os.environ.items() if k[:6] == 'FTRMA_'))"
    assert doctor.python(code, tmp_path).stdout.split() == ["FTRMA_CONFIG=none"]
