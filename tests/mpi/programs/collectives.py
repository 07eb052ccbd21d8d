"""Every blocking collective call on the world against what NumPy computes from all ranks' data.

`numbers` gives any rank's data to every rank, so each knows what it must receive.
"""

import json

import numpy as np
from common import MPI, RESULTS, comm, me, n, numbers

AREA = 262_144 // 8  # doubles; more than what slots show each other at a time
COUNTS = (0, 1, 7, 1000, AREA - 8, AREA, 2 * AREA + 3)
UNTOUCHED = -1.0
checks: dict[str, int] = {}


def check(call: str, got: object, expected: object) -> None:
    assert np.array_equal(np.asarray(got), np.asarray(expected)), (call, me, got, expected)
    checks[call] = checks.get(call, 0) + 1


def of(rank: int, count: int, dtype: str = "f8") -> np.ndarray:
    return numbers(f"{count} {dtype}", count, dtype, rank)


def every(count: int, dtype: str = "f8") -> np.ndarray:
    return np.array([of(rank, count, dtype) for rank in range(n)]).reshape(n, count)


def empty(*shape: int) -> np.ndarray:
    return np.full(shape, UNTOUCHED)


def moves(count: int) -> None:
    mine, all_ = of(me, count), every(count)
    for root in {0, n - 1}:
        here = me == root
        data = mine.copy() if here else empty(count)
        comm.Bcast(data, root)
        check("Bcast", data, all_[root])
        out = empty(n, count) if here else None
        comm.Gather(mine, out, root)
        check("Gather", out, all_ if here else None)
        if here:
            out[:] = UNTOUCHED
            out[me] = mine
        comm.Gather(MPI.IN_PLACE if here else mine, out, root)
        check("Gather in place", out, all_ if here else None)
        table = every(count) if here else None
        part = empty(count)
        comm.Scatter(table, part, root)
        check("Scatter", part, mine)
        comm.Scatter(table, MPI.IN_PLACE if here else part, root)
        check("Scatter in place", table if here else part, all_ if here else mine)
    out = empty(n, count)
    comm.Allgather(mine, out)
    check("Allgather", out, all_)
    out[:] = UNTOUCHED
    out[me] = mine
    comm.Allgather(MPI.IN_PLACE, out)
    check("Allgather in place", out, all_)
    crossed = np.array([np.roll(of(rank, count), me) + rank for rank in range(n)]).reshape(n, count)
    sent = np.array([np.roll(mine, to) + me for to in range(n)]).reshape(n, count)
    out = empty(n, count)
    comm.Alltoall(sent, out)
    check("Alltoall", out, crossed)
    comm.Alltoall(MPI.IN_PLACE, sent)
    check("Alltoall in place", sent, crossed)


def uneven(count: int) -> None:
    """Rank r has r shares of its data; blocks lie in reverse order, with gaps of one."""
    sizes = [rank * count for rank in range(n)]
    places = [sum(s + 1 for s in sizes[rank + 1 :]) for rank in range(n)]
    mine = of(me, sizes[me])
    expected = empty(sum(sizes) + n)
    for rank in range(n):
        expected[places[rank] : places[rank] + sizes[rank]] = of(rank, sizes[rank])
    out = empty(expected.size)
    comm.Allgatherv(mine, [out, sizes, places, MPI.DOUBLE])
    check("Allgatherv", out, expected)
    out[places[me] : places[me] + sizes[me]] = mine
    comm.Allgatherv(MPI.IN_PLACE, [out, sizes, places, MPI.DOUBLE])
    check("Allgatherv in place", out, expected)
    for root in {0, n - 1}:
        here = me == root
        out = empty(expected.size)
        comm.Gatherv(mine, [out, sizes, places, MPI.DOUBLE] if here else None, root)
        check("Gatherv", out, expected if here else empty(expected.size))
        part = empty(sizes[me])
        source = [expected, sizes, places, MPI.DOUBLE] if here else None
        comm.Scatterv(source, part, root)
        check("Scatterv", part, mine)
    everyone(count)


