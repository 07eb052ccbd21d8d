"""Declares the types of a job's shared memory: ``struct ftrma_ctl`` of ``csrc/shared.h``.

The objects are cffi's. These classes tell readers and mypy their fields; the tests of this module
compare them with C. ``csrc/shared.h`` says which process writes a word when.

Numbers of slots, processes and versions have types of their own, so that they are not confused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NewType, Protocol, TypeVar

Slot = NewType("Slot", int)  # rank of the program; survives its process
Proc = NewType("Proc", int)  # position in the MPI world of this launch
Version = NewType("Version", int)  # number of a checkpoint; 0 is the program's start

T = TypeVar("T")
S = TypeVar("S", covariant=True)


class Array(Protocol[T]):
    """An array of C: no length, no slices."""

    def __getitem__(self, index: int, /) -> T: ...
    def __setitem__(self, index: int, value: T, /) -> None: ...


class Parts(Protocol[S]):
    """An array of structs of C, which are changed in place."""

    def __getitem__(self, index: int, /) -> S: ...
    def __iter__(self) -> Iterator[S]: ...


class Bell(Protocol):
    """``struct ftrma_bell``."""

    word: int
    sleepers: int


class Rule(Protocol):
    """``struct ftrma_rule``."""

    role: int
    index: int
    failpoint: int
    fired: int
    victim: int
    name: Array[bytes]
    at: int
    visits: int


class Process(Protocol):
    """``struct ftrma_proc``."""

    pid: int
    state: int
    death_round: int
    calls: int
    met: int
    ordinal: int
    step: int
    verdict: int
    arrived: int
    staging: int
    staged: Version
    summed: Version
    folded: Version
    spilled: Version
    ready: int
    finished: int
    blocks: int
    bytes: int
    dirty_bytes: int
    block_ns: int
    protect_hash: int
    reported: int
    spare: int
    leaving: int
    waiting: int
    making: int
    syncs: int
    busy_ns: int
    rebuilding: int
    node: int
    pad: int
    awaits: int
    call: int
    waited_ns: int
    busy_until_ns: int
    mails: int


class Roles(Protocol):
    """``struct ftrma_roles``."""

    slot_proc: Array[Proc]
    checksum_proc: Array[Proc]
    slot_group: Array[int]


class PlanPlace(Protocol):
    """``struct ftrma_plan``."""

    round: int
    version: Version
    kind: int
    reason_bytes: int
    calm: int
    slots: Array[int]
    reason: Array[bytes]


class Spot(Protocol):
    """``struct ftrma_spot``."""

    chunk: int
    at: int


class Mark(Protocol):
    """``struct ftrma_mark``."""

    version: Version
    events: int
    clock: int
    hash: int
    first_hash: int
    spot: Parts[Spot]
    start: int
    broken: int
    call: Array[bytes]


class Progress(Protocol):
    """``struct ftrma_slot``."""

    clock: int
    arrived: int
    replaying: int
    entered: int
    line1: Array[int]
    events: int
    hash: Array[int]
    atomic_done: int
    peak_bytes: int
    put: int
    put_record: int
    put_clock: int
    marks: Parts[Mark]
    prefix: Spot
    prefix_events: int
    prefix_broken: int
    pad: int
    prefix_call: Array[bytes]
    prefix_hash: int
    demand: int
    demands: int
    asked: int
    demand_marks: Parts[Mark]
    held: Array[int]
    line3: Array[int]


class Control(Protocol):
    """``struct ftrma_ctl``."""

    slots: Parts[Progress]
    magic: int
    nprocs: int
    nslots: int
    ngroups: int
    group_size: int
    nchecksums: int
    strength: int
    capacity_blocks: int
    replays: int
    causal: int
    alarm: int
    repaired: int
    plan_round: int
    roles_seq: int
    commit: int
    target: int
    attempt: int
    stumbles: int
    kill_ns: int
    death_ns: int
    start_ns: int
    repaired_ns: int
    bell: Bell
    request: int
    exit_status: int
    error_owner: int
    supervisor: int
    launcher: int
    partitioned: int
    resume: int
    barrier: Bell
    nrules: int
    takeover: int
    rules: Parts[Rule]
    roles: Parts[Roles]
    plans: Parts[PlanPlace]
    plan_seq: int
    asked: PlanPlace
    asker: int
    wanted: int
    spill: Version
    spilled: Version
    halt: int
    halting: int
    taken: int
    log_bytes: int
    told_full: int
    told_demand: int
    live: Bell
    refusal: Array[bytes]
    lost: Array[int]
    nodes: int
    connect: int
    dynamic: int
    claim: int
    claimant: Array[bytes]
    scanned: Array[int]
    meeting: int
    line: Array[int]
    proc: Parts[Process]


class VaultWords(Protocol):
    """``struct ftrma_vault_words``."""

    version: Version
    complete: Version
    folding: Version
