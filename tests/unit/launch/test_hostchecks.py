"""Surroundings that lack something only for another user or on another machine."""

from __future__ import annotations

import os
import resource

import pytest

from ftrma.host.errors import FtrmaError
from ftrma.launch import hostchecks


def test_too_few_processes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: by what is allowed beside what there is; root, whom nobody counts, passes."""
    real = resource.getrlimit

    def limit(number: int) -> tuple[int, int]:
        return (5, 5) if number == resource.RLIMIT_NPROC else real(number)

    monkeypatch.setattr(resource, "getrlimit", limit)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    hostchecks.check(4)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(FtrmaError, match=r"'ulimit -u' allows 5 .* you have 0 already.*about 20"):
        hostchecks.check(4)
