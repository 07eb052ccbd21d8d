"""Erroneous, and legal but odd calls on windows say what the library itself says.

The library has two answers, since its windows from Allocate (osc/sm on one node) and from Create
(osc/rdma) are two pieces of code, of which the first looks at next to nothing; ftrma has one for
both, and it must be one of these two. Where both are wrong, or crash, ftrma says what it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import run_job, run_plain

PROGRAM = Path(__file__).parent / "programs" / "calls_table.py"
RANKS = 2

# The library's answers, from Allocate and from Create where they differ, by a case's label.
# (Its windows from Create take the sizes of both sides for equal where one has holes.)
RAW = """\
put fewer: none
put fewer bytes: none
put fewer into holes: none, crash
put half an element: none, crash
put a part of a mixed element: none, crash
put from holes: none, crash
put nothing: none
put into the whole part and more: none, RMA_RANGE
put more: TRUNCATE, none
put more into holes: TRUNCATE, none
put into nothing: TRUNCATE, none
get fewer: none
get fewer from holes: none
get fewer into holes: none
get nothing: none
get more: TRUNCATE, none
get more from holes: TRUNCATE, crash
accumulate fewer: none
accumulate fewer into holes: none, crash
accumulate from holes: none, crash
replace fewer into holes: none, crash
accumulate more: none
accumulate more into holes: none
get_accumulate: none
get_accumulate fewer: none
get_accumulate fewer into holes: none, crash
get_accumulate more: none
get_accumulate small result: TRUNCATE, none
get_accumulate nothing: none
requests: none
disp: DISP
disp get: DISP
disp accumulate: DISP
disp fetch: DISP
disp swap: DISP
count: COUNT
type: TYPE
type not committed: TYPE
rank: RANK
rank below: RANK
nobody: none
nobody and disp: DISP
op of the program: OP
op of the program, get: OP
op of the program, fetch: none
op null: OP
op null, fetch: crash
op of integers: OP
op of pairs: OP
op none: OP
op for a mixed type: ARG
replace a mixed type: none, TYPE
swap of doubles: none
swap of bytes: none
swap of a layout: none
lock after lock_all: RMA_SYNC
lock_all twice: RMA_SYNC
unlock after lock_all: none, RMA_SYNC
flush: none
flush rank: none, crash
flush nobody: none, crash
flush_local: none
flush_all: none
fence in lock_all: none, RMA_SYNC
start in lock_all: none, RMA_SYNC
put outside: none, RMA_SYNC
get outside: none, RMA_SYNC
accumulate outside: none, RMA_SYNC
put outside to nobody: none
put elsewhere: none, RMA_SYNC
put not started: none, RMA_SYNC
put after the last fence: none, RMA_SYNC
request in a fence epoch: none
unlock: RMA_SYNC
unlock rank: RANK
unlock_all: RMA_SYNC
flush unlocked: none, RMA_SYNC
flush_local unlocked: none, RMA_SYNC
flush_all unlocked: none, RMA_SYNC
flush_local_all unlocked: none, RMA_SYNC
flush another: none, RMA_SYNC
flush in a fence epoch: none, RMA_SYNC
flush_all in a fence epoch: none, RMA_SYNC
flush after Start: none, RMA_SYNC
sync outside: none
lock twice: RMA_SYNC, hang
lock_all after lock: RMA_SYNC, hang
lock rank: RANK
lock rank n: RANK
lock nobody: RANK
unlock nobody: RANK
lock type: LOCKTYPE
lock assert: ASSERT
lock_all assert: ASSERT
fence assert: ASSERT
post assert: ASSERT
start assert: ASSERT
complete: RMA_SYNC, none
complete again: RMA_SYNC
wait: RMA_SYNC
wait again: RMA_SYNC
test: RMA_SYNC
test done: none
test again: RMA_SYNC
start twice: RMA_SYNC
post twice: RMA_SYNC
post null: none
start null: none
start of nobody: none
post for nobody: none
fence after Start: none, RMA_SYNC
lock after Start: none, RMA_SYNC
lock in a fence epoch: none
lock_all in a fence epoch: none
start in a fence epoch: none
name: none
name again: none
attributes: none
group: none
shared_query: WIN, RMA_FLAVOR
create unit 0: DISP
create unit -1: DISP
allocate unit 0: DISP
allocate unit -1: DISP
allocate size: SIZE
allocate none: none
create none: none
allocate nowhere: COMM
create nowhere: COMM
name of Create: none
null put: WIN
null get: WIN
null fence: WIN
null lock: WIN
null flush: WIN
null free: WIN
null complete: WIN
null test: WIN
null name: none
null group: WIN
initialized: none
thread: none
"""
# Legal, and yet what the library gets is too much.
BADLY = {"Create get fewer", "Create requests"}
# Their outcome depends on more than the call: on what lies behind, on who is first.
UNSTEADY = {"accumulate more", "accumulate more into holes", "get_accumulate more",
            "lock_all after lock"}
BEYOND = "the library writes behind the target's count"
NOBODY = "what goes to MPI_PROC_NULL is not looked at"
DIFFERENT = {
    "accumulate more": ("TRUNCATE", BEYOND),
    "accumulate more into holes": ("TRUNCATE", BEYOND),
    "get_accumulate more": ("TRUNCATE", BEYOND),
    "nobody and disp": ("none", NOBODY),
    "op of the program, fetch": ("OP", "the library calls it, on whatever it finds"),
    "op null, fetch": ("OP", "the library crashes"),
    "swap of a layout": ("TYPE", "the library swaps some of its bytes"),
    "flush rank": ("RANK", "the library takes no notice, or crashes"),
    "post null": ("GROUP", "the library takes it for an empty group"),
    "start null": ("GROUP", "the library takes it for an empty group"),
}


def answers(label: str) -> list[str]:
    """Answers of the library, first with this kind of window."""
    return TABLE[bare(label)][:: -1 if label.startswith("Create") else 1]


def bare(label: str) -> str:
    """The case, without the kind of window."""
    return label.removeprefix("Allocate ").removeprefix("Create ")


TABLE = {case: said.split(", ") for case, said in (line.split(": ") for line in RAW.splitlines())}


@pytest.fixture(scope="module")
def protected() -> list[dict[str, Any]]:
    result = run_job(PROGRAM, RANKS, "--interval", "never", timeout=30)
    assert result.status == 0, result
    return result.of_slots("noted", RANKS)


def test_each_error_is_the_librarys(protected: list[dict[str, Any]]) -> None:
    """Law: the class of one of the library's two answers, but for those listed."""
    wrong = []
    for rank, noted in enumerate(protected):
        for label, (found, *_) in noted.items():
            said, (expected, _) = answers(label), DIFFERENT.get(bare(label), ("", ""))
            assert expected not in said, f"{label} is listed as different, and is not"
            if found.removeprefix("ERR_") not in ([expected] if expected else said):
                wrong.append(f"rank {rank}, {label}: {found}; the library: {said}")
    assert not wrong, "\n".join(wrong)


