"""The job's key, a secret that only the processes of the job know.

Two things depend on the key. First, a checkpoint's record is parsed only if its tag shows that a
process of this job wrote it, for this role and version (`record`). Second, a connection between a
rank and the supervisor begins with both showing that they know the key, by an answer to a fresh
challenge, so that a recorded answer is of no use to a stranger (`fabric.link`).

`ftrma run` makes the key. It lies in the job's directory, for `ftrma run --resume`, and in the
environment in which the launcher starts the ranks. The ranks remove it from there before the user's
program runs, so that no process that the program starts inherits it; the kernel shows the
environment with which a process was started only to the same user. The key is on no command line.
To other nodes it is sent with the launcher's own messages, which are not encrypted.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import MutableMapping

VARIABLE = "FTRMA_KEY"
SECRET_BYTES = 32
TAG_BYTES = 32  # of HMAC-SHA256
NONCE_BYTES = 32


class Key:
    """A job's key, or a user's (`ftrma.host.userkey`).

    Args:
        secret: `SECRET_BYTES` that nobody can guess.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a job's key has {SECRET_BYTES} bytes, not {len(secret)}")
        self._secret = secret

    @classmethod
    def make(cls) -> Key:
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def take(cls, environ: MutableMapping[str, str] = os.environ) -> Key | None:
        """Take the key out of the environment; None if there is none."""
        text = environ.pop(VARIABLE, None)
        return cls(bytes.fromhex(text)) if text else None

    def text(self) -> str:
        return self._secret.hex()

    @property
    def secret(self) -> bytes:
        return self._secret

    def tag(self, *parts: bytes) -> bytes:
        """Authenticate a sequence of byte strings: HMAC-SHA256, `TAG_BYTES`."""
        return hmac.digest(self._secret, _framed(parts), "sha256")

    def begin(self, *parts: bytes) -> hmac.HMAC:
        """Begin a tag of these parts and of everything that is then given to its `update`."""
        return hmac.new(self._secret, _framed(parts), "sha256")

    def vouches(self, tag: bytes, *parts: bytes) -> bool:
        """Say whether this tag was made for these parts by somebody who knows the key."""
        return hmac.compare_digest(tag, self.tag(*parts))

    # -- the two ends of a connection ---------------------------------------------------------

    def answer(self, challenge: bytes, nonce: bytes) -> bytes:
        """Return a rank's answer to the supervisor's challenge; the rank's own challenge is part of
        it."""
        return self.tag(b"rank", challenge, nonce)

    def proof(self, challenge: bytes, nonce: bytes) -> bytes:
        """Return the supervisor's answer to the rank's challenge."""
        return self.tag(b"supervisor", challenge, nonce)


def _framed(parts: tuple[bytes, ...]) -> bytes:
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)
