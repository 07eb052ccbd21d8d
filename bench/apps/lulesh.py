"""LULESH 2.0, a Sedov blast by shock hydrodynamics, in NumPy over places: `ftrma.apgas`.

A cube of elements lies in slabs of layers, one slab at each place. In a step a place adds the
forces on the plane of nodes that it shares with a neighbour, learns the velocity gradients of the
layer behind it, and all agree on the time step.

Oracle: `oracle` takes the steps in one process, with equal bits, since forces from below and from
above a plane are added as two sums. The published numbers of steps and final energies at the origin
are `PUBLISHED`.

Source: Karlin et al. 2013, LULESH 2.0 updates and changes; section 5.5 of Resilient X10 (2019),
which has cubes of elements in place of slabs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrma import apgas

# Edge in elements: steps, final energy of the element at the origin.
PUBLISHED = {5: (72, 7.853665e3), 10: (231, 2.720531e4), 20: (575, 9.668856e4),
             30: (932, 2.025075e5)}
STOP_S, DT_MAX = 1e-2, 1e-2
CUT, V_CUT, TINY = 1e-7, 1e-10, 1e-36
E_MIN, V_LEAST, V_MOST = -1e15, 1e-9, 1e9
HOURGLASS, QQC, QLC, QUADRATIC = 3.0, 2.0, 0.5, 2 / 3
FACES = ((0, 1, 2, 3), (0, 4, 5, 1), (1, 5, 6, 2), (2, 6, 7, 3), (3, 7, 4, 0), (4, 7, 6, 5))
SIDES = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7))
AROUND = ((1, 2, 3, 4, 5, 7), (2, 3, 0, 5, 6, 4), (3, 0, 1, 6, 7, 5), (0, 1, 2, 7, 4, 6),
          (7, 6, 5, 0, 3, 1), (4, 7, 6, 1, 0, 2), (5, 4, 7, 2, 1, 3), (6, 5, 4, 3, 2, 0))
GAMMA = np.array([[1, 1, -1, -1, -1, -1, 1, 1], [1, -1, -1, 1, -1, 1, 1, -1],
                  [1, -1, 1, -1, 1, -1, 1, -1], [-1, 1, -1, 1, 1, -1, 1, -1]], float)
CORNERS = [(k, j, i) for k in (0, 1) for j, i in ((0, 0), (0, 1), (1, 1), (1, 0))]


def corners(field: Any) -> list[Any]:
    """Values of a nodal field at the eight corners of all elements."""
    def part(offset: int) -> slice:
        return slice(offset, None if offset else -1)

    return [field[..., part(k), part(j), part(i)] for k, j, i in CORNERS]


def cross(a: Any, b: Any) -> Any:
    return np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
                     a[0] * b[1] - a[1] * b[0]])


def volume_of(x: list[Any]) -> Any:
    def triple(a: Any, b: Any, c: Any) -> Any:
        return (a * cross(b, c)).sum(0)

    return (triple(x[3] - x[1] + x[7] - x[2], x[6] - x[3], x[2] - x[0])
            + triple(x[4] - x[3] + x[5] - x[7], x[6] - x[4], x[7] - x[0])
            + triple(x[1] - x[4] + x[2] - x[5], x[6] - x[1], x[5] - x[0])) / 12


def shape_derivatives(x: list[Any]) -> tuple[list[Any], Any]:
    """Derivatives at the first four corners, and the Jacobian's determinant."""
    a, b, c, d = x[6] - x[0], x[5] - x[3], x[7] - x[1], x[4] - x[2]
    xi, eta, zeta = .125 * (a + b - c - d), .125 * (a - b + c - d), .125 * (a + b + c + d)
    cxi, ceta, czeta = cross(eta, zeta), cross(zeta, xi), cross(xi, eta)
    derivatives = [-cxi - ceta - czeta, cxi - ceta - czeta, cxi + ceta - czeta,
                   -cxi + ceta - czeta]
    return derivatives, 8 * (eta * ceta).sum(0)


def characteristic_length(x: list[Any], volume: Any) -> Any:
    most = 0.0
    for n0, n1, n2, n3 in SIDES:
        f, g = (x[n2] - x[n0]) - (x[n3] - x[n1]), (x[n2] - x[n0]) + (x[n3] - x[n1])
        most = np.maximum(most, (f * f).sum(0) * (g * g).sum(0) - (f * g).sum(0) ** 2)
    return 4 * volume / np.sqrt(most)


