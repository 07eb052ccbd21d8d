"""Paths of the source tree, for tests that read it or run what lies in it."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
APPS = ROOT / "bench" / "apps"
