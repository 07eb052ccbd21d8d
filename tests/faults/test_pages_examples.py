"""Programs of the pages for users run as they stand there, and survive a death."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from jobs import run_job
from tree import ROOT

KEEP = """
import sys
np.save(f"{sys.argv[1]}/values-{MPI.COMM_WORLD.rank}.npy", %s)
"""


def program(page: str, word: str) -> str:
    """Return the program of a page that has this word."""
    text = (ROOT / "ftrma" / "docs" / f"{page}.md").read_text()
    (found,) = (block for block in re.findall(r"(?ms)^```python\n(.*?)^```", text) if word in block)
    return str(found)


@pytest.mark.parametrize(("page", "options"), [
    pytest.param("index", ("--kill", "2@fence:500"), marks=pytest.mark.nightly),
    pytest.param("protect", ("--interval", "0", "--kill", "1@fence:100"), marks=pytest.mark.full),
])
def test_a_whole_program_prints_the_same(page: str, options: tuple[str, ...]) -> None:
    """Law: the page's command line kills a slot, which is replayed, and the output is the same."""
    assert " ".join(options) in (ROOT / "ftrma" / "docs" / f"{page}.md").read_text()
    calm, struck = (run_job(program(page, "tomemory"), 4, *more) for more in ((), options))
    assert calm.status == struck.status == 0, (calm, struck)
    assert sorted(calm.stdout.splitlines()) == sorted(struck.stdout.splitlines())
    assert len(calm.stdout.splitlines()) == 4
    assert [r["kind"] for r in struck.stats["recoveries"]] == ["causal"]


@pytest.mark.full
def test_a_vertex_program(tmp_path: Path) -> None:
    """Law: the page's PageRank comes to the ranks that scipy's matrix has, over a death."""
    n, rng = 400, np.random.default_rng(1)
    src, dst = rng.integers(0, n, (2, 4000))
    np.savez(tmp_path / "web.npz", src=src, dst=dst, n=n)
    text = program("graphs", '"web.npz"').replace('"web.npz"', repr(str(tmp_path / "web.npz")))
    job = run_job("from ftrma import MPI\n" + text + KEEP % "ranks if ranks is not None else []", 2,
                  "--kill", "1@graph.emit:15")
    assert job.status == 0 and len(job.stats["failures"]) == 1, job
    degree = np.bincount(src, minlength=n).clip(1)
    rank = np.full(n, 1 / n)
    for _ in range(30):
        moved = np.bincount(dst, (rank / degree)[src], n)
        lost = rank[np.bincount(src, minlength=n) == 0].sum()
        rank = (0.15 + 0.85 * lost) / n + 0.85 * moved
    assert np.allclose(job.results["values-0"], rank, rtol=1e-12)


@pytest.mark.nightly
@pytest.mark.parametrize(("page", "word", "smaller", "value"), [
    ("graphs", "class Residual", ("rmat(12)", "rmat(8)"), 'result["rank"]'),
    ("asynchronous", "class PageRank", ("1_000_000", "2_000"), "result.values"),
    ("asynchronous", "aic.MatrixCompletion", ("1_000, 200", "300, 100"), "[model.rmse_]")])
def test_other_programs(page: str, word: str, smaller: tuple[str, str], value: str) -> None:
    """Law: they end well and have finite values."""
    text = "import numpy as np\nfrom ftrma import MPI\n" + program(page, word).replace(*smaller)
    job = run_job(text + KEEP % value, 2)
    assert job.status == 0, job
    assert all(np.isfinite(job.results[f"values-{slot}"]).all() for slot in range(2))