def volume_derivatives(x: list[Any]) -> Any:
    found = []
    for around in AROUND:
        p = [x[n] for n in around]
        found.append((cross(p[1] + p[2], p[0] + p[1]) + cross(p[0] + p[4], p[3] + p[4])
                      + cross(p[3] + p[5], p[2] + p[5])) / 12)
    return np.stack(found)  # corner, axis, elements


def element_forces(x: list[Any], v: list[Any], stress: Any, volume: Any, speed: Any,
                   mass: Any) -> Any:
    """Forces of all elements on their corners, from stress and against hourglass modes."""
    force = [np.zeros_like(x[0]) for _ in range(8)]
    for face in FACES:
        n0, n1, n2, n3 = (x[n] for n in face)
        area = .25 * cross(.5 * (n3 + n2 - n1 - n0), .5 * (n2 + n1 - n3 - n0))
        for n in face:
            force[n] = force[n] - stress * area
    places, velocities, slopes = np.stack(x), np.stack(v), volume_derivatives(x)
    modes = np.einsum("mc,cakji->makji", GAMMA, places)
    gamma = GAMMA.T[:, :, None, None, None] - np.einsum(
        "cakji,makji->cmkji", slopes, modes) / volume
    coefficient = -HOURGLASS * 0.01 * speed * mass / np.cbrt(volume)
    hourglass = np.einsum("cmkji,cakji->makji", gamma, velocities)
    return np.stack(force) + coefficient * np.einsum("cmkji,makji->cakji", gamma, hourglass)


def halves(parts: Any) -> tuple[Any, Any]:
    """Sums over corners at the nodes: of elements above a node, and of those below it."""
    *axes, k, j, i = parts[0].shape
    sums = [np.zeros((*axes, k + 1, j + 1, i + 1)) for _ in range(2)]
    for number, (dk, dj, di) in enumerate(CORNERS):
        sums[dk][..., dk:k + dk, dj:j + dj, di:i + di] += parts[number]
    return sums[0], sums[1]


def pressure_of(energy: Any, compression: Any, v: Any) -> tuple[Any, Any]:
    bvc = 2 / 3 * (compression + 1)
    p = bvc * energy
    return np.maximum(np.where((np.abs(p) < CUT) | (v >= V_MOST), 0, p), 0), bvc


def speed_of(energy: Any, v: Any, bvc: Any, p: Any) -> Any:
    square = 2 / 3 * energy + v * v * bvc * p
    return np.where(square <= .1111111e-36, .3333333e-18, np.sqrt(np.maximum(square, 0)))


def state_after(e: Any, p: Any, q: Any, v: Any, delv: Any, qq: Any, ql: Any) -> tuple[Any, ...]:
    """Energy, pressure, viscosity and speed of sound of all elements, by the equation of state."""
    def cut(energy: Any) -> Any:
        return np.maximum(np.where(np.abs(energy) < CUT, 0, energy), E_MIN)

    v = np.clip(v, V_LEAST, V_MOST)
    compression, half = 1 / v - 1, 1 / (v - delv * .5) - 1
    grows = delv > 0
    new = np.maximum(e - .5 * delv * (p + q), E_MIN)
    p_half, bvc = pressure_of(new, half, v)
    q_new = np.where(grows, 0, speed_of(new, 1 / (1 + half), bvc, p_half) * ql + qq)
    new = cut(new + .5 * delv * (3 * (p + q) - 4 * (p_half + q_new)))
    p_new, bvc = pressure_of(new, compression, v)
    q_tilde = np.where(grows, 0, speed_of(new, v, bvc, p_new) * ql + qq)
    new = cut(new - (7 * (p + q) - 8 * (p_half + q_new) + p_new + q_tilde) * delv / 6)
    p_new, bvc = pressure_of(new, compression, v)
    speed = speed_of(new, v, bvc, p_new)
    q_last = speed * ql + qq
    q_new = np.where(grows, q_new, np.where(np.abs(q_last) < CUT, 0, q_last))
    return new, p_new, q_new, speed


def slope_limit(delv: Any, before: Any, behind: Any) -> Any:
    norm = 1 / (delv + TINY)
    minus, plus = before * norm, behind * norm
    phi = np.minimum(np.minimum(.5 * (minus + plus), 2 * minus), 2 * plus)
    return np.clip(phi, 0, 1)