def test_an_error_leaves_no_trace(protected: list[dict[str, Any]]) -> None:
    """Law: the target's memory is as it was."""
    for rank, noted in enumerate(protected):
        for label, (error, *values) in noted.items():
            if error != "none":
                expected = [10.0 * (rank + 1) + i / 8 for i in range(12)]
                assert values[1:] in ([], [expected]), label


def test_cases_listed_exist(protected: list[dict[str, Any]]) -> None:
    """Law: the tables hold the cases of the program."""
    assert {bare(label) for label in protected[0]} == TABLE.keys()
    assert TABLE.keys() >= DIFFERENT.keys()


def is_right(label: str, ours: list[Any], raw: list[Any]) -> bool:
    """The library has done what the table says, and where it did it well, ours is the same."""
    error, *values = raw
    if error.removeprefix("ERR_") != answers(label)[0]:
        return False
    if ours[0] != error or error != "none" or label in BADLY:
        return True
    if bare(label) in ("name", "name of Create"):
        return ours[1].rstrip("0123456789") == values[0].rstrip("0123456789")
    return ours[1:] == values


@pytest.mark.nightly
@pytest.mark.parametrize("case", sorted(TABLE.keys() - UNSTEADY))
def test_what_the_library_does(protected: list[dict[str, Any]], case: str) -> None:
    """Law: the table is right, and so is the value that a legal call brings."""
    for label in (f"Allocate {case}", f"Create {case}", case):
        if label in protected[0] and answers(label)[0] not in ("crash", "hang"):
            result = run_plain(PROGRAM, RANKS, args=[label], timeout=20)
            for ours, noted in zip(protected, result.of_slots("noted", RANKS), strict=True):
                assert is_right(label, ours[label], noted[label]), (ours[label], noted[label])
