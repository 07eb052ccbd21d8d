"""Programs that come with ftrma: in the installed package, or in the checkout around it."""

from __future__ import annotations

from pathlib import Path

# Names of the demonstrations of `ftrma demo`, and what each shows.
DEMOS = {
    "fft": "a process of a parallel FFT is killed, and is replayed from the last checkpoint",
    "graph": "a graph loses half of its slots, without a checkpoint or a log",
    "search": "places of a tree search die, and no node is counted twice or not at all",
}
HERE = Path(__file__).resolve().parents[1]


def find_app(*names: str) -> Path | None:
    """Return the first of these files if all are there; None if this installation lacks one."""
    for place in (HERE / "apps", HERE.parent / "bench" / "apps"):
        if all((place / name).is_file() for name in names):
            return place / names[0]
    return None