class Slab:
    """Layers of the cube, and the steps that they take with neighbours.

    Args:
        edge: of the cube, in elements.
        first, end: layers.
    """

    SAVED = ("x", "v", "e", "p", "q", "relative", "speed", "time", "dt", "cycle", "limits")

    def __init__(self, edge: int, first: int, end: int) -> None:
        self.edge, self.first, self.end = edge, first, end
        k, j, i = np.meshgrid(np.arange(first, end + 1), np.arange(edge + 1), np.arange(edge + 1),
                              indexing="ij")
        self.x = np.stack([1.125 * axis / edge for axis in (i, j, k)])
        self.volume = volume_of(corners(self.x))
        self.v = np.zeros_like(self.x)
        self.e = np.zeros_like(self.volume)
        self.p, self.q, self.speed = self.e.copy(), self.e.copy(), self.e.copy()
        self.relative = np.ones_like(self.e)
        start = 3.948746e7 * (edge / 45) ** 3
        if first == 0:
            self.e[0, 0, 0] = start
        self.time, self.cycle = 0.0, 0
        self.dt = float(.5 * np.cbrt((1.125 / edge) ** 3) / np.sqrt(2 * start))
        self.limits = np.array([1e20, 1e20])  # Courant's, and that of the change of volume
        self.mass: Any = None

    def step(self, below: Any, behind: Any, least: Any) -> None:
        """Take a step.

        Args:
            below: from a slab's sums at its lowest and highest plane returns both planes with what
                the neighbours have there: what is above it, then what is below.
            behind: from a slab's lowest and highest layer returns the layer below and that above.
            least: returns the least of all places' numbers.
        """
        if self.mass is None:
            above, under = halves([self.volume / 8] * 8)
            self.mass = self.joined(above, under, below)
        self._advance_time(least)
        self._move_nodes(below)
        self._change_elements(behind)

    def joined(self, above: Any, under: Any, below: Any) -> Any:
        """Sums at all nodes, those on shared planes with the neighbours' part."""
        lowest, highest = below(above[..., 0, :, :], under[..., -1, :, :])
        if lowest is not None:
            under[..., 0, :, :] = lowest
        if highest is not None:
            above[..., -1, :, :] = highest
        return above + under

    def _advance_time(self, least: Any) -> None:
        if self.cycle:
            courant, hydro = self.limits
            new = min(1e20, courant / 2 if courant < 1e20 else 1e20)
            new = least(min(new, hydro * 2 / 3 if hydro < new else new))
            ratio = new / self.dt
            if 1 <= ratio < 1.1:
                new = self.dt
            elif ratio > 1.2:
                new = self.dt * 1.2
            self.dt = min(new, DT_MAX)
        left = STOP_S - self.time
        if self.dt < left < 4 * self.dt / 3:
            left = 2 * self.dt / 3
        self.dt = min(self.dt, left)
        self.time += self.dt
        self.cycle += 1

    def _move_nodes(self, below: Any) -> None:
        forces = element_forces(corners(self.x), corners(self.v), -self.p - self.q,
                                self.volume * self.relative, self.speed, self.volume)
        acceleration = self.joined(*halves(forces), below) / self.mass
        acceleration[0, :, :, 0] = acceleration[1, :, 0, :] = 0
        if self.first == 0:
            acceleration[2, 0] = 0
        v = self.v + acceleration * self.dt
        self.v = np.where(np.abs(v) < CUT, 0, v)
        self.x = self.x + self.v * self.dt

    def _change_elements(self, behind: Any) -> None:
        x, v = corners(self.x), corners(self.v)
        volume = volume_of(x)
        relative = volume / self.volume
        delv = relative - self.relative
        length = characteristic_length(x, volume)
        middle = [a - .5 * self.dt * b for a, b in zip(x, v, strict=True)]
        slopes, determinant = shape_derivatives(middle)
        growth = sum(slope * (v[n] - v[m])
                     for slope, n, m in zip(slopes, range(4), (6, 7, 4, 5), strict=True))
        growth = growth.sum(0) / determinant  # of the volume, in a second
        qq, ql = self._viscosity(x, v, relative, growth, behind)
        self.e, self.p, self.q, self.speed = state_after(
            self.e, self.p, self.q, relative, delv, qq, ql)
        self.relative = np.where(np.abs(relative - 1) < V_CUT, 1, relative)
        self._limit(length, growth)

    def _viscosity(self, x: list[Any], v: list[Any], relative: Any, growth: Any,
                   behind: Any) -> tuple[Any, Any]:
        def across(f: list[Any], high: tuple[int, ...], low: tuple[int, ...]) -> Any:
            return .25 * (sum(f[n] for n in high) - sum(f[n] for n in low))

        sides = (((1, 2, 6, 5), (0, 3, 7, 4)), ((3, 2, 6, 7), (0, 1, 5, 4)),
                 ((4, 5, 6, 7), (0, 1, 2, 3)))
        i, j, k = (across(x, *side) for side in sides)
        volume = self.volume * relative
        rho = self.volume / volume
        linear, quadratic = 0.0, 0.0
        for axis, (normal, side) in enumerate(zip((cross(j, k), cross(k, i), cross(i, j)), sides,
                                                  strict=True)):
            delx = volume / np.sqrt((normal * normal).sum(0) + TINY)
            delv = (normal / (volume + TINY) * across(v, *side)).sum(0)
            layers = np.moveaxis(delv, 2 - axis, 0)
            low, high = behind(layers[0], layers[-1]) if axis == 2 else (None, None)
            ghost = np.zeros_like(layers[:1])
            before = np.concatenate([layers[:1] if low is None else low[None], layers[:-1]])
            after = np.concatenate([layers[1:], ghost if high is None else high[None]])
            phi = slope_limit(delv, *(np.moveaxis(f, 0, 2 - axis) for f in (before, after)))
            change = np.minimum(delv * delx, 0)
            linear = linear + change * (1 - phi)
            quadratic = quadratic + change * change * (1 - phi * phi)
        grows = growth > 0
        return (np.where(grows, 0, QUADRATIC * rho * quadratic),
                np.where(grows, 0, -QLC * rho * linear))

    def _limit(self, length: Any, growth: Any) -> None:
        moves = growth != 0
        if not moves.any():
            self.limits = np.array([1e20, 1e20])
            return
        square = self.speed ** 2 + np.where(
            growth < 0, 64 * QQC * QQC * length ** 2 * growth ** 2, 0)
        courant = np.where(moves, length / np.sqrt(np.where(moves, square, 1)), 1e20)
        hydro = np.where(moves, .1 / (np.abs(growth) + 1e-20), 1e20)
        self.limits = np.array([courant.min(), hydro.min()])


