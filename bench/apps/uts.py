"""Unbalanced Tree Search over places, by global load balancing: `ftrma.apgas.glb`.

A tree is counted whose shape nobody knows: the number of children of a node follows from the hash
of its path. A bag has the nodes whose children are not all counted, each with those that are left.

Oracle: the known sizes of geometric trees of fixed shape with branching factor 4 and seed 19: depth
8 has 257,042 nodes, depth 10 has 4,130,071, depth 13 has 264,459,392.

Source: Olivier et al. 2007; section 5.2 of Resilient X10 (2019).
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from typing import Any

BRANCHING = 4
SEED = 19
SIZES = {8: 257_042, 10: 4_130_071, 13: 264_459_392}

# A node has at least k children if the last 31 bits of its hash are MORE[k - 1] or more.
_DEN = math.log(BRANCHING / (1 + BRANCHING))


def _children(number: int) -> int:
    """The number of children of a node, from the last 31 bits of its hash."""
    return math.floor(math.log(1 - number / 2**31) / _DEN)


def _least(k: int) -> int:
    """The least number that gives k children."""
    low, high = 0, 2**31 - 1
    while low < high:
        middle = (low + high) // 2
        if _children(middle) >= k:
            high = middle
        else:
            low = middle + 1
    return low


MORE = [_least(k) for k in range(1, _children(2**31 - 1) + 1)]


class Nodes:
    """A bag of nodes of the tree.

    Attributes:
        result: nodes that were counted.
        nodes: hash, depth, and the first and the end of the children that are left, of each.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.result = 0
        self.nodes: list[tuple[bytes, int, int, int]] = []

    @classmethod
    def root(cls, depth: int) -> Nodes:
        """The bag that has the whole tree."""
        bag = cls(depth)
        hashed = hashlib.sha1(bytes(16) + SEED.to_bytes(4, "big")).digest()
        bag.result = 1
        count = bisect_right(MORE, int.from_bytes(hashed[16:], "big") & 0x7FFFFFFF)
        if depth > 0 and count:
            bag.nodes.append((hashed, 0, 0, count))
        return bag

    def process(self, count: int) -> bool:
        nodes, deepest, sha1, more = self.nodes, self.depth, hashlib.sha1, MORE
        left = count
        while nodes and left:
            left -= 1
            hashed, depth, first, end = nodes[-1]
            end -= 1
            if first == end:
                nodes.pop()
            else:
                nodes[-1] = (hashed, depth, first, end)
            if depth + 1 == deepest:
                continue
            child = sha1(hashed + end.to_bytes(4, "big")).digest()
            children = bisect_right(more, int.from_bytes(child[16:], "big") & 0x7FFFFFFF)
            if children:
                nodes.append((child, depth + 1, 0, children))
        self.result += count - left
        return bool(nodes)

    def split(self) -> Nodes | None:
        """Give away half of the children of each node that has several left."""
        part = type(self)(self.depth)
        for i, (hashed, depth, first, end) in enumerate(self.nodes):
            if end - first >= 2:
                middle = (first + end) // 2
                self.nodes[i] = (hashed, depth, middle, end)
                part.nodes.append((hashed, depth, first, middle))
        return part if part.nodes else None

    def merge(self, part: Any) -> None:
        self.nodes = part.nodes + self.nodes
        self.result += part.result


def sequential(depth: int) -> int:
    """Count the tree in one process."""
    bag = Nodes.root(depth)
    while bag.process(100_000):
        pass
    return bag.result
