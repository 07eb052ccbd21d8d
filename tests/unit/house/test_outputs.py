"""Whatever is written for a user goes through `ftrma.host.outfile`: no other way to write is left.

All of ``ftrma`` and ``bench`` is read. A function that opens for writing in another way is named
below with its reason: what it writes is the job's own, or a measurement's, in a directory that it
has made for itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree import ROOT

SOURCES = sorted(path for folder in ("ftrma", "bench") for path in (ROOT / folder).rglob("*.py"))
WRITERS = {"write_text", "write_bytes", "savetxt", "save", "savez", "savez_compressed", "tofile",
           "savefig", "touch", "mkfifo", "mknod", "copyfile", "copy2", "copytree", "copyfileobj",
           "move", "symlink", "symlink_to", "hardlink_to", "link", "memmap", "dump", "FileIO"}
OPENS = re.compile(rf"\b(?:open|ZipFile|{'|'.join(WRITERS)})\(")
OURS = {"job.write_bytes", "self.inventory.open", "self.open"}  # in shared memory: words, vaults
FLAGS = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC", "flags")

# For a file: the functions that write, and what; or what all of the file writes.
ALLOWED: dict[str, dict[str, str] | str] = {
    "bench/apps/ownfiles.py": {
        "OwnFiles.save_if_due": "what it measures: a program that writes its checkpoints itself",
    },
    "bench/checkpoint_app.py": {"Subject.__init__": "its measurement's directory"},
    "bench/ml.py": {"library": "a directory of its own"},
    "bench/recovery_ft.py": {"main": "its measurement's directory",
                             "die_once": "its measurement's directory"},
    "bench/loading.py": {"write": "files in a directory of its own"},
    "bench/loading_app.py": {"main": "the kernel's mark of this process's peak of memory"},
    "bench/wire.py": {"running_agent": "a directory of its own"},
    "ftrma/command/doctor.py": {"check_recovery": "a directory of its own"},
    "ftrma/frameworks/graph/cache.py": {"leave": "what private.make has made, of mode 0600"},
    "ftrma/frameworks/graph/arrayfiles.py": {"unpack": "members of a zip file, which are read"},
    "ftrma/frameworks/graph/arrayslices.py": {
        "members": "members of a zip file, which are read", "_Packed.__init__": "another one"},
    "ftrma/launch/resuming.py": {"claim": "the lock of a directory of checkpoints",
                                 "RunFiles.end": "in that directory: that the job has ended"},
    "ftrma/native/mail.py": {"give_back": "pages of a mail in the job's own directory are freed"},
    "ftrma/program/deathmail.py": {"create": "a node's mail, in the job's own directory"},
    "ftrma/vault/spillparts.py": {"PartWriter._link": "a file of an earlier checkpoint"},
    "ftrma/host/outfile.py": {"_temporary": "the way", "_open": "the way",
                              "_appended": "the way",
                              "open_terminal": "stdout and stderr"},
    "ftrma/host/private.py": {"make": "files of this user's alone, made anew"},
    "ftrma/host/userkey.py": {"read": "the user's key"},
    "ftrma/host/lineoutput.py": "stdout and stderr",
    "ftrma/program/joining.py": "stdin, which is read",
} | dict.fromkeys((
    "ftrma/frameworks/apgas/shelf.py", "ftrma/frameworks/apgas/storetable.py",
    "ftrma/fabric/agents.py", "ftrma/fabric/story.py", "ftrma/host/lock.py",
    "ftrma/host/nodedirectory.py", "ftrma/launch/agent.py", "ftrma/launch/eachhost.py",
    "ftrma/launch/failover.py", "ftrma/launch/launch.py", "ftrma/launch/mpirun.py",
    "ftrma/launch/relaystart.py",
    "ftrma/program/imports.py", "ftrma/fabric/remote_logs.py", "ftrma/fabric/agent_access.py"),
    "the job's directory")


def calls(path: Path) -> Iterator[tuple[str, ast.Call, set[str]]]:
    """Each call with the function that it is in, and the names that outfile has opened there."""

    text = path.read_text()
    in_memory = "io.BytesIO()" in text

    def walk(node: ast.AST, where: tuple[str, ...], given: set[str]) -> Iterator[
            tuple[str, ast.Call, set[str]]]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = (*where, node.name)
        if in_memory and isinstance(node, ast.FunctionDef):
            given = given | {
                target.id for inner in ast.walk(node) if isinstance(inner, ast.Assign)
                and ast.unparse(inner.value) == "io.BytesIO()"
                for target in inner.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.With):
            given = given | {
                item.optional_vars.id for item in node.items
                if isinstance(item.optional_vars, ast.Name)
                and ast.unparse(item.context_expr).startswith("outfile.opened(")}
        if isinstance(node, ast.Call):
            yield ".".join(where), node, given
        for child in ast.iter_child_nodes(node):
            yield from walk(child, where, given)

    if OPENS.search(text):
        yield from walk(ast.parse(text), (), set())


def writes(call: ast.Call, given: set[str]) -> bool:
    """A call opens for writing, by itself or perhaps."""
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    if not OPENS.fullmatch(f"{name}("):
        return False
    whole = ast.unparse(call.func)
    words = [ast.unparse(word) for word in (*call.args, *(k.value for k in call.keywords))]
    if whole in OURS or (words and words[0] in {*given, "os.devnull"}):
        return False
    if whole == "os.open":
        return any(flag in word for word in words[1:2] for flag in FLAGS)
    if name in ("open", "ZipFile"):
        modes = [k.value for k in call.keywords if k.arg == "mode"]
        plain = whole in ("open", "io.open", "gzip.open", "zipfile.ZipFile")
        modes += call.args[1:2] if plain else call.args[:1]
        return any(not isinstance(mode, ast.Constant) or set(str(mode.value)) & set("wax+")
                   for mode in modes)
    if name == "dump" and whole.partition(".")[0] not in ("json", "pickle"):
        return False
    return name in WRITERS and (name != "save" or whole.startswith("np."))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_else_is_opened_for_writing(path: Path) -> None:
    """Law: each way to write but outfile's is listed with what it is for, and the list is true."""
    allowed = ALLOWED.get(str(path.relative_to(ROOT)), {})
    found = {where: ast.unparse(call) for where, call, given in calls(path) if writes(call, given)}
    if isinstance(allowed, str):
        assert found, "what is allowed is no longer done"
        return
    assert {where: found[where] for where in found if where not in allowed} == {}
    assert set(allowed) == set(found), "what is allowed is no longer done"


@pytest.mark.parametrize(("text", "expected"), [
    ("open(name, 'w')", True), ("open(name)", False), ("open(name, 'rb')", False),
    ("open(name, mode)", True), ("zipfile.ZipFile(x)", False), ("zipfile.ZipFile(x, 'w')", True),
    ("path.open('ab', buffering=0)", True), ("path.open()", False),
    ("np.save(path, values)", True), ("Path(x).write_text('')", True),
    ("os.open(x, os.O_RDONLY | os.O_CLOEXEC)", False), ("os.open(x, os.O_WRONLY)", True),
    ("os.open(x, flags)", True), ("json.dump(x, file)", True), ("gzip.open(x, 'wt')", True),
    ("store.open()", False), ("with outfile.opened(x) as f: np.save(f, v)", False),
    ("with open(x) as f: np.save(f, v)", True), ("figure.savefig(path)", True),
    ("with outfile.opened(x) as f: np.save(path, v)", True),
])
def test_the_reader_sees_what_writes(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "m.py").write_text(text)
    assert any(writes(call, given) for _, call, given in calls(tmp_path / "m.py")) == expected
