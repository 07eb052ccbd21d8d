"""Build step of the C extension: generates the wrappers, then compiles with the user's mpicc.

The wire between nodes is a library of its own, without MPI: agents have nothing to do with it. So
are the kernels of vertex programs. None of them knows of Python, so one wheel serves all versions.
Which mpicc that is, and that its library is an Open MPI 5, is decided by ``mpicc.py``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from mpicc import check_compiler  # noqa: E402
from mpicc import find as find_mpicc  # noqa: E402

# Each folder uses those below it alone, and no two files use each other
# (tests/unit/house/test_c_layers.py).
SOURCES = {
    "graph": ["sums.c", "factors.c", "sort.c", "text.c", "rmat.c", "owners.c",
              "deal.c", "triangles.c"],
    "interpose": [
        *("mover.c", "access.c", "accumulate.c", "atomic.c", "sync.c", "lock.c", "winfile.c"),
        *("create.c", "winquery.c", "settle.c", "exchange.c", "collective.c", "reduction.c"),
        *("origin_lock.c", "far.c", "farbytes.c", "faratomic.c"),
        *("opening.c", "derived.c", "partitioned.c", "session.c", "spawn.c", "errhandler.c"),
        *("ends.c", "probe.c", "sendrecv.c"),
    ],
    "log": [
        *("trace.c", "chunks.c", "record_sum.c", "compact.c", "log.c", "results.c", "marks.c",
          "restore.c"),
        *("demand.c", "replay.c", "event.c", "pending.c"),
    ],
    "vault": [
        *("vault.c", "checkpoint.c", "ahead.c"),
    ],
    "job": [
        *("control.c", "alarm.c", "attempt.c", "event_clock.c", "killrules.c", "interrupt.c"),
        *("errors.c", "revoke.c", "types.c", "meet.c", "board.c", "communicator.c", "world.c"),
        *("window.c", "watch.c", "leave.c", "rewind.c", "nodes.c", "wake.c", "mail.c"),
    ],
    "kernels": [
        *("kernels.c", "kernels_ref.c", "gf.c", "gf_ref.c", "variant.c", "gf_portable.c"),
        "gf_x86.c",
    ],
    "wire": [
        *("agent.c", "peer.c", "apply.c", "grant.c", "files.c", "failpoint.c", "reply.c",
          "combine.c"),
        *("ledger.c", "parts.c", "roles.c", "origin.c", "await.c", "retransmit.c", "engine.c"),
        *("tcp.c", "tcp_connection.c", "message.c", "sum.c", "mirror.c", "merge.c", "spokes.c",
          "detached.c"),
    ],
}
# The order of the folders' objects in the library. Measured: in the alphabetical order of
# setuptools a logged Get takes 3 % longer, with the same instructions.
LINKED = ("job", "log", "interpose", "vault", "kernels")
WIRE = ("wire",)  # the library of agents
GRAPH = ("graph",)  # the library of vertex programs
# Python's declarations of C, and the headers from which each is made.
DECLARED = {"_declarations": ("shared.h", "ftrma.h"), "_wiredeclarations": ("wire/wire.h",),
            "frameworks.graph._kerneldeclarations": ("graph/graph.h",)}
# Nobody replaces the library's own functions: the compiler may inline those that others can see.
FLAGS = ["-std=gnu11", "-O3", "-fno-strict-aliasing", "-Wall", "-Wextra", "-fvisibility=default"]
FLAGS += ["-fno-semantic-interposition"]
# A function that is nowhere declared would be missed when the library is loaded, not before.
FLAGS += ["-Werror=implicit-function-declaration"]
# Measured: a Put or Get takes up to 4 % more or less, with the same instructions, by where in a
# cache line its functions happen to begin. So they begin at one, whatever is added before them.
FLAGS += ["-falign-functions=64"]
# The libraries load with an older C library than the compiler's, see the header.
FLAGS += ["-include", str(HERE / "oldlibc.h")]
# A product and a sum are rounded one after the other, as NumPy does, even if the processor has one
# instruction for both.
EXACT = ["-ffp-contract=off"]


def declarations(headers: tuple[str, ...]) -> str:
    """Return the parts of headers that cffi reads."""
    texts = [(HERE / header).read_text() for header in headers]
    return "".join(re.search(r"/\* CFFI-BEGIN \*/(.*)/\* CFFI-END \*/", text, re.S)[1]
                   for text in texts)


def sources_of(folders: tuple[str, ...]) -> list[Path]:
    """Return all sources of some folders, in the table's order."""
    return [HERE / folder / name for folder in SOURCES if folder in folders
            for name in SOURCES[folder]]


