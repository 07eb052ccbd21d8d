"""Draws the pictures of a report, as SVG: the timeline, phases of recoveries, hold-ups, slots.

Each function takes plain values and returns the text of one ``<svg>`` element. Colours are classes
that the page's style sheet defines for light and dark screens. Marks that would cover each other
are drawn once, so that a picture stays small however long the run was.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from .reportdata import PHASES, Run, Taken
from .status import lasting, size

WIDTH, LEFT, RIGHT = 1060, 134, 26
PLOT = WIDTH - LEFT - RIGHT
LANE, GAP = 22, 12
NICE_EACH_S = (60, 120, 300, 600, 1800, 3600, 7200, 4 * 3600, 12 * 3600, 86400)
MOST_ROWS = 30  # recoveries in the picture of phases: the longest
LEAST_PX = 2.0  # least width of a mark, so that it can be seen


class Scale:
    """Seconds as places on the horizontal axis."""

    def __init__(self, total_s: float) -> None:
        self.total_s = max(total_s, 1e-6)

    def x(self, at_s: float) -> float:
        return LEFT + PLOT * min(max(at_s / self.total_s, 0.0), 1.0)

    def bar(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Return the left end and width of a span, wide enough to be seen."""
        x = self.x(begin_s)
        width = max(self.x(end_s) - x, LEAST_PX)
        return min(x, LEFT + PLOT - width), width

    def ticks(self) -> list[float]:
        step = nice_s(self.total_s / 8)
        return [i * step for i in range(int(self.total_s / step) + 1)]


def nice_s(least: float) -> float:
    """Return the smallest usual step of a clock that is not below `least`, in seconds."""
    if least <= 30:
        return nice(least)
    days = math.ceil(least / 86400)
    return float(next((step for step in NICE_EACH_S if step >= least), days * 86400))


def nice(least: float) -> float:
    """Return the smallest round number that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(max(least, 1e-9)))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * 0.999)


def svg(height: float, parts: Iterable[str], title: str) -> str:
    inside = "\n".join(parts)
    return (f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">\n'
            f"{inside}\n</svg>")


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    return (f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}">{told}</rect>')


def label(text: str, x: float, y: float, where: str = "") -> str:
    return f'<text class="{where}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def axis(scale: Scale, top: float, bottom: float) -> Iterator[str]:
    """Yield lines and times of the horizontal axis."""
    for at_s in scale.ticks():
        x = scale.x(at_s)
        yield f'<path class="grid" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>'
        yield label(lasting(at_s) if at_s else "0", x, bottom + 15, "tick")


# ---- the timeline ---------------------------------------------------------------------------


def timeline(run: Run) -> str:
    """Draw the whole run: steps, time without progress, checkpoints, deaths, recoveries."""
    scale, y = Scale(run.total_s), 8.0
    parts: list[str] = []
    curve = steps(run)
    if len(curve) > 1:
        parts += progress(curve, scale, y)
        y += 120 + GAP
    lanes = {"time": time_lane(run, scale), "checkpoints": checkpoint_lane(run.checkpoints, scale),
             "deaths": death_lane(run.deaths, scale), "recoveries": recovery_lane(run, scale)}
    for name, marks in lanes.items():
        parts.append(label(name, LEFT - 10, y + 15, "name"))
        parts.append(f'<g transform="translate(0 {y:.0f})">{"".join(marks)}</g>')
        y += LANE + GAP
    return svg(y + 22, [*axis(scale, 8, y), *parts], "timeline of the run")


def steps(run: Run) -> list[tuple[float, float]]:
    """Return points of the curve of steps over time, as far as checkpoints tell them."""
    at = {0: 0} | {taken.version: taken.step for taken in run.coordinated}
    found = [(run.entered[0][0], 0.0)] if run.entered else []
    events: list[tuple[float, int, bool]] = [
        *((taken.at_s, taken.version, False) for taken in run.coordinated if taken.step),
        *((r.at_s, r.version, True) for r in run.recoveries if r.kind in ("rollback", "relaunch"))]
    for at_s, version, back in sorted(events):
        if back and version in at and found:
            found.append((at_s, found[-1][1]))  # up to the recovery nothing is known to be lost
        if version in at:
            found.append((at_s, float(at[version])))
    return found if any(step for _, step in found) else []


def progress(curve: Sequence[tuple[float, float]], scale: Scale, top: float) -> Iterator[str]:
    """Yield the curve of steps."""
    most, height = max(step for _, step in curve), 120.0
    each = nice(most / 3)
    for i in range(int(most / each) + 1):
        y = top + height * (1 - i * each / most)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{LEFT + PLOT}"/>'
        yield label(f"{i * each:g}", LEFT - 10, y + 4, "name")
    points = list(thinned([(scale.x(at_s), top + height * (1 - step / most))
                           for at_s, step in curve]))
    yield f'<polyline class="curve" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'
    yield label("steps", LEFT + 6, top + 10, "inside")


def thinned(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Leave out points that coincide with the one before; the last point stays."""
    last: tuple[float, float] | None = None
    for i, point in enumerate(points):
        if last is None or abs(point[0] - last[0]) + abs(point[1] - last[1]) > 0.5 or (
                i == len(points) - 1):
            yield point
            last = point


