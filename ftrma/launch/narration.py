"""Tells in full what happens in a job: in a log (``--log-file``), and with ``--verbose``.

Only the supervisor writes the log. Lines of other processes, on this node and on others, come to it
as events of the job's story, and are written with the time at which they were printed. Events that
no process reports to the user, such as checkpoints, become lines here.

Invariant: nothing here ends a job or makes it wait. If a log cannot be written to any more, the
user is told once.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..fabric import story
from ..fabric.story import Checkpoint, Event, Failure, Line, Restored
from ..host import messages, outfile
from ..host.helper import Helper
from ..host.messages import Message, Voice
from ..machine.topology import Layout
from ..settings.options import Options

LOOK_S = 0.25  # between two looks at the story
SUPERVISOR = "supervisor"
MIB = 2**20


@dataclass
class Log:
    """A file that gets all lines of a job.

    It is opened with the first line, so that a run that is refused leaves no file.

    Args:
        name: as the user gave it.

    Attributes:
        file: opened by `outfile.appended`; None: not yet, or it cannot be written to.
    """

    name: str
    file: io.FileIO | None = field(default=None, init=False)
    failed: bool = field(default=False, init=False)

    def write(self, message: Message) -> None:
        """Add a line in one call, so that lines of several writers do not mix."""
        if self.failed:
            return
        text = f"{messages.in_full(message, messages.voice.job)}\n"
        try:
            self.file = self.file or outfile.appended(self.name)
            self.file.write(text.encode(errors="backslashreplace"))
        except OSError as error:
            self.failed = True
            outfile.tell(f"warning: no more lines in --log-file {self.name}: {outfile.why(error)}")


@contextlib.contextmanager
def speaking(options: Options) -> Iterator[None]:
    """Make this process print as the options say, during the block."""
    voice = Voice(options.quiet, options.verbose, role=lambda: SUPERVISOR)
    log = Log(options.log_file)
    if options.log_file:
        voice.record = log.write
    before = messages.use(voice)
    try:
        yield
    finally:
        messages.use(before)
        if log.file:
            log.file.close()


@contextlib.contextmanager
def followed(directory: Path, layout: Layout, program: list[str]) -> Iterator[None]:
    """Tell the events of a job's story from here on, during the block, if the user wants this."""
    messages.voice.job = directory.name
    outfile.tell_details(f"{layout.slots} slots, {layout.checksums} checksum "
                         f"rank{'s' * (layout.checksums > 1)} and {layout.spares} "
                         f"spare{'s' * (layout.spares != 1)} run {' '.join(program)}")
    if not messages.voice.verbose and not messages.voice.record:
        yield
        return
    over = threading.Event()
    follower = Helper(_follow, directory, story.size_bytes(directory), over)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _follow(directory: Path, read_bytes: int, over: threading.Event) -> None:
    last = False
    while not last:
        last = over.wait(LOOK_S)
        events, read_bytes = story.read_on(directory, read_bytes)
        for event in events:
            if isinstance(event, Line):
                if messages.voice.record:
                    said = Message(event.text, event.who, event.role, event.time)
                    messages.voice.record(said)
            elif text := in_words(event):
                outfile.tell_details(text, event.time)


def in_words(event: Event) -> str:
    """Describe an event in a line; "" if some process has already told the user."""
    if isinstance(event, Checkpoint):
        whose = "" if event.slot is None else f" of slot {event.slot}"
        return (f"{event.kind} checkpoint{whose}, version {event.version}: "
                f"{event.bytes / MIB:.1f} MiB protected, {event.dirty_bytes / MIB:.1f} MiB changed,"
                f" held up for {event.seconds * 1e3:.1f} ms")
    if isinstance(event, Failure):
        at = "" if event.place == "unknown" else f" at {event.place}"
        on = f" on {event.host}" * bool(event.host)
        return f"{event.role} {event.index} (process {event.pid}{on}) died{at}"
    if isinstance(event, Restored):
        return f"the vault of {event.role} {event.index} was filled in {event.seconds:.2f} s"
    return ""
