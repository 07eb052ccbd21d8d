"""Writes and reads a checkpoint's record: bytes that describe a vault's regions, and are not code.

A record says which regions a vault holds and where, and contains counters and declared scalars. A
process that takes over after a failure reads it from memory that outlived its writer or was
computed from parity. So nothing in it is trusted before its tag was checked: an HMAC-SHA256 by the
job's key over the record, the role that it belongs to, and its version. The tag is part of the
record's bytes and is rebuilt with them.

    tag | size of the text, 8 bytes | JSON text | byte strings, one after the other

JSON has no tuples, byte strings, dtypes, or keys that are numbers: each of these is an object with
one member, whose name is the type. The user's own fields, and dtypes of other packages, are pickled
byte strings, which are unpickled only after the check.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import CorruptVault
from .key import TAG_BYTES, Key

PURPOSE = b"checkpoint record"


@dataclass(frozen=True)
class Seal:
    """The key, role and version that a record is bound to.

    Attributes:
        key: the job's key.
        role: name of the role, such as "slot 3".
        version: the version in words, such as "5" or "demand 2".
    """

    key: Key
    role: str
    version: str

    def tag(self, body: bytes) -> bytes:
        return self.key.tag(PURPOSE, self.role.encode(), self.version.encode(), body)

    def vouches(self, tag: bytes, body: bytes) -> bool:
        return self.key.vouches(tag, PURPOSE, self.role.encode(), self.version.encode(), body)


def encode(record: Mapping[str, Any], seal: Seal) -> bytes:
    """Write a record. It may hold None, numbers, str, bytes, dtypes, tuples, lists and dicts."""
    strings: list[bytes] = []
    content = _plain(record, strings)
    text = json.dumps([content, [len(s) for s in strings]], separators=(",", ":")).encode()
    body = b"".join([len(text).to_bytes(8, "little"), text, *strings])
    return seal.tag(body) + body


def decode(data: bytes, seal: Seal) -> dict[str, Any]:
    """Read a record.

    Raises:
        CorruptVault: no process of this job has written it for this role and version.
    """
    tag, body = data[:TAG_BYTES], data[TAG_BYTES:]
    if not seal.vouches(tag, body):
        raise CorruptVault(
            f"{seal.role}: what its vault holds was not written by this job as checkpoint "
            f"{seal.version}; nothing of it was used"
        )
    end = 8 + int.from_bytes(body[:8], "little")
    content, sizes = json.loads(body[8:end])
    strings = []
    for size in sizes:
        strings.append(body[end : end + size])
        end += size
    found: dict[str, Any] = _read(content, strings)
    return found


def _plain(value: Any, strings: list[bytes]) -> Any:
    if isinstance(value, bytes):
        strings.append(value)
        return {"bytes": len(strings) - 1}
    np = sys.modules.get("numpy")  # `ftrma run` itself does not load it, and has no values of it
    if np and isinstance(value, np.dtype):
        if not value.metadata:
            descr = np.lib.format.dtype_to_descr(value)
            again = np.lib.format.descr_to_dtype(descr)
            # A dtype of another package comes back from its string as plain bytes.
            if (again, again.isalignedstruct) == (value, value.isalignedstruct):
                return {"dtype": _plain(descr, strings)}
        return {"pickle": _plain(pickle.dumps(value), strings)}
    if isinstance(value, tuple):
        return {"tuple": [_plain(v, strings) for v in value]}
    if isinstance(value, list):
        return [_plain(v, strings) for v in value]
    if isinstance(value, Mapping):
        return {"dict": [[_plain(k, strings), _plain(v, strings)] for k, v in value.items()]}
    if np and isinstance(value, np.generic):
        return _plain(value.item(), strings)
    assert value is None or isinstance(value, str | bool | int | float), type(value)
    return value


def _read(value: Any, strings: list[bytes]) -> Any:
    if isinstance(value, list):
        return [_read(v, strings) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "bytes":
        return strings[content]
    if kind == "dtype":
        import numpy as np

        return np.lib.format.descr_to_dtype(_read(content, strings))
    if kind == "pickle":  # the tag has shown that this job wrote it
        return pickle.loads(_read(content, strings))
    if kind == "tuple":
        return tuple(_read(v, strings) for v in content)
    return {_read(k, strings): _read(v, strings) for k, v in content}