def everyone(count: int) -> None:
    """Rank r sends (r + to) % n shares of its data to rank `to`."""
    sizes = [(me + to) % n * count for to in range(n)]
    places = np.concatenate([[0], np.cumsum(sizes)])[:n].tolist()
    sent = np.concatenate([of(me, size) + to for to, size in enumerate(sizes)])
    expected = np.concatenate([of(rank, size) + me for rank, size in enumerate(sizes)])
    out = empty(sum(sizes))
    comm.Alltoallv([sent, sizes, places, MPI.DOUBLE], [out, sizes, places, MPI.DOUBLE])
    check("Alltoallv", out, expected)
    comm.Alltoallv(MPI.IN_PLACE, [sent, sizes, places, MPI.DOUBLE])
    check("Alltoallv in place", sent, expected)


OPS = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum,
       "BXOR": np.bitwise_xor, "LAND": np.logical_and}


def reductions(count: int, dtype: str, name: str) -> None:
    op, combine = getattr(MPI, name), OPS[name]
    mine, all_ = of(me, count, dtype), every(count, dtype)
    total = combine.reduce(all_, axis=0).astype(dtype)
    so_far = combine.reduce(all_[: me + 1], axis=0).astype(dtype)
    before = combine.reduce(all_[:me], axis=0).astype(dtype) if me else np.full(count, 9, dtype)
    out = np.full(count, 9, dtype)
    for root in {0, n - 1}:
        out[:] = 9
        comm.Reduce(mine, out if me == root else None, op, root)
        check("Reduce", out, total if me == root else np.full(count, 9, dtype))
        out[:] = mine
        comm.Reduce(MPI.IN_PLACE if me == root else mine, out, op, root)
        check("Reduce in place", out, total if me == root else mine)
    for label, call, expected in (
        ("Allreduce", comm.Allreduce, total),
        ("Scan", comm.Scan, so_far),
        ("Exscan", comm.Exscan, before),
    ):
        out[:] = 9
        call(mine, out, op)
        check(label, out, expected)
        out[:] = mine
        call(MPI.IN_PLACE, out, op)
        check(f"{label} in place", out, mine if label == "Exscan" and not me else expected)


def scattered(count: int) -> None:
    """Reduce_scatter: rank r gets r + 1 shares, or one each."""
    for sizes in ([(rank + 1) * count for rank in range(n)], [count] * n):
        begin, size = sum(sizes[:me]), sizes[me]
        mine, total = of(me, sum(sizes)), every(sum(sizes)).sum(0)
        expected = total[begin : begin + size]
        out = empty(size)
        comm.Reduce_scatter(mine, out, sizes)
        check("Reduce_scatter", out, expected)
        inout = mine.copy()
        comm.Reduce_scatter(MPI.IN_PLACE, inout, sizes)
        check("Reduce_scatter in place", inout[:size], expected)
    out = empty(count)
    comm.Reduce_scatter_block(mine, out)
    check("Reduce_scatter_block", out, expected)
    inout = mine.copy()
    comm.Reduce_scatter_block(MPI.IN_PLACE, inout)
    check("Reduce_scatter_block in place", inout[:count], expected)


def derived() -> None:
    """Every third of a row, received as a block and the other way round; a part of one element
    larger than an area; blocks of resized vectors, which are interleaved."""
    for count in (5, AREA + 11):
        mine = of(me, 3 * count)
        thirds = MPI.DOUBLE.Create_vector(count, 1, 3).Commit()
        out = empty(n, count)
        comm.Allgather([mine, 1, thirds], out)
        check("Allgather derived", out, every(3 * count)[:, ::3])
        data = mine.copy() if me == 0 else empty(3 * count)
        comm.Bcast([data, 1, thirds] if me else [mine[::3].copy(), count, MPI.DOUBLE], 0)
        if me:
            expected = empty(3 * count)
            expected[::3] = of(0, 3 * count)[::3]
            check("Bcast derived", data, expected)
        column = MPI.DOUBLE.Create_vector(count, 1, n).Create_resized(0, 8).Commit()
        woven = empty(count, n)
        comm.Gather(mine[:count].copy(), [woven, 1, column] if me == 0 else None, 0)
        if me == 0:
            check("Gather derived", woven, every(3 * count)[:, :count].T)
        woven[:] = mine[0] + np.arange(n)
        out = empty(n, count)
        comm.Alltoall([woven, 1, column], [out, count, MPI.DOUBLE])
        check("Alltoall derived", out[:, 0], [of(rank, 3 * count)[0] + me for rank in range(n)])
        comm.Alltoall(MPI.IN_PLACE, [woven, 1, column])
        check("Alltoall derived in place", woven.T, out)


