"""The user's own key, which shows that files that outlive a job were left by this user's jobs.

A job's key ends with the job. Files that later jobs read (a graph's cache, spilled checkpoints) lie
where the user wants them, often where others can write, too. So each file has a tag by this key.
The key lies in the user's state directory, with mode 0600, and is made when it is first needed. If
the key is lost, these files are not read any more, and nothing else is lost.

Source: XDG Base Directory Specification 0.8, XDG_STATE_HOME.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
from pathlib import Path

from . import private
from .errors import FtrmaError
from .key import Key


def path() -> Path:
    """Return the path of the key, which may not exist yet."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        with contextlib.suppress(KeyError):  # a user that the machine does not know
            home = os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
            state = os.path.join(home, ".local", "state")
    return Path(state, "ftrma", "key")


def read() -> Key:
    """Read the key, or make it; if several processes make it at the same time, all get the same
    key.

    Raises:
        FtrmaError: it cannot be read or made, or others can access it.
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
