"""The user's own key: it proves that a file which outlives its job was left by this user's jobs.

A job's key ends with the job. Files that later jobs read (parts of graphs, checkpoints that a
framework leaves) lie where the user wants them, often where others can write, too; so each has a
tag by this key, which lies in the user's state directory, mode 0600, and is made when it is first
asked for. Who loses it loses nothing but what those files save: they no longer serve.

Source: XDG Base Directory Specification 0.8, XDG_STATE_HOME.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
from pathlib import Path

from ..errors import FtrmaError
from . import private
from .key import Key


def path() -> Path:
    """Where the key is, or will be."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        with contextlib.suppress(KeyError):  # a user whom the machine does not know
            home = os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
            state = os.path.join(home, ".local", "state")
    return Path(state, "ftrma", "key")


def read() -> Key:
    """The key, made if there is none. Of several processes that make it at once one has made it.

    Raises:
        FtrmaError: it cannot be read or made, or is not this user's alone.
    """
    where = path()
    try:
        with contextlib.suppress(FileNotFoundError):
            return Key(private.read(where))
        os.makedirs(where.parent.parent, mode=0o700, exist_ok=True)
        private.make_directory(where.parent)
        draft = where.with_name(f"key-{secrets.token_hex(8)}")
        try:
            private.write(draft, Key.make().secret)
            with contextlib.suppress(FileExistsError):
                os.link(draft, where)
        finally:
            draft.unlink(missing_ok=True)
        return Key(private.read(where))
    except ValueError:
        raise FtrmaError(f"{where} is damaged; remove it, and another one is made") from None
    except OSError as error:
        raise FtrmaError(f"the key {where} can be neither read nor made ({error.strerror}); set "
                         "XDG_STATE_HOME to a directory of your own") from None