def compose(a: object, b: object, datatype: MPI.Datatype) -> None:
    """Maps x -> p x + q modulo a prime, applied one after the other: not commutative."""
    left = np.frombuffer(a, "i8").reshape(-1, 2)
    right = np.frombuffer(b, "i8").reshape(-1, 2)
    p, q = left.T.copy()
    right[:, 1] = (right[:, 0] * q + right[:, 1]) % 9973
    right[:, 0] = p * right[:, 0] % 9973


def chain(maps: np.ndarray) -> np.ndarray:
    result = maps[-1].copy()
    for one in reversed(maps[:-1]):
        compose(one, result, MPI.INT64_T)
    return result


def user_operations() -> None:
    op = MPI.Op.Create(compose, commute=False)
    for count in (1, 33, AREA + 5):
        all_ = every(2 * count, "i8").reshape(n, count, 2)
        pair = MPI.INT64_T.Create_contiguous(2).Commit()
        big = MPI.INT64_T.Create_contiguous(2 * count).Commit()
        mine, out = all_[me].copy(), np.zeros((count, 2), "i8")
        for kind, elements in ((pair, count), (big, 1)):
            out[:] = 0
            comm.Allreduce([mine, elements, kind], [out, elements, kind], op)
            check("Allreduce user", out, chain(all_))
            out[:] = 0
            comm.Scan([mine, elements, kind], [out, elements, kind], op)
            check("Scan user", out, chain(all_[: me + 1]))
    plain = MPI.Op.Create(lambda a, b, _: np.add(np.frombuffer(a), np.frombuffer(b),
                                                 out=np.frombuffer(b)), commute=True)
    out = empty(50)
    comm.Allreduce(of(me, 50), out, plain)
    check("Allreduce user commutative", out, every(50).sum(0))
    dtype = np.dtype([("value", "f8"), ("at", "i4")], align=True)
    mine, best = np.zeros(40, dtype), np.zeros(40, dtype)
    mine["value"], mine["at"] = of(me, 40) % 5, me
    comm.Allreduce([mine, 40, MPI.DOUBLE_INT], [best, 40, MPI.DOUBLE_INT], MPI.MAXLOC)
    check("Allreduce MAXLOC", best["at"], (every(40) % 5).argmax(0))


def objects() -> None:
    value = {"rank": me, "text": "x" * (me * 100_000)}
    all_ = [{"rank": rank, "text": "x" * (rank * 100_000)} for rank in range(n)]
    for got, expected in (
        (comm.bcast(value, n - 1), all_[n - 1]),
        (comm.gather(value, 0), None if me else all_),
        (comm.allgather(value), all_),
        (comm.scatter(all_ if me == 0 else None, 0), value),
        (comm.alltoall([(me, to) for to in range(n)]), [(rank, me) for rank in range(n)]),
        (comm.reduce([me], root=n - 1), list(range(n)) if me == n - 1 else None),
        (comm.allreduce([me]), list(range(n))),
        (comm.scan([me]), list(range(me + 1))),
        (comm.exscan([me]), list(range(me)) if me else None),
    ):
        assert got == expected, (got, expected)
        checks["objects"] = checks.get("objects", 0) + 1


for count in COUNTS:
    moves(count)
    uneven(count)
    scattered(count)
    reductions(count, "f8", "SUM")
for dtype, name in (("i4", "BXOR"), ("i8", "PROD"), ("f4", "MAX"), ("u1", "MIN"), ("?", "LAND")):
    reductions(517, dtype, name)
derived()
user_operations()
objects()
(RESULTS / f"checks-{me}.json").write_text(json.dumps(checks))
