"""Lists, verifies and shows checkpoints in files, for printing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ..fabric import spillfiles
from ..fabric.spillfiles import Damaged, Part
from ..host import outfile
from ..native import loading


def describe(name: str, action: str) -> tuple[list[str], bool]:
    """Describe the checkpoints of a directory.

    Args:
        action: "list"; "verify", which reads all data; "show", which describes the newest
            checkpoint.

    Returns:
        Lines, and whether everything that was read is undamaged.

    Raises:
        ValueError: there are none.
    """
    directory = Path(name)
    try:
        found = spillfiles.points(directory)
    except OSError as error:
        raise ValueError(f"{name}: {outfile.why(error)}; give a directory of 'ftrma run "
                         "--spill'") from None
    if not found:
        raise ValueError(f"{name}: " + (
            "no checkpoint in it is whole" if spillfiles.points(directory, whole=False) else
            "there is no checkpoint in it yet; --spill-interval says how often one is written"))
    loading.load()
    lines, sound = [], True
    for point in found[-1:] if action == "show" else found:
        try:
            manifest = spillfiles.read_manifest(directory, point)
            parts = [Part(directory, point, slot, manifest) for slot in range(manifest["slots"])]
            size_bytes = sum(part.check() if action == "verify" else part.size_bytes
                             for part in parts)
        except Damaged as error:
            lines.append(f"{point.name}  damaged: {error}")
            sound = False
            continue
        if action == "show":
            lines += shown(parts)
            continue
        written = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest["written"]))
        lines.append(f"{point.name}  {written}  {manifest['slots']:>5} slots "
                     f"{size_bytes / 2**20:10.1f} MiB  {' '.join(manifest['program'])[:60]}"
                     f"{'  sound' * (action == 'verify')}")
    return lines, sound


def shown(parts: Sequence[Part]) -> list[str]:
    """Describe the arrays of a checkpoint, one per line."""
    lines = [f"checkpoint {parts[0].point.version} (entry {parts[0].point.entry})",
             f"{'slot':>5}  {'array':<24} {'type':<8} {'shape':<20} file, offset"]
    for part in parts:
        for array in part.content["arrays"]:
            shape = " x ".join(map(str, array["shape"])) or "one"
            lines.append(f"{part.slot:>5}  {array['name']:<24} {array['dtype']!s:<8} "
                         f"{shape:<20} {array['file']}, {array['offset']}")
    return lines
