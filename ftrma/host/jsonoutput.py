"""The format of the output of commands with ``--json``: one object, which names the command.

The fields of each command are listed in ``ftrma/docs/json.md``. An added field does not change the
format; FORMAT counts changes that would break an earlier reader.
"""

from __future__ import annotations

import json
import math
from typing import Any

FORMAT = 1


def document(command: str, **fields: Any) -> str:
    """Return the text that a command prints with ``--json``.

    Args:
        command: its name.
        fields: the fields that this page lists for the command.
    """
    return json.dumps({"command": command, "format": FORMAT, **_finite(fields)}, indent=1)


def _finite(value: Any) -> Any:
    """Return a value with null in place of numbers that JSON does not have: infinities and NaN."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
