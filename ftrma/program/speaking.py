"""Makes a process of a job print its lines as the user wants: briefly, in full, or into a log.

Lines for the log go into the job's story, from which the supervisor writes them
(`launch.narration`). Without a supervisor each process appends its own lines to the file.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..fabric.story import Line
from ..fabric.view import JobView
from ..host import messages, outfile
from ..host.errors import FtrmaError
from ..host.messages import Message, Voice
from ..native.constants import CHECKSUM, ROLE_NAMES
from ..settings.options import Options


def begin(options: Options, rank: int) -> None:
    """Print as the options say, before the process has a role."""
    messages.use(Voice(options.quiet, options.verbose, Path(options.job).name,
                       lambda: f"process {rank}"))


def go_on(options: Options, view: JobView) -> None:
    """Print in the name of this process's role, and record its lines for the log."""
    voice = messages.voice

    def role() -> str:
        kind, index = view.role()
        name = ROLE_NAMES.get(kind, "process") + " rank" * (kind == CHECKSUM)
        host = view.host_of(view.proc)
        return f"{name} {index}" + f" on {host}" * bool(host)

    def record(message: Message) -> None:
        with contextlib.suppress(OSError, FtrmaError):
            view.emit(Line(message.text, message.who, message.role, time=message.time))

    voice.role = role
    if options.log_file and options.job:
        voice.record = record
    elif options.log_file:
        file = outfile.appended(options.log_file)

        def write(message: Message) -> None:
            with contextlib.suppress(OSError):
                text = f"{messages.in_full(message, '')}\n"
                file.write(text.encode(errors="backslashreplace"))

        voice.record = write