class BuildExtension(build_ext):
    """Generate the sources, then build `ftrma._native` with mpicc."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the path of a library without the name of a Python version."""
        return str(Path(*fullname.split("."))) + ".so"

    def run(self) -> None:
        import calls
        from cffi import FFI

        mpicc = find_mpicc()
        check_compiler()
        out = Path(self.build_temp)
        out.mkdir(parents=True, exist_ok=True)
        calls.generate(mpicc, out / "guards.c")
        package = HERE.parent / "ftrma" if self.inplace else Path(self.build_lib) / "ftrma"
        (package / "frameworks" / "graph").mkdir(parents=True, exist_ok=True)
        for module, headers in DECLARED.items():
            ffi = FFI()
            ffi.cdef(declarations(headers))
            ffi.set_source(f"ftrma.{module}", None)  # no C: the build needs no Python headers
            ffi.emit_python_code(str(package / f"{module.replace('.', '/')}.py"))
        link = shlex.split(subprocess.check_output([mpicc, "-show"], text=True))[1:]
        keep = [a for a in link if a.startswith(("-I", "-D", "-L", "-l", "-pthread"))]
        # A compiler that the user names stays there; the wheel's library is found at run time.
        rpath = [f"-Wl,-rpath,{a[2:]}" for a in link if a.startswith("-L")]
        native = self.extensions[0]
        made = [out / "guards.c"]
        native.sources = [os.path.relpath(p) for p in [*sources_of(LINKED), *made]]
        # These stand in front of the environment's directory, which may have another mpi.h.
        native.include_dirs = [
            *(str(HERE / folder) for folder in ("", *LINKED, *WIRE)),
            *(a[2:] for a in keep if a.startswith("-I")),
        ]
        native.extra_compile_args = FLAGS + [a for a in keep if a.startswith(("-D", "-p"))]
        # Calls of its own functions go there at once, not by a table that others can change.
        native.extra_link_args = ["-Wl,-Bsymbolic-functions"]
        native.extra_link_args += ["-Wl,-rpath,$ORIGIN", "-Wl,-rpath,$ORIGIN/../../.."]
        native.extra_link_args += rpath if os.environ.get("MPICC") else []
        native.extra_link_args += [a for a in keep if not a.startswith(("-I", "-D"))]
        # The launcher preloads this library, which has nothing to do with MPI.
        loopback = self.extensions[1]
        loopback.sources = [os.path.relpath(HERE / "loopback.c")]
        loopback.extra_compile_args = FLAGS
        wire = self.extensions[2]
        wire.sources = [os.path.relpath(p) for p in sources_of(WIRE)]
        wire.include_dirs = [str(HERE / folder) for folder in ("", *WIRE)]
        wire.extra_compile_args = FLAGS
        graph = self.extensions[3]
        graph.sources = [os.path.relpath(p) for p in sources_of(GRAPH)]
        graph.extra_compile_args = FLAGS + EXACT
        graph.depends = [os.path.relpath(HERE / "graph" / "graph.h")]
        wire.depends = [os.path.relpath(p) for p in HERE.rglob("*.h")]
        native.depends = [os.path.relpath(p) for p in [*HERE.rglob("*.[ch]"), HERE / "calls.py"]]
        super().run()

    def build_extensions(self) -> None:
        # A Python that was installed by its sources names its own place here.
        self.compiler.linker_so = [
            word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
        # The wire first: the extension is linked with it, and finds it beside itself.
        native, loopback, wire, graph = self.extensions
        self.extensions = [wire, loopback, native, graph]
        built = Path(self.get_ext_fullpath(wire.name))
        native.extra_link_args[:0] = [f"-L{built.parent}", f"-l:{built.name}"]
        order = [f"{folder}/{Path(n).stem}.o" for folder in LINKED for n in SOURCES[folder]]
        link = self.compiler.link_shared_object

        def place(path: str) -> int:
            name = "/".join(Path(path).parts[-2:])
            return order.index(name) if name in order else len(order)

        def link_in_order(objects: list[str], *args: Any, **kwargs: Any) -> None:
            link(sorted(objects, key=place), *args, **kwargs)

        self.compiler.link_shared_object = link_in_order
        super().build_extensions()