class Lulesh(apgas.SPMDIterativeApp):
    """A slab of the cube at each place.

    Args:
        edge: of the cube, in elements; as many as places, or more.
        steps: at most; 0: until the end of the simulated time.
    """

    def __init__(self, edge: int, steps: int = 0) -> None:
        group = apgas.group()
        ordinal, places = group.index_of(apgas.here()), len(group)
        if edge < places:
            raise ValueError(f"a cube of {edge} layers has no slabs for {places} places")
        self.slab = Slab(edge, edge * ordinal // places, edge * (ordinal + 1) // places)
        self.steps = steps

    def is_finished_local(self) -> bool:
        return self.slab.time >= STOP_S or self.slab.cycle == self.steps > 0

    def remake_local(self, changes: Any, team: Any) -> None:
        self.slab.mass = None  # all places exchange the masses of shared planes anew

    def step_local(self, team: Any) -> None:
        me = team.ordinal

        def exchange(low: Any, high: Any) -> tuple[Any, Any]:
            gives = [low if other == me - 1 else high if other == me + 1 else None
                     for other in range(team.size)]
            came = team.alltoall(gives)
            return (came[me - 1] if me else None,
                    came[me + 1] if me + 1 < team.size else None)

        self.slab.step(exchange, exchange, lambda dt: float(team.allreduce(dt, "min")))

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        return {name: getattr(self.slab, name) for name in Slab.SAVED}

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.slab.__dict__.update(saved)

    def result_local(self) -> dict[int, Any]:
        return {self.slab.first: self.slab.e}


def oracle(edge: int, steps: int = 0) -> Slab:
    """The whole cube, computed in one process."""
    slab = Slab(edge, 0, edge)
    while slab.time < STOP_S and not slab.cycle == steps > 0:
        slab.step(lambda low, high: (None, None), lambda low, high: (None, None), lambda dt: dt)
    return slab
