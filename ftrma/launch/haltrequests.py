"""Requests of ``ftrma halt`` to a living job, and the job's answer: two files in its directory.

The command writes a request. The supervisor looks for it ten times a second, obeys, and writes down
which ends it plans; the command waits for that. Both files are replaced as a whole. The directory
is open only to its owner, and both sides check who owns it (`host.private`), so only the job's user
can write a request.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..host import private
from ..host.errors import FtrmaError

REQUEST, STATE = "halt", "ends"


@dataclass(frozen=True)
class HaltRequest:
    """One request; the newest one replaces those before.

    Attributes:
        after: time from which on the job is to end, in seconds since 1970; 0: at once.
        checkpoints: number of checkpoints that are to be taken before the end.
        now: do not wait for a checkpoint.
        unset: withdraw earlier requests, and ask for nothing.
        number: distinguishes the request from others.
    """

    after: float = 0.0
    checkpoints: int = 0
    now: bool = False
    unset: bool = False
    number: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True)
class EndsInMind:
    """The ends that a job's supervisor plans, as it tells them to ``ftrma halt``.

    Attributes:
        limit: time at which ``--time-limit`` is reached, in seconds since 1970; 0: there is none.
        margin_s: seconds before the limit in which the last checkpoint is taken.
        request: the newest request that was taken; None if there was none.
        why: why the job ends behind its next checkpoint; empty if it does not end yet.
        saves: where its checkpoints go, in words.
    """

    limit: float = 0.0
    margin_s: float = 0.0
    request: HaltRequest | None = None
    why: str = ""
    saves: str = ""


def ask(directory: Path, request: HaltRequest) -> None:
    """Leave a request for a job."""
    private.replace(directory / REQUEST, json.dumps(asdict(request)).encode())


def requested(directory: Path, seen: tuple[int, int]) -> tuple[HaltRequest | None, tuple[int, int]]:
    """Read the request, if there is a new one.

    Args:
        seen: the mark that was returned with the request before; (0, 0) if there was none.

    Returns:
        The request, or None if there is no new one, and its mark.

    Raises:
        FtrmaError: the file contains something else; then pass its `mark` as `seen` the next time.
    """
    path = directory / REQUEST
    found = mark(path)
    if found in (seen, (0, 0)):
        return None, seen
    try:
        return HaltRequest(**_numbers(_read(path))), found
    except FileNotFoundError:
        return None, seen
    except (OSError, ValueError, TypeError) as error:
        raise FtrmaError(f"{path} holds no request of 'ftrma halt' ({error}); it is passed "
                         "over") from None


def mark(path: Path) -> tuple[int, int]:
    """Return a mark that distinguishes a file of this name from the next one; (0, 0) if there is
    none."""
    try:
        status = path.lstat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def forget(directory: Path) -> None:
    """Remove a request, since the job begins or has ended."""
    with contextlib.suppress(OSError):
        (directory / REQUEST).unlink()


def tell_state(directory: Path, state: EndsInMind) -> None:
    """Write down the ends that the supervisor plans; do nothing if there is no memory."""
    with contextlib.suppress(OSError):
        private.replace(directory / STATE, json.dumps(asdict(state)).encode())


def state_of(directory: Path) -> EndsInMind | None:
    """Read the ends that a job's supervisor plans; None if it has not written any."""
    try:
        found = _read(directory / STATE)
        if found.get("request"):
            found["request"] = HaltRequest(**found["request"])
        return EndsInMind(**found)
    except (FtrmaError, OSError, ValueError, TypeError):
        return None


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request, each checked for its type."""
    kinds = {"after": float, "checkpoints": int, "now": bool, "unset": bool, "number": str}
    for name, value in found.items():
        if name not in kinds or not isinstance(value, (kinds[name], int)):
            raise ValueError(f"{name}: {value!r}")
    return found


def _read(path: Path) -> dict[str, Any]:
    found = json.loads(private.read(path))
    if not isinstance(found, dict):
        raise ValueError("no object of JSON")
    return found
