"""The treatment of every MPI call by the interposer, and the generator of the plain wrappers.

The table has one row per kind of treatment.  Window and RMA calls are listed by name, all of them;
calls on communicators and requests are told apart by their parameters, read from the ``mpi.h`` in
use, so that large-count forms and newer standards are covered where the library has them.

========== =====================================================================================
kind       treatment
========== =====================================================================================
ours       written by hand (in interpose/): no window but a dynamic one reaches the library, and
           neither do the blocking collective calls on the slots' world and what is derived from
           it; others are passed on
guard      may communicate or block: MPI_COMM_WORLD stands for the slots; not entered while a
           failure is pending; an error under a failure becomes "unwind"; new communicators are
           registered for revocation
translate  local: MPI_COMM_WORLD stands for the slots, nothing else
pass       not intercepted: concerns neither a communicator of the program nor a wait, or acts on
           the process-local window behind the handle, which is what it should do
========== =====================================================================================
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from mpicc import preprocess

OURS = """
Put Get Accumulate Get_accumulate Fetch_and_op Compare_and_swap Rput Rget Raccumulate
Rget_accumulate Win_allocate Win_create Win_free Win_get_group Win_get_attr Win_shared_query
Win_allocate_shared Win_create_dynamic Win_fence Win_lock Win_unlock Win_lock_all Win_unlock_all
Win_flush Win_flush_all Win_flush_local Win_flush_local_all Win_sync Win_post Win_start
Win_complete Win_wait Win_test Comm_get_attr Init Init_thread Finalize Finalized Abort
Comm_set_errhandler Comm_get_errhandler Win_set_errhandler Win_get_errhandler
File_set_errhandler File_get_errhandler Errhandler_free
Comm_dup Comm_dup_with_info Comm_split Comm_split_type Comm_create Cart_create Cart_sub Comm_free
Comm_disconnect Comm_size Comm_rank Comm_compare Comm_group
Comm_spawn Comm_spawn_multiple Psend_init Precv_init Iprobe Improbe
Sendrecv Sendrecv_replace
Group_from_session_pset Session_get_pset_info
""".split()  # noqa: SIM905

# Blocking calls on communicators that are ours. The library's large-count forms stay guarded.
COLLECTIVES = """
Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv Reduce
Allreduce Scan Exscan Reduce_scatter Reduce_scatter_block
""".split()  # noqa: SIM905

# Attributes, names, infos and error handlers belong to the process-local window behind the handle;
# attach and detach only exist for dynamic windows, which are the library's own.
PASS = """
Win_attach Win_detach Win_call_errhandler Win_create_errhandler Win_create_keyval
Win_delete_attr Win_free_keyval Win_get_info Win_get_name Win_set_attr
Win_set_info Win_set_name Request_free Cancel Request_get_status
Grequest_complete Grequest_start Status_set_elements Request_c2f Request_f2c Message_c2f
Message_f2c Pack_external Comm_get_parent Comm_c2f Comm_f2c File_c2f File_call_errhandler
""".split()  # noqa: SIM905

LOCAL = re.compile(
    r"MPI_(Comm_(remote_size|remote_group|is_revoked|get_failed|ack_failed)"
    r"|Topo_test|Cart(_map|_coords|_rank|_get|_shift|dim_get)|Graph(_map|_get|dims_get"
    r"|_neighbors(_count)?)|Dist_graph_neighbors(_count)?|Pack|Unpack|Pack_size)$"
)

# Calls on the communicator's handle, which is of this process alone.
HANDLE = re.compile(
    r"MPI_Comm_((set|delete)_attr|(get|set)_(name|info)|call_errhandler|test_inter)$"
)

# Calls that lead to processes outside of the job, even from a communicator of this process alone.
OUTWARD = re.compile(r"Comm_(accept|connect|join)")

# Calls that the standard has removed; Open MPI declares them only to reject their use.
GONE = re.compile(r"MPI_(Attr_\w+|Errhandler_(get|set|create)|Keyval_\w+|Address|Type_struct)$")


# Calls whose MPI_Comm * is no new communicator yet.
NOT_MADE = ("Comm_idup", "Comm_idup_with_info")


class Call(NamedTuple):
    """One function of mpi.h: its name without ``MPI_``, and its parameters as (type, name)."""

    name: str
    parameters: tuple[tuple[str, str], ...]

    @property
    def kind(self) -> str:
        base = self.name.removesuffix("_c")
        types = [t for t, _ in self.parameters]
        if base in OURS or self.name in COLLECTIVES:
            return "ours"
        if base in PASS or not any(
            any(word in t for word in ("MPI_Comm", "MPI_Request", "MPI_Message", "MPI_File"))
            for t in types
            if "function" not in t
        ):
            return "pass"
        local = LOCAL.match(f"MPI_{base}") or HANDLE.match(f"MPI_{base}")
        return "translate" if local else "guard"


def _parameter(text: str, position: int) -> tuple[str, str]:
    text = " ".join(text.split())
    array = re.match(r"(.*?)(\w+)\s*((?:\[[^]]*\])+)$", text)
    if array:
        rest = array[3][array[3].index("]") + 1 :]
        return (array[1].strip() + (f" (*){rest}" if rest else " *"), array[2])
    match = re.match(r"(.*?[\s*])(\w+)$", text)
    if match and match[1].strip() not in ("const", ""):
        return match[1].strip(), match[2]
    return text, f"a{position}"


def read_header(mpicc: str) -> list[Call]:
    """Read all functions that return int from the mpi.h that `mpicc` compiles against."""
    text = preprocess(mpicc, "#define OMPI_OMIT_MPI1_COMPAT_DECLS 1\n#include <mpi.h>\n")
    calls = {}
    prototype = r"\bint\s+MPI_(\w+)\s*\(([^;{}]*?)\)\s*(?:__attribute__[^;]*)?;"
    for name, body in re.findall(prototype, text):
        if "(*" in body or GONE.match(f"MPI_{name}"):
            continue
        parts = [] if body.strip() in ("", "void") else body.split(",")
        if "..." in body:
            continue
        calls[name] = Call(name, tuple(_parameter(p, i) for i, p in enumerate(parts)))
    return sorted(calls.values())


def declare(kind: str, name: str) -> str:
    if "(*)" in kind:
        return kind.replace("(*)", f"(*{name})")
    return f"{kind}{'' if kind.endswith('*') else ' '}{name}"


def wrapper(call: Call) -> str:
    """Return the C source of one generated wrapper."""
    names = []
    made = ""
    for kind, name in call.parameters:
        known_by = "ftrma_handle" if HANDLE.match(f"MPI_{call.name}") else "ftrma_comm"
        names.append(f"{known_by}({name})" if kind == "MPI_Comm" else name)
        if kind == "MPI_Comm *" and call.name not in NOT_MADE:
            made = name
    head = f"int MPI_{call.name}({', '.join(declare(*p) for p in call.parameters) or 'void'})"
    target = f"PMPI_{call.name}({', '.join(names)})"
    if call.kind == "translate":
        return f"{head}\n{{\n    return {target};\n}}\n"
    place = ""
    comms = [name for kind, name in call.parameters if kind == "MPI_Comm"]
    if comms or made:
        # No replay can repeat communication with others; with itself a slot repeats all.
        place = "    ftrma_failpoint(FTRMA_FAILPOINT_CALL);\n"
        if OUTWARD.match(call.name) or not comms:
            place += f'    ftrma_foreign("MPI_{call.name}");\n'
        else:
            place += "".join(f'    ftrma_foreign_on({c}, "MPI_{call.name}");\n' for c in comms)
    elif any(kind.startswith(("MPI_Request", "MPI_Message")) for kind, _ in call.parameters):
        place = "    ftrma_note_wait();\n"
    if made:
        body = (
            f"    int rc = GUARDED({target});\n    if (rc == MPI_SUCCESS)\n"
            f'        ftrma_register_foreign(*{made}, "MPI_{call.name}");\n    return rc;\n'
        )
    elif call.name in NOT_MADE:
        body = (
            f"    int rc = GUARDED({target});\n    if (rc == MPI_SUCCESS)\n"
            f'        ftrma_foreign_later("MPI_{call.name}");\n    return rc;\n'
        )
    else:
        body = f"    return GUARDED({target});\n"
    return f"{head}\n{{\n{place}{body}}}\n"


def generate(mpicc: str, to: Path) -> None:
    """Write the generated wrappers, and the names of all calls that are intercepted."""
    calls = [c for c in read_header(mpicc) if c.kind in ("guard", "translate")]
    if len(calls) < 100:
        raise RuntimeError(
            f"{mpicc}: only {len(calls)} MPI calls found in mpi.h; is it an MPI-3 "
            "compiler wrapper? Name another with MPICC="
        )
    names = sorted([*(call.name for call in calls), *OURS, *COLLECTIVES])
    text = [
        "/* Generated by calls.py from mpi.h.  Do not edit. */",
        '#include "communicator.h"',
        '#include "errors.h"',
        '#include "event_clock.h"',
        '#include "killrules.h"',
        '#include "revoke.h"',
        "",
        "const char *ftrma_intercepted(unsigned which)",
        "{",
        "    static const char *const names[] = {",
        *(f'        "MPI_{name}",' for name in names),
        "        NULL,",
        "    };",
        f"    return which < {len(names)} ? names[which] : NULL;",
        "}",
        "",
    ]
    text += [wrapper(c) for c in calls]
    to.write_text("\n".join(text))
