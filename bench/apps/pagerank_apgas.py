"""PageRank over places, with checkpoints: `ftrma.apgas`.

Each place has a block of rows of the link matrix, and the ranks of these pages. In a step all
gather the ranks, and each place multiplies its block. The block is saved once, its ranks at each
checkpoint.

Oracle: `oracle` is the power iteration over the whole matrix with scipy.

Source: section 5.4 of Resilient X10 (2019): 5 million pages, links by a log-normal distribution
with mu 4 and sigma 1.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ftrma import apgas

DAMPING = 0.85
MU, SIGMA = 4.0, 1.3


def links_to(first: int, end: int, pages: int) -> Any:
    """Rows of the matrix: for each page from `first` up to `end` who links to it."""
    rows = []
    for page in range(first, end):
        rng = np.random.default_rng([11, page])
        count = min(pages - 1, int(rng.lognormal(MU, SIGMA)))
        rows.append(np.unique(rng.integers(0, pages, count)))
    pointers = np.cumsum([0, *map(len, rows)])
    columns = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    return sparse.csr_matrix((np.ones(len(columns)), columns, pointers), (end - first, pages))


def shares(ranks: Any, outgoing: Any) -> tuple[Any, float]:
    """The rank that each page gives along a link, and the rank of pages without a link."""
    none = outgoing == 0
    return np.where(none, 0, ranks / np.maximum(outgoing, 1)), float(ranks[none].sum())


class PageRank(apgas.SPMDIterativeApp):
    """Blocks of rows of the link matrix, one unless places were lost, and the ranks of their pages.

    Args:
        pages: of all places.
    """

    def __init__(self, pages: int, steps: int) -> None:
        group = apgas.group()
        ordinal = group.index_of(apgas.here())
        first, end = (pages * i // len(group) for i in (ordinal, ordinal + 1))
        self.pages, self.steps, self.step = pages, steps, 0
        self.links: dict[int, Any] = {}
        self.ranks = {first: np.full(end - first, 1 / pages)}
        self.outgoing: Any = None

    def begin_local(self) -> None:
        self.links = {first: links_to(first, first + len(ranks), self.pages)
                      for first, ranks in self.ranks.items()}

    def remake_local(self, changes: Any, team: Any) -> None:
        self.outgoing = None

    def is_finished_local(self) -> bool:
        return self.step == self.steps

    def step_local(self, team: Any) -> None:
        if self.outgoing is None:
            self.outgoing = team.allreduce(sum(np.bincount(block.indices, minlength=self.pages)
                                               for block in self.links.values()))
        ranks = np.empty(self.pages)
        for blocks in team.allgather(self.ranks):
            for first, block in blocks.items():
                ranks[first:first + len(block)] = block
        share, lost = shares(ranks, self.outgoing)
        base = (1 - DAMPING + DAMPING * lost) / self.pages
        self.ranks = {first: base + DAMPING * (block @ share)
                      for first, block in self.links.items()}
        self.step += 1

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        saved: dict[str, Any] = {"step": self.step, "blocks": list(self.ranks)}
        for number, (row, block) in enumerate(self.links.items()):
            saved[f"ranks {number}"] = self.ranks[row]
            if first:
                saved |= {f"{name} {number}": getattr(block, name)
                          for name in ("data", "indices", "indptr")}
        return saved

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.step, self.links, self.ranks = saved["step"], {}, {}
        self.adopt_local(saved)

    def adopt_local(self, saved: dict[str, Any]) -> None:
        for number, first in enumerate(saved["blocks"]):
            ranks = self.ranks[first] = saved[f"ranks {number}"]
            self.links[first] = sparse.csr_matrix(
                tuple(saved[f"{name} {number}"] for name in ("data", "indices", "indptr")),
                (len(ranks), self.pages))

    def result_local(self) -> dict[int, Any]:
        return self.ranks


def oracle(pages: int, steps: int) -> Any:
    """The ranks, by power iteration in one process."""
    links = links_to(0, pages, pages)
    outgoing = np.bincount(links.indices, minlength=pages)
    ranks = np.full(pages, 1 / pages)
    for _ in range(steps):
        share, lost = shares(ranks, outgoing)
        ranks = (1 - DAMPING + DAMPING * lost) / pages + DAMPING * (links @ share)
    return ranks
