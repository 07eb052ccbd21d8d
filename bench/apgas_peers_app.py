"""The program of `bench apgas --peers`: one driver, some workers, in the words of each system.

`SYSTEM MEASURE WORKERS` are its arguments. The last line of output is one JSON object, see
`measured`. Each system has its workers behind an object with four methods; everything that is timed
is written once for all of them.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import kmeans
import uts
from apgas_peers_tasks import (
    CLUSTERS,
    DEPTH,
    DIMENSIONS,
    POINTS,
    STEPS,
    nodes_of,
    nothing,
    points,
    sums,
)

SECONDS = 0.5  # for each call that is repeated
LEAST = 10  # times that a call is repeated, however long one takes
PARTS_PER_WORKER = 64  # of the tree, where the system divides no bags by itself


class Workers(Protocol):
    """Processes beside the driver, numbered from 0."""

    def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function at a worker, or at what stands for it after its death."""

    def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a function at every worker at a time, with its own arguments."""

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Call a function for each item, at whichever workers."""


# ---- the systems --------------------------------------------------------------------------------


def by_futures(workers: int) -> Workers:
    """`concurrent.futures`: a pool whose processes are no one's own; a death breaks all of it."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    class Pool:
        def __init__(self) -> None:
            self.pool = ProcessPoolExecutor(workers)

        def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return self.pool.submit(function, *arguments).result()
            except BrokenProcessPool:
                self.pool = ProcessPoolExecutor(workers)
                return self.pool.submit(function, *arguments).result()

        def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
                 ) -> list[Any]:
            found = [self.pool.submit(function, *one) for one in arguments]
            return [one.result() for one in found]

        def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            return list(self.pool.map(function, items))

    return Pool()


def by_ray(workers: int) -> Workers:
    """Ray: an actor for each worker, which is started again after a death."""
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False,
             logging_level="ERROR", configure_logging=False)

    @ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)  # type: ignore[untyped-decorator]
    class Actor:
        def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
            return function(*arguments)

    class Actors:
        def __init__(self) -> None:
            self.actors = [Actor.remote() for _ in range(workers)]

        def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Any:
            return ray.get(self.actors[worker].do.remote(function, *arguments))

        def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
                 ) -> list[Any]:
            found = [actor.do.remote(function, *one)
                     for actor, one in zip(self.actors, arguments, strict=True)]
            return ray.get(found)  # type: ignore[no-any-return]

        def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            pool = ray.util.ActorPool(self.actors)
            return list(pool.map_unordered(lambda actor, one: actor.do.remote(function, one),
                                           items))

    return Actors()


def by_dask(workers: int) -> Workers:
    """Dask: worker processes of one thread, each under a nanny that starts it again."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None,
                           silence_logs=50)
    client = Client(cluster)
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])

    class Cluster:
        def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Any:
            return client.submit(function, *arguments, workers=[addresses[worker]],
                                 allow_other_workers=True, pure=False).result()

        def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
                 ) -> list[Any]:
            found = [client.submit(function, *one, workers=[address], pure=False)
                     for address, one in zip(addresses, arguments, strict=True)]
            return client.gather(found)  # type: ignore[no-any-return]

        def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            return client.gather(  # type: ignore[no-any-return]
                client.map(function, items, pure=False))

    return Cluster()


def by_charm(workers: int) -> Workers:
    """charm4py: a chare on each processing element but the driver's; a death ends the job."""
    from charm4py import Group, charm

    group = Group(globals()["Worker"])

    class Chares:
        def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Any:
            return group[worker + 1].do(function, arguments, ret=True).get()

        def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
                 ) -> list[Any]:
            found = [group[i + 1].do(function, one, ret=True) for i, one in enumerate(arguments)]
            return [one.get() for one in found]

        def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            return charm.pool.map(function, items)  # type: ignore[no-any-return]

    return Chares()