def time_lane(run: Run, scale: Scale) -> Iterator[str]:
    """Yield how the time was spent, except for checkpoints, which are too short to be seen."""
    yield rect(LEFT, 0, PLOT, LANE, "useful", f"useful: {lasting(run.useful_s)}")
    for kind in ("starting", "again", "recoveries"):
        for which, begin, end in run.spans:
            if which == kind:
                x, width = scale.bar(begin, end)
                yield rect(x, 0, width, LANE, kind, f"{WORDS[kind]}: {lasting(end - begin)}")


def checkpoint_lane(taken: Sequence[Taken], scale: Scale) -> Iterator[str]:
    """Yield a mark per checkpoint, or one mark with a number for many that coincide."""
    by_place: dict[tuple[int, str], list[Taken]] = {}
    for each in taken:
        by_place.setdefault((round(scale.x(each.at_s) / LEAST_PX), each.kind), []).append(each)
    for (_, kind), together in by_place.items():
        first = together[0]
        title = f"{len(together)} {kind} checkpoints, versions {first.version} to " \
                f"{together[-1].version}" if len(together) > 1 else \
                f"{kind} checkpoint, version {first.version}, at {lasting(first.at_s)}: held up " \
                f"{lasting(first.seconds)}, {size(first.bytes)}, {size(first.dirty_bytes)} changed"
        low = kind == "demand"
        x = min(scale.x(first.at_s), LEFT + PLOT - LEAST_PX)
        yield rect(x, LANE / 2 if low else 0, LEAST_PX, LANE / (2 if low else 1),
                   "again" if low else "checkpoints", title)


def death_lane(deaths: Sequence[tuple[float, str]], scale: Scale) -> Iterator[str]:
    for at_s, name in deaths:
        x, middle = scale.x(at_s), LANE / 2
        yield (f'<path class="death" d="M{x - 5:.1f} {middle - 5:.1f}l10 10m0 -10l-10 10">'
               f"<title>{escape(f'{name} died, told at {lasting(at_s)}')}</title></path>")


def recovery_lane(run: Run, scale: Scale) -> Iterator[str]:
    for r in run.recoveries:
        x, width = scale.bar(r.died_at_s, r.at_s)
        yield rect(x, 0, width, LANE, f"recovery {r.kind}", f"{r.kind} in {lasting(r.seconds)}")
    for at_s, seconds, checksum in run.reseats:
        x, width = scale.bar(at_s - seconds, at_s)
        yield rect(x, LANE / 2, width, LANE / 2, "reseat",
                   f"checksum rank {checksum} was replaced in {lasting(seconds)}")


# ---- phases, hold-ups, the account ----------------------------------------------------------

WORDS = {"useful": "useful", "starting": "starting", "checkpoints": "checkpoints",
         "recoveries": "recoveries", "again": "work done again"}


def account(run: Run) -> str:
    """Draw one bar that shows how the time was spent."""
    scale, at_s, parts = Scale(run.total_s), 0.0, []
    for kind, seconds in (("useful", run.useful_s), *run.lost_s.items()):
        if seconds > 0:
            x, width = scale.bar(at_s, at_s + seconds)
            share = 100 * seconds / max(run.total_s, 1e-9)
            parts.append(rect(x, 4, width, 30, kind,
                              f"{WORDS[kind]}: {lasting(seconds)}, {share:.2f} %"))
            at_s += seconds
    return svg(38, parts, "account of the run's time")


