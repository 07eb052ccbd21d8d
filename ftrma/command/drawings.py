"""Drawings of the pages: text that a terminal shows as it is, and a page of the site as SVG.

A drawing is a block of text that begins with three backticks, ``drawing`` and a title. Its
characters are a grid:

======== ============================================================
``- |``  lines; two dashes or more make one, so words keep theirs
``+``    a corner or a crossing of lines
``< >``  the head of an arrow at the end of dashes; ``v ^`` of bars
``X``    a death, if it stands alone
``*``    an event, if it stands alone
``#``    a piece of a bar of a chart
======== ============================================================

All else is text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

WIDTH, HEIGHT = 8, 18  # size of a character, in px
BLOCK = re.compile(r"(?ms)^```drawing +(.*?)\n(.*?)^```$")
Grid = list[str]
HEADS = {"<": (-1, 0), ">": (1, 0), "^": (0, -1), "v": (0, 1)}  # where an arrow points
JOINED = {"<": "-+<", ">": "-+>", "^": "|+^*X", "v": "|+v*X"}  # what a corner is joined to there


def drawings_in(text: str) -> list[tuple[str, str]]:
    """Return the title and the text of each drawing on a page."""
    return [(match[1], match[2]) for match in BLOCK.finditer(text)]


def svg(title: str, text: str) -> str:
    """Return a drawing as an element of HTML.

    Raises:
        ValueError: a line ends at nothing; the text has its place.
    """
    rows = text.expandtabs().splitlines()
    width = max(map(len, rows), default=0)
    grid = [row.ljust(width) for row in rows]
    parts = [part for y in range(len(grid)) for part in of_row(grid, y)]
    return (
        f'<svg class="drawing" role="img" viewBox="0 0 {width * WIDTH} {len(grid) * HEIGHT}" '
        f'style="width: {width * WIDTH}px; max-width: 100%" stroke="currentColor" '
        f'fill="currentColor" stroke-width="1.3"><title>{html.escape(title)}</title>'
        + "".join(parts) + "</svg>")


def of_row(grid: Grid, y: int) -> Iterator[str]:
    """Yield the elements of a row: its lines, heads and marks, then the words between them."""
    row, words = grid[y], list(grid[y])
    for x, character in enumerate(row):
        if drawn := element(grid, x, y, character):
            words[x] = " "
            yield drawn
    for match in re.finditer(r"\S+(?: \S+)*", "".join(words)):
        yield (f'<text x="{match.start() * WIDTH}" y="{y * HEIGHT + 13}" stroke="none" '
               f'textLength="{len(match[0]) * WIDTH}" lengthAdjust="spacingAndGlyphs" '
               f'font-family="monospace" font-size="13">'
               f"{html.escape(match[0])}</text>")


def element(grid: Grid, x: int, y: int, character: str) -> str:
    """Return what is drawn for a character; empty if it is text."""
    if character == "-":
        return line(grid, x, y, "<>") if in_line(grid[y], x) else ""
    if character in HEADS:
        (dx, dy), behind = HEADS[character], "-+" if character in "<>" else "|+"
        return head(x, y, dx, dy) if at(grid, x - dx, y - dy) in behind else ""
    if character not in "|+X*#" or beside_words(grid[y], x):
        return ""
    if character == "#":
        return (f'<rect x="{x * WIDTH}" y="{y * HEIGHT + 4}" width="{WIDTH}" height="{HEIGHT - 6}" '
                'stroke="none" opacity="0.6"/>')
    if character == "|":
        return line(grid, x, y, "^v")
    ends = "".join(
        way for way, (dx, dy) in HEADS.items() if at(grid, x + dx, y + dy) in JOINED[way])
    if character == "+":
        if not ends:
            raise ValueError(f"line {y + 1}, column {x + 1}: a corner where no line ends")
        return line(grid, x, y, ends)
    bars = line(grid, x, y, "".join(way for way in ends if way in "^v"))
    cx, cy = (x + 0.5) * WIDTH, (y + 0.5) * HEIGHT
    if character == "*":
        return f'{bars}<circle cx="{cx:g}" cy="{cy:g}" r="4"/>'
    return (f'{bars}<path stroke="#c33" stroke-width="3" '
            f'd="M{cx - 4:g} {cy - 4:g}l8 8M{cx - 4:g} {cy + 4:g}l8 -8"/>')


def at(grid: Grid, x: int, y: int) -> str:
    """Return a character of the grid; a space outside of it."""
    return grid[y][x] if 0 <= y < len(grid) and 0 <= x < len(grid[y]) else " "


def in_line(row: str, x: int) -> bool:
    """Say whether a dash belongs to a line: to two dashes or more that touch no word."""
    runs = re.finditer(r"(?<![\w-])[-+<>*X]*-[-+][-+<>*X]*(?![\w-])", row)
    return any(run.start() <= x < run.end() for run in runs)


def beside_words(row: str, x: int) -> bool:
    return bool(re.match(r"\w", row[x - 1 : x]) or re.match(r"\w", row[x + 1 : x + 2]))


def line(grid: Grid, x: int, y: int, ways: str) -> str:
    """Return lines from the middle of a character to its borders, in the given directions."""
    ends = (((x + 0.5 + dx / 2) * WIDTH, (y + 0.5 + dy / 2) * HEIGHT)
            for dx, dy in (HEADS[way] for way in ways))
    begin = f"M{(x + 0.5) * WIDTH:g} {(y + 0.5) * HEIGHT:g}"
    return f'<path d="{"".join(f"{begin}L{a:g} {b:g}" for a, b in ends)}" fill="none"/>'


def head(x: int, y: int, dx: int, dy: int) -> str:
    """Return the head of an arrow that ends at a border of a character."""
    ax, ay = (x + 0.5 + dx / 2) * WIDTH, (y + 0.5 + dy / 2) * HEIGHT
    bx, by = ax - 8 * dx, ay - 8 * dy
    return (f'<path stroke="none" d="M{ax:g} {ay:g}L{bx + 4 * dy:g} {by + 4 * dx:g}'
            f'L{bx - 4 * dy:g} {by - 4 * dx:g}Z"/>')
