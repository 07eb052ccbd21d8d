"""Requests of ``ftrma halt`` to a living job, and the job's answer: two files in its directory.

The command writes a request, the supervisor looks for it ten times a second, obeys, and writes down
which ends it has in mind; the command waits for that. Both files are replaced as a whole. The
directory is open to its owner alone, and both sides look whose it is (`host.private`), so who can
write a request is the user whose job it is.
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
    """One request; the newest one takes the place of those before.

    Attributes:
        after: moment from which on the job is to end, seconds since 1970; 0: at once.
        checkpoints: number of checkpoints that are to pass before.
        now: do not wait for a checkpoint.
        unset: withdraw the requests before, and ask for nothing.
        number: tells it from others.
    """

    after: float = 0.0
    checkpoints: int = 0
    now: bool = False
    unset: bool = False
    number: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True)
class EndsInMind:
    """The ends that a job's supervisor has in mind, as it says them to ``ftrma halt``.

    Attributes:
        limit: moment of ``--time-limit``, seconds since 1970; 0: there is none.
        margin_s: seconds before it in which the last checkpoint is taken.
        request: the newest request that was taken; None: none was.
        why: why the job ends behind its next checkpoint; empty: it does not yet.
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
    """Read the request, if there is another one than before.

    Args:
        seen: the mark that came with the request before; (0, 0): none came.

    Returns:
        The request, None if there is no other one, and its mark.

    Raises:
        FtrmaError: somebody has written something else there; `seen` is to be `mark` then.
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
    """Something that tells one file of this name from the next; (0, 0): there is none."""
    try:
        status = path.lstat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def forget(directory: Path) -> None:
    """Remove a request: the job begins, or has ended."""
    with contextlib.suppress(OSError):
        (directory / REQUEST).unlink()


def tell_state(directory: Path, state: EndsInMind) -> None:
    """Write down the ends that the supervisor has in mind; nothing, if there is no memory."""
    with contextlib.suppress(OSError):
        private.replace(directory / STATE, json.dumps(asdict(state)).encode())


def state_of(directory: Path) -> EndsInMind | None:
    """Read the ends that a job's supervisor has in mind; None: it has not said any."""
    try:
        found = _read(directory / STATE)
        if found.get("request"):
            found["request"] = HaltRequest(**found["request"])
        return EndsInMind(**found)
    except (FtrmaError, OSError, ValueError, TypeError):
        return None


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    """Fields of a request, each of its type."""
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
