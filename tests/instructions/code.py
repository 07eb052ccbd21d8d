"""The code in C as it is compiled: instructions, and the functions and files they belong to."""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tree import ROOT, TESTS

NATIVE, WIRE = "_native.so", "_wire.so"
# The library that lets breakpoints stand asks these for the process's role.
ASKED = {"ftrma_my_role", "ftrma_role_of"}
HEAD = re.compile(r"^([0-9a-f]{8,16}) <([^>]+)>:$")
LINE = re.compile(r"^ *([0-9a-f]+):\t(.*)")
DEFINITION = re.compile(r"^(?!static\s+const\b)[A-Za-z_][\w \t*]*?\b(\w+)\([^;]*$", re.M)


@dataclass(frozen=True)
class Code:
    """The instructions of a library.

    Attributes:
        begin: of the section with the code, in bytes from the beginning of the library.
        size: of it, in bytes.
        functions: name of the function of each instruction, by the instruction's place.
    """

    begin: int
    size: int
    functions: dict[int, str]


def path_of(library: str) -> Path:
    return ROOT / "ftrma" / library


@functools.cache
def _disassembly(library: str) -> list[str]:
    return subprocess.run(
        ["objdump", "-d", "-j", ".text", "--no-show-raw-insn", str(path_of(library))],
        capture_output=True, text=True, check=True).stdout.splitlines()


@functools.cache
def code_of(library: str) -> Code:
    """Disassemble a library; the functions that a breakpoint itself calls are left out."""
    sections = subprocess.run(["objdump", "-h", str(path_of(library))], capture_output=True,
                              text=True, check=True).stdout
    words = next(line.split() for line in sections.splitlines() if line.split()[1:2] == [".text"])
    function, found = "", {}
    for line in _disassembly(library):
        if head := HEAD.match(line):
            function = head[2]
        elif (at := LINE.match(line)) and function.split(".")[0] not in ASKED:
            found[int(at[1], 16)] = function
    return Code(int(words[3], 16), int(words[2], 16), found)


def place_of(library: str, function: str, instruction: str) -> int:
    """The place of a function's first instruction of a kind, in bytes from the library's beginning.

    Args:
        instruction: its first words, such as "lock cmpxchg".
    """
    functions = code_of(library).functions
    return next(int(at[1], 16) for at in map(LINE.match, _disassembly(library))
                if at and at[2].startswith(instruction)
                and functions.get(int(at[1], 16)) == function)


def name_of(function: str) -> str:
    """A function's name as it is in the source: the compiler calls parts of it ``NAME.cold``."""
    return function.split(".")[0]


@functools.cache
def sources() -> dict[str, str]:
    """The file of each function, such as ``log/replay.c``."""
    found = {}
    for path in sorted((ROOT / "csrc").rglob("*.[ch]")):
        for name in DEFINITION.findall(path.read_text()):
            found.setdefault(name, str(path.relative_to(ROOT / "csrc")))
    return found


def source_of(function: str) -> str:
    """The file of a function; those that the build writes are calls of MPI."""
    return sources().get(name_of(function), "interpose/guards.c")


@functools.cache
def digest(*libraries: str) -> str:
    """A number of the code: other instructions have another one."""
    content = b"".join(path_of(library).read_bytes() for library in libraries)
    return hashlib.sha256(content + trap_source().read_bytes()).hexdigest()[:12]


def trap_source() -> Path:
    return TESTS / "c" / "trapkill.c"


def build_trap(directory: Path) -> Path:
    """Compile the library that lets breakpoints stand."""
    made = directory / "trapkill.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
                    str(made), "-I", str(ROOT / "csrc"), str(trap_source()), "-ldl"], check=True)
    return made
