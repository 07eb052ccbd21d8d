"""`apgas.Executor`, in real processes: the habits of `concurrent.futures`, and deaths."""

from __future__ import annotations

import asyncio
import time
from concurrent import futures
from typing import Any

import numpy as np
import pytest
from placeprograms import run_program

from ftrma import apgas


def square(i: int) -> int:
    return i * i


def where(pause_s: float = 0.0) -> int:
    time.sleep(pause_s)
    return apgas.here()


def test_submit_and_map() -> None:
    def main() -> Any:
        with apgas.Executor() as executor:
            submitted = [executor.submit(square, i) for i in range(20)]
            results = [future.result() for future in submitted]
            assert results == list(executor.map(square, range(20)))
            assert results == list(executor.map(square, range(20), chunksize=3))
            return results

    assert run_program(3, main) == [i * i for i in range(20)]


def test_alone() -> None:
    """Law: a place that is alone runs functions itself."""
    assert run_program(1, lambda: apgas.Executor().submit(square, 3).result()) == 9


def test_standard_waiting() -> None:
    """Law: the standard library's `as_completed` and `wait` do not block the place."""
    def main() -> Any:
        executor = apgas.Executor()
        submitted = [executor.submit(square, i) for i in range(12)]
        found = sorted(future.result() for future in futures.as_completed(submitted, 10))
        more = [executor.submit(square, i) for i in range(12)]
        done, rest = futures.wait(more, 10, futures.FIRST_COMPLETED)
        assert done and len(done | rest) == 12
        done, rest = futures.wait(more, 10)
        assert len(done) == 12 and not rest
        return found

    assert run_program(3, main) == [i * i for i in range(12)]


def test_coroutines() -> None:
    def main() -> Any:
        executor = apgas.Executor()

        async def both() -> list[int]:
            first = await executor.submit(square, 3)
            return [first, *await asyncio.gather(*(executor.submit(square, i) for i in range(5)))]

        return asyncio.run(both())

    assert run_program(2, main) == [9, 0, 1, 4, 9, 16]


def test_time_outs() -> None:
    def main() -> None:
        future = apgas.Executor().submit(where, 0.3)
        with pytest.raises(futures.TimeoutError):
            future.result(0.01)
        assert future.running() and not future.done()
        with pytest.raises(futures.TimeoutError):
            next(futures.as_completed([future], 0.01))
        assert future.result() == 1

    run_program(2, main)


def test_cancelling() -> None:
    """Law: a function that no place has begun can be cancelled."""
    def main() -> None:
        executor = apgas.Executor()
        submitted = [executor.submit(where, 0.02) for _ in range(8)]
        assert submitted[-1].cancel() and not submitted[0].cancel()
        executor.shutdown(cancel_futures=True)
        assert [future.cancelled() for future in submitted] == [False] * 2 + [True] * 6
        with pytest.raises(RuntimeError, match="shut down"):
            executor.submit(where)

    run_program(2, main)


def fail(what: Any) -> None:
    raise ValueError(what)


class Odd(Exception):
    """Cannot be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")


def odd() -> None:
    raise Odd(1, 2)


def test_errors() -> None:
    """Law: an exception is that of the future, also one that cannot travel."""
    def main() -> None:
        executor = apgas.Executor()
        with pytest.raises(ValueError, match="no"):
            executor.submit(fail, "no").result()
        assert isinstance(executor.submit(fail, "no").exception(), ValueError)
        with pytest.raises(apgas.RemoteError):
            executor.submit(odd).result()
        with pytest.raises(TypeError, match="pickle"):
            executor.submit(time.sleep, (i for i in ())).result()
        with pytest.raises(TypeError, match="pickle"):
            executor.submit(unpicklable).result()

    run_program(2, main)


def unpicklable() -> Any:
    return (i for i in ())


def test_arrays() -> None:
    def main() -> None:
        x = np.arange(300_000.0)
        (found,) = apgas.Executor().map(np.sqrt, [x])
        assert found.tobytes() == np.sqrt(x).tobytes()

    run_program(2, main)


def die_once(i: int) -> int:
    """Square a number, which kills place 1 with 0: the first function of all is sent there."""
    if i == 0 and apgas.here() == 1:
        apgas.kill_here()
    return i * i


def test_a_death() -> None:
    """Law: functions of the dead place are told; others go on; no future stays open."""
    def main() -> Any:
        executor = apgas.Executor([1, 2])
        submitted = [executor.submit(die_once, i) for i in range(30)]
        errors = [future.exception() for future in submitted]
        lost = [error for error in errors if error]
        assert all(isinstance(error, apgas.DeadPlaceException) and error.place == 1
                   for error in lost)
        return len(lost)

    assert 1 <= run_program(3, main, kills=[(1, "never", 1)]) <= 2


def test_a_death_with_retries() -> None:
    def main() -> Any:
        executor = apgas.Executor([1, 2], retries=1)
        return list(executor.map(die_once, range(30)))

    found = run_program(3, main, kills=[(1, "never", 1)])
    assert found == [i * i for i in range(30)]


def test_all_places_are_dead() -> None:
    def main() -> None:
        executor = apgas.Executor([1], retries=3)
        first = executor.submit(die_once, 0)
        assert isinstance(first.exception(), apgas.DeadPlaceException)
        assert isinstance(executor.submit(square, 1).exception(), apgas.DeadPlaceException)

    run_program(2, main, kills=[(1, "never", 1)])


def test_arguments() -> None:
    def main() -> None:
        with pytest.raises(ValueError, match="one or more"):
            apgas.Executor([])
        with pytest.raises(ValueError, match="retries=-1"):
            apgas.Executor(retries=-1)
        with pytest.raises(ValueError, match="chunksize=0"):
            apgas.Executor().map(square, [1], chunksize=0)

    run_program(1, main)
