"""The form of what commands print with ``--json``: one object each, which names the command.

The fields of each command are listed in ``ftrma/docs/json.md``. A field that is added is no change
of the format; FORMAT counts changes after which a reader of before would be wrong.
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
        fields: as the page of the command's fields has them.
    """
    return json.dumps({"command": command, "format": FORMAT, **_finite(fields)}, indent=1)


def _finite(value: Any) -> Any:
    """Return a value with null for numbers that JSON does not have: infinities, no number."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