def by_places(workers: int) -> Workers:
    """`ftrma.apgas`: the places but place zero; a reserve answers for a dead one."""
    from ftrma import apgas

    class Places:
        def __init__(self) -> None:
            self.places = list(apgas.places())[1:workers + 1]

        def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return apgas.at(self.places[worker], function, *arguments)
            except apgas.DeadPlaceException:
                self.places[worker] = next(iter(apgas.reserves()))
                return apgas.at(self.places[worker], function, *arguments)

        def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
                 ) -> list[Any]:
            found: list[Any] = [None] * workers

            def one(i: int) -> None:
                found[i] = apgas.at(self.places[i], function, *arguments[i])

            with apgas.finish():
                for i in range(workers):
                    apgas.async_(one, i)
            return found

        def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            with apgas.Executor(self.places) as executor:
                return list(executor.map(function, items))

    return Places()


# ---- what is measured ---------------------------------------------------------------------------


def timed(once: Callable[[], object]) -> float:
    """Median seconds of one call."""
    for _ in range(LEAST):
        once()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < LEAST:
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def after_a_kill(workers: Workers) -> float:
    """Seconds from a worker's SIGKILL to the answer of a call that was meant for it."""
    victim = workers.call(0, os.getpid)
    assert victim != os.getpid()
    began = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    answered = workers.call(0, os.getpid)
    seconds = time.perf_counter() - began
    assert answered != victim
    return seconds


def step_of_kmeans(workers: Workers, count: int) -> float:
    """Median seconds of a step, whose driver adds the parts up."""
    centres = points(0)[:CLUSTERS].copy()
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        parts = workers.each(sums, [(i, centres) for i in range(count)])
        total, number = parts[0]
        for more, others in parts[1:]:
            total, number = total + more, number + others
        centres = total / number.clip(1)[:, None]
        times.append(time.perf_counter() - began)
    expected = kmeans.oracle(count, POINTS, CLUSTERS, DIMENSIONS, STEPS)
    assert centres.tobytes() == expected.tobytes(), "KMeans is wrong"
    return statistics.median(times[2:])  # a worker makes its points in the first steps


def parts_of_tree(count: int) -> tuple[int, list[Any]]:
    """Nodes that were counted on the way, and at least so many bags with all others."""
    bags = [uts.Nodes.root(DEPTH)]
    while len(bags) < count:
        largest = max(bags, key=lambda bag: len(bag.nodes))
        part = largest.split()
        if part is None:
            largest.process(20)
        else:
            bags.append(part)
    done = sum(bag.result for bag in bags)
    for bag in bags:
        bag.result = 0
    return done, bags


def rate_of_search(workers: Workers, count: int) -> float:
    """Nodes of the tree that are counted in a second."""
    workers.map(nodes_of, [uts.Nodes(DEPTH)] * count)  # workers load the module
    began = time.perf_counter()
    done, bags = parts_of_tree(PARTS_PER_WORKER * count)
    found = done + sum(workers.map(nodes_of, bags))
    seconds = time.perf_counter() - began
    assert found == uts.SIZES[DEPTH], found
    return found / seconds


def measured(what: str, workers: Workers, count: int, survives: bool) -> dict[str, float | None]:
    """The times of one kind: of a call; of calls at all workers at a time; of programs."""
    if what == "call":
        return {"call": timed(lambda: workers.call(0, nothing))}
    if what == "calls":
        found: dict[str, float | None] = {
            "fan-out": timed(lambda: workers.each(nothing, [()] * count))}
        found["kill"] = after_a_kill(workers) if survives else None
        return found
    return {"kmeans": step_of_kmeans(workers, count), "uts": rate_of_search(workers, count)}


SYSTEMS = {"apgas": by_places, "futures": by_futures, "ray": by_ray, "dask": by_dask,
           "charm": by_charm}


def main(_arguments: object = None) -> None:
    system, what, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    found = measured(what, SYSTEMS[system](count), count, survives=system != "charm")
    print(json.dumps(found), flush=True)
    if system == "charm":
        from charm4py import charm

        charm.exit()


if __name__ == "__main__":
    if sys.argv[1] == "apgas":
        from ftrma import apgas

        apgas.run(main)
    elif sys.argv[1] == "charm":
        from charm4py import Chare, charm

        class Worker(Chare):  # charm4py looks for it here when it starts
            def do(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
                return function(*arguments)

        charm.start(main)
    else:
        main()