def phases(run: Run) -> str:
    """Draw a bar per recovery with its phases; of many recoveries, the longest ones."""
    rows = sorted(run.recoveries, key=lambda r: -r.seconds)[:MOST_ROWS]
    rows.sort(key=lambda r: r.at_s)
    scale = Scale(max(r.seconds for r in rows))
    parts: list[str] = []
    for i, r in enumerate(rows):
        y, at_s = 4.0 + i * (LANE + 6), 0.0
        who = f"{r.kind}, {lasting(r.died_at_s)}"
        parts.append(label(who, LEFT - 10, y + 15, "name small"))
        for phase in PHASES:
            seconds = r.phases[phase]
            if seconds > 0:
                x, width = scale.bar(at_s, at_s + seconds)
                parts.append(rect(x, y, width, LANE, phase, f"{phase}: {lasting(seconds)}"))
                at_s += seconds
    bottom = 4.0 + len(rows) * (LANE + 6)
    return svg(bottom + 22, [*axis(scale, 4, bottom), *parts], "phases of recoveries")


def hold_ups(run: Run) -> str:
    """Draw a dot per checkpoint that shows for how long it held the program up."""
    taken, height, top = run.coordinated, 130.0, 8.0
    scale, most = Scale(run.total_s), max(each.seconds for each in run.coordinated) or 1e-6
    step = nice_s(most / 3)
    parts = []
    for i in range(int(most / step) + 1):
        y = top + height * (1 - i * step / most)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{LEFT + PLOT}"/>')
        parts.append(label(lasting(i * step) if i else "0", LEFT - 10, y + 4, "name"))
    places = {(round(scale.x(each.at_s)), round(top + height * (1 - each.seconds / most)))
              for each in taken}
    parts += [f'<circle class="dot" cx="{x}" cy="{y}" r="2.5"/>' for x, y in sorted(places)]
    return svg(top + height + 24, [*axis(scale, top, top + height), *parts],
               "hold-up of each checkpoint")


def bars(rows: Sequence[tuple[str, float, str]], limit: float | None = None) -> str:
    """Draw horizontal bars with names and values in words, and a line at `limit`."""
    most = max([limit or 0.0, *(value for _, value, _ in rows)]) or 1.0
    parts, room = [], PLOT - 110
    for i, (name, value, words) in enumerate(rows):
        y = 4.0 + i * 20
        parts.append(label(name, LEFT - 10, y + 12, "name small"))
        parts.append(rect(LEFT, y, max(room * value / most, 1.0), 15, "bar", words))
        parts.append(label(words, LEFT + room * value / most + 6, y + 12, "small"))
    height = 8.0 + len(rows) * 20
    if limit:
        x = LEFT + room * limit / most
        parts.append(f'<path class="limit" d="M{x:.1f} 0V{height:.1f}"/>')
    return svg(height, parts, "bars")


# ---- slots over time ------------------------------------------------------------------------


def strips(levels: Sequence[Sequence[int]], palette: Sequence[tuple[int, int, int]],
           total_s: float) -> str:
    """Draw a strip per slot over time, as one picture of points.

    Args:
        levels: for each slot, for each stretch of time, a number of a colour.
        palette: red, green and blue of each number.
    """
    each = 16 if len(levels) <= 16 else max(3, 480 // len(levels))
    height, scale = each * len(levels), Scale(total_s)
    picture = base64.b64encode(png(levels, palette)).decode()
    every = max(1, math.ceil(12 / each))
    names = [label(f"slot {i}", LEFT - 10, 4 + i * each + each / 2 + 4, "name small")
             for i in range(0, len(levels), every)]
    image = (f'<image x="{LEFT}" y="4" width="{PLOT}" height="{height}" '
             f'preserveAspectRatio="none" href="data:image/png;base64,{picture}"/>')
    return svg(height + 26, [image, *names, *axis(scale, 4, 4 + height)], "slots over time")


def png(levels: Sequence[Sequence[int]], palette: Sequence[tuple[int, int, int]]) -> bytes:
    """Make a PNG picture with a palette, with one point per number."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    size = struct.pack(">IIBBBBB", len(levels[0]), len(levels), 8, 3, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(row) for row in levels)
    colours = b"".join(bytes(colour) for colour in palette)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"PLTE", colours)
            + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))
