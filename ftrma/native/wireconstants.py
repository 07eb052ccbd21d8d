"""The numbers of ``csrc/wire/wire.h``, as cffi has read them, in enumerations."""

from __future__ import annotations

from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import Any

from ..host.errors import FtrmaError

try:
    declarations: Any = import_module("ftrma._wiredeclarations").ffi
except ModuleNotFoundError:
    raise FtrmaError(f"{Path(__file__).parents[1]} is not built: pip install -e .") from None


def _number(name: str) -> int:
    return int(declarations.integer_const(f"FTRMA_WIRE_{name}"))


def _mirror(name: str) -> int:
    return int(declarations.integer_const(f"FTRMA_MIRROR_{name}"))


FORMAT = _number("FORMAT")
PAYLOAD_BYTES, ATOMIC_BYTES = _number("PAYLOAD_BYTES"), _number("ATOMIC_BYTES")
PLAIN, NODES, KEPT = _number("PLAIN"), _number("NODES"), _number("KEPT")
LOST = _mirror("LOST")  # value of a node's echo word that marks the node as lost


class Kind(IntEnum):
    """Kinds of messages."""

    PUT, PUTV, ACC = _number("PUT"), _number("PUTV"), _number("ACC")
    FOP, CAS = _number("FOP"), _number("CAS")
    LOCK, UNLOCK = _number("LOCK"), _number("UNLOCK")
    GET, GETV, FLUSH = _number("GET"), _number("GETV"), _number("FLUSH")
    NUMBER, SET, HOLD = _number("NUMBER"), _number("SET"), _number("HOLD")
    RELEASE, ROLES, RESEND = _number("RELEASE"), _number("ROLES"), _number("RESEND")
    DONE, DATA, ACK = _number("DONE"), _number("DATA"), _number("ACK")
    ANSWER, REJECTED = _number("ANSWER"), _number("REJECTED")
    OLD_ROLES, BROKEN = _number("OLD_ROLES"), _number("BROKEN")
    MIRROR, MIRRORED = _number("MIRROR"), _number("MIRRORED")
    FILE = _number("FILE")


class FileHow(IntEnum):
    """Kinds of requests for a plain file on another node."""

    LOOK, MAKE, REMOVE = _number("LOOK"), _number("MAKE"), _number("REMOVE")


class Why(IntEnum):
    """Reasons why a request is rejected."""

    HELD, EARLY = _number("HELD"), _number("EARLY")
    GAP, MOVED = _number("GAP"), _number("MOVED")


class Op(IntEnum):
    """Operations of accumulates."""

    SUM, PROD, MIN, MAX = _number("SUM"), _number("PROD"), _number("MIN"), _number("MAX")
    BAND, BOR, BXOR = _number("BAND"), _number("BOR"), _number("BXOR")
    REPLACE, NO_OP = _number("REPLACE"), _number("NO_OP")


class Lock(IntEnum):
    """Kinds of locks; CHANGE keeps all other changes of the part out."""

    EXCLUSIVE, SHARED = _number("EXCLUSIVE"), _number("SHARED")
    CHANGE = _number("CHANGE")


class Type(IntEnum):
    """Types of elements."""

    I32, U32, F32 = _number("I32"), _number("U32"), _number("F32")
    I64, U64, F64 = _number("I64"), _number("U64"), _number("F64")


class Failpoint(IntEnum):
    """Places at which an agent can be told to kill itself."""

    HALF, PUT, UNDO = _number("AT_HALF"), _number("AT_PUT"), _number("AT_UNDO")
    APPLY, ANSWER = _number("AT_APPLY"), _number("AT_ANSWER")
    NUMBER, GRANT = _number("AT_NUMBER"), _number("AT_GRANT")
    LOCKED, ROLES = _number("AT_LOCKED"), _number("AT_ROLES")
    SCAN, MIRROR = _number("AT_SCAN"), _number("AT_MIRROR")
    SHADOW, FORWARD = _number("AT_SHADOW"), _number("AT_FORWARD")


class MirrorKind(IntEnum):
    """Kinds of regions of a mirrored file; see ``enum ftrma_mirror_kind``."""

    WORDS, HOT = _mirror("WORDS"), _mirror("HOT")
    ALARM, CALM, BELL = _mirror("ALARM"), _mirror("CALM"), _mirror("BELL")
    ECHO = _mirror("ECHO")


class WireResult(IntEnum):
    """Results of the calls of an origin."""

    OK, ALARM, TIMEOUT = 0, 1, 2
    STALE, REFUSED = _number("STALE"), _number("REFUSED")
